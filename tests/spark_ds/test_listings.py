"""The option `table`: topics, ledgers, blocks and objects of a bucket as rows in Spark."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Final

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from arrow_io.errors import OptionError
from connector import open_catalog
from connector.catalog.tables import TABLES
from spark_ds import listing_reader
from spark_ds.datasource import PulsarOffloadDataSource
from spark_ds.listing_reader import ListingReader
from spark_ds.options import SourceOptions
from tests.support.golden import GOLDEN, golden_topic
from tests.support.owned_bucket import OTHER_UUID, SCHEMAS_FILE, SMALL, OwnedBucket

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

CHUNKED: Final = golden_topic("small-chunked")
METADATA: Final = str(GOLDEN / SMALL)


def source(url: object, **options: str) -> PulsarOffloadDataSource:
    """The source as Spark makes it."""
    return PulsarOffloadDataSource({"url": str(url), **options})


def listing(spark: SparkSession, url: object, table: str, **options: str) -> DataFrame:
    """A data frame of a listing."""
    reader = spark.read.format("pulsar_offload").option("url", str(url)).option("table", table)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def read(reader: ListingReader) -> list[dict[str, object]]:
    """The rows that the tasks of a reader give, each in a process of its own."""
    rows: list[dict[str, object]] = []
    for partition in reader.partitions():
        sent, task = pickle.loads(pickle.dumps((reader, partition)))
        for batch in sent.read(task):
            rows.extend(batch.to_pylist())
    return rows


# On the driver, without a JVM


@pytest.mark.parametrize("table", TABLES)
def test_rows_are_those_of_python(table: str, small_bucket: str) -> None:
    """All of them, with and without a topic, in the columns of Spark's own types."""
    catalog = open_catalog(small_bucket, metadata=METADATA)
    for options, topic in (
        ({}, None),
        ({"topic": "small-ch*,small-enc*"}, ["small-ch*", "small-enc*"]),
    ):
        opened = source(small_bucket, table=table, metadata=METADATA, **options)
        expected: pa.Table = TABLES[table](catalog, topic)

        reader = opened.reader(opened.schema())

        assert isinstance(reader, ListingReader)
        assert opened.schema().names == expected.column_names
        assert read(reader) == expected.to_pylist()


def test_columns_are_chosen(small_bucket: str) -> None:
    """In any order; of another name or type they are refused, and those that there are are told."""
    opened = source(small_bucket, table="ledgers")
    schema = StructType().add("uuid", StringType()).add("ledger_id", LongType())

    reader = opened.reader(schema)

    assert isinstance(reader, ListingReader)
    rows = read(reader)
    assert len(rows) == 29
    assert {tuple(row) for row in rows} == {("uuid", "ledger_id")}
    for wrong in (
        StructType().add("entry", LongType()),
        StructType().add("ledger_id", IntegerType()),
    ):
        with pytest.raises(OptionError, match=r"no column .* columns are .*ledger_id:bigint"):
            opened.reader(wrong)


def test_large_tables_are_cut(small_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows travel to the executors in pieces, and none is lost or doubled between them."""
    monkeypatch.setattr(listing_reader, "_PARTITION_ROWS", 5)
    opened = source(small_bucket, table="objects")

    reader = opened.reader(opened.schema())

    assert isinstance(reader, ListingReader)
    assert len(reader.partitions()) == 12
    assert read(reader) == TABLES["objects"](open_catalog(small_bucket), None).to_pylist()
    # It is sent along with each of them, without the rows of the others.
    assert len(pickle.dumps(reader)) < 200


def test_empty_bucket(tmp_path: Path) -> None:
    """There may be no rows, and Spark may ask for a partition that there is not."""
    opened = source(tmp_path, table="topics")

    reader = opened.reader(opened.schema())

    assert isinstance(reader, ListingReader)
    assert read(reader) == []
    assert list(reader.read(InputPartition(None))) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"table": "ledger"},
            "table must be one of messages, topics, ledgers, blocks, objects, not 'ledger'",
        ),
        ({"table": "ledgers", "columns": "uuid"}, "option columns is only for messages"),
        ({"table": "ledgers", "start": "(1,2)"}, "option start is only for messages"),
        (
            {"table": "ledgers", "failOnDataLoss": "false"},
            "option failOnDataLoss is only for messages",
        ),
        ({"table": "topics", "metadata_options": "[]"}, "metadata_options must be a JSON object"),
        ({"table": "topics", "buckets": "[]"}, "buckets must be a JSON object"),
        ({"table": "topics", "metadata.": "x"}, "lacks a part of its name"),
        ({"table": "topics", "metadata.token": "a", "secret.metadata.token": "b"}, "given twice"),
    ],
)
def test_options_that_contradict(options: dict[str, str], said: str) -> None:
    """What a listing has no use for is refused, rather than left out of account."""
    with pytest.raises(OptionError, match=said):
        SourceOptions.parse({"url": "s3://bucket", **options})


def test_options_of_the_metadata_of_messages(tmp_path: Path) -> None:
    """With metadata, ledgers that are missing are an error, or counted; the schema comes along."""
    bucket = OwnedBucket.copied(tmp_path)
    ledger = golden_topic("small-avro-evolved").ledgers[0]
    options = {"topic": "small-avro-evolved", "metadata": str(bucket.metadata)}
    typed = source(bucket.objects, **options).schema()
    given = {"topic": options["topic"]}
    path = golden_topic("small-avro-evolved").folder / SCHEMAS_FILE
    assert typed == source(bucket.objects, **given, schema=str(path)).schema()

    bucket.delete(ledger.data_object.name, ledger.index_object.name)
    broken = source(bucket.objects, **options)
    # A stream may begin before what is missing, and Spark asks for its columns in the same way.
    assert broken.schema() == typed
    with pytest.raises(FileNotFoundError, match="the metadata says"):
        broken.reader(typed)
    assert source(bucket.objects, **options, failOnDataLoss="false").schema() == typed


# In Spark


@pytest.mark.spark
def test_listing_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    """A data frame like any other: filters, aggregates and joins are Spark's."""
    bucket = OwnedBucket.copied(tmp_path)
    missing = CHUNKED.ledgers[2]
    bucket.delete(missing.data_object.name, missing.index_object.name)
    bucket.write(f"{OTHER_UUID}-ledger-15", b"cut")
    metadata = str(bucket.metadata)

    ledgers = listing(spark, bucket.objects, "ledgers", metadata=metadata, topic="small-chunked")

    states = {row["ledger_id"]: row["state"] for row in ledgers.collect()}
    assert states == {**dict.fromkeys(range(14, 22), "both"), 16: "missing", 62: "open"}
    problems = ledgers.where("size(problems) > 0").select("problems").collect()
    assert "index object is missing" in problems[0]["problems"][0]
    objects = listing(spark, bucket.objects, "objects")
    counted = objects.groupBy("kind").count().orderBy("kind").collect()
    assert [tuple(row) for row in counted] == [("data", 29), ("index", 28)]
    joined = ledgers.join(
        objects.where("kind = 'index'").drop("topic", "partition", "uuid", "bytes"), "ledger_id"
    )
    assert joined.count() == 7


@pytest.mark.spark
def test_empty_listing_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    """No rows, and the columns all the same."""
    empty = listing(spark, tmp_path, "blocks")
    assert empty.count() == 0
    assert empty.columns == TABLES["blocks"](open_catalog(str(tmp_path)), None).column_names
