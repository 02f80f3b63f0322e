"""Values become protobuf messages as the library serialises them, or an error says why not."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from arrow_io.errors import OptionError
from arrow_io.payloads.encoder import PayloadEncoder
from arrow_io.payloads.schema_info import SchemaInfo
from tests.support.protobuf_files import ENUM, data_of, file_of, nested
from tests.support.protobuf_payloads import library_class, program_of, read_payloads

if TYPE_CHECKING:
    from google.protobuf.message import Message

_F: Final = FieldDescriptorProto
_REPEATED: Final = {"label": _F.LABEL_REPEATED}
_REQUIRED: Final = {"type": _F.TYPE_INT32, "label": _F.LABEL_REQUIRED}
_STAMP: Final = nested("google.protobuf.Timestamp")
_BOXED: Final = nested("google.protobuf.Int32Value")
_EMPTY: Final[dict[str, Any]] = {}


def _map_of(**value: Any) -> dict[str, Any]:  # noqa: ANN401 - of a field
    return {"type": "map", "value": value}


def _encode(values: pa.Array, syntax: str, messages: dict[str, Any]) -> list[bytes | None]:
    data = data_of(file_of(syntax, **messages))
    return PayloadEncoder(SchemaInfo("PROTOBUF_NATIVE", data)).encode(values)


def _message(row: dict[str, Any], syntax: str = "proto3", /, **fields: Any) -> Message:  # noqa: ANN401
    """The library's message of what is written of a row, after a check that we read the row."""
    messages = {"M": fields, "N": {"x": _F.TYPE_INT32}, "Nothing": _EMPTY}
    (payload,) = _encode(pa.array([row]), syntax, messages)
    data = data_of(file_of(syntax, **messages))
    message = library_class(data).FromString(payload or b"")
    found = read_payloads(program_of(data), [payload])
    assert isinstance(found, list)
    assert {name: found[0][name] for name in row} == row
    return message


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        (_F.TYPE_DOUBLE, -0.5, "-0.5"),
        (_F.TYPE_FLOAT, 0.5, "0.5"),
        (_F.TYPE_INT32, -(2**31), str(-(2**31))),
        (_F.TYPE_SINT64, -(2**63), str(-(2**63))),
        (_F.TYPE_UINT32, 2**32 - 1, str(2**32 - 1)),
        (_F.TYPE_FIXED32, 2**32 - 1, str(2**32 - 1)),
        (_F.TYPE_UINT64, Decimal(2**64 - 1), str(2**64 - 1)),
        (_F.TYPE_FIXED64, Decimal(2**64 - 1), str(2**64 - 1)),
        (_F.TYPE_BOOL, True, "true"),
        (_F.TYPE_STRING, "x", '"x"'),
        (_F.TYPE_BYTES, b"\xff", '"\\377"'),
        (ENUM, "ONE", "ONE"),
        (ENUM, "-1", "MINUS"),
        (ENUM, "77", "77"),
    ],
    ids=str,
)
def test_each_scalar(kind: object, value: object, told: str) -> None:
    """By itself, in a list, in a map and in a oneof, the library has the value."""
    messages = {
        "M": {
            "a": kind,
            "b": {**_details(kind), **_REPEATED},
            "c": _map_of(**_details(kind)),
            "d": {**_details(kind), "oneof_index": 0},
        }
    }
    type_ = pa.scalar(value).type
    values = pa.array(
        [{"a": value, "b": [value] * 2, "c": [("k", value)], "d": value}],
        pa.struct({"a": type_, "b": pa.list_(type_), "c": pa.map_(pa.string(), type_), "d": type_}),
    )

    (payload,) = _encode(values, "proto3", messages)

    message = library_class(data_of(file_of("proto3", **messages))).FromString(payload or b"")
    assert str(message) == (
        f'a: {told}\nb: {told}\nb: {told}\nc {{\n  key: "k"\n  value: {told}\n}}\nd: {told}\n'
    )


def _details(kind: Any) -> dict[str, Any]:  # noqa: ANN401 - of a field
    return kind if isinstance(kind, dict) else {"type": kind}


def test_presence() -> None:
    """Zero is set where presence is tracked, and null is not."""
    optional = {"type": _F.TYPE_INT32, "oneof_index": 0, "proto3_optional": True}

    assert str(_message({"a": 0, "b": None}, a=optional, b=nested("t.N"))) == "a: 0\n"
    assert str(_message({"a": None, "b": {"x": 0}}, a=optional, b=nested("t.N"))) == "b {\n}\n"
    assert str(_message({"a": 0}, "proto2", a=_F.TYPE_INT32)) == "a: 0\n"
    assert str(_message({"a": 0}, a=_F.TYPE_INT32)) == ""


def test_messages_of_the_library() -> None:
    """Times and wrapped values are given as the values in them."""
    row = {"at": -1, "boxed": 0, "nothing": True}
    fields = {"at": _STAMP, "boxed": _BOXED, "nothing": nested("t.Nothing")}
    type_ = {"at": pa.timestamp("ns", "UTC"), "boxed": pa.int32(), "nothing": pa.bool_()}
    messages = {"M": fields, "Nothing": _EMPTY}

    (payload,) = _encode(pa.array([row], pa.struct(type_)), "proto3", messages)

    message = library_class(data_of(file_of("proto3", **messages))).FromString(payload or b"")
    assert str(message) == "at {\n  seconds: -1\n  nanos: 999999999\n}\nboxed {\n}\nnothing {\n}\n"


def test_maps_are_written_in_the_order_of_their_keys() -> None:
    """Equal rows have equal bytes."""
    keys = [f"key {number}" for number in range(20)]
    rows = [[(key, key) for key in order] for order in (keys, keys[::-1])]
    values = pa.StructArray.from_arrays([pa.array(rows, pa.map_(pa.string(), pa.string()))], ["m"])

    first, second = _encode(values, "proto3", {"M": {"m": _map_of(type=_F.TYPE_STRING)}})

    assert first == second


def test_a_type_inside_itself() -> None:
    """Its bytes are those of a message, and become one."""
    fields = {"x": _F.TYPE_INT32, "next": nested("t.M")}

    message = _message({"x": 1, "next": b"\x08\x02"}, **fields)

    assert str(message) == "x: 1\nnext {\n  x: 2\n}\n"


def test_fields_that_are_not_given() -> None:
    """They are not set, unless the schema requires them."""
    fields = {"a": _F.TYPE_INT32, "b": nested("t.N"), "c": _REQUIRED}

    assert str(_message({"c": 1}, "proto2", **fields)) == "c: 1\n"
    with pytest.raises(OptionError, match=r"value\.c is missing, and the schema requires it"):
        _message({"a": 1}, "proto2", **fields)


@pytest.mark.parametrize(
    ("kind", "values", "reason"),
    [
        (_F.TYPE_INT32, pa.array([2**31]), r"value\.a .*2147483648"),
        (_F.TYPE_UINT32, pa.array([-1]), r"value\.a: -1 is not an unsigned number of 32 bits"),
        (_F.TYPE_UINT32, pa.array([2**32]), r"value\.a: 4294967296 is not"),
        (_F.TYPE_UINT64, pa.array([2**64], pa.decimal128(20, 0)), r"value\.a: .* of 64 bits"),
        (_F.TYPE_FIXED64, pa.array([-1]), r"value\.a: -1 is not an unsigned number of 64 bits"),
        (_F.TYPE_FLOAT, pa.array([1e39]), r"value\.a: 1e\+39 is out of the range of a float"),
        (_F.TYPE_INT32, pa.array([None], pa.int32()), r"value\.a is null"),
        (ENUM, pa.array(["TWO"]), r"value\.a: the enum E has no value 'TWO'"),
        (ENUM, pa.array([str(2**31)]), r"value\.a: the enum E has no value"),
        ({"type": _F.TYPE_INT32, **_REPEATED}, pa.array([None], pa.list_(pa.int32())),
         r"value\.a is null"),
        ({"type": _F.TYPE_INT32, **_REPEATED}, pa.array([[1, None]]), r"value\.a\[\] is null"),
        ({**_BOXED, **_REPEATED}, pa.array([[1, None]]), r"value\.a\[\] is null"),
        (_map_of(type=_F.TYPE_INT32), pa.array([[("k", None)]], pa.map_(pa.string(), pa.int32())),
         r"value\.a\[\] is null"),
        (_map_of(type=_F.TYPE_INT32),
         pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int32())),
         "a map has the key 'k' twice"),
        (nested("t.N"), pa.array([{"x": 1, "y": 2}]), r"value\.a: the schema has no field 'y'"),
        (nested("t.Nothing"), pa.array([False]), r"value\.a: a record without fields must be true"),
        (nested("t.M"), pa.array([b"\x08"]), r"value\.a is not a serialized message t\.M"),
        (_STAMP, pa.array(["now"]), r"value\.a "),
        (_F.TYPE_UINT64, pa.array([1.5]), r"value\.a: .*may lose data: cast it first"),
        (_F.TYPE_BOOL, pa.array([0.5]), r"value\.a: .*may lose data: cast it first"),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else str(value)[:50],
)  # fmt: skip
def test_values_that_do_not_fit_are_refused(kind: object, values: pa.Array, reason: str) -> None:
    """Nothing is cut, wrapped or left out: an error names the field and says what does not fit."""
    messages = {"M": {"a": kind}, "N": {"x": _F.TYPE_INT32}, "Nothing": _EMPTY}
    records = pa.StructArray.from_arrays([values], ["a"])

    with pytest.raises(OptionError, match=reason):
        _encode(records, "proto3", messages)


def test_two_fields_of_a_oneof_are_refused() -> None:
    """The library would keep the last of them without a word."""
    one = {"type": _F.TYPE_INT32, "oneof_index": 0}
    messages = {"M": {"a": one, "b": {**one, "type": _F.TYPE_STRING}}}
    values = pa.array([{"a": 1, "b": None}, {"a": None, "b": "x"}, {"a": None, "b": None}])

    assert _encode(values, "proto3", messages) == [b"\x08\x01", b"\x12\x01x", b""]
    with pytest.raises(OptionError, match=r"value sets two fields of the oneof oneof_a: a and b"):
        _encode(pa.array([{"a": 1, "b": "x"}]), "proto3", messages)


@pytest.mark.parametrize(
    ("syntax", "kind", "reason"),
    [
        ("proto2", _REQUIRED, r"value\.a is null"),
        ("proto2", {**nested("t.N"), "label": _F.LABEL_REQUIRED}, r"value\.a is null"),
    ],
)
def test_fields_that_are_required_are_never_null(syntax: str, kind: object, reason: str) -> None:
    """A message without them could not be read."""
    messages = {"M": {"a": kind}, "N": {"x": _REQUIRED}}

    with pytest.raises(OptionError, match=reason):
        _encode(pa.array([{"a": None}]), syntax, messages)


def test_bytes_of_a_message_that_lacks_what_is_required() -> None:
    """Of those that stand in a column as bytes, the library says so."""
    messages = {"M": {"x": _REQUIRED, "next": nested("t.M")}}

    with pytest.raises(OptionError, match=r"the value.*missing required"):
        _encode(pa.array([{"x": 1, "next": b""}]), "proto2", messages)


def test_closed_enums_have_only_their_numbers() -> None:
    """A reader would take another for an unknown field."""
    messages = {"M": {"a": ENUM}}

    assert _encode(pa.array([{"a": "1048576"}]), "proto2", messages) == [b"\x08\x80\x80\x40"]
    assert _encode(pa.array([{"a": 1}]), "proto2", messages) == [b"\x08\x01"]
    with pytest.raises(OptionError, match="no value '2'"):
        _encode(pa.array([{"a": "2"}]), "proto2", messages)
