"""One Spark session for all tests, on two threads; all that it says goes to one file."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.golden import GOLDEN, golden_topic
from tests.support.grids import grid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

__all__ = ["grid"]

REPOSITORY = Path(__file__).parents[2]
PYTHON_PATH = os.pathsep.join((str(REPOSITORY), str(REPOSITORY / "spark_ds" / "autoload")))
"""What an installation gives: the packages, and `pyspark_pulsar_offload` as a top-level module."""

QUICK_JVM = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""Options of a Java runtime that is to start fast and to live for a minute.

To verify the classes of Spark takes a tenth of what a session costs.
"""

LOG_PROPERTIES = """
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c: %m%n%ex
"""


@pytest.fixture(scope="session")
def bucket() -> str:
    """The folder of the first golden set."""
    return str(GOLDEN / "pulsar-4.0.7" / "objects")


@pytest.fixture(scope="session")
def small_bucket() -> str:
    """The folder of the golden set with small ledgers."""
    return str(GOLDEN / "pulsar-4.0.7-small" / "objects")


@pytest.fixture(scope="session")
def spark_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that the session's JVM and its Python workers wrote to standard error."""
    return tmp_path_factory.mktemp("spark") / "stderr.log"


@pytest.fixture(scope="session")
def spark_environment() -> dict[str, str]:
    """What a process that starts Spark must have in its environment."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.fail("Spark needs a Java runtime, version 17 or later")
    return {
        "PYTHONPATH": PYTHON_PATH,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@pytest.fixture(scope="session")
def spark(
    spark_environment: dict[str, str], spark_log: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """A session with the source in its Python path, and not registered."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - an optional engine

    folder = tmp_path_factory.mktemp("session")
    properties = folder / "log4j2.properties"
    properties.write_text(LOG_PROPERTIES)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        # pandas is newer than PySpark knows; nothing here uses both.
        warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
        for name, value in spark_environment.items():
            patch.setenv(name, value)
        with _standard_error_to(spark_log):
            session = (
                SparkSession.builder.master("local[2]")
                .config("spark.driver.bindAddress", "127.0.0.1")
                .config("spark.driver.host", "127.0.0.1")
                .config(
                    "spark.driver.extraJavaOptions",
                    f"{QUICK_JVM} -Dlog4j2.configurationFile={properties}",
                )
                .config("spark.sql.session.timeZone", "UTC")
                .config("spark.sql.shuffle.partitions", "2")
                .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
                .config("spark.ui.enabled", "false")
                .config("spark.ui.showConsoleProgress", "false")
                .getOrCreate()
            )
        session.sparkContext.setLogLevel("INFO")
        yield session
        session.stop()


@contextmanager
def _standard_error_to(path: Path) -> Iterator[None]:
    """Let processes started meanwhile write their standard error to a file."""
    kept = os.dup(2)
    try:
        with path.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@pytest.fixture(scope="session")
def damaged_bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bucket with the topic `json-orders` alone, one byte of one entry flipped."""
    folder = tmp_path_factory.mktemp("damaged")
    (ledger,) = golden_topic("json-orders").ledgers
    data = bytearray(ledger.data_object.read_bytes())
    data[ledger.length_bytes // 2] ^= 1
    (folder / ledger.data_object.name).write_bytes(data)
    (folder / ledger.index_object.name).write_bytes(ledger.index_object.read_bytes())
    return folder
