"""The declarative pipeline of `sql_examples` runs, and a second run adds nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as pads
import pytest

from tests.spark_ds.conftest import QUICK_JVM
from tests.support.golden import GOLDEN
from tests.support.sql_examples import EXAMPLES, duckdb_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.spark

TIMEOUT_SECONDS = 300
TOPIC = GOLDEN / "pulsar-4.0.7"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the pipeline, which keeps its progress beside it."""
    project = tmp_path / "pipeline"
    shutil.copytree(EXAMPLES / "pipeline", project)
    specification = project / "spark-pipeline.yml"
    text = specification.read_text("utf-8")
    specification.write_text(text.replace("file:///tmp/orders-pipeline", f"file://{tmp_path}/read"))
    return project


def _run(project: Path, environment: Mapping[str, str]) -> None:
    """Bring the tables up to date."""
    done = subprocess.run(
        [
            Path(sys.executable).with_name("spark-pipelines"),
            "run",
            "--conf=spark.sql.catalogImplementation=hive",
            f"--conf=spark.driver.extraJavaOptions={QUICK_JVM}",
            "--conf=spark.sql.shuffle.partitions=1",
            "--conf=spark.ui.enabled=false",
        ],
        cwd=project,
        env={
            **os.environ,
            **environment,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "ORDERS_BUCKET": str(TOPIC / "objects"),
            "ORDERS_SCHEMA": str(TOPIC / "public__default__json-orders" / "schemas-rest.json"),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    assert "Run is COMPLETED" in done.stdout + done.stderr, done.stderr


def _table(project: Path, name: str) -> list[tuple[object, ...]]:
    files = [*(project / "spark-warehouse" / name).glob("*.parquet")]
    return [tuple(row.values()) for row in pads.dataset(files).to_table().to_pylist()]


@pytest.mark.timeout(3 * TIMEOUT_SECONDS)
@pytest.mark.parametrize("runs", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_a_pipeline_keeps_its_tables_up_to_date(
    project: Path, spark_environment: dict[str, str], runs: int
) -> None:
    """The streaming table has each order once after each run, and the view is DuckDB's answer."""
    for _ in range(runs):
        _run(project, spark_environment)

        assert len(_table(project, "orders")) == 400
        answer = _table(project, "revenue")
        assert sorted(answer, key=repr) == sorted(duckdb_rows("1_revenue_by_status"), key=repr)
