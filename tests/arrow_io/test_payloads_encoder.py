"""Typed values become the payloads that they would be read from, or an error."""

from __future__ import annotations

import datetime as dt
import json
import struct
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import OptionError, SchemaError
from arrow_io.payloads.avro_schema import parse_avro
from arrow_io.payloads.encoder import PayloadEncoder
from arrow_io.payloads.json import json_shape
from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema
from tests.support.avro_schemas import schemas
from tests.support.golden import golden_topic
from tests.support.golden_datasets import open_golden
from tests.support.golden_values import golden_schema
from tests.support.json_payloads import texts
from tests.support.payloads import bits, json_text, shredded_alike

_PRIMITIVES = ("bool", "int8", "int16", "int32", "int64", "float", "double", "string", "date",
               "timestamp", "instant", "local-date", "local-time", "local-date-time",
               "bytes-batched-none")  # fmt: skip
_LOGICAL = {
    "day": {"type": "int", "logicalType": "date"},
    "ms": {"type": "int", "logicalType": "time-millis"},
    "us": {"type": "long", "logicalType": "time-micros"},
    "at_ms": {"type": "long", "logicalType": "timestamp-millis"},
    "at_us": {"type": "long", "logicalType": "timestamp-micros"},
    "at_ns": {"type": "long", "logicalType": "timestamp-nanos"},
    "local": {"type": "long", "logicalType": "local-timestamp-millis"},
    "price": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    "id": {"type": "string", "logicalType": "uuid"},
    "id16": {"type": "fixed", "name": "Id", "size": 16, "logicalType": "uuid"},
}
_LONGS = {"type": "array", "items": "long"}
_INNER = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}
_ENUM = {"type": "enum", "name": "E", "symbols": ["X"]}
_FIXED = {"type": "fixed", "name": "F", "size": 2}


def _json_schema(avro: object) -> SchemaInfo:
    return SchemaInfo("JSON", json.dumps(avro))


def _record(**fields: object) -> SchemaInfo:
    return _json_schema(
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": name, "type": type_} for name, type_ in fields.items()],
        }
    )


def _texts(schema: SchemaInfo, values: pa.Array) -> list[str | None]:
    payloads = PayloadEncoder(schema).encode(values)
    return [None if payload is None else payload.decode() for payload in payloads]


@pytest.mark.parametrize("name", _PRIMITIVES)
def test_primitives_are_those_of_the_java_client(name: str) -> None:
    """Values read from a golden topic are written as the very payloads they were read from."""
    topic = golden_topic(name)
    schema = TopicSchema(SchemaInfo("BYTES")) if name.startswith("bytes") else golden_schema(topic)
    columns = ["__value__"]
    typed = open_golden(topic, schema=schema, value="struct")
    raw = open_golden(topic, value="raw").to_table(columns=columns)["__value__"]

    payloads = PayloadEncoder(schema.reader).encode(
        typed.to_table(columns=columns)["__value__"].combine_chunks()
    )

    assert payloads == raw.to_pylist()


@pytest.mark.parametrize(
    ("type_", "values", "packed"),
    [
        ("TIME", pa.array([86_399_999_000, None], pa.time64("us")), (">q", 86_399_999)),
        ("TIME", pa.array([1], pa.time32("s")), (">q", 1000)),
        ("LOCAL_TIME", pa.array([5], pa.time64("us")), (">q", 5000)),
        ("LOCAL_TIME", pa.array([5], pa.time64("ns")), (">q", 5)),
        ("INSTANT", pa.array([-1], pa.timestamp("us", "UTC")), (">qi", -1, 999_999_000)),
        ("INSTANT", pa.array([-1], pa.timestamp("ns", "UTC")), (">qi", -1, 999_999_999)),
        ("INSTANT", pa.array([2**40], pa.timestamp("s", "UTC")), (">qi", 2**40, 0)),
        ("LOCAL_DATE_TIME", pa.array([-1], pa.timestamp("ms")), (">qq", -1, 86_399_999_000_000)),
        ("LOCAL_DATE", pa.array([-1], pa.date32()), (">q", -1)),
        ("DATE", pa.array([1], pa.timestamp("s", "UTC")), (">q", 1000)),
        ("INT16", pa.array([-2], pa.int64()), (">h", -2)),
        ("FLOAT", pa.array([0.1], pa.float64()), (">f", 0.1)),
        ("BOOLEAN", pa.array([True]), (">?", 1)),
    ],
    ids=str,
)
def test_numbers_and_times_are_big_endian(
    type_: str, values: pa.Array, packed: tuple[str, int]
) -> None:
    """Whatever unit a column has, its values are written in the unit of the schema's type."""
    format_, *numbers = packed
    nulls = [None] * values.null_count

    assert PayloadEncoder(SchemaInfo(type_)).encode(values) == [
        struct.pack(format_, *numbers),
        *nulls,
    ]


def test_json_is_that_of_the_java_client() -> None:
    """Records read from a golden topic are written as the same JSON, but for the fields' order."""
    topic = golden_topic("json-orders")
    schema = golden_schema(topic)
    typed = open_golden(topic, schema=schema, value="struct").to_table(columns=["__value__"])
    raw = open_golden(topic, value="raw").to_table(columns=["__value__"])["__value__"].to_pylist()

    payloads = PayloadEncoder(schema.reader).encode(typed["__value__"].combine_chunks())

    parsed = [None if each is None else json.loads(each) for each in payloads]
    floats = [_as_float32(None if each is None else json.loads(each)) for each in raw]
    assert [_as_float32(each) for each in parsed] == floats
    assert len(payloads) == topic.message_count


def _as_float32(order: dict[str, Any] | None) -> dict[str, Any] | None:
    """An order whose discount, a float, is the number that it stands for."""
    if order is None or "discount" not in order:
        return order
    return {**order, "discount": pa.scalar(order["discount"], pa.float32()).as_py()}


@pytest.mark.parametrize(
    ("avro", "value", "text"),
    [
        ("double", float("nan"), '"NaN"'),
        ("double", float("-inf"), '"-Infinity"'),
        ("float", float("inf"), '"Infinity"'),
        ("double", 1e300, "1e+300"),
        ("float", 0.1, "0.1"),
        ("float", 16777217.0, "16777216.0"),
        ("float", -0.0, "-0.0"),
        ({"type": "map", "values": "float"}, {"k": 0.1}, '{"k":0.1}'),
        ({"type": "array", "items": ["null", "float"]}, [0.3, None], "[0.3,null]"),
        ("boolean", False, "false"),
        ("string", 'é"\n', '"é\\"\\n"'),
        ("bytes", b"\xff\xfe", '"//4="'),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 30},
         Decimal("0.000000000000000000000000000001"), "0.000000000000000000000000000001"),
    ],
    ids=str,
)  # fmt: skip
def test_values_are_spelled_as_jackson_spells_them(avro: object, value: object, text: str) -> None:
    """What JSON has no number for is text; decimals are digits, never an exponent."""
    shape = json_shape(parse_avro(json.dumps(avro)), "ns")
    type_ = shape.type if isinstance(value, dict | list) else None
    values = pa.array([list(value.items()) if isinstance(value, dict) else value], type_)

    assert _texts(_json_schema(avro), values) == [text]


def test_a_type_inside_itself_is_written_as_the_json_it_is_given_as() -> None:
    """What a reader gives as JSON text is put into the payload as it is."""
    tree = {"type": "record", "name": "T", "fields": [
        {"name": "x", "type": "int"}, {"name": "next", "type": ["null", "T"]}]}  # fmt: skip
    schema = _json_schema(tree)

    assert _texts(schema, pa.array([{"x": 1, "next": '{"x":2}'}])) == ['{"x":1,"next":{"x":2}}']
    for text in ('{"x":2', '{"x":NaN}', '{"x":-Infinity}', "[1,2]", "5", "null"):
        with pytest.raises(OptionError, match="next is not the JSON text of a T"):
            _texts(schema, pa.array([{"x": 1, "next": text}]))


@pytest.mark.parametrize(
    ("schema", "values", "reason"),
    [
        (SchemaInfo("INT8"), pa.array([128]), "128"),
        (SchemaInfo("INT32"), pa.array([1.5]), "1.5"),
        (SchemaInfo("INT64"), pa.array(["one"]), "one"),
        (SchemaInfo("BOOLEAN"), pa.array([[True]]), "list"),
        (SchemaInfo("STRING"), pa.array([1]), "int64"),
        (SchemaInfo("LOCAL_TIME"), pa.array([86_400_000_000]), "86400000000 us is not a time"),
        (SchemaInfo("TIME"), pa.array([0, -1000, None]), "-1000 us is not a time of day"),
        (SchemaInfo("TIMESTAMP"), pa.array([1], pa.timestamp("us", "UTC")), "lose data"),
        (SchemaInfo("TIME"), pa.array([1], pa.time64("us")), "lose data"),
        (_record(a="long"), pa.array([{"a": None}]), "the value.a is null"),
        (_record(a="long"), pa.array([{"b": 1}]), "no field 'b'"),
        (_record(a=_LONGS), pa.array([{"a": [None]}]), r"a\[\] is null"),
        (_record(a={"type": "array", "items": _INNER}), pa.array([{"a": [{"z": 1}]}]), "field 'z'"),
        (_record(a={"type": "map", "values": _INNER}),
         pa.array([{"a": [("k", {"z": 1})]}],
                  pa.struct({"a": pa.map_(pa.string(), pa.struct({"z": pa.int64()}))})),
         "field 'z'"),
        (_record(a=_ENUM), pa.array([{"a": "Y"}]), "'Y'"),
        (_record(a=_FIXED), pa.array([{"a": b"abc"}]), "2 bytes"),
        (_record(a="null"), pa.array([{"a": True}]), r"value\.a: .* only null"),
        (_record(a=_LOGICAL["id16"]), pa.array([{"a": "no"}]), r"value\.a: 'no' is not a UUID"),
        (_record(a="int"), pa.array([{"a": 2**31}]), "2147483648"),
        (_record(a="int"), pa.array([5]), "does not fit"),
        (_record(a=_LONGS), pa.array([{"a": {"x": 1}}]), "not a list"),
        (_record(a=_LONGS), pa.array([{"a": [("k", 1)]}],
                                     pa.struct({"a": pa.map_(pa.string(), pa.int64())})),
         "not a list"),
        (_record(a=_INNER), pa.array([{"a": [1]}]), "does not fit"),
        (_record(a="float"), pa.array([{"a": 1e39}]), r"value\.a: 1e\+39 is out of the range of"),
        (_record(a={"type": "array", "items": "float"}), pa.array([{"a": [-1e39]}]),
         "out of the range of a float"),
        (_record(a="float"), pa.array([{"a": 2**24 + 1}]), "16777217"),
        (SchemaInfo("FLOAT"), pa.array([1.0, 1e39]), "out of the range of a float"),
        (SchemaInfo("STRING"), pa.array([1e39]), "does not fit"),
        (_json_schema("string"),
         pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers()), "utf-8"),
        (_record(a={"type": "int", "logicalType": "time-millis"}),
         pa.array([{"a": dt.time(0, 0, 0, 1)}]), "lose data"),
    ],
    ids=lambda value: None if isinstance(value, pa.Array) else str(value)[:40],
)  # fmt: skip
def test_values_that_do_not_fit_are_refused(
    schema: SchemaInfo, values: pa.Array, reason: str
) -> None:
    """Nothing is rounded, cut or left out: an error says what does not fit."""
    with pytest.raises(OptionError, match=reason):
        PayloadEncoder(schema).encode(values)


_AT = pa.array([1], pa.timestamp("us"))
_NUMBERS = (pa.array([0.5]), pa.array([2]), pa.array([Decimal("0.5")]))
_LOSSY: tuple[tuple[object, str | None, tuple[pa.Array, ...]], ...] = (
    ({"type": "int", "logicalType": "date"}, "LOCAL_DATE", (_AT,)),
    ({"type": "long", "logicalType": "time-micros"}, "LOCAL_TIME", (_AT,)),
    ({"type": "int", "logicalType": "time-millis"}, "TIME", (_AT,)),
    (_LOGICAL["price"], None, (pa.array([1.239]), pa.array([1.239], pa.float32()))),
    ("boolean", "BOOLEAN", _NUMBERS),
    *(
        (
            {"type": "long", "logicalType": logical},
            primitive,
            (pa.array([1_795_265_305_000]), pa.array([5], pa.uint8())),
        )
        for logical, primitive in (
            ("timestamp-millis", "TIMESTAMP"),
            ("timestamp-micros", "INSTANT"),
            ("local-timestamp-millis", "LOCAL_DATE_TIME"),
        )
    ),
    (
        {"type": "long", "logicalType": "local-timestamp-millis"},
        "LOCAL_DATE_TIME",
        (pa.array([1000], pa.timestamp("ms", tz="Europe/Berlin")),),
    ),
    ("long", "INT64", (_AT, pa.array([5], pa.time64("us")), pa.array([5], pa.duration("s")))),
    ("int", "INT32", (pa.array([1.5]), pa.array([Decimal("1.5")]))),
)
"""A field's type, the primitive schema type like it, and columns that Arrow casts with a loss."""


@pytest.mark.parametrize("form", ["AVRO", "JSON"])
@pytest.mark.parametrize(
    ("avro", "primitive", "values"),
    [(avro, primitive, each) for avro, primitive, given in _LOSSY for each in given],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else str(value),
)
def test_types_that_lose_data_are_refused(
    form: str, avro: object, primitive: str | None, values: pa.Array
) -> None:
    """A column whose values would be other ones is no column of the schema, at any depth."""
    fields = [{"name": "a", "type": {"type": "array", "items": avro}}]
    record = SchemaInfo(form, json.dumps({"type": "record", "name": "R", "fields": fields}))
    lists = pa.ListArray.from_arrays([0, 1], values)
    cases = [(record, pa.StructArray.from_arrays([lists], ["a"]))]
    if primitive is not None:
        cases += [(SchemaInfo(primitive), each) for each in (values, values.dictionary_encode())]

    for schema, lossy in cases:
        with pytest.raises(
            OptionError, match=r"lose data|truncated|data loss|unit of time|which unit|no time zone"
        ):
            PayloadEncoder(schema).encode(lossy)


@pytest.mark.parametrize("type_", ["PROTOBUF", "KEY_VALUE"])
def test_types_that_are_not_written_are_refused(type_: str) -> None:
    """Their payloads must be given as bytes."""
    with pytest.raises(SchemaError, match=f"cannot encode values of the schema type {type_}:"):
        PayloadEncoder(SchemaInfo(type_))


# Any JSON schema


_REFUSED = ("is null, which the schema does not allow", "is not a UUID")
"""What a reader takes from others, and nobody may write: JSON can spell any text."""


def _payload(encoder: PayloadEncoder, value: pa.Array) -> bytes | None:
    """What is written of a value; None if it is refused."""
    try:
        (payload,) = encoder.encode(value)
    except OptionError as error:
        if not str(error).endswith(_REFUSED):
            raise
        return None
    return payload


@given(data=st.data(), time_unit=st.sampled_from(("ns", "us")))
def test_what_we_write_is_read_as_it_was(data: st.DataObject, time_unit: str) -> None:
    """Whatever a column of a schema holds, both builds give it back, unless a field is missing."""
    schema = fastavro.parse_schema(data.draw(schemas(json=True)))
    payloads = data.draw(st.lists(texts(schema), min_size=1, max_size=6))
    program = json_text(schema, time_unit=time_unit)
    found = shredded_alike(program, [each.encode() for each in payloads])
    encoder = PayloadEncoder(SchemaInfo("JSON", json.dumps(schema)))

    for row in range(len(payloads)):
        value = found.values.slice(row, 1)
        payload = _payload(encoder, value)
        if payload is not None:
            again = shredded_alike(program, [payload])
            assert again.misfits == []
            assert bits(again.values) == bits(pa.concat_arrays([value])), payload
