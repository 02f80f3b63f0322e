"""The batch reader without Spark's JVM: what the driver plans, and what executors make of it."""

from __future__ import annotations

import json
import logging
import pickle
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceReader, InputPartition

from connector import open_topic
from connector.display.topic_metrics import TopicMetrics
from connector.scan.topic_read import task_of
from spark_ds.batch_reader import TopicBatchReader
from tests.spark_ds.golden_rows import COLUMNS, golden_rows, table_rows, topics_named
from tests.support.golden import golden_topic

if TYPE_CHECKING:
    from pathlib import Path

    from connector import TopicDataset
    from connector.scan.topic_read import ScanTask

MIB = 1 << 20

Sent = TypeVar("Sent")


def reader_of(dataset: TopicDataset, task_bytes: int | None = None) -> TopicBatchReader:
    """A reader of all that a dataset gives."""
    return TopicBatchReader(dataset.scan, dataset.unsound, task_bytes)


def sent(value: Sent) -> Sent:
    """A copy of a value as another process gets it."""
    copy: Sent = pickle.loads(pickle.dumps(value))
    return copy


def read_as_executors_do(reader: TopicBatchReader) -> list[pa.RecordBatch]:
    """All record batches; reader and partitions are pickled in the order in which Spark does it."""
    copy = sent(reader)
    partitions = [sent(partition) for partition in reader.partitions()]
    return [batch for partition in partitions for batch in copy.read(partition)]


def tasks_of(reader: TopicBatchReader, partition: InputPartition) -> list[ScanTask]:
    """The tasks of a partition."""
    return [task_of([reader._reader.reads[number]], handle) for number, handle in partition.value]


@pytest.mark.parametrize("task_bytes", [None, 1, 20_000])
def test_rows_whatever_the_cut(small_bucket: str, task_bytes: int | None) -> None:
    """However a scan is cut, executors give each row once, where messages cross ledgers too."""
    names = ("small-chunked", "small-transactions", "small-partitioned")
    dataset = open_topic(small_bucket, names, columns=COLUMNS)

    batches = read_as_executors_do(reader_of(dataset, task_bytes))

    assert table_rows(pa.Table.from_batches(batches)) == golden_rows(topics_named(*names))


def test_many_small_tasks_make_few_partitions(small_bucket: str) -> None:
    """Topics and ledgers that are small share a partition, up to the size that is wanted."""
    dataset = open_topic(small_bucket, "small-*")
    tasks = dataset.scan.plan(1)
    largest = max(task.data_bytes for task in tasks)

    def shared_out(task_bytes: int | None = None) -> list[list[ScanTask]]:
        reader = reader_of(dataset, task_bytes)
        return [tasks_of(reader, partition) for partition in reader.partitions()]

    (all_in_one,) = shared_out()
    topics_in_one = [task.read.origin.topic for task in all_in_one]
    assert topics_in_one == sorted(set(topics_in_one))
    assert shared_out(1) == [[task] for task in tasks]
    by_size = shared_out(2 * largest)
    assert 1 < len(by_size) < len(tasks)
    for part in by_size:
        assert sum(task.data_bytes for task in part) <= 2 * largest


def test_nothing_to_read(bucket: str) -> None:
    """A plan without tasks has no partitions, and the one that Spark then makes up has no rows."""
    reader = reader_of(open_topic(bucket, "json-orders", start="(999999999,0)"))

    assert list(reader.partitions()) == []
    assert list(reader.read(InputPartition(None))) == []


def test_executors_open_only_their_own_objects(tmp_path: Path) -> None:
    """A task reads the data objects of its own ledgers; all else that it needs travels with it."""
    topic = golden_topic("multi-ledger")
    bucket, aside = tmp_path / "bucket", tmp_path / "aside"
    bucket.mkdir()
    for _, data_object, index_object in topic.offloaded_objects():
        for path in (data_object, index_object):
            (bucket / path.name).write_bytes(path.read_bytes())
    reader = reader_of(open_topic(str(bucket), "multi-ledger", columns=COLUMNS), 1)
    partitions = reader.partitions()
    bucket.rename(aside)
    bucket.mkdir()

    batches: list[pa.RecordBatch] = []
    for partition, ledger in zip(partitions, topic.ledgers, strict=True):
        name = ledger.data_object.name
        (aside / name).rename(bucket / name)
        batches.extend(reader.read(partition))
        (bucket / name).unlink()

    assert table_rows(pa.Table.from_batches(batches)) == golden_rows([topic])


def test_batches_are_of_the_size_that_spark_likes(bucket: str) -> None:
    """The first record batch is small, and none has more than 4 MiB or so of data."""
    sizes = [
        (batch.num_rows, batch.nbytes)
        for batch in read_as_executors_do(reader_of(open_topic(bucket, "multi-block")))
    ]
    (first, *_), *_ = read_as_executors_do(
        reader_of(open_topic(bucket, "multi-block", batch_rows=10))
    )

    assert len(sizes) > 1
    assert sizes[0][0] <= 2048
    assert max(size for _, size in sizes) < 6 * MIB
    assert len(first) <= 10


def test_partitions_of_a_large_topic_stay_small(small_bucket: str) -> None:
    """What has no bound travels once, with the reader: the ledgers behind a task, and schemas."""
    fields = [{"name": f"field_{number}", "type": "string"} for number in range(5000)]
    avro = json.dumps({"type": "record", "name": "Wide", "fields": fields})
    wide = {"type": "AVRO", "schema": avro}
    dataset = open_topic(small_bucket, "small-chunked", schema=wide, columns=["field_7"])
    reader = reader_of(dataset, 1)
    partitions = reader.partitions()
    ledger_count = len(dataset.scan.topics[0].ledgers)

    assert len(partitions) == ledger_count
    assert len(pickle.dumps(reader)) < len(avro) + 250_000 + 200 * ledger_count
    assert max(len(pickle.dumps(part)) for part in partitions) < 500


def test_filters_are_left_to_spark() -> None:
    """There is no `pushFilters`: Spark 4.3 would use a filtered plan again for the next query."""
    assert TopicBatchReader.pushFilters is DataSourceReader.pushFilters


def test_partitions_show_no_secret(bucket: str) -> None:
    """Neither a partition nor the reader shows the values of storage options."""
    dataset = open_topic(bucket, "json-orders", storage_options={"nested": {"key": "MARKER"}})
    reader = reader_of(dataset)
    partitions = reader.partitions()

    assert partitions
    assert "MARKER" not in repr(partitions)
    assert "MARKER" not in repr(reader)


def test_what_was_left_out_is_logged(
    bucket: str, damaged_bucket: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Open transactions, and damage that was passed over and where, are told by the executor."""
    caplog.set_level(logging.WARNING)
    open_transactions = open_topic(bucket, "transactions-open")
    damaged = open_topic(str(damaged_bucket), "json-orders", on_corruption="salvage")

    read_as_executors_do(reader_of(open_transactions))
    rows = sum(batch.num_rows for batch in read_as_executors_do(reader_of(damaged)))

    told, lost, place = caplog.messages
    assert told.startswith("pulsar_offload: persistent://public/default/transactions-open: ")
    assert "without an outcome" in told
    assert lost.endswith("json-orders: 1 × entry lost: ChecksumError")
    assert golden_topic("json-orders").ledgers[0].data_object.name in place
    assert 0 < rows < golden_topic("json-orders").message_count


def test_ledgers_lost_before_the_read_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A ledger that cannot be opened at all is told when the read is planned."""
    topic = golden_topic("multi-ledger")
    lost, *kept = topic.ledgers
    for path in (
        lost.index_object,
        *(path for ledger in kept for path in (ledger.data_object, ledger.index_object)),
    ):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    dataset = open_topic(str(tmp_path), "multi-ledger", on_corruption="salvage")

    reader_of(dataset).partitions()

    assert "pulsar_offload: the bucket: 1 × ledger lost: MissingObjectError" in caplog.messages


def test_reports_are_of_one_read(damaged_bucket: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A task that is run twice tells the same twice: nothing adds up from one run to the next."""
    dataset = open_topic(str(damaged_bucket), "json-orders", on_corruption="salvage")
    reader = reader_of(dataset)
    (partition,) = reader.partitions()

    for _ in range(2):
        for _batch in reader.read(partition):
            pass

    half = len(caplog.messages) // 2
    assert half > 0
    assert caplog.messages[:half] == caplog.messages[half:]
    assert dataset.unsound == TopicMetrics()
