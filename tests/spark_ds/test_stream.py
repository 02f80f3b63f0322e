"""Streams in a Spark session: the rows of a batch read, each once, as ledgers come."""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from connector import open_catalog
from tests.spark_ds.golden_rows import COLUMNS, golden_rows, table_rows, topics_named
from tests.support.golden import golden_topic
from tests.support.snippets import snippets_of
from tests.support.sql_examples import EXAMPLES, comparable, duckdb_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.support.golden import GoldenLedger

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

SMALL = ("small-chunked", "small-transactions")
PARTITIONED = topics_named("small-partitioned")


def stream(spark: SparkSession, url: object, **options: str) -> DataFrame:
    """A stream of topics."""
    given = {"url": str(url), "columns": ",".join(COLUMNS), **options}
    return spark.readStream.format("pulsar_offload").options(**given).load()


def started(frame: DataFrame, folder: Path, **trigger: Any) -> StreamingQuery:  # noqa: ANN401
    """A query that writes what it reads, by Spark's own sink."""
    writer = frame.writeStream.format("parquet").option("path", str(folder / "rows"))
    return writer.option("checkpointLocation", str(folder / "at")).trigger(**trigger).start()


def put(bucket: Path, *ledgers: GoldenLedger) -> None:
    """Let ledgers be offloaded."""
    for each in ledgers:
        for path in (each.data_object, each.index_object):
            shutil.copy(path, bucket)


def test_topics_that_grow_while_they_are_streamed(spark: SparkSession, tmp_path: Path) -> None:
    """Ledgers, partitions and topics that come between batches and runs are read, each row once."""
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    transactions = golden_topic("small-transactions").ledgers
    put(bucket, *golden_topic("small-chunked").ledgers[:3], *transactions[:2])
    frame = stream(spark, bucket, topicsPattern="small-.*")

    running = started(frame, tmp_path, processingTime="0 seconds")
    running.processAllAvailable()
    put(bucket, *PARTITIONED[0].ledgers, *transactions[2:5])
    running.processAllAvailable()
    running.stop()
    put(bucket, *golden_topic("small-chunked").ledgers[3:], *transactions[5:])
    put(bucket, *(ledger for each in PARTITIONED[1:] for ledger in each.ledgers))
    limited = stream(spark, bucket, topicsPattern="small-.*", maxLedgersPerTrigger="9")
    ending = started(limited, tmp_path, availableNow=True)
    ending.awaitTermination()

    table = spark.read.parquet(str(tmp_path / "rows")).toArrow()
    expected = [*topics_named(*SMALL), *PARTITIONED]
    assert table_rows(table) == golden_rows(expected)
    sources = [each["sources"][0] for each in ending.recentProgress]
    offset = json.loads(sources[-1]["endOffset"])
    assert offset["topics"].keys() == {each.name for each in expected}
    assert len(sources) > 1
    assert all(json.loads(each["endOffset"])["read"]["ledgers"] <= 9 for each in sources)
    assert json.loads(sources[-1]["latestOffset"]) == {"behind": {"bytes": 0, "ledgers": 0}}


def test_a_batch_of_which_nothing_need_be_read(spark: SparkSession, tmp_path: Path) -> None:
    """By statistics: it has no partition, and the query goes on behind it."""
    bucket, folder = tmp_path / "bucket", str(tmp_path / "statistics")
    bucket.mkdir()
    topic = golden_topic("small-transactions")
    put(bucket, *topic.ledgers)
    open_catalog(str(bucket)).analyze(folder)
    options = {"topic": "small-transactions", "statistics": folder, "where": "__key__ = 'none'"}

    ending = started(stream(spark, bucket, **options), tmp_path, availableNow=True)
    ending.awaitTermination()

    assert not spark.read.parquet(str(tmp_path / "rows")).count()
    [offset] = [json.loads(each["sources"][0]["endOffset"]) for each in ending.recentProgress]
    assert offset["read"] == {"bytes": 0, "ledgers": 0}
    assert offset["topics"][topic.name]["next"] == [topic.ledgers[-1].ledger_id + 1, 0]


def test_what_ends_a_stream_is_told_in_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    """A ledger that comes too late ends the query; the error is its sentence, without frames."""
    first, late, *others = golden_topic("small-transactions").ledgers
    put(tmp_path, first, *others)
    frame = stream(spark, tmp_path, topic="small-transactions")
    started(frame, tmp_path / "run", availableNow=True).awaitTermination()
    put(tmp_path, late)

    again = started(frame, tmp_path / "run", availableNow=True)
    with pytest.raises(Exception, match="LateLedgerError: the ledger appeared") as caught:
        again.awaitTermination()

    assert f"ledger {late.ledger_id}" in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_the_page_of_streams(spark: SparkSession, tmp_path: Path) -> None:
    """Its lines run, and print what stands below them."""
    page = Path("docs/streams.md").read_text("utf-8")
    snippet, *_ = [each for each in snippets_of(page) if each.kind == "python"]
    printed = io.StringIO()

    with contextlib.redirect_stdout(printed):
        exec(snippet.text, {"spark": spark, "folder": str(tmp_path)})  # noqa: S102 - our own page

    assert printed.getvalue().strip() == snippet.printed


def test_the_example_of_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    """It answers what DuckDB answers, and the same when it is run again."""
    program = runpy.run_path(str(EXAMPLES / "streams" / "revenue_by_status.py"))
    url = "tests/data/golden/pulsar-4.0.7/objects"

    for _ in range(2):
        rows = program["revenue_by_status"](spark, url, str(tmp_path))
        assert comparable([tuple(row) for row in rows]) == comparable(
            duckdb_rows("1_revenue_by_status")
        )
