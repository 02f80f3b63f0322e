"""Change events of Debezium are read as the rows that they change."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import OptionError, PayloadDecodeError, SchemaError
from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema
from arrow_io.read_metrics import Tally
from connector import open_topic, register_duckdb
from tests.support.buckets import memory_bucket
from tests.support.debezium import (
    KEY_SCHEMA,
    ROW_SCHEMA,
    Event,
    connect_recording,
    envelope,
    envelope_schema,
    event_objects,
    key_value,
    recording,
)
from tests.support.entries import Message
from tests.support.payload_rows import NULL, messages, rows_of, values_of, version_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from tests.support.debezium import Form

CUSTOMERS: Final = ("postgresql", "server.public.customers")
ORDERS: Final = ("mariadb", "mysrv.shop.orders")
SCHEMA: Final = TopicSchema(
    key_value("json", json.dumps(KEY_SCHEMA), json.dumps(envelope_schema()))
)
VALUES: Final = TopicSchema(SchemaInfo("JSON", json.dumps(envelope_schema())))
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_HEARTBEAT: Final = {"ts_ms": 1}
_CHANGES: Final = ("__op", "__deleted", "__source_ts")


def _unwrapped(events: Sequence[Event], schema: TopicSchema, **options: Any) -> pa.Table:  # noqa: ANN401
    separated = schema.reader.is_separated
    with memory_bucket(event_objects(events, separated=separated)) as bucket:
        return open_topic(
            bucket.url, "orders", schema=schema, unwrap="debezium", **options
        ).to_table()


def expected(event: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """What an envelope says of its row, without conversions; of a null value, that it deletes."""
    if event is None:
        return {"__op": None, "__deleted": True, "__source_ts": None}
    row = event.get("after") or (event.get("before") if event.get("op") == "d" else None) or {}
    source = event.get("source")
    time = None if source is None else _EPOCH + dt.timedelta(milliseconds=source["ts_ms"])
    changes = {"__op": event.get("op"), "__deleted": event.get("op") == "d", "__source_ts": time}
    return row | changes


@pytest.mark.parametrize("separated", [True, False])
@pytest.mark.parametrize("form", ["json", "avro"])
@pytest.mark.parametrize("topic", [CUSTOMERS, ORDERS])
def test_what_connectors_wrote(topic: tuple[str, str], form: Form, separated: bool) -> None:
    """JSON and Avro, keys apart or not: the rows are those of the JSON, before and after a DDL."""
    recorded = recording(*topic, form, separated=separated)

    table = _unwrapped(recorded.events, recorded.schema)

    plain = "id name active doc notes email ref paid ratio tags region number state note big score"
    names = [each for each in (*plain.split(), *_CHANGES) if each in table.schema.names]
    wanted = [expected(each) for each in recorded.rows]
    assert table.select(names).to_pylist() == [
        {name: each.get(name) for name in names} for each in wanted
    ]


def _time(microsecond: int) -> dt.datetime:
    return dt.datetime(2024, 5, 6, 7, 8, 9, microsecond, tzinfo=dt.UTC).replace(tzinfo=None)


@pytest.mark.parametrize("form", ["json", "avro"])
def test_types_of_debezium(form: Form) -> None:
    """Numbers that Debezium names as times are times, and decimals are exact."""
    customers = recording(*CUSTOMERS, form)
    orders = recording(*ORDERS, form)

    [customer, *_] = _unwrapped(customers.events, customers.schema).to_pylist()
    [order, *_] = _unwrapped(orders.events, orders.schema).to_pylist()

    assert customer["balance"] == Decimal("10.50")
    assert customer["born"] == dt.date(1990, 2, 3)
    assert customer["wakes"] == dt.time(6, 30, 15, 1)
    assert customer["seen"] == _time(123456)
    assert customer["millis"] == _time(123000)
    assert customer["paid"] == "2024-05-06T05:08:09.123456Z"
    assert customer["photo"] == b"\0\xff\x10"
    assert customer["any_number"] == {"scale": 3, "value": (123456).to_bytes(3)}
    assert order["amount"] == Decimal("12.345")
    assert order["placed"] == _time(123456)
    assert order["day"] == dt.date(2024, 5, 6)
    assert order["at"] == dt.time(13, 14, 15, 250000)
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


_ROWS: Final = st.fixed_dictionaries(
    {
        "id": st.integers(0, 3),
        "name": st.none() | st.sampled_from(["a", "é"]),
        "tags": st.none() | st.lists(st.text("ab", max_size=2), max_size=2),
    }
)
_EVENTS: Final = st.one_of(
    st.none(),
    st.just(_HEARTBEAT),
    st.builds(envelope, st.sampled_from("cru"), st.none() | _ROWS, _ROWS, st.integers(0, 10**12)),
    st.builds(envelope, st.just("d"), st.none() | _ROWS, st.none()),
    st.just(envelope("t", None, None)),
)
_WRONG: Final = st.sampled_from(
    [
        {"id": 1},
        {},
        envelope("x", None, None),
        envelope("u", {"id": 1, "name": None, "tags": None}, None),
        {"before": {"id": 1}, "ts_ms": 1},
    ]
)


def _values(events: Sequence[object]) -> list[Message]:
    payloads = [None if each is None else json.dumps(each).encode() for each in events]
    return messages(*payloads)


@pytest.mark.usefixtures("build")
@given(
    st.lists(_EVENTS, min_size=1, max_size=6),
    st.lists(st.sampled_from([*_CHANGES, "id", "name", "tags"]), min_size=1, unique=True),
)
def test_columns_of_any_events(events: list[Any], names: list[str]) -> None:
    """Whichever columns are read, each has the same values, and each message has one row."""
    found = values_of(VALUES, rows_of((None, _values(events))), names=names, is_unwrapped=True)

    wanted = [expected(each) for each in events]
    for each in wanted:
        if each["__source_ts"] is not None:
            each["__source_ts"] = (each["__source_ts"] - _EPOCH) // dt.timedelta(microseconds=1)
    assert found == {name: [each.get(name) for each in wanted] for name in names}


@pytest.mark.usefixtures("build")
@given(
    st.lists(_EVENTS, max_size=3),
    _WRONG,
    st.lists(_EVENTS | _WRONG, max_size=3),
    st.sampled_from([*_CHANGES, "name"]),
)
def test_values_that_are_no_envelopes(
    first: list[Any],
    wrong: Any,  # noqa: ANN401
    last: list[Any],
    name: str,
) -> None:
    """The first is an error with its position, or all are null and counted."""
    rows = rows_of((None, _values([*first, wrong, *last])))
    with pytest.raises(PayloadDecodeError, match="envelope") as caught:
        values_of(VALUES, rows, names=[name], is_unwrapped=True)
    assert caught.value.batch_index is not None

    rows = rows_of((None, _values([*first, wrong, *last])))
    tally = Tally(salvage=True)
    found = values_of(VALUES, rows, names=[name, "__deleted"], is_unwrapped=True, tally=tally)
    assert found[name][len(first)] is None
    assert found["__deleted"][len(first)] is None
    assert sum(tally.metrics.lost.values()) == found["__deleted"].count(None)


def test_values_that_are_lost_delete_nothing() -> None:
    """A value that is no JSON is null and counted, but it is no tombstone."""
    rows = rows_of((None, [Message(payload=b"{"), NULL]))
    found = values_of(VALUES, rows, is_unwrapped=True, tally=Tally(salvage=True))
    assert found["__deleted"] == [None, True]
    assert found["id"] == [None, None]


def _named(kind: str, name: str, **more: object) -> dict[str, object]:
    return {"type": kind, "connect.version": 1, "connect.name": name, **more}


def _decimal(scale: int) -> dict[str, object]:
    return _named(
        "bytes",
        "org.apache.kafka.connect.data.Decimal",
        logicalType="decimal",
        precision=10,
        scale=scale,
    )


_TIME: Final = "io.debezium.time."


@pytest.mark.usefixtures("build")
def test_units_of_older_versions() -> None:
    """JSON has numbers without units: those of a message are in the schema that it names."""
    older = {
        "seen": _named("long", f"{_TIME}Timestamp"),
        "at": _named("int", f"{_TIME}Time"),
        "times": {"type": "array", "items": _named("long", f"{_TIME}Timestamp")},
        "price": _decimal(2),
    }
    newer = {
        "seen": _named("long", f"{_TIME}MicroTimestamp"),
        "at": _named("long", f"{_TIME}MicroTime"),
        "times": {"type": "array", "items": _named("long", f"{_TIME}NanoTimestamp")},
        "price": _decimal(2) | {"precision": 12},
    }
    versions = tuple(
        (number, SchemaInfo("JSON", json.dumps(envelope_schema(_row_of(fields)))))
        for number, fields in enumerate((older, newer))
    )
    rows = [
        {"seen": 7, "at": 8, "times": [9], "price": "AYY="},
        {"seen": 7000, "at": 8000, "times": [9_000_000], "price": "AYY="},
    ]
    groups = [
        (version_bytes(number), _values([envelope("c", None, row)]))
        for number, row in enumerate(rows)
    ]
    found = values_of(
        TopicSchema(versions[-1][1], versions),
        rows_of(*groups),
        names=["seen", "at", "times", "price"],
        is_unwrapped=True,
        time_unit="us",
    )
    assert found == {
        "seen": [7000, 7000],
        "at": [8000, 8000],
        "times": [[9000], [9000]],
        "price": [Decimal("3.90"), Decimal("3.90")],
    }


def _row_of(fields: dict[str, Any]) -> dict[str, Any]:
    members = [{"name": name, "type": ["null", each]} for name, each in fields.items()]
    return ROW_SCHEMA | {"fields": members}


@pytest.mark.parametrize("is_unwrapped", [True, False])
def test_decimals_of_another_scale(is_unwrapped: bool) -> None:
    """Their bytes have no scale, so a message of an older scale is an error, and not wrong."""
    versions = tuple(
        (number, SchemaInfo("JSON", json.dumps(envelope_schema(_row_of({"price": _decimal(n)})))))
        for number, n in enumerate((2, 3))
    )
    schema = TopicSchema(versions[-1][1], versions)
    event = _values([envelope("c", None, {"price": "AYY="})])
    names = ["price" if is_unwrapped else "after"]
    read = partial(values_of, schema, names=names, is_unwrapped=is_unwrapped)

    with pytest.raises(PayloadDecodeError, match="another type"):
        read(rows_of((version_bytes(0), event)))
    assert read(rows_of((version_bytes(1), event)))[names[0]][0] in (
        Decimal("0.390"),
        {"price": Decimal("0.390")},
    )


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize(("precision", "scale"), [(12, 2), (8, 2), (10, 3)])
def test_decimals_of_avro(precision: int, scale: int) -> None:
    """A column that became wider is read from older messages too; other changes are errors."""
    reader = _row_of({"price": _decimal(scale) | {"precision": precision}})
    versions = tuple(
        (number, SchemaInfo("AVRO", json.dumps(row)))
        for number, row in enumerate((_row_of({"price": _decimal(2)}), reader))
    )
    schema = TopicSchema(versions[-1][1], versions)
    rows = rows_of((version_bytes(0), messages(b"\2\4\1\x86")))
    if (precision, scale) == (12, 2):
        assert values_of(schema, rows) == {"price": [Decimal("3.90")]}
        return
    with pytest.raises(PayloadDecodeError, match="does not accept the type"):
        values_of(schema, rows)


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


def test_in_duckdb(url: str, tmp_path: Any) -> None:  # noqa: ANN401
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


_FIELD: Final = {"type": "int32", "optional": False, "field": "a"}
_MAP: Final = {
    "type": "map",
    "keys": {"type": "string", "optional": False},
    "values": {"type": "int8", "optional": True},
    "field": "b",
}
_DAY: Final = {
    "type": "int32",
    "optional": True,
    "name": "org.apache.kafka.connect.data.Date",
    "field": "c",
}


@pytest.mark.parametrize(
    ("fields", "value", "expected"),
    [
        ([_FIELD], {"a": 1}, {"a": [1]}),
        ([_MAP, _DAY], {"b": {"x": None}, "c": 1}, {"b": [{"x": None}], "c": [1]}),
        ([{"type": "array", "items": _DAY, "field": "d"}], {"d": [1]}, {"d": [[1]]}),
    ],
)
def test_schemas_of_kafka_connect(fields: object, value: object, expected: object) -> None:
    """They define columns of JSON like a schema of Avro does."""
    definition = json.dumps({"type": "struct", "fields": fields, "optional": False})
    rows = rows_of((None, messages(json.dumps(value).encode())))
    assert values_of(TopicSchema(SchemaInfo("JSON", definition)), rows) == expected


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "struct", "fields": [{"type": "int128", "field": "a"}]},
        {"type": "struct", "fields": [{"type": ["int32"], "field": "a"}]},
        {"type": "struct", "fields": ["field"]},
        {"type": "struct", "field": "a"},
        {"type": "struct", "fields": [{"type": "array", "field": "a"}]},
        {"type": "struct", "fields": [_MAP | {"keys": {"type": "int32"}}]},
        {"type": "struct", "fields": [{"type": "int32", "field": ["a"]}]},
        {"type": "struct", "fields": [_FIELD, _FIELD]},
    ],
    ids=str,
)
def test_malformed_schemas_of_kafka_connect(schema: object) -> None:
    """They are errors of the schema."""
    with pytest.raises(SchemaError):
        values_of(
            TopicSchema(SchemaInfo("JSON", json.dumps(schema))), rows_of((None, messages(b"{}")))
        )


def test_columns_with_the_names_of_others() -> None:
    """A column of the table whose name is taken gets a suffix, as everywhere."""
    row = ROW_SCHEMA | {
        "fields": [{"name": "__op", "type": "int"}, {"name": "__key__", "type": "int"}]
    }
    schema = TopicSchema(SchemaInfo("JSON", json.dumps(envelope_schema(row))))
    event = envelope("c", None, {"__op": 7, "__key__": 8})
    found = values_of(
        schema, rows_of((None, _values([event]))), is_unwrapped=True, reserved=("__key__",)
    )
    assert {name: found[name] for name in ("__op", "__op_2", "__key___2")} == {
        "__op": ["c"],
        "__op_2": [7],
        "__key___2": [8],
    }


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


@pytest.mark.parametrize("offset", ["-1", "x", "99999"])
def test_offsets_that_are_none(offset: str) -> None:
    """A property of a hostile schema is an error of the schema."""
    properties = (("__AVRO_READ_OFFSET__", offset),)
    schema = TopicSchema(SchemaInfo("AVRO", json.dumps(ROW_SCHEMA), properties))
    with pytest.raises(SchemaError, match="not a number of bytes"):
        values_of(schema, rows_of((None, messages(b"\0"))))


def test_offsets_of_other_types() -> None:
    """Only records are known to have bytes before them."""
    schema = TopicSchema(SchemaInfo("AVRO", '"long"', (("__AVRO_READ_OFFSET__", "5"),)))
    with pytest.raises(SchemaError, match="supported for records only"):
        values_of(schema, rows_of((None, messages(b"\0"))))
