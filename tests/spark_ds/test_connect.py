"""The source on a Spark Connect server, whose clients need not have it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from arrow_io.storage.location import Location
from connector.tables.parquet import ParquetTable
from tests.spark_ds.conftest import QUICK_JVM
from tests.spark_ds.golden_rows import (
    COLUMNS,
    golden_rows,
    keys_and_values,
    table_rows,
    topics_named,
)
from tests.spark_ds.web_interface import read_web_interface
from tests.stores.emulators import free_port
from tests.support.golden import golden_topic
from tests.support.snippets import snippets_of
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.spark

TOPIC: Final = "small-partitioned"
TIMEOUT_SECONDS: Final = 500
MASKED, SHOWN = "MASKED4711", "SHOWN4711"
REDACTION: Final = "spark.sql.redaction.string.regex"
PAGE: Final = Path(__file__).parents[2] / "docs" / "spark-clusters.md"


@dataclass(frozen=True)
class Server:
    """A running server.

    Attributes:
        url: Where clients find it.
        pages: URL of its web interface.
        folder: The folder that it writes its log and its event log to.
    """

    url: str
    pages: str
    folder: Path

    def said(self) -> dict[str, str]:
        """All that it logged and shows, by place."""
        said = {"log": (self.folder / "log").read_text()}
        for path in (self.folder / "events").glob("*/events*"):
            said[path.name] = path.read_text()
        pages = read_web_interface(self.pages)
        return said | {path: body.decode() for path, body in pages.items()}


@pytest.fixture(scope="module")
def server(
    spark_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server on two threads, started as its own script does."""
    folder = tmp_path_factory.mktemp("connect")
    (folder / "events").mkdir()
    port, pages = free_port(), free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.port": str(pages),
    }
    defaults = folder / "spark-defaults.conf"
    defaults.write_text(masking_settings())
    script = Path(pyspark.__file__).parent / "sbin" / "start-connect-server.sh"
    command = ["bash", str(script), "--wait", "--properties-file", str(defaults)]
    command += ["--master", "local[2]"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    own = {"SPARK_LOG_DIR": str(folder / "logs"), "SPARK_PID_DIR": str(folder)}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env=os.environ | spark_environment | own,
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            wait_until(lambda: _listens(process, port), TIMEOUT_SECONDS)
            yield Server(f"sc://127.0.0.1:{port}", f"http://127.0.0.1:{pages}", folder)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _listens(process: subprocess.Popen[bytes], port: int) -> bool:
    assert process.poll() is None, "the server ended"
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


def masking_settings() -> str:
    """The lines that the page gives to owners of a server."""
    [snippet] = [each for each in snippets_of(PAGE.read_text("utf-8")) if REDACTION in each.text]
    return snippet.text


def _run(folder: Path, environment: dict[str, str], **argument: Any) -> dict[str, list[str]]:  # noqa: ANN401
    """Run a client; the errors that it met."""
    folder.mkdir()
    program = Path(__file__).with_name("connect_program.py")
    done = subprocess.run(
        [sys.executable, str(program), json.dumps({"folder": str(folder), **argument})],
        env=os.environ | environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[:8000]
    errors: dict[str, list[str]] = json.loads((folder / "errors.json").read_text())
    assert MASKED not in done.stdout + str(errors)
    return errors


@pytest.fixture(scope="module")
def without_package(
    server: Server,
    spark_environment: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
    small_bucket: str,
    damaged_bucket: Path,
) -> tuple[Path, dict[str, list[str]]]:
    """What a client wrote that cannot import this project, and the errors that it met."""
    folder = tmp_path_factory.mktemp("clients") / "without"
    secrets = {"secret.key": MASKED, "secret.nested.key": f'"quoted" {MASKED}'}
    errors = _run(
        folder,
        spark_environment,
        url=server.url,
        conf={},
        rows={"url": small_bucket, "topic": TOPIC, "columns": ",".join(COLUMNS), **secrets},
        damaged={"url": str(damaged_bucket), "topic": "json-orders", "value": "raw", **secrets},
        sink={"url": str(folder / "bucket"), "secret.key": MASKED},
    )
    return folder, errors


@pytest.fixture(scope="module")
def with_package(
    server: Server,
    spark_environment: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
    small_bucket: str,
    damaged_bucket: Path,
) -> tuple[Path, dict[str, list[str]]]:
    """The same of a client that has this project, and masks nothing."""
    folder = tmp_path_factory.mktemp("clients") / "with"
    copied = {"format": "parquet", "value": "raw", "storage_options": {"key": MASKED}}
    errors = _run(
        folder,
        spark_environment,
        url=server.url,
        conf={REDACTION: "(?!)"},
        rows={"url": small_bucket, "topic": TOPIC, "value": "raw", "secret.key": SHOWN},
        copied={"url": small_bucket, "topic": TOPIC, "target": str(folder / "lake"), **copied},
        refused={
            "url": str(damaged_bucket),
            "topic": "json-orders",
            "target": str(folder / "none"),
            **copied,
        },
    )
    return folder, errors


def test_a_client_needs_no_package(
    without_package: tuple[Path, dict[str, list[str]]], small_bucket: str
) -> None:
    """It reads what Pulsar's client read, and writes and streams the same values."""
    folder, _ = without_package

    with pa.OSFile(str(folder / "rows.arrow"), "rb") as file:
        rows = pa.ipc.open_file(file).read_all()
    assert table_rows(rows) == golden_rows(topics_named(TOPIC))
    for topic in ("written", "streamed"):
        assert keys_and_values(folder / "bucket", topic) == keys_and_values(small_bucket, TOPIC)


def test_errors_have_their_text(without_package: tuple[Path, dict[str, list[str]]]) -> None:
    """The class is that of Spark's phase; the text names our error, and what to do."""
    _, errors = without_package
    (ledger,) = golden_topic("json-orders").ledgers

    assert {name: kind for name, (kind, _) in errors.items()} == {
        "plan": "AnalysisException",
        "task": "PythonException",
        "stream": "StreamingQueryException",
    }
    assert "OptionError: unknown option topik, did you mean topic" in errors["plan"][1]
    for name in ("task", "stream"):
        assert "ChecksumError" in errors[name][1]
        assert ledger.data_object.name in errors[name][1]


def test_a_client_with_the_package_registers_and_copies(
    with_package: tuple[Path, dict[str, list[str]]], small_bucket: str
) -> None:
    """The rows are those of a read, and the error of an executor is raised with its class."""
    folder, errors = with_package

    tables = [
        folder / "lake" / each.path for each in ParquetTable(Location(str(folder / "lake"))).files()
    ]
    assert sum(pq.read_metadata(each).num_rows for each in tables) == len(
        keys_and_values(small_bucket, TOPIC)
    )
    assert errors["copy"][0] == "ChecksumError"


def test_the_settings_of_the_page_mask_secrets(
    server: Server,
    without_package: tuple[Path, dict[str, list[str]]],
    with_package: tuple[Path, dict[str, list[str]]],
) -> None:
    """Spark Connect shows the options of each request, unless the server has a pattern."""
    del without_package, with_package
    said = server.said()

    assert [name for name, text in said.items() if MASKED in text] == []
    shown = [name for name, text in said.items() if SHOWN in text]
    assert any(name.startswith("events") for name in shown)
    assert any(name.endswith("/stages") for name in shown)
    assert "ChecksumError" in said["log"]
    assert "log" not in shown
