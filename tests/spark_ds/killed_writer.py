"""A program that streams files into a topic, and is killed with all of its processes on the way.

Arguments: a folder, the number of the run, and the step at which it is killed (none: it ends).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark_ds.conftest import QUICK_JVM
from tests.spark_ds.failing_source import FailingSource


def main() -> None:
    """Add some rows to what is streamed, and stream."""
    folder, number, step = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
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
    rows = session.range(10 * number, 10 * number + 10, 1, 2)
    source = str(folder / "source")
    rows.selectExpr("CAST(id AS STRING) AS __value__").write.mode("append").parquet(source)
    stream = session.readStream.schema("__value__ STRING").parquet(source)
    writer = stream.writeStream.format("failing" if step else "pulsar_offload")
    if not step:
        from spark_ds.datasource import PulsarOffloadDataSource  # noqa: PLC0415

        session.dataSource.register(PulsarOffloadDataSource)
    else:
        # The group of this program and of its JVM, without which the workers end too.
        writer = writer.option("failAt", step).option("killed", str(os.getpgid(0)))
    writer = writer.option("topic", "orders")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(folder / "bucket"))
    query.awaitTermination()
    session.stop()


main()
