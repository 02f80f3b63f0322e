"""Rewrites of a table's files: small ones are merged, and rows older than a time are deleted.

A bin is a set of files of one partition whose rows fit into one file; it is the task of one thread
or one Spark executor. Each rewrite is one commit, which keeps the progress of copies. It fails if
another writer changed the table meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.errors import OptionError
from connector.inputs.times import EPOCH
from connector.tables.copied_rows import note_deletion
from connector.tables.evolution import fit_rows
from connector.tables.executors import run_tasks
from connector.tables.file_writer import FileWriter, delete_files
from connector.tables.table import Commit, commit_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from connector.tables.data_file import DataFile
    from connector.tables.executors import Executor
    from connector.tables.file_writer import FileSettings
    from connector.tables.table import FileReader, RewritableTable, TableFile, TableState

_SMALL: Final = 3 / 4
"""A file below this share of the target size is small: Iceberg's `min-file-size-bytes`."""


_BOUND_PRECISION: Final = timedelta(milliseconds=1)
"""Delta's writers may cut a maximum down to whole milliseconds."""


class DeletedRows(NamedTuple):
    """Rows that are too old, and the files that have some."""

    rows: int
    files: int


@dataclass(frozen=True, slots=True)
class FileBin:
    """Files of one partition, in the order of the table's files, whose rows fit into one file."""

    files: tuple[TableFile, ...]

    @property
    def size_bytes(self) -> int:
        """Total length of the files."""
        return sum(each.size_bytes for each in self.files)


def plan_bins(files: Iterable[TableFile], file_bytes: int, min_files: int) -> list[FileBin]:
    """Return the bins of a table.

    Args:
        files: The table's files.
        file_bytes: Target size of a file. Smaller ones than three quarters of it are merged.
        min_files: Minimum number of files of a bin, at least 2, unless they are as long together as
            the target.
    """
    small = (each for each in files if each.size_bytes < file_bytes * _SMALL)
    return [
        each
        for each in _bins(small, file_bytes)
        if len(each.files) >= min_files or (len(each.files) > 1 and each.size_bytes >= file_bytes)
    ]


def _bins(files: Iterable[TableFile], size_bytes: int) -> Iterator[FileBin]:
    """Put the files of each partition into bins that are completed at a size."""
    partitions: dict[object, list[TableFile]] = {}
    lengths: dict[object, int] = {}
    for file in files:
        key = tuple(file.partition.items())
        partitions.setdefault(key, []).append(file)
        lengths[key] = lengths.get(key, 0) + file.size_bytes
        if lengths[key] >= size_bytes:
            yield FileBin(tuple(partitions.pop(key)))
            del lengths[key]
    yield from (FileBin(tuple(each)) for each in partitions.values())


def split_bins(bins: Sequence[FileBin], commit_bytes: int) -> Iterator[list[FileBin]]:
    """Split bins into those of one commit each, of approximately this size in bytes."""
    step: list[FileBin] = []
    for each in bins:
        if step and sum(other.size_bytes for other in (*step, each)) > commit_bytes:
            yield step
            step = []
        step.append(each)
    if step:
        yield step


@dataclass(frozen=True, slots=True)
class RewrittenBin:
    """What became of a bin.

    Attributes:
        files: The new files.
        removed: The files that they replace.
        deleted_rows: Rows of these that the new files lack.
    """

    files: tuple[DataFile, ...]
    removed: tuple[TableFile, ...]
    deleted_rows: int = 0


@dataclass(frozen=True, slots=True)
class BinWriter:
    """Writes the rows of bins to new files; see `Work` of `connector.tables.executors`.

    Attributes:
        read: Reads the files of the bins.
        settings: How files of the table are written.
        sort_by: Columns by which the rows of each bin are sorted. Empty keeps their order.
    """

    read: FileReader
    settings: FileSettings
    sort_by: tuple[str, ...] = ()

    def __call__(self, task: FileBin) -> RewrittenBin:
        """Write the rows of a bin."""
        with FileWriter(self.settings) as writer:
            for batch in self._rows(task):
                writer.write(batch)
            return RewrittenBin(writer.finish(), task.files)

    def discard(self, result: RewrittenBin, error: BaseException) -> None:
        """Delete the new files of a bin after an error."""
        delete_files(self.settings.location, result.files, error)

    def _rows(self, task: FileBin) -> Iterator[pa.RecordBatch]:
        batches = (batch for each in task.files for batch in self.read(each))
        if not self.sort_by:
            yield from batches
            return
        schema = self.settings.schema
        fitted = [fit_rows(each, schema, self.settings.kind) for each in batches]
        rows = pa.Table.from_batches(fitted, schema)
        yield from rows.sort_by([(each, "ascending") for each in self.sort_by]).to_batches()


@dataclass(frozen=True, slots=True)
class RowDeletion:
    """Rewrites the files of bins without earlier rows; see `Work` of `connector.tables.executors`.

    Attributes:
        read: Reads the files of the bins.
        settings: How files of the table are written.
        column: Name of the column of times.
        time: Rows with an earlier time are deleted.
    """

    read: FileReader
    settings: FileSettings
    column: str
    time: datetime

    def __call__(self, task: FileBin) -> RewrittenBin:
        """Rewrite those files of a bin that have earlier rows."""
        with FileWriter(self.settings) as writer:
            rewritten = rewrite_without(self.read, task.files, [self.column], self._are_old, writer)
            pairs = list(rewritten)
            removed = tuple(file for file, _ in pairs)
            return RewrittenBin(writer.finish(), removed, sum(count for _, count in pairs))

    def _are_old(self, _: TableFile, rows: pa.Table) -> pa.BooleanArray:
        times = rows[self.column]
        is_earlier = pc.less(times, pa.scalar(self.time, times.type)).combine_chunks()
        return is_earlier.fill_null(False)  # noqa: FBT003 - the value of rows without a time

    def discard(self, result: RewrittenBin, error: BaseException) -> None:
        """Delete the new files of a bin after an error."""
        delete_files(self.settings.location, result.files, error)


def rewrite_bins(
    table: RewritableTable,
    state: TableState,
    bins: Sequence[FileBin],
    settings: FileSettings,
    *,
    executor: Executor,
    sort_by: Sequence[str] = (),
) -> int:
    """Rewrite bins and commit the new files in place of the old ones; return how many are new.

    Args:
        table: The table.
        state: Its state when the bins were planned.
        bins: At least one.
        settings: How files of the table are written.
        executor: Runs a task for each bin.
        sort_by: Columns by which the rows of each bin are sorted, which takes all of them into
            memory. Empty keeps the order of the files.

    Raises:
        OptionError: The table lacks a column of `sort_by`, or its values have no order.
        ConcurrentCopyError: Another writer changed the table. It has not changed here.
        PulsarOffloadError: Rows cannot be read or written. Written files are deleted, unless a note
            on the error names them.
    """
    _check_sortable(table, state, sort_by)
    # A bin becomes one file, even if it grows a little.
    whole = replace(settings, file_bytes=2 * settings.file_bytes)
    writer = BinWriter(table.file_reader(state), whole, tuple(sort_by))
    results = run_tasks(executor, writer, bins)
    _commit(table, state, settings, results, reason="compaction", has_same_rows=True)
    return sum(len(each.files) for each in results)


def _check_sortable(table: RewritableTable, state: TableState, sort_by: Sequence[str]) -> None:
    for each in sort_by:
        if each not in state.schema.names:
            message = f"{table.location} has no column {each} to sort by"
            raise OptionError(message)
        # Arrow compares nothing if there are fewer rows.
        rows = pa.table({each: pa.nulls(2, state.schema.field(each).type)})
        try:
            rows.sort_by(each)
        except pa.ArrowException as error:
            message = f"{table.location} cannot be sorted by {each}: {error}"
            raise OptionError(message) from None


def delete_rows_before(
    table: RewritableTable,
    state: TableState,
    settings: FileSettings,
    column: str,
    time: datetime,
    *,
    executor: Executor,
) -> DeletedRows:
    """Delete the rows whose time is earlier, in one commit. Rows without a time stay.

    Args:
        table: The table.
        state: Its state.
        settings: How files of the table are written.
        column: Name of a column of times with time zone.
        time: The time, with time zone.
        executor: Runs tasks that each rewrite files of approximately the size of a new file.

    Raises:
        ConcurrentCopyError: Another writer changed the table. It has not changed here.
        PulsarOffloadError: Rows cannot be read or written. Written files are deleted, unless a note
            on the error names them.
    """
    # Files whose rows are all earlier need not be read.
    older: list[TableFile] = []
    uncertain: list[TableFile] = []
    for each in _files_before(table, state, column, time):
        (older if each.rows is not None and _is_older(each, column, time) else uncertain).append(
            each
        )
    deletion = RowDeletion(table.file_reader(state), settings, column, time)
    results = run_tasks(executor, deletion, list(_bins(uncertain, settings.file_bytes)))
    results.append(RewrittenBin((), tuple(older), sum(each.rows or 0 for each in older)))
    removed = sum(len(each.removed) for each in results)
    if removed:
        progress = note_deletion(state.progress or "", -((EPOCH - time) // _BOUND_PRECISION))
        _commit(table, state, settings, results, reason="retention", progress=progress)
    return DeletedRows(sum(each.deleted_rows for each in results), removed)


def count_rows_before(
    table: RewritableTable, state: TableState, column: str, time: datetime
) -> DeletedRows:
    """Return the files that `delete_rows_before` would read, and their rows: more than it deletes.

    Reads no file of the table.
    """
    files = list(_files_before(table, state, column, time))
    return DeletedRows(sum(each.rows or 0 for each in files), len(files))


def _files_before(
    table: RewritableTable, state: TableState, column: str, time: datetime
) -> Iterator[TableFile]:
    """Iterate over the files that may have earlier rows."""
    for file in table.data_files(state, [column]):
        least = _bound(file.bounds[column][0])
        if least is None or least < time:
            yield file


def _is_older(file: TableFile, column: str, time: datetime) -> bool:
    """Return whether all rows are certainly earlier."""
    greatest = _bound(file.bounds[column][1])
    if greatest is None or column not in file.not_null:
        return False
    return greatest + _BOUND_PRECISION < time


def _bound(value: object) -> datetime | None:
    """Return a recorded bound as a time; Iceberg records microseconds since the epoch."""
    if isinstance(value, int):
        return EPOCH + timedelta(microseconds=value)
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    return None


def _commit(
    table: RewritableTable,
    state: TableState,
    settings: FileSettings,
    results: Sequence[RewrittenBin],
    *,
    reason: str,
    has_same_rows: bool = False,
    progress: str | None = None,
) -> None:
    """Commit a rewrite. If `progress` is None, the progress stays the same."""
    assert state.progress is not None  # noqa: S101 - checked by the caller
    commit = Commit(
        tuple(file for each in results for file in each.files),
        settings.schema,
        settings.partitioning,
        state.progress,
        progress or state.progress,
        {"pulsar-offload.maintenance": reason},
        tuple(file for each in results for file in each.removed),
        latest_per_key=state.latest_per_key,
        key_columns=state.key_columns,
        has_same_rows=has_same_rows,
    )
    commit_files(settings.kind, table, commit, state)


def rewrite_without(
    read: FileReader,
    files: Iterable[TableFile],
    columns: Sequence[str],
    match: Callable[[TableFile, pa.Table], pa.BooleanArray],
    writer: FileWriter,
) -> Iterator[tuple[TableFile, int]]:
    """Rewrite files without the rows that match; yield each, and how many of its rows matched.

    Args:
        read: Reads files of the table.
        files: Some of them. Those without a matching row stay, and are not yielded.
        columns: Columns that `match` needs.
        match: Returns a mask of the rows of a file; no value of it is null.
        writer: Receives the rows that do not match.

    Raises:
        PulsarOffloadError: Rows cannot be read or written.
    """
    for file in files:
        batches = list(read(file, columns))
        if not batches:  # It has no rows, or others deleted each of them.
            continue
        rows = pa.Table.from_batches(batches)
        is_matching = match(file, rows)
        matching = is_matching.true_count
        if not matching:
            continue
        if matching < len(rows):
            for batch in filter_rows(read(file), pc.invert(is_matching)):
                writer.write(batch)
        yield file, matching


def filter_rows(
    batches: Iterable[pa.RecordBatch], is_selected: pa.BooleanArray
) -> Iterator[pa.RecordBatch]:
    """Filter the rows of consecutive batches by a mask over all of them."""
    first = 0
    for batch in batches:
        selected = batch.filter(is_selected.slice(first, batch.num_rows))
        first += batch.num_rows
        if selected.num_rows:
            yield selected
