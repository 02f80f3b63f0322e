"""PROTOBUF_NATIVE: encodes columns of values through messages of the protobuf library.

Messages are filled column by column, so that types are examined once per column. Missing and null
fields are not set. Map entries are written in the order of their keys, so that equal rows have
equal bytes.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError

from arrow_io.errors import OptionError
from arrow_io.payloads.arrow_values import (
    check_present,
    null_error,
    numbers,
    split_entries,
    split_fields,
    to_floats,
    unscaled,
)
from arrow_io.payloads.protobuf_native import protobuf_shape
from arrow_io.payloads.protobuf_schema import entry_fields, is_map, is_timestamp, is_wrapper
from arrow_io.payloads.shape import UNITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.descriptor import Descriptor, EnumDescriptor

    from arrow_io.payloads.shape import Shape

_INT32_STOP: Final = 1 << 31
_UNSIGNED_BITS: Final = {
    FieldDescriptor.TYPE_UINT32: 32,
    FieldDescriptor.TYPE_FIXED32: 32,
    FieldDescriptor.TYPE_UINT64: 64,
    FieldDescriptor.TYPE_FIXED64: 64,
}


class ProtobufEncoder:
    """An encoder for values of a PROTOBUF_NATIVE schema (`protobuf_native.protobuf_shape`).

    Raises:
        SchemaError: The schema cannot be read.
    """

    null: Final = None
    """No payload is read as null."""

    def __init__(self, schema_data: str) -> None:
        self.shape: Final = protobuf_shape(schema_data, "ns")
        self._message: Descriptor = self.shape.origin
        self._message_class: Any = message_factory.GetMessageClass(self._message)

    def may_be_null(self, field: Shape) -> bool:
        """Return whether a field of the outermost message may be read as null."""
        return bool(field.origin.has_presence)

    def payloads(self, values: pa.Array, path: str) -> list[bytes]:
        """Encode values, none of which is null; `path` names them in errors.

        Raises:
            OptionError: A value does not fit the schema.
        """
        messages = [self._message_class() for _ in range(len(values))]
        _fill(messages, values, self._message, self.shape, path)
        try:
            return [each.SerializeToString(deterministic=True) for each in messages]
        except EncodeError as error:
            # Only undecoded bytes of an inner message can fail here: all fields were checked.
            message = f"{path}: {error}"
            raise OptionError(message) from None


def _fill(
    messages: Sequence[Any], values: pa.Array, type_: Descriptor, shape: Shape, path: str
) -> None:
    """Fill new messages of one type from values, none of which is null."""
    if is_wrapper(type_):
        for message, value in zip(messages, _scalars(values, type_.fields[0], path), strict=True):
            message.value = value
    elif is_timestamp(type_):
        units = UNITS[values.type.unit]
        for message, ticks in zip(messages, numbers(values), strict=True):
            message.seconds, rest = divmod(ticks, units)
            message.nanos = rest * (10**9 // units)
    elif shape.is_record:
        _check_oneofs(values, type_, shape, path)
        for child, column, inner in split_fields(values, shape, path):
            _set_field(messages, column, child, inner)
    elif pa.types.is_boolean(values.type):
        check_present(values, path)
    else:
        _merge(messages, values, path)


def _merge(messages: Sequence[Any], values: pa.BinaryArray, path: str) -> None:
    """Merge serialized messages, which a column holds for a recursive type, into messages."""
    for message, data in zip(messages, values.to_pylist(), strict=True):
        try:
            message.MergeFromString(data)
        except DecodeError:
            name = message.DESCRIPTOR.full_name
            text = f"{path} is not a serialized message {name}"
            raise OptionError(text) from None


def _check_oneofs(values: pa.StructArray, type_: Descriptor, shape: Shape, path: str) -> None:
    """Refuse values with two members of a oneof: the library would silently keep the last one."""
    columns = {
        child.name: column
        for child, column, _ in split_fields(values, shape, path)
        if column is not None
    }
    for oneof in type_.oneofs:
        names = [each.name for each in oneof.fields if each.name in columns]
        is_set = [columns[name].is_valid() for name in names]
        for number, each in enumerate(is_set[1:], 1):
            for other, name in zip(is_set[:number], names, strict=False):
                if pc.any(pc.and_(each, other)).as_py():
                    message = (
                        f"{path} sets two fields of the oneof {oneof.name}: {name} and"
                        f" {names[number]}"
                    )
                    raise OptionError(message)


def _set_field(messages: Sequence[Any], column: pa.Array | None, shape: Shape, path: str) -> None:
    """Set a field of messages to values; null values leave it unset."""
    field: FieldDescriptor = shape.origin
    if column is None:
        if field.is_required:
            message = f"{path} is missing, and the schema requires it"
            raise OptionError(message)
        return
    if column.null_count:
        if field.is_required or not field.has_presence:
            raise null_error(path)
        valid = column.is_valid().to_pylist()
        messages = [each for each, is_valid in zip(messages, valid, strict=True) if is_valid]
        column = column.drop_null()
    name = field.name
    if is_map(field):
        _set_maps([getattr(each, name) for each in messages], column, shape, path)
    elif field.is_repeated:
        _set_lists([getattr(each, name) for each in messages], column, shape, path)
    elif field.message_type is not None:
        inner = [getattr(each, name) for each in messages]
        for each in inner:
            each.SetInParent()
        _fill(inner, column, field.message_type, shape, path)
    else:
        for each, value in zip(messages, _scalars(column, field, path), strict=True):
            setattr(each, name, value)


def _set_lists(lists: Sequence[Any], column: pa.ListArray, shape: Shape, path: str) -> None:
    field: FieldDescriptor = shape.origin
    path = f"{path}[]"
    items, lengths = column.flatten(), column.value_lengths().to_pylist()
    if items.null_count:
        raise null_error(path)
    if field.message_type is not None:
        inner = [
            each.add() for each, length in zip(lists, lengths, strict=True) for _ in range(length)
        ]
        _fill(inner, items, field.message_type, shape.children[0], path)
        return
    values = iter(_scalars(items, field, path))
    for each, length in zip(lists, lengths, strict=True):
        each.extend(islice(values, length))


def _set_maps(maps: Sequence[Any], column: pa.MapArray, shape: Shape, path: str) -> None:
    entries = split_entries(column, path)
    path = f"{path}[]"
    if entries.values.null_count:
        raise null_error(path)
    key, value = entry_fields(shape.origin)
    keys = iter(_scalars(entries.keys, key, path))
    owners = [
        (each, next(keys))
        for each, length in zip(maps, entries.lengths, strict=True)
        for _ in range(length)
    ]
    if value.message_type is not None:
        inner = [each[name] for each, name in owners]
        _fill(inner, entries.values, value.message_type, shape.children[0].children[1], path)
        return
    for (each, name), item in zip(owners, _scalars(entries.values, value, path), strict=True):
        each[name] = item


def _scalars(values: pa.Array, field: FieldDescriptor, path: str) -> list[Any]:
    """Return values in the form that the library requires for a field; none of them is null."""
    if field.enum_type is not None:
        return _enum(values.to_pylist(), field.enum_type, path)
    if field.type == field.TYPE_FLOAT:
        values = to_floats(values, path)
    items: list[Any] = unscaled(values) if pa.types.is_decimal(values.type) else values.to_pylist()
    bits = _UNSIGNED_BITS.get(field.type, 0)
    too_great = next((each for each in items if each >> bits), None) if bits else None
    if too_great is not None:
        message = f"{path}: {too_great} is not an unsigned number of {bits} bits"
        raise OptionError(message)
    return items


def _enum(names: list[str], enum: EnumDescriptor, path: str) -> list[int]:
    """Return the numbers of an enum's values, which are names or texts of numbers."""
    numbers = {name: _enum_number(name, enum) for name in set(names)}
    unknown = sorted(name for name, number in numbers.items() if number is None)
    if unknown:
        message = f"{path}: the enum {enum.name} has no value {unknown[0]!r}"
        raise OptionError(message)
    return [number for number in map(numbers.get, names) if number is not None]


def _enum_number(name: str, enum: EnumDescriptor) -> int | None:
    if name in enum.values_by_name:
        return enum.values_by_name[name].number
    try:
        number = int(name)
    except ValueError:
        return None
    fits = -_INT32_STOP <= number < _INT32_STOP
    is_allowed = number in enum.values_by_number or not enum.is_closed
    return number if fits and is_allowed else None
