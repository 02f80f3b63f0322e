"""Streams a topic into a folder, and ends a process by SIGKILL at a chosen step of it.

`test_stream_killed` streams so in the session of the tests, where a planner or a worker ends. It
also runs this module in an interpreter of its own, where the driver ends with all others.
"""

from __future__ import annotations

import json
import os
import signal
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, SparkSession

from spark_ds.datasource import PulsarOffloadDataSource
from spark_ds.stream_reader import TopicStreamReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

    from spark_ds.stream_source import StreamSource

OFFSETS_WRITTEN: Final = "offsets are written"
READING: Final = "a task reads"
SINK_WRITTEN: Final = "the sink has the batch"
COMMITTED: Final = "the batch is committed"


@dataclass(frozen=True)
class Kill:
    """Which processes end, once, and when.

    Attributes:
        step: The step at which they end.
        mark: Path of the file that tells that they did.
        group: The process group that ends; None: the process that takes the step, and it alone.
        fails: Whether the step fails with an error instead, and no process ends.
    """

    step: str
    mark: str
    group: int | None = None
    fails: bool = False

    def reach(self, step: str) -> None:
        """End the processes, if this is the step; Spark's workers have groups of their own."""
        mark = Path(self.mark)
        if step != self.step or mark.exists():
            return
        mark.touch()
        if self.fails:
            raise RuntimeError(step)
        if self.group is not None:
            os.killpg(self.group, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


class KilledReader(TopicStreamReader):
    """Ends at a step of the planner or of a task."""

    def __init__(self, open_source: Callable[[], StreamSource], kills: Sequence[Kill]) -> None:
        super().__init__(open_source)
        self._kills = kills

    def __reduce__(self) -> tuple[object, ...]:
        """Tasks are ended too."""
        made, given = super().__reduce__()
        assert isinstance(given, tuple)
        return made, (*given, self._kills)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Called once Spark has written the offsets down."""
        planned = super().partitions(start, end)
        _reach(self._kills, OFFSETS_WRITTEN)
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Called in a task; the first batch of rows is on its way to Spark."""
        for batch in super().read(partition):
            yield batch
            _reach(self._kills, READING)

    def commit(self, end: dict[str, Any]) -> None:
        """Called when the batch before stands in the commit log."""
        super().commit(end)
        _reach(self._kills, COMMITTED)


class KilledSource(PulsarOffloadDataSource):
    """The source, with such a reader; its option `kills` is the JSON of a list of `Kill`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__({name: each for name, each in options.items() if name != "kills"})
        self._kills = [Kill(**each) for each in json.loads(options["kills"])]

    @classmethod
    def name(cls) -> str:
        """Another name than that of the source itself."""
        return "killed_source"

    def streamReader(self, schema: StructType) -> TopicStreamReader:  # noqa: N802
        """The reader."""
        return KilledReader(partial(self._stream_source, schema), self._kills)


def _reach(kills: Sequence[Kill], step: str) -> None:
    for kill in kills:
        kill.reach(step)


def _keep(batch: DataFrame, batch_id: int, folder: str, kills: Sequence[Kill]) -> None:
    """Write a batch, in the place of an earlier try of it."""
    batch.write.mode("overwrite").parquet(f"{folder}/rows/batch={batch_id}")
    _reach(kills, SINK_WRITTEN)


def stream(
    spark: SparkSession, folder: str, options: Mapping[str, str], kills: Sequence[Kill]
) -> StreamingQuery:
    """Start to read all there is.

    Args:
        spark: The session.
        folder: Where rows and checkpoint are.
        options: Those of the stream.
        kills: Which processes end.
    """
    spark.dataSource.register(KilledSource)
    options = {**options, "kills": json.dumps([asdict(kill) for kill in kills])}
    frame = spark.readStream.format("killed_source").options(**options).load()
    return (
        frame.writeStream.foreachBatch(partial(_keep, folder=folder, kills=kills))
        .option("checkpointLocation", f"{folder}/at")
        .trigger(availableNow=True)
        .start()
    )


def main(argument: str) -> None:
    """Read all there is in a session of its own, which tries each task three times.

    Args:
        argument: JSON object: `settings` of the session, `folder` and `options` of the stream, and
            `kills`, which tells of steps whether the driver ends there, and not a worker alone.
    """
    given = json.loads(argument)
    builder = SparkSession.builder.master("local[2,3]")
    for name, value in given["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    folder, group = given["folder"], os.getpgid(0)
    kills = [
        Kill(step, f"{folder}/{step} there", group if with_driver else None)
        for step, with_driver in given["kills"].items()
    ]
    stream(spark, folder, given["options"], kills).awaitTermination()
    spark.stop()
