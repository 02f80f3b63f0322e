"""PROTOBUF_NATIVE: shapes and programs for the `FileDescriptorSet` that Pulsar stores as a schema.

| protobuf | Arrow |
|---|---|
| double, float, int32, sint32, sfixed32, int64, sint64, sfixed64, bool | of the same width |
| uint32, fixed32 | int64 |
| uint64, fixed64 | decimal128(20, 0) |
| string, bytes | string, binary |
| enum | string: the first of its names, or its number if it has none |
| message, group | struct; without fields: bool, true if it exists |
| repeated, map | list, map; never null |
| `google.protobuf.Timestamp` | timestamp[unit, UTC] |
| `google.protobuf.Int32Value`, … | the type of the wrapped value, nullable |
| a message inside a message of its own type | binary: its bytes, not validated |

A missing field is null if its presence is tracked (`optional`, members of a oneof, proto2,
messages), even if proto2 defines a default. Otherwise it is zero, empty, or the first name of its
enum.

Payloads are accepted as by the protobuf library: with fields in any order, and with unknown fields.
A field with another wire type than the schema's counts as unknown, and so does a number that a
closed enum lacks. Repeated occurrences of a field must be merged, which is left to the library. So
is a map entry with unknown fields, which the library drops. Strings that are not UTF-8, which
proto2 allows, and times outside their column's range are errors.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from arrow_io.payloads import tables
from arrow_io.payloads.program import Program, ProgramBuilder
from arrow_io.payloads.protobuf_schema import (
    entry_fields,
    is_map,
    is_timestamp,
    is_wrapper,
    root_message,
)
from arrow_io.payloads.shape import UNITS, Budget, Shape, map_, record, scalar
from arrow_io.payloads.shape import array as array_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from google.protobuf.descriptor import Descriptor, EnumDescriptor

_VARINT, _EIGHT_BYTES, _DELIMITED, _GROUP, _GROUP_END, _FOUR_BYTES = range(6)
_WIDTHS: Final = {_VARINT: 0, _EIGHT_BYTES: 8, _FOUR_BYTES: 4}
_SKIPS: Final = {
    _VARINT: tables.SKIP_NUMBER,
    _EIGHT_BYTES: tables.SKIP_EIGHT_BYTES,
    _DELIMITED: tables.SKIP_BYTES,
    _FOUR_BYTES: tables.SKIP_FOUR_BYTES,
}
# A `NEEDED` bit that no field has, so that `_close` always runs when the message ends.
_MORE: Final = 1 << tables.MAX_FIELD_BITS


class _Scalar(NamedTuple):
    type: pa.DataType
    opcode: int
    wire_type: int


_UINT64: Final = pa.decimal128(20, 0)
_SCALARS: Final = {
    FieldDescriptor.TYPE_DOUBLE: _Scalar(pa.float64(), tables.PROTO_INT64, _EIGHT_BYTES),
    FieldDescriptor.TYPE_FLOAT: _Scalar(pa.float32(), tables.PROTO_INT32, _FOUR_BYTES),
    FieldDescriptor.TYPE_INT32: _Scalar(pa.int32(), tables.PROTO_INT32, _VARINT),
    FieldDescriptor.TYPE_INT64: _Scalar(pa.int64(), tables.PROTO_INT64, _VARINT),
    FieldDescriptor.TYPE_UINT32: _Scalar(pa.int64(), tables.PROTO_UINT32, _VARINT),
    FieldDescriptor.TYPE_UINT64: _Scalar(_UINT64, tables.PROTO_UINT64, _VARINT),
    FieldDescriptor.TYPE_SINT32: _Scalar(pa.int32(), tables.PROTO_SINT32, _VARINT),
    FieldDescriptor.TYPE_SINT64: _Scalar(pa.int64(), tables.PROTO_SINT64, _VARINT),
    FieldDescriptor.TYPE_FIXED32: _Scalar(pa.int64(), tables.PROTO_UINT32, _FOUR_BYTES),
    FieldDescriptor.TYPE_FIXED64: _Scalar(_UINT64, tables.PROTO_UINT64, _EIGHT_BYTES),
    FieldDescriptor.TYPE_SFIXED32: _Scalar(pa.int32(), tables.PROTO_INT32, _FOUR_BYTES),
    FieldDescriptor.TYPE_SFIXED64: _Scalar(pa.int64(), tables.PROTO_INT64, _EIGHT_BYTES),
    FieldDescriptor.TYPE_BOOL: _Scalar(pa.bool_(), tables.PROTO_BOOL, _VARINT),
    FieldDescriptor.TYPE_ENUM: _Scalar(pa.string(), tables.PROTO_ENUM, _VARINT),
    FieldDescriptor.TYPE_STRING: _Scalar(pa.string(), tables.PROTO_STRING, _DELIMITED),
    FieldDescriptor.TYPE_BYTES: _Scalar(pa.binary(), tables.PROTO_BYTES, _DELIMITED),
}

_BY_COLUMNS: Final = frozenset(
    {
        *(each.opcode for each in _SCALARS.values()),
        tables.PROTO_RAW,
        tables.PROTO_PACKED,
        tables.PROTO_TIMESTAMP,
    }
)
# Maximum number of tokens of one field in a batch of payloads, and of all fields.
_MAX_FIELD_TOKENS: Final = 256
_MAX_TOKENS: Final = 1 << 16
_MIN_DENSE: Final = 128
_DENSE_PER_VALUE: Final = 16
# Of the hash table of an enum's names: the maximum number of names, multipliers to be tried, and
# the first of these, 2³² divided by the golden ratio.
_MAX_HASHED: Final = 256
_MULTIPLIERS: Final = 32
_GOLDEN: Final = 0x9E3779B1
_MASK32: Final = 0xFFFFFFFF
_EMPTY_SLOT: Final = (1 << 32, 0)


def protobuf_shape(schema_data: str, time_unit: str) -> Shape:
    """Return the shape of a schema's messages.

    Args:
        schema_data: JSON text with `fileDescriptorSet` (Base64), `rootMessageTypeName` and
            `rootFileDescriptorName`, as in Pulsar's `ProtobufNativeSchemaData`.
        time_unit: `ns` or `us`: unit of timestamps.

    Raises:
        SchemaError: The text has another form or does not describe that message, or the message has
            too many fields.
    """
    message = root_message(schema_data)
    return _Shapes(time_unit).message("", message, (), 0, message)


def protobuf_program(shape: Shape) -> Program:
    """Compile the program that reads protobuf messages into a shape of `protobuf_shape`.

    The outermost message may have fewer fields.
    """
    message: Descriptor = shape.origin
    builder = ProgramBuilder("protobuf", shape)
    _Compiler(builder).message(message, shape, 0)
    return builder.build(_canonical_writer(message))


def _canonical_writer(message: Descriptor) -> Callable[[bytes], bytes]:
    """Return a function that rewrites payloads without repeated and unknown fields."""
    message_class = message_factory.GetMessageClass(message)

    def write(payload: bytes) -> bytes:
        try:
            parsed = message_class.FromString(payload)
        except DecodeError as error:
            raise ValueError(str(error)) from error
        # Unknown fields would be written after known fields with the same number.
        parsed.DiscardUnknownFields()
        return parsed.SerializePartialToString()

    return write


# ----------------------------------------------------------------------------
# Descriptors → shapes


class _Shapes:
    def __init__(self, time_unit: str) -> None:
        self._time_unit = time_unit
        self._budget = Budget(Budget.MAX_ARRAY_DEPTH)

    def message(
        self,
        name: str,
        message: Descriptor,
        outer_types: tuple[str, ...],
        depth: int,
        origin: object,
    ) -> Shape:
        """Return the shape of a message that is nested in messages of `outer_types`."""
        self._budget.spend(depth)
        if message.full_name in outer_types:
            return scalar(name, pa.binary(), origin)
        if is_timestamp(message):
            return scalar(name, pa.timestamp(self._time_unit, tz="UTC"), origin)
        if is_wrapper(message):
            return scalar(name, _SCALARS[message.fields[0].type].type, origin)
        outer_types = (*outer_types, message.full_name)
        fields = [self._field(each, outer_types, depth + 1) for each in message.fields]
        return record(name, fields, origin)

    def _field(self, field: FieldDescriptor, outer_types: tuple[str, ...], depth: int) -> Shape:
        if is_map(field):
            key, value = entry_fields(field)
            key_shape, value_shape = (
                replace(self._single(name, each, outer_types, depth + 2), if_missing=_default(each))
                for name, each in (("key", key), ("value", value))
            )
            return replace(map_(field.name, key_shape, value_shape, field), if_missing="")
        if field.is_repeated:
            item = self._single("", field, outer_types, depth + 1)
            return replace(array_shape(field.name, item, field), if_missing="")
        shape = self._single(field.name, field, outer_types, depth)
        return shape if field.has_presence else replace(shape, if_missing=_default(field))

    def _single(
        self, name: str, field: FieldDescriptor, outer_types: tuple[str, ...], depth: int
    ) -> Shape:
        if field.message_type is not None:
            return self.message(name, field.message_type, outer_types, depth, field)
        self._budget.spend(depth)
        return scalar(name, _SCALARS[field.type].type, field)


def _default(field: FieldDescriptor) -> str | None:
    """Return the `Shape.if_missing` of a field whose presence is not tracked."""
    if field.enum_type is not None:
        return field.enum_type.values[0].name
    return None if field.message_type is not None else ""


# ----------------------------------------------------------------------------
# Shapes → programs


class _Compiler:
    def __init__(self, builder: ProgramBuilder) -> None:
        self._builder = builder
        # Ops of messages that can be read by columns, and of those that can be read in steps.
        self._by_columns: set[int] = set()
        self._in_step: set[int] = set()
        # Links of the names of enums, by the full name of the enum.
        self._enums: dict[str, tuple[int, int]] = {}
        # The first hints: results for one field of the messages that are read in steps
        # (`tables.GROUP`).
        builder.reserve_hints(tables.GROUP_HINTS)

    def message(
        self,
        message: Descriptor,
        shape: Shape,
        node: int,
        end_tag: int = tables.ABSENT,
        bit: int = 0,
    ) -> int:
        """Return an op that reads a message into a node.

        `end_tag` is the tag that ends a group. `bit` is the bit of the message in the enclosing
        one.
        """
        if pa.types.is_binary(shape.type) and not is_wrapper(message):
            return self._builder.add(tables.PROTO_RAW, node, 0, 0, bit)
        op = self._builder.reserve()
        bits = self._bits(shape)
        oneofs = _oneofs(message, shape, bits)
        ends = (_MORE, 0)
        if is_timestamp(message):
            opcode, more = tables.PROTO_TIMESTAMP, UNITS[shape.type.unit]
            parts = (self._builder.add(tables.PROTO_PART, node, part) for part in (0, 1))
            ops = {number << 3 | _VARINT: part for number, part in enumerate(parts, 1)}
        elif is_wrapper(message):
            opcode, more = tables.PROTO_WRAPPER, tables.ABSENT
            ops = self._single(message.fields[0], shape, node, _bit(0))
        else:
            opcode, more = tables.PROTO_MESSAGE, self._link_oneofs(oneofs)
            ops = self._fields(message, shape, node, bits)
            ends = _ends(shape, oneofs)
        table = self._ops_by_tag(ops, more, _SKIPS)
        batch_links = (tables.ABSENT, tables.ABSENT)
        if ends[0] != _MORE:
            skipped_tags = _skipped_tags(message, shape)
            columns = tables.ABSENT if _is_wide(shape) else self._columns(op, ops, _SKIPS)
            batch_links = (columns, self._steps(op, ops, skipped_tags))
        fields = self._field_nodes(shape, node, ends, batch_links, bits)
        return self._builder.set(op, opcode, node, table, end_tag, bit, fields)

    def _columns(self, message: int, ops: dict[int, int], skips: Mapping[int, int]) -> int:
        """Return the link of a message's columns (see `tables`), or `ABSENT`.

        `ops` holds the ops of its fields by tag. Fields without an op are skipped if `skips` has
        their wire type.
        """
        opcodes = {op: self._builder.get(op, tables.OPCODE) for op in ops.values()}
        nodes = {op: self._builder.get(op, tables.NODE) for op in ops.values()}
        skipped_tags = [
            tag for tag in range(8, tables.BY_TAG) if tag & 7 in skips and tag not in ops
        ]
        # Packed lists are read as one token.
        ops = self._without_items(ops)
        hints = (_MAX_FIELD_TOKENS + 1) * len(ops) + 2
        if (
            any(
                op not in self._by_columns and opcodes[op] not in _BY_COLUMNS for op in ops.values()
            )
            or any(tag & 7 not in _SKIPS or tag >= tables.BY_TAG for tag in ops)
            or self._builder.reserve_hints(0) + hints > _MAX_TOKENS
        ):
            return tables.ABSENT
        self._by_columns.add(message)
        skipped = self._builder.add(tables.PROTO_SKIPPED)
        for op, tokens in (*((op, _MAX_FIELD_TOKENS) for op in ops.values()), (skipped, 1)):
            self._builder.reserve_tokens(op, tokens)
        constants = [op for op in ops.values() if self._builder.is_constant(nodes[op])]
        constants = [op for op in constants if opcodes[op] == tables.PROTO_ENUM]
        by_tag = dict.fromkeys(skipped_tags, skipped) | ops
        return self._builder.link(
            [
                *(_op_start(by_tag.get(tag)) for tag in range(tables.BY_TAG)),
                *_with_count([_op_start(op) for op in (*ops.values(), skipped)]),
                *_with_count([_op_start(op) for op in constants]),
            ]
        )

    def _steps(self, message: int, ops: Mapping[int, int], skipped_tags: Mapping[int, bool]) -> int:
        """Return the link of a message's steps (see `tables`), or `ABSENT`.

        `ops` holds the ops of its fields by tag; `skipped_tags` the tags of its other fields, and
        whether these are repeated.
        """
        ops = self._without_items(ops)
        hints = tables.GROUP_HINTS
        if (
            any(
                op not in self._in_step and self._builder.get(op, tables.OPCODE) not in _BY_COLUMNS
                for op in ops.values()
            )
            or any(tag & 7 not in _SKIPS for tag in ops)
            or self._builder.reserve_hints(0) + hints > _MAX_TOKENS
        ):
            return tables.ABSENT
        self._in_step.add(message)
        skipped = [
            self._builder.add(tables.PROTO_SKIPPED, tables.ABSENT, again)
            for again in range(2 if skipped_tags else 0)
        ]
        every = ops | {tag: skipped[is_repeated] for tag, is_repeated in skipped_tags.items()}
        numbers = [len(every), self._builder.reserve_hints(hints)]
        for tag, op in sorted(every.items()):
            tag_bytes = _tag_bytes(tag)
            numbers += (
                _op_start(op),
                int.from_bytes(tag_bytes, "little"),
                (1 << 8 * len(tag_bytes)) - 1,
                len(tag_bytes),
            )
        return self._builder.link(numbers)

    def _without_items(self, ops: Mapping[int, int]) -> dict[int, int]:
        """Return ops without the unpacked forms of fields that have a packed form."""
        get = self._builder.get
        packed = {
            get(op, tables.NODE)
            for op in ops.values()
            if get(op, tables.OPCODE) == tables.PROTO_PACKED
        }
        return {
            tag: op
            for tag, op in ops.items()
            if get(op, tables.OPCODE) == tables.PROTO_PACKED or get(op, tables.NODE) not in packed
        }

    def _field_nodes(
        self,
        shape: Shape,
        node: int,
        ends: tuple[int, int],
        batch_links: tuple[int, int],
        bits: Mapping[str, int],
    ) -> int:
        """Return the link of the fields that are checked when a message ends.

        `ends` holds its `NEEDED`, still without the fields whose missing values become a constant,
        and its `ONEOF`; `batch_links` its `COLUMNS` and `STEPS`; `bits` those of its fields.
        """
        needed, oneof = ends
        fields = [each for each in shape.children_at(node) if each[0].storage != tables.LIST]
        constants = [number for number, (child, _) in enumerate(fields) if child.if_missing]
        marks, needed_marks = tables.ABSENT, []
        if _is_wide(shape):
            marks = ~bits[fields[0][0].name] // tables.MARKS_PER_HINT
            needed_marks = [0] * _mark_hints(len(fields))
            for number in constants:
                needed_marks[number // tables.MARKS_PER_HINT] |= 1 << number % tables.MARKS_PER_HINT
            needed |= _MORE if constants else 0
        else:
            needed |= sum(map(_bit, constants))
        below = (number for _, number in fields)
        return self._builder.link(
            [needed, oneof, *batch_links, marks, len(fields), *below, *needed_marks]
        )

    def _bits(self, shape: Shape) -> dict[str, int]:
        """Return the bits of a shape's children (`tables`), by name; 0 for lists."""
        names = [child.name for child in shape.children if child.storage != tables.LIST]
        bits = dict.fromkeys((child.name for child in shape.children), 0)
        if not _is_wide(shape):
            return bits | {name: _bit(number) for number, name in enumerate(names)}
        first = self._builder.reserve_hints(_mark_hints(len(names))) * tables.MARKS_PER_HINT
        return bits | {name: ~number for number, name in enumerate(names, first)}

    def _link_oneofs(self, oneofs: list[list[int]]) -> int:
        if not oneofs:
            return tables.ABSENT
        return self._builder.link([len(oneofs), *(n for each in oneofs for n in each)])

    def _fields(
        self, message: Descriptor, shape: Shape, node: int, bits: Mapping[str, int]
    ) -> dict[int, int]:
        """Return ops by tag for those fields of a message that the shape has."""
        children = _children(shape, node)
        ops: dict[int, int] = {}
        for field in message.fields:
            if field.name in children:
                ops |= self._field(field, *children[field.name], bits[field.name])
                continue
            members = field.containing_oneof.fields if field.containing_oneof is not None else ()
            siblings = [each.name for each in members if each.name in children]
            if siblings:
                link = self._builder.link(_oneof(siblings, bits))
                tag = field.number << 3 | _wire_type(field)
                ops[tag] = self._builder.add(tables.PROTO_OTHER, node, link)
        return ops

    def _field(self, field: FieldDescriptor, shape: Shape, node: int, bit: int) -> dict[int, int]:
        if is_map(field):
            return {field.number << 3 | _DELIMITED: self._entry(field, shape.children[0], node + 1)}
        if not field.is_repeated:
            return self._single(field, shape, node, bit)
        ops = self._single(field, shape.children[0], node + 1)
        width = _WIDTHS.get(_wire_type(field))
        if width is not None:
            (item,) = ops.values()
            ops[field.number << 3 | _DELIMITED] = self._builder.add(
                tables.PROTO_PACKED, node + 1, item * tables.OP_WIDTH, width
            )
        return ops

    def _entry(self, field: FieldDescriptor, shape: Shape, node: int) -> int:
        """Return an op that reads a map entry, which is a message."""
        op = self._builder.reserve()
        key, value = entry_fields(field)
        children = _children(shape, node)
        ops = self._single(value, *children["value"], _bit(1))
        (value_op,) = ops.values()
        more = tables.ABSENT if value.message_type is None else value_op * tables.OP_WIDTH
        ops |= self._single(key, *children["key"], _bit(0))
        is_simple = more == tables.ABSENT
        batch_links = (tables.ABSENT, tables.ABSENT)
        if is_simple:
            batch_links = (self._columns(op, ops, {}), self._steps(op, ops, {}))
        ends = (0 if is_simple else _bit(1), 0)
        fields = self._field_nodes(shape, node, ends, batch_links, {})
        # No skips: an unknown field in an entry makes the library drop the entry.
        table = self._ops_by_tag(ops, more, {})
        return self._builder.set(op, tables.PROTO_ENTRY, node, table, tables.ABSENT, 0, fields)

    def _single(
        self, field: FieldDescriptor, shape: Shape, node: int, bit: int = 0
    ) -> dict[int, int]:
        """Return the op of a single value of a field, by its tag."""
        tag = field.number << 3 | _wire_type(field)
        if field.message_type is not None:
            is_group = _wire_type(field) == _GROUP
            end_tag = field.number << 3 | _GROUP_END if is_group else tables.ABSENT
            op = self.message(field.message_type, shape, node, end_tag, bit)
        elif field.enum_type is not None:
            names = self._names(field.enum_type)
            op = self._builder.add(tables.PROTO_ENUM, node, *names, bit)
        else:
            op = self._builder.add(_SCALARS[field.type].opcode, node, 0, 0, bit)
        return {tag: op}

    def _ops_by_tag(self, ops: dict[int, int], more: int, skips: Mapping[int, int]) -> int:
        return self._table({tag: op * tables.OP_WIDTH for tag, op in ops.items()}, more, skips)

    def _names(self, enum: EnumDescriptor) -> tuple[int, int]:
        """Return the links of the tables of an enum's names."""
        links = self._enums.get(enum.full_name)
        if links is not None:
            return links
        names: dict[int, int] = {}
        for value in enum.values:
            names.setdefault(value.number, self._builder.constant(value.name.encode()))
        table = self._table(names, int(enum.is_closed), {})
        links = table, self._builder.link(_hashed(names))
        self._enums[enum.full_name] = links
        return links

    def _table(self, values: dict[int, int], more: int, skips: Mapping[int, int]) -> int:
        """Store values by their keys (see `tables.TABLE`), and return the link.

        If the keys are tags, `skips` says how to skip fields without a value, by wire type.
        """
        limit = max(_MIN_DENSE, _DENSE_PER_VALUE * len(values))
        size = max([_MIN_DENSE, *(key + 1 for key in values if 0 <= key < limit)])
        # No field has the number 0.
        dense = [
            values.get(key, skips.get(key & 7, tables.ABSENT) if key >> 3 else tables.ABSENT)
            for key in range(size)
        ]
        sparse = sorted(each for each in values.items() if not 0 <= each[0] < limit)
        return self._builder.link(
            [size, len(sparse), more, *dense, *(n for s in sparse for n in s)]
        )


def _hashed(names: Mapping[int, int]) -> list[int]:
    """Return the hash table of an enum's names, with as many of the first ones as fit."""
    some = list(itertools.islice(names.items(), _MAX_HASHED))
    bits = (2 * len(some)).bit_length()
    best: dict[int, tuple[int, int]] = {}
    multiplier = 1
    for attempt in range(_MULTIPLIERS):
        factor = (_GOLDEN * (2 * attempt + 1)) & _MASK32
        slots: dict[int, tuple[int, int]] = {}
        for number, name in some:
            slots.setdefault((number & _MASK32) * factor % (1 << 32) >> 32 - bits, (number, name))
        if len(slots) > len(best):
            multiplier, best = factor, slots
        if len(best) == len(some):
            break
    numbers = [multiplier, 32 - bits]
    for slot in range(1 << bits):
        numbers += best.get(slot, _EMPTY_SLOT)
    return numbers


def _skipped_tags(message: Descriptor, shape: Shape) -> dict[int, bool]:
    """Return the tags of the fields that a shape lacks, and whether they are repeated."""
    names = {child.name for child in shape.children}
    tags: dict[int, bool] = {}
    for field in message.fields:
        wire_type = _wire_type(field)
        if field.name in names or wire_type not in _SKIPS:
            continue
        # Assume that repeated numbers are packed.
        wire_type = _DELIMITED if field.is_repeated else wire_type
        tags[field.number << 3 | wire_type] = field.is_repeated
    return tags


def _tag_bytes(tag: int) -> bytes:
    groups = [tag >> place & 0x7F for place in range(0, tag.bit_length(), 7)]
    return bytes(each | 0x80 for each in groups[:-1]) + bytes(groups[-1:])


def _wire_type(field: FieldDescriptor) -> int:
    if field.type == FieldDescriptor.TYPE_GROUP:
        return _GROUP
    if field.message_type is not None:
        return _DELIMITED
    return _SCALARS[field.type].wire_type


def _bit(number: int) -> int:
    return 1 << number


def _is_wide(shape: Shape) -> bool:
    """Return whether the fields of a message have marks instead of bits."""
    return sum(child.storage != tables.LIST for child in shape.children) > tables.MAX_FIELD_BITS


def _mark_hints(count: int) -> int:
    return -(-count // tables.MARKS_PER_HINT)


def _op_start(op: int | None) -> int:
    return tables.ABSENT if op is None else op * tables.OP_WIDTH


def _with_count(numbers: list[int]) -> list[int]:
    return [len(numbers), *numbers]


def _ends(shape: Shape, oneofs: list[list[int]]) -> tuple[int, int]:
    """Return the `NEEDED` and `ONEOF` of a message that is not a timestamp or wrapper."""
    if shape.storage != tables.STRUCT or len(oneofs) > (0 if _is_wide(shape) else 1):
        return _MORE, 0
    return 0, oneofs[0][0] if oneofs else 0


def _oneofs(message: Descriptor, shape: Shape, bits: Mapping[str, int]) -> list[list[int]]:
    """Return the oneofs that have at least two members in a shape."""
    names = {child.name for child in shape.children}
    members = [
        [each.name for each in oneof.fields if each.name in names] for oneof in message.oneofs
    ]
    return [_oneof(each, bits) for each in members if len(each) > 1]


def _oneof(names: list[str], bits: Mapping[str, int]) -> list[int]:
    marks = [~bits[name] for name in names if bits[name] < 0]
    return [sum(max(0, bits[name]) for name in names), len(marks), *marks]


def _children(shape: Shape, node: int) -> dict[str, tuple[Shape, int]]:
    return {child.name: (child, below) for child, below in shape.children_at(node)}
