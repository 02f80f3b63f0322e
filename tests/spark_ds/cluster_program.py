"""Reads topics on a cluster of two executors, each a process of its own; writes what came of it.

Run by `test_cluster` in an interpreter of its own: one process can have one Spark.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id


def main(argument: str) -> None:
    """Run the queries.

    Args:
        argument: JSON object: `settings` of the session, `folder` for what is written, and `rows`,
            `typed`, `damaged` and `left_out`, the options of four reads. The file that is the
            schema of `typed` is deleted once the frame is made.
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
        (folder / "result.json").write_text(json.dumps(result))
    finally:
        spark.stop()


def read(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """A data frame by its options."""
    return spark.read.format("pulsar_offload").options(**options).load()


if __name__ == "__main__":
    main(sys.argv[1])
