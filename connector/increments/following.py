"""Following topics: rows of newly offloaded ledgers, or of newly published messages."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

from arrow_io.columns import Origin
from arrow_io.messages.delivery import Delivery
from arrow_io.messages.encryption import PayloadDecryptor
from arrow_io.messages.message_reader import MessageReader
from connector.increments.increment import Increments, execute_increment
from connector.live.broker import BEGINNING, EntryId, entry_of, group_by_entry, is_last_of_entry
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
    from connector.inputs.topic_names import SegmentSelection
    from connector.live.broker import BrokerReader, Brokers
    from connector.live.tail import LiveTail
    from connector.scan.topic_scan import Scan

    NewRows: TypeAlias = Callable[[ReadMetrics], Iterator[pa.RecordBatch]]
    """Yields the rows that arrived since its last call, and adds to the read metrics."""

_MAX_AT_ONCE: Final = 100_000
"""Maximum number of messages of a topic per turn, because a busy topic may never run out."""


def new_in_bucket(
    catalog: Catalog,
    patterns: Sequence[str],
    scan: Scan,
    *,
    segments: SegmentSelection = "current",
) -> NewRows:
    """Return a function that yields the rows offloaded since its last call.

    The current contents of the catalog count as read. `patterns` are names and globs of topics;
    `segments` is as for `Increments`.

    Raises:
        OptionError: The scan has an end.
        PulsarOffloadError: The topics cannot be found.
    """
    increments = Increments(catalog, patterns, scan.options, scan.statistics, segments=segments)
    progress = increments.latest()

    def new_rows(metrics: ReadMetrics) -> Iterator[pa.RecordBatch]:
        nonlocal progress
        increments.refresh()
        increment = increments.next_increment(progress)
        with increments.catalog.explain_missing():
            for read in increment.reads:
                for task in read.tasks(DEFAULT_TASK_BYTES):
                    yield from execute_increment(task, metrics)
        progress = increment.after

    return new_rows


@contextmanager
def new_from_brokers(brokers: Brokers, scan: Scan) -> Iterator[NewRows]:
    """Yield a function that yields the rows published since its last call, after a scan's tails.

    A chunked message that began in the bucket, and was incomplete when the topic was opened, is not
    returned.

    Raises:
        BrokerError: The brokers cannot be reached, or refuse the request.
    """
    with brokers.connect() as client, ExitStack() as stack:
        followed_topics = []
        for topic in scan.topics:
            tail = scan.tails.get(topic.topic)
            start = BEGINNING if tail is None else min(tail.first, tail.last_message.begin)
            reader = stack.enter_context(client.open_reader(topic.topic, start))
            followed_topics.append(_FollowedTopic(topic, tail, scan, reader))
        yield lambda metrics: (rows for each in followed_topics for rows in each.rows(metrics))


class _FollowedTopic:
    """One topic partition whose messages are read as they are published, after its tail."""

    def __init__(
        self, topic: TopicLedgers, tail: LiveTail | None, scan: Scan, reader: BrokerReader
    ) -> None:
        self._topic = str(topic.topic)
        origin = Origin(self._topic, topic.topic.partition, unknown=UNAVAILABLE_COLUMNS)
        self._builder = RecordBatchBuilder.from_read(TopicRead(origin, (), (), scan.options))
        self._reader = reader
        self._until = EntryId(-1, -1) if tail is None else tail.last
        self._decryptor = PayloadDecryptor(scan.options.decryption_keys)

    def rows(self, metrics: ReadMetrics) -> Iterator[pa.RecordBatch]:
        options = self._builder.options
        tally = new_tally(options, metrics)
        entries = LiveEntries(
            self._topic,
            metrics,
            has_binary_keys=has_binary_keys(options.filterable.values),
        )
        runs = entries.runs(group_by_entry(self._messages()))
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
                # The broker announces the message, but an open transaction holds it back.
                return
            if entry_of(message) > self._until:
                yield message
                count += 1
                if count >= _MAX_AT_ONCE and is_last_of_entry(message):
                    return
