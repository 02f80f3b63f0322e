"""The replay of one topic partition, from the last message that the target already has.

Only settled entries are sent (`connector.increments.settled`): those before the first transaction
without an outcome, and before the first missing ledger.
"""

from __future__ import annotations

import logging
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from arrow_io.core import telemetry
from arrow_io.core.wording import agreeing, counted
from arrow_io.errors import OpenTransactionError
from arrow_io.read_metrics import ReadMetrics
from connector.increments.progress import Position, Progress, TopicProgress
from connector.replay import places
from connector.replay.outgoing import count_base64_keys, outgoing_messages
from connector.replay.places import entry_from_place, eras_from_ledgers, message_id_from_place
from connector.replay.routes import choose_partition
from connector.replay.sender import Sender
from connector.scan.scan_units import prefetch_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.increments.increment import Increment, Increments
    from connector.inputs.topic_names import TopicName
    from connector.replay.outgoing import OutgoingMessage
    from connector.replay.sender import SenderContext
    from connector.scan.topic_read import TopicRead


@dataclass(slots=True)
class ReplaySummary:
    """What a replay of one topic partition did.

    Attributes:
        topic: The topic or partition.
        targets: The topics or partitions that messages were sent to.
        messages: Messages sent.
        value_bytes: Approximate bytes of their values, keys and properties.
        base64_keys: Messages whose key is bytes, and was sent as Base64 text.
        resumed_after: Message id of the last message that an earlier run had sent, or None. If keys
            choose the partition, the lowest of all target partitions.
        sent_to: Message id of the last message sent, or None.
        data_bytes: Bytes of data objects read.
        lag_bytes: Bytes of data objects that cannot be replayed yet, because they follow an open
            transaction or a missing ledger.
        metrics: Read metrics.
        notices: One sentence for each fact that the user must know.
    """

    topic: str
    targets: tuple[str, ...]
    messages: int = 0
    value_bytes: int = 0
    base64_keys: int = 0
    resumed_after: str | None = None
    sent_to: str | None = None
    data_bytes: int = 0
    lag_bytes: int = 0
    metrics: ReadMetrics = field(default_factory=ReadMetrics)
    notices: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class PartitionReplay:
    """The replay of one topic partition to its targets.

    Attributes:
        increments: Finds its settled entries.
        targets: The target partitions; only one unless keys choose.
        name: Prefix of the names of its producers.
        carried: Columns to send as properties.
    """

    topic: TopicLedgers
    increments: Increments
    targets: Sequence[TopicName]
    name: str
    carried: Sequence[str] = ()

    def increment(self, after: int = 0) -> Increment:
        """Return the settled entries from that of the message at a place on; 0 returns all.

        Raises:
            PulsarOffloadError: Ledgers cannot be read.
        """
        progress = TopicProgress.at(Position(*entry_from_place(after)))
        return self.increments.next_increment(Progress({self.topic.topic: progress}))

    def replay(self, context: SenderContext, on_progress: Callable[[int], object]) -> ReplaySummary:
        """Send all messages that the target lacks, and report their number repeatedly.

        Raises:
            BrokerError: A message could not be sent, or the broker does not deduplicate.
            OpenTransactionError: A transaction turned out to have no outcome after later messages
                had been sent.
            PulsarOffloadError: Data cannot be read or decoded.
        """
        summary = ReplaySummary(str(self.topic.topic), tuple(map(str, self.targets)))
        with self._senders(context) as senders:
            resume_place = min(each.sent_to for each in senders)
            summary.resumed_after = message_id_from_place(resume_place) if resume_place else None
            increment = self.increment(resume_place)
            summary.notices += increment.notices
            summary.lag_bytes = increment.lag.data_bytes
            for read in self._reads(increment):
                self._send(read, resume_place, senders, summary, on_progress)
                summary.data_bytes += read.data_bytes
            for each in senders:
                each.flush()
            context.in_flight.finish()
            _count(summary, senders)
            on_progress(summary.messages)
        if summary.base64_keys:
            keys = counted(summary.base64_keys, "message")
            summary.notices.append(
                f"{self.topic.topic}: {keys} {agreeing(summary.base64_keys, 'has', 'have')} a key"
                " of bytes, which Pulsar's Python client sends as Base64 text"
            )
        return summary

    @contextmanager
    def _senders(self, context: SenderContext) -> Iterator[list[Sender]]:
        eras = eras_from_ledgers(each.ledger_id for each in self.topic.ledgers)
        senders = [Sender(context, target, self.name, eras) for target in self.targets]
        yield senders
        # After an error, closing the client closes all producers.
        for each in senders:
            each.close()

    def _reads(self, increment: Increment) -> Iterator[TopicRead]:
        """Yield the reads of this partition: the name may match other topics, too."""
        for read in increment.reads:
            if read.origin.topic == str(self.topic.topic):
                yield read

    def _send(
        self,
        read: TopicRead,
        resume_place: int,
        senders: Sequence[Sender],
        summary: ReplaySummary,
        on_progress: Callable[[int], object],
    ) -> None:
        # A single task: a chunked message belongs to the task of its first chunk, but its place is
        # that of the last one, so several tasks could return messages out of order.
        rows = prefetch_rows([read.task(read.ranges)], summary.metrics)
        rows = telemetry.observe_batches("read", rows, logging.INFO, topic=read.origin.topic)
        with closing(rows) as batches:
            for batch in (places.rows_after(each, resume_place) for each in batches):
                summary.base64_keys += count_base64_keys(batch)
                self._send_batch(batch, senders)
                _count(summary, senders)
                on_progress(summary.messages)
        if summary.metrics.undecided_messages:
            message = (
                f"{self.topic.topic}: a transaction has no recorded outcome yet,"
                " and later messages were sent already: another run would not send its messages"
            )
            raise OpenTransactionError(message)

    def _send_batch(self, batch: pa.RecordBatch, senders: Sequence[Sender]) -> None:
        messages: Iterator[OutgoingMessage] = outgoing_messages(batch, self.carried)
        if len(senders) == 1:
            [sender] = senders
            for message in messages:
                sender.put(message)
            return
        for message in messages:
            senders[choose_partition(message, len(senders))].put(message)


def _count(summary: ReplaySummary, senders: Sequence[Sender]) -> None:
    summary.messages = sum(each.messages for each in senders)
    summary.value_bytes = sum(each.value_bytes for each in senders)
    last = max((each.sent_to for each in senders if each.messages), default=0)
    summary.sent_to = message_id_from_place(last) if last else None
