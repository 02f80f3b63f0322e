"""Change events of Debezium are read as the rows that they change."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from arrow_io.errors import OptionError
from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema
from connector import open_topic, register_duckdb, write_messages
from tests.support.buckets import MemoryBucket, memory_bucket
from tests.support.debezium import (
    CHANGES,
    KEY_SCHEMA,
    ROW_SCHEMA,
    Event,
    connect_recording,
    envelope_schema,
    event_objects,
    expected_row,
    key_value,
    recording,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.support.debezium import Form

CUSTOMERS: Final = ("postgresql", "server.public.customers")
ORDERS: Final = ("mariadb", "mysrv.shop.orders")
SCHEMA: Final = TopicSchema(
    key_value("json", json.dumps(KEY_SCHEMA), json.dumps(envelope_schema()))
)


def _unwrapped(events: Sequence[Event], schema: TopicSchema, **options: Any) -> pa.Table:  # noqa: ANN401
    separated = schema.reader.is_separated
    with memory_bucket(event_objects(events, separated=separated)) as bucket:
        return open_topic(
            bucket.url, "orders", schema=schema, unwrap="debezium", **options
        ).to_table()


@pytest.mark.parametrize("separated", [True, False])
@pytest.mark.parametrize("form", ["json", "avro"])
@pytest.mark.parametrize("topic", [CUSTOMERS, ORDERS])
def test_what_connectors_wrote(topic: tuple[str, str], form: Form, separated: bool) -> None:
    """JSON and Avro, keys apart or not: the rows are those of the JSON, before and after a DDL."""
    recorded = recording(*topic, form, separated=separated)

    table = _unwrapped(recorded.events, recorded.schema)

    plain = "id name active doc notes email ref paid ratio tags region number state note big score"
    names = [each for each in (*plain.split(), *CHANGES) if each in table.schema.names]
    wanted = [expected_row(each) for each in recorded.rows]
    assert table.select(names).to_pylist() == [
        {name: each.get(name) for name in names} for each in wanted
    ]


def _time(microsecond: int) -> dt.datetime:
    return dt.datetime(2024, 5, 6, 7, 8, 9, microsecond, tzinfo=dt.UTC).replace(tzinfo=None)


@pytest.mark.parametrize("form", ["json", "avro"])
def test_types_of_debezium(form: Form) -> None:
    """Numbers that Debezium names as dates are dates, and decimals are exact; times are numbers."""
    customers = recording(*CUSTOMERS, form)
    orders = recording(*ORDERS, form)

    [customer, *_] = _unwrapped(customers.events, customers.schema).to_pylist()
    [order, *_] = _unwrapped(orders.events, orders.schema).to_pylist()

    assert customer["balance"] == Decimal("10.50")
    assert customer["born"] == dt.date(1990, 2, 3)
    assert customer["wakes"] == 23_415_000_001
    assert customer["seen"] == _time(123456)
    assert customer["millis"] == _time(123000)
    assert customer["paid"] == "2024-05-06T05:08:09.123456Z"
    assert customer["photo"] == b"\0\xff\x10"
    assert customer["any_number"] == {"scale": 3, "value": (123456).to_bytes(3)}
    assert order["amount"] == Decimal("12.345")
    assert order["placed"] == _time(123456)
    assert order["day"] == dt.date(2024, 5, 6)
    assert order["at"] == 47_655_250_000
    assert order["raw"] == b"\0\xff"


@pytest.mark.parametrize("form", ["json", "avro"])
def test_without_unwrapping(form: Form) -> None:
    """Values of Kafka Connect are also read as they are: Avro's five bytes are no part of them."""
    recorded = recording(*CUSTOMERS, form)
    with memory_bucket(event_objects(recorded.events)) as bucket:
        rows = open_topic(bucket.url, "orders", schema=recorded.schema).to_table().to_pylist()

    assert [row["op"] for row in rows] == [
        None if each is None else each["op"] for each in recorded.rows
    ]
    assert rows[0]["after"]["balance"] == Decimal("10.50")
    assert rows[0]["source"]["ts_ms"] == recorded.rows[0]["source"]["ts_ms"]  # type: ignore[index]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A bucket with the messages of a connector."""
    recorded = recording(*CUSTOMERS, "json")
    with memory_bucket(event_objects(recorded.events)) as bucket:
        yield bucket.url


@pytest.mark.parametrize(
    "expression",
    [
        pc.field("__op") == "d",
        pc.field("__deleted"),
        pc.field("id") == 1,
        (pc.field("name") == "Anna") & (pc.field("__op") != "r"),
        pc.field("__op").is_null(),
    ],
    ids=str,
)
def test_filters(url: str, expression: pc.Expression) -> None:
    """Predicates are exact on columns of the change and of the row."""
    schema = recording(*CUSTOMERS, "json").schema
    topic = open_topic(url, "orders", schema=schema, unwrap="debezium")

    assert topic.to_table(filter=expression) == topic.to_table().filter(expression)
    assert topic.count_rows(filter=expression) == topic.to_table().filter(expression).num_rows


def test_in_duckdb(url: str, tmp_path: Path) -> None:
    """The option has the same name in SQL."""
    recorded = recording(*CUSTOMERS, "json")
    schema = tmp_path / "schema.json"
    info = recorded.schema.reader
    assert info.key is not None
    assert info.value is not None
    schema.write_text(
        json.dumps(
            {
                "type": "KEY_VALUE",
                "data": {"key": json.loads(info.key.data), "value": json.loads(info.value.data)},
                "properties": {
                    "kv.encoding.type": "SEPARATED",
                    "key.schema.type": "JSON",
                    "value.schema.type": "JSON",
                },
            }
        )
    )
    connection = duckdb.connect()
    register_duckdb(connection)
    rows = connection.execute(
        "SELECT __op, count(*)"
        " FROM read_pulsar('orders', url := ?, schema := ?, unwrap := 'debezium')"
        " GROUP BY __op ORDER BY __op",
        [url, str(schema)],
    ).fetchall()
    assert rows == [("c", 4), ("d", 3), ("r", 2), ("t", 1), ("u", 3), (None, 3)]


@pytest.mark.parametrize("topic", [CUSTOMERS, ORDERS])
def test_values_with_their_schema(topic: tuple[str, str]) -> None:
    """With `json-with-envelope`, one of the values is the schema of all, inline with its key."""
    recorded, events, definition = connect_recording(*topic)
    schema = {
        "type": "KEY_VALUE",
        "data": definition,
        "properties": {"key.schema.type": "JSON", "value.schema.type": "JSON"},
    }

    with memory_bucket(event_objects(events, separated=False)) as bucket:
        table = open_topic(bucket.url, "orders", schema=schema, unwrap="debezium").to_table()

    own = _unwrapped(recorded.events, recorded.schema)
    payload_key = "__key.payload"
    names = [each for each in own.schema.names if not each.startswith("__key")]
    assert table.select(names) == own.select(names)
    first = own.select([each for each in own.schema.names if each.startswith("__key.")]).to_pylist()
    assert [list((row[payload_key] or {}).values()) for row in table.to_pylist()] == [
        [each for each in row.values() if each is not None] for row in first
    ]


def test_schemas_of_a_registry(tmp_path: Path) -> None:
    """Debezium's connectors for Kafka write the id of a schema, as Pulsar's sources do."""
    recorded = recording(*ORDERS, "avro")
    ids = {each.version: each.value[4] for each in recorded.events if each.value}
    answers = [
        {
            "subject": "orders-value",
            "version": version + 1,
            "id": ids[version],
            "schemaType": "AVRO",
            "references": [],
            "schema": "" if info.value is None else info.value.data,
        }
        for version, info in recorded.schema.versions
    ]
    registry = tmp_path / "registry.json"
    registry.write_text(json.dumps(answers), "utf-8")
    values = pa.array([each.value for each in recorded.events], pa.binary())
    bucket = MemoryBucket()
    write_messages(bucket.url, "orders", pa.table({"__value__": values}))
    schema = f"confluent:{registry}#orders-value"

    table = open_topic(bucket.url, "orders", schema=schema, unwrap="debezium").to_table()

    own = _unwrapped(recorded.events, recorded.schema)
    names = [each for each in own.schema.names if not each.endswith("__") and each[:5] != "__key"]
    assert table.select(names) == own.select(names)
    bucket.drop()


def test_the_latest_view(url: str) -> None:
    """The last message of a key that was deleted is its delete, unless a tombstone follows."""
    schema = recording(*CUSTOMERS, "json").schema
    topic = open_topic(url, "orders", schema=schema, unwrap="debezium", view="latest")
    rows = topic.to_table(columns=["__key.id", "__op", "name"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        (1, "u", "Anne"),
        (5, "c", "Eve"),
        (6, "c", "Fay"),
    ]


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        (TopicSchema(SchemaInfo("STRING")), {}, "fields of their schema are: none"),
        (
            TopicSchema(SchemaInfo("JSON", json.dumps(ROW_SCHEMA))),
            {},
            "fields of their schema are: id, name, tags",
        ),
        (SCHEMA, {"value": "struct"}, "cannot be combined with value='struct'"),
        (SCHEMA, {"value": "raw"}, "cannot be combined with value='raw'"),
        (None, {}, "needs the schema of the values"),
    ],
)
def test_what_cannot_be_unwrapped(
    schema: TopicSchema | None, options: dict[str, str], message: str
) -> None:
    """The error says what the option needs, before anything is read."""
    with pytest.raises(OptionError, match=message):
        open_topic("memory://none", "orders", schema=schema, unwrap="debezium", **options)  # type: ignore[arg-type]
