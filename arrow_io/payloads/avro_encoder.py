"""AVRO: encodes columns of values in Avro's binary encoding.

fastavro is not used for these reasons:

- It silently accepts numbers beyond 32 bits for an int, and decimals with more digits than their
  precision. It writes floats that are out of range as infinite.
- It searches the branch of a union again for each value.
- It cannot insert encoded bytes, which are what columns hold for recursive types.
"""

from __future__ import annotations

import struct
from itertools import islice
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.core.wording import counted
from arrow_io.errors import OptionError, SchemaError
from arrow_io.messages.entry_run import int64_view
from arrow_io.payloads import tables
from arrow_io.payloads.arrow_values import (
    cast_to_unit,
    check_present,
    null_error,
    numbers,
    split_entries,
    split_fields,
    to_floats,
    unscaled,
    uuid_bytes,
)
from arrow_io.payloads.avro import avro_program, avro_shape
from arrow_io.payloads.avro_binary import encode_bytes, encode_default, encode_long
from arrow_io.payloads.avro_schema import LOGICAL_UNITS, MISSING, parse_avro
from arrow_io.payloads.shredding import Shredding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from arrow_io.payloads.avro_schema import AvroField, AvroType
    from arrow_io.payloads.shape import Shape

_END: Final = b"\0"
"""Follows the last block of an array or map."""
_BOOLEANS: Final = (b"\0", b"\1")
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")


class AvroEncoder:
    """An encoder for values of an AVRO schema, which is JSON text.

    Raises:
        SchemaError: The schema cannot be read.
    """

    def __init__(self, schema_data: str) -> None:
        self._type = parse_avro(schema_data)
        self.shape: Final = avro_shape(self._type, "ns")
        self.null: Final = _null_encoding(self._type)

    def may_be_null(self, field: Shape) -> bool:
        """Return whether a field of the outermost record may be read as null."""
        return field.accepts_null

    def payloads(self, values: pa.Array, path: str) -> list[bytes]:
        """Encode values, none of which is null; `path` names them in errors.

        Raises:
            OptionError: A value does not fit the schema.
            SchemaError: The default of a missing field does not fit its type.
        """
        return _encode(values, self._type, self.shape, path)


def _null_encoding(type_: AvroType) -> bytes | None:
    """Return the encoding of null; None if the type does not include null."""
    if type_.kind == "union":
        kinds = [each.kind for each in type_.branches]
        return encode_long(kinds.index("null")) if "null" in kinds else None
    return b"" if type_.kind == "null" else None


def _encode(values: pa.Array, type_: AvroType, shape: Shape, path: str) -> list[bytes]:
    if values.null_count:
        null = _null_encoding(type_)
        if null is None:
            raise null_error(path)
        pieces = iter(_encode_valid(values.drop_null(), type_, shape, path))
        return [next(pieces) if is_valid else null for is_valid in values.is_valid().to_pylist()]
    return _encode_valid(values, type_, shape, path)


def _encode_valid(values: pa.Array, type_: AvroType, shape: Shape, path: str) -> list[bytes]:
    match type_.kind:
        case "union":
            return _encode_union(values, type_, shape, path)
        case "record":
            return _encode_record(values, type_, shape, path)
        case "array":
            items = _encode(values.flatten(), type_.item, shape.children[0], f"{path}[]")
            return _encode_blocks(items, values.value_lengths().to_pylist())
        case "map":
            entries = split_entries(values, path)
            inner = shape.children[0].children[1]
            items = _encode(entries.values, type_.item, inner, f"{path}[]")
            names = (encode_bytes(name.encode()) for name in entries.keys.to_pylist())
            pairs = (name + item for name, item in zip(names, items, strict=True))
            return _encode_blocks(pairs, entries.lengths)
    return _encode_scalars(values, type_, path)


def _encode_blocks(items: Iterable[bytes], lengths: list[int]) -> list[bytes]:
    """Encode arrays or maps with these lengths, each as one block."""
    rest = iter(items)
    return [
        b"".join((encode_long(length), *islice(rest, length), _END)) if length else _END
        for length in lengths
    ]


def _encode_union(values: pa.Array, type_: AvroType, shape: Shape, path: str) -> list[bytes]:
    branches = [each for each in enumerate(type_.branches) if each[1].kind != "null"]
    if len(branches) == 1:
        ((number, branch),) = branches
        prefix = encode_long(number)
        return [prefix + piece for piece in _encode_valid(values, branch, shape, path)]
    if not branches:
        return _encode_scalars(values, type_.branches[0], path)
    encoded: list[bytes | None] = [None] * len(values)
    members = split_fields(values, shape, path)
    for (number, branch), (child, column, inner) in zip(branches, members, strict=True):
        if column is None:
            continue
        pieces = _encode_valid(column.drop_null(), branch, child, inner)
        rows = pc.indices_nonzero(column.is_valid()).to_pylist()
        prefix = encode_long(number)
        for row, piece in zip(rows, pieces, strict=True):
            if encoded[row] is not None:
                message = f"{path} sets two branches of a union"
                raise OptionError(message)
            encoded[row] = prefix + piece
    null = _null_encoding(type_)
    if null is None and None in encoded:
        raise null_error(path)
    none = b"" if null is None else null
    return [none if piece is None else piece for piece in encoded]


def _encode_record(values: pa.Array, type_: AvroType, shape: Shape, path: str) -> list[bytes]:
    if not shape.is_record:
        if shape.storage == tables.BYTE:
            check_present(values, path)
            return [b""] * len(values)
        return _check_avro(values.to_pylist(), type_, shape, path)
    columns: list[Iterable[bytes]] = []
    fields = zip(type_.fields, split_fields(values, shape, path), strict=True)
    for field, (child, column, inner) in fields:
        if column is not None:
            columns.append(_encode(column, field.type, child, inner))
        else:
            columns.append([_encode_default(field, child, inner)] * len(values))
    return [b"".join(row) for row in zip(*columns, strict=True)]


def _encode_default(field: AvroField, shape: Shape, path: str) -> bytes:
    """Encode the value of a missing field."""
    if field.default is not MISSING:
        encoded = encode_default(field.type, field.default)
        reason = _find_misfit([encoded], field.type, shape)
        if reason is not None:
            message = f"the default of {path} is not an Avro {field.type.short_name}: {reason}"
            raise SchemaError(message)
        return encoded
    null = _null_encoding(field.type)
    if null is None:
        message = f"{path} is missing, and the schema has no default for it"
        raise OptionError(message)
    return null


def _check_avro(payloads: list[bytes], type_: AvroType, shape: Shape, path: str) -> list[bytes]:
    """Check the encoded values of a recursive type, which a column holds undecoded."""
    reason = _find_misfit(payloads, type_, shape)
    if reason is not None:
        message = f"{path} is not the Avro bytes of a {type_.short_name}: {reason}"
        raise OptionError(message)
    return payloads


def _find_misfit(payloads: list[bytes], type_: AvroType, shape: Shape) -> str | None:
    """Return why this package's own reader would refuse a payload; None if it reads all."""
    program = avro_program(type_, shape)
    _, positions = int64_view(max(1, len(payloads)))
    start = 0
    for row, payload in enumerate(payloads):
        positions[row] = start << 32 | len(payload)
        start += len(payload)
    shredding = Shredding(program, len(payloads), start)
    data = memoryview(b"".join((*payloads, _END)))
    misfit = shredding.append(program, data, positions, 0, len(payloads))
    return None if misfit is None else tables.REASONS[misfit.code]


def _encode_scalars(values: pa.Array, type_: AvroType, path: str) -> list[bytes]:
    kind, logical = type_.kind, type_.logical
    if logical == "decimal":
        size = type_.size if kind == "fixed" else None
        return [_encode_decimal(each, size) for each in unscaled(values)]
    match kind:
        case "boolean":
            return [_BOOLEANS[each] for each in values.to_pylist()]
        case "int" | "long":
            unit = LOGICAL_UNITS.get(logical)
            return list(
                map(encode_long, numbers(cast_to_unit(values, unit, path) if unit else values))
            )
        case "float":
            return list(map(_FLOAT.pack, to_floats(values, path).to_pylist()))
        case "double":
            return list(map(_DOUBLE.pack, values.to_pylist()))
        case "fixed":
            return _encode_fixed(values.to_pylist(), type_, path)
        case "enum":
            return _encode_enum(values.to_pylist(), type_, path)
        case "null" if len(values):
            message = f"{path}: there is a value, but the schema allows only null"
            raise OptionError(message)
        case "string":
            return [encode_bytes(text.encode()) for text in values.to_pylist()]
    return list(map(encode_bytes, values.to_pylist()))


def _encode_decimal(number: int, size: int | None) -> bytes:
    """Encode the digits of a decimal, in `size` bytes or in as few as possible."""
    if size is not None:
        return number.to_bytes(size, signed=True)
    magnitude = number if number >= 0 else ~number
    return encode_bytes(number.to_bytes(magnitude.bit_length() // 8 + 1, signed=True))


def _encode_fixed(values: list[bytes] | list[str], type_: AvroType, path: str) -> list[bytes]:
    pieces = []
    for each in values:
        if isinstance(each, str):
            pieces.append(uuid_bytes(each, path))
        elif len(each) == type_.size:
            pieces.append(each)
        else:
            message = f"{path}: a fixed value must have {counted(type_.size, 'byte')}"
            raise OptionError(message)
    return pieces


def _encode_enum(symbols: list[str], type_: AvroType, path: str) -> list[bytes]:
    pieces = {symbol: encode_long(number) for number, symbol in enumerate(type_.symbols)}
    if unknown := set(symbols) - pieces.keys():
        message = f"{path}: the schema has no symbol {min(unknown)!r}"
        raise OptionError(message)
    return [pieces[symbol] for symbol in symbols]
