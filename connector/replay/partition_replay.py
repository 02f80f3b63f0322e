"""The replay of one topic partition: what the bucket has of it, behind what the target has."""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from arrow_io.core.wording import agreeing, counted
from arrow_io.errors import OpenTransactionError
from arrow_io.read_metrics import ReadMetrics
from connector.increments.progress import Position, Progress, TopicProgress
from connector.replay import places
from connector.replay.outgoing import base64_keys, outgoing
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
    from connector.replay.outgoing import Outgoing
    from connector.replay.sender import Sending
    from connector.scan.topic_read import TopicRead


@dataclass(slots=True)
class ReplaySummary:
    """What a replay of one topic partition did.

    Attributes:
        topic: The topic or partition.
        targets: The topics or partitions that it went to.
        messages: Messages that were sent.
        value_bytes: Bytes of their values and keys.
        base64_keys: Messages with a key of bytes, whose key is the Base64 text of it now.
        resumed_after: Message id of the last message that an earlier run had sent; None: there was
            none. If keys choose the partition, the least of those of all partitions.
        sent_to: Message id of the last message that was sent; None: none was.
        data_bytes: Bytes of data objects that were read.
        lag_bytes: Bytes of data objects that could not be replayed yet: what stands behind an
            open transaction or a missing ledger.
        metrics: Counts of what was met besides messages.
        notices: One sentence for each thing that whoever replays must know of.
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
    """What is replayed, and to where.

    Attributes:
        topic: The topic or partition, with its ledgers.
        increments: Say what of it is settled.
        targets: The partitions that it goes to; one, unless keys choose.
        name: What the names of its producers begin with.
        carried: Columns that are carried as properties.
    """

    topic: TopicLedgers
    increments: Increments
    targets: Sequence[TopicName]
    name: str
    carried: Sequence[str] = ()

    def increment(self, after: int = 0) -> Increment:
        """What there is to be replayed.

        Args:
            after: Place of a message: what lies before its entry is left out; 0: nothing is.

        Raises:
            PulsarOffloadError: Ledgers cannot be read.
        """
        progress = TopicProgress.at(Position(*entry_from_place(after)))
        return self.increments.next_increment(Progress({self.topic.topic: progress}))

    def replay(self, sending: Sending, on_progress: Callable[[int], object]) -> ReplaySummary:
        """Send all that the target has not.

        Args:
            sending: What all senders share.
            on_progress: Hears how many messages were sent, again and again.

        Raises:
            BrokerError: A message could not be sent; or the broker does not deduplicate.
            OpenTransactionError: A transaction without outcome came to light behind messages that
                were sent already.
            PulsarOffloadError: Data cannot be read or decoded.
        """
        summary = ReplaySummary(str(self.topic.topic), tuple(map(str, self.targets)))
        with self._senders(sending) as senders:
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
            sending.in_flight.finish()
            _count(summary, senders)
            on_progress(summary.messages)
        if summary.base64_keys:
            keys = counted(summary.base64_keys, "message")
            summary.notices.append(
                f"{self.topic.topic}: {keys} {agreeing(summary.base64_keys, 'has', 'have')} a key"
                " of bytes, which Pulsar's client for Python sends as its Base64 text"
            )
        return summary

    @contextmanager
    def _senders(self, sending: Sending) -> Iterator[list[Sender]]:
        eras = eras_from_ledgers(each.ledger_id for each in self.topic.ledgers)
        senders = [Sender(sending, target, self.name, eras) for target in self.targets]
        yield senders
        # At an error the client ends them all, with what they have in flight.
        for each in senders:
            each.close()

    def _reads(self, increment: Increment) -> Iterator[TopicRead]:
        """What has to be read of this partition: its name may select others, too."""
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
        # In one task: a message in chunks is given by the task where it begins, and stands where
        # it ends, which would be out of order between two.
        with closing(prefetch_rows([read.task(read.ranges)], summary.metrics)) as batches:
            for batch in (places.rows_after(each, resume_place) for each in batches):
                summary.base64_keys += base64_keys(batch)
                self._send_batch(batch, senders)
                _count(summary, senders)
                on_progress(summary.messages)
        if summary.metrics.open_messages:
            message = (
                f"{self.topic.topic}: a transaction has no outcome in the offloaded ledgers yet,"
                " and messages behind it were sent already: another run does not send its own"
            )
            raise OpenTransactionError(message)

    def _send_batch(self, batch: pa.RecordBatch, senders: Sequence[Sender]) -> None:
        messages: Iterator[Outgoing] = outgoing(batch, self.carried)
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
