"""A scan of topics: immutable, planned without a request, cut into tasks for any process.

A task gives the rows of the messages that *begin* in its range of entries: whose first chunk, or
whose message of a transaction, stands there. It reads on behind its range until what began in it is
closed. So no row is given twice and none is lost, wherever the cuts are.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from arrow_io.columns import Origin, Projection
from arrow_io.errors import IncompleteReadWarning
from arrow_io.ledger_reader import UNKNOWN_VERSIONS, ObjectVersions, OffloadedLedger
from arrow_io.messages.broker_order import BrokerOrder
from arrow_io.messages.chunks import ChunkLookback
from arrow_io.messages.encryption import DecryptionKeys, PayloadDecryptor
from arrow_io.messages.message_reader import BatchLimits, MessageReader, Needs
from arrow_io.messages.transactions import TransactionLookahead
from arrow_io.read_report import ReadReport
from connector.bounds import Bounds
from connector.filters import ArrowFilter, BothFilters, RowFilter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from arrow_io.format.object_names import LedgerObjectName
    from arrow_io.messages.entry_run import EntryRun
    from arrow_io.messages.message_columns import MessageColumns
    from connector.catalog.topic_ledgers import TopicLedgers

DEFAULT_TASK_BYTES = 256 << 20


@dataclass(frozen=True)
class ReadOptions:
    """How entries become rows.

    Attributes:
        projection: The columns given.
        row_filter: Which rows are given; None: all.
        filterable: The columns that a filter may look at.
        bounds: Range of message ids or publish times.
        uncommitted: Whether messages of aborted and open transactions are given too.
        verify_checksums: Whether the CRC32C of each entry is compared, where more than positions is
            read.
        salvage: Whether damage is counted and passed over instead of raised.
        limits: How large record batches grow.
        decryption_keys: Private keys for encrypted payloads.
    """

    projection: Projection
    filterable: Projection
    row_filter: RowFilter | None = None
    bounds: Bounds = field(default_factory=Bounds)
    uncommitted: bool = False
    verify_checksums: bool = True
    salvage: bool = False
    limits: BatchLimits = field(default_factory=BatchLimits)
    decryption_keys: DecryptionKeys = field(default_factory=DecryptionKeys)

    @property
    def needs(self) -> Needs:
        """How deep the messages have to be looked into."""
        needs = self.projection.needs
        if self.row_filter is not None:
            needs = needs | self.filterable.select(self.row_filter.columns).needs
        return replace(needs, metadata=True) if self.bounds.by_time else needs


@dataclass(frozen=True, slots=True)
class LedgerReference:
    """A ledger that a task may have to read from, without giving its rows; opened when needed."""

    name: LedgerObjectName
    cut_bytes: int | None = None
    versions: ObjectVersions = UNKNOWN_VERSIONS


@dataclass(frozen=True)
class ScanTask:
    """A range of entries of one topic or partition. Can be pickled; holds no connection.

    Attributes:
        origin: Topic and partition.
        ledgers: The ledgers whose entries it gives rows of, ascending.
        first_entry_id: First entry, of the first ledger.
        last_entry_id: Last entry (inclusive), of the last ledger.
        preceding: The ledgers before, ascending: looked back into only where `start` cuts a chunked
            message.
        following: The ledgers behind, ascending: read on into only as long as something is open.
        scan_start: Ledger and entry id of the first entry that any task gives rows of. A message
            that began before it is given by the task where it goes on. None: it is for the tasks
            before to give whatever began before this one.
        options: How entries become rows.
    """

    origin: Origin
    ledgers: tuple[OffloadedLedger, ...]
    first_entry_id: int
    last_entry_id: int
    preceding: tuple[LedgerReference, ...]
    following: tuple[LedgerReference, ...]
    scan_start: tuple[int, int] | None
    options: ReadOptions

    @property
    def data_bytes(self) -> int:
        """How many bytes of data objects the task has to read, blocks taken whole."""
        return sum(stop - start for _, start, stop in self.block_ranges())

    def block_ranges(self) -> Iterator[tuple[OffloadedLedger, int, int]]:
        """Each ledger with the bytes `[start, stop)` of its data object that have to be read."""
        for ledger, first, last in self.entry_ranges():
            index = ledger.index
            stored = _last_stored(ledger, last)
            if first <= stored:
                start = index.block_start(index.block_of(first))
                yield ledger, start, index.block_stop(index.block_of(stored))

    def entry_ranges(self) -> Iterator[tuple[OffloadedLedger, int, int]]:
        """Each ledger with the first and last (inclusive) entry that the task gives rows of."""
        for i, ledger in enumerate(self.ledgers):
            first = self.first_entry_id if i == 0 else 0
            is_last = i == len(self.ledgers) - 1
            yield ledger, first, self.last_entry_id if is_last else ledger.last_entry_id


@dataclass(frozen=True)
class Scan:
    """What to read of some topics. Immutable: `select` and `where` return copies.

    Attributes:
        topics: The topics, partitions each by itself.
        options: How entries become rows.
    """

    topics: tuple[TopicLedgers, ...]
    options: ReadOptions

    def select(self, columns: Iterable[str]) -> Scan:
        """Give only these columns, in this order; any that `filterable` has.

        Raises:
            OptionError: There is no such column.
        """
        chosen = self.options.filterable.select(columns)
        return replace(self, options=replace(self.options, projection=chosen))

    def where(self, expression: pc.Expression) -> Scan:
        """Give only rows for which the expression is true, of those that are given until now.

        Raises:
            OptionError: The expression cannot be applied to the columns.
        """
        return self.filtered(ArrowFilter.of(expression, self.options.filterable.schema))

    def filtered(self, row_filter: RowFilter) -> Scan:
        """Give only the rows that a filter keeps, of those that are given until now."""
        before = self.options.row_filter
        both = row_filter if before is None else BothFilters(before, row_filter)
        return replace(self, options=replace(self.options, row_filter=both))

    def plan(self, task_bytes: int = DEFAULT_TASK_BYTES) -> list[ScanTask]:
        """Cut the scan into tasks, at data blocks; sends no request.

        Args:
            task_bytes: How many bytes of data objects a task should have to read, about; a block is
                never cut.

        Returns:
            The tasks, in order of the topics and of the positions in them.
        """
        return [
            task for topic in self.topics for task in _plan_topic(topic, self.options, task_bytes)
        ]


def execute(task: ScanTask, report: ReadReport | None = None) -> Iterator[pa.RecordBatch]:
    """Read the rows of a task, in order of their positions.

    Args:
        task: The task.
        report: Receives the counts. Without it, a read that had to leave something out ends with an
            `IncompleteReadWarning`.

    Raises:
        PulsarOffloadError: Data cannot be read or decoded (damage is counted instead when
            salvaging).
    """
    options = task.options
    counted = ReadReport(salvage=options.salvage) if report is None else report
    for rows in _rows(task, counted):
        batch = _give(rows, task.origin, options, counted)
        if batch is not None:
            counted.rows += batch.num_rows
            yield batch
    if report is None:
        tell(counted, task.origin.topic)


def count(task: ScanTask, report: ReadReport) -> int:
    """How many rows a task has, without making their columns."""
    if task.options.row_filter is not None:
        return sum(batch.num_rows for batch in execute(task, report))
    total = 0
    for rows in _rows(task, report):
        kept = task.options.bounds.kept(rows)
        total += rows.count if kept is None else len(kept)
    report.rows += total
    return total


def tell(report: ReadReport, topic: str) -> None:
    """Warn of what a read had to leave out, if it did."""
    for notice in report.notices():
        warnings.warn(f"{topic}: {notice}", IncompleteReadWarning, stacklevel=3)


def _give(
    rows: MessageColumns, origin: Origin, options: ReadOptions, report: ReadReport
) -> pa.RecordBatch | None:
    """Bounds, then the filter's columns, then the other columns, of what is left at each step."""
    kept = options.bounds.kept(rows)
    if kept is not None:
        rows = rows.keep(kept)
    if rows.count and options.row_filter is not None:
        looked_at = options.filterable.select(options.row_filter.columns)
        kept = options.row_filter.kept(looked_at.record_batch(rows, origin, report))
        if len(kept) < rows.count:
            rows = rows.keep(kept)
    return options.projection.record_batch(rows, origin, report) if rows.count else None


def _rows(task: ScanTask, report: ReadReport) -> Iterator[MessageColumns]:
    options = task.options
    stream = _EntryStream(task, report)
    entries = stream.from_start()
    runs = entries if options.uncommitted else TransactionLookahead(entries, stream.behind)
    return iter(
        MessageReader(
            runs,
            options.needs,
            report,
            limits=options.limits,
            lookback=ChunkLookback(stream.before, task.scan_start) if task.scan_start else None,
            last_owned=(task.ledgers[-1].ledger_id, task.last_entry_id),
            decryptor=PayloadDecryptor(options.decryption_keys),
        )
    )


class _EntryStream:
    """The entries from a task's first to the last that is offloaded; backwards, those before."""

    def __init__(self, task: ScanTask, report: ReadReport) -> None:
        self._task = task
        self._report = report
        self._verify = task.options.verify_checksums and task.options.needs.metadata

    def from_start(self) -> Iterator[EntryRun]:
        order = BrokerOrder()
        first = self._task.ledgers[0].ledger_id, self._task.first_entry_id
        for run in self._from(*first, self._report):
            # Of the entries between the first and the last, the index costs too much time.
            ends = (0, run.count - 1)[: run.count] if run.owned else ()
            for error in order.errors(run, ends):
                if not self._report.salvage:
                    raise error
                self._report.doubts.append(str(error))
            yield run

    def behind(self, run: EntryRun) -> Iterator[EntryRun]:
        """What follows a run; losses are not counted, because the reader will meet them again."""
        return self._from(run.ledger_id, run.last_entry_id + 1, self._uncounted())

    def before(self) -> Iterator[EntryRun]:
        """What stands before the task, the nearest block first; within a block in order."""
        first = self._task.ledgers[0]
        yield from self._backwards(first, self._task.first_entry_id - 1)
        for reference in reversed(self._task.preceding):
            ledger = _open(reference, first)
            yield from self._backwards(ledger, ledger.last_entry_id)

    def _backwards(self, ledger: OffloadedLedger, last: int) -> Iterator[EntryRun]:
        last = _last_stored(ledger, last)
        while last >= 0:
            first = ledger.index.first_entry_id(ledger.index.block_of(last))
            yield from reversed(list(self._runs(ledger, first, last, self._uncounted())))
            last = first - 1

    def _uncounted(self) -> ReadReport:
        return ReadReport(salvage=self._task.options.salvage)

    def _from(self, ledger_id: int, entry_id: int, report: ReadReport) -> Iterator[EntryRun]:
        def start_in(ledger: OffloadedLedger, first: int) -> int:
            return max(first, entry_id) if ledger.ledger_id == ledger_id else first

        for ledger, first, last in self._task.entry_ranges():
            if ledger.ledger_id >= ledger_id:
                start = start_in(ledger, first)
                yield from self._runs(ledger, start, last, report, owned=True)
        # What is lost there is counted by the task that gives the rows of it.
        behind = self._uncounted()
        last_owned = self._task.ledgers[-1]
        if last_owned.ledger_id >= ledger_id:
            rest = start_in(last_owned, self._task.last_entry_id + 1)
            yield from self._runs(last_owned, rest, last_owned.last_entry_id, behind)
        for reference in self._task.following:
            if reference.name.ledger_id >= ledger_id:
                following = _open(reference, last_owned)
                start = start_in(following, 0)
                yield from self._runs(following, start, following.last_entry_id, behind)

    def _runs(
        self,
        ledger: OffloadedLedger,
        first: int,
        last: int,
        report: ReadReport,
        *,
        owned: bool = False,
    ) -> Iterator[EntryRun]:
        return ledger.entry_runs(first, last, report, verify_checksums=self._verify, owned=owned)


def _open(reference: LedgerReference, like: OffloadedLedger) -> OffloadedLedger:
    ledger = OffloadedLedger.open(
        like.location,
        reference.name,
        versions=reference.versions,
        range_bytes=like.range_bytes,
        trace=like.trace,
    )
    return ledger if reference.cut_bytes is None else ledger.cut_at(reference.cut_bytes)


def _last_stored(ledger: OffloadedLedger, last_entry_id: int) -> int:
    missing_from = ledger.index.missing_from_entry_id
    return last_entry_id if missing_from is None else min(last_entry_id, missing_from - 1)


def _plan_topic(topic: TopicLedgers, options: ReadOptions, task_bytes: int) -> Iterator[ScanTask]:
    origin = Origin(str(topic.topic), topic.topic.partition)
    bounds = _narrowed(topic.ledgers, origin, options)
    if bounds is None:
        return
    options = replace(options, bounds=bounds)
    references = tuple(
        LedgerReference(each.name, each.cut_bytes, each.versions) for each in topic.ledgers
    )
    pieces = list(_pieces(topic.ledgers, bounds))
    for i, group in enumerate(_grouped(pieces, task_bytes)):
        first, last = group[0], group[-1]
        looks_back = i == 0 or bounds.start_id is not None
        start = topic.ledgers[pieces[0].ledger].ledger_id, pieces[0].first_entry_id
        yield ScanTask(
            origin,
            topic.ledgers[first.ledger : last.ledger + 1],
            first.first_entry_id,
            last.last_entry_id,
            references[: first.ledger] if looks_back else (),
            references[last.ledger + 1 :],
            start if looks_back else None,
            options,
        )


@dataclass(frozen=True, slots=True)
class _Piece:
    """The entries of one block of one ledger that lie within the bounds."""

    ledger: int
    first_entry_id: int
    last_entry_id: int
    size_bytes: int


def _pieces(ledgers: Sequence[OffloadedLedger], bounds: Bounds) -> Iterator[_Piece]:
    for number, ledger in enumerate(ledgers):
        first, last = _entries_within(ledger, bounds)
        if first > last:
            continue
        index = ledger.index
        last_stored = _last_stored(ledger, last)
        if last_stored < 0:
            # The offloader lost every entry: there is nothing to cut, yet the loss must be met.
            yield _Piece(number, first, last, 0)
            continue
        for block in range(index.block_of(min(first, last_stored)), index.block_count):
            start = max(first, index.first_entry_id(block))
            is_final = block == index.block_count - 1
            stop = min(
                last, ledger.last_entry_id if is_final else index.last_entry_id_of_block(block)
            )
            if start <= stop:
                size = index.block_stop(block) - index.block_start(block)
                yield _Piece(number, start, stop, size)


def _entries_within(ledger: OffloadedLedger, bounds: Bounds) -> tuple[int, int]:
    """First and last (inclusive) entry of a ledger that can hold a row within the bounds by id."""
    first, last = 0, ledger.last_entry_id
    if bounds.start_id is not None:
        start_ledger, start_entry, _ = bounds.start_id
        if ledger.ledger_id == start_ledger:
            first = max(0, start_entry)
        elif ledger.ledger_id < start_ledger:
            last = -1
    if bounds.end_id is not None:
        end_ledger, end_entry, end_batch = bounds.end_id
        if ledger.ledger_id == end_ledger:
            last = min(last, end_entry if end_batch else end_entry - 1)
        elif ledger.ledger_id > end_ledger:
            last = -1
    return first, last


def _grouped(pieces: list[_Piece], task_bytes: int) -> Iterator[list[_Piece]]:
    group: list[_Piece] = []
    size = 0
    for piece in pieces:
        if group and size + piece.size_bytes > task_bytes:
            yield group
            group, size = [], 0
        group.append(piece)
        size += piece.size_bytes
    if group:
        yield group


def _narrowed(
    ledgers: Sequence[OffloadedLedger], origin: Origin, options: ReadOptions
) -> Bounds | None:
    """The bounds, drawn in to the ledgers that the filter can hold for; None if for none.

    Only what follows from a row's position is used. Publish times prove nothing: they are the clock
    of the producer, and not in order.
    """
    bounds = options.bounds
    if options.row_filter is None:
        return bounds if ledgers else None
    schema = options.filterable.schema
    names = {own: given for given, own in options.filterable.columns}
    same = _equals(names, "__partition__", origin.partition) & _equals(
        names, "__topic__", origin.topic
    )
    possible = [
        each.ledger_id
        for each in ledgers
        if options.row_filter.may_hold(
            same & _equals(names, "__ledger_id__", each.ledger_id), schema
        )
    ]
    if not possible:
        return None
    first, last = (possible[0], 0, 0), (possible[-1] + 1, 0, 0)
    start = first if bounds.start_id is None else max(first, bounds.start_id)
    end = last if bounds.end_id is None else min(last, bounds.end_id)
    return replace(
        bounds,
        start_id=bounds.start_id if possible[0] == ledgers[0].ledger_id else start,
        end_id=bounds.end_id if possible[-1] == ledgers[-1].ledger_id else end,
    )


def _equals(names: dict[str, str], column: str, value: object) -> pc.Expression:
    return pc.field(names[column]) == value if column in names else pc.scalar(True)  # noqa: FBT003
