"""A listing in Spark: the table is made on the driver, and partitions carry its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

_PARTITION_ROWS: Final = 10_000


class ListingReader(DataSourceReader):
    """Reads a table that was made together with the data frame.

    Args:
        table: The table.
    """

    def __init__(self, table: pa.Table) -> None:
        self._batches = table.to_batches(max_chunksize=_PARTITION_ROWS)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled as one that can only read: Spark sends the reader along with each task."""
        return (type(self).__new__, (type(self),))

    def partitions(self) -> Sequence[InputPartition]:
        """Some thousands of rows each."""
        return [InputPartition(batch) for batch in self._batches]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition; called on executors.

        Args:
            partition: One of `partitions`; or one without a value, which Spark makes up if there
                are none.
        """
        if partition.value is not None:
            yield partition.value
