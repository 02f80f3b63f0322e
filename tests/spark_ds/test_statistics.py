"""Statistics in Spark: what executors gather is what Python does, and reads look at it."""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import spark_ds
from arrow_io.errors import OptionError, StorageError, TrimmedEntriesError
from arrow_io.ledgers import data as ledger_data
from arrow_io.ledgers.offset_memory import OffsetMemory
from arrow_io.messages.message_metadata import Message
from connector import open_catalog, open_topic, write_messages
from connector.statistics.store import open_statistics
from connector.statistics.whole_ledgers import unexplained
from spark_ds.batch_reader import TopicBatchReader
from spark_ds.datasource import PulsarOffloadDataSource
from spark_ds.statistics import _analyze_share
from tests.spark_ds.test_batch_reader import read_as_executors_do, sent
from tests.support.buckets import TOPIC
from tests.support.trimmed_topic import trimmed_topic

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings(
    "ignore:PySpark does not yet fully support pandas:FutureWarning"
)

LEDGERS: Final = 4
MESSAGES: Final = 8
"""Of a ledger, which has one data block and two zones."""
PAYLOAD_BYTES: Final = 250 << 10
HALF_BYTES: Final = (LEDGERS // 2 * MESSAGES + 1) * PAYLOAD_BYTES
"""What two of the ledgers take, and less than three."""
BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS: Final = "__ledger_id__,__entry_id__,__key__,__publish_time__"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A topic with a message a minute."""
    url = str(tmp_path_factory.mktemp("bucket"))
    messages = (
        Message(
            payload=os.urandom(PAYLOAD_BYTES),
            publish_time_ms=int((BEGIN + timedelta(minutes=number)).timestamp()) * 1000,
            key=f"k{number}",
        )
        for number in range(LEDGERS * MESSAGES)
    )
    write_messages(
        url, TOPIC, messages, compression="none", batch_messages=1, ledger_entries=MESSAGES
    )
    return url


@pytest.fixture(scope="module")
def folder(url: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Statistics of the topic that Python gathered."""
    folder = tmp_path_factory.mktemp("statistics")
    assert len(open_catalog(url).analyze(folder)) == LEDGERS
    return folder


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """All zones that a folder has, in order."""
    table = pa.concat_tables(pq.read_table(each) for each in sorted(folder.iterdir()))
    rows: list[dict[str, Any]] = table.sort_by("start").sort_by("ledger_id").to_pylist()
    return rows


@pytest.mark.spark
def test_executors_gather_what_python_does(
    spark: SparkSession, url: str, folder: Path, tmp_path: Path
) -> None:
    """Each task writes files of its own; what is known is not read again, by either engine."""
    told: list[Any] = []
    first = spark_ds.analyze(
        spark, url, TOPIC, statistics=tmp_path, task_bytes=HALF_BYTES, progress=told.append
    )

    assert told == first
    ids = [row["ledger_id"] for row in rows_in(folder)]
    assert sorted(each.ledger_id for each in first) == ids[::2]
    assert {(each.zones, each.losses) for each in first} == {(2, ())}
    assert len(list(tmp_path.iterdir())) == 2
    assert rows_in(tmp_path) == rows_in(folder)
    assert spark_ds.analyze(spark, url, statistics=tmp_path, catalog=open_catalog(url)) == []
    assert open_catalog(url).analyze(tmp_path) == []


@pytest.mark.spark
def test_a_task_that_fails_keeps_nothing_from_others(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    """The error is what it was on the executor; the next run reads what is left."""
    bucket, statistics = tmp_path / "bucket", tmp_path / "statistics"
    bucket.mkdir()
    for each in os.scandir(url):
        (bucket / each.name).hardlink_to(each.path)
    catalog = open_catalog(str(bucket))
    lost = max(bucket.iterdir(), key=lambda path: path.stat().st_size)
    lost.rename(tmp_path / "lost")
    lost.mkdir()
    told: list[Any] = []
    with pytest.raises(StorageError) as caught:
        spark_ds.analyze(
            spark,
            str(bucket),
            statistics=statistics,
            catalog=catalog,
            task_bytes=1,
            progress=told.append,
        )
    assert caught.value.object_key == lost.name
    assert len(told) == LEDGERS - 1
    assert len(rows_in(statistics)) == 2 * (LEDGERS - 1)

    lost.rmdir()
    (tmp_path / "lost").rename(lost)
    (again,) = spark_ds.analyze(spark, str(bucket), statistics=statistics)

    assert lost.name.endswith(f"-ledger-{again.ledger_id}")
    assert len(rows_in(statistics)) == 2 * LEDGERS
    assert catalog.analyze(statistics) == []


@pytest.mark.spark
def test_executors_tell_trimmed_ledgers_from_damage(spark: SparkSession, tmp_path: Path) -> None:
    """They ask the cluster, as Python does."""
    with trimmed_topic(tmp_path / "bucket") as topic:
        catalog = open_catalog(topic.url, metadata=topic.metadata)
        catalog.select(TOPIC)
        topic.trim()
        with pytest.raises(TrimmedEntriesError, match="open it again"):
            spark_ds.analyze(
                spark, topic.url, TOPIC, statistics=tmp_path / "statistics", catalog=catalog
            )


def test_a_task_that_is_repeated_changes_nothing(url: str, folder: Path, tmp_path: Path) -> None:
    """It writes the same files; and if it was stopped before, rows that readers unite."""
    catalog = open_catalog(url)
    (topic,) = catalog.select(TOPIC)
    share = [(TOPIC, ledger) for ledger in topic.data]
    statistics = open_statistics(tmp_path)
    _analyze_share(statistics, share[1:3], unexplained)

    for _ in range(2):
        done, error = sent(_analyze_share(statistics, share, unexplained))
        assert (len(done), error) == (LEDGERS, None)

    assert len(list(tmp_path.iterdir())) == 2
    start, end = BEGIN + timedelta(minutes=9), BEGIN + timedelta(minutes=11)
    found = [
        open_topic(url, TOPIC, start=start, end=end, statistics=each, value="raw")
        for each in (tmp_path, folder)
    ]
    assert found[0].to_table() == found[1].to_table()
    assert found[0].scan.reads()[0].ranges == found[1].scan.reads()[0].ranges


def reader_by(url: str, **options: str) -> TopicBatchReader:
    """What the driver plans by some options."""
    given = {"url": url, "topic": TOPIC, "columns": COLUMNS, **options}
    source = PulsarOffloadDataSource(given)
    reader = source.reader(source.schema())
    assert isinstance(reader, TopicBatchReader)
    return reader


@pytest.fixture
def as_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process know nothing of where entries stand."""
    monkeypatch.setattr(ledger_data, "_OFFSETS", OffsetMemory())


MINUTE: Final = "TIMESTAMP '2026-01-01 00:{}:00'"
OPTIONS: Final = [
    {"start": "2026-01-01T00:12:00Z", "end": "2026-01-01T00:14:00Z"},
    {"where": f"`__publish_time__` BETWEEN {MINUTE.format(12)} AND {MINUTE.format(13)}"},
    {"where": "__key__ = 'k13' AND __ledger_id__ >= 0"},
]
"""What asks for rows of the second zone of the second ledger."""


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.usefixtures("as_elsewhere")
def test_executors_read_what_may_have_rows(
    url: str, folder: Path, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They know from the driver where in its block a zone stands; the rows are the same."""
    without = reader_by(url, **options)
    reader = reader_by(url, **options, statistics=str(folder))
    (partition,) = sent(list(reader.partitions()))
    monkeypatch.setattr(ledger_data, "_OFFSETS", OffsetMemory())
    there = sent(reader)

    batches = list(there.read(partition))

    assert pa.Table.from_batches(batches) == pa.Table.from_batches(read_as_executors_do(without))
    zone_bytes = MESSAGES // 2 * PAYLOAD_BYTES
    (read,) = there._reader.reads
    counts = read.ledgers[0].location.trace.counts
    assert zone_bytes < counts.range_bytes < 1.1 * zone_bytes


def test_statistics_that_cannot_be_used_are_told(
    url: str, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As warnings of the driver, and what they spare as notes."""
    (good,) = folder.iterdir()
    (tmp_path / good.name).write_bytes(good.read_bytes())
    (tmp_path / f"zones-{'0' * 32}-20.parquet").write_bytes(b"damaged" * 9)
    caplog.set_level(logging.INFO)

    reader_by(url, **OPTIONS[0], statistics=str(tmp_path)).partitions()

    (problem,) = (each for each in caplog.records if each.levelno == logging.WARNING)
    assert "a file of statistics is not as it was written" in problem.getMessage()
    assert any("pruned by statistics: 7 zones" in each for each in caplog.messages)


def test_streams_take_conditions_and_statistics(url: str, folder: Path) -> None:
    """With both, a batch counts and reads only what may have its rows."""
    given = {"url": url, "topic": TOPIC, "columns": COLUMNS, "where": "__key__ IN ('k3', 'k13')"}
    read_bytes = []
    for more in ({}, {"statistics": str(folder)}):
        source = PulsarOffloadDataSource({**given, **more})
        stream = source.streamReader(source.schema())
        begin = stream.initialOffset()
        end = stream.latestOffset(begin, stream.getDefaultReadLimit())

        batches = [batch for part in stream.partitions(begin, end) for batch in stream.read(part)]

        assert pa.Table.from_batches(batches)["__key__"].to_pylist() == ["k3", "k13"]
        read_bytes.append(end["read"]["bytes"])
    assert read_bytes[1] < read_bytes[0] / 2


def test_conditions_are_for_messages(url: str) -> None:
    """A listing has none; and a column that there is not is named before anything is planned."""
    with pytest.raises(OptionError, match="where is only for messages"):
        PulsarOffloadDataSource({"url": url, "table": "topics", "where": "a = 1"}).schema()
    with pytest.raises(OptionError, match="no column key, did you mean __key__"):
        PulsarOffloadDataSource({"url": url, "topic": TOPIC, "where": "key = '1'"}).schema()


@pytest.mark.spark
def test_conditions_mean_what_they_mean_to_spark(
    spark: SparkSession, url: str, folder: Path
) -> None:
    """The rows are those of Spark's own filter, in every query of a frame."""
    condition = f"{OPTIONS[1]['where']} OR NOT __key__ >= 'k0'"
    frame = spark.read.format("pulsar_offload").options(topic=TOPIC, columns=COLUMNS)
    asked = frame.option("where", condition).option("statistics", str(folder)).load(url)
    of_all = spark.read.format("pulsar_offload").options(topic=TOPIC, columns=COLUMNS).load(url)

    rows = asked.collect()

    assert [row["__key__"] for row in rows] == ["k12", "k13"]
    assert rows == of_all.where(condition).collect()
    assert asked.count() == len(rows)
