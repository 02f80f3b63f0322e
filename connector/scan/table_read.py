"""Rows that a lake table holds: read from its data files in place of entries of ledgers.

A table that topics are copied to has the rows before a position. A scan reads these from the table,
if it has the columns, and the *remainder* from the bucket, so that it returns each row once.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from operator import or_
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.columns import Origin
from arrow_io.core.lazy import cached_property
from connector.filters.row_filters import ArrowFilter
from connector.inputs.bounds import Bounds
from connector.scan.topic_read import ScanTask, TaskHandle, TopicRead

if TYPE_CHECKING:
    from arrow_io.read_metrics import ReadMetrics
    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.filters.row_filters import RowFilter
    from connector.scan.read_options import ReadOptions
    from connector.scan.topic_read import EntryRange

RowGroup: TypeAlias = Callable[[Sequence[str]], pa.Table]
"""Reads some columns of a part of a data file."""
_MAX_CASES: Final = 8
"""Maximum number of combinations of null and other values that are compared with a filter."""


class ColumnBounds(NamedTuple):
    """Minimum and maximum of a column's values in some rows; None if they are not recorded.

    Times may be whole µs since 1970, and dates whole days.
    """

    least: Any
    greatest: Any
    may_be_null: bool = True


CanMatch: TypeAlias = Callable[[Sequence[Mapping[str, ColumnBounds]]], list[bool]]
"""Returns, for the bounds of each of some groups of rows, whether one of its rows can be needed."""


class TableFiles(Protocol):
    """The data files of one version of a table. Picklable; holds no connection."""

    @property
    def name(self) -> str:
        """Name or URL of the table, without credentials."""

    @property
    def sizes(self) -> Sequence[int]:
        """Length of each file in bytes."""

    @property
    def rows(self) -> Sequence[int | None]:
        """Number of rows of each file. None if it is not recorded."""

    @property
    def bounds(self) -> Sequence[Mapping[str, ColumnBounds]]:
        """Recorded bounds of some columns of each file."""

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""

    def local_paths(self, columns: Sequence[str]) -> list[str] | None:
        """Return the paths of all files, for another Parquet reader on this machine.

        Returns:
            None if they are in another store, if other writers wrote some of them, or if `columns`
            has a column that no file contains.

        Raises:
            LakeTableError: A file is malformed.
            StorageError: The store failed.
        """

    def row_groups(
        self, number: int, columns: Sequence[str], can_match: CanMatch
    ) -> Iterator[RowGroup]:
        """Open a file and yield its row groups that can match, by the bounds of some columns.

        Raises:
            LakeTableError: The file is malformed. A row group raises it too.
            StorageError: The store failed.
        """


@dataclass(frozen=True)
class RowCondition:
    """Which rows of a table belong to a read.

    Attributes:
        topics: Full names of the topics; None: all that the table has.
        bounds: Positions and publish times.
        omitted_entries: Entries whose rows are read from the bucket, by ledger id.
    """

    topics: tuple[str, ...] | None = None
    bounds: Bounds = field(default_factory=Bounds)
    omitted_entries: Mapping[int, Sequence[int]] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        """Own names of the columns that it needs (`arrow_io.columns.ALL_COLUMNS`)."""
        names = ["__topic__"] if self.topics is not None else []
        if self.bounds.start_id is not None or self.bounds.end_id is not None:
            names += ["__ledger_id__", "__entry_id__", "__batch_index__"]
        elif self.omitted_entries:
            names += ["__ledger_id__", "__entry_id__"]
        if self.bounds.by_time:
            names.append("__publish_time__")
        return tuple(names)

    def expression(self, names: Mapping[str, str]) -> pc.Expression | None:
        """Return the condition on columns whose names are given by their own names; None: true."""
        terms = []
        if self.topics is not None:
            terms.append(pc.field(names["__topic__"]).isin(list(self.topics)))
        start_id, end_id = self.bounds.start_id, self.bounds.end_id
        if start_id is not None:
            terms.append(_not_before(names, start_id))
        if end_id is not None:
            terms.append(~_not_before(names, end_id))
        if self.bounds.start_ms is not None:
            terms.append(pc.field(names["__publish_time__"]) >= _time(self.bounds.start_ms))
        if self.bounds.end_ms is not None:
            terms.append(pc.field(names["__publish_time__"]) < _time(self.bounds.end_ms))
        for ledger_id, entry_ids in self.omitted_entries.items():
            is_ledger = pc.field(names["__ledger_id__"]) == ledger_id
            is_omitted = pc.field(names["__entry_id__"]).isin(list(entry_ids))
            terms.append(~(is_ledger & is_omitted))
        if not terms:
            return None
        condition = terms[0]
        for each in terms[1:]:
            condition &= each
        return condition


def _not_before(names: Mapping[str, str], bound: tuple[int, int, int]) -> pc.Expression:
    """Return whether a row is at or after a bound; an unbatched message has batch index 0."""
    ledger, entry, batch = (
        pc.field(names[each]) for each in ("__ledger_id__", "__entry_id__", "__batch_index__")
    )
    is_member = pc.coalesce(batch, pc.scalar(0)) >= bound[2]
    in_entry = (entry == bound[1]) & is_member
    in_ledger = (ledger == bound[0]) & or_(entry > bound[1], in_entry)
    return (ledger > bound[0]) | in_ledger


def _time(milliseconds: int) -> pa.Scalar:
    return pa.scalar(milliseconds, pa.timestamp("ms", "UTC"))


class Remainder(NamedTuple):
    """Rows of a topic that a table does not have.

    Attributes:
        bounds: Their positions and publish times.
        entries: The entries that have them; None: all within the bounds.
        is_end: Whether these are the rows after all rows of the table.
    """

    bounds: Bounds
    entries: tuple[EntryRange, ...] | None = None
    is_end: bool = True


@dataclass(frozen=True)
class TableSplit:
    """The parts of a scan: the rows that a table has, and the remainder of each topic.

    Attributes:
        read: The read of the table; None: nothing is read from it.
        remainders: The remainders of each topic, in the order of the topics; disjoint.
        problem: Why the table cannot be used, as a sentence; None if it can.
    """

    read: TableRead | None
    remainders: Sequence[Sequence[Remainder]]
    problem: str | None = None


class LakeTable(Protocol):
    """One version of a table that topics are copied to. Picklable."""

    def default_columns(self, options: ReadOptions) -> list[str]:
        """Return the requested columns without message columns that the table lacks."""

    def split(self, topics: Sequence[TopicLedgers], options: ReadOptions) -> TableSplit:
        """Split a scan of topics into what the table has and what it does not have.

        Sends no request.
        """


@dataclass(frozen=True, kw_only=True)
class TableRead(TopicRead):
    """The read of the rows that a table has. Picklable; holds no connection.

    It has no ledgers and no entries: its tasks read files. The table's name takes the place of a
    topic's.

    Attributes:
        files: The table's data files.
        numbers: Indexes of the files to read.
        condition: Which rows belong to the read; the bounds of `options` are not used.
    """

    files: TableFiles
    numbers: tuple[int, ...]
    condition: RowCondition = field(default_factory=RowCondition)

    @classmethod
    def from_files(
        cls, files: TableFiles, options: ReadOptions, condition: RowCondition
    ) -> TableRead:
        """Return the read of the rows that fulfil a condition; bounds prune files."""
        origin = Origin(files.name)
        read = cls(origin, (), (), options, files=files, numbers=(), condition=condition)
        can_match = read.can_match(files.bounds)
        numbers = tuple(number for number, each in enumerate(can_match) if each)
        return replace(read, numbers=numbers)

    @property
    def data_bytes(self) -> int:
        """Length of the files in bytes."""
        sizes = self.files.sizes
        return sum(sizes[each] for each in self.numbers)

    @property
    def is_size_known(self) -> bool:
        """Whether `data_bytes` tells how much is read: always."""
        return True

    @property
    def rows(self) -> int | None:
        """Number of rows. None if they have to be counted."""
        rows = self.files.rows
        counts = [rows[each] for each in self.numbers]
        if self.options.row_filter is not None or self.condition.columns or None in counts:
            return None
        return sum(filter(None, counts))

    @cached_property
    def fingerprint(self) -> int:
        """A checksum that distinguishes this read from those of topics."""
        return zlib.crc32(repr((self.files.name, self.numbers)).encode())

    def tasks(self, task_bytes: int) -> Iterator[TableTask]:
        """Split the files into tasks of about `task_bytes`; a file is never split."""
        pending: list[int] = []
        size_bytes = 0
        for number in self.numbers:
            file_bytes = self.files.sizes[number]
            if pending and size_bytes + file_bytes > task_bytes:
                yield TableTask(read=self, ranges=(), numbers=tuple(pending))
                pending, size_bytes = [], 0
            pending.append(number)
            size_bytes += file_bytes
        if pending:
            yield TableTask(read=self, ranges=(), numbers=tuple(pending))

    def task_from_handle(self, handle: TaskHandle) -> TableTask:
        """Return the task of a handle that `TableTask.handle` returned."""
        return TableTask(
            read=self, ranges=(), numbers=tuple(int(each) for each in handle.data.split())
        )

    @property
    def _conditions(self) -> tuple[str, ...]:
        """Names of the columns that the condition needs."""
        names = {own: name for name, own in self.options.filterable.columns}
        return tuple(names[each] for each in self.condition.columns)

    @property
    def predicates(self) -> tuple[str, ...]:
        """Names of the columns that decide whether a row belongs to the read and matches."""
        row_filter = self.options.row_filter
        return *self._conditions, *(() if row_filter is None else row_filter.columns)

    def can_match(self, groups: Sequence[Mapping[str, ColumnBounds]]) -> list[bool]:
        """Return whether groups of rows with some bounds can have a row of the read.

        Returns:
            One value per group; False only if that is proved to be impossible.
        """
        schema = self.options.filterable.schema
        names = {own: name for name, own in self.options.filterable.columns}
        expression, row_filter = self.condition.expression(names), self.options.row_filter
        filters: list[RowFilter] = [] if row_filter is None else [row_filter]
        if expression is not None:
            filters.append(ArrowFilter(expression, self._conditions))
        guarantees = [_guarantees(each, schema, self.predicates) for each in groups]
        flat = [guarantee for each in guarantees for guarantee in each]
        answers = [each.can_match(flat, schema) for each in filters if flat]
        matches = iter([all(each) for each in zip(*answers, strict=True)] or [True] * len(flat))
        return [any(list(islice(matches, len(each)))) for each in guarantees]

    def build(self, group: RowGroup) -> Iterator[pa.RecordBatch]:
        """Read a row group, and yield its rows that belong to the read and match the filter.

        No batch is empty.
        """
        options = self.options
        names = {own: name for name, own in options.filterable.columns}
        requested = options.projection.schema
        table = group(list(dict.fromkeys((*self.predicates, *requested.names))))
        if not table.num_columns:
            # Arrow splits a table without columns into no batches.
            yield pa.record_batch([pa.nulls(table.num_rows)], [""]).select([])
            return
        expression = self.condition.expression(names)
        if expression is not None:
            table = table.filter(expression)
        for batch in table.to_batches(max_chunksize=options.limits.max_rows):
            rows = batch
            if options.row_filter is not None:
                predicate_schema = options.filterable.select(options.row_filter.columns).schema
                selection = options.row_filter.matching_rows(_cast(batch, predicate_schema))
                rows = batch if len(selection) == batch.num_rows else batch.take(selection)
            if rows.num_rows:
                yield _cast(rows, requested)


@dataclass(frozen=True, kw_only=True)
class TableTask(ScanTask):
    """Some files of a table, for one reader. Picklable."""

    read: TableRead
    numbers: tuple[int, ...]

    @property
    def data_bytes(self) -> int:
        """Length of the files in bytes."""
        return replace(self.read, numbers=self.numbers).data_bytes

    def handle(self) -> TaskHandle:
        """Return a handle: `task_of` restores the task where its read is available."""
        return TaskHandle(self.read.fingerprint, " ".join(map(str, self.numbers)).encode())

    def batches(self, metrics: ReadMetrics) -> Generator[pa.RecordBatch, None, None]:
        """Read the rows, in the caller's thread.

        Raises:
            LakeTableError: A file is malformed.
            StorageError: The store failed.
        """
        for unit in self.units():
            for batch in unit():
                metrics.rows += batch.num_rows
                yield batch

    def units(self) -> Iterator[Callable[[], Iterator[pa.RecordBatch]]]:
        """Yield functions that read parts of the task, in any thread."""
        for number in self.numbers:
            read = self.read
            for group in read.files.row_groups(number, read.predicates, read.can_match):
                yield partial(read.build, group)


def _guarantees(
    bounds: Mapping[str, ColumnBounds], schema: pa.Schema, names: Iterable[str]
) -> list[pc.Expression]:
    """Return expressions of which each row with some bounds fulfils one.

    Arrow concludes nothing from "within the bounds or null", so the two cases are separate.
    """
    guarantees = [pc.scalar(True)]  # noqa: FBT003 - a literal
    for name in dict.fromkeys(names):
        own: ColumnBounds = bounds.get(name, ColumnBounds(None, None))
        column, type_ = pc.field(name), schema.field(name).type
        first, last = _literal(own.least, type_), _literal(own.greatest, type_, is_upper=True)
        if first is None or last is None:
            continue
        cases = [(column >= first) & (column <= last)]
        if own.may_be_null:
            cases.append(column.is_null())
        if len(guarantees) * len(cases) <= _MAX_CASES:
            guarantees = [one & case for one in guarantees for case in cases]
    return guarantees


def _literal(value: Any, type_: pa.DataType, *, is_upper: bool = False) -> pa.Scalar | None:  # noqa: ANN401
    """Return a bound as a value of a column; None if it proves nothing, such as with NaN."""
    types = pa.types
    is_ordered = types.is_integer(type_) or types.is_date(type_) or types.is_string(type_)
    if value is None or not (is_ordered or types.is_timestamp(type_)):
        return None
    stored = pa.timestamp("us", type_.tz) if types.is_timestamp(type_) else type_
    if isinstance(value, datetime) and value.tzinfo is None and type_.tz:
        value = value.replace(tzinfo=UTC)
    try:
        if is_upper and types.is_timestamp(type_):
            # Delta's writers may cut a maximum down to whole milliseconds.
            value += 1000 if isinstance(value, int) else timedelta(milliseconds=1)
        return pa.scalar(value, stored).cast(type_)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return None


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of a schema. The types were compared when the table was opened."""
    columns = [_cast_column(batch.column(each.name), each.type) for each in schema]
    if not columns:
        # Arrow loses the number of rows of a batch without columns, unless they are removed.
        return batch.select([])
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast_column(column: pa.Array, type_: pa.DataType) -> pa.Array:
    if pa.types.is_time(type_) and pa.types.is_int64(column.type):
        # Delta has no times of day; µs are what a copy writes.
        column = column.cast(pa.time64("us"))
    return column.cast(type_)
