"""Rows of a task → Parquet files of a wanted size, written where the rows are decoded.

What is held at once is bounded: the rows that wait for their row group, by twice `waiting_bytes`,
whatever the number and the sizes of the partitions; and the files that are open, by `open_files`.
A file that is small goes to the store in one request, a large one in parts, each as soon as it is
full.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from arrow_io.core.wording import counted
from arrow_io.errors import PulsarOffloadError
from connector.lake.column_stats import FileStats
from connector.lake.data_file import DataFile
from connector.lake.evolution import fit_rows
from connector.lake.partition_folders import check_partitioning, partition_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arrow_io.storage.location import Location
    from arrow_io.storage.uploads import ObjectUpload
    from connector.lake.evolution import TableKind
    from connector.lake.transforms import Partitioning

PART_BYTES = 8 << 20
"""S3 wants 5 MiB at least, and no more than 10,000 of them."""

_MAX_BUFFER_RATIO = 2
"""How many times the bytes of rows that wait may be held for them; else they are copied."""

_MAX_NAMES = 20
"""A commit may have thousands of files."""


@dataclass(frozen=True, slots=True)
class FileSettings:
    """How files are written. Can be pickled.

    Attributes:
        location: The table's folder.
        data_prefix: Where in it the files lie: empty, or ends in `/`.
        schema: Columns of the table, and their types.
        partitioning: How the rows are divided into files.
        kind: What the table is.
        file_bytes: Bytes of a file after which the next is begun, about.
        row_group_bytes: Bytes of a row group in Arrow's memory, about.
        row_group_rows: Most rows of a row group.
        waiting_bytes: Most bytes of rows that wait for their row group, in Arrow's memory.
        open_files: Most files that are open at once.
        compression: Parquet's name of the codec.
    """

    location: Location
    data_prefix: str
    schema: pa.Schema
    partitioning: Partitioning
    kind: TableKind
    file_bytes: int = 128 << 20
    row_group_bytes: int = 64 << 20
    row_group_rows: int = 1 << 20
    waiting_bytes: int = 128 << 20
    open_files: int = 64
    compression: str = "zstd"

    def __post_init__(self) -> None:
        """Refuse what the table cannot be partitioned by.

        Raises:
            OptionError: By `check_partitioning`.
        """
        check_partitioning(self.partitioning, self.schema, self.kind)

    @property
    def file_schema(self) -> pa.Schema:
        """The columns that a file has: of Delta's, not those that its partition has."""
        if self.kind != "delta":
            return self.schema
        names = {each.name for each in self.partitioning.fields}
        return pa.schema([each for each in self.schema if each.name not in names])


class FileWriter:
    """Writes files while it is a context manager; an error that leaves it removes them all.

    Args:
        settings: How they are written.
    """

    def __init__(self, settings: FileSettings) -> None:
        self._settings = settings
        self._pending: dict[tuple[object, ...], _PendingRows] = {}
        self._pending_bytes = 0
        self._open: dict[tuple[object, ...], _OpenFile] = {}
        self._files: list[DataFile] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            return
        # All at once: what Arrow has open is closed as it is collected, and must send nothing then.
        for each in self._open.values():
            each.stop()
        for each in self._open.values():
            each.abort(error)
        # The store may have got a file, though it did not say so.
        open_files = (each.file for each in self._open.values())
        delete_files(self._settings.location, [*self._files, *open_files], error)

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows.

        Args:
            batch: Has the columns of `FileSettings.schema`, of types that can be cast to those.

        Raises:
            LakeTableError: A value does not fit the type that the table has for it.
            StorageError: The store refused, or went on failing.
        """
        typed = fit_rows(batch, self._settings.schema, self._settings.kind)
        for values, rows in self._settings.partitioning.split(typed):
            pending = self._pending.setdefault(values, _PendingRows())
            pending.add(rows)
            self._pending_bytes += rows.nbytes
            if (
                pending.size_bytes >= self._settings.row_group_bytes
                or pending.rows >= self._settings.row_group_rows
            ):
                self._flush(values)
        while self._pending_bytes > self._settings.waiting_bytes:
            self._flush(max(self._pending, key=lambda each: self._pending[each].size_bytes))

    def finish(self) -> tuple[DataFile, ...]:
        """Write what waits, and complete all files.

        Raises:
            StorageError: The store refused, or went on failing.
        """
        for values in list(self._pending):
            self._flush(values)
        for values in list(self._open):
            self._complete(values)
        return tuple(self._files)

    def _flush(self, values: tuple[object, ...]) -> None:
        """Write the rows of a partition that wait, as a row group."""
        pending = self._pending.pop(values)
        self._pending_bytes -= pending.size_bytes
        # Taken out while it is written to: what is put back is the last used.
        open_file = self._open.pop(values, None)
        if open_file is None:
            while len(self._open) >= self._settings.open_files:
                self._complete(next(iter(self._open)))
            open_file = _OpenFile(self._settings, values)
        self._open[values] = open_file
        open_file.write(pending.table(self._settings.file_schema))
        if open_file.size_bytes >= self._settings.file_bytes:
            self._complete(values)

    def _complete(self, values: tuple[object, ...]) -> None:
        self._files.append(self._open[values].complete())
        del self._open[values]


def delete_files(location: Location, files: Sequence[DataFile], error: BaseException) -> None:
    """Delete files that no table names, because of an error that gets a note if some are left."""
    try:
        location.delete_objects(each.path for each in files)
    except PulsarOffloadError as failure:
        message = f"files that no table names may be left at {location}"
        error.add_note(f"{message} ({failure}): {_list_names(files)}")


def note_uncertain_files(
    location: Location, files: Sequence[DataFile], error: BaseException
) -> None:
    """Note on the error of a commit that its files are kept, because it may have been made."""
    if files:
        message = f"it is not known whether the table at {location} has these files"
        error.add_note(f"{message}, so they are kept: {_list_names(files)}")


def _list_names(files: Sequence[DataFile]) -> str:
    names = ", ".join(each.path for each in files[:_MAX_NAMES])
    rest = len(files) - _MAX_NAMES
    return f"{names} and {counted(rest, 'other')}" if rest > 0 else names


@dataclass(slots=True)
class _PendingRows:
    """Rows of one partition that wait for their row group."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size_bytes: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        self.size_bytes += batch.nbytes
        # A slice keeps all that it was cut from.
        is_copied = batch.get_total_buffer_size() > _MAX_BUFFER_RATIO * batch.nbytes
        self.batches.append(pa.concat_batches([batch]) if is_copied else batch)

    def table(self, schema: pa.Schema) -> pa.Table:
        return pa.Table.from_batches(self.batches).select(schema.names)


class _OpenFile:
    """A file that is being written, of one partition."""

    def __init__(self, settings: FileSettings, values: tuple[object, ...]) -> None:
        folder = settings.data_prefix + partition_folder(
            settings.partitioning, values, settings.kind
        )
        name = f"{uuid4().hex}.parquet"
        self.file = DataFile(folder + name, 0, 0, values)
        at = settings.location.child(folder.rstrip("/")) if folder else settings.location
        self._parts = _Parts(at, name)
        self._stats = FileStats(settings.file_schema)
        self._footers: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._parts, mode="w"),
            settings.file_schema,
            compression=settings.compression,
            write_page_index=True,
            metadata_collector=self._footers,
        )
        self._row_group_rows = settings.row_group_rows

    @property
    def size_bytes(self) -> int:
        """How long it is until now."""
        return self._parts.tell()

    def write(self, table: pa.Table) -> None:
        """Write rows, as one row group or more."""
        self._stats.add_rows(table)
        self._writer.write_table(table, self._row_group_rows)

    def complete(self) -> DataFile:
        """Write what is behind the rows, and publish the file."""
        self._writer.close()
        [footer] = self._footers
        self._parts.complete()
        return replace(
            self.file,
            size_bytes=self._parts.tell(),
            rows=footer.num_rows,
            stats=self._stats.read_footer(footer),
        )

    def stop(self) -> None:
        """Take nothing more; sends nothing."""
        self._parts.is_stopped = True
        # There is no footer of a file that broke off.
        with contextlib.suppress(pa.ArrowException, RuntimeError):
            self._writer.close()

    def abort(self, error: BaseException) -> None:
        """Remove what was written."""
        self._parts.abort(error)


class _Parts:
    """A file to Arrow, whose bytes are sent to a store.

    Args:
        location: Folder of the object.
        name: Its name there.
    """

    def __init__(self, location: Location, name: str) -> None:
        self._location = location
        self._name = name
        self._buffer = bytearray()
        self._size_bytes = 0
        self._upload: ObjectUpload | None = None
        self.is_stopped = False
        self.closed = False

    def write(self, data: bytes) -> int:
        """Take bytes; whole parts are sent."""
        if not self.is_stopped:
            self._buffer += data
            self._size_bytes += len(data)
            while len(self._buffer) > PART_BYTES:
                self._send(bytes(memoryview(self._buffer)[:PART_BYTES]))
                del self._buffer[:PART_BYTES]
        return len(data)

    def tell(self) -> int:
        """How many bytes were written."""
        return self._size_bytes

    def flush(self) -> None:
        """Parts are sent when they are full."""

    def close(self) -> None:
        """Arrow writes no more."""
        self.closed = True

    def complete(self) -> None:
        """Send what is left, and publish the object."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        if self._upload is None:
            self._location.write_object(self._name, rest, user_metadata={})
            return
        self._upload.write_part(rest)
        upload, self._upload = self._upload, None
        upload.__exit__(None, None, None)

    def abort(self, error: BaseException) -> None:
        """Remove what was sent."""
        self._buffer.clear()
        if self._upload is not None:
            upload, self._upload = self._upload, None
            upload.__exit__(type(error), error, error.__traceback__)

    def _send(self, part: bytes) -> None:
        if self._upload is None:
            self._upload = self._location.upload(self._name, user_metadata={}).__enter__()
        self._upload.write_part(part)
