"""Single values in Avro's binary encoding: numbers, byte strings and field defaults."""

from __future__ import annotations

import reprlib
import struct
from typing import TYPE_CHECKING, Final

from arrow_io.errors import SchemaError
from arrow_io.messages.wire import varint_bytes
from arrow_io.payloads.avro_schema import MISSING
from arrow_io.payloads.shape import Budget

if TYPE_CHECKING:
    from arrow_io.payloads.avro_schema import AvroField, AvroType

_BITS: Final = {"int": 32, "long": 64}


def encode_long(number: int) -> bytes:
    """Encode an int or long: the varint of its zigzag."""
    return varint_bytes(number << 1 if number >= 0 else (-number << 1) - 1)


def encode_bytes(data: bytes) -> bytes:
    """Encode bytes or a string: the length, then the bytes."""
    return encode_long(len(data)) + data


def encode_default(type_: AvroType, value: object) -> bytes:
    """Encode the JSON default of a field in Avro's binary encoding.

    Raises:
        SchemaError: The default is not a value of the type.
    """
    return _DefaultEncoder().encode(type_, value, 0)


def _bad_default(type_: AvroType, value: object) -> SchemaError:
    return SchemaError(f"the default {reprlib.repr(value)} is not an Avro {type_.short_name}")


class _DefaultEncoder:
    """Encodes one default within a budget: a type may contain itself as a default of its fields."""

    def __init__(self) -> None:
        self._budget = Budget()

    def encode(self, type_: AvroType, value: object, depth: int) -> bytes:
        self._budget.spend(depth)
        if type_.kind == "union":
            for number, branch in enumerate(type_.branches):
                try:
                    return encode_long(number) + self.encode(branch, value, depth + 1)
                except SchemaError:
                    continue
            raise _bad_default(type_, value)
        try:
            return self._value(type_, value, depth + 1)
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError, struct.error):
            raise _bad_default(type_, value) from None

    def _value(self, type_: AvroType, value: object, depth: int) -> bytes:
        kind = type_.kind
        match value:
            case list() if kind == "array":
                items = b"".join(self.encode(type_.item, each, depth) for each in value)
                return encode_long(len(value)) + items + b"\0" if value else b"\0"
            case dict() if kind == "map":
                pairs = (
                    encode_bytes(key.encode()) + self.encode(type_.item, each, depth)
                    for key, each in value.items()
                )
                return encode_long(len(value)) + b"".join(pairs) + b"\0" if value else b"\0"
            case dict() if kind == "record":
                return b"".join(
                    self.encode(
                        each.type,
                        value[each.name] if each.name in value else _own_default(each),
                        depth,
                    )
                    for each in type_.fields
                )
        return _encode(type_, value)


def _encode(type_: AvroType, value: object) -> bytes:
    kind = type_.kind
    match value:
        case None if kind == "null":
            return b""
        case bool() if kind == "boolean":
            return bytes([value])
        case bool():
            pass
        case int() if kind in _BITS and -1 << _BITS[kind] - 1 <= value < 1 << _BITS[kind] - 1:
            return encode_long(value)
        case int() | float() if kind == "float":
            return struct.pack("<f", value)
        case int() | float() if kind == "double":
            return struct.pack("<d", value)
        case str() if kind == "string":
            return encode_bytes(value.encode())
        case str() if kind == "bytes":
            return encode_bytes(value.encode("latin-1"))
        case str() if kind == "fixed" and len(value) == type_.size:
            return value.encode("latin-1")
        case str() if kind == "enum":
            return encode_long(type_.symbols.index(value))
    raise _bad_default(type_, value)


def _own_default(field: AvroField) -> object:
    if field.default is MISSING:
        message = f"a default lacks the field {field.name!r}, which has no default of its own"
        raise SchemaError(message)
    return field.default
