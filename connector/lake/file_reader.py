"""Rows of one Parquet file of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from arrow_io.errors import LakeTableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from arrow_io.storage.location import Location


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
    try:
        # Some writers, such as Spark, store timestamps as INT96.
        source = pa.BufferReader(data)
        with pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as file:
            yield from file.iter_batches(columns=None if columns is None else list(columns))
    except (pa.ArrowException, OSError) as error:
        message = f"{path} at {location} cannot be read: {error}"
        raise LakeTableError(message, object_key=path) from error
