"""The writer of a task's rows: splits them into Parquet files of a target size.

Memory is bounded, whatever the number of partitions: rows that wait for their row group take at
most twice `waiting_bytes`, and at most `open_files` files are open. A small file is uploaded in one
request. A large one is uploaded in parts, each as soon as it is full.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Self
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from arrow_io.core.wording import counted
from arrow_io.errors import PulsarOffloadError
from connector.tables.column_stats import FileStats, columns_with_dictionary
from connector.tables.data_file import DataFile
from connector.tables.evolution import fit_rows
from connector.tables.partition_folders import check_partitioning, partition_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arrow_io.storage.location import Location
    from arrow_io.storage.uploads import ObjectUpload
    from connector.tables.evolution import TableKind
    from connector.tables.transforms import Partitioning

OWN_NAME: Final = re.compile(r"(?:.*/)?[0-9a-f]{32}\.parquet")
"""Matches the path of a file that `FileWriter` wrote."""
PART_BYTES = 8 << 20
"""Size of an uploaded part. S3 requires at least 5 MiB, and at most 10,000 parts an object."""

_MAX_BUFFER_RATIO = 2
"""A batch whose buffers exceed its rows by this factor is copied to release the buffers."""

_MAX_NAMES = 20
"""Maximum number of files that an error names: a commit may have thousands."""


@dataclass(frozen=True, slots=True)
class FileSettings:
    """How files are written. Can be pickled.

    Attributes:
        data_prefix: The folder of the files below it: empty, or ends in `/`.
        schema: The table's columns and their types.
        partitioning: How rows are split into files.
        file_bytes: Approximate size at which a file is completed and the next one is started.
        row_group_bytes: Approximate size of a row group in Arrow's memory.
        row_group_rows: Maximum number of rows of a row group.
        waiting_bytes: Maximum size of rows that wait for their row group, in Arrow's memory.
        open_files: Maximum number of files open at once.
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
        check_partitioning(self.partitioning, self.schema, self.kind)

    @property
    def file_schema(self) -> pa.Schema:
        """The columns of a file. Delta keeps partition columns in its log only."""
        if self.kind != "delta":
            return self.schema
        names = {each.name for each in self.partitioning.fields}
        return pa.schema([each for each in self.schema if each.name not in names])


class FileWriter:
    """A context manager that writes files, and deletes them all if an error leaves the block."""

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
        # Stop all files first: garbage collection closes Arrow's writers, which must send nothing.
        for each in self._open.values():
            each.stop()
        for each in self._open.values():
            each.abort(error)
        # The store may have stored a file although its response was lost.
        open_files = (each.file for each in self._open.values())
        delete_files(self._settings.location, [*self._files, *open_files], error)

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows with the columns of `FileSettings.schema`, cast to its types.

        Raises:
            LakeTableError: A value does not fit the table's type.
            StorageError: The store refused, or kept failing.
        """
        if not batch.num_rows:
            # Each file has a row.
            return
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
        """Write all rows that wait, complete the open files, and return all files.

        Raises:
            StorageError: The store refused, or kept failing.
        """
        for values in list(self._pending):
            self._flush(values)
        for values in list(self._open):
            self._complete(values)
        return tuple(self._files)

    def _flush(self, values: tuple[object, ...]) -> None:
        """Write the waiting rows of a partition as a row group."""
        pending = self._pending.pop(values)
        self._pending_bytes -= pending.size_bytes
        # Removed and put back, so that the dictionary is in order of last use.
        open_file = self._open.pop(values, None)
        table = pending.table(self._settings.file_schema)
        if open_file is None:
            while len(self._open) >= self._settings.open_files:
                self._complete(next(iter(self._open)))
            open_file = _OpenFile(self._settings, values, columns_with_dictionary(table))
        self._open[values] = open_file
        open_file.write(table)
        if open_file.size_bytes >= self._settings.file_bytes:
            self._complete(values)

    def _complete(self, values: tuple[object, ...]) -> None:
        self._files.append(self._open[values].complete())
        del self._open[values]


def delete_files(location: Location, files: Sequence[DataFile], error: BaseException) -> None:
    """Delete files that no table lists, after an error. If this fails, add a note to the error."""
    try:
        location.delete_objects(each.path for each in files)
    except PulsarOffloadError as failure:
        message = f"files that no table names may be left at {location}"
        error.add_note(f"{message} ({failure}): {_list_names(files)}")


def note_uncertain_files(
    location: Location, files: Sequence[DataFile], error: BaseException
) -> None:
    """Add a note to the error of a commit that may have been made: its files are kept."""
    if files:
        message = f"it is not known whether the table at {location} has these files"
        error.add_note(f"{message}, so they are kept: {_list_names(files)}")


def _list_names(files: Sequence[DataFile]) -> str:
    names = ", ".join(each.path for each in files[:_MAX_NAMES])
    rest = len(files) - _MAX_NAMES
    return f"{names} and {counted(rest, 'other')}" if rest > 0 else names


@dataclass(slots=True)
class _PendingRows:
    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size_bytes: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        self.size_bytes += batch.nbytes
        # A slice keeps the whole buffers of its parent alive.
        is_copied = batch.get_total_buffer_size() > _MAX_BUFFER_RATIO * batch.nbytes
        self.batches.append(pa.concat_batches([batch]) if is_copied else batch)

    def table(self, schema: pa.Schema) -> pa.Table:
        return pa.Table.from_batches(self.batches).select(schema.names)


class _OpenFile:
    def __init__(
        self, settings: FileSettings, values: tuple[object, ...], with_dictionary: list[str]
    ) -> None:
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
            use_dictionary=with_dictionary,
            write_page_index=True,
            metadata_collector=self._footers,
        )
        self._row_group_rows = settings.row_group_rows

    @property
    def size_bytes(self) -> int:
        return self._parts.tell()

    def write(self, table: pa.Table) -> None:
        self._stats.add_rows(table)
        self._writer.write_table(table, self._row_group_rows)

    def complete(self) -> DataFile:
        """Write the footer, and publish the file."""
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
        """Ignore all further bytes, so that closing the Parquet writer sends nothing."""
        self._parts.is_stopped = True
        # Arrow may fail to write the footer of an incomplete file.
        with contextlib.suppress(pa.ArrowException, RuntimeError):
            self._writer.close()

    def abort(self, error: BaseException) -> None:
        self._parts.abort(error)


class _Parts:
    """A file object for Arrow that uploads the bytes written to it as one object."""

    def __init__(self, location: Location, name: str) -> None:
        self._location = location
        self._name = name
        self._buffer = bytearray()
        self._size_bytes = 0
        self._upload: ObjectUpload | None = None
        self.is_stopped = False
        self.closed = False

    def write(self, data: bytes) -> int:
        if not self.is_stopped:
            self._buffer += data
            self._size_bytes += len(data)
            while len(self._buffer) > PART_BYTES:
                self._send(bytes(memoryview(self._buffer)[:PART_BYTES]))
                del self._buffer[:PART_BYTES]
        return len(data)

    def tell(self) -> int:
        return self._size_bytes

    def flush(self) -> None:
        """Do nothing: a part is sent once it is full."""

    def close(self) -> None:
        self.closed = True

    def complete(self) -> None:
        rest = bytes(self._buffer)
        self._buffer.clear()
        if self._upload is None:
            self._location.write_object(self._name, rest, user_metadata={})
            return
        self._upload.write_part(rest)
        upload, self._upload = self._upload, None
        upload.__exit__(None, None, None)

    def abort(self, error: BaseException) -> None:
        self._buffer.clear()
        if self._upload is not None:
            upload, self._upload = self._upload, None
            upload.__exit__(type(error), error, error.__traceback__)

    def _send(self, part: bytes) -> None:
        if self._upload is None:
            self._upload = self._location.upload(self._name, user_metadata={}).__enter__()
        self._upload.write_part(part)
