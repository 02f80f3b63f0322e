"""Streams a topic into a folder; ends itself, and its whole process group, at a chosen step.

Run by `test_stream_killed` in an interpreter of its own, by its name: workers import it too, so the
step and the group stand in the environment.
"""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, SparkSession

from spark_ds.datasource import PulsarOffloadDataSource
from spark_ds.stream_reader import TopicStreamReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

OFFSETS_WRITTEN: Final = "offsets are written"
READING: Final = "a task reads"
WORKER: Final = "a task reads, and only its worker ends"
SINK_WRITTEN: Final = "the sink has the batch"
COMMITTED: Final = "the batch is committed"

_STEP: Final = "KILLED_AT"
_GROUP: Final = "KILLED_GROUP"
_MARK: Final = "KILLED_MARK"


def kill_at(step: str) -> None:
    """End all processes, if this is the step; Spark's workers have groups of their own."""
    if os.environ.get(_STEP) != step:
        return
    mark = Path(os.environ[_MARK])
    if mark.exists():
        return
    mark.touch()
    if step != WORKER:
        os.killpg(int(os.environ[_GROUP]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class KilledReader(TopicStreamReader):
    """Ends at a step of the planner or of a task."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Called once Spark has written the offsets down."""
        planned = super().partitions(start, end)
        kill_at(OFFSETS_WRITTEN)
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Called in a task; the first batch of rows is on its way to Spark."""
        for batch in super().read(partition):
            yield batch
            kill_at(READING)
            kill_at(WORKER)

    def commit(self, end: dict[str, Any]) -> None:
        """Called when the batch before stands in the commit log."""
        super().commit(end)
        kill_at(COMMITTED)


class KilledSource(PulsarOffloadDataSource):
    """The source, with such a reader."""

    @classmethod
    def name(cls) -> str:
        """Another name than that of the source itself."""
        return "killed_source"

    def streamReader(self, schema: StructType) -> TopicStreamReader:  # noqa: N802
        """The reader."""
        return KilledReader(partial(self._stream_source, schema))


def keep(batch: DataFrame, batch_id: int, folder: str) -> None:
    """Write a batch, in the place of an earlier try of it."""
    batch.write.mode("overwrite").parquet(f"{folder}/rows/batch={batch_id}")
    kill_at(SINK_WRITTEN)


def main(argument: str) -> None:
    """Read all there is, in batches of two ledgers.

    Args:
        argument: JSON object: `settings` of the session, `folder` for what is written, and the
            `options` of the stream.
    """
    given = json.loads(argument)
    folder = given["folder"]
    os.environ[_GROUP] = str(os.getpgid(0))
    builder = SparkSession.builder.master("local[2,3]")
    for name, value in given["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(KilledSource)
    frame = spark.readStream.format("killed_source").options(**given["options"]).load()
    query = (
        frame.writeStream.foreachBatch(partial(keep, folder=folder))
        .option("checkpointLocation", f"{folder}/at")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()
