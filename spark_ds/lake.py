"""Copies to lake tables, and their upkeep: Spark's executors write files, and the driver commits.

Steps, tables and progress are those of `connector.lake`, so either engine can resume a copy of the
other.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from arrow_io.errors import PulsarOffloadError
from connector.lake.copy import copy_topics as copy_with
from connector.lake.maintenance import maintain_table as maintain_with
from spark_ds.executors import run_on_executors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from connector.lake.maintenance import MaintenanceSummary
    from connector.lake.table_copy import TableSummary
    from connector.tables.executors import Work

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


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
    return copy_with(url, topic, target, executor=partial(run_work, spark), **options)


def maintain_table(
    spark: SparkSession,
    target: str,
    **options: Any,  # noqa: ANN401 - those of `connector.maintain_table`
) -> MaintenanceSummary:
    """Maintain a table that copies write; Spark's executors rewrite its files.

    Executors need this package, the table's library, and access to the table. The driver commits.

    Args:
        spark: The session.
        target: URL of the table's folder, or name of an Iceberg table.
        options: Options of `connector.maintain_table`.

    Raises:
        PulsarOffloadError: See `connector.maintain_table`. An error on an executor is raised here
            with the same class.
    """
    return maintain_with(target, executor=partial(run_work, spark), **options)


def run_work(
    spark: SparkSession, work: Work[_Task, _Result], tasks: Sequence[_Task]
) -> Iterator[_Result]:
    """Run tasks on executors, one Spark task each; see `connector.tables.executors`.

    Errors of reads and writes are returned as results, so that the driver knows the files of all
    tasks. If a task fails otherwise, Spark repeats it. The files of the failed attempt are in no
    table.
    """

    def run_one(index: int) -> _Result | PulsarOffloadError:
        return _result_or_error(work, tasks[index])

    failure: PulsarOffloadError | None = None
    results = iter(run_on_executors(spark, run_one, len(tasks)))
    try:
        for result in results:
            if isinstance(result, PulsarOffloadError):
                failure = failure or result
            else:
                yield result
    except GeneratorExit as error:
        for result in results:
            if not isinstance(result, PulsarOffloadError):
                work.discard(result, error)
        raise
    if failure is not None:
        raise failure


def _result_or_error(work: Work[_Task, _Result], task: _Task) -> _Result | PulsarOffloadError:
    try:
        return work(task)
    except PulsarOffloadError as error:
        return error
