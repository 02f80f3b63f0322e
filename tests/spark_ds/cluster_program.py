"""Reads topics on a cluster of two executors, each a process of its own; writes what came of it.

Run by `test_cluster` in an interpreter of its own: one process can have one Spark.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id

import spark_ds
from connector import CopySizes, MaintenanceSettings
from tests.spark_ds.web_interface import read_web_interface

SOURCE: Final = "pulsar_offload"


def main(argument: str) -> None:
    """Run the queries.

    Args:
        argument: JSON object: `settings` of the session, `folder` for what is written, and `rows`,
            `typed`, `damaged` and `left_out`, the options of four reads. The file that is the
            schema of `typed` is deleted once the frame is made. `streamed` has the options of a
            stream, `sink` those of the topics that are written, and `copied` the arguments of
            copies, each with those of the maintenance of its table.
    """
    given = json.loads(argument)
    folder = Path(given["folder"])
    builder = SparkSession.builder.master("local-cluster[2,1,1024]")
    for name, value in given["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        typed = read(spark, given["typed"])
        Path(given["typed"]["schema"]).unlink()
        rows = read(spark, given["rows"])
        for name, frame in (("rows", rows), ("typed", typed)):
            table = frame.withColumn("task", spark_partition_id()).toArrow()
            with pa.ipc.new_file(str(folder / f"{name}.arrow"), table.schema) as writer:
                writer.write_table(table)
        result: dict[str, object] = {}
        try:
            read(spark, given["damaged"]).count()
        except PythonException as error:
            result["error"] = str(error)
        result["left_out"] = read(spark, given["left_out"]).count()
        result["batches"] = write(spark, given, folder)
        pages = read_web_interface(spark.sparkContext.uiWebUrl or "")
        (folder / "pages.json").write_text(json.dumps({k: v.decode() for k, v in pages.items()}))
        (folder / "result.json").write_text(json.dumps(result))
    finally:
        spark.stop()


def write(spark: SparkSession, given: dict[str, Any], folder: Path) -> int:
    """Write a frame and a stream as topics, copy a topic to a table; the batches of the stream."""
    read(spark, given["rows"]).createOrReplaceTempView("rows")
    frame = spark.sql("SELECT __key__, __value__ FROM rows WHERE __topic__ LIKE '%chunked'")
    sink = given["sink"]
    frame.write.format(SOURCE).mode("append").options(**sink, topic="written").save()
    stream = spark.readStream.format(SOURCE).options(**given["streamed"]).load()
    writer = stream.select("__key__", "__value__").writeStream.format(SOURCE)
    options = {**sink, "topic": "streamed", "checkpointLocation": str(folder / "checkpoint")}
    query = writer.options(**options).trigger(availableNow=True).start()
    query.awaitTermination()
    for copied, maintained in given["copied"]:
        spark_ds.copy_topics(spark, **copied, sizes=CopySizes(task_bytes=1))
        spark_ds.maintain_table(spark, **maintained, settings=MaintenanceSettings(min_files=2))
    return sum(each["numInputRows"] > 0 for each in query.recentProgress)


def read(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """A data frame by its options."""
    return spark.read.format(SOURCE).options(**options).load()


if __name__ == "__main__":
    main(sys.argv[1])
