"""Values become protobuf messages as the library serialises them, or an error says why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arrow_io.errors import OptionError
from arrow_io.payloads.encoder import PayloadEncoder
from arrow_io.payloads.schema_info import SchemaInfo
from tests.support.payloads import shredded_alike
from tests.support.protobuf_files import ENUM, data_of, file_of, nested
from tests.support.protobuf_payloads import library_class, library_value, program_of, read_payloads
from tests.support.protobuf_strategies import Schema, messages, schemas

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def test_maps_are_written_in_the_order_of_their_keys() -> None:
    """Equal rows have equal bytes."""
    keys = [f"key {number}" for number in range(20)]
    rows = [[(key, key) for key in order] for order in (keys, keys[::-1])]
    values = pa.StructArray.from_arrays([pa.array(rows, pa.map_(pa.string(), pa.string()))], ["m"])

    first, second = _encode(values, "proto3", {"M": {"m": _map_of(type=_F.TYPE_STRING)}})

    assert first == second


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


# Any schema


_MESSY = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def _columns(schema: Schema, given_messages: Sequence[Message], unit: str) -> pa.Array:
    payloads = [each.SerializePartialToString() for each in given_messages]
    return shredded_alike(program_of(schema.data, unit), payloads).values


@_MESSY
@given(data=st.data(), schema=schemas(), unit=st.sampled_from(("ns", "us")))
def test_what_we_write_is_read_as_it_was(data: st.DataObject, schema: Schema, unit: str) -> None:
    """Presence, oneofs, maps and enums of any schema are kept; what lacks a field is refused."""
    drawn = data.draw(st.lists(messages(schema), min_size=1, max_size=4))
    encoder = PayloadEncoder(SchemaInfo("PROTOBUF_NATIVE", schema.data))
    whole = [each for each in drawn if each.IsInitialized()]
    lacking = [each for each in drawn if not each.IsInitialized()]
    values = _columns(schema, [*lacking, *whole], unit)[len(lacking) :]

    payloads = [each for each in encoder.encode(values) if each is not None]

    read = [schema.message_class.FromString(each) for each in payloads]
    again = shredded_alike(program_of(schema.data, unit), payloads).rows
    assert again == [library_value(each, unit) for each in read]
    assert again == [library_value(each, unit) for each in whole]
    for each in lacking:
        with pytest.raises(OptionError, match=r"null|required|requires"):
            encoder.encode(_columns(schema, [each], unit))
