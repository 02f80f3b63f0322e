"""Statistics of topics, gathered by Spark's executors: each reads whole ledgers and writes files.

The ledgers and files are the same as those of `Catalog.analyze`, so either engine can resume the
other's work.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from arrow_io.errors import PulsarOffloadError
from connector.catalog.opening import open_catalog
from connector.options.option import takes_options
from connector.options.topic_request import OPTIONS, TopicRequest, check_with_catalog
from connector.statistics.analysis import analyze as analyze_here
from spark_ds.executors import run_on_executors

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from arrow_io.ledgers.ledger import Ledger
    from connector.catalog.catalog import Catalog
    from connector.statistics.analysis import Analyzed
    from connector.statistics.store import Statistics
    from connector.statistics.whole_ledgers import Explaining

_MIN_TASK_BYTES: Final = 256 << 20
"""Minimum size of a task. Each writes at least one file, and readers of statistics request each
file."""
_MAX_TASK_BYTES: Final = 16 << 30
_TARGET_TASKS: Final = 64


@takes_options(OPTIONS)
def analyze(
    spark: SparkSession,
    url: str,
    topics: str | Sequence[str] = "*",
    *,
    statistics: str | os.PathLike[str],
    catalog: Catalog | None = None,
    task_bytes: int | None = None,
    progress: Callable[[Analyzed], None] = lambda _: None,
    **options: Any,  # noqa: ANN401 - those of `open_catalog`
) -> list[Analyzed]:
    """Gather missing statistics of topics on Spark's executors.

    Executors need this package, and access to the topics and the folder. Several runs may write at
    the same time. A task that Spark repeats writes the same statistics again, which does no harm.

    Args:
        spark: The session.
        url: Location of the topics, as in `open_catalog`.
        topics: Short or full names, or globs.
        statistics: Folder or URL of the statistics, with the topics' storage options. It need not
            exist.
        catalog: Result of `open_catalog` for the URL, to save its requests.
        task_bytes: Bytes of data objects that a Spark task should read, approximately; ledgers are
            not split. None: by the total size.
        progress: Called for each ledger that was read, after all tasks have ended.
        options: Options of `open_catalog`, such as `storage_options` and `metadata`.

    Returns:
        The ledgers that were read; see `Catalog.analyze`.

    Raises:
        PulsarOffloadError: See `Catalog.analyze`. An error on an executor is raised here with the
            same class, after the statistics of all other tasks are written.
    """
    check_with_catalog(url, TopicRequest(catalog=catalog, **options))
    if catalog is None:
        catalog = open_catalog(url, **options)
    executor = partial(_analyze_on_executors, spark, task_bytes=task_bytes)
    return catalog.analyze(statistics, topics, progress=progress, executor=executor)


def _analyze_on_executors(
    spark: SparkSession,
    statistics: Statistics,
    ledgers: Sequence[tuple[str, Ledger]],
    progress: Callable[[Analyzed], None],
    explaining: Explaining,
    *,
    task_bytes: int | None,
) -> None:
    """Analyze a share of the ledgers in each Spark task."""
    if task_bytes is None:
        total_bytes = sum(ledger.stored_bytes for _, ledger in ledgers)
        task_bytes = min(max(total_bytes // _TARGET_TASKS, _MIN_TASK_BYTES), _MAX_TASK_BYTES)
    shares = _split_ledgers(ledgers, task_bytes)
    # Tasks do not need the existing files.
    folder = replace(statistics, files=(), problems=())
    failure: PulsarOffloadError | None = None
    for analyzed, error in run_on_executors(
        spark, lambda number: _analyze_share(folder, shares[number], explaining), len(shares)
    ):
        for each in analyzed:
            progress(each)
        failure = failure or error
    if failure is not None:
        raise failure


def _split_ledgers(
    ledgers: Sequence[tuple[str, Ledger]], task_bytes: int
) -> list[list[tuple[str, Ledger]]]:
    """Split consecutive ledgers into shares of about `task_bytes`; return the largest first.

    Each file then has few topics, and a reader of one topic needs few files.
    """
    shares: list[list[tuple[str, Ledger]]] = []
    sizes: list[int] = []
    for topic, ledger in ledgers:
        if not shares or sizes[-1] + ledger.stored_bytes > task_bytes:
            shares.append([])
            sizes.append(0)
        shares[-1].append((topic, ledger))
        sizes[-1] += ledger.stored_bytes
    order = sorted(range(len(shares)), key=lambda number: -sizes[number])
    return [shares[number] for number in order]


def _analyze_share(
    folder: Statistics, share: Sequence[tuple[str, Ledger]], explaining: Explaining
) -> tuple[list[Analyzed], PulsarOffloadError | None]:
    """Return the analyzed ledgers of a task, and the error that ended it early, if any."""
    analyzed: list[Analyzed] = []
    try:
        # Spark uses the other cores for other tasks.
        analyze_here(folder, share, analyzed.append, explaining, threads=1)
    except PulsarOffloadError as error:
        return analyzed, error
    return analyzed, None
