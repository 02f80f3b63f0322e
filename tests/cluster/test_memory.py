"""How much memory a Python worker of Spark takes does not depend on the size of the topic."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from tests.benchmarks.decoding import store_alike
from tests.cluster.measured_source import MeasuredSource
from tests.support.benchmark_ledgers import JSON_LZ4, ORDER_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

MESSAGES: Final = 300_000
"""Of each ledger: 105 MB of orders, 35 MB compressed."""
LEDGERS: Final = 20
SCHEMA: Final = json.dumps({"type": "JSON", "schema": json.loads(ORDER_SCHEMA)})
BOUND_BYTES: Final = 100 << 20
"""What a large topic may take more than a small one; the topic has twenty times as much."""


@dataclass(frozen=True)
class Peak:
    """The most memory that any worker had.

    Attributes:
        before: Before the first row, in bytes.
        highest: At any time.
    """

    before: int
    highest: int


def read(spark: SparkSession, url: str, folder: Path, rows: int, **options: str) -> Peak:
    """Read all rows to nothing."""
    folder.mkdir()
    spark.dataSource.register(MeasuredSource)
    given = {"url": url, "topic": "json-lz4", "folder": str(folder), **options}
    frame = spark.read.format("measured_source").options(**given).load()
    observed = frame.selectExpr("length(__producer_name__) AS l").groupBy("l").count().collect()
    assert [row["count"] for row in observed] == [rows]
    figures = [tuple(map(int, each.read_text().split())) for each in folder.iterdir()]
    return Peak(max(before for before, _ in figures), max(peak for _, peak in figures))


@pytest.mark.parametrize("kind", ["values as bytes", "typed columns"])
def test_memory_does_not_grow_with_the_topic(
    spark: SparkSession, tmp_path: Path, kind: str, record_property: Callable[[str, object], None]
) -> None:
    """Two workers read 2 GB of orders with the memory of batches and prefetched ranges."""
    options = {"value": "raw"} if kind == "values as bytes" else {"schema": SCHEMA}
    small_url = store_alike(JSON_LZ4, str(tmp_path / "small"), 2_000, 1).url
    large_url = store_alike(JSON_LZ4, str(tmp_path / "large"), MESSAGES, LEDGERS).url

    small = read(spark, small_url, tmp_path / "a", 2_000, **options)
    large = read(spark, large_url, tmp_path / "b", MESSAGES * LEDGERS, **options)

    record_property("small", str(small))
    record_property("large", str(large))
    assert large.highest - small.highest < BOUND_BYTES, (small, large)
