"""Payloads of PROTOBUF_NATIVE, and of PROTOBUF with a descriptor, become Arrow values."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError

from arrow_io.payloads import tables
from arrow_io.payloads.protobuf_native import protobuf_shape
from arrow_io.payloads.shredding import Misfit
from tests.support.benchmark_ledgers import PROTOBUF_LZ4, READING_SCHEMA
from tests.support.golden import golden_topic
from tests.support.golden_datasets import reference_rows
from tests.support.golden_values import expected_values, golden_schema
from tests.support.protobuf_files import ENUM, data_of, file_of, nested, read, sized
from tests.support.protobuf_payloads import (
    library_class,
    library_value,
    program_of,
    read_payloads,
    schema_data,
)
from tests.support.protobuf_strategies import tag
from tests.support.pulsar_proto import varint

_F = FieldDescriptorProto

pytestmark = pytest.mark.usefixtures("build")


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
    file = file_of(
        M={
            **fields,
            **{f"{name}_value": nested(f"google.protobuf.{name}Value") for name in wrapped},
            "name": ENUM,
            "list": {"type": _F.TYPE_INT64, "label": _F.LABEL_REPEATED},
            "map": {"type": "map", "key": _F.TYPE_UINT64, "value": ENUM},
            "inner": nested("t.I"),
            "empty": nested("t.Empty"),
            "again": nested("t.M"),
            "time": nested("google.protobuf.Timestamp"),
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

    assert protobuf_shape(data_of(file), "us").type == pa.struct(expected)


def test_enums() -> None:
    """A number of an enum is its first name, or the number as text if it has none."""
    file = file_of(M={"e": ENUM, "many": {**ENUM, "label": _F.LABEL_REPEATED}})
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
    packed = sized(2, b"".join(map(varint, numbers)))

    found = read(file, packed, *(tag(1, 0) + varint(number) for number in numbers))

    assert found[0]["many"] == list(numbers.values())
    assert [row["e"] for row in found[1:]] == list(numbers.values())


def test_closed_enums() -> None:
    """A number that a closed enum has not is an unknown field; such an entry of a map is none."""
    file = file_of(
        "proto2",
        M={
            "e": ENUM,
            "many": {**ENUM, "label": _F.LABEL_REPEATED},
            "map": {"type": "map", "value": ENUM},
        },
    )
    entries = sized(3, sized(1, b"a") + b"\x10\x07") + sized(3, sized(1, b"b") + b"\x10\x01")
    payload = b"\x08\x07" + sized(2, b"\x01\x07\x00") + b"\x10\x07\x10\x01" + entries

    assert read(file, payload) == [{"e": None, "many": ["ONE", "ZERO", "ONE"], "map": {"b": "ONE"}}]


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
    file = file_of(M={"t": nested("google.protobuf.Timestamp")})

    found = read(file, sized(1, body), unit=unit)

    if isinstance(found, Misfit):
        assert (found.code, found.path) == (expected, "t")
    else:
        assert found == [{"t": expected}]


def test_own_timestamp() -> None:
    """A message that only has the name of protobuf's timestamp is a struct like any other."""
    own = FileDescriptorProto(name="google/protobuf/timestamp.proto", package="google.protobuf")
    message = own.message_type.add(name="Timestamp")
    message.field.add(name="year", number=1, label=_F.LABEL_OPTIONAL, type=_F.TYPE_INT32)
    file = file_of(M={"t": nested("google.protobuf.Timestamp")})
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
    file = file_of(Empty={}) if name == "t.Empty" else own
    data = schema_data([file], name, file.name)

    assert read_payloads(program_of(data), [payload]) == [expected]
