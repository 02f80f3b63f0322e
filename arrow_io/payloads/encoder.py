"""Typed Arrow arrays → payloads, for JSON and for the schema types that are one value.

The way back from what `decoder` gives. Sources: `*Schema.java` of Pulsar's Java client. JSON is
written as its Jackson does: a field that is null is left out, bytes are Base64, and numbers that
JSON does not have are text. AVRO and protobuf are not written.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.errors import OptionError, SchemaError
from arrow_io.payloads.avro_schema import parse_avro
from arrow_io.payloads.json import json_shape
from arrow_io.payloads.primitive import PRIMITIVE_TYPES, primitive_shape
from arrow_io.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from arrow_io.payloads.avro_schema import AvroType
    from arrow_io.payloads.schema_info import SchemaInfo
    from arrow_io.payloads.shape import Shape

_DAY_SECONDS: Final = 86_400
_UNITS_PER_SECOND: Final = {"us": 10**6, "ns": 10**9}
_FORMATS: Final = {
    "BOOLEAN": ">?", "INT8": ">b", "INT16": ">h", "INT32": ">i", "INT64": ">q", "FLOAT": ">f",
    "DOUBLE": ">d", "DATE": ">q", "TIME": ">q", "TIMESTAMP": ">q", "INSTANT": ">qi",
    "LOCAL_DATE": ">q", "LOCAL_TIME": ">q", "LOCAL_DATE_TIME": ">qq",
}  # fmt: skip
"""How each type is packed: one number; seconds and nanoseconds; days and nanoseconds."""
_MILLISECONDS: Final = {
    "DATE": pa.timestamp("ms", tz="UTC"),
    "TIMESTAMP": pa.timestamp("ms", tz="UTC"),
    "TIME": pa.time32("ms"),
}
_INTEGERS: Final = {32: pa.int32(), 64: pa.int64()}
_LOGICAL_UNITS: Final = {"millis": "ms", "micros": "us", "nanos": "ns"}
_LISTS: Final = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)
_NULL: Final = "null"


class PayloadEncoder:
    """Encodes the values of one schema.

    Args:
        schema: What the payloads are to be read by.

    Raises:
        SchemaError: Payloads of the schema's type are not written, or the schema cannot be read.
    """

    def __init__(self, schema: SchemaInfo) -> None:
        self._type = schema.type
        self._record: Shape | None = None
        if schema.type == "JSON":
            self._record = json_shape(parse_avro(schema.data), "ns")
        elif schema.type not in PRIMITIVE_TYPES:
            message = f"values of the schema type {schema.type} are not encoded: give their bytes"
            raise SchemaError(message)

    def encode(self, values: pa.Array) -> list[bytes | None]:
        """Encode values.

        Args:
            values: Of the type that reading gives for this schema, or of one that Arrow casts to it
                without loss; floating-point numbers take the nearest that the schema's type has.

        Returns:
            The payloads; None for null.

        Raises:
            OptionError: A value does not fit the schema.
        """
        try:
            if self._record is None:
                return _primitives(values, self._type)
            _check_fields(values.type, self._record.type)
            values.cast(self._record.type)  # Without loss, but for floats too great.
            record = values.cast(_widened(self._record.type))
            texts = _texts(record, self._record.nullable(), "the value")
            return [None if text is None else text.encode() for text in texts]
        except (pa.ArrowException, struct.error, UnicodeDecodeError) as error:
            wanted = None if self._record is None else self._record.type
            path, reason = _misfit(values, wanted, "the value") or ("the value", str(error))
            message = f"{path} does not fit the schema type {self._type}: {reason}"
            raise OptionError(message) from error


def _check_fields(given: pa.DataType, wanted: pa.DataType) -> None:
    """Refuse fields that the schema does not have: Arrow's cast would drop them."""
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        types = {field.name: field.type for field in wanted}
        for field in given:
            if field.name not in types:
                message = f"the schema has no field {field.name!r}"
                raise OptionError(message)
            _check_fields(field.type, types[field.name])
    elif pa.types.is_map(given) and pa.types.is_map(wanted):
        _check_fields(given.item_type, wanted.item_type)
    elif pa.types.is_list(wanted) and any(is_list(given) for is_list in _LISTS):
        _check_fields(given.value_type, wanted.value_type)
    elif pa.types.is_list(wanted) and pa.types.is_nested(given):
        message = f"{given} is not a list, as the schema's array is"
        raise OptionError(message)


def _misfit(given: pa.Array, wanted: pa.DataType | None, path: str) -> tuple[str, str] | None:
    """Path and reason of the first field that cannot be cast; None if none is found.

    Arrow's own reason has the whole types, however many fields they have.
    """
    if wanted is None:
        kind = _kind(given.type)
        return (path, f"it is {kind}") if given.type.num_fields else None
    try:
        given.cast(wanted)
    except pa.ArrowException as error:
        parts: list[tuple[pa.Array, pa.DataType, str]] = []
        if pa.types.is_struct(given.type) and pa.types.is_struct(wanted):
            types = {field.name: field.type for field in wanted}
            names = [field.name for field in given.type]
            parts = [
                (child, types[name], f"{path}.{name}")
                for name, child in zip(names, given.flatten(), strict=True)
                if name in types
            ]
        elif pa.types.is_map(given.type) and pa.types.is_map(wanted):
            parts = [(given.items, wanted.item_type, f"{path}[]")]
        elif pa.types.is_list(wanted) and any(is_list(given.type) for is_list in _LISTS):
            parts = [(given.flatten(), wanted.value_type, f"{path}[]")]
        found = (_misfit(*part) for part in parts)
        inner = next((each for each in found if each is not None), None)
        if inner is not None:
            return inner
        is_nested = given.type.num_fields or wanted.num_fields
        reason = f"it is {_kind(given.type)}, and must be {_kind(wanted)}"
        return path, reason if is_nested else str(error)
    return None


def _kind(type_: pa.DataType) -> str:
    """A type, without the types inside it."""
    return f"a {str(type_).partition('<')[0]}" if type_.num_fields else str(type_)


def _widened(type_: pa.DataType) -> pa.DataType:
    """The same type with doubles in place of floats, which a cast may make infinite."""
    if pa.types.is_float32(type_):
        return pa.float64()
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_widened(field.type)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(type_.key_type, type_.item_field.with_type(_widened(type_.item_type)))
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_widened(type_.value_type)))
    return type_


def _floats(values: pa.Array, path: str) -> pa.Array:
    """Numbers as floats, the nearest that there are."""
    floats, doubles = values.cast(pa.float32()), values.cast(pa.float64())
    beyond = doubles.filter(pc.and_(pc.is_inf(floats), pc.is_finite(doubles)))
    if len(beyond):
        message = f"{path}: {beyond[0]} is too great for a float"
        raise OptionError(message)
    return floats


def _primitives(values: pa.Array, type_: str) -> list[bytes | None]:
    if type_ in {"BYTES", "STRING"}:
        payloads: list[bytes | None] = values.cast(pa.binary()).to_pylist()
        return payloads
    if type_ == "FLOAT":
        values = _floats(values, "the value")
    unit = "ns" if getattr(values.type, "unit", "") == "ns" else "us"
    values = values.cast(primitive_shape(type_, unit).type)
    pack = struct.Struct(_FORMATS[type_]).pack
    per_second = _UNITS_PER_SECOND[unit]
    nanoseconds = _UNITS_PER_SECOND["ns"] // per_second
    if type_ in {"INSTANT", "LOCAL_DATE_TIME"}:
        divisor = per_second if type_ == "INSTANT" else _DAY_SECONDS * per_second
        pairs = (None if each is None else divmod(each, divisor) for each in _numbers(values))
        return [None if each is None else pack(each[0], each[1] * nanoseconds) for each in pairs]
    if type_ == "LOCAL_TIME":
        return [None if each is None else pack(each * nanoseconds) for each in _numbers(values)]
    numbers = _numbers(values.cast(_MILLISECONDS.get(type_, values.type)))
    return [None if each is None else pack(each) for each in numbers]


def _numbers(values: pa.Array) -> list[Any]:
    """Values as Python's numbers; for times, the number that Arrow keeps."""
    if pa.types.is_temporal(values.type):
        values = values.view(_INTEGERS[values.type.bit_width])
    numbers: list[Any] = values.to_pylist()
    return numbers


def _texts(values: pa.Array, shape: Shape, path: str) -> list[str | None]:
    """The JSON text of each value; None for null."""
    if not values.null_count:
        return list(_valid_texts(values, shape, path))
    if not shape.accepts_null:
        message = f"{path} is null, which the schema does not allow"
        raise OptionError(message)
    texts = iter(_valid_texts(values.drop_null(), shape, path))
    return [next(texts) if is_valid else None for is_valid in values.is_valid().to_pylist()]


def _valid_texts(values: pa.Array, shape: Shape, path: str) -> list[str]:
    """The JSON text of each value; none of them is null."""
    origin: AvroType = shape.origin
    if origin.kind == "union":
        # Each branch may be null, since one of them is meant.
        branches = [
            _texts(values.field(number), child.nullable(), path)
            for number, child in enumerate(shape.children)
        ]
        rows = zip(*branches, strict=True)
        return [next((text for text in row if text is not None), _NULL) for row in rows]
    if origin.kind == "record" and shape.is_record:
        fields = [
            _texts(values.field(number), child, f"{path}.{child.name}")
            for number, child in enumerate(shape.children)
        ]
        names = [f"{_quoted(child.name)}:" for child in shape.children]
        return [_object(zip(names, row, strict=True)) for row in zip(*fields, strict=True)]
    if origin.kind == "array":
        items = iter(_texts(values.flatten(), shape.children[0], f"{path}[]"))
        return [
            "[" + ",".join(text or _NULL for text in islice(items, length)) + "]"
            for length in values.value_lengths().to_pylist()
        ]
    if origin.kind == "map":
        entries = values.cast(pa.list_(_widened(shape.children[0].type)))
        pairs = entries.flatten()
        names = [f"{_quoted(name)}:" for name in pairs.field(0).to_pylist()]
        texts = _texts(pairs.field(1), shape.children[0].children[1], f"{path}[]")
        named = zip(names, (text or _NULL for text in texts), strict=True)
        return [_object(islice(named, length)) for length in entries.value_lengths().to_pylist()]
    return _scalar_texts(values, origin, path)


def _object(fields: Iterable[tuple[str, str | None]]) -> str:
    """A JSON object of names, with their colons, and texts; without those that are None."""
    return "{" + ",".join(name + text for name, text in fields if text is not None) + "}"


def _scalar_texts(values: pa.Array, origin: AvroType, path: str) -> list[str]:
    if origin.kind == "record":
        if pa.types.is_boolean(values.type):
            return ["{}"] * len(values)
        # A type inside itself is given as JSON text.
        return [_checked_json(text, path) for text in values.to_pylist()]
    if origin.logical == "decimal":
        return [format(each, "f") for each in values.to_pylist()]
    if origin.kind in {"int", "long"}:
        unit = _LOGICAL_UNITS.get(origin.logical.rpartition("-")[2])
        if unit is not None:
            values = values.cast(_in_unit(values.type, unit))
        return [str(each) for each in _numbers(values)]
    spell: Callable[[Any], str] = _SPELLED.get(origin.kind, _quoted)
    if origin.logical == "uuid":
        spell = _quoted
    if origin.kind == "float":
        # The shortest digits that tell a float from others are fewer than those of its double.
        return [
            _number(float(text)) for text in _floats(values, path).cast(pa.string()).to_pylist()
        ]
    texts = values.to_pylist()
    if origin.kind == "enum" and (unknown := set(texts) - set(origin.symbols)):
        message = f"{path}: the schema has no symbol {min(unknown)!r}"
        raise OptionError(message)
    if origin.kind == "fixed" and not origin.logical and any(len(t) != origin.size for t in texts):
        message = f"{path}: a fixed value must have {counted(origin.size, 'byte')}"
        raise OptionError(message)
    return [spell(each) for each in texts]


def _in_unit(type_: pa.DataType, unit: str) -> pa.DataType:
    """A type of times in another unit."""
    if pa.types.is_timestamp(type_):
        return pa.timestamp(unit, tz=type_.tz)
    return pa.time32(unit) if unit == "ms" else pa.time64(unit)


def _checked_json(text: str, path: str) -> str:
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"{path} is not JSON text: {error}"
        raise OptionError(message) from None
    return text


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _base64(data: bytes) -> str:
    return f'"{base64.b64encode(data).decode()}"'


def _number(number: float) -> str:
    if math.isfinite(number):
        return repr(number)
    return '"NaN"' if math.isnan(number) else f'"{"-" if number < 0 else ""}Infinity"'


def _nothing(_value: object) -> str:
    message = "a value is given, but the schema allows null only"
    raise OptionError(message)


_SPELLED: Final[Mapping[str, Callable[[Any], str]]] = {
    "boolean": lambda value: "true" if value else "false",
    "double": _number,
    "bytes": _base64,
    "fixed": _base64,
    "null": _nothing,
}
"""How a value of each kind is spelled; those that are not here are text."""
