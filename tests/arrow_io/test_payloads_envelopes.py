"""Envelopes of Debezium become columns, whatever they hold, or are errors of their values."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import PayloadDecodeError, SchemaError
from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema
from arrow_io.read_metrics import Tally
from tests.support.debezium import (
    CHANGES,
    EPOCH,
    ROW_SCHEMA,
    envelope,
    envelope_schema,
    expected_row,
)
from tests.support.entries import Message
from tests.support.payload_rows import NULL, messages, rows_of, values_of, version_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence


VALUES: Final = TopicSchema(SchemaInfo("JSON", json.dumps(envelope_schema())))
_HEARTBEAT: Final = {"ts_ms": 1}
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
    st.lists(st.sampled_from([*CHANGES, "id", "name", "tags"]), min_size=1, unique=True),
)
def test_columns_of_any_events(events: list[Any], names: list[str]) -> None:
    """Whichever columns are read, each has the same values, and each message has one row."""
    found = values_of(VALUES, rows_of((None, _values(events))), names=names, is_unwrapped=True)

    wanted = [expected_row(each) for each in events]
    for each in wanted:
        if each["__source_ts"] is not None:
            each["__source_ts"] = (each["__source_ts"] - EPOCH) // dt.timedelta(microseconds=1)
    assert found == {name: [each.get(name) for each in wanted] for name in names}


@pytest.mark.usefixtures("build")
@given(
    st.lists(_EVENTS, max_size=3),
    _WRONG,
    st.lists(_EVENTS | _WRONG, max_size=3),
    st.sampled_from([*CHANGES, "name"]),
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
        "day": _named("int", f"{_TIME}Date"),
        "times": {"type": "array", "items": _named("long", f"{_TIME}Timestamp")},
        "price": _decimal(2),
    }
    newer = {
        "seen": _named("long", f"{_TIME}MicroTimestamp"),
        "day": _named("int", f"{_TIME}Date"),
        "times": {"type": "array", "items": _named("long", f"{_TIME}NanoTimestamp")},
        "price": _decimal(2) | {"precision": 12},
    }
    versions = tuple(
        (number, SchemaInfo("JSON", json.dumps(envelope_schema(_row_of(fields)))))
        for number, fields in enumerate((older, newer))
    )
    rows = [
        {"seen": 7, "day": 8, "times": [9], "price": "AYY="},
        {"seen": 7000, "day": 8, "times": [9_000_000], "price": "AYY="},
    ]
    groups = [
        (version_bytes(number), _values([envelope("c", None, row)]))
        for number, row in enumerate(rows)
    ]
    found = values_of(
        TopicSchema(versions[-1][1], versions),
        rows_of(*groups),
        names=["seen", "day", "times", "price"],
        is_unwrapped=True,
        time_unit="us",
    )
    assert found == {
        "seen": [7000, 7000],
        "day": [8, 8],
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


def test_values_without_an_envelope_in_them() -> None:
    """A value whose `payload` is missing is an error, and deletes nothing."""
    outer = {
        "type": "record",
        "name": "Outer",
        "fields": [{"name": "payload", "type": ["null", envelope_schema()]}],
    }
    schema = TopicSchema(SchemaInfo("JSON", json.dumps(outer)))
    for event in ({"payload": None}, {"id": 1}):
        with pytest.raises(PayloadDecodeError, match="no envelope"):
            values_of(schema, rows_of((None, _values([event]))), is_unwrapped=True)
    found = values_of(schema, rows_of((None, _values([None]))), is_unwrapped=True)
    assert found["__deleted"] == [True]


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
