"""A program that streams files into a topic, and is killed with all of its processes on the way.

Arguments: a folder, and the step at which it is killed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark_ds.conftest import QUICK_JVM
from tests.spark_ds.failing_source import FailingSource


def main() -> None:
    """Make the rows that are streamed, and stream them."""
    folder, step = Path(sys.argv[1]), sys.argv[2]
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", QUICK_JVM)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.dataSource.register(FailingSource)
    source = str(folder / "source")
    rows = session.range(0, 10, 1, 2)
    rows.selectExpr("CAST(id AS STRING) AS __value__").write.parquet(source)
    stream = session.readStream.schema("__value__ STRING").parquet(source)
    # The group of this program and of its JVM, without which the workers end too.
    failing = {"failAt": step, "killed": str(os.getpgid(0)), "topic": "orders"}
    writer = stream.writeStream.format("failing").options(**failing)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start(str(folder / "bucket")).awaitTermination()


main()
