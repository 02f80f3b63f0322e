"""A client of Spark Connect: reads, writes, streams and copies topics on a server that exists.

Run by `test_connect` in an interpreter of its own: a process with a classic session has no other.
"""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE: Final = "pulsar_offload"
PACKAGES: Final = ("arrow_io", "connector", "pyspark_pulsar_offload", "spark_ds")


def main(argument: str) -> None:
    """Run one client.

    Args:
        argument: JSON object: `url` of the server, `folder` for what is written, the settings
            `conf` of the session, and the options of reads `rows` and `damaged`, of the `sink`, and
            the arguments of the copies `copied` and `refused`. Without the last two, the client
            cannot import this project.
    """
    given = json.loads(argument)
    folder = Path(given["folder"])
    has_package = "copied" in given
    if not has_package:
        sys.modules.update(dict.fromkeys(PACKAGES))  # type: ignore[arg-type]
    spark = SparkSession.builder.remote(given["url"]).getOrCreate()
    for name, value in given["conf"].items():
        spark.conf.set(name, value)
    errors: dict[str, list[str]] = {}
    if has_package:
        run_with_package(spark, given, errors)
    else:
        run_without_package(spark, given, folder, errors)
    (folder / "errors.json").write_text(json.dumps(errors))
    spark.stop()


def run_without_package(
    spark: SparkSession, given: dict[str, Any], folder: Path, errors: dict[str, list[str]]
) -> None:
    """Read, write and stream, and collect what fails."""
    frame = spark.read.format(SOURCE).options(**given["rows"]).load()
    table = frame.toArrow()
    with pa.ipc.new_file(str(folder / "rows.arrow"), table.schema) as writer:
        writer.write_table(table)
    frame.createOrReplaceTempView("topic")
    spark.sql("SELECT __key__, __value__ FROM topic").write.format(SOURCE).mode("append").options(
        **given["sink"], topic="written"
    ).save()
    stream(spark, given, folder / "checkpoint", given["rows"])
    with expected_error(errors, "plan"):
        spark.read.format(SOURCE).options(**given["rows"], topik="x").load().count()
    with expected_error(errors, "task"):
        spark.read.format(SOURCE).options(**given["damaged"]).load().count()
    with expected_error(errors, "stream"):
        stream(spark, given, folder / "failing", given["damaged"])


def stream(
    spark: SparkSession, given: dict[str, Any], checkpoint: Path, options: dict[str, str]
) -> None:
    """Stream all messages of a topic to another one."""
    rows = spark.readStream.format(SOURCE).options(**options).load()
    writer = rows.select("__key__", "__value__").writeStream.format(SOURCE)
    sink = {**given["sink"], "topic": "streamed", "checkpointLocation": str(checkpoint)}
    writer.options(**sink).trigger(availableNow=True).start().awaitTermination()


def run_with_package(
    spark: SparkSession, given: dict[str, Any], errors: dict[str, list[str]]
) -> None:
    """Register the source from here, and copy on the server's executors."""
    import spark_ds  # noqa: PLC0415 - the other client cannot
    from spark_ds.datasource import PulsarOffloadDataSource  # noqa: PLC0415

    spark.dataSource.register(PulsarOffloadDataSource)
    rows = spark.read.format(SOURCE).options(**given["rows"]).load().count()
    [copied] = spark_ds.copy_topics(spark, **given["copied"])
    assert copied.rows == rows
    with expected_error(errors, "copy"):
        spark_ds.copy_topics(spark, **given["refused"])


@contextmanager
def expected_error(errors: dict[str, list[str]], name: str) -> Iterator[None]:
    """Record the class and the text of an error that the block must raise."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the test looks at it
        errors[name] = [type(error).__name__, str(error)]
    else:
        message = f"{name} did not fail"
        raise AssertionError(message)


if __name__ == "__main__":
    main(sys.argv[1])
