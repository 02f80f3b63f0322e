"""The top-level module by which Spark finds the source."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import spark_ds
from connector.topic import open_request
from spark_ds.datasource import PulsarOffloadDataSource
from tests.support.golden import golden_topic

if TYPE_CHECKING:
    import pytest

REPOSITORY = Path(spark_ds.__file__).parents[1]
AUTOLOAD = REPOSITORY / "spark_ds" / "autoload"


def said_by(program: str) -> str:
    """What a fresh interpreter prints that has the module in its path."""
    path = f"import sys; sys.path[:0] = [{str(AUTOLOAD)!r}, {str(REPOSITORY)!r}]\n"
    command = [sys.executable, "-c", path + program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_import_brings_nothing_of_the_project() -> None:
    """The import costs other users of Python sources nothing, and no fault of ours can break it."""
    program = """
from pyspark_pulsar_offload import DefaultSource
from pyspark.sql.datasource import DataSource
assert issubclass(DefaultSource, DataSource)
print(DefaultSource.name(), {"spark_ds", "connector", "arrow_io", "fsspec"} & set(sys.modules))
"""
    assert said_by(program) == "pulsar_offload set()"


def test_import_without_pyspark() -> None:
    """Where there is no PySpark, the import does not fail, and offers no source."""
    program = """
sys.modules["pyspark"] = None
import pyspark_pulsar_offload
print(hasattr(pyspark_pulsar_offload, "DefaultSource"))
"""
    assert said_by(program) == "False"


def test_stands_for_the_real_source(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the name, schema and reader of the real source, and opens the topics once for both."""
    monkeypatch.syspath_prepend(AUTOLOAD)
    found = importlib.import_module("pyspark_pulsar_offload").DefaultSource
    opened = []

    def counting(*args: object, **options: object) -> object:
        opened.append(args)
        return open_request(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("spark_ds.datasource.open_request", counting)
    source = found({"url": bucket, "topic": "string"})

    schema = source.schema()
    reader = pickle.loads(pickle.dumps(source)).reader(schema)
    rows = sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))

    assert len(opened) == 1
    assert rows == golden_topic("string").message_count
    assert found.name() == PulsarOffloadDataSource.name()
    assert schema == PulsarOffloadDataSource({"url": bucket, "topic": "string"}).schema()
