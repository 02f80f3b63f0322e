"""Maintenance on a cluster keeps each row once, even if a worker is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from connector import MaintenanceSettings, copy_topics, maintain_table
from connector.tables.table_kinds import open_table
from tests.spark_ds.conftest import QUICK_JVM
from tests.support.lake_copies import COLUMNS, SCHEMA, batch_rows, in_order, write_topic
from tests.support.lake_kinds import read_back
from tests.support.spark_home import link_spark_home

if TYPE_CHECKING:
    from connector.tables.evolution import TableKind

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def _data_files(target: Path) -> set[Path]:
    return {each for each in target.rglob("*.parquet") if each.parent.name != "_delta_log"}


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_worker_that_is_killed(
    kind: TableKind, tmp_path: Path, spark_environment: dict[str, str]
) -> None:
    """Spark repeats its task. The files of the first attempt are in no table, until deleted."""
    url, target = str(tmp_path / "bucket"), tmp_path / "t"
    for first in (0, 20):
        write_topic(url, range(first, first + 20), append=first > 0)
        copied: dict[str, Any] = {"schema": SCHEMA, "partition_by": ["country"]}
        copy_topics(url, "orders", str(target), format=kind, **copied)
    before = _data_files(target)
    mark, result = tmp_path / "killed", tmp_path / "result.json"
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.executor.extraJavaOptions": QUICK_JVM,
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": spark_environment["PYTHONPATH"],
        "spark.ui.enabled": "false",
    }
    argument = {
        "settings": settings,
        "target": str(target),
        "format": kind,
        "mark": str(mark),
        "result": str(result),
    }
    home = link_spark_home(tmp_path / "home")
    program = Path(__file__).with_name("killed_worker_program.py")
    done = subprocess.run(
        [sys.executable, str(program), json.dumps(argument)],
        env={**os.environ, **spark_environment, "SPARK_HOME": str(home)},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]

    assert mark.exists()
    assert json.loads(result.read_text())["merged_files"] == len(before) == 6
    table = open_table(kind, str(target), None, None)
    assert in_order(read_back(table).select(list(COLUMNS))) == batch_rows(url)
    assert len(_data_files(target) - before) == 4, "three files, and that of the attempt"
    at_once = MaintenanceSettings(expire_after=timedelta(), delete_after=timedelta())
    for _ in range(2):
        later = datetime.now(UTC) + timedelta(hours=1)
        maintain_table(str(target), format=kind, settings=at_once, now=later)
    assert len(_data_files(target)) == 3
    assert in_order(read_back(table).select(list(COLUMNS))) == batch_rows(url)
