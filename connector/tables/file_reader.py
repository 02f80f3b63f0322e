"""Rows of one Parquet file of a table, or of its row groups."""

from __future__ import annotations

import io
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from arrow_io.errors import LakeTableError, PulsarOffloadError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from arrow_io.storage.location import Location

_INT96_UNIT: Final = "us"
"""Unit of timestamps that some writers, such as Spark, store as INT96."""
_SMALL_BYTES: Final = 4 << 20
"""A file of this length or less is read in one request, even if only some columns are needed."""


class _StoredFile(io.RawIOBase):
    """A file in a store; each read is one or more range requests."""

    def __init__(self, location: Location, path: str, size_bytes: int) -> None:
        super().__init__()
        self._location, self._path, self._size_bytes = location, path, size_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        starts = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}
        self._position = starts[whence] + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        stop = self._size_bytes if size < 0 else min(self._position + size, self._size_bytes)
        parts = []
        while self._position < stop:
            data = self._location.read_range(self._path, self._position, stop).data
            self._position += len(data)
            parts.append(bytes(data))
        return b"".join(parts)


class StoredParquet:
    """A Parquet file of which some columns or row groups are read.

    Its footer is read once. So is a short file, whose bytes are kept.

    Args:
        location: The table's folder.
        path: The file's path in it.
        size_bytes: Length of the file.
    """

    def __init__(self, location: Location, path: str, size_bytes: int) -> None:
        self._location, self._path, self._size_bytes = location, path, size_bytes
        self._data: bytes | None = None
        self._metadata: pq.FileMetaData | None = None

    @contextmanager
    def open(self) -> Iterator[pq.ParquetFile]:
        """Open the file; several threads may.

        Raises:
            LakeTableError: The file is malformed.
            PulsarOffloadError: The file cannot be read.
        """
        location, path, size_bytes = self._location, self._path, self._size_bytes
        if self._data is None and size_bytes <= _SMALL_BYTES:
            self._data = location.read_object(path, max_bytes=size_bytes).data
        with _parquet_errors(location, path):
            source = (
                pa.PythonFile(_StoredFile(location, path, size_bytes), mode="r")
                if self._data is None
                else pa.BufferReader(self._data)
            )
            with pq.ParquetFile(
                source,
                metadata=self._metadata,
                pre_buffer=True,
                coerce_int96_timestamp_unit=_INT96_UNIT,
            ) as file:
                self._metadata = file.metadata
                yield file


def read_rows(
    location: Location, path: str, size_bytes: int, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a file in order. If `columns` is None, read all columns.

    The path is relative to the location, the table's folder. The whole file is held in memory; its
    rows are decoded in batches.

    Raises:
        LakeTableError: The file is not a valid Parquet file.
        PulsarOffloadError: The file cannot be read.
    """
    data = location.read_object(path, max_bytes=size_bytes).data
    with (
        _parquet_errors(location, path),
        pq.ParquetFile(pa.BufferReader(data), coerce_int96_timestamp_unit=_INT96_UNIT) as file,
    ):
        yield from file.iter_batches(columns=None if columns is None else list(columns))


@contextmanager
def _parquet_errors(location: Location, path: str) -> Iterator[None]:
    try:
        yield
    except PulsarOffloadError:
        raise
    except (pa.ArrowException, OSError) as error:
        message = f"{path} at {location} cannot be read: {error}"
        raise LakeTableError(message, object_key=path) from error
