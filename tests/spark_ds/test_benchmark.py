"""The benchmark of a copy on Spark; run untimed, on few messages."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.benchmarks.__main__ import measure_spark_copy
from tests.benchmarks.spark_copying import cpu_seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]
MESSAGES = 2000


def test_measure_copies_each_message(spark: SparkSession) -> None:
    """All messages are copied.

    Times are not looked at: a process of an earlier test that ends meanwhile takes its own along.
    """
    row = measure_spark_copy(spark, messages=MESSAGES, rounds=1)

    assert row.rows == MESSAGES


def test_the_cpu_time_of_all_processes_counts() -> None:
    """Of processes that end meanwhile, and of those that they start, too."""
    before = cpu_seconds()
    inner = "import time\nwhile time.process_time() < 0.3: pass"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"

    subprocess.run([sys.executable, "-c", outer], check=True)

    assert cpu_seconds() - before >= 0.28
