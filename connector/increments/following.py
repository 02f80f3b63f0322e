"""What comes to topics from now on: new ledgers in the bucket, or new messages of their brokers."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

from arrow_io.columns import Origin
from arrow_io.messages.delivery import Delivery
from arrow_io.messages.encryption import PayloadDecryptor
from arrow_io.messages.message_reader import MessageReader
from connector.increments.increment import Increments, execute_increment
from connector.live.broker import BEGINNING, EntryId, by_entry, entry_of, is_last_of_entry
from connector.live.entries import UNAVAILABLE_COLUMNS, LiveEntries, has_binary_keys
from connector.scan.execution import RecordBatchBuilder, new_tally
from connector.scan.topic_read import TopicRead
from connector.scan.topic_scan import DEFAULT_TASK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import _pulsar
    import pyarrow as pa

    from arrow_io.read_metrics import ReadMetrics
    from connector.catalog.catalog import Catalog
    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.live.broker import BrokerReader, Brokers
    from connector.live.tail import LiveTail
    from connector.scan.topic_scan import Scan

    NewRows: TypeAlias = Callable[[ReadMetrics], Iterator[pa.RecordBatch]]
    """Gives the rows that came since it was called last; counts what is met."""

_MOST_AT_ONCE: Final = 100_000
"""After so many messages of a topic it is the turn of the others: a busy one may never end."""


def new_in_bucket(catalog: Catalog, patterns: Sequence[str], scan: Scan) -> NewRows:
    """What is offloaded from now on.

    Args:
        catalog: Where the topics are; what it has found counts as read.
        patterns: Names and globs of topics.
        scan: What is read of them.

    Raises:
        OptionError: The scan has an end.
        PulsarOffloadError: The topics cannot be found.
    """
    increments = Increments(catalog, patterns, scan.options, scan.statistics)
    progress = increments.latest()

    def new_rows(metrics: ReadMetrics) -> Iterator[pa.RecordBatch]:
        nonlocal progress
        increments.refresh()
        increment = increments.next_increment(progress)
        with increments.catalog.explaining():
            for read in increment.reads:
                for task in read.tasks(DEFAULT_TASK_BYTES):
                    yield from execute_increment(task, metrics)
        progress = increment.after

    return new_rows


@contextmanager
def new_from_brokers(brokers: Brokers, scan: Scan) -> Iterator[NewRows]:
    """What is published from now on, behind the tails of a scan.

    A message in chunks that began in the bucket, and was not complete when the topic was opened,
    is not given.

    Args:
        brokers: The brokers.
        scan: What was read of the topics, with their tails.

    Raises:
        BrokerError: The brokers cannot be asked, or refuse.
    """
    with brokers.connect() as client, ExitStack() as stack:
        followed = []
        for topic in scan.topics:
            tail = scan.tails.get(topic.topic)
            start = BEGINNING if tail is None else min(tail.first, tail.until.begin)
            reader = stack.enter_context(client.open_reader(topic.topic, start))
            followed.append(_FollowedTopic(topic, tail, scan, reader))
        yield lambda metrics: (rows for each in followed for rows in each.rows(metrics))


class _FollowedTopic:
    """One topic or partition, whose messages behind its tail are read as they come."""

    def __init__(
        self, topic: TopicLedgers, tail: LiveTail | None, scan: Scan, reader: BrokerReader
    ) -> None:
        self._topic = str(topic.topic)
        origin = Origin(self._topic, topic.topic.partition, UNAVAILABLE_COLUMNS)
        self._builder = RecordBatchBuilder.from_read(TopicRead(origin, (), (), scan.options))
        self._reader = reader
        self._until = EntryId(-1, -1) if tail is None else tail.last
        self._decryptor = PayloadDecryptor(scan.options.decryption_keys)

    def rows(self, metrics: ReadMetrics) -> Iterator[pa.RecordBatch]:
        """What has come since it was asked for last."""
        options = self._builder.options
        tally = new_tally(options, metrics)
        entries = LiveEntries(
            self._topic,
            metrics,
            has_binary_keys=has_binary_keys(options.filterable.values),
        )
        runs = entries.runs(by_entry(self._messages()))
        messages = MessageReader(
            Delivery(runs, tally, self._decryptor),
            options.needs,
            tally,
            limits=options.limits,
            decryptor=self._decryptor,
        )
        yield from self._builder.build(messages, tally)

    def _messages(self) -> Iterator[_pulsar.Message]:
        count = 0
        while self._reader.has_more():
            message = self._reader.next_soon()
            if message is None:
                # It is announced, and held back by an open transaction.
                return
            if entry_of(message) > self._until:
                yield message
                count += 1
                if count >= _MOST_AT_ONCE and is_last_of_entry(message):
                    return
