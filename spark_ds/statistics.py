"""Statistics of topics that Spark's executors gather: each reads whole ledgers, and writes files.

What there is to read, and what the files have, is the same as in `Catalog.analyze`. So either
engine continues where the other one stopped.
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
from spark_ds.executors import on_executors

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
"""Who reads statistics asks each file, and each task writes one at least."""
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
    """Read what statistics do not know yet of some topics, on Spark's executors; they write it.

    They need this package, and access to both the topics and the folder. Several runs may write at
    once. A task that Spark repeats writes the same again, which changes nothing.

    Args:
        spark: The session.
        url: Where the topics are, as in `open_catalog`.
        topics: Short or full names, or globs.
        statistics: Folder or URL of the statistics, reached by the options of the topics; it need
            not be there.
        catalog: What `open_catalog` gave for the URL, to spare the requests.
        task_bytes: About how many bytes of data objects a Spark task should read; a ledger is never
            cut. None: by how many there are to read.
        progress: Called for each ledger that was read, once all tasks have ended.
        options: Options of `open_catalog`, such as `storage_options` and `metadata`.

    Returns:
        What was read; see `Catalog.analyze`.

    Raises:
        PulsarOffloadError: See `Catalog.analyze`. An error on an executor is raised here with the
            same class; what all others read is written.
    """
    check_with_catalog(url, TopicRequest(catalog=catalog, **options))
    if catalog is None:
        catalog = open_catalog(url, **options)
    executor = partial(_in_executors, spark, task_bytes=task_bytes)
    return catalog.analyze(statistics, topics, progress=progress, executor=executor)


def _in_executors(
    spark: SparkSession,
    statistics: Statistics,
    ledgers: Sequence[tuple[str, Ledger]],
    progress: Callable[[Analyzed], None],
    explaining: Explaining,
    *,
    task_bytes: int | None,
) -> None:
    """Analyze ledgers, a share of them in each Spark task."""
    if task_bytes is None:
        total_bytes = sum(ledger.stored_bytes for _, ledger in ledgers)
        task_bytes = min(max(total_bytes // _TARGET_TASKS, _MIN_TASK_BYTES), _MAX_TASK_BYTES)
    shares = _shares(ledgers, task_bytes)
    # Tasks ask nothing of the files that are there.
    folder = replace(statistics, files=(), problems=())
    failure: PulsarOffloadError | None = None
    for analyzed, error in on_executors(
        spark, lambda number: _analyze_share(folder, shares[number], explaining), len(shares)
    ):
        for each in analyzed:
            progress(each)
        failure = failure or error
    if failure is not None:
        raise failure


def _shares(
    ledgers: Sequence[tuple[str, Ledger]], task_bytes: int
) -> list[list[tuple[str, Ledger]]]:
    """Ledgers that follow each other, about so many bytes together; the largest share first.

    So a file has few topics, and whoever reads one topic few files.
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
    """What became of the ledgers of a task, and the error that ended it before the last of them."""
    analyzed: list[Analyzed] = []
    try:
        # Spark has other tasks for the other cores.
        analyze_here(folder, share, analyzed.append, explaining, threads=1)
    except PulsarOffloadError as error:
        return analyzed, error
    return analyzed, None
