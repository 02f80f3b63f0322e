"""AVRO values become the bytes that Avro's specification has for them, or an error says why not."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import OptionError, SchemaError
from arrow_io.payloads.encoder import PayloadEncoder
from arrow_io.payloads.schema_info import SchemaInfo
from tests.support.avro_payloads import (
    array_of,
    avro_long,
    decimal_of,
    enum_of,
    fixed_of,
    map_of,
    sized,
    time_of,
)
from tests.support.avro_schemas import Reading, schemas, without_logical
from tests.support.golden_values import comparable
from tests.support.payloads import avro, bits, record, shredded_alike

if TYPE_CHECKING:
    from tests.support.avro_schemas import Datum, Schema
_TREE: Final = record(("x", "int"), ("next", ["null", "T"]), name="T")
_INNER: Final = record(("x", "int"), name="I")
_MAP: Final = pa.map_(pa.string(), pa.int64())


def _encode(schema: object, values: pa.Array) -> list[bytes | None]:
    return PayloadEncoder(SchemaInfo("AVRO", json.dumps(schema))).encode(values)


def _named(value: object) -> str:
    return str(value.type) if isinstance(value, pa.Array) else str(value)[:70]


def test_a_type_inside_itself() -> None:
    """What a reader gives as bytes is put into the payload as it is, once it is seen to fit."""
    payload = b"\2\2\4\2\6\0"

    values = shredded_alike(avro(_TREE), [payload]).values

    assert values.to_pylist() == [{"x": 1, "next": payload[2:]}]
    assert _encode(_TREE, values) == [payload]


def test_fields_that_are_not_given() -> None:
    """The schema's default stands for them, else null; what is given counts, null too."""
    schema = record(
        {"name": "a", "type": ["int", "null"], "default": 5},
        {"name": "b", "type": ["null", "string"]},
        {"name": "c", "type": _INNER, "default": {"x": 7}},
        {"name": "d", "type": {"type": "record", "name": "D", "fields": [
            {"name": "e", "type": "long", "default": 9}, {"name": "f", "type": "long"}]}},
    )  # fmt: skip

    def read(values: pa.Array) -> object:
        (payload,) = _encode(schema, values)
        return fastavro.schemaless_reader(io.BytesIO(payload or b""), schema, None)

    assert read(pa.array([{"d": {"f": 1}}])) == {
        "a": 5, "b": None, "c": {"x": 7}, "d": {"e": 9, "f": 1}
    }  # fmt: skip
    nulls = pa.array([{"a": None, "b": "x", "c": {"x": 1}, "d": {"f": 1, "e": 2}}])
    assert read(nulls) == {"a": None, "b": "x", "c": {"x": 1}, "d": {"e": 2, "f": 1}}


@pytest.mark.parametrize(
    ("schema", "values", "written"),
    [
        ("long", pa.array([1], pa.uint8()), b"\2"),
        ("double", pa.array([1]), b"\0\0\0\0\0\0\xf0\x3f"),
        ("string", pa.array(["a"], pa.large_string()), b"\2a"),
        ("string", pa.array(["a"], pa.string_view()), b"\2a"),
        (time_of("timestamp-nanos"), pa.array([-1], pa.timestamp("s", "CET")), avro_long(-(10**9))),
        (time_of("date"), pa.array([86_400_000], pa.date64()), b"\2"),
        (time_of("time-millis"), pa.array([5000]), b"\n"),
        (decimal_of(9, 2), pa.array([Decimal("1.5")]), sized(b"\0\x96")),
        (array_of("int"), pa.array([[1]], pa.large_list(pa.int64())), b"\2\2\0"),
        (array_of("int"), pa.array([[1]], pa.list_(pa.int8(), 1)), b"\2\2\0"),
        (map_of("long"), pa.array([[("k", 1)]], pa.map_(pa.large_string(), pa.int8())),
         b"\2\2k\2\0"),
        (record(("a", "int"), ("b", "int")), pa.array([{"b": 2, "a": 1}]), b"\2\4"),
        (record(("e", enum_of("A"))),
         pa.StructArray.from_arrays([pa.array(["A"]).dictionary_encode()], ["e"]), b"\0"),
    ],
    ids=_named,
)  # fmt: skip
def test_columns_of_other_types(schema: object, values: pa.Array, written: bytes) -> None:
    """Whatever Arrow casts without loss is taken, fields in any order."""
    assert _encode(schema, values) == [written]


@pytest.mark.parametrize(
    ("type_", "values", "reason"),
    [
        ("int", pa.array([2**31]), r"value\.a .*2147483648"),
        ("float", pa.array([1e39]), r"value\.a: 1e\+39 is out of the range of a float"),
        ("long", pa.array([None], pa.int64()), r"value\.a is null"),
        ("null", pa.array([True]), r"value\.a: there is a value, but .* only null"),
        (decimal_of(3, 1), pa.array([Decimal("123.4")]), r"value\.a .*precision"),
        (decimal_of(3, 1), pa.array([Decimal("0.25")]), r"value\.a .*data loss"),
        (enum_of("X"), pa.array(["Y"]), r"value\.a: .*no symbol 'Y'"),
        (fixed_of(2), pa.array([b"abc"]), r"value\.a: .*2 bytes"),
        (fixed_of(16, logicalType="uuid"), pa.array(["no"]), r"value\.a: 'no' is not a UUID"),
        (time_of("time-millis"), pa.array([1], pa.time64("us")), r"value\.a: .*lose data"),
        (time_of("time-micros"), pa.array([86_400_000_000]),
         r"value\.a: 86400000000 us is not a time of day"),
        (time_of("time-millis"), pa.array([-1000]), r"value\.a: -1000 us is not a time"),
        (time_of("timestamp-millis"), pa.array([1], pa.timestamp("us", "UTC")),
         r"value\.a: .*lose data"),
        (time_of("timestamp-nanos"), pa.array([2**60], pa.timestamp("us", "UTC")),
         r"value\.a: .*out of bounds"),
        (array_of("long"), pa.array([[None]], pa.list_(pa.int64())), r"value\.a\[\] is null"),
        (map_of("long"), pa.array([[("k", 1), ("k", 2)]], _MAP),
         r"value\.a: a map has the key 'k' twice"),
        (_INNER, pa.array([{"x": 1, "z": 2}]), r"value\.a: the schema has no field 'z'"),
        (_INNER, pa.array([None], pa.struct({"x": pa.int64()})), r"value\.a is null"),
        (_INNER, pa.array([{}], pa.struct([])), r"value\.a\.x is missing, .* no default"),
        (record(name="Nothing"), pa.array([False]),
         r"value\.a: a record without fields must be true"),
        (["string", "long"], pa.array([{"string": "a", "long": 1}]),
         r"value\.a sets two branches"),
        (["string", "long"],
         pa.array([{"string": None}], pa.struct({"string": pa.string()})), r"value\.a is null"),
        (["null", _TREE], pa.array([{"x": 1, "next": b"\2"}]), "next is not the Avro bytes of a T"),
        (["null", _TREE], pa.array([{"x": 1, "next": b"\2\0\0"}]), "next is not the Avro bytes"),
    ],
    ids=_named,
)  # fmt: skip
def test_values_that_do_not_fit_are_refused(type_: object, values: pa.Array, reason: str) -> None:
    """Nothing is cut, wrapped or left out: an error names the field and says what does not fit."""
    records = pa.StructArray.from_arrays([values], ["a"])

    with pytest.raises(OptionError, match=reason):
        _encode(record(("a", type_)), records)


def test_a_default_that_is_none() -> None:
    """It is an error of the schema, told once the default is needed."""
    schema = record({"name": "a", "type": "int", "default": "x"}, ("b", "int"))

    assert _encode(schema, pa.array([{"a": 1, "b": 2}])) == [b"\2\4"]
    with pytest.raises(SchemaError, match="default 'x' is not an Avro int"):
        _encode(schema, pa.array([{"b": 2}]))


@pytest.mark.parametrize(
    ("type_", "default"),
    [
        ("int", 2**31),
        ("int", -(2**31) - 1),
        (["int", "null"], 2**31),
        ("long", 2**63),
        (time_of("time-millis"), -5),
        (time_of("time-micros"), 86_400_000_000),
        (decimal_of(2), "\0\xff\xff"),
        (array_of("int"), [1, 2**31]),
        (record({"name": "x", "type": "int", "default": 2**31}, name="I"), {}),
    ],
    ids=str,
)  # fmt: skip
def test_a_default_that_no_reader_takes(type_: object, default: object) -> None:
    """It is not written of a field that is not given: the rows could not be read."""
    schema = record({"name": "a", "type": type_, "default": default}, ("b", "int"))

    with pytest.raises(SchemaError, match="default"):
        _encode(schema, pa.array([{"b": 2}]))


# Any schema


def _write(schema: Schema, datum: Datum) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(without_logical(schema)), datum)
    return file.getvalue()


def _read(schema: Schema, payload: bytes) -> Datum:
    """The datum by fastavro, which must take all of the payload."""
    file = io.BytesIO(payload)
    parsed = fastavro.parse_schema(without_logical(schema))
    datum = fastavro.schemaless_reader(file, parsed, None)
    assert file.tell() == len(payload)
    return datum


def _columns(data: st.DataObject, schema: Schema, time_unit: str) -> pa.Array:
    """Values of a schema that have a place in its columns, made by fastavro and our decoder."""
    reading = Reading(fastavro.parse_schema(schema), time_unit)
    datums = data.draw(st.lists(reading.datums(reading.schema), min_size=1, max_size=4))
    payloads = [_write(schema, datum) for datum in datums]
    found = shredded_alike(avro(schema, time_unit=time_unit), payloads)
    lost = {misfit.row for misfit in found.misfits}
    return found.values.filter(pa.array([row not in lost for row in range(len(datums))]))


@given(data=st.data(), time_unit=st.sampled_from(("ns", "us")), plain=st.booleans())
def test_what_we_write_is_read_as_it_was(
    data: st.DataObject, time_unit: str, *, plain: bool
) -> None:
    """Whatever a column of a schema holds, our reader gives it back to the bit, and so fastavro.

    Which branch of a union fastavro has read, the value's type must tell.
    """
    schema = data.draw(schemas(plain=plain))
    values = _columns(data, schema, time_unit)
    sliced = pa.concat_arrays([values, values])[len(values) :]

    payloads = PayloadEncoder(SchemaInfo("AVRO", json.dumps(schema))).encode(sliced)

    written = [each for each in payloads if each is not None]
    again = shredded_alike(avro(schema, time_unit=time_unit), written)
    assert again.misfits == []
    assert bits(again.values) == bits(pa.concat_arrays([values]))
    reading = Reading(fastavro.parse_schema(schema), time_unit)
    if not plain:
        return
    assert [reading.as_arrow(_read(schema, each)) for each in written] == again.rows


@given(data=st.data(), default=st.lists(st.integers(-9, 9)), place=st.integers(0, 3))
def test_fields_that_are_not_given_have_their_default(
    data: st.DataObject, default: list[int], place: int
) -> None:
    """A field without a column is what the schema says, and the others keep their values."""
    schema = data.draw(schemas())
    values = _columns(data, schema, "ns")
    if not schema["fields"]:
        return
    added = {"name": "added", "type": {"type": "array", "items": "int"}, "default": default}
    schema["fields"].insert(place, added)

    payloads = PayloadEncoder(SchemaInfo("AVRO", json.dumps(schema))).encode(values)

    again = shredded_alike(avro(schema), [each for each in payloads if each is not None])
    assert again.misfits == []
    assert again.rows == [{**row, "added": default} for row in comparable(values)]
