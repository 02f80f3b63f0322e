"""The source on a cluster, whose executors are processes of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypedDict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from arrow_io.storage.location import Location
from connector import open_topic
from connector.tables.parquet import ParquetTable
from tests.spark_ds.conftest import QUICK_JVM
from tests.spark_ds.golden_rows import (
    COLUMNS,
    golden_rows,
    keys_and_values,
    table_rows,
    topics_named,
)
from tests.support.golden import golden_topic
from tests.support.golden_values import comparable, expected_values
from tests.support.lake_copies import in_order
from tests.support.lake_tables import table_of
from tests.support.latest_rows import catalog_options
from tests.support.spark_home import link_spark_home

pytestmark = pytest.mark.spark

MARKER = "MARKER4711"
TYPED = golden_topic("small-avro-evolved")
POSITION = ("__ledger_id__", "__entry_id__", "__batch_index__")
TOPICS = ("small-chunked", "small-transactions", "small-partitioned")
STREAMED = "small-partitioned"
RAW: Final[dict[str, Any]] = {
    "columns": ["__partition__", *POSITION, "__key__", "__value__"],
    "value": "raw",
    "time_unit": "us",
}
TIMEOUT_SECONDS = 550


class Result(TypedDict):
    """What `cluster_program` tells."""

    error: str
    left_out: int
    batches: int


@dataclass(frozen=True)
class ClusterRun:
    """What the program left behind.

    Attributes:
        rows: The rows of `TOPICS`, with the number of the task that read each.
        typed: Those of `TYPED`, values decoded.
        result: What it tells besides.
        driver_log: What the driver wrote to standard output and error.
        executor_logs: What each executor and its Python workers wrote to standard error.
        pages: What the web interface showed in the end, by path.
        events: The event log.
        bucket: The topics that it wrote.
        lake: The table of plain Parquet that it copied to.
        iceberg: The table of Iceberg.
    """

    rows: pa.Table
    typed: pa.Table
    result: Result
    driver_log: str
    executor_logs: tuple[str, ...]
    pages: dict[str, str]
    events: str
    bucket: Path
    lake: Path
    iceberg: Path


@pytest.fixture(scope="module")
def run(
    tmp_path_factory: pytest.TempPathFactory,
    spark_environment: dict[str, str],
    bucket: str,
    small_bucket: str,
    damaged_bucket: Path,
) -> ClusterRun:
    """One run of the program, for all tests."""
    folder = tmp_path_factory.mktemp("cluster")
    home = link_spark_home(folder / "home")
    secrets = {"secret.key": MARKER, "secret.nested.key": MARKER}
    (folder / "events").mkdir()
    shutil.copy(TYPED.folder / "schemas-rest.json", folder / "schemas.json")
    # Seen from where the driver runs, and by no executor.
    typed = {"schema": "schemas.json", "topic": TYPED.name, "value": "struct", **secrets}
    small = {"url": small_bucket, "topic": ",".join(TOPICS), "task_bytes": "1", **secrets}
    catalog = {"location": str(folder / "iceberg"), "s3.secret-access-key": MARKER}
    catalog |= catalog_options(folder)
    argument = {
        "folder": str(folder),
        "settings": {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.extraJavaOptions": QUICK_JVM,
            "spark.executor.extraJavaOptions": QUICK_JVM,
            "spark.executor.memory": "512m",
            "spark.executorEnv.PYTHONPATH": spark_environment["PYTHONPATH"],
            "spark.log.level": "INFO",
            # The default is four attempts.
            "spark.task.maxFailures": "1",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.port": "0",
            "spark.ui.showConsoleProgress": "false",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": (folder / "events").as_uri(),
        },
        "rows": {**small, "columns": ",".join(COLUMNS)},
        "typed": {"url": small_bucket, "task_bytes": "1", **typed},
        "damaged": {"url": str(damaged_bucket), "topic": "json-orders", **secrets},
        "left_out": {"url": bucket, "topic": "transactions-open", **secrets},
        "streamed": {
            "url": small_bucket,
            "topic": STREAMED,
            "maxLedgersPerTrigger": "2",
            **secrets,
        },
        "sink": {"url": str(folder / "bucket"), **secrets},
        "copied": [
            (
                {"url": small_bucket, "topic": STREAMED, "storage_options": storage, **RAW, **each},
                {"target_options": storage, **each},
            )
            for storage in [{"key": MARKER}]
            for each in (
                {"target": str(folder / "lake"), "format": "parquet"},
                {"target": "shop.lake", "format": "iceberg", "table_options": catalog},
            )
        ],
    }
    program = Path(__file__).with_name("cluster_program.py")
    done = subprocess.run(
        [sys.executable, str(program), json.dumps(argument)],
        env={**os.environ, **spark_environment, "SPARK_HOME": str(home)},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return ClusterRun(
        _table(folder / "rows.arrow"),
        _table(folder / "typed.arrow"),
        json.loads((folder / "result.json").read_text()),
        done.stdout,
        tuple(path.read_text() for path in sorted((home / "work").glob("*/*/stderr"))),
        json.loads((folder / "pages.json").read_text()),
        "".join(path.read_text() for path in (folder / "events").glob("*/events*")),
        folder / "bucket",
        folder / "lake",
        folder / "iceberg",
    )


def _table(path: Path) -> pa.Table:
    with pa.OSFile(str(path), "rb") as file:
        return pa.ipc.open_file(file).read_all()


def test_rows_are_those_of_pulsars_client(run: ClusterRun) -> None:
    """Two executors, one ledger a task, give exactly the rows that Pulsar's own client read."""
    assert max(run.rows["task"].to_pylist()) == 19
    assert table_rows(run.rows) == golden_rows(topics_named(*TOPICS))
    assert len(run.executor_logs) == 2
    assert all("Finished task" in log for log in run.executor_logs)


def test_executors_get_the_schema_inside_their_tasks(run: ClusterRun) -> None:
    """Values of several schema versions are decoded where the schema's file is not, or no more."""
    expected = expected_values(TYPED, "us")

    given = dict(
        zip(
            zip(*(run.typed[name].to_pylist() for name in POSITION), strict=True),
            comparable(run.typed["__value__"]),
            strict=True,
        )
    )

    assert given == {(row.ledger_id, row.entry_id, row.batch_index): row.value for row in expected}


def test_errors_of_executors_reach_the_user(run: ClusterRun) -> None:
    """Damage that an executor meets is the query's error, with the object's name."""
    (ledger,) = golden_topic("json-orders").ledgers

    assert "ChecksumError" in run.result["error"]
    assert ledger.data_object.name in run.result["error"]


def test_what_was_left_out_is_in_an_executors_log(run: ClusterRun) -> None:
    """The executor that left out messages of an open transaction says so, and how many."""
    told = "pulsar_offload: persistent://public/default/transactions-open: "
    sentences = [
        line for log in run.executor_logs for line in log.splitlines() if line.startswith(told)
    ]

    assert len(sentences) == 1
    assert "without an outcome in the offloaded ledgers were left out" in sentences[0]
    assert run.result["left_out"] >= golden_topic("transactions-open").message_count


def test_what_executors_write_is_what_they_read(run: ClusterRun, small_bucket: str) -> None:
    """A frame, and a stream of several batches, as topics of their own."""
    written, streamed = (keys_and_values(run.bucket, each) for each in ("written", "streamed"))

    assert written == keys_and_values(small_bucket, "small-chunked")
    assert streamed == keys_and_values(small_bucket, STREAMED)
    assert run.result["batches"] == 2


def test_executors_copy_and_maintain_tables(run: ClusterRun, small_bucket: str) -> None:
    """The rows of a read; the files that several tasks wrote became one."""
    table = ParquetTable(Location(str(run.lake)))

    expected = open_topic(small_bucket, STREAMED, **RAW).to_table()
    assert in_order(table_of(table)) == in_order(expected)
    assert len(list(table.files())) == 1
    assert len(list(run.lake.rglob("*.parquet"))) > 3
    rows = [pq.ParquetFile(each).metadata.num_rows for each in run.iceberg.rglob("*.parquet")]
    assert len(rows) > 3
    assert max(rows) * 2 == sum(rows) == 2 * expected.num_rows


def test_no_secret_is_shown(run: ClusterRun) -> None:
    """No value of a storage option is in a log, an error, the event log or the web interface."""
    sql = next(text for path, text in run.pages.items() if "/sql?" in path)
    assert "ChecksumError" in run.driver_log
    assert "secret.nested.key=*********(redacted)" in run.events
    assert "secret.nested.key=*********(redacted)" in sql
    assert "spark.eventLog.dir" in run.pages["/environment/"]
    assert any(path.startswith("/StreamingQuery/statistics/") for path in run.pages)
    shown = {"driver": run.driver_log, "error": run.result["error"], "events": run.events}
    shown |= {f"executor {number}": log for number, log in enumerate(run.executor_logs)}
    assert [name for name, text in (shown | run.pages).items() if MARKER in text] == []
