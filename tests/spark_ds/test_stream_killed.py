"""A stream that is killed at any step, and started again, gives each row once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

from tests.spark_ds.conftest import QUICK_JVM
from tests.spark_ds.golden_rows import COLUMNS, golden_rows, table_rows
from tests.spark_ds.stream_program import (
    COMMITTED,
    OFFSETS_WRITTEN,
    READING,
    SINK_WRITTEN,
    Kill,
    stream,
)
from tests.support.golden import golden_topic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.golden import GoldenLedger

pytestmark = pytest.mark.spark

TOPIC = golden_topic("small-transactions")
PROGRAM = "import sys; from tests.spark_ds.stream_program import main; main(sys.argv[1])"
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
TIMEOUT_SECONDS = 240
_STEPS = {OFFSETS_WRITTEN: 2, READING: 1, SINK_WRITTEN: 1, COMMITTED: 2}
"""How many ledgers come before a process is killed at each step."""


def _run(
    folder: Path, kills: dict[str, bool], environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run the program in a process group of its own; the driver or a worker ends at some steps."""
    argument = {
        "folder": str(folder),
        "settings": SETTINGS,
        "options": _options(folder),
        "kills": kills,
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(argument)],
        env=os.environ | environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
        start_new_session=True,
    )
    assert all((folder / f"{step} there").exists() for step in kills), done.stdout[-4000:]
    return done


def _options(folder: Path) -> dict[str, str]:
    return {
        "url": str(folder / "bucket"),
        "topic": TOPIC.name,
        "columns": ",".join(COLUMNS),
        "maxLedgersPerTrigger": "2",
    }


def _give(bucket: Path, ledgers: Iterator[GoldenLedger], count: int | None = None) -> None:
    """Let so many more ledgers be in the bucket; None: all that are left."""
    for ledger in islice(ledgers, count):
        shutil.copy(ledger.data_object, bucket)
        shutil.copy(ledger.index_object, bucket)


def _check_rows(folder: Path) -> None:
    table = pq.read_table(folder / "rows", partitioning=None)
    assert table_rows(table) == golden_rows([TOPIC])


def test_each_row_once_whatever_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    """Planner and worker are killed, each at steps of its own, while ledgers come.

    In this process, which is the driver, the batch fails once the sink has it.
    """
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    coming = iter(TOPIC.ledgers)

    for step, count in _STEPS.items():
        _give(bucket, coming, count)
        kill = Kill(step, str(tmp_path / step), fails=step == SINK_WRITTEN)
        query = stream(spark, str(tmp_path), _options(tmp_path), [kill])
        with pytest.raises(StreamingQueryException):
            query.awaitTermination(TIMEOUT_SECONDS)
        assert (tmp_path / step).exists()
    _give(bucket, coming)
    query = stream(spark, str(tmp_path), _options(tmp_path), [])
    assert query.awaitTermination(TIMEOUT_SECONDS)
    _check_rows(tmp_path)


@pytest.mark.exhaustive
def test_each_row_once_if_the_driver_is_killed_at_every_step(
    spark_environment: dict[str, str], tmp_path: Path
) -> None:
    """With all of its processes, each time in a session of its own."""
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    coming = iter(TOPIC.ledgers)
    for step, count in _STEPS.items():
        _give(bucket, coming, count)
        done = _run(tmp_path, {step: True}, spark_environment)
        assert done.returncode == -signal.SIGKILL, done.stdout[-4000:]
    _give(bucket, coming)
    done = _run(tmp_path, {}, spark_environment)
    assert done.returncode == 0, done.stdout[-4000:]
    _check_rows(tmp_path)
