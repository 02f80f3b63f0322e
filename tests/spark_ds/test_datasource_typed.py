"""Typed columns in Spark: each type of the tables, each way to give a schema, and golden values."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PythonException

from connector import open_topic, write_messages
from spark_ds.column_types import spark_schema
from tests.spark_ds.queries import frame
from tests.support.golden import golden_topic
from tests.support.golden_values import comparable, expected_values
from tests.support.registries import recorded_messages, running_registry
from tests.support.typed_topics import TYPED_TOPICS, TypedTopic, type_in_engine, write_topics

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ORDERS: Final = golden_topic("json-orders")
ORDERS_SCHEMA: Final = str(ORDERS.folder / "schemas-rest.json")
POSITION: Final = ("__ledger_id__", "__entry_id__", "__batch_index__")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bucket with all typed topics."""
    path = tmp_path_factory.mktemp("typed")
    write_topics(path)
    return path


def golden_frame(spark: SparkSession, name: str, **options: object) -> DataFrame:
    """A golden topic with its schema."""
    topic = golden_topic(name)
    schema = str(topic.folder / "schemas-rest.json")
    return frame(spark, topic.objects_folder, name, **({"schema": schema} | options))


@pytest.mark.parametrize("topic", TYPED_TOPICS, ids=lambda topic: topic.name)
def test_types_are_those_of_the_table(spark: SparkSession, folder: Path, topic: TypedTopic) -> None:
    """Each column has the type that the table tells, and each value; times of day are numbers."""
    columns = list(topic.type_of)
    schema = json.dumps(topic.schema)
    dataset = open_topic(str(folder), topic.name, schema=schema, time_unit="us", columns=columns)
    expected = dataset.to_table()

    typed = frame(spark, folder, topic.name, schema=schema, columns=",".join(columns))
    table = typed.toArrow()

    assert {field.name: field.dataType.simpleString() for field in typed.schema} == {
        field.name: type_in_engine(field.type, "Spark") for field in expected.schema
    }
    assert typed.count() == len(expected)
    assert table.cast(spark_schema(expected.schema)).num_rows == len(expected)
    for name in columns:
        assert comparable(table[name]) == comparable(expected[name])


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("avro-logical", "struct"),
        ("avro-evolved", "struct"),
        ("json-orders", "struct"),
        ("protobuf-native", "struct"),
        ("clients-cpp-avro", "struct"),
        ("kv-avro-separated", "struct"),
        ("kv-json-inline", "struct"),
        ("timestamp", "flat"),
        ("local-date", "flat"),
    ],
)
def test_values_are_those_of_pulsars_client(spark: SparkSession, name: str, shape: str) -> None:
    """Each value of a golden topic, and each key, is what Pulsar's client decoded."""
    expected = expected_values(golden_topic(name), "us")
    has_key = any(row.key is not None for row in expected)
    columns = [*POSITION, "__value__", *(["__key"] if has_key else [])]

    table = golden_frame(spark, name, value=shape, columns=",".join(columns)).toArrow()

    rows = dict(
        zip(
            zip(*(table[column].to_pylist() for column in POSITION), strict=True),
            zip(*(comparable(table[column]) for column in columns[3:]), strict=True),
            strict=True,
        )
    )
    assert rows == {
        (row.ledger_id, row.entry_id, row.batch_index): (
            (row.value, row.key) if has_key else (row.value,)
        )
        for row in expected
    }


# How a schema is given


def test_schema_is_given_by_each_way_to_give_an_option(spark: SparkSession) -> None:
    """`option`, `options` and SQL hand it on; a version and a shape are picked beside it."""
    evolved = golden_topic("avro-evolved")
    url, path = str(evolved.objects_folder), str(evolved.folder / "schemas-rest.json")
    reader = spark.read.format("pulsar_offload").option("url", url).option("topic", "avro-evolved")
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW typed USING pulsar_offload"
        f" OPTIONS (url '{url}', topic 'avro-evolved', schema '{path}', schemaVersion 0)"
    )

    newest = reader.option("schema", path).load()
    oldest = reader.options(schema=path, schema_version=0, value="struct").load()

    names = open_topic(url, "avro-evolved", schema=path, schema_version=0).schema.names
    assert newest.columns == open_topic(url, "avro-evolved", schema=path).schema.names
    assert spark.table("typed").columns == names != newest.columns
    assert oldest.select("__value__.*").columns == [
        name for name in names if not name.startswith("__")
    ]
    assert spark.table("typed").count() == evolved.message_count


def test_executors_ask_a_registry(spark: SparkSession, tmp_path: Path) -> None:
    """Each message is decoded by the schema of its id, which executors request themselves."""
    messages = recorded_messages("orders-value")
    payloads = pa.table({"__value__": [each.payload for each in messages]})
    write_messages(str(tmp_path), "topic", payloads)
    with running_registry(authorization="Bearer t0ken") as server:
        options = {
            "schema": f"confluent:{server.url}#orders-value",
            "secret.schema_options": '{"token": "t0ken"}',
            "columns": "id,note",
        }
        rows = frame(spark, tmp_path, "topic", **options).collect()
        asked = {path for path in server.paths if "/ids/" in path}
    assert [row["id"] for row in rows] == [each.value["id"] for each in messages]
    assert [row["note"] for row in rows] == [each.value.get("note", "none") for each in messages]
    assert asked == {f"/schemas/ids/{each.payload[4]}" for each in messages}


def test_columns_named_by_sparks_schema(spark: SparkSession, bucket: str) -> None:
    """`.schema(…)` picks typed columns, nested ones whole, and has to give their types."""
    reader = (
        spark.read.format("pulsar_offload")
        .option("url", bucket)
        .option("topic", "json-orders")
        .option("schema", ORDERS_SCHEMA)
    )

    chosen = reader.schema("status STRING, items ARRAY<STRUCT<attrs: MAP<STRING, STRING>,"
                           " price: DOUBLE, qty: INT, sku: STRING>>").load()  # fmt: skip

    assert chosen.columns == ["status", "items"]
    assert chosen.filter("status = 'NEW'").count() == 87
    with pytest.raises(AnalysisException, match="column total is of type double, not string"):
        reader.schema("total STRING").load().count()
    with pytest.raises(AnalysisException, match=r"no column 'totals'; the columns are: .*total"):
        reader.schema("totals DOUBLE").load().count()


# Times


def test_times_of_day_are_numbers(spark: SparkSession) -> None:
    """A frame with one is counted, grouped and written; `time_from_micros` makes a TIME of it."""
    logical = golden_frame(spark, "avro-logical", columns="tms,tus")
    values = [row.value for row in expected_values(golden_topic("avro-logical"), "us")]

    assert logical.count() == len(values)
    assert logical.groupBy("tms").count().count() == len({value["tms"] for value in values})
    assert logical.filter("tus = 0").count() == sum(value["tus"] == 0 for value in values)
    spark.conf.set("spark.sql.timeType.enabled", value=True)
    try:
        times = logical.selectExpr("CAST(time_from_micros(tus) AS STRING)").collect()
    finally:
        spark.conf.unset("spark.sql.timeType.enabled")
    assert [_micros(row[0]) for row in times] == [value["tus"] for value in values]


def _micros(time: str) -> int:
    match = re.fullmatch(r"(\d\d):(\d\d):(\d\d)(?:\.(\d+))?", time)
    assert match is not None
    hours, minutes, seconds = map(int, match.groups()[:3])
    return ((hours * 60 + minutes) * 60 + seconds) * 10**6 + int((match[4] or "").ljust(6, "0"))


def test_nanoseconds_are_an_error(spark: SparkSession, bucket: str) -> None:
    """What microseconds cannot hold is an error with its place; salvaged, it is null."""
    for name, schema in (("instant", "INSTANT"), ("local-time", "LOCAL_TIME")):
        expected = expected_values(golden_topic(name), "us")
        with pytest.raises(PythonException, match=r"PayloadDecodeError: .*ledger .*entry"):
            frame(spark, bucket, name, schema=schema).collect()
        salvaged = frame(spark, bucket, name, schema=schema, failOnDataLoss=False)

        assert comparable(salvaged.toArrow()["__value__"]) == [row.value for row in expected]
        assert not all(row.fits for row in expected)


def test_types_without_times_are_left_as_they_are() -> None:
    """Only times of day become another type, wherever they are nested."""
    time, number = pa.time64("us"), pa.int64()

    def nested(type_: pa.DataType) -> pa.DataType:
        item = pa.field("element", pa.struct([("a", type_), ("b", pa.string())]))
        return pa.map_(pa.string(), pa.field("value", pa.list_(item)))

    schema = pa.schema([("t", time), ("n", nested(time)), ("s", pa.timestamp("us", "UTC"))])

    assert spark_schema(schema) == pa.schema(
        [("t", number), ("n", nested(number)), ("s", pa.timestamp("us", "UTC"))]
    )
