"""A Parquet file of a table → its rows."""

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
    """The rows of a file, in their order there. The file is held in memory, the rows are not.

    Args:
        location: The table's folder.
        path: Of the file, below it.
        size_bytes: Length of the file.
        columns: Which columns; None: all.

    Raises:
        LakeTableError: It is no sound Parquet file.
        PulsarOffloadError: It cannot be read.
    """
    data = location.read_object(path, max_bytes=size_bytes).data
    try:
        # Other writers have times in 96 bits.
        source = pa.BufferReader(data)
        with pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as file:
            yield from file.iter_batches(columns=None if columns is None else list(columns))
    except (pa.ArrowException, OSError) as error:
        message = f"{path} at {location} cannot be read: {error}"
        raise LakeTableError(message, object_key=path) from error
