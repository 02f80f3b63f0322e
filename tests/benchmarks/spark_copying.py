"""A copy of a topic to plain Parquet on Spark, and the CPU time of all the processes it takes."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import spark_ds
from tests.benchmarks.copying import copy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.benchmarks.decoding import StoredLedger

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


def has_java() -> bool:
    """Whether Spark finds a Java runtime."""
    return "JAVA_HOME" in os.environ or shutil.which("java") is not None


@contextmanager
def running_session() -> Iterator[SparkSession]:
    """A session on two threads of this machine, as a user would have it."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - takes a second, and most need none

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def copy_on_spark(spark: SparkSession, stored: StoredLedger, folder: str) -> int:
    """Copy a topic to a new table; gives the number of rows."""
    return copy(stored, folder, partial(spark_ds.copy_topics, spark))


def cpu_seconds() -> float:
    """CPU time of this process and of all below it, those that have ended included.

    Of a process that has ended, only a parent that waited for it knows.
    """
    ticks, parents = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # Behind the name, which may have any character: state, parent, and so on.
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        process_id = int(stat.parent.name)
        parents[process_id] = int(fields[1])
        ticks[process_id] = sum(map(int, fields[11:15]))
    ours, found = {os.getpid()}, 0
    while len(ours) > found:
        found = len(ours)
        ours |= {each for each, parent in parents.items() if parent in ours}
    return sum(ticks[each] for each in ours) / _TICKS_PER_SECOND
