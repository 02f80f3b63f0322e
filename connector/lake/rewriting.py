"""Rewrites of a table's files: small ones are merged, and rows older than a time are deleted.

A bin is a set of small files of one partition whose rows fit into one file. Each rewrite is one
commit, which keeps the progress of copies. It fails if another writer changed the table meanwhile.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.errors import OptionError
from connector.inputs.times import EPOCH
from connector.lake.copied_rows import note_deletion
from connector.lake.evolution import fit_rows
from connector.lake.file_writer import FileWriter
from connector.lake.table import Commit, commit_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from connector.lake.data_file import DataFile
    from connector.lake.evolution import TableKind
    from connector.lake.file_writer import FileSettings
    from connector.lake.table import RewritableTable, TableFile, TableState

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
    """Small files of one partition, in the order of the table's files, that become one file."""

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
    partitions: dict[object, list[TableFile]] = {}
    for file in files:
        if file.size_bytes < file_bytes * _SMALL:
            partitions.setdefault(tuple(file.partition.items()), []).append(file)
    bins = (each for small in partitions.values() for each in _split(small, file_bytes))
    return [
        each
        for each in bins
        if len(each.files) >= min_files or (len(each.files) > 1 and each.size_bytes >= file_bytes)
    ]


def _split(files: Sequence[TableFile], file_bytes: int) -> Iterator[FileBin]:
    current: list[TableFile] = []
    size_bytes = 0
    for each in files:
        current.append(each)
        size_bytes += each.size_bytes
        if size_bytes >= file_bytes:
            yield FileBin(tuple(current))
            current, size_bytes = [], 0
    if current:
        yield FileBin(tuple(current))


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


def rewrite_bins(
    table: RewritableTable,
    state: TableState,
    bins: Sequence[FileBin],
    settings: FileSettings,
    sort_by: Sequence[str] = (),
) -> int:
    """Rewrite bins and commit the new files in place of the old ones; return how many are new.

    Args:
        table: The table.
        state: Its state when the bins were planned.
        bins: At least one.
        settings: How files of the table are written.
        sort_by: Columns by which the rows of each bin are sorted, which takes all of them into
            memory. Empty keeps the order of the files.

    Raises:
        OptionError: The table lacks a column of `sort_by`, or its values have no order.
        ConcurrentCopyError: Another writer changed the table. It has not changed here.
        PulsarOffloadError: Rows cannot be read or written. Written files are deleted, unless a note
            on the error names them.
    """
    _check_sortable(table, state, sort_by)
    files: list[DataFile] = []
    # A bin becomes one file, even if it grows a little.
    whole = replace(settings, file_bytes=2 * settings.file_bytes)
    with ExitStack() as stack:
        for each in bins:
            writer = stack.enter_context(FileWriter(whole))
            for batch in _rows(table, state, each, sort_by, settings.kind):
                writer.write(batch)
            files += writer.finish()
    removed = [file for each in bins for file in each.files]
    _commit(
        table,
        state,
        settings,
        files=files,
        removed=removed,
        reason="compaction",
        has_same_rows=True,
    )
    return len(files)


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
) -> DeletedRows:
    """Delete the rows whose time is earlier, in one commit. Rows without a time stay.

    Args:
        table: The table.
        state: Its state.
        settings: How files of the table are written.
        column: Name of a column of times with time zone.
        time: The time, with time zone.

    Raises:
        ConcurrentCopyError: Another writer changed the table. It has not changed here.
        PulsarOffloadError: Rows cannot be read or written. Written files are deleted, unless a note
            on the error names them.
    """

    def is_old(_: TableFile, rows: pa.Table) -> pa.BooleanArray:
        times = rows[column]
        is_earlier = pc.less(times, pa.scalar(time, times.type)).combine_chunks()
        return is_earlier.fill_null(False)  # noqa: FBT003 - the value of rows without a time

    rows = 0
    removed: list[TableFile] = []
    with FileWriter(settings) as writer:
        for file in _files_before(table, state, column, time):
            if file.rows is not None and _is_older(file, column, time):
                rows += file.rows
                removed.append(file)
                continue
            for _, old_rows in rewrite_without(table, state, [file], [column], is_old, writer):
                rows += old_rows
                removed.append(file)
        files = writer.finish()
    if removed:
        progress = note_deletion(state.progress or "", -((EPOCH - time) // _BOUND_PRECISION))
        _commit(
            table,
            state,
            settings,
            files=files,
            removed=removed,
            reason="retention",
            progress=progress,
        )
    return DeletedRows(rows, len(removed))


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
    *,
    files: Sequence[DataFile],
    removed: Sequence[TableFile],
    reason: str,
    has_same_rows: bool = False,
    progress: str | None = None,
) -> None:
    """Commit a rewrite. If `progress` is None, the progress stays the same."""
    assert state.progress is not None  # noqa: S101 - checked by the caller
    commit = Commit(
        tuple(files),
        settings.schema,
        settings.partitioning,
        state.progress,
        progress or state.progress,
        {"pulsar-offload.maintenance": reason},
        tuple(removed),
        latest_per_key=state.latest_per_key,
        key_columns=state.key_columns,
        has_same_rows=has_same_rows,
    )
    commit_files(settings.kind, table, commit, state)


def rewrite_without(  # noqa: PLR0917 - what is read, then what is written
    table: RewritableTable,
    state: TableState,
    files: Iterable[TableFile],
    columns: Sequence[str],
    match: Callable[[TableFile, pa.Table], pa.BooleanArray],
    writer: FileWriter,
) -> Iterator[tuple[TableFile, int]]:
    """Rewrite files without the rows that match; yield each, and how many of its rows matched.

    Args:
        table: The table.
        state: Its state.
        files: Some of its files. Those without a matching row stay, and are not yielded.
        columns: Columns that `match` needs.
        match: Returns a mask of the rows of a file; no value of it is null.
        writer: Receives the rows that do not match.

    Raises:
        PulsarOffloadError: Rows cannot be read or written.
    """
    for file in files:
        batches = list(table.read_file(state, file, columns))
        if not batches:  # It has no rows, or others deleted each of them.
            continue
        rows = pa.Table.from_batches(batches)
        is_matching = match(file, rows)
        matching = is_matching.true_count
        if not matching:
            continue
        if matching < len(rows):
            for batch in filter_rows(table.read_file(state, file), pc.invert(is_matching)):
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


def _rows(
    table: RewritableTable,
    state: TableState,
    files: FileBin,
    sort_by: Sequence[str],
    kind: TableKind,
) -> Iterator[pa.RecordBatch]:
    batches = (batch for each in files.files for batch in table.read_file(state, each))
    if not sort_by:
        yield from batches
        return
    fitted = [fit_rows(each, state.schema, kind) for each in batches]
    rows = pa.Table.from_batches(fitted, state.schema)
    yield from rows.sort_by([(each, "ascending") for each in sort_by]).to_batches()
