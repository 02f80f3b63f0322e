"""Typed Arrow arrays → payloads: the way back from what `decoder` gives.

Sources: `*Schema.java` of Pulsar's Java client. Of PROTOBUF, payloads are written if a descriptor
came with the schema, as they are read only then.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from arrow_io.errors import OptionError, SchemaError
from arrow_io.payloads.arrow_values import check_times, floats, numbers
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
"""How each type is packed: one number; seconds and nanoseconds; days and nanoseconds."""
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
"""Of which types Arrow casts to which though values change: a time of day goes, digits are rounded,
and each number but 0 is true."""

_UTC_NAMES: Final = frozenset({"UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z", "+00:00"})


class _FieldEncoder(Protocol):
    """Writes values that may have fields.

    Attributes:
        shape: What they are given as.
        null: A payload that is read as null; None if there is none.
    """

    @property
    def shape(self) -> Shape: ...

    @property
    def null(self) -> bytes | None: ...

    def may_be_null(self, field: Shape) -> bool:
        """Whether a field of the outermost record may be read as null."""
        ...

    def payloads(self, values: pa.Array, path: str) -> list[bytes]:
        """The payloads of values, none of which is null; fields may be missing.

        Args:
            values: The values.
            path: What errors call them.

        Raises:
            OptionError: A value does not fit the schema.
        """
        ...


_FIELD_ENCODERS: Final[Mapping[str, Callable[[str], _FieldEncoder]]] = {
    "AVRO": AvroEncoder,
    "JSON": JsonEncoder,
    "PROTOBUF": ProtobufEncoder,
    "PROTOBUF_NATIVE": ProtobufEncoder,
}


class PayloadEncoder:
    """Encodes the values of one schema.

    Args:
        schema: What the payloads are to be read by; of a KEY_VALUE, its key or its value.
        name: What errors call a value.

    Raises:
        SchemaError: Payloads of the schema's type are not written, or the schema cannot be read.
    """

    def __init__(self, schema: SchemaInfo, name: str = "the value") -> None:
        self._type = schema.type
        self._name = name
        self._fields: _FieldEncoder | None = None
        if schema.type in _FIELD_ENCODERS and is_encodable(schema):
            self._fields = _FIELD_ENCODERS[schema.type](schema.data)
        elif schema.type not in PRIMITIVE_TYPES:
            message = f"values of the schema type {schema.type} are not encoded: give their bytes"
            raise SchemaError(message)

    @property
    def null(self) -> bytes | None:
        """A payload that is read as null, beside a null value; None if there is none."""
        return None if self._fields is None else self._fields.null

    def may_be_null(self, names: Collection[str]) -> bool:
        """Whether all of some fields of the record may be read as null in one payload."""
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
            values: Of the type that reading gives for this schema, or of one that Arrow casts to it
                without loss; floating-point numbers take the nearest that the schema's type has.
                Fields that are missing have the default that the schema gives them.

        Returns:
            The payloads; None for null.

        Raises:
            OptionError: A value does not fit the schema.
        """
        if self._fields is None:
            try:
                return _primitives(values, self._type, self._name)
            except (pa.ArrowException, struct.error) as error:
                source = values.type
                reason = f"it is {_kind(source)}" if source.num_fields else str(error)
                raise self._find_misfit(self._name, reason) from error
        target = _target_type(values.type, self._fields.shape, self._name)
        try:
            values.cast(target)  # Without loss, but for floats too great.
            wide = values.cast(_widened(target))
        except pa.ArrowException as error:
            misfit = _find_misfit(values, target, self._name) or (self._name, str(error))
            raise self._find_misfit(*misfit) from error
        try:
            payloads = iter(self._fields.payloads(wide.drop_null(), self._name))
        except UnicodeDecodeError as error:
            raise self._find_misfit(self._name, str(error)) from error
        return [next(payloads) if valid else None for valid in wide.is_valid().to_pylist()]

    def _find_misfit(self, path: str, reason: str) -> OptionError:
        return OptionError(f"{path} does not fit the schema type {self._type}: {reason}")


def is_encodable(schema: SchemaInfo) -> bool:
    """Whether values of a schema, or of both its parts, are written; if it can be read at all."""
    if schema.type == "KEY_VALUE":
        parts = (schema.key, schema.value)
        return all(part is not None and is_encodable(part) for part in parts)
    if schema.type == "PROTOBUF":
        return "fileDescriptorSet" in schema.data
    return schema.type in PRIMITIVE_TYPES or schema.type in _FIELD_ENCODERS


def _target_type(source: pa.DataType, shape: Shape, path: str) -> pa.DataType:
    """A shape's type, of the fields that are given.

    Raises:
        OptionError: The schema does not have a field: Arrow's cast would drop it.
    """
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
        message = f"{path}: {source} is not a list, as the schema's array is"
        raise OptionError(message)
    _check_lossless(source, target, path)
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target) and source.unit != "ns":
        # Not all of them have a place among nanoseconds.
        return pa.timestamp("us", tz=target.tz)
    return target


def _check_lossless(source: pa.DataType, target: pa.DataType, path: str) -> None:
    """Refuse types of which Arrow's cast cuts or rounds values without a word.

    Raises:
        OptionError: They are such.
    """
    if pa.types.is_dictionary(source):
        source = source.value_type
    if _is_counted(source) and pa.types.is_integer(target):
        message = (
            f"{path}: it is {source}, and the schema does not say in which unit it counts time:"
            " cast it to that first, and then to a number"
        )
        raise OptionError(message)
    is_zoned = pa.types.is_timestamp(source) and source.tz not in {None, *_UTC_NAMES}
    if is_zoned and pa.types.is_timestamp(target) and target.tz is None:
        # Arrow would give the time of day in UTC.
        message = (
            f"{path}: it is {source}, and the schema has times of no time zone: make it one of"
            " these first, as pyarrow.compute.local_timestamp does"
        )
        raise OptionError(message)
    if pa.types.is_integer(source) and pa.types.is_timestamp(target):
        # Arrow would take them for microseconds, though most schemas count milliseconds.
        message = (
            f"{path}: it is {source}, which has no unit of time: cast it first, such as to"
            " timestamp('ms') of pyarrow"
        )
        raise OptionError(message)
    for is_source, is_target in _LOSSY:
        if is_source(source) and is_target(target):
            message = f"{path}: it is {source}, and may lose data as {target}"
            raise OptionError(message)


def _is_counted(type_: pa.DataType) -> bool:
    """Return whether a type counts time in a unit of its own; dates count days."""
    kinds = (pa.types.is_timestamp, pa.types.is_time, pa.types.is_duration)
    return any(is_kind(type_) for is_kind in kinds)


def _find_misfit(values: pa.Array, target: pa.DataType, path: str) -> tuple[str, str] | None:
    """Path and reason of the first field that cannot be cast; None if none is found.

    Arrow's own reason has the whole types, however many fields they have.
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
        reason = f"it is {_kind(values.type)}, and must be {_kind(target)}"
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


def _primitives(values: pa.Array, type_: str, name: str) -> list[bytes | None]:
    if type_ in {"BYTES", "STRING"}:
        payloads: list[bytes | None] = values.cast(pa.binary()).to_pylist()
        return payloads
    if type_ == "FLOAT":
        values = floats(values, name)
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
