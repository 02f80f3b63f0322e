"""What works on releases of Spark that lack what newer ones have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

import spark_ds
from arrow_io.errors import OptionError
from spark_ds.stream_source import RefusedStream
from tests.support.golden import golden_topic

REPOSITORY = Path(spark_ds.__file__).parents[1]

_OLD_SPARK = """
import sys
sys.path.insert(0, {repository!r})
import pyspark.sql.datasource
pyspark.__version__ = {version!r}
sys.modules["pyspark.sql.streaming.datasource"] = None
"""


def on_spark(version: str, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program as on a release before 4.2, which has no such module."""
    text = _OLD_SPARK.format(repository=str(REPOSITORY), version=version) + program
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)


def test_batches_are_read_without_classes_of_streams() -> None:
    """Nothing of them is imported before somebody reads a stream."""
    topic = golden_topic("json-orders")
    program = f"""
from spark_ds.datasource import PulsarOffloadDataSource
options = {{"url": {str(topic.objects_folder)!r}, "topic": "json-orders", "value": "raw"}}
source = PulsarOffloadDataSource(options)
schema = source.schema()
reader = source.reader(schema)
print(sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part)))
print(type(source.streamReader(schema)).__name__)
"""
    result = on_spark("4.1.1", program)

    assert result.stderr == ""
    assert result.stdout.split() == ["400", "RefusedStream"]


def test_a_stream_says_which_spark_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever Spark asks it first; it hides what is raised as the reader is made."""
    monkeypatch.setattr(pyspark, "__version__", "4.1.2")
    stream = RefusedStream()
    says = r"^reading a topic as a stream needs Spark 4.2 or newer, but this is Spark 4.1.2$"
    for ask in (stream.initialOffset, stream.latestOffset):
        with pytest.raises(OptionError, match=says):
            ask()


@pytest.mark.parametrize("version", ["3.5.9", "4.0.5"])
def test_an_older_spark_is_refused_in_one_sentence(version: str) -> None:
    """Before anything is imported that it lacks."""
    result = on_spark(version, "import spark_ds.datasource")

    sentence = f"pulsar-offload needs Spark 4.1 or newer, but this is Spark {version}"
    assert result.stderr.splitlines()[-1].endswith(sentence)
    assert result.returncode == 1
