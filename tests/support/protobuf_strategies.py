"""Hypothesis strategies: protobuf schemas of all kinds, their messages, and odd bytes of these."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    EDITION_2023,
    DescriptorProto,
    FeatureSet,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from hypothesis import strategies as st

from tests.support.protobuf_payloads import ProtoField, is_map, library_class, schema_data
from tests.support.pulsar_proto import varint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.message import Message

ProtoType: TypeAlias = Any
"""A message's descriptor: the library has two classes for it, of which it exports one."""

_FILE: Final = "strategies.proto"
_DEPENDENCIES: Final = ("google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto")
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_WRAPPERS: Final = tuple(
    f"google.protobuf.{name}Value" for name in ("Double", "UInt64", "Int32", "Bool", "String")
)
_MESSAGES: Final = ("M0", "M1", "M2", "Empty")
_F: Final = FieldDescriptorProto
_NUMBERS: Final = tuple(
    number for number in _F.Type.values() if number not in {_F.TYPE_GROUP, _F.TYPE_MESSAGE}
)
_KEYS: Final = tuple(
    number
    for number in _NUMBERS
    if number not in {_F.TYPE_DOUBLE, _F.TYPE_FLOAT, _F.TYPE_BYTES, _F.TYPE_ENUM}
)
_FIELD_NUMBERS: Final = (*range(1, 13), 15, 16, 100, 2047, 2048, 18_999, (1 << 29) - 1)
_MAX_DEPTH: Final = 3
_VALUES: Final[dict[int, st.SearchStrategy[Any]]] = {
    # One NaN, since a column of single precision may have none but the usual one.
    _F.TYPE_DOUBLE: st.floats(allow_nan=False) | st.just(math.nan),
    _F.TYPE_FLOAT: st.floats(width=32, allow_nan=False) | st.just(math.nan),
    _F.TYPE_BOOL: st.booleans(),
    _F.TYPE_STRING: st.text(max_size=12),
    _F.TYPE_BYTES: st.binary(max_size=12),
}
_EDGES: Final = tuple(
    sign * (1 << bits) + more
    for bits in (0, 7, 14, 28, 31, 32, 35, 49, 56, 63)
    for more in (-1, 0, 1)
    for sign in (1, -1)
)


@dataclass(frozen=True)
class Schema:
    """A schema of which `M0` is the outermost message.

    Attributes:
        data: PROTOBUF_NATIVE schema data; leaves out the files that the library has.
        message_class: The library's own class of `M0`.
    """

    data: str
    message_class: type[Message]


@st.composite
def schemas(
    draw: st.DrawFn, *, recursive: bool = True, plain: bool = False, long_tags: bool = True
) -> Schema:
    """Schemas of proto2, proto3 and edition 2023.

    Args:
        draw: Hypothesis's.
        recursive: Whether a message may be inside one of its own type, whose bytes are not looked
            at.
        plain: Whether all fields are such as the compiled build reads together: no groups,
            wrappers or messages without fields, and no messages in maps.
        long_tags: Whether tags may have two bytes or more.
    """
    kind = draw(st.sampled_from(("proto2", "proto3", "editions")))
    file = FileDescriptorProto(name=_FILE, package="t", syntax=kind, dependency=[*_DEPENDENCIES])
    if kind == "editions":
        file.edition = EDITION_2023
        _draw_features(draw, file)
        if plain:
            file.options.features.message_encoding = FeatureSet.LENGTH_PREFIXED
    enum = file.enum_type.add(name="E")
    enum.options.allow_alias = True
    for name, number in (("ZERO", 0), ("ONE", 1), ("UNO", 1), ("NEG", -1), ("BIG", 1 << 30)):
        enum.value.add(name=name, number=number)
    for place, name in enumerate(_MESSAGES[:-1]):
        message = file.message_type.add(name=name)
        names = _MESSAGES if recursive else _MESSAGES[place + 1 :]
        inner = [f"t.{each}" for each in names if not plain or each != "Empty"]
        inner += (_TIMESTAMP,) if plain else (_TIMESTAMP, *_WRAPPERS)
        numbers = [each for each in _FIELD_NUMBERS if long_tags or each < 16]
        for number in draw(
            st.lists(st.sampled_from(numbers), min_size=int(plain), max_size=6, unique=True)
        ):
            _draw_field(draw, message, kind, number, inner, plain=plain)
        _add_oneofs(draw, message, kind)
    file.message_type.add(name="Empty")
    data = schema_data([file], "t.M0", _FILE)
    return Schema(data, library_class(data))


def _draw_features(draw: st.DrawFn, file: FileDescriptorProto) -> None:
    features = file.options.features
    features.enum_type = draw(st.sampled_from((FeatureSet.OPEN, FeatureSet.CLOSED)))
    features.message_encoding = draw(
        st.sampled_from((FeatureSet.LENGTH_PREFIXED, FeatureSet.DELIMITED))
    )
    features.repeated_field_encoding = draw(
        st.sampled_from((FeatureSet.PACKED, FeatureSet.EXPANDED))
    )
    features.utf8_validation = draw(st.sampled_from((FeatureSet.VERIFY, FeatureSet.NONE)))


def _draw_field(
    draw: st.DrawFn,
    message: DescriptorProto,
    kind: str,
    number: int,
    inner: Sequence[str],
    *,
    plain: bool,
) -> None:
    name = f"f{number}"
    forms = ("single", "single", "repeated", "map", "single" if plain else "group")
    form = draw(st.sampled_from(forms))
    if form == "map":
        entry = message.nested_type.add(name=f"F{number}Entry")
        entry.options.map_entry = True
        entry.field.add(
            name="key", number=1, label=_F.LABEL_OPTIONAL, type=draw(st.sampled_from(_KEYS))
        )
        value = entry.field.add(name="value", number=2, label=_F.LABEL_OPTIONAL)
        _draw_type(draw, value, () if plain else inner)
        field = message.field.add(name=name, number=number, label=_F.LABEL_REPEATED)
        field.type, field.type_name = _F.TYPE_MESSAGE, f".t.{message.name}.{entry.name}"
        return
    field = message.field.add(name=name, number=number, label=_F.LABEL_OPTIONAL)
    if form == "repeated":
        field.label = _F.LABEL_REPEATED
    if form == "group" and kind == "proto2":
        group = message.nested_type.add(name=f"F{number}")
        group.field.add(name="x", number=1, label=_F.LABEL_OPTIONAL, type=_F.TYPE_INT32)
        field.type, field.type_name = _F.TYPE_GROUP, f".t.{message.name}.{group.name}"
        return
    _draw_type(draw, field, inner)
    is_scalar = field.type != _F.TYPE_MESSAGE
    if form == "repeated" and kind == "proto2" and field.type not in {
        _F.TYPE_STRING, _F.TYPE_BYTES, _F.TYPE_MESSAGE
    }:  # fmt: skip
        field.options.packed = draw(st.booleans())
    if form == "single" and kind == "proto3" and draw(st.booleans()):
        field.proto3_optional = True
        field.oneof_index = 0
    if form == "single" and kind == "proto2" and draw(st.booleans()):
        field.label = _F.LABEL_REQUIRED
    if form == "single" and kind == "editions" and is_scalar and field.type != _F.TYPE_ENUM:
        field.options.features.field_presence = draw(
            st.sampled_from((FeatureSet.EXPLICIT, FeatureSet.IMPLICIT))
        )


def _draw_type(draw: st.DrawFn, field: FieldDescriptorProto, inner: Sequence[str]) -> None:
    field.type = draw(st.sampled_from((*_NUMBERS, *(_F.TYPE_MESSAGE,) * (5 if inner else 0))))
    if field.type == _F.TYPE_ENUM:
        field.type_name = ".t.E"
    elif field.type == _F.TYPE_MESSAGE:
        field.type_name = f".{draw(st.sampled_from(inner))}"


def _add_oneofs(draw: st.DrawFn, message: DescriptorProto, kind: str) -> None:
    """Put some fields into a oneof, and each optional one of proto3 in one of its own."""
    free = [
        field
        for field in message.field
        if field.label == _F.LABEL_OPTIONAL
        and not field.proto3_optional
        and not field.options.features.HasField("field_presence")
        and field.type != _F.TYPE_GROUP
    ]
    members = free[: draw(st.integers(0, len(free)))]
    if members:
        for field in members:
            field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name="choice")
    for field in message.field:
        if kind == "proto3" and field.proto3_optional:
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


# ----------------------------------------------------------------------------
# Messages


def messages(schema: Schema) -> st.SearchStrategy[Message]:
    """Messages of a schema, as the library builds them."""
    return st.composite(_draw_message)(schema.message_class)


def _draw_message(draw: st.DrawFn, type_: type[Message], depth: int = 0) -> Message:
    message = type_()
    _fill(draw, message, depth)
    return message


def _fill(draw: st.DrawFn, message: Message, depth: int) -> None:
    for field in message.DESCRIPTOR.fields:
        if draw(st.booleans()):
            _fill_field(draw, message, field, depth)


def _fill_field(draw: st.DrawFn, message: Message, field: ProtoField, depth: int) -> None:
    count = draw(st.integers(0, 3)) if depth < _MAX_DEPTH else 0
    value = getattr(message, field.name)
    if is_map(field):
        key, item = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        for _ in range(count):
            place = draw(_scalars(key))
            if item.message_type is not None:
                _fill(draw, value[place], depth + 1)
            else:
                value[place] = draw(_scalars(item))
    elif field.is_repeated:
        for _ in range(count):
            if field.message_type is not None:
                _fill(draw, value.add(), depth + 1)
            else:
                value.append(draw(_scalars(field)))
    elif field.message_type is None:
        setattr(message, field.name, draw(_scalars(field)))
    else:
        value.SetInParent()
        if depth < _MAX_DEPTH:
            _fill(draw, value, depth + 1)


def _scalars(field: ProtoField) -> st.SearchStrategy[Any]:
    kind = field.type
    if kind in _VALUES:
        return _VALUES[kind]
    if kind == FieldDescriptor.TYPE_ENUM:
        known = st.sampled_from([value.number for value in field.enum_type.values])
        return known if field.enum_type.is_closed else known | _integers(31, signed=True)
    if field.containing_type.full_name == _TIMESTAMP:
        # Mostly such as fit both units.
        return st.integers(0, 10**6).map(lambda number: number * 1000 % 10**9)
    bits = 32 if "32" in _F.Type.Name(kind) else 64
    signed = kind not in {
        FieldDescriptor.TYPE_UINT32,
        FieldDescriptor.TYPE_UINT64,
        FieldDescriptor.TYPE_FIXED32,
        FieldDescriptor.TYPE_FIXED64,
    }
    return _integers(bits - signed, signed=signed)


def _integers(bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(1 << bits) if signed else 0), (1 << bits) - 1
    edges = [edge for edge in _EDGES if low <= edge <= high]
    return st.sampled_from(edges) | st.integers(low, high)


# ----------------------------------------------------------------------------
# Bytes


def tag(number: int, wire_type: int, length: int = 0) -> bytes:
    """The tag of a field."""
    return varint(number << 3 | wire_type, length)


@st.composite
def odd_payloads(draw: st.DrawFn, schema: Schema) -> bytes:
    """Payloads that hold what no serialiser writes, of which some are valid all the same.

    Fields in any order and more than once, known ones with any wire type, unknown ones, long forms
    of numbers, all that also in inner messages.
    """
    pieces: list[bytes] = []
    for _ in range(draw(st.integers(1, 2))):
        pieces += _scrambled(draw, draw(messages(schema)))
    pieces += draw(st.lists(_pieces(schema.message_class.DESCRIPTOR, 2), max_size=4))
    return b"".join(draw(st.permutations(pieces)))


def _scrambled(draw: st.DrawFn, message: Message) -> list[bytes]:
    """Each field of a message by itself, or twice."""
    pieces = []
    for field, value in message.ListFields():
        part = type(message)()
        if is_map(field) or field.is_repeated:
            getattr(part, field.name).MergeFrom(value)
        elif field.message_type is not None:
            getattr(part, field.name).CopyFrom(value)
        else:
            setattr(part, field.name, value)
        pieces += [part.SerializePartialToString()] * draw(st.sampled_from((1, 1, 1, 2)))
    return pieces


def _pieces(type_: ProtoType, depth: int) -> st.SearchStrategy[bytes]:
    """One field, known or not, of any wire type; what is in it may be of its type."""
    return st.composite(_draw_piece)(type_, depth)


def _draw_piece(draw: st.DrawFn, type_: ProtoType, depth: int) -> bytes:
    known = [field.number for field in type_.fields]
    number = draw(st.sampled_from((*known, *known, 1, 2, 3, 14, 500, (1 << 29) - 1)))
    field = type_.fields_by_number.get(number)
    wire_type = draw(st.sampled_from((0, 0, 1, 2, 2, 2, 3, 5)))
    if draw(st.integers(0, 30)) == 0:
        # What the wire format has not: field 0, the end of a group that is none, types 6 and 7.
        return draw(st.sampled_from((b"\x00\x00", tag(number, 4), tag(number, 6), tag(number, 7))))
    length = draw(st.sampled_from((0, 0, 0, 5)))
    head = tag(number, wire_type, length)
    if wire_type == 0:
        return head + varint(draw(_integers(63, signed=True)), draw(st.sampled_from((0, 0, 10))))
    if wire_type in {1, 5}:
        size = 8 if wire_type == 1 else 4
        return head + draw(st.binary(min_size=size, max_size=size))
    body = draw(st.binary(max_size=8) | st.lists(_integers(63, signed=True), max_size=3).map(
        lambda numbers: b"".join(map(varint, numbers))
    ))  # fmt: skip
    if depth > 0 and draw(st.sampled_from((True, True, False))):
        inner = field.message_type if field is not None and field.message_type else type_
        body = b"".join(draw(st.lists(_pieces(inner, depth - 1), max_size=3)))
    if wire_type == 2:
        return head + varint(len(body), draw(st.sampled_from((0, 0, 5)))) + body
    return head + body + tag(number, 4)
