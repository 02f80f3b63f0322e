"""Spans and metrics of Spark's Python processes, which `opentelemetry-instrument` sets up."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.spark_ds.test_stream_killed import SETTINGS
from tests.support.golden import golden_topic
from tests.support.otlp_collector import running_collector

if TYPE_CHECKING:
    from tests.support.otlp_collector import Collector

pytestmark = pytest.mark.spark

_PROGRAM: Final = f"""
import sys
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]")
for name, value in {SETTINGS!r}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
url, folder = sys.argv[1:]
source = dict(url=url, topic="transactions-open", value="raw")
rows = spark.read.format("pulsar_offload").options(**source).load().collect()
stream = spark.readStream.format("pulsar_offload").options(**source).load()
query = stream.writeStream.format("noop").option("checkpointLocation", folder)
query.trigger(availableNow=True).start().awaitTermination()
print("rows", len(rows), flush=True)
# The workers export while they wait for tasks.
sys.stdin.readline()
spark.stop()
"""


def _has_all(collector: Collector) -> bool:
    names = {each.name for each in collector.spans}
    needed = {f"pulsar_offload.{each}" for each in ("open", "plan", "decode", "request")}
    return names >= needed and all(map(collector.values, ("rows", "lag", "dropped")))


def test_executors_and_planners_export(
    bucket: str, spark_environment: dict[str, str], tmp_path: Path
) -> None:
    """The spans of tasks come from workers, and the lag of a stream from its planner."""
    scripts = Path(sysconfig.get_path("scripts"))
    arguments = [bucket, str(tmp_path / "checkpoint")]
    with running_collector() as collector:
        environment = {
            **os.environ,
            **spark_environment,
            **collector.environment,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_METRIC_EXPORT_INTERVAL": "100",
        }
        with (
            (tmp_path / "stderr").open("w+b") as log,
            subprocess.Popen(
                [scripts / "opentelemetry-instrument", sys.executable, "-c", _PROGRAM, *arguments],
                env=environment,
                cwd=tmp_path,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            ) as program,
        ):
            assert program.stdout is not None
            printed = program.stdout.readline()
            is_complete = collector.wait_for(lambda: _has_all(collector))
            program.communicate("\n", timeout=120)
            log.seek(0)
            said = log.read().decode()

    expected = golden_topic("transactions-open")
    assert is_complete, said
    assert program.returncode == 0, said
    rows = int(printed.split()[1])
    assert rows == expected.message_count
    assert rows in collector.values("rows")
    assert max(collector.values("lag")) > 0
    assert max(collector.values("dropped")) > 0
