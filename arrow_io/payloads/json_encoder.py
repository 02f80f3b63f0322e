"""JSON: records → the text that Jackson writes of them.

A field that is null is left out, bytes are Base64, and numbers that JSON does not have are text.
"""

from __future__ import annotations

import base64
import json
import math
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from arrow_io.core.wording import counted
from arrow_io.errors import OptionError
from arrow_io.payloads.arrow_values import (
    cast_to_unit,
    check_there,
    floats,
    is_null,
    numbers,
    split_entries,
    split_fields,
    uuid_bytes,
)
from arrow_io.payloads.avro_schema import LOGICAL_UNITS, parse_avro
from arrow_io.payloads.json import json_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from arrow_io.payloads.avro_schema import AvroType
    from arrow_io.payloads.shape import Shape

_NULL: Final = "null"


class JsonEncoder:
    """Writes values of a JSON schema.

    Args:
        schema_data: The Avro schema that Pulsar keeps for it.

    Raises:
        SchemaError: It cannot be read.
    """

    null: Final = _NULL.encode()
    """A payload that is read as null."""

    def __init__(self, schema_data: str) -> None:
        self.shape: Final = json_shape(parse_avro(schema_data), "ns")

    def may_be_null(self, field: Shape) -> bool:  # noqa: ARG002
        """Whether a field may be read as null: any may be missing."""
        return True

    def payloads(self, values: pa.Array, path: str) -> list[bytes]:
        """The payloads of values, none of which is null; `path` is what errors call them.

        Raises:
            OptionError: A value does not fit the schema.
        """
        return [text.encode() for text in _valid_texts(values, self.shape, path)]


def _texts(values: pa.Array, shape: Shape, path: str) -> list[str | None]:
    """The JSON text of each value; None for null."""
    if not values.null_count:
        return list(_valid_texts(values, shape, path))
    if not shape.accepts_null:
        raise is_null(path)
    texts = iter(_valid_texts(values.drop_null(), shape, path))
    return [next(texts) if is_valid else None for is_valid in values.is_valid().to_pylist()]


def _valid_texts(values: pa.Array, shape: Shape, path: str) -> list[str]:
    """The JSON text of each value; none of them is null."""
    origin: AvroType = shape.origin
    if origin.kind == "union":
        return _branches(values, shape, path)
    if origin.kind == "record" and shape.is_record:
        fields, names = [], []
        for child, source, inner in split_fields(values, shape, path):
            column = pa.nulls(len(values), child.type) if source is None else source
            fields.append(_texts(column, child, inner))
            names.append(f"{_quoted(child.name)}:")
        return [_object(zip(names, row, strict=True)) for row in zip(*fields, strict=True)]
    if origin.kind == "array":
        items = iter(_texts(values.flatten(), shape.children[0], f"{path}[]"))
        return [
            "[" + ",".join(text or _NULL for text in islice(items, length)) + "]"
            for length in values.value_lengths().to_pylist()
        ]
    if origin.kind == "map":
        entries = split_entries(values, path)
        names = [f"{_quoted(name)}:" for name in entries.keys.to_pylist()]
        texts = _texts(entries.values, shape.children[0].children[1], f"{path}[]")
        named = zip(names, (text or _NULL for text in texts), strict=True)
        return [_object(islice(named, length)) for length in entries.lengths]
    return _scalar_texts(values, origin, path)


def _branches(values: pa.StructArray, shape: Shape, path: str) -> list[str]:
    """The text of the branch that each value of a union has; null if it has none."""
    branch_texts = [_NULL] * len(values)
    for child, column, inner in split_fields(values, shape, path):
        # Each branch may be null, since one of them is meant.
        texts = () if column is None else _texts(column, child.nullable(), inner)
        for row, text in enumerate(texts):
            if text is not None and branch_texts[row] != _NULL:
                message = f"{path} has two branches of a union"
                raise OptionError(message)
            branch_texts[row] = branch_texts[row] if text is None else text
    return branch_texts


def _object(fields: Iterable[tuple[str, str | None]]) -> str:
    """A JSON object of names, with their colons, and texts; without those that are None."""
    return "{" + ",".join(name + text for name, text in fields if text is not None) + "}"


def _scalar_texts(values: pa.Array, origin: AvroType, path: str) -> list[str]:
    if origin.kind == "record":
        if pa.types.is_boolean(values.type):
            check_there(values, path)
            return ["{}"] * len(values)
        # A type inside itself is given as JSON text.
        return [_checked_json(text, origin, path) for text in values.to_pylist()]
    if origin.logical == "decimal":
        return [format(each, "f") for each in values.to_pylist()]
    if origin.kind in {"int", "long"}:
        unit = LOGICAL_UNITS.get(origin.logical)
        return [str(each) for each in numbers(cast_to_unit(values, unit, path) if unit else values)]
    spell: Callable[[Any], str] = _SPELLED.get(origin.kind, _quoted)
    if origin.logical == "uuid":
        spell = _quoted
    if origin.kind == "float":
        # The shortest digits that tell a float from others are fewer than those of its double.
        return [_number(float(text)) for text in floats(values, path).cast(pa.string()).to_pylist()]
    items = values.to_pylist()
    _check(items, origin, path)
    return [spell(each) for each in items]


def _check(values: list[Any], origin: AvroType, path: str) -> None:
    """Refuse values that are of the kind, and yet none of the type."""
    if origin.kind == "null" and values:
        message = f"{path}: a value is given, but the schema allows null only"
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


def _checked_json(text: str, origin: AvroType, path: str) -> str:
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


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _base64(data: bytes) -> str:
    return f'"{base64.b64encode(data).decode()}"'


def _number(number: float) -> str:
    if math.isfinite(number):
        return repr(number)
    return '"NaN"' if math.isnan(number) else f'"{"-" if number < 0 else ""}Infinity"'


_SPELLED: Final[Mapping[str, Callable[[Any], str]]] = {
    "boolean": lambda value: "true" if value else "false",
    "double": _number,
    "bytes": _base64,
    "fixed": _base64,
}
"""How a value of each kind is spelled; those that are not here are text."""
