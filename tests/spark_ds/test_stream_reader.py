"""The stream reader as Spark's planner and its executors call it, without Spark."""

from __future__ import annotations

import json
import pickle
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles

from arrow_io.errors import (
    LateLedgerError,
    MissingObjectError,
    OptionError,
    TrimmedEntriesError,
)
from spark_ds.datasource import PulsarOffloadDataSource
from spark_ds.stream_reader import TopicStreamReader
from tests.support.golden import golden_topic
from tests.support.golden_datasets import open_golden
from tests.support.trimmed_topic import TOPIC, trimmed_topic

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.golden import GoldenLedger

TRANSACTIONS = golden_topic("small-transactions")
COLUMNS = "__ledger_id__,__entry_id__,__batch_index__"


def planner(url: object, **options: str) -> TopicStreamReader:
    """A reader as the planner process of a run has it."""
    given = {"topic": TRANSACTIONS.name, "columns": COLUMNS, **options}
    if "topicsPattern" in options:
        del given["topic"]
    source = PulsarOffloadDataSource({"url": str(url), **given})
    schema = source.schema()
    reader = pickle.loads(pickle.dumps(source)).streamReader(schema)
    assert isinstance(reader, TopicStreamReader)
    return reader


def batch(
    reader: TopicStreamReader, start: dict[str, Any], end: dict[str, Any]
) -> list[tuple[int | None, ...]]:
    """The rows between two offsets; each partition is read by a reader of its own."""
    rows: list[tuple[int | None, ...]] = []
    for partition in reader.partitions(start, end):
        executor, there = pickle.loads(pickle.dumps((reader, partition)))
        for each in executor.read(there):
            rows += zip(*each.to_pydict().values(), strict=True)
    return rows


def next_offset(reader: TopicStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    """The next offset as Spark asks for it, by the reader's own limit, through JSON."""
    given = reader.latestOffset(json.loads(json.dumps(start)), reader.getDefaultReadLimit())
    offset: dict[str, Any] = json.loads(json.dumps(given))
    return offset


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    """An empty bucket."""
    folder = tmp_path / "bucket"
    folder.mkdir()
    return folder


def put(bucket: Path, *ledgers: GoldenLedger) -> None:
    """Let ledgers be offloaded."""
    for each in ledgers:
        for path in (each.data_object, each.index_object):
            shutil.copy(path, bucket)


def whole() -> list[tuple[int | None, ...]]:
    """The rows of the topic, in order."""
    table = open_golden(TRANSACTIONS, columns=COLUMNS.split(",")).to_table()
    return list(zip(*table.to_pydict().values(), strict=True))


def test_a_batch_for_each_ledger(bucket: Path) -> None:
    """Batches, planned and read by as many runs, have together the rows of the topic."""
    put(bucket, TRANSACTIONS.ledgers[0])
    offset = planner(bucket).initialOffset()
    rows = []
    for ledger in TRANSACTIONS.ledgers:
        put(bucket, ledger)
        reader = planner(bucket)
        end = next_offset(reader, offset)
        rows += batch(reader, offset, end)
        offset = end

    assert sorted(rows, key=str) == sorted(whole(), key=str)
    assert next_offset(reader, offset) == offset
    assert batch(reader, offset, offset) == []
    reader.commit(offset)
    reader.stop()


def test_a_run_that_goes_on_sees_what_comes(bucket: Path) -> None:
    """One planner gives each ledger as it comes; one that ends with what is there, does not."""
    first, *others = TRANSACTIONS.ledgers
    put(bucket, first)
    reader, frozen = planner(bucket), planner(bucket)
    frozen.prepareForTriggerAvailableNow()
    begin = reader.initialOffset()
    one = next_offset(reader, begin)
    put(bucket, *others)
    two = next_offset(reader, one)

    assert sorted(batch(reader, begin, one) + batch(reader, one, two), key=str) == sorted(
        whole(), key=str
    )
    assert next_offset(reader, two) == two
    assert next_offset(frozen, begin)["topics"] == one["topics"]
    assert next_offset(frozen, one) == one


def test_limits(small_bucket: str) -> None:
    """A batch has so many ledgers or bytes as the options say, unless the trigger asks for all."""
    by_ledgers = planner(small_bucket, maxLedgersPerTrigger="2")
    by_bytes = planner(small_bucket, maxBytesPerTrigger="2k", maxLedgersPerTrigger="5")
    begin = by_ledgers.initialOffset()

    assert by_ledgers.getDefaultReadLimit() == ReadMaxFiles(2)
    assert by_bytes.getDefaultReadLimit() == ReadMaxBytes(2048)
    assert planner(small_bucket).getDefaultReadLimit() == ReadMaxBytes(16 << 30)
    offset = next_offset(by_ledgers, begin)
    assert offset["read"]["ledgers"] == 2
    assert offset["behind"]["ledgers"] == len(TRANSACTIONS.ledgers) - 2
    assert by_ledgers.reportLatestOffset() == {"behind": offset["behind"]}
    assert 0 < next_offset(by_bytes, begin)["read"]["bytes"] <= 2048
    every = by_ledgers.latestOffset(begin, ReadAllAvailable())
    assert every["read"]["ledgers"] == len(TRANSACTIONS.ledgers)


def test_where_a_stream_begins(small_bucket: str) -> None:
    """At an entry, at the latest, or with what was published from a time on."""
    third = TRANSACTIONS.ledgers[2].ledger_id
    rows = whole()
    begins = {"startingOffsets": f"({third},1)", "start": f"{third}:1"}
    for name, text in begins.items():
        reader = planner(small_bucket, **{name: text})
        begin = reader.initialOffset()
        given = batch(reader, begin, next_offset(reader, begin))
        assert given == [row for row in rows if (row[0] or 0, row[1] or 0) >= (third, 1)]
    latest = planner(small_bucket, startingOffsets="latest")
    assert next_offset(latest, latest.initialOffset()) == latest.initialOffset()
    times = open_golden(TRANSACTIONS, value="raw").to_table()["__publish_time__"].to_pylist()
    middle = sorted(times)[len(times) // 2]
    reader = planner(small_bucket, startingTime=str(int(middle.timestamp() * 1000)))
    begin = reader.initialOffset()
    given = batch(reader, begin, next_offset(reader, begin))
    assert len(given) == sum(time >= middle for time in times)


def test_data_loss_is_an_error_unless_the_user_says_otherwise(bucket: Path) -> None:
    """A late ledger and one that was deleted unread end the query, or are left out."""
    first, late, third, *others = TRANSACTIONS.ledgers
    put(bucket, first, third, *others)
    reader = planner(bucket, maxLedgersPerTrigger="2")
    begin = reader.initialOffset()
    one = next_offset(reader, begin)
    put(bucket, late)
    with pytest.raises(LateLedgerError, match="appeared in the bucket"):
        next_offset(planner(bucket), one)
    lenient = planner(bucket, failOnDataLoss="false")
    two = next_offset(lenient, one)
    rows = batch(lenient, begin, one) + batch(lenient, one, two)
    assert not {row[0] for row in rows} & {late.ledger_id}
    for path in (others[0].data_object, others[0].index_object):
        (bucket / path.name).unlink()

    with pytest.raises(MissingObjectError, match="was deleted before it was read"):
        planner(bucket).partitions(one, two)
    assert len(batch(planner(bucket, failOnDataLoss="false"), one, two)) < len(rows)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"end": "(5,0)"}, "a stream cannot have an end: use spark.read"),
        ({"endingTime": "5"}, "a stream cannot have an end: use spark.read"),
        ({"table": "ledgers"}, "the table ledgers cannot be read as a stream: use spark.read"),
        ({"start": "(5,0,2)"}, r"must start at an entry, not inside a batch: give \(5, 0\)"),
    ],
)
def test_what_a_stream_cannot_do(small_bucket: str, options: dict[str, str], says: str) -> None:
    """Errors are told as the stream starts, because Spark hides those of making a reader."""
    if "table" in options:
        given = {"url": small_bucket, "topic": TRANSACTIONS.name, **options}
        reader = PulsarOffloadDataSource(given).streamReader(None)  # type: ignore[arg-type]
    else:
        reader = planner(small_bucket, **options)

    with pytest.raises(OptionError, match=says):
        reader.initialOffset()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets must be earliest or one message id"),
        ({"maxLedgersPerTrigger": "1"}, "maxBytesPerTrigger and maxLedgersPerTrigger are only for"),
    ],
)
def test_options_of_streams_are_refused_by_batch_reads(
    small_bucket: str, options: dict[str, str], says: str
) -> None:
    """A batch read that would pass over an option says so."""
    source = PulsarOffloadDataSource(
        {"url": small_bucket, "topic": TRANSACTIONS.name, "columns": COLUMNS, **options}
    )

    with pytest.raises(OptionError, match=says):
        source.reader(source.schema())


def test_a_ledger_that_is_trimmed_before_its_task_is_no_damage(tmp_path: Path) -> None:
    """Executors ask the cluster what became of objects that were there when it was planned."""
    with trimmed_topic(tmp_path / "bucket") as topic:
        reader = planner(topic.url, topic=TOPIC, metadata=topic.metadata, value="raw")
        start = reader.initialOffset()
        partitions = reader.partitions(start, next_offset(reader, start))
        executor, (first, *_) = pickle.loads(pickle.dumps((reader, partitions)))
        topic.lose()
        with pytest.raises(MissingObjectError):
            list(executor.read(first))
        topic.trim()
        with pytest.raises(TrimmedEntriesError, match="open it again"):
            list(executor.read(first))
