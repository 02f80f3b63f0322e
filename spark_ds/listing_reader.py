"""Listings in Spark: the driver builds the table, and partitions contain its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

_PARTITION_ROWS: Final = 10_000


class ListingReader(DataSourceReader):
    """A reader of a table that was built with the data frame."""

    def __init__(self, table: pa.Table) -> None:
        self._batches = table.to_batches(max_chunksize=_PARTITION_ROWS)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle an empty reader, which only reads: Spark sends the reader with each task."""
        return (type(self).__new__, (type(self),))

    def partitions(self) -> Sequence[InputPartition]:
        """Return partitions of at most 10,000 rows."""
        return [InputPartition(batch) for batch in self._batches]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition. Called on executors.

        If there are no partitions, Spark creates one without a value.
        """
        if partition.value is not None:
            yield partition.value
