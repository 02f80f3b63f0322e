"""The source, whose tasks record how much memory their process has taken."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_ds.datasource import PulsarOffloadDataSource
from tests.benchmarks.memory import memory_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType


class MeasuredReader(DataSourceReader):
    """Reads as the reader does that it is made with.

    After each task, the file of the process has the bytes that it needed before the first row, and
    the most that it ever had.
    """

    def __init__(self, reader: DataSourceReader, folder: str) -> None:
        self._reader, self._folder = reader, folder

    def partitions(self) -> Sequence[InputPartition]:
        """Return those of the reader."""
        return self._reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the reader."""
        before = memory_bytes("VmRSS")
        file = Path(self._folder) / str(os.getpid())
        first = file.read_text().split()[0] if file.exists() else before
        yield from self._reader.read(partition)
        file.write_text(f"{first} {memory_bytes('VmHWM')}")


class MeasuredSource(PulsarOffloadDataSource):
    """The source, with such a reader; its option `folder` has the files of the processes."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__({name: each for name, each in options.items() if name != "folder"})
        self._folder = options["folder"]

    @classmethod
    def name(cls) -> str:
        """Another name than that of the source itself."""
        return "measured_source"

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader."""
        return MeasuredReader(super().reader(schema), self._folder)
