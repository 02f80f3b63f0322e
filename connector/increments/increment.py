"""Increments: the new rows of topics since some progress, as reads whose tasks any process runs.

An increment has exactly the rows of a batch read whose position is in `[before, after)` of their
topic partition. Where a message began does not matter, nor where increments are split. So
consecutive increments together have the rows of one batch read, each exactly once.

A segment of a scalable topic is read only after those before it that may have the same keys, like
a consumer of Pulsar does (`SubscriptionCoordinator`). So the rows of a key stay in order.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from arrow_io.core import telemetry
from arrow_io.core.wording import agreeing, counted
from arrow_io.errors import OpenTransactionError, OptionError
from arrow_io.read_metrics import ReadMetrics
from connector.increments.due import due_ledgers, lost_ledger_error, unfinished_ledgers
from connector.increments.progress import Position, Progress, TopicProgress
from connector.increments.settled import OpenTransactions, position_after, probe_all
from connector.inputs.topic_names import common_base
from connector.scan.execution import execute
from connector.scan.outcomes import add_outcomes
from connector.scan.pruning import topic_read
from connector.scan.topic_read import EntryRange
from connector.statistics.transactions import RecordedTransactions

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from arrow_io.ledgers.ledger import Ledger
    from arrow_io.messages.transactions import TransactionOutcomes
    from connector.catalog.catalog import Catalog
    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.increments.due import DueLedgers
    from connector.inputs.topic_names import SegmentSelection, TopicName
    from connector.scan.read_options import ReadOptions
    from connector.scan.topic_read import ScanTask, TopicRead
    from connector.statistics.ledger_parts import ZoneGatherer
    from connector.statistics.store import Statistics

_ReadPlanner: TypeAlias = "Callable[[TopicLedgers, Position, Position], TopicRead]"
_ledger_id: Final = attrgetter("ledger_id")
_LOOKUP_LEDGERS: Final = 64
"""Number of ledgers of a topic that are probed, and looked up in statistics, together."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Maximum size of an increment. An increment may exceed it by one data block, to make progress.

    Attributes:
        max_bytes: Bytes of data objects, counting whole blocks; None: unlimited.
        max_ledgers: Number of ledgers that are read, even if only in part; None: unlimited.
    """

    max_bytes: int | None = None
    max_ledgers: int | None = None

    def allow(self, data_bytes: int, ledgers: int) -> bool:
        """Return whether an amount is within the limits."""
        return (self.max_bytes is None or data_bytes <= self.max_bytes) and (
            self.max_ledgers is None or ledgers <= self.max_ledgers
        )


@dataclass(frozen=True, slots=True)
class Amount:
    """Bytes of data objects, and the number of ledgers that they belong to."""

    data_bytes: int = 0
    ledgers: int = 0


@dataclass(frozen=True)
class Increment:
    """Some of the new rows of topics.

    Attributes:
        reads: What has to be read, topic by topic; sends no request.
        before: Where it starts.
        after: Where it ends; equal to `before` if nothing can be read now.
        amount: Amount that it reads; pruned zones do not count.
        lag: What else is in the bucket after it, readable now or not.
        notices: Sentences about what a consumer of the rows must know.
    """

    reads: tuple[TopicRead, ...]
    before: Progress
    after: Progress
    amount: Amount = Amount()
    lag: Amount = Amount()
    notices: tuple[str, ...] = ()

    @property
    def topic(self) -> str | None:
        """Name of the topic, without partition and segment; None if there are several topics."""
        return common_base(self.after.topics)

    @property
    def data_bytes(self) -> int:
        """Bytes of data objects that it reads, counting whole blocks."""
        return self.amount.data_bytes

    @property
    def ledgers(self) -> int:
        """Number of ledgers that it reads, even if only in part."""
        return self.amount.ledgers


def execute_increment(
    task: ScanTask,
    metrics: ReadMetrics | None = None,
    *,
    gatherer: ZoneGatherer | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a task of an increment, like `execute`; raise for open transactions.

    Raises:
        OpenTransactionError: A transaction has no outcome yet. Discard all rows of the task then:
            the messages of that transaction would otherwise never be returned.
        PulsarOffloadError: Data cannot be read or decoded.
    """
    counts = ReadMetrics() if metrics is None else metrics
    earlier_messages = counts.undecided_messages
    earlier_transactions = counts.undecided_transactions
    yield from execute(task, counts, gatherer=gatherer)
    open_messages = counts.undecided_messages - earlier_messages
    if open_messages:
        messages = counted(open_messages, "message")
        transactions = counted(counts.undecided_transactions - earlier_transactions, "transaction")
        place = _place_of_outcomes(task.read.segment_outcomes)
        message = (
            f"{task.read.origin.topic}: {messages} of {transactions}"
            f" {agreeing(open_messages, 'has', 'have')} no outcome in the {place} yet, so their"
            " rows are discarded; run it again when the outcome is there"
        )
        raise OpenTransactionError(message, ledger_id=task.ranges[0].ledger_id)


class Increments:
    """Computes the increments of topics, one after another; caches what it learns about ledgers.

    Args:
        catalog: The catalog of the topics.
        patterns: Names and globs of topics, or a regular expression that full names, without
            partition, have to match. Topics and partitions that appear later are read from their
            beginning.
        options: How entries become rows. Bounds narrow the rows: entries before their start count
            as read. When salvaging, ledgers that are late, lost or unsound are notices instead of
            errors.
        statistics: Recorded zones, used to find transactions and to prune; None to do without.
        may_end: Whether the bounds may have an end. Rows after it are then skipped as if they had
            been read.
        segments: Whether segments are read that the metadata of their topic does not name: `all`.

    Raises:
        OptionError: The bounds have an end, and `may_end` is false.
    """

    def __init__(
        self,
        catalog: Catalog,
        patterns: Sequence[str] | re.Pattern[str],
        options: ReadOptions,
        statistics: Statistics | None = None,
        *,
        may_end: bool = False,
        segments: SegmentSelection = "current",
    ) -> None:
        bounds = options.bounds
        if not may_end and (bounds.end_id is not None or bounds.end_ms is not None):
            # The rows after it would be skipped as if they had been read.
            message = "an incremental read has no end: leave the option end out"
            raise OptionError(message)
        self.catalog = catalog
        self.options = options
        self.statistics = statistics
        self._patterns = patterns
        self._segments: SegmentSelection = segments
        self._transactions: dict[TopicName, OpenTransactions] = {}

    def refresh(self) -> None:
        """Reload the bucket's listing, the cluster's metadata, and statistics.

        Index objects and statistics files that were read are not read again.

        Raises:
            PulsarOffloadError: They cannot be read.
        """
        self.catalog = self.catalog.refreshed()
        if self.statistics is not None:
            self.statistics = self.statistics.refreshed()

    def latest(self) -> Progress:
        """Return the progress of a reader that reads only rows offloaded from now on.

        Raises:
            PulsarOffloadError: The topics cannot be found, or their index objects cannot be read.
        """
        topics = self._topics(Progress())
        last = {each.topic: each.ledgers[-1].ledger_id if each.ledgers else -1 for each in topics}
        return Progress({topic: TopicProgress.at(Position(n + 1, 0)) for topic, n in last.items()})

    def next_increment(self, before: Progress, limits: Limits | None = None) -> Increment:
        """Return the rows after some progress, up to the settled position and within limits.

        Topics take turns.

        Raises:
            LateLedgerError: A ledger appeared below the progress.
            MissingObjectError: A ledger that was in the bucket was deleted before it was read.
            PulsarOffloadError: Ledgers cannot be read.
        """
        with telemetry.operation("plan") as operation:
            increment = self._next_increment(before, limits)
            if operation.is_observed:
                operation.note(
                    topic=increment.topic,
                    data_bytes=increment.data_bytes,
                    lag_bytes=increment.lag.data_bytes,
                )
        return increment

    def _next_increment(self, before: Progress, limits: Limits | None) -> Increment:
        due = self._due_ledgers(before)
        parts = [
            _TopicPart(each, self._open_transactions(each.topic), self._plan_read) for each in due
        ]
        self._connect(parts)
        if not self.options.uncommitted:
            probe_all(chain.from_iterable(each.unprobed() for each in parts))
        amount = _advance_in_turn(parts, limits or Limits(), settle=not self.options.uncommitted)
        notices = dict.fromkeys(notice for each in parts for notice in each.notices())
        notices |= dict.fromkeys(_migrations(parts))
        after = before
        if any(each.position > each.due.progress.next for each in parts):
            progress_by_topic = {each.topic: each.progress for each in parts}
            after = Progress({**before.topics, **progress_by_topic})
        reads = self._reads((each.due.topic for each in parts), before, after)
        lag = Amount(
            sum(each.bytes_left for each in parts), sum(each.ledgers_left for each in parts)
        )
        return Increment(reads, before, after, amount, lag, tuple(notices))

    def increment_between(self, before: Progress, after: Progress) -> Increment:
        """Return an increment again: the same rows, even if there are newer ones.

        `before` and `after` are those of an increment that `next_increment` returned.

        Raises:
            MissingObjectError: A ledger of it was deleted meanwhile.
            PulsarOffloadError: Ledgers cannot be read.
        """
        topics = [
            each.salvaged() if self.options.salvage else each
            for each in self.catalog.ledgers_of(sorted(after.topics, key=attrgetter("order")))
        ]
        notices = []
        for each in topics:
            present_ids = {ledger.ledger_id for ledger in each.ledgers}
            for ledger_id in _ledgers_between(
                before.topic_progress(each.topic), after.topic_progress(each.topic)
            ):
                if ledger_id not in present_ids:
                    error = lost_ledger_error(ledger_id)
                    if not self.options.salvage:
                        raise error
                    notices.append(f"{each.topic}: {error}")
        reads = self._reads(topics, before, after)
        return Increment(reads, before, after, _amount(reads), notices=tuple(notices))

    def _topics(self, before: Progress) -> list[TopicLedgers]:
        """Return the matching topics, including those that exist only in the progress."""
        names = self.catalog.select_names(
            self._patterns,
            before.topics.keys(),
            segments=self._segments,
            salvage=self.options.salvage,
        )
        return self.catalog.ledgers_of(names)

    def _connect(self, parts: Sequence[_TopicPart]) -> None:
        """Tell each segment which partitions and segments have to be read before it."""
        by_topic: dict[TopicName, list[_TopicPart]] = defaultdict(list)
        for each in parts:
            by_topic[each.topic.scalable].append(each)
        for topic, relatives in by_topic.items():
            segments = [each for each in relatives if each.topic.segment and each.step]
            if not segments:
                continue
            names = [each.topic for each in relatives]
            members = set(
                self.catalog.scalable_topics.members(topic, names, salvage=self.options.salvage)
            )
            # Most segments of an old topic were read long ago.
            unread = [
                each
                for each in relatives
                if not each.is_drained and (each.topic.is_scalable or each.topic in members)
            ]
            for each in segments:
                for other in unread:
                    if other.topic.precedes(each.topic):
                        each.predecessors.append(other)
                        other.successors.append(each)

    def _due_ledgers(self, before: Progress) -> list[DueLedgers]:
        topics = self._topics(before)
        by_bucket = [each for each in topics if each.metadata is None]
        if by_bucket:
            self._check_unattributed(
                min(before.topic_progress(each.topic).next for each in by_bucket)
            )
        unfinished = unfinished_ledgers(self.catalog, topics, before.topics)
        return [
            due_ledgers(
                each,
                before.topic_progress(each.topic),
                unfinished.get(each.topic, ()),
                salvage=self.options.salvage,
            )
            for each in topics
        ]

    def _check_unattributed(self, start: Position) -> None:
        """Raise for an unread ledger of unknown topic, which may belong to one of these."""
        for error in self.catalog.unattributed_errors():
            is_below = error.ledger_id is not None and error.ledger_id < start.ledger_id
            if not self.options.salvage and not is_below:
                raise error

    def _open_transactions(self, topic: TopicLedgers) -> OpenTransactions:
        transactions = self._transactions.get(topic.topic)
        if transactions is None:
            transactions = self._transactions[topic.topic] = OpenTransactions(
                verify_checksums=self.options.verify_checksums, salvage=self.options.salvage
            )
        transactions.outcomes = topic.segment_outcomes
        if self.statistics is not None:
            transactions.recorded = RecordedTransactions(self.statistics, str(topic.topic))
        return transactions

    def _reads(
        self,
        topics: Iterable[TopicLedgers],
        before: Progress,
        after: Progress,
    ) -> tuple[TopicRead, ...]:
        reads = []
        for each in topics:
            start, end = before.topic_progress(each.topic).next, after.topic_progress(each.topic)
            if start < end.next:
                # Leave out ledgers that appeared since.
                ledgers = tuple(
                    ledger
                    for ledger in each.ledgers
                    if ledger.ledger_id >= end.next.ledger_id or end.knows(ledger.ledger_id)
                )
                topic = replace(each, ledgers=ledgers)
                read = self._plan_read(topic, start, end.next)
                reads.append(add_outcomes(read, topic.data, self.statistics))
        return tuple(read for read in reads if read.ranges)

    def _plan_read(self, topic: TopicLedgers, start: Position, end: Position) -> TopicRead:
        """Return the read of a topic that gives the rows in `[start, end)`."""
        bounds = self.options.bounds
        first = (*start, 0) if bounds.start_id is None else max((*start, 0), bounds.start_id)
        last = (*end, 0) if bounds.end_id is None else min((*end, 0), bounds.end_id)
        bounds = replace(bounds, start_id=first, end_id=last)
        return topic_read(topic, replace(self.options, bounds=bounds), self.statistics)


def _migrations(parts: Sequence[_TopicPart]) -> Iterator[str]:
    """Yield where topics continue that were migrated, unless the scalable topic is read too."""
    scalable = {each.topic.base for each in parts if each.topic.is_scalable}
    for each in parts:
        if each.due.topic.segment_ledgers and each.topic.scalable not in scalable:
            yield (
                f"{each.topic.base}: the topic was migrated to the scalable topic"
                f" {each.topic.scalable}, where its history continues; read it by that name to have"
                " both"
            )


def _place_of_outcomes(outcomes: TransactionOutcomes | None) -> str:
    return "offloaded ledgers" if outcomes is None else "metadata of the cluster"


def _ledgers_between(before: TopicProgress, after: TopicProgress) -> Iterator[int]:
    for each in after.ledger_ids:
        if before.next.ledger_id <= each and (each, 0) < after.next:
            yield each


def _amount(reads: Sequence[TopicRead]) -> Amount:
    ledgers = sum(len({each.ledger_id for each in read.ranges}) for read in reads)
    return Amount(sum(read.data_bytes for read in reads), ledgers)


class _TopicPart:
    """The part of an increment that belongs to one topic, up to a position; grows step by step.

    Attributes:
        step: The next step, or None at the end.
        predecessors: Parts whose topics have to be read before it; empty unless it is a segment.
            Those that have been read are removed.
        successors: The parts of which it is a predecessor.
    """

    def __init__(
        self, due: DueLedgers, transactions: OpenTransactions, plan_read: _ReadPlanner
    ) -> None:
        self.due = due
        self.position = due.progress.next
        self.data_bytes = 0
        self._transactions = transactions
        self._plan_read = plan_read
        self._problems: list[str] = []
        self._steps = self._all_steps()
        self.step = next(self._steps, None)
        self._open_since: Position | None = None
        self.predecessors: list[_TopicPart] = []
        self.successors: list[_TopicPart] = []

    @property
    def is_ready(self) -> bool:
        """Whether the topics before it have been read."""
        # They stay drained, and hundreds of segments may wait for each other.
        while self.predecessors and self.predecessors[-1].is_drained:
            self.predecessors.pop()
        return not self.predecessors

    @property
    def is_drained(self) -> bool:
        """Whether the topic has been read, and nothing more of it is known to be offloaded."""
        is_read = self.step is None and next(self._remaining_ledgers(), None) is None
        return is_read and not self.due.topic.may_grow

    @property
    def topic(self) -> TopicName:
        return self.due.topic.topic

    @property
    def progress(self) -> TopicProgress:
        return replace(self.due.progress, next=self.position)

    def unprobed(self) -> Iterator[tuple[OpenTransactions, Ledger]]:
        """Yield the next ledgers to probe, including the last one that was read."""
        if self.step is not None:
            next_ledgers = self.due.ledgers[self.step.index : self.step.index + _LOOKUP_LEDGERS]
            last = () if self.due.last_read is None else (self.due.last_read,)
            for ledger in self._transactions.unprobed((*last, *next_ledgers)):
                yield self._transactions, ledger

    def settled_position(self, step: _Step) -> Position:
        """Return the settled position up to the end of a step; note where a transaction is open."""
        if self._transactions.needs_probe(self.due.ledgers[step.index]):
            probe_all(self.unprobed())
        position = self._transactions.settled_position(self.due.ledgers, self.position, step.stop)
        if position < step.stop:
            self._open_since = position
        return position

    def advance(self, position: Position, step: _Step) -> None:
        """Extend the part by a step, or to a position within it."""
        self.position = position
        self.data_bytes += step.data_bytes
        self.step = next(self._steps, None) if position == step.stop else None

    @property
    def bytes_left(self) -> int:
        return sum(
            block.stop - block.start
            for ledger in self._remaining_ledgers()
            for block in ledger.blocks(
                self.position.entry_id if ledger.ledger_id == self.position.ledger_id else 0,
                ledger.last_entry_id,
            )
        )

    @property
    def ledgers_left(self) -> int:
        return sum(1 for _ in self._remaining_ledgers())

    def _remaining_ledgers(self) -> Iterator[Ledger]:
        for each in (*self.due.ledgers, *self.due.blocked_ledgers):
            if each.ledger_id >= self.position.ledger_id:
                yield each

    def _all_steps(self) -> Iterator[_Step]:
        """Yield the steps; reads are planned lazily, some ledgers at a time."""
        topic, ledgers, start = self.due.topic, self.due.ledgers, self.position
        for start_index in range(0, len(ledgers), _LOOKUP_LEDGERS):
            next_ledgers = ledgers[start_index : start_index + _LOOKUP_LEDGERS]
            index = bisect_left(topic.ledgers, next_ledgers[0].ledger_id, key=_ledger_id)
            topic_ledgers = tuple(topic.ledgers[index : index + len(next_ledgers)])
            end = position_after(next_ledgers[-1], next_ledgers[-1].last_entry_id)
            read = self._plan_read(replace(topic, ledgers=topic_ledgers), start, end)
            self._problems += read.pruning.problems
            for number, ledger in enumerate(next_ledgers, start_index):
                first = start.entry_id if ledger.ledger_id == start.ledger_id else 0
                yield from _steps(read, number, ledger, first)

    def notices(self) -> Iterator[str]:
        yield from self.due.notices
        yield from self._problems
        yield from self._transactions.problems
        if self.step is not None and not self.is_ready:
            first = next(each for each in self.predecessors if not each.is_drained)
            yield (
                f"{self.topic}: nothing is read before all messages of {first.topic} are offloaded"
                " and read, because they precede it"
            )
        if self._open_since is not None:
            ledger, entry = self._open_since
            outcomes = self.due.topic.segment_outcomes
            yield (
                f"{self.topic}: nothing is read from ledger {ledger}, entry {entry} on: its"
                f" transaction has no outcome in the {_place_of_outcomes(outcomes)} yet"
            )


@dataclass(frozen=True, slots=True)
class _Step:
    """The smallest unit of an increment: the entries up to the end of a data block."""

    index: int
    """Index of the ledger among those that are due."""
    ledger_id: int
    stop: Position
    data_bytes: int
    is_read: bool
    """Whether anything of it has to be read, or everything is pruned."""


def _steps(read: TopicRead, index: int, ledger: Ledger, first: int) -> Iterator[_Step]:
    """Yield a ledger's steps from an entry on; lost entries at the end belong to the last one."""
    blocks = ledger.blocks(first, ledger.last_entry_id)
    lasts = [*(each.last_entry_id for each in blocks[:-1]), ledger.last_entry_id]
    for last in lasts:
        ranges = read.intersect_ranges(EntryRange(ledger.ledger_id, first, last))
        data_bytes = read.task(ranges).data_bytes
        yield _Step(index, ledger.ledger_id, position_after(ledger, last), data_bytes, bool(ranges))
        first = last + 1


def _advance_in_turn(parts: Sequence[_TopicPart], limits: Limits, *, settle: bool) -> Amount:
    """Advance topics in turn, least bytes first, until a limit is reached; return the total.

    Among equals, the topic with the lowest ledger id goes first. Ids only grow, so a topic that
    gets no step now gets one in a later increment. Segments join when they are ready.
    """
    turns: list[tuple[int, int, int, _Step]] = []
    numbers = {id(each): number for number, each in enumerate(parts)}

    def join(part: _TopicPart) -> None:
        if part.step is not None and part.is_ready:
            turn = (part.data_bytes, part.step.ledger_id, numbers[id(part)], part.step)
            heapq.heappush(turns, turn)

    for each in parts:
        join(each)
    data_bytes, ledgers = 0, set[tuple[int, int]]()
    while turns:
        _, _, number, step = heapq.heappop(turns)
        part = parts[number]
        position = part.settled_position(step) if settle else step.stop
        if position <= part.position:
            continue
        ledger = number, step.index
        ledger_count = len(ledgers) + (step.is_read and ledger not in ledgers)
        if ledgers and not limits.allow(data_bytes + step.data_bytes, ledger_count):
            break
        data_bytes += step.data_bytes
        if step.is_read:
            ledgers.add(ledger)
        part.advance(position, step)
        join(part)
        if part.successors and part.is_drained:
            for each in part.successors:
                join(each)
    return Amount(data_bytes, len(ledgers))
