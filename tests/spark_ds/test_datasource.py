"""The source in Spark: on the driver without a JVM where that is enough, else on `local[2]`."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from arrow_io.columns import ALL_COLUMNS
from arrow_io.errors import OptionError, TopicNotFoundError
from spark_ds.batch_reader import TopicBatchReader
from spark_ds.datasource import PulsarOffloadDataSource
from tests.spark_ds.golden_rows import COLUMNS, golden_rows, table_rows, topics_named
from tests.spark_ds.queries import frame, said_of, web_pages
from tests.support.golden import GOLDEN, MAP_FILE_SETS, golden_topic, map_file_topics
from tests.support.s3_server import ACCESS_KEY, REGION, SECRET_KEY
from tests.support.trimmed_topic import TOPIC, trimmed_topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.s3_server import S3Server


# On the driver, without a JVM


def source(url: object, topic: str, **options: str) -> PulsarOffloadDataSource:
    """The source as Spark makes it."""
    return PulsarOffloadDataSource({"url": str(url), "topic": topic, **options})


def test_types_are_exact(bucket: str) -> None:
    """Each column has the Spark type whose Arrow type is the very one that is read."""
    columns = ",".join(column.name for column in ALL_COLUMNS)

    schema = source(bucket, "json-orders", columns=columns).schema()

    assert to_arrow_schema(schema, timezone="UTC") == pa.schema(
        [(column.name, column.type) for column in ALL_COLUMNS]
    )
    assert {type(field.dataType) for field in schema} == {
        LongType,
        IntegerType,
        TimestampType,
        StringType,
        BinaryType,
        BooleanType,
        MapType,
    }


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (StructType().add("x", LongType()), "no column 'x'; the columns are: __entry_id__"),
        (
            StructType().add("__entry_id__", IntegerType()),
            "column __entry_id__ is of type bigint, not int",
        ),
        (
            StructType().add("__entry_id__", LongType(), nullable=False),
            "column __entry_id__ cannot be NOT NULL",
        ),
        (
            StructType().add("__properties__", MapType(StringType(), LongType())),
            "is of type map<string,string>, not map<string,bigint>",
        ),
    ],
)
def test_schemas_that_do_not_fit(bucket: str, schema: StructType, said: str) -> None:
    """A user's schema may name a part of the columns, with their types, and nothing else."""
    with pytest.raises(OptionError, match=re.escape(said)):
        source(bucket, "json-orders").reader(schema)


def test_schema_and_columns_must_agree(bucket: str) -> None:
    """A user's schema and the option `columns` say the same, so they must not differ."""
    schema = StructType().add("__key__", StringType())

    source(bucket, "json-orders", columns="__key__").reader(schema)
    with pytest.raises(
        OptionError, match="the option columns has __value__: leave one of them out"
    ):
        source(bucket, "json-orders", columns="__value__").reader(schema)


def test_topics_by_regular_expression(small_bucket: str) -> None:
    """A regular expression selects topics whose whole name matches, with all partitions."""
    options = {"url": small_bucket, "topicsPattern": "small-(part|trans).*"}
    reader = PulsarOffloadDataSource(options).reader(StructType().add("__topic__", StringType()))
    assert isinstance(reader, TopicBatchReader)
    topics = {
        reader._reader.reads[number].origin.topic
        for part in reader.partitions()
        for number, _ in part.value
    }

    assert topics == {
        topic.name for topic in topics_named("small-partitioned", "small-transactions")
    }
    with pytest.raises(TopicNotFoundError, match=r"no offloaded topic matches .* there are 7: "):
        PulsarOffloadDataSource({**options, "topicsPattern": "small"}).schema()


# In Spark


@pytest.mark.spark
@pytest.mark.parametrize("task_bytes", [1, 1 << 30])
def test_rows_are_those_of_pulsars_client(
    spark: SparkSession, bucket: str, task_bytes: int
) -> None:
    """Without registration, Spark gives exactly the rows that Pulsar's own client read."""
    names = (
        "json-orders",
        "multi-ledger",
        "multi-block",
        "chunked",
        "transactions",
        "partitioned",
        "kv-avro-separated",
    )
    table = frame(
        spark, bucket, ",".join(names), columns=",".join(COLUMNS), task_bytes=task_bytes
    ).toArrow()

    assert table_rows(table) == golden_rows(topics_named(*names))


@pytest.mark.spark
@pytest.mark.parametrize("set_name", MAP_FILE_SETS)
def test_rows_of_map_files(spark: SparkSession, set_name: str) -> None:
    """So it does for topics of the filesystem driver, with a task for each block."""
    topics = [
        each
        for each in map_file_topics()
        if each.set_name == set_name and not re.search("encrypted|-open|acme", each.name)
    ]
    url = str(GOLDEN / set_name / "objects")

    table = frame(
        spark,
        url,
        ",".join(each.name for each in topics),
        columns=",".join(COLUMNS),
        task_bytes=1,
        value="raw",
    ).toArrow()

    assert table_rows(table) == golden_rows(topics)


@pytest.mark.spark
def test_count_select_filter_and_limit(spark: SparkSession, bucket: str) -> None:
    """Queries of one frame give right answers one after another, filters among them."""
    orders = frame(spark, bucket, "json-orders")
    golden = golden_topic("json-orders").messages()
    late = orders.where(f"__sequence_id__ >= {golden[300]['sequence_id']}")

    assert orders.count() == len(golden)
    assert late.count() == sum(m["sequence_id"] >= golden[300]["sequence_id"] for m in golden)
    assert orders.count() == len(golden)
    assert [tuple(row) for row in orders.select("__key__", "__entry_id__").collect()] == [
        (message.get("key"), message["entry"]) for message in golden
    ]
    assert [row["__sequence_id__"] for row in orders.limit(3).collect()] == [
        message["sequence_id"] for message in golden[:3]
    ]


@pytest.mark.spark
def test_bounds_and_names_of_pulsar_spark(spark: SparkSession, bucket: str) -> None:
    """Options and columns may have the names that the pulsar-spark connector gave them."""
    golden = golden_topic("json-orders").messages()
    times = sorted(message["publish_time"] for message in golden)
    start, end = times[len(times) // 3], times[2 * len(times) // 3]
    orders = (
        spark.read.format("pulsar_offload")
        .options(
            url=bucket,
            topicsPattern="json-.*",
            startingTime=start,
            endingTime=end,
            failOnDataLoss="true",
            naming="pulsar-spark",
        )
        .load()
    )

    assert "__messageProperties" in orders.columns
    assert Counter(row["__key"] for row in orders.select("__key").collect()) == Counter(
        message.get("key") for message in golden if start <= message["publish_time"] < end
    )


@pytest.mark.spark
def test_the_url_may_be_what_is_loaded(spark: SparkSession, bucket: str) -> None:
    """`load(url)` calls it `path`; with both, it is told that they say the same."""
    reader = spark.read.format("pulsar_offload").option("topic", "json-orders")

    assert reader.load(bucket).count() == golden_topic("json-orders").message_count
    with pytest.raises(Exception, match="url and path mean the same"):
        reader.option("url", bucket).load(bucket)


@pytest.mark.spark
def test_errors_are_told_by_their_sentence(spark: SparkSession, bucket: str) -> None:
    """What is wrong stands before anything else, and no frame is shown, on driver and executors."""
    with pytest.raises(Exception, match="no offloaded topic") as planned:
        frame(spark, bucket, "nothing")
    with pytest.raises(Exception, match="is encrypted") as read:
        frame(spark, bucket, "encrypted").collect()

    for caught, name in ((planned, "TopicNotFoundError"), (read, "EncryptedPayloadError")):
        text = str(caught.value)
        assert f": arrow_io.errors.{name}: " in text.replace(":\n", ": ")
        assert text.index(name) < 200
        assert "Traceback" not in text


@pytest.mark.spark
def test_ledgers_are_looked_up_once(spark: SparkSession, tmp_path: Path) -> None:
    """A frame keeps the ledgers that it was made with: its queries list nothing."""
    (ledger,) = golden_topic("string").ledgers
    for path in (ledger.data_object, ledger.index_object):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    strings = frame(spark, tmp_path, "string")

    (tmp_path / ledger.index_object.name).unlink()

    assert strings.count() == golden_topic("string").message_count


@pytest.mark.spark
def test_errors_are_readable(spark: SparkSession, bucket: str) -> None:
    """What is wrong with the options is said when the frame is made, in our own words."""
    with pytest.raises(AnalysisException, match="did you mean 'persistent://public/default/json-o"):
        frame(spark, bucket, "json-ordes")
    with pytest.raises(AnalysisException, match="option view must be all: use SQL"):
        frame(spark, bucket, "json-orders", view="latest")


@pytest.mark.spark
def test_registered_by_hand(spark: SparkSession, bucket: str) -> None:
    """Where the source is not installed, it can be registered; also where it is."""
    spark.dataSource.register(PulsarOffloadDataSource)

    assert frame(spark, bucket, "string").count() == golden_topic("string").message_count


# From S3


@pytest.mark.spark
@pytest.mark.s3
def test_rows_from_s3(spark: SparkSession, s3_server: S3Server) -> None:
    """From an object store, by storage options or the keys of broker.conf, rows are the same."""
    address = s3_server.upload_golden(GOLDEN / "pulsar-4.0.7-small")
    storage = {"storage.key": ACCESS_KEY, "storage.secret": SECRET_KEY}
    by_url = (
        spark.read.format("pulsar_offload")
        .options(url=address.url, topic="small-partitioned,small-chunked", task_bytes=50_000)
        .options(**storage)
        .option("storage.endpoint_url", s3_server.endpoint_url)
        .option("storage.client_kwargs.region_name", REGION)
        .option("columns", ",".join(COLUMNS))
        .load()
    )
    by_broker_conf = (
        spark.read.format("pulsar_offload")
        .options(topic="small-transactions", columns=",".join(COLUMNS))
        .options(**storage)
        .option("managedLedgerOffloadDriver", "aws-s3")
        .option("managedLedgerOffloadBucket", address.url.removeprefix("s3://"))
        .option("managedLedgerOffloadServiceEndpoint", s3_server.endpoint_url)
        .option("managedLedgerOffloadRegion", REGION)
        .load()
    )

    assert table_rows(by_url.toArrow()) == golden_rows(
        topics_named("small-partitioned", "small-chunked")
    )
    assert table_rows(by_broker_conf.toArrow()) == golden_rows(topics_named("small-transactions"))


# Secrets


@pytest.mark.spark
def test_queries_show_no_secret(
    spark: SparkSession, spark_log: Path, bucket: str, damaged_bucket: Path
) -> None:
    """No value of a storage option is in a plan, a web page, an error, or the log."""
    # Without a word by which Spark would mask it, such as "secret".
    marker = "MARKER4711"
    options = {
        "storage__key": marker,
        "storage__anything": marker,
        "storage__nested__x": marker,
        "storage_options": f'{{"more": "{marker}"}}',
    }
    orders = frame(spark, bucket, "json-orders", **options)
    counts = orders.groupBy("__key__").count()
    errors = []

    rows = counts.collect()
    for url, topic, more in (
        (damaged_bucket, "json-orders", {}),
        (bucket, "json-ordes", {}),
        (bucket, "json-orders", {"storage__key__x": marker}),
        (f"s3://{marker}:{marker}@bucket", "json-orders", {}),
    ):
        with pytest.raises((AnalysisException, PythonException)) as caught:
            frame(spark, url, topic, **options, **more).count()
        errors.append(str(caught.value))

    assert rows
    assert "BatchScan pulsar_offload" in said_of(orders)
    assert marker not in said_of(orders)
    assert marker not in said_of(counts)
    assert "BatchScan pulsar_offload" in web_pages(spark)
    assert marker not in web_pages(spark)
    assert marker not in "".join(errors)
    assert "ChecksumError" in spark_log.read_text(encoding="utf-8")
    assert marker not in spark_log.read_text(encoding="utf-8")


def make_view_by_sql(spark: SparkSession, url: str, option: str, value: str) -> None:
    """Make a view by a statement that has the options in it."""
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW strings USING pulsar_offload"
        f" OPTIONS (url '{url}', topic 'string', {option} '{value}')"
    )


def make_view_of_frame(spark: SparkSession, url: str, option: str, value: str) -> None:
    """Make a view of a data frame, and one of that view."""
    reader = spark.read.format("pulsar_offload").options(url=url, topic="string")
    reader.option(option, value).load().createOrReplaceTempView("strings")
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW more AS SELECT * FROM strings")


@pytest.mark.spark
@pytest.mark.parametrize("make_view", [make_view_by_sql, make_view_of_frame])
def test_views_show_what_spark_does_not_mask(
    spark: SparkSession, bucket: str, make_view: Callable[[SparkSession, str, str, str], None]
) -> None:
    """Where a view is made, Spark masks options by their names: `secret.` in front hides any."""

    def shown(option: str) -> bool:
        marker = f"MARKER{option.replace('secret', '').replace('token', '')}"
        before = web_pages(spark)
        make_view(spark, bucket, option, marker)
        assert spark.table("strings").count() == golden_topic("string").message_count
        return marker in web_pages(spark).removeprefix(before)

    assert not shown("secret.account_key")
    assert not shown("secret.nested.key")
    assert not shown("storage.secret")
    assert not shown("storage.token")
    # Why the documentation tells to write secret. in front.
    assert shown("storage.account_key")
    spark.conf.set("spark.sql.redaction.options.regex", "(?i)url|storage")
    try:
        assert not shown("storage.account_name")
    finally:
        spark.conf.unset("spark.sql.redaction.options.regex")


@pytest.mark.spark
def test_a_ledger_that_is_trimmed_before_its_task_is_no_damage(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Tasks ask the cluster what became of objects that were there when the read was planned."""
    with trimmed_topic(tmp_path / "bucket") as topic:
        planned = frame(spark, topic.url, TOPIC, metadata=topic.metadata, value="raw").rdd
        topic.lose()
        with pytest.raises(Exception, match="MissingObjectError"):
            planned.collect()
        topic.trim()
        with pytest.raises(Exception, match="TrimmedEntriesError: the cluster trimmed the ledger"):
            planned.collect()
