"""JSON: encodes columns of values as the text that Jackson writes.

Null fields are omitted, bytes are Base64, and numbers that JSON lacks (NaN, infinities) are
strings.
"""

from __future__ import annotations

import base64
import json
import math
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from arrow_io.core.wording import counted
from arrow_io.errors import OptionError, SchemaError
from arrow_io.payloads.arrow_values import (
    cast_to_unit,
    check_present,
    null_error,
    numbers,
    split_entries,
    split_fields,
    to_floats,
    uuid_bytes,
)
from arrow_io.payloads.avro_schema import LOGICAL_UNITS, parse_avro
from arrow_io.payloads.json import json_shape
from arrow_io.payloads.json_schema import is_json_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from arrow_io.payloads.avro_schema import AvroType
    from arrow_io.payloads.shape import Shape

_NULL: Final = "null"


class JsonEncoder:
    """An encoder for values of a JSON schema, which Pulsar stores as an Avro schema.

    Raises:
        SchemaError: The schema cannot be read.
    """

    null: Final = _NULL.encode()
    """A payload that is read as null."""

    def __init__(self, schema_data: str) -> None:
        if is_json_schema(schema_data):
            message = "values are only read with a JSON Schema: write them with an Avro schema"
            raise SchemaError(message)
        self.shape: Final = json_shape(parse_avro(schema_data), "ns")

    def may_be_null(self, field: Shape) -> bool:  # noqa: ARG002
        """Return whether a field may be read as null: always, because any field may be missing."""
        return True

    def payloads(self, values: pa.Array, path: str) -> list[bytes]:
        """Encode values, none of which is null; `path` names them in errors.

        Raises:
            OptionError: A value does not fit the schema.
        """
        return [text.encode() for text in _valid_texts(values, self.shape, path)]


def _texts(values: pa.Array, shape: Shape, path: str) -> list[str | None]:
    if not values.null_count:
        return list(_valid_texts(values, shape, path))
    if not shape.accepts_null:
        raise null_error(path)
    texts = iter(_valid_texts(values.drop_null(), shape, path))
    return [next(texts) if is_valid else None for is_valid in values.is_valid().to_pylist()]


def _valid_texts(values: pa.Array, shape: Shape, path: str) -> list[str]:
    origin: AvroType = shape.origin
    if origin.kind == "union":
        return _branches(values, shape, path)
    if origin.kind == "record" and shape.is_record:
        fields, names = [], []
        for child, source, inner in split_fields(values, shape, path):
            column = pa.nulls(len(values), child.type) if source is None else source
            fields.append(_texts(column, child, inner))
            names.append(f"{_quote(child.name)}:")
        return [_object(zip(names, row, strict=True)) for row in zip(*fields, strict=True)]
    if origin.kind == "array":
        items = iter(_texts(values.flatten(), shape.children[0], f"{path}[]"))
        return [
            "[" + ",".join(text or _NULL for text in islice(items, length)) + "]"
            for length in values.value_lengths().to_pylist()
        ]
    if origin.kind == "map":
        entries = split_entries(values, path)
        names = [f"{_quote(name)}:" for name in entries.keys.to_pylist()]
        texts = _texts(entries.values, shape.children[0].children[1], f"{path}[]")
        named = zip(names, (text or _NULL for text in texts), strict=True)
        return [_object(islice(named, length)) for length in entries.lengths]
    return _scalar_texts(values, origin, path)


def _branches(values: pa.StructArray, shape: Shape, path: str) -> list[str]:
    """Return the JSON text of each value of a union: that of its branch, or `null`."""
    branch_texts = [_NULL] * len(values)
    for child, column, inner in split_fields(values, shape, path):
        # All branches except one are null.
        texts = () if column is None else _texts(column, child.nullable(), inner)
        for row, text in enumerate(texts):
            if text is not None and branch_texts[row] != _NULL:
                message = f"{path} sets two branches of a union"
                raise OptionError(message)
            branch_texts[row] = branch_texts[row] if text is None else text
    return branch_texts


def _object(fields: Iterable[tuple[str, str | None]]) -> str:
    """Return a JSON object of names, with their colons, and texts, without fields of None."""
    return "{" + ",".join(name + text for name, text in fields if text is not None) + "}"


def _scalar_texts(values: pa.Array, origin: AvroType, path: str) -> list[str]:
    if origin.kind == "record":
        if pa.types.is_boolean(values.type):
            check_present(values, path)
            return ["{}"] * len(values)
        # A recursive type is a column of JSON text.
        return [_check_json(text, origin, path) for text in values.to_pylist()]
    if origin.logical == "decimal":
        return [format(each, "f") for each in values.to_pylist()]
    if origin.kind in {"int", "long"}:
        unit = LOGICAL_UNITS.get(origin.logical)
        return [str(each) for each in numbers(cast_to_unit(values, unit, path) if unit else values)]
    spell: Callable[[Any], str] = _SPELLERS.get(origin.kind, _quote)
    if origin.logical == "uuid":
        spell = _quote
    if origin.kind == "float":
        # The shortest text that identifies a float is shorter than that of the equal double.
        return [
            _number(float(text)) for text in to_floats(values, path).cast(pa.string()).to_pylist()
        ]
    items = values.to_pylist()
    _check(items, origin, path)
    return [spell(each) for each in items]


def _check(values: list[Any], origin: AvroType, path: str) -> None:
    """Check the values of types that allow only some values of their kind."""
    if origin.kind == "null" and values:
        message = f"{path}: there is a value, but the schema allows only null"
        raise OptionError(message)
    if origin.kind == "enum" and (unknown := set(values) - set(origin.symbols)):
        message = f"{path}: the schema has no symbol {min(unknown)!r}"
        raise OptionError(message)
    if origin.kind == "fixed" and origin.logical == "uuid":
        for each in values:
            uuid_bytes(each, path)
    elif origin.kind == "fixed" and any(len(each) != origin.size for each in values):
        message = f"{path}: a fixed value must have {counted(origin.size, 'byte')}"
        raise OptionError(message)


def _check_json(text: str, origin: AvroType, path: str) -> str:
    try:
        is_object = isinstance(json.loads(text, parse_constant=_no_number), dict)
        reason = "it must be an object"
    except (ValueError, RecursionError) as error:
        is_object, reason = False, str(error)
    if not is_object:
        message = f"{path} is not the JSON text of a {origin.short_name}: {reason}"
        raise OptionError(message)
    return text


def _no_number(name: str) -> None:
    message = f"JSON has no number {name}"
    raise ValueError(message)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _base64(data: bytes) -> str:
    return f'"{base64.b64encode(data).decode()}"'


def _number(number: float) -> str:
    if math.isfinite(number):
        return repr(number)
    return '"NaN"' if math.isnan(number) else f'"{"-" if number < 0 else ""}Infinity"'


_SPELLERS: Final[Mapping[str, Callable[[Any], str]]] = {
    "boolean": lambda value: "true" if value else "false",
    "double": _number,
    "bytes": _base64,
    "fixed": _base64,
}
"""The function that writes a value of each kind; kinds that are not listed are strings."""
