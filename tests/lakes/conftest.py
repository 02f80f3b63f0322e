"""A session of Spark with the jars of Delta and Iceberg; `make lakes` downloads them."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark
import pytest

from tests.spark_ds.conftest import spark_environment, spark_log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

__all__ = ["spark_environment", "spark_log"]

VERSION: Final = ".".join(pyspark.__version__.split(".")[:2])
_JARS: Final = sorted((Path(__file__).parents[2] / "build" / "lakes" / VERSION).glob("*.jar"))
FORMATS: Final = [
    each for each in ("delta", "iceberg") if any(f"{each}-spark" in jar.name for jar in _JARS)
]
"""Formats that have jars for this version of Spark."""
os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"  # its own is a package of its own
EXTENSIONS: Final = {
    "delta": "io.delta.sql.DeltaSparkSessionExtension",
    "iceberg": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}


@pytest.fixture(scope="session")
def spark(
    spark_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """A session that reads tables by the code of Delta and Iceberg."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as in the tests of Spark

    if not FORMATS:
        pytest.fail(f"no jars for Spark {VERSION} in build/lakes: run make lakes")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.jars": ",".join(map(str, _JARS)),
        "spark.sql.extensions": ",".join(EXTENSIONS[each] for each in FORMATS),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
        for name, value in (os.environ | spark_environment).items():
            patch.setenv(name, value)
        builder = SparkSession.builder.master("local[2]")
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()
