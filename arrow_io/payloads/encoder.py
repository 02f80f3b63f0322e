"""Payload encoding: typed Arrow arrays to payload bytes, the reverse of `decoder`.

Sources: `*Schema.java` of Pulsar's Java client. PROTOBUF payloads are encoded only if a descriptor
came with the schema, because only then can they be decoded.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from arrow_io.errors import OptionError, SchemaError
from arrow_io.payloads.arrow_values import check_times, numbers, to_floats
from arrow_io.payloads.avro_encoder import AvroEncoder
from arrow_io.payloads.json_encoder import JsonEncoder
from arrow_io.payloads.primitive import PRIMITIVE_TYPES, primitive_shape
from arrow_io.payloads.protobuf_encoder import ProtobufEncoder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from arrow_io.payloads.schema_info import SchemaInfo
    from arrow_io.payloads.shape import Shape

_DAY_SECONDS: Final = 86_400
_UNITS_PER_SECOND: Final = {"us": 10**6, "ns": 10**9}
_FORMATS: Final = {
    "BOOLEAN": ">?", "INT8": ">b", "INT16": ">h", "INT32": ">i", "INT64": ">q", "FLOAT": ">f",
    "DOUBLE": ">d", "DATE": ">q", "TIME": ">q", "TIMESTAMP": ">q", "INSTANT": ">qi",
    "LOCAL_DATE": ">q", "LOCAL_TIME": ">q", "LOCAL_DATE_TIME": ">qq",
}  # fmt: skip
"""How each type is packed: one number; seconds and nanoseconds; or days and nanoseconds."""
_MILLISECONDS: Final = {
    "DATE": pa.timestamp("ms", tz="UTC"),
    "TIMESTAMP": pa.timestamp("ms", tz="UTC"),
    "TIME": pa.time32("ms"),
}
_LISTS: Final = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)
_LOSSY: Final = (
    (pa.types.is_timestamp, pa.types.is_date),
    (pa.types.is_timestamp, pa.types.is_time),
    (pa.types.is_floating, pa.types.is_decimal),
    (pa.types.is_floating, pa.types.is_boolean),
    (pa.types.is_integer, pa.types.is_boolean),
    (pa.types.is_decimal, pa.types.is_boolean),
)
"""Pairs of types that Arrow casts although values change.

The cast drops the time of day, rounds digits, or makes every number except 0 true."""

_UTC_NAMES: Final = frozenset({"UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z", "+00:00"})


class _FieldEncoder(Protocol):
    """An encoder for values that may have fields.

    Attributes:
        shape: Shape of the values.
        null: A payload that is read as null; None if there is none.
    """

    @property
    def shape(self) -> Shape: ...

    @property
    def null(self) -> bytes | None: ...

    def may_be_null(self, field: Shape) -> bool:
        """Return whether a field of the outermost record may be read as null."""
        ...

    def payloads(self, values: pa.Array, path: str) -> list[bytes]:
        """Encode values, none of which is null; fields may be missing."""
        ...


_FIELD_ENCODERS: Final[Mapping[str, Callable[[str], _FieldEncoder]]] = {
    "AVRO": AvroEncoder,
    "JSON": JsonEncoder,
    "PROTOBUF": ProtobufEncoder,
    "PROTOBUF_NATIVE": ProtobufEncoder,
}


class PayloadEncoder:
    """An encoder for values of one schema.

    Args:
        schema: The schema that readers of the payloads use; for KEY_VALUE, that of the key or the
            value.
        name: Name of the value in errors.

    Raises:
        SchemaError: Payloads of the schema's type are not encoded, or the schema cannot be read.
    """

    def __init__(self, schema: SchemaInfo, name: str = "the value") -> None:
        self._type = schema.type
        self._name = name
        self._fields: _FieldEncoder | None = None
        if schema.type in _FIELD_ENCODERS and is_encodable(schema):
            self._fields = _FIELD_ENCODERS[schema.type](schema.data)
        elif schema.type not in PRIMITIVE_TYPES:
            message = f"cannot encode values of the schema type {schema.type}: pass their bytes"
            raise SchemaError(message)

    @property
    def null(self) -> bytes | None:
        """A payload that is read as null, besides a null value; None if there is none."""
        return None if self._fields is None else self._fields.null

    def may_be_null(self, names: Collection[str]) -> bool:
        """Return whether all the named fields of the record may be read as null in one payload."""
        if self._fields is None or not self._fields.shape.is_record:
            return False
        shape = self._fields.shape
        children = zip(shape.type, shape.children, strict=True)
        return all(
            self._fields.may_be_null(child) for field, child in children if field.name in names
        )

    def encode(self, values: pa.Array) -> list[bytes | None]:
        """Encode values.

        Args:
            values: Values of the type that reading returns for this schema, or of a type that Arrow
                casts to it without loss. Floating-point numbers are rounded to the schema's type.
                Missing fields get the default of the schema.

        Returns:
            The payloads; None for null.

        Raises:
            OptionError: A value does not fit the schema.
        """
        if self._fields is None:
            try:
                return _encode_primitives(values, self._type, self._name)
            except (pa.ArrowException, struct.error) as error:
                source = values.type
                reason = f"it is {_outer_type(source)}" if source.num_fields else str(error)
                raise self._misfit_error(self._name, reason) from error
        target = _target_type(values.type, self._fields.shape, self._name)
        try:
            values.cast(target)  # Raises on any loss, except that large doubles become infinite.
            wide = values.cast(_widen(target))
        except pa.ArrowException as error:
            misfit = _find_misfit(values, target, self._name) or (self._name, str(error))
            raise self._misfit_error(*misfit) from error
        try:
            payloads = iter(self._fields.payloads(wide.drop_null(), self._name))
        except UnicodeDecodeError as error:
            raise self._misfit_error(self._name, str(error)) from error
        return [next(payloads) if valid else None for valid in wide.is_valid().to_pylist()]

    def _misfit_error(self, path: str, reason: str) -> OptionError:
        return OptionError(f"{path} does not fit the schema type {self._type}: {reason}")


def is_encodable(schema: SchemaInfo) -> bool:
    """Return whether values of a readable schema, or of both its parts, can be encoded."""
    if schema.type == "KEY_VALUE":
        parts = (schema.key, schema.value)
        return all(part is not None and is_encodable(part) for part in parts)
    if schema.type == "PROTOBUF":
        return "fileDescriptorSet" in schema.data
    return schema.type in PRIMITIVE_TYPES or schema.type in _FIELD_ENCODERS


def _target_type(source: pa.DataType, shape: Shape, path: str) -> pa.DataType:
    """Return a shape's type with only the fields that the source has; refuse any other field."""
    target = shape.type
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        names = [field.name for field in source]
        schema_names = {field.name for field in target}
        wrong = next(
            (each for each in names if each not in schema_names or names.count(each) > 1), None
        )
        if wrong is not None:
            problem = "two fields" if wrong in schema_names else "the schema has no field"
            message = f"{path}: {problem} {wrong!r}"
            raise OptionError(message)
        children = zip(target, shape.children, strict=True)
        return pa.struct(
            [
                field.with_type(
                    _target_type(source.field(field.name).type, child, f"{path}.{field.name}")
                )
                for field, child in children
                if field.name in names
            ]
        )
    if pa.types.is_map(source) and pa.types.is_map(target):
        item = _target_type(source.item_type, shape.children[0].children[1], f"{path}[]")
        return pa.map_(target.key_type, target.item_field.with_type(item))
    if pa.types.is_list(target) and any(is_list(source) for is_list in _LISTS):
        item = _target_type(source.value_type, shape.children[0], f"{path}[]")
        return pa.list_(target.value_field.with_type(item))
    if pa.types.is_list(target) and pa.types.is_nested(source):
        message = f"{path}: it is {source}, not a list as the schema requires"
        raise OptionError(message)
    _check_lossless(source, target, path)
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target) and source.unit != "ns":
        # Nanoseconds have a smaller range, so not all values would fit.
        return pa.timestamp("us", tz=target.tz)
    return target


def _check_lossless(source: pa.DataType, target: pa.DataType, path: str) -> None:
    """Refuse types from which Arrow's cast truncates or rounds values without an error."""
    if pa.types.is_dictionary(source):
        source = source.value_type
    if _has_time_unit(source) and pa.types.is_integer(target):
        message = (
            f"{path}: it is {source}, and the schema does not define a unit of time for the number:"
            " cast it to the unit that you need, and then to an integer"
        )
        raise OptionError(message)
    is_zoned = pa.types.is_timestamp(source) and source.tz not in {None, *_UTC_NAMES}
    if is_zoned and pa.types.is_timestamp(target) and target.tz is None:
        # Arrow would convert to the time of day in UTC.
        message = (
            f"{path}: it is {source}, and the schema's times have no time zone: convert it first,"
            " such as with pyarrow.compute.local_timestamp"
        )
        raise OptionError(message)
    if pa.types.is_integer(source) and pa.types.is_timestamp(target):
        # Arrow would interpret them as microseconds, although most schemas count milliseconds.
        message = (
            f"{path}: it is {source}, which has no unit of time: cast it first, such as to"
            " pyarrow.timestamp('ms')"
        )
        raise OptionError(message)
    for is_source, is_target in _LOSSY:
        if is_source(source) and is_target(target):
            message = f"{path}: converting {source} to {target} may lose data: cast it first"
            raise OptionError(message)


def _has_time_unit(type_: pa.DataType) -> bool:
    """Return whether a type counts time in a unit of its own; dates always count days."""
    kinds = (pa.types.is_timestamp, pa.types.is_time, pa.types.is_duration)
    return any(is_kind(type_) for is_kind in kinds)


def _find_misfit(values: pa.Array, target: pa.DataType, path: str) -> tuple[str, str] | None:
    """Return path and reason of the first field that cannot be cast; None if there is none.

    Arrow's own reason contains the whole types, no matter how many fields they have.
    """
    try:
        values.cast(target)
    except pa.ArrowException as error:
        parts: list[tuple[pa.Array, pa.DataType, str]] = []
        if pa.types.is_struct(values.type) and pa.types.is_struct(target):
            types = {field.name: field.type for field in target}
            names = [field.name for field in values.type]
            parts = [
                (child, types[name], f"{path}.{name}")
                for name, child in zip(names, values.flatten(), strict=True)
                if name in types
            ]
        elif pa.types.is_map(values.type) and pa.types.is_map(target):
            parts = [(values.items, target.item_type, f"{path}[]")]
        elif pa.types.is_list(target) and any(is_list(values.type) for is_list in _LISTS):
            parts = [(values.flatten(), target.value_type, f"{path}[]")]
        misfits = (_find_misfit(*part) for part in parts)
        inner = next((each for each in misfits if each is not None), None)
        if inner is not None:
            return inner
        is_nested = values.type.num_fields or target.num_fields
        reason = f"it is {_outer_type(values.type)}, and must be {_outer_type(target)}"
        return path, reason if is_nested else str(error)
    return None


def _outer_type(type_: pa.DataType) -> str:
    """Return the name of a type, without the types inside it."""
    return f"a {str(type_).partition('<')[0]}" if type_.num_fields else str(type_)


def _widen(type_: pa.DataType) -> pa.DataType:
    """Return the type with doubles in place of floats: a cast to floats may produce infinities."""
    if pa.types.is_float32(type_):
        return pa.float64()
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_widen(field.type)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(type_.key_type, type_.item_field.with_type(_widen(type_.item_type)))
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_widen(type_.value_type)))
    return type_


def _encode_primitives(values: pa.Array, type_: str, name: str) -> list[bytes | None]:
    if type_ in {"BYTES", "STRING"}:
        payloads: list[bytes | None] = values.cast(pa.binary()).to_pylist()
        return payloads
    if type_ == "FLOAT":
        values = to_floats(values, name)
    unit = "ns" if getattr(values.type, "unit", "") == "ns" else "us"
    target = primitive_shape(type_, unit).type
    _check_lossless(values.type, target, name)
    values = values.cast(target)
    if pa.types.is_time(values.type):
        check_times(values, name)
    pack = struct.Struct(_FORMATS[type_]).pack
    per_second = _UNITS_PER_SECOND[unit]
    nanoseconds = _UNITS_PER_SECOND["ns"] // per_second
    if type_ in {"INSTANT", "LOCAL_DATE_TIME"}:
        divisor = per_second if type_ == "INSTANT" else _DAY_SECONDS * per_second
        pairs = (None if each is None else divmod(each, divisor) for each in numbers(values))
        return [None if each is None else pack(each[0], each[1] * nanoseconds) for each in pairs]
    if type_ == "LOCAL_TIME":
        return [None if each is None else pack(each * nanoseconds) for each in numbers(values)]
    ticks = numbers(values.cast(_MILLISECONDS.get(type_, values.type)))
    return [None if each is None else pack(each) for each in ticks]
