"""Copies of topics to lake tables: Spark's executors write the files, and the driver commits them.

Steps, tables and progress are those of `connector.lake`, so either engine can resume a copy of the
other.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from arrow_io.errors import PulsarOffloadError
from connector.lake.copy import copy_topics as copy_with
from connector.scan.topic_read import task_of
from spark_ds.executors import run_on_executors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from connector.lake.table_copy import TableSummary
    from connector.lake.task_writer import TaskWriter, WrittenTask
    from connector.scan.topic_read import ScanTask


def copy_topics(
    spark: SparkSession,
    url: str,
    topic: str | Sequence[str],
    target: str,
    **options: Any,  # noqa: ANN401 - those of `connector.copy_topics`
) -> list[TableSummary]:
    """Copy new messages of topics to lake tables, on Spark's executors.

    Executors need this package, and access to the topics and the table. The driver needs the
    table's library.

    Args:
        spark: The session.
        url: Location of the topics, as in `connector.open_topic`.
        topic: The topics.
        target: URL of the table's folder, or name of an Iceberg table.
        options: Options of `connector.copy_topics`.

    Returns:
        A summary per table.

    Raises:
        PulsarOffloadError: See `connector.copy_topics`. An error on an executor is raised here with
            the same class.
    """
    return copy_with(url, topic, target, executor=partial(write_on_executors, spark), **options)


def write_on_executors(
    spark: SparkSession, write: TaskWriter, tasks: Sequence[ScanTask]
) -> Iterator[WrittenTask]:
    """Run tasks on executors, one Spark task each; see `connector.lake.executors`.

    Errors of reads and writes are returned as results, so that the driver knows the files of all
    tasks. If a task fails otherwise, Spark repeats it. The files of the failed attempt are in no
    table.
    """
    reads = list({id(each.read): each.read for each in tasks}.values())
    numbers = {id(read): number for number, read in enumerate(reads)}
    parts = [(numbers[id(each.read)], each.handle()) for each in tasks]

    def write_one(index: int) -> WrittenTask | PulsarOffloadError:
        number, handle = parts[index]
        return _write_or_error(write, task_of([reads[number]], handle))

    failure: PulsarOffloadError | None = None
    for result in run_on_executors(spark, write_one, len(parts)):
        if isinstance(result, PulsarOffloadError):
            failure = failure or result
        else:
            yield result
    if failure is not None:
        raise failure


def _write_or_error(write: TaskWriter, task: ScanTask) -> WrittenTask | PulsarOffloadError:
    try:
        return write(task)
    except PulsarOffloadError as error:
        return error
