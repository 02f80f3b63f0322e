"""Rows of a table that topics are copied to, as a part of a scan (the option `lake`).

The progress in the table is the boundary: rows before it are in the table, later ones in the
bucket. Whatever else the table lacks is read from the bucket too (`TableVersion.split`).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import pyarrow as pa

from arrow_io.core.lazy import cached_property
from arrow_io.errors import LakeTableError
from connector.inputs.bounds import Bounds
from connector.scan.table_read import (
    ColumnBounds,
    Remainder,
    RowCondition,
    TableRead,
    TableSplit,
)
from connector.scan.topic_read import EntryRange
from connector.tables.copied_rows import CopiedRows
from connector.tables.dead_letters import DEAD_LETTERS, dead_letter_options
from connector.tables.file_reader import StoredParquet
from connector.tables.file_writer import OWN_NAME
from connector.tables.letter_changes import LetterChange, LetterTable
from connector.tables.served_columns import unserved_column
from connector.tables.table_kinds import open_table
from connector.tables.table_progress import check_copied, read_progress

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow.parquet as pq

    from arrow_io.storage.location import Location
    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.increments.progress import Progress, TopicProgress
    from connector.scan.read_options import ReadOptions
    from connector.scan.table_read import CanMatch, RowGroup
    from connector.tables.evolution import TableKind
    from connector.tables.table import RewritableTable, TableFile

_MAX_LETTERS: Final = 1000
"""Maximum number of dead letters whose entries are read from the bucket one by one."""
_MAX_BOUNDED_COLUMNS: Final = 32
"""Maximum number of columns whose bounds are kept for each file: those that Delta records."""
_LETTER_COLUMNS: Final = ("__topic__", "__ledger_id__", "__entry_id__")


class StoredFile(NamedTuple):
    """A data file: its path in the table's folder, length in bytes and number of rows.

    `constants` are values of columns that the file does not contain, `bounds` are those of some
    columns that it contains.
    """

    path: str
    size_bytes: int
    rows: int | None
    constants: Mapping[str, pa.Scalar]
    bounds: Mapping[str, ColumnBounds]

    @classmethod
    def from_table_file(cls, file: TableFile, path: str) -> StoredFile:
        """Return a file of a table as any process can read it."""
        bounds = {
            name: ColumnBounds(*ends, may_be_null=name not in file.not_null)
            for name, ends in file.bounds.items()
            if None not in ends
        }
        return cls(path, file.size_bytes, file.rows, file.constants, bounds)


@dataclass(frozen=True)
class StoredFiles:
    """The data files of a version of a table, which any process can read.

    Attributes:
        location: The table's folder.
        schema: The table's columns.
    """

    location: Location
    schema: pa.Schema
    files: tuple[StoredFile, ...]

    @property
    def name(self) -> str:
        """URL of the table's folder, without credentials."""
        return str(self.location)

    @cached_property
    def sizes(self) -> Sequence[int]:
        """Length of each file in bytes."""
        return [each.size_bytes for each in self.files]

    @cached_property
    def rows(self) -> Sequence[int | None]:
        """Number of rows of each file. None if it is not recorded."""
        return [each.rows for each in self.files]

    @cached_property
    def bounds(self) -> Sequence[Mapping[str, ColumnBounds]]:
        """Recorded bounds of some columns of each file."""
        return [each.bounds for each in self.files]

    def local_paths(self, columns: Sequence[str]) -> list[str] | None:
        """Return the paths of all files, if this machine has them; see `TableFiles`."""
        folder = self.location.url.removeprefix("file://")
        if "://" in folder:
            return None
        missing = set(columns)
        # The newest files have all columns.
        for file in reversed(self.files):
            # Others may store times as INT96, which DuckDB reads in the time zone of its session.
            if file.constants or not OWN_NAME.fullmatch(file.path):
                return None
            if missing:
                with self._parquet(file).open() as parquet:
                    missing -= {*parquet.schema_arrow.names}
        return None if missing else [f"{folder}/{each.path}" for each in self.files]

    def row_groups(
        self, number: int, columns: Sequence[str], can_match: CanMatch
    ) -> Iterator[RowGroup]:
        """Open a file and yield its row groups that can match; see `TableFiles`."""
        file = self.files[number]
        stored = self._parquet(file)
        with stored.open() as parquet:
            metadata, names = parquet.metadata, frozenset(parquet.schema_arrow.names)
        groups = [
            _row_group_bounds(metadata.row_group(index), columns)
            for index in range(metadata.num_row_groups)
        ]
        for index, is_needed in enumerate(can_match(groups)):
            if is_needed:
                yield partial(self._read_row_group, file, stored, names, index)

    def _parquet(self, file: StoredFile) -> StoredParquet:
        return StoredParquet(self.location, file.path, file.size_bytes)

    def _read_row_group(
        self,
        file: StoredFile,
        stored: StoredParquet,
        names: frozenset[str],
        index: int,
        columns: Sequence[str],
    ) -> pa.Table:
        own = [each for each in columns if each in names and each not in file.constants]
        with stored.open() as parquet:
            rows = parquet.read_row_group(index, columns=own, use_threads=False)
            # A malformed file may have other types.
            arrays = [self._array(rows, file, name) for name in columns]
        if not arrays:
            return rows
        fields = [self.schema.field(each) for each in columns]
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields))

    def _array(self, rows: pa.Table, file: StoredFile, name: str) -> pa.ChunkedArray | pa.Array:
        type_ = self.schema.field(name).type
        if name in rows.column_names:
            return rows.column(name).cast(type_)
        if name in file.constants:
            return pa.repeat(file.constants[name].cast(type_), rows.num_rows)
        return pa.nulls(rows.num_rows, type_)


@dataclass(frozen=True)
class TableVersion:
    """One version of a table that topics are copied to. Picklable.

    Attributes:
        files: Its data files.
        progress: How far its topics are copied.
        rows: Facts about the copies; None if an earlier release made one of them.
        letters: Entries with dead letters, by topic and ledger id; None: too many.
        problem: Why it cannot be used for any read; None if it can.
    """

    files: StoredFiles
    progress: Progress
    rows: CopiedRows | None
    letters: Mapping[str, Mapping[int, tuple[int, ...]]] | None
    problem: str | None = None

    def default_columns(self, options: ReadOptions) -> list[str]:
        """Return the requested columns without message columns that the table lacks."""
        values = options.filterable.values
        fields = () if values is None else values.fields
        names = {*self.files.schema.names, *(each.name for each in fields)}
        return [each for each in options.projection.schema.names if each in names]

    def split(self, topics: Sequence[TopicLedgers], options: ReadOptions) -> TableSplit:
        """Split a scan of topics into what the table has and what it does not have."""
        everything = [[Remainder(options.bounds)] for _ in topics]
        copied = [each for each in topics if each.topic in self.progress.topics]
        if not copied:
            return TableSplit(
                None, everything, self._sentence("none of the topics is copied to it")
            )
        condition = self._condition(copied, options.bounds)
        problem = self._problem(copied, condition, options)
        if problem is not None:
            return TableSplit(None, everything, self._sentence(problem))
        remainders = [
            [*self._remainders(each, condition.bounds, options.bounds)]
            if each in copied
            else [Remainder(options.bounds)]
            for each in topics
        ]
        read = TableRead.from_files(self.files, options, condition)
        return TableSplit(read if self.files.files else None, remainders)

    def _sentence(self, problem: str) -> str:
        return f"the table {self.files.name} is not used, so all rows are decoded: {problem}"

    def _problem(
        self, topics: Sequence[TopicLedgers], condition: RowCondition, options: ReadOptions
    ) -> str | None:
        """Return why the table cannot be used for a read; None if it can."""
        rows = self.rows
        if self.problem is not None or rows is None:
            return self.problem or "an earlier release copied to it"
        problem = None
        if rows.has_uncommitted != options.uncommitted:
            problem = "it was copied with another value of the option transactions"
        elif rows.has_changes:
            problem = "it has the rows of a database, without messages that change none"
        elif rows.has_losses and not options.salvage:
            problem = "a copy left out damaged data, which this read reports"
        elif self.letters is None:
            problem = f"it has more than {_MAX_LETTERS} dead letters"
        elif len({rows.starts.get(str(each.topic), Bounds()) for each in topics}) > 1:
            problem = "its topics were copied from different starts"
        if problem is not None:
            return problem
        names = {own: name for name, own in options.filterable.columns}
        predicates = () if options.row_filter is None else options.row_filter.columns
        needed = (*(names[each] for each in condition.columns), *predicates)
        return unserved_column(
            (*options.projection.schema.names, *needed), options.filterable, self.files.schema, rows
        )

    def _condition(self, topics: Sequence[TopicLedgers], bounds: Bounds) -> RowCondition:
        rows, names = self.rows, tuple(str(each.topic) for each in topics)
        omitted: dict[int, tuple[int, ...]] = {}
        for name in names:
            omitted |= (self.letters or {}).get(name, {})
        if rows is not None:
            start = rows.starts.get(names[0], Bounds())
            deleted = Bounds(start_ms=rows.deleted_before_ms)
            bounds = bounds.intersect(start).intersect(deleted)
        is_whole = len(names) == len(self.progress.topics)
        return RowCondition(None if is_whole else names, bounds, omitted)

    def _remainders(
        self, topic: TopicLedgers, copied: Bounds, requested: Bounds
    ) -> Iterator[Remainder]:
        """Yield the rows of a topic that are not in the table.

        Args:
            topic: The topic.
            copied: Bounds of the requested rows that the table has, before the progress.
            requested: Bounds of the requested rows.
        """
        progress = self.progress.topics[topic.topic]
        position = (*progress.next, 0)
        yield Remainder(requested.intersect(Bounds(start_id=position)))
        before = requested.intersect(Bounds(end_id=position))
        if copied.start_id != requested.start_id:
            yield Remainder(before.intersect(Bounds(end_id=copied.start_id)), is_end=False)
            before = before.intersect(Bounds(start_id=copied.start_id))
        if copied.start_ms != requested.start_ms:
            yield Remainder(before.intersect(Bounds(end_ms=copied.start_ms)), is_end=False)
            before = before.intersect(Bounds(start_ms=copied.start_ms))
        entries = tuple(self._uncopied_entries(topic, progress))
        if entries:
            yield Remainder(before, entries, is_end=False)

    def _uncopied_entries(
        self, topic: TopicLedgers, progress: TopicProgress
    ) -> Iterator[EntryRange]:
        """Yield entries before the progress: of ledgers that appeared late, and dead letters."""
        name = str(topic.topic)
        letters = (self.letters or {}).get(name, {})
        late_ledgers = () if self.rows is None else self.rows.late_ledgers.get(name, ())
        for ledger in topic.data:
            ledger_id = ledger.ledger_id
            if ledger_id > progress.next.ledger_id:
                break
            if not progress.knows(ledger_id) or ledger_id in late_ledgers:
                yield EntryRange(ledger_id, 0, ledger.last_entry_id)
                continue
            for entry_id in letters.get(ledger_id, ()):
                yield EntryRange(ledger_id, entry_id, entry_id)


def open_table_version(
    kind: TableKind,
    target: str,
    storage_options: Mapping[str, object] | None,
    table_options: Mapping[str, object] | None,
) -> TableVersion:
    """Open the current version of a table that topics are copied to; see `open_table`.

    Raises:
        OptionError: An option is not allowed, a library is not installed, or there is no such
            branch.
        LakeTableError: There is no table that a copy writes, or it cannot be read.
        StorageError: The store or the catalog failed.
    """
    # Each kind of table is one.
    table = cast("RewritableTable", open_table(kind, target, storage_options, table_options))
    state, letters = table.read_state(), None
    if LetterChange.from_state(table, state).number:
        name, options = target.rstrip("/") + DEAD_LETTERS, dead_letter_options(table_options)
        own = cast("RewritableTable", open_table(kind, name, storage_options, options))
        letters = LetterTable(own, kind, file_bytes=1)  # It writes no file here.
        version = letters.read_versions(table)
        state = version.state
    state = check_copied(table, state)
    entries: Mapping[str, Mapping[int, tuple[int, ...]]] | None = {}
    problem = "it has only the latest row of each key" if state.latest_per_key else None
    if letters is not None:
        entries = _letter_entries(letters.read(version.letter_state, version.change))
        if letters.last_change(version.letter_state).number > version.change.number:
            problem = problem or (
                "its dead letters are those of a later version or of another branch, in which some"
                " may be rows"
            )
    files: list[StoredFile] = []
    try:
        for each in table.data_files(state, _bounded_columns(state.schema)):
            if each.path is None or ".." in each.path.split("/"):
                problem = problem or "it has deleted rows, renamed columns, or files elsewhere"
                break
            files.append(StoredFile.from_table_file(each, each.path))
    except LakeTableError as error:
        problem = problem or error.message
    progress = read_progress(table, state)
    stored = StoredFiles(table.location, state.schema, tuple(files))
    return TableVersion(stored, progress, CopiedRows.from_state(table, state), entries, problem)


def _bounded_columns(schema: pa.Schema) -> list[str]:
    """Return the columns whose bounds prune files, as far as tables record them."""
    names = [each.name for each in schema if not pa.types.is_nested(each.type)]
    return names[:_MAX_BOUNDED_COLUMNS]


def _row_group_bounds(
    group: pq.RowGroupMetaData, columns: Sequence[str]
) -> dict[str, ColumnBounds]:
    bounds = {}
    for index in range(group.num_columns if columns else 0):
        column = group.column(index)
        statistics = column.statistics
        if column.path_in_schema in columns and statistics is not None and statistics.has_min_max:
            has_nulls = not statistics.has_null_count or statistics.null_count > 0
            name = column.path_in_schema
            bounds[name] = ColumnBounds(statistics.min, statistics.max, may_be_null=has_nulls)
    return bounds


def _letter_entries(
    letters: Iterable[pa.RecordBatch],
) -> Mapping[str, Mapping[int, tuple[int, ...]]] | None:
    """Return the entries with dead letters by topic and ledger; None if there are too many."""
    entries: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    count = 0
    for batch in letters:
        count += batch.num_rows
        if count > _MAX_LETTERS:
            return None
        columns = (batch.column(each).to_pylist() for each in _LETTER_COLUMNS)
        for topic, ledger_id, entry_id in zip(*columns, strict=True):
            entries[topic][ledger_id].add(entry_id)
    return {
        topic: {ledger_id: tuple(sorted(each)) for ledger_id, each in ledgers.items()}
        for topic, ledgers in entries.items()
    }
