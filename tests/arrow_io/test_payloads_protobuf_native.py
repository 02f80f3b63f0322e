"""Payloads of PROTOBUF_NATIVE, and of PROTOBUF with a descriptor, become Arrow values."""

from __future__ import annotations

import itertools
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError

from arrow_io.errors import SchemaError
from arrow_io.payloads import tables
from arrow_io.payloads.protobuf_native import protobuf_shape
from arrow_io.payloads.shredding import Misfit
from tests.support.benchmark_ledgers import PROTOBUF_LZ4, READING_SCHEMA
from tests.support.golden import golden_topic
from tests.support.golden_datasets import reference_rows
from tests.support.golden_values import expected_values, golden_schema
from tests.support.protobuf_payloads import (
    library_class,
    library_value,
    program_of,
    read_payloads,
    schema_data,
)
from tests.support.protobuf_strategies import tag, varint

_F = FieldDescriptorProto

pytestmark = pytest.mark.usefixtures("build")


def _file(syntax: str = "proto3", /, **messages: dict[str, Any]) -> FileDescriptorProto:
    """A file with the enum `E` and messages of fields by name: a type, or what a field has set.

    Fields are numbered from 1 on.
    """
    file = FileDescriptorProto(
        name="t.proto",
        package="t",
        syntax=syntax,
        dependency=["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"],
    )
    enum = file.enum_type.add(name="E")
    enum.options.allow_alias = True
    for name, number in (("ZERO", 0), ("ONE", 1), ("UNO", 1), ("MINUS", -1), ("FAR", 1 << 20)):
        enum.value.add(name=name, number=number)
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for number, (field_name, given) in enumerate(fields.items(), 1):
            details = given if isinstance(given, dict) else {"type": given}
            if details.get("type") == "map":
                value = {"label": _F.LABEL_OPTIONAL, **details["value"]}
                entry = message.nested_type.add(name=f"{field_name.capitalize()}Entry")
                entry.options.map_entry = True
                key = details.get("key", _F.TYPE_STRING)
                entry.field.add(name="key", number=1, label=_F.LABEL_OPTIONAL, type=key)
                entry.field.add(name="value", number=2, **value)
                details = _of(f"t.{name}.{entry.name}", label=_F.LABEL_REPEATED)
            message.field.add(
                **{"name": field_name, "number": number, "label": _F.LABEL_OPTIONAL, **details}
            )
            if details.get("oneof_index") == len(message.oneof_decl):
                message.oneof_decl.add(name=f"oneof_{field_name}")
    return file


def _of(name: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - of a field
    """A field of a message."""
    return {"type": _F.TYPE_MESSAGE, "type_name": f".{name}", **more}


_ENUM = {"type": _F.TYPE_ENUM, "type_name": ".t.E"}


def _data(file: FileDescriptorProto) -> str:
    return schema_data([file], "t.M", "t.proto")


def _read(file: FileDescriptorProto, *payloads: bytes | None, unit: str = "ns") -> Any:  # noqa: ANN401
    return read_payloads(program_of(_data(file), unit), payloads)


def _field(number: int, body: bytes) -> bytes:
    return tag(number, 2) + varint(len(body)) + body


def _readings(count: int) -> list[bytes]:
    """The first messages of the benchmark."""
    return [payload for _, payload in itertools.islice(PROTOBUF_LZ4.members(), count)]


# ----------------------------------------------------------------------------
# Real messages


@pytest.mark.parametrize("unit", ["ns", "us"])
@pytest.mark.parametrize("name", ["protobuf-native", "protobuf"])
def test_golden(name: str, unit: Any) -> None:  # noqa: ANN401 - a literal
    """Messages that Pulsar's client wrote have the values that it read."""
    topic = golden_topic(name)
    payloads = {
        (row["__ledger_id__"], row["__entry_id__"], row["__batch_index__"]): row["__value__"]
        for row in reference_rows(topic)
    }
    expected = [row for row in expected_values(topic, unit) if row.fits]
    data = golden_schema(topic).reader.data

    found = read_payloads(
        program_of(data, unit),
        [payloads[row.ledger_id, row.entry_id, row.batch_index] for row in expected],
    )

    assert len(expected) > 20
    assert found == [row.value for row in expected]


def test_benchmark_readings() -> None:
    """The messages of the benchmark, many at a time, have the values that the library reads."""
    payloads = _readings(500)
    reading = library_class(READING_SCHEMA)

    found = read_payloads(program_of(READING_SCHEMA), payloads)

    assert found == [library_value(reading.FromString(each)) for each in payloads]


def test_damaged_readings() -> None:
    """Each bit of a message flipped, and each cut, gives what the library gives or does not fit."""
    program = program_of(READING_SCHEMA)
    reading = library_class(READING_SCHEMA)
    payload = min(_readings(99), key=len)
    damaged = [payload[:stop] for stop in range(len(payload))]
    damaged += [
        payload[:place] + bytes([payload[place] ^ 1 << bit]) + payload[place + 1 :]
        for place in range(len(payload))
        for bit in range(8)
    ]

    refused = 0
    for each in damaged:
        found = read_payloads(program, [each])
        try:
            message = reading.FromString(each)
        except DecodeError:
            refused += 1
            assert isinstance(found, Misfit)
            assert found.code in tables.REASONS
            continue
        if isinstance(found, Misfit):
            assert found.code in {tables.OUT_OF_RANGE, tables.TOO_PRECISE}
            assert found.path == "taken_at"
        else:
            assert found == [library_value(message)]

    assert 0 < refused < len(damaged)


# ----------------------------------------------------------------------------
# Columns


def test_types() -> None:
    """Each type of protobuf becomes the Arrow type of its values."""
    scalars = {
        "double": pa.float64(),
        "float": pa.float32(),
        "int32": pa.int32(),
        "sint32": pa.int32(),
        "sfixed32": pa.int32(),
        "int64": pa.int64(),
        "sint64": pa.int64(),
        "sfixed64": pa.int64(),
        "uint32": pa.int64(),
        "fixed32": pa.int64(),
        "uint64": pa.decimal128(20, 0),
        "fixed64": pa.decimal128(20, 0),
        "bool": pa.bool_(),
        "string": pa.string(),
        "bytes": pa.binary(),
    }
    fields = {name: _F.Type.Value(f"TYPE_{name.upper()}") for name in scalars}
    wrapped = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
    file = _file(
        M={
            **fields,
            **{f"{name}_value": _of(f"google.protobuf.{name}Value") for name in wrapped},
            "name": _ENUM,
            "list": {"type": _F.TYPE_INT64, "label": _F.LABEL_REPEATED},
            "map": {"type": "map", "key": _F.TYPE_UINT64, "value": _ENUM},
            "inner": _of("t.I"),
            "empty": _of("t.Empty"),
            "again": _of("t.M"),
            "time": _of("google.protobuf.Timestamp"),
        },
        I={"x": _F.TYPE_INT32},
        Empty={},
    )
    expected = {
        **scalars,
        **{f"{name}_value": scalars[name.lower()] for name in wrapped},
        "name": pa.string(),
        "list": pa.list_(pa.field("element", pa.int64())),
        "map": pa.map_(pa.decimal128(20, 0), pa.field("value", pa.string())),
        "inner": pa.struct({"x": pa.int32()}),
        "empty": pa.bool_(),
        "again": pa.binary(),
        "time": pa.timestamp("us", tz="UTC"),
    }

    assert protobuf_shape(_data(file), "us").type == pa.struct(expected)


def test_absent_fields() -> None:
    """What is absent is null if protobuf can tell, and else zero, empty or the first name."""
    fields = {
        "number": _F.TYPE_UINT64,
        "text": _F.TYPE_STRING,
        "name": _ENUM,
        "list": {"type": _F.TYPE_STRING, "label": _F.LABEL_REPEATED},
        "map": {"type": "map", "value": {"type": _F.TYPE_BOOL}},
        "inner": _of("t.I"),
        "empty": _of("t.I"),
        "wrapped": _of("google.protobuf.UInt64Value"),
        "tracked": {"type": _F.TYPE_INT32, "oneof_index": 0},
        "other": {"type": _F.TYPE_DOUBLE, "oneof_index": 0},
    }

    assert _read(_file(M=fields, I={"x": _F.TYPE_INT32}), b"", None) == [
        {
            "number": Decimal(0),
            "text": "",
            "name": "ZERO",
            "list": [],
            "map": {},
            "inner": None,
            "empty": None,
            "wrapped": None,
            "tracked": None,
            "other": None,
        },
        None,
    ]


def test_defaults_of_proto2() -> None:
    """A field of proto2 that is absent is null, whatever its default, even if it is required."""
    file = _file(
        "proto2",
        M={
            "optional": {"type": _F.TYPE_INT32, "default_value": "7"},
            "required": {"type": _F.TYPE_INT32, "label": _F.LABEL_REQUIRED},
            "name": {**_ENUM, "default_value": "ONE"},
        },
    )

    assert _read(file, b"") == [{"optional": None, "required": None, "name": None}]


def test_enums() -> None:
    """A number of an enum is its first name, or the number as text if it has none."""
    file = _file(M={"e": _ENUM, "many": {**_ENUM, "label": _F.LABEL_REPEATED}})
    numbers = {
        0: "ZERO",
        1: "ONE",
        -1: "MINUS",
        1 << 20: "FAR",
        2: "2",
        10: "10",
        -2: "-2",
        (1 << 31) - 1: "2147483647",
        -(1 << 31): "-2147483648",
        (1 << 32) + 1: "ONE",
    }
    packed = _field(2, b"".join(map(varint, numbers)))

    found = _read(file, packed, *(tag(1, 0) + varint(number) for number in numbers))

    assert found[0]["many"] == list(numbers.values())
    assert [row["e"] for row in found[1:]] == list(numbers.values())


def test_closed_enums() -> None:
    """A number that a closed enum has not is an unknown field; such an entry of a map is none."""
    file = _file(
        "proto2",
        M={
            "e": _ENUM,
            "many": {**_ENUM, "label": _F.LABEL_REPEATED},
            "map": {"type": "map", "value": _ENUM},
        },
    )
    entries = _field(3, _field(1, b"a") + b"\x10\x07") + _field(3, _field(1, b"b") + b"\x10\x01")
    payload = b"\x08\x07" + _field(2, b"\x01\x07\x00") + b"\x10\x07\x10\x01" + entries

    assert _read(file, payload) == [
        {"e": None, "many": ["ONE", "ZERO", "ONE"], "map": {"b": "ONE"}}
    ]


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b"", None),
        (b"\x0a\x00", Decimal(0)),
        (b"\x0a\x02\x08\x00", Decimal(0)),
        (b"\x0a\x0b\x08" + varint(-1), Decimal(2**64 - 1)),
        (b"\x0a\x02\x08\x01\x0a\x02\x08\x02", Decimal(2)),
        (b"\x0a\x02\x08\x01\x0a\x00", Decimal(1)),
        (b"\x0a\x04\x10\x07\x08\x01", Decimal(1)),
    ],
)
def test_wrappers(payload: bytes, expected: Decimal | None) -> None:
    """A wrapper is the number in it, 0 where it is empty, and null where it is absent."""
    file = _file(M={"w": _of("google.protobuf.UInt64Value")})

    assert _read(file, payload) == [{"w": expected}]


@pytest.mark.parametrize(
    ("body", "unit", "expected"),
    [
        (b"", "ns", 0),
        (b"\x08\x02\x10\x03", "ns", 2_000_000_003),
        (b"\x10\x03\x08\x02", "ns", 2_000_000_003),
        (b"\x08\x01\x10\x03\x08\x02", "ns", 2_000_000_003),
        (b"\x08\x02\x10" + varint(3000), "us", 2_000_003),
        (b"\x08" + varint(-2) + b"\x10\x03", "ns", -1_999_999_997),
        (b"\x08\x02\x10\x03", "us", tables.TOO_PRECISE),
        (b"\x10" + varint(10**9), "ns", tables.OUT_OF_RANGE),
        (b"\x10" + varint(-1), "ns", tables.OUT_OF_RANGE),
        (b"\x08" + varint(1 << 60), "us", tables.OUT_OF_RANGE),
        (b"\x08" + varint(253_402_300_799), "us", 253_402_300_799_000_000),
        (b"\x08" + varint(253_402_300_799), "ns", tables.OUT_OF_RANGE),
    ],
)
def test_timestamps(body: bytes, unit: str, expected: int) -> None:
    """A timestamp is in the unit of its column; one that has no place in it does not fit."""
    file = _file(M={"t": _of("google.protobuf.Timestamp")})

    found = _read(file, _field(1, body), unit=unit)

    if isinstance(found, Misfit):
        assert (found.code, found.path) == (expected, "t")
    else:
        assert found == [{"t": expected}]


def test_own_timestamp() -> None:
    """A message that only has the name of protobuf's timestamp is a struct like any other."""
    own = FileDescriptorProto(name="google/protobuf/timestamp.proto", package="google.protobuf")
    message = own.message_type.add(name="Timestamp")
    message.field.add(name="year", number=1, label=_F.LABEL_OPTIONAL, type=_F.TYPE_INT32)
    file = _file(M={"t": _of("google.protobuf.Timestamp")})
    data = schema_data([file, own], "t.M", "t.proto")

    assert read_payloads(program_of(data), [b"\x0a\x02\x08\x07"]) == [{"t": {"year": 7}}]


@pytest.mark.parametrize(
    ("name", "payload", "expected"),
    [
        ("google.protobuf.Timestamp", b"\x08\x02\x10\x03", 2_000_000_003),
        ("google.protobuf.Int32Value", b"\x08\x02", 2),
        ("google.protobuf.Int32Value", b"", 0),
        ("t.Empty", b"\x08\x01", True),
    ],
)
def test_root(name: str, payload: bytes, expected: object) -> None:
    """A message that is no struct inside another is none as a payload."""
    own = FileDescriptorProto()
    (timestamp_pb2 if "Time" in name else wrappers_pb2).DESCRIPTOR.CopyToProto(own)
    file = _file(Empty={}) if name == "t.Empty" else own
    data = schema_data([file], name, file.name)

    assert read_payloads(program_of(data), [payload]) == [expected]


# ----------------------------------------------------------------------------
# Fields in every order and number

_CHOICE: dict[str, Any] = {
    "a": {"type": _F.TYPE_INT32, "oneof_index": 0},
    "b": {"type": _F.TYPE_STRING, "oneof_index": 0},
    "c": _of("t.I", oneof_index=0),
    "d": _F.TYPE_INT32,
}
_A, _B, _C = b"\x08\x01", b"\x12\x01x", b"\x1a\x02\x08\x05"


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (_A, (1, None, None)),
        (_A + _B, (None, "x", None)),
        (_B + _A, (1, None, None)),
        (_C + _A + _C, (None, None, {"x": 5, "y": 0})),
        (_A + _C + b"\x1a\x02\x10\x06", (None, None, {"x": 5, "y": 6})),
        (_A + b"\x10\x01", (1, None, None)),
    ],
)
def test_oneofs(payload: bytes, expected: tuple[object, ...]) -> None:
    """Of the members of a oneof the last one counts, whether or not the others are asked for."""
    file = _file(M=_CHOICE, I={"x": _F.TYPE_INT32, "y": _F.TYPE_INT32})
    values = dict(zip("abc", expected, strict=True))

    for names in ("abc", "a", "b", "c", "bd", "ca", "d"):
        found = read_payloads(program_of(_data(file), names=names), [payload])

        assert found == [{name: {**values, "d": 0}[name] for name in names}]


def test_fields_that_stand_twice() -> None:
    """The last of two numbers counts, messages are merged, and lists have all items."""
    file = _file(
        M={
            "x": _F.TYPE_INT32,
            "list": {"type": _F.TYPE_INT32, "label": _F.LABEL_REPEATED},
            "m": _of("t.M"),
            "i": _of("t.I"),
            "map": {"type": "map", "value": _of("t.I")},
        },
        I={"x": _F.TYPE_INT32, "y": _F.TYPE_INT32},
    )
    entry = _field(5, _field(1, b"k") + _field(2, b"\x08\x01"))
    again = _field(5, _field(1, b"k") + _field(2, b"\x10\x02"))
    payload = (
        b"\x08\x01\x10\x01\x22\x02\x08\x01" + entry + b"\x10\x02"
        b"\x08\x02\x12\x02\x03\x04\x22\x02\x10\x02\x10\x05" + again
    )

    assert _read(file, payload) == [
        {
            "x": 2,
            "list": [1, 2, 3, 4, 5],
            "m": None,
            "i": {"x": 1, "y": 2},
            "map": {"k": {"x": 0, "y": 2}},
        }
    ]


def test_maps() -> None:
    """The last of equal keys counts, and a key or value that is absent is zero or empty."""
    file = _file(
        M={
            "number": {"type": "map", "key": _F.TYPE_UINT64, "value": {"type": _F.TYPE_FLOAT}},
            "inner": {"type": "map", "key": _F.TYPE_BOOL, "value": _of("t.I")},
            "empty": {"type": "map", "value": _of("t.Empty")},
            "time": {"type": "map", "value": _of("google.protobuf.Timestamp")},
            "again": {"type": "map", "value": _of("t.M")},
        },
        I={"x": _F.TYPE_INT32, "l": {"type": _F.TYPE_INT32, "label": _F.LABEL_REPEATED}},
        Empty={},
    )
    entries = [b"", b"\x08\x01\x15\x00\x00\x80\x3f", b"\x15\x00\x00\x00\x40\x08\x01"]
    payload = b"".join(_field(1, entry) for entry in entries)
    payload += b"".join(_field(number, b"") for number in (2, 3, 4, 5))

    assert _read(file, payload) == [
        {
            "number": {Decimal(0): 0.0, Decimal(1): 2.0},
            "inner": {False: {"x": 0, "l": []}},
            "empty": {"": True},
            "time": {"": 0},
            "again": {"": b""},
        }
    ]


def test_inner_occurrences() -> None:
    """A message inside one of its own type is given as its bytes, in lists and maps too."""
    file = _file(
        M={
            "x": _F.TYPE_INT32,
            "one": _of("t.M"),
            "many": _of("t.M", label=_F.LABEL_REPEATED),
            "map": {"type": "map", "value": _of("t.M")},
            "other": _of("t.I"),
        },
        I={"back": _of("t.M")},
    )
    inner = b"\x08\x07\x12\x02\x08\x08"
    payload = (
        _field(2, inner)
        + _field(3, inner)
        + _field(3, b"")
        + _field(4, _field(1, b"k") + _field(2, inner))
        + _field(5, _field(1, inner))
    )

    assert _read(file, payload) == [
        {
            "x": 0,
            "one": inner,
            "many": [inner, b""],
            "map": {"k": inner},
            "other": {"back": inner},
        }
    ]


def test_groups() -> None:
    """Groups of proto2 are structs, and inside their own type the bytes between their tags."""
    file = _file("proto2", M={"x": _F.TYPE_INT32, "again": _of("t.M")})
    group = file.message_type[0].nested_type.add(name="G")
    group.field.add(name="y", number=1, label=_F.LABEL_OPTIONAL, type=_F.TYPE_INT32)
    details = {"name": "g", "number": 3, "type": _F.TYPE_GROUP, "type_name": ".t.M.G"}
    file.message_type[0].field.add(label=_F.LABEL_OPTIONAL, **details)
    details = {"name": "g", "number": 2, "type": _F.TYPE_GROUP, "type_name": ".t.M.G"}
    group.field.add(label=_F.LABEL_REPEATED, **details)
    inner = b"\x08\x02\x13\x14"

    payload = b"\x1b\x08\x01\x13" + inner + b"\x14\x13\x14\x98\x06\x01\x1c\x08\x09"
    assert _read(file, payload) == [{"x": 9, "again": None, "g": {"y": 1, "g": [inner, b""]}}]
    assert _read(file, payload[:3]).code == tables.ENDS_EARLY
    assert _read(file, b"\x1b\x14").code == tables.BAD_TAG


def test_high_field_numbers() -> None:
    """Fields are found by their number, however high it is and however many there are."""
    file = _file(M={})
    numbers = [*range(1, 400), 5000, 70_000, (1 << 29) - 1]
    for number in numbers:
        file.message_type[0].field.add(
            name=f"f{number}", number=number, label=_F.LABEL_OPTIONAL, type=_F.TYPE_INT32
        )
    payload = b"".join(tag(number, 0) + varint(number) for number in reversed(numbers))
    unknown = tag(450, 0) + b"\x01" + tag(69_999, 0) + b"\x01"

    assert _read(file, unknown + payload) == [{f"f{number}": number for number in numbers}]


def test_many_values() -> None:
    """A payload may have any number of values, more than there was room for."""
    file = _file(
        M={
            "ints": {"type": _F.TYPE_INT32, "label": _F.LABEL_REPEATED},
            "doubles": {"type": _F.TYPE_DOUBLE, "label": _F.LABEL_REPEATED},
            "names": {**_ENUM, "label": _F.LABEL_REPEATED},
            "texts": {"type": _F.TYPE_STRING, "label": _F.LABEL_REPEATED},
            "inner": _of("t.M", label=_F.LABEL_REPEATED),
        }
    )
    count = 5000
    payload = (
        _field(1, b"".join(map(varint, range(count))))
        + _field(2, bytes(8 * count))
        + _field(3, b"\x01" * count)
        + _field(4, b"text") * count
        + _field(5, b"\x08\x01") * count
    )

    assert _read(file, b"", payload) == [
        {"ints": [], "doubles": [], "names": [], "texts": [], "inner": []},
        {
            "ints": list(range(count)),
            "doubles": [0.0] * count,
            "names": ["ONE"] * count,
            "texts": ["text"] * count,
            "inner": [b"\x08\x01"] * count,
        },
    ]


# ----------------------------------------------------------------------------
# The wire

_WIRE: dict[str, Any] = {
    "i": _F.TYPE_INT32,
    "s": _F.TYPE_STRING,
    "u": _F.TYPE_UINT64,
    "z": _F.TYPE_SINT32,
    "b": _F.TYPE_BOOL,
    "d": {"type": _F.TYPE_DOUBLE, "label": _F.LABEL_REPEATED},
    "l": {"type": _F.TYPE_INT32, "label": _F.LABEL_REPEATED},
    "f": _F.TYPE_FIXED32,
    "m": _of("t.M1"),
}


@pytest.mark.parametrize(
    "payload",
    [
        "0880808080808080808001",  # ten bytes
        "08ffffffffffffffffff7f",  # bits above the 64th
        "08ffffffffffffffffffff01",  # eleven bytes
        "0880",  # cut
        "0001",  # field 0
        "880001",  # long tag
        "888080800001",
        "88808080800001",  # too long
        "f8ffffff0f01",  # last field
        "f8ffffff1f01",  # beyond it
        "0a0101",  # wire types that are not the field's
        "0d01000000",
        "09" + "00" * 8,
        "0b0c",
        "1003",
        "4a020801",
        "4b4c",
        "2880808080808080808001",  # true by a high bit
        "2080808080f001",  # bits above the 32nd
        "18ffffffffffffffffff01",
        "3007",  # not packed, but of another wire type
        "320700000000000000",  # seven bytes of doubles
        "3210" + "00" * 16,
        "3900000000000000003a0102380339",  # items of both forms
        "3900000000000000003a01023803",
        "3a0180",
        "3a00",
        "3a0bffffffffffffffffff7f01",
        "4500",
        "45ffffffff",
        "3100000000000000",
        "0c",  # the end of no group
        "0b",
        "0b14",
        "0e",
        "0f",
        "9a06020801",
        "9a06ffffffff07",
        "9a06ffffffffffffffffff01",
        "12ffffffff0f",
        "12ffffffffffffffffff01",
        "1281800061",  # long length
        "12818080800061",
        "1281808080800061",
        "1202c3a4",
        "1203fffefd",
        "1205eda0806161",
        "120461626380",
        "1208616263646566c3a4",
        "1209616263646566676880",
        "12103031323334353637383930313233c3a4",
        "120ac3a4303132333435363738",
    ],
)
def test_wire_format(payload: str) -> None:
    """Each oddity of the wire format is taken or refused as the library does."""
    data = _data(_file(M=_WIRE, M1={**_WIRE, "m": _F.TYPE_INT32}))
    encoded = bytes.fromhex(payload)

    alone = (encoded, encoded + b"\x08\x01", b"\x12\x01a" + encoded)
    for given in (*alone, *(_field(9, each) + b"\x08\x01" for each in alone)):
        found = read_payloads(program_of(data), [given])
        try:
            expected = [library_value(library_class(data).FromString(given))]
        except DecodeError:
            assert isinstance(found, Misfit)
            assert found.code in tables.REASONS
        else:
            assert found == expected


def test_text_of_proto2() -> None:
    """Bytes that are no text do not fit a column of text, though proto2 does not look at them."""
    found = _read(_file("proto2", M={"s": _F.TYPE_STRING}), b"", b"\x0a\x01\xff")

    assert found == Misfit(1, tables.BAD_UTF8, "s", 2)


@pytest.mark.parametrize("around", [0, 1, 50])
@pytest.mark.parametrize("number", [1, 100])
def test_depth(around: int, number: int) -> None:
    """Unknown groups are read over as deep as the library reads: 100 with the messages around."""
    inner: dict[str, Any] = {f"M{n}": {"m": _of(f"t.M{n + 1}")} for n in range(50)}
    file = _file(M={"m": _of("t.M0")}, **inner, M50={})
    data = _data(file)
    for depth in (99, 100, 101):
        groups = depth - around
        payload = tag(number + 1, 3) * groups + tag(number + 1, 4) * groups
        for _ in range(around):
            payload = _field(1, payload)
        found = read_payloads(program_of(data), [payload])
        if depth > tables.MAX_MESSAGE_DEPTH:
            assert isinstance(found, Misfit)
            assert found.code == tables.TOO_DEEP
            with pytest.raises(DecodeError):
                library_class(data).FromString(payload)
        else:
            assert found == [library_value(library_class(data).FromString(payload))]


def test_endless_groups() -> None:
    """A million groups inside each other are refused, not followed."""
    found = _read(_file(M={"x": _F.TYPE_INT32}), b"\x13" * 1_000_000)

    assert (found.code, found.path) == (tables.TOO_DEEP, "")


def test_where_it_is_wrong() -> None:
    """What does not fit is told by its row, its field and where in the payload that was seen."""
    file = _file(M={"i": _of("t.I")}, I={"x": _F.TYPE_INT32, "s": _F.TYPE_STRING})
    fine = b"\x0a\x02\x08\x01"

    assert _read(file, fine, b"\x0a\x03\x12\x01\xff") == Misfit(1, tables.BAD_UTF8, "i.s", 4)
    assert _read(file, fine, b"\x0a\x02\x12\x01") == Misfit(1, tables.BAD_LENGTH, "i.s", 4)
    assert _read(file, fine, fine, b"\x0a\x05") == Misfit(2, tables.BAD_LENGTH, "i", 2)


# ----------------------------------------------------------------------------
# Schemas


def test_files_in_any_order() -> None:
    """Files may depend on those behind them, and those of the library may be left out."""
    inner = FileDescriptorProto(name="inner.proto", package="i", syntax="proto3")
    inner.dependency.append("google/protobuf/wrappers.proto")
    message = inner.message_type.add(name="I")
    message.field.add(
        name="w", number=1, label=_F.LABEL_OPTIONAL, **_of("google.protobuf.BoolValue")
    )
    file = _file(M={"i": _of("i.I")})
    file.dependency.append("inner.proto")
    stray = FileDescriptorProto(name="stray.proto", dependency=["gone.proto"])
    data = schema_data([stray, file, inner], "t.M", "t.proto")

    assert read_payloads(program_of(data), [b"\x0a\x02\x0a\x00"]) == [{"i": {"w": False}}]


def test_nested_root() -> None:
    """The outermost message may be one that another defines."""
    file = _file(M={})
    inner = file.message_type[0].nested_type.add(name="I")
    inner.field.add(name="x", number=1, label=_F.LABEL_OPTIONAL, type=_F.TYPE_INT32)
    data = schema_data([file], "t.M.I", "t.proto")

    assert read_payloads(program_of(data), [b"\x08\x07"]) == [{"x": 7}]


def _changed(**changes: object) -> str:
    data = json.loads(_data(_file(M={"x": _F.TYPE_INT32})))
    return json.dumps({**data, **changes})


_DEEP: dict[str, Any] = {f"M{n}": {"m": _of(f"t.M{n + 1}")} for n in range(100)}
_WIDE: dict[str, Any] = {
    f"M{n}": {f"m{k}": _of(f"t.M{n + 1}") for k in range(10)} for n in range(10)
}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a JSON object"),
        (" " * (1 << 25), "longer than"),
        ("{}", "has no fileDescriptorSet"),
        (_changed(rootMessageTypeName=7), "has no rootMessageTypeName"),
        (_changed(rootFileDescriptorName=None), "has no rootFileDescriptorName"),
        (_changed(fileDescriptorSet="@"), "not one in Base64"),
        (_changed(fileDescriptorSet="//8="), "not one in Base64"),
        (_changed(rootMessageTypeName="t.Gone"), "does not define the message 't.Gone'"),
        (_changed(rootMessageTypeName=""), "does not define the message"),
        (_changed(rootFileDescriptorName="gone.proto"), "lacks the file 'gone.proto'"),
        (_data(_file(M={"x": _of("t.Gone")})), "is not valid"),
        (_data(_file(M={"m": _of("t.M0")}, **_DEEP, M100={})), "nests them more than"),
        (_data(_file(M={"m": _of("t.M0")}, **_WIDE, M10={})), "more than 20000 fields"),
        (
            schema_data([_file(M={}), _file(M={"x": _F.TYPE_INT32})], "t.M", "t.proto"),
            "two files 't.proto'",
        ),
        (
            schema_data(
                [
                    FileDescriptorProto(name="a.proto", dependency=["b.proto"]),
                    FileDescriptorProto(name="b.proto", dependency=["a.proto"]),
                ],
                "t.M",
                "a.proto",
            ),
            "depend on each other",
        ),
        (schema_data([_file(M={})], "google.protobuf.Timestamp", "t.proto"), "does not define"),
    ],
)
def test_schemas_that_are_none(data: str, reason: str) -> None:
    """What is no schema is refused with what is wrong with it, in few words."""
    with pytest.raises(SchemaError, match=reason) as raised:
        protobuf_shape(data, "ns")

    assert len(str(raised.value)) < 400
