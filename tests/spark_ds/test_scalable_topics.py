"""Scalable topics in Spark: rows of all segments, in batches and in a stream across a split."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.spark_ds.test_stream import started, stream
from tests.support.golden_scalable import FOLDER, OBJECTS, ORDERS, golden_scalable_topic

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

COLUMNS = "__segment_id__,__ledger_id__,__entry_id__,__batch_index__"


def _rows(collected: Sequence[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return sorted(map(tuple, collected), key=str)


def _expected() -> list[tuple[object, ...]]:
    names = COLUMNS.split(",")
    return _rows([tuple(row[each] for each in names) for row in golden_scalable_topic(ORDERS).rows])


def _put(bucket: Path, segments: range) -> None:
    """Let the ledgers of some segments be offloaded."""
    objects = json.loads((FOLDER / "objects.json").read_text("utf-8"))
    for name, each in objects.items():
        place, _, segment = each["user_metadata"]["managedledgername"].rpartition("-")
        if "/orders/" in place and int(segment) in segments:
            shutil.copy(OBJECTS / name, bucket)


def test_batch(spark: SparkSession) -> None:
    """A batch read gives each row of each segment once."""
    frame = spark.read.format("pulsar_offload").options(
        url=str(OBJECTS), topic=ORDERS, columns=COLUMNS, metadata=str(FOLDER)
    )
    assert _rows(frame.load().collect()) == _expected()


def test_stream_across_splits(spark: SparkSession, tmp_path: Path) -> None:
    """Segments that come between batches and runs are read, each row once."""
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    _put(bucket, range(1))
    frame = stream(spark, bucket, topic=ORDERS, columns=COLUMNS)
    running = started(frame, tmp_path, processingTime="0 seconds")
    running.processAllAvailable()
    _put(bucket, range(1, 3))
    running.processAllAvailable()
    running.stop()
    _put(bucket, range(3, 6))
    ending = started(frame, tmp_path, availableNow=True)
    ending.awaitTermination()
    found = spark.read.parquet(str(tmp_path / "rows")).select(*COLUMNS.split(","))
    assert _rows(found.collect()) == _expected()
    offset = json.loads(ending.recentProgress[-1]["sources"][0]["endOffset"])
    assert len(offset["topics"]) == 6
