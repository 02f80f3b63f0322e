"""`python -m tests.benchmarks.cluster_copying`: what a copy on a Spark cluster costs.

A local cluster of two executors with one core each copies a topic of JSON to plain Parquet. One
process copies the same topic with one thread. The efficiency is the time of that process, divided
by twice the time of the cluster: 100 % means that two executors are twice as fast as one thread.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from connector import CopySizes, copy_topics
from spark_ds.lake import run_work
from tests.benchmarks.copy_speeds import schema_option
from tests.benchmarks.decoding import store_alike
from tests.benchmarks.memory import memory_bytes
from tests.benchmarks.spark_copying import cpu_seconds
from tests.support.benchmark_ledgers import JSON_LZ4
from tests.support.executors import run_here
from tests.support.spark_home import link_spark_home

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from connector.tables.executors import Executor, Work
    from tests.benchmarks.decoding import StoredLedger

    _Task = TypeVar("_Task")
    _Result = TypeVar("_Result")

EXECUTORS: Final = 2
MESSAGES: Final = 5_000_000
LEDGERS: Final = 20
TASK_BYTES: Final = 48 << 20
"""Tasks of 5 M messages: 12, so that neither executor waits for the other's last one for long."""
_REPOSITORY: Final = Path(__file__).parents[2]


@dataclass(frozen=True)
class Cost:
    """What one step took, in seconds."""

    time: float
    cpu: float


@dataclass(frozen=True)
class ClusterCopy:
    """The measured copies.

    Attributes:
        rows: Rows of each copy.
        alone: The copy by one thread of one process.
        start: The start of the session.
        first: The first copy in the session.
        warm: The fastest later one.
        worker_bytes: The most memory that a Python worker of Spark had.
    """

    rows: int
    alone: Cost
    start: Cost
    first: Cost
    warm: Cost
    worker_bytes: int

    def efficiency(self, *, with_start: bool) -> float:
        """The share of two executors' time in which one thread would do the same."""
        spark = self.start.time + self.first.time if with_start else self.warm.time
        return self.alone.time / (EXECUTORS * spark)


@dataclass(frozen=True)
class MeasuredWork:
    """Work after which the file of the process has the most memory that it ever had."""

    work: Work[Any, Any]
    folder: str

    def __call__(self, task: Any) -> Any:  # noqa: ANN401 - those of the work
        """Run a task."""
        result = self.work(task)
        Path(self.folder, str(os.getpid())).write_text(str(memory_bytes("VmHWM")), "utf-8")
        return result

    def discard(self, result: Any, error: BaseException) -> None:  # noqa: ANN401 - as above
        """Delete the files of a task."""
        self.work.discard(result, error)


def measure_cluster_copy(folder: Path, *, messages: int, ledgers: int, rounds: int) -> ClusterCopy:
    """Measure a copy by one thread, and copies by a cluster that is started for it.

    Args:
        folder: A local folder.
        messages: Messages of the topic.
        ledgers: How many alike ledgers it has.
        rounds: How often each is done, except for the start and the first copy.
    """
    stored = store_alike(JSON_LZ4, str(folder / "topic"), messages // ledgers, ledgers)
    memory = folder / "memory"
    memory.mkdir()
    alone = _best(partial(_copy, stored, folder, run_here), rounds)
    began = _now()
    spark = _start_session(folder)
    try:
        start = _since(began)

        def on_spark(work: Work[_Task, _Result], tasks: Sequence[_Task], /) -> Iterator[_Result]:
            return run_work(spark, MeasuredWork(work, str(memory)), tasks)

        copy = partial(_copy, stored, folder, on_spark)
        first = _best(copy, 1)
        warm = _best(copy, rounds)
    finally:
        spark.stop()
    peak = max(int(each.read_text("utf-8")) for each in memory.iterdir())
    return ClusterCopy(stored.messages, alone, start, first, warm, peak)


def lines(row: ClusterCopy) -> list[str]:
    """What is printed."""
    steps = {
        "one thread of one process": row.alone,
        "start of the session": row.start,
        "first copy on two executors": row.first,
        "later copy on two executors": row.warm,
    }
    return [
        f"{row.rows:,} messages of JSON to plain Parquet",
        *(f"{name}: {each.time:.2f} s, {each.cpu:.2f} s of CPU" for name, each in steps.items()),
        f"efficiency: {row.efficiency(with_start=False):.0%}",
        f"efficiency with the start and the first copy: {row.efficiency(with_start=True):.0%}",
        f"CPU time of one thread, of that of Spark: {row.alone.cpu / row.warm.cpu:.0%}",
        f"peak memory of a Python worker: {row.worker_bytes / 1e6:.0f} MB",
    ]


def _copy(stored: StoredLedger, folder: Path, executor: Executor) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as target:
        [summary] = copy_topics(
            stored.url,
            stored.topic,
            f"{target}/t",
            format="parquet",
            executor=executor,
            sizes=CopySizes(task_bytes=TASK_BYTES),
            **schema_option(stored),
        )
    assert summary.rows == stored.messages


def _start_session(folder: Path) -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - takes a second

    os.environ["SPARK_HOME"] = str(link_spark_home(folder / "home"))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = (
        SparkSession.builder.master(f"local-cluster[{EXECUTORS},1,1024]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.executorEnv.PYTHONPATH", str(_REPOSITORY))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    # Executors register later than the session is there.
    session.range(0, EXECUTORS, 1, EXECUTORS).count()
    return session


def _now() -> Cost:
    return Cost(time.perf_counter(), cpu_seconds())


def _since(began: Cost) -> Cost:
    now = _now()
    return Cost(now.time - began.time, now.cpu - began.cpu)


def _best(action: partial[None], rounds: int) -> Cost:
    def once() -> Cost:
        began = _now()
        action()
        return _since(began)

    return min((once() for _ in range(rounds)), key=lambda each: each.time)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.cluster_copying")
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--rounds", type=int, default=5, help="rounds; the least time counts")
    given = parser.parse_args()
    folder = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - files in memory
    with tempfile.TemporaryDirectory(dir=folder) as name:
        row = measure_cluster_copy(
            Path(name), messages=given.messages, ledgers=LEDGERS, rounds=given.rounds
        )
    print("\n".join(lines(row)))  # noqa: T201


if __name__ == "__main__":
    main()
