"""Schema evolution: which types each kind of table stores, and how its columns may change.

New columns and fields are nullable, like all columns of a read, since rows from before and after a
change share the table.

| Arrow | Delta | Iceberg | Parquet |
|---|---|---|---|
| bool, int32, int64, float, double, date32 | unchanged | unchanged | unchanged |
| int8, int16 | unchanged | int32 | unchanged |
| uint8; uint16; uint32 | int16; int32; int64 | int32; int32; int64 | unchanged |
| uint64 | decimal128(20, 0) | decimal128(20, 0) | unchanged |
| half float | float | float | unchanged |
| decimal of up to 38 digits | decimal128 | decimal128 | decimal128 |
| timestamp, with a time zone: UTC | µs | µs | µs, or ns |
| time of day | int64 (µs since midnight) | time64[us] | time64: µs, or ns |
| date64 | date32 | date32 | date32 |
| string and binary of every layout; dictionary | string, binary; its values | likewise | likewise |
| list of every layout, map, struct | itself, of these types | likewise | likewise |

Not supported are null, duration and interval, decimals with more digits or a negative scale, and
structs without fields. Delta's column names are case-insensitive.

A table can get new columns and new struct fields, at any depth except in the keys of maps. Iceberg
and Parquet tables also widen int32 to int64 (Parquet: every integer to a wider one of the same
sign), float to double, and a decimal to more digits at the same scale. Delta tables do not:
widening needs the feature `typeWidening`, which `deltalake` does not write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import pyarrow as pa

from arrow_io.errors import LakeTableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TableKind: TypeAlias = Literal["delta", "iceberg", "parquet"]

_MAX_DIGITS: Final = 38
_UTC: Final = "UTC"
_SAME: Final = frozenset(
    {pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.date32()}
)
_BY_KIND: Final[dict[TableKind, dict[pa.DataType, pa.DataType]]] = {
    "delta": {
        pa.int8(): pa.int8(),
        pa.int16(): pa.int16(),
        pa.uint8(): pa.int16(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.decimal128(20, 0),
        pa.float16(): pa.float32(),
    },
    "iceberg": {
        pa.int8(): pa.int32(),
        pa.int16(): pa.int32(),
        pa.uint8(): pa.int32(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.decimal128(20, 0),
        pa.float16(): pa.float32(),
    },
    "parquet": {
        type_: type_
        for type_ in (
            *(pa.int8(), pa.int16(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
            pa.float16(),
        )
    },
}
"""Storage types of numbers that not all kinds of tables support."""
_KIND_NAMES: Final[dict[TableKind, str]] = {
    "delta": "a Delta table",
    "iceberg": "an Iceberg table",
    "parquet": "a Parquet table",
}


def storable_schema(schema: pa.Schema, kind: TableKind) -> pa.Schema:
    """Return the schema with the types in which a kind of table stores its columns.

    Raises:
        LakeTableError: The table kind cannot store a column or field. The message names it.
    """
    _check_names(schema, kind, "")
    return pa.schema(
        [field.with_type(_to_storable(field.type, kind, field.name)) for field in schema]
    )


def widen_schema(current: pa.Schema, requested: pa.Schema, kind: TableKind) -> pa.Schema:
    """Return the columns that a table needs so that additional rows fit too.

    Args:
        current: The table's current columns.
        requested: Columns of the rows, with the types in which the table stores them.
        kind: The table's format.

    Returns:
        The current columns in their order, widened if needed, followed by the new ones.

    Raises:
        LakeTableError: This kind of table cannot be changed to fit. The message names the field.
    """
    fields = _widen_fields(current, requested, kind, "")
    _check_names(fields, kind, "")
    return pa.schema(fields)


def fit_rows(batch: pa.RecordBatch, schema: pa.Schema, kind: TableKind) -> pa.RecordBatch:
    """Return the rows with the columns of a table. Columns that the rows lack become null.

    Args:
        batch: Rows whose columns the kind of table can store (`storable_schema`).
        schema: The table's columns, widened so that the rows fit.
        kind: The table's format.

    Raises:
        LakeTableError: A value cannot be cast without loss, or the table lacks a column or field.
    """
    _check_fields_exist(pa.struct(list(batch.schema)), pa.struct(list(schema)), "")
    indexes = {name: index for index, name in enumerate(batch.schema.names)}
    columns = [
        _fit_column(batch.column(indexes[field.name]), field, kind)
        if field.name in indexes
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# ------------------------------------------------------------------------------------------- types


def _to_storable(type_: pa.DataType, kind: TableKind, path: str) -> pa.DataType:
    """Return the type in which a kind of table stores a type. Errors name the dotted `path`."""
    types = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        return _to_storable(type_.storage_type, kind, path)
    if types.is_dictionary(type_):
        return _to_storable(type_.value_type, kind, path)
    if types.is_nested(type_):
        if types.is_struct(type_):
            _check_names(type_, kind, f"{path}.")
        return _convert_nested(type_, path, lambda each, child: _to_storable(each, kind, child))
    storable = (
        _convert_temporal(type_, kind) if types.is_temporal(type_) else _convert_flat(type_, kind)
    )
    if storable is None:
        message = f"{_KIND_NAMES[kind]} has no type for column {path}, which is {type_}"
        raise LakeTableError(message)
    return storable


def _convert_nested(
    type_: pa.DataType, path: str, change: Callable[[pa.DataType, str], pa.DataType]
) -> pa.DataType:
    types = pa.types

    def change_field(field: pa.Field, name: str) -> pa.Field:
        return field.with_type(change(field.type, f"{path}.{name}"))

    if types.is_struct(type_) and type_.num_fields:
        return pa.struct([change_field(field, field.name) for field in type_])
    if types.is_map(type_):
        return pa.map_(
            change_field(type_.key_field, "key"), change_field(type_.item_field, "value")
        )
    if not types.is_nested(type_) or not hasattr(type_, "value_field"):
        message = f"no table has a type for column {path}, which is {type_}"
        raise LakeTableError(message)
    return pa.list_(change_field(type_.value_field.with_name("element"), "element"))


def _convert_flat(type_: pa.DataType, kind: TableKind) -> pa.DataType | None:
    types = pa.types
    if types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_):
        return pa.string()
    if types.is_decimal(type_):
        fits = type_.precision <= _MAX_DIGITS and 0 <= type_.scale <= type_.precision
        return pa.decimal128(type_.precision, type_.scale) if fits else None
    if type_ in _SAME:
        return type_
    is_binary = types.is_binary(type_) or types.is_large_binary(type_)
    if is_binary or types.is_binary_view(type_) or types.is_fixed_size_binary(type_):
        return pa.binary()
    return _BY_KIND[kind].get(type_)


def _convert_temporal(type_: pa.DataType, kind: TableKind) -> pa.DataType | None:
    types = pa.types
    if types.is_date(type_):
        return pa.date32()
    unit = "ns" if kind == "parquet" and getattr(type_, "unit", "") == "ns" else "us"
    if types.is_timestamp(type_):
        return pa.timestamp(unit, _UTC if type_.tz else None)
    if types.is_time(type_):
        return pa.int64() if kind == "delta" else pa.time64(unit)
    return None


def _check_names(fields: Iterable[pa.Field], kind: TableKind, path: str) -> None:
    """Raise `LakeTableError` if two fields have the same name in this kind of table."""
    names: dict[str, str] = {}
    for field in fields:
        name = field.name.lower() if kind == "delta" else field.name
        if name in names:
            message = (
                f"{_KIND_NAMES[kind]} cannot have both columns"
                f" {path}{names[name]} and {path}{field.name}"
            )
            raise LakeTableError(message)
        names[name] = field.name


# ---------------------------------------------------------------------------------------- widening


def _widen_fields(
    current: Iterable[pa.Field], requested: Iterable[pa.Field], kind: TableKind, path: str
) -> list[pa.Field]:
    """Return the current fields of a table or struct, widened, followed by the new ones."""
    new = {field.name: field for field in requested}
    fields = []
    for field in current:
        other = new.pop(field.name, None)
        if not field.nullable and (other is None or other.nullable):
            message = (
                f"column {path}{field.name} of the table is not nullable, and rows may be null"
            )
            raise LakeTableError(message)
        if other is not None:
            type_ = _widen_type(field.type, other.type, kind, f"{path}{field.name}")
            fields.append(field.with_type(type_))
        else:
            fields.append(field)
    return [*fields, *(field.with_nullable(nullable=True) for field in new.values())]


def _widen_type(
    current: pa.DataType, requested: pa.DataType, kind: TableKind, path: str
) -> pa.DataType:
    types = pa.types
    if current == requested:
        return current
    if types.is_struct(current) and types.is_struct(requested):
        fields = _widen_fields(current, requested, kind, f"{path}.")
        _check_names(fields, kind, f"{path}.")
        return pa.struct(fields)
    if types.is_list(current) and types.is_list(requested):
        element = current.value_field
        type_ = _widen_type(element.type, requested.value_type, kind, f"{path}.element")
        return pa.list_(element.with_type(type_))
    if types.is_map(current) and types.is_map(requested):
        key, value = current.key_field, current.item_field
        if _widen_type(key.type, requested.key_type, kind, f"{path}.key") != key.type:
            raise _cannot_widen(f"{path}.key", key.type, requested.key_type, kind)
        type_ = _widen_type(value.type, requested.item_type, kind, f"{path}.value")
        return pa.map_(key, value.with_type(type_))
    wider = _wider(current, requested)
    if wider is None or (wider != current and kind == "delta"):
        raise _cannot_widen(path, current, requested, kind)
    return wider


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the one of two types that can hold all values of both, or None."""
    types = pa.types
    for is_alike in (types.is_signed_integer, types.is_unsigned_integer, types.is_floating):
        if is_alike(one) and is_alike(other):
            return max(one, other, key=lambda type_: type_.bit_width)
    if types.is_decimal(one) and types.is_decimal(other) and one.scale == other.scale:
        return max(one, other, key=lambda type_: type_.precision)
    return None


def _cannot_widen(
    path: str, current: pa.DataType, requested: pa.DataType, kind: TableKind
) -> LakeTableError:
    return LakeTableError(
        f"{_KIND_NAMES[kind]} cannot change column {path} from {current} so that {requested} fits"
    )


# -------------------------------------------------------------------------------------------- rows


def _fit_column(column: pa.Array, field: pa.Field, kind: TableKind) -> pa.Array:
    if column.type == field.type:
        return column
    try:
        if kind == "delta":
            # Casting a time of day to int64 keeps its unit, and Delta stores µs.
            column = column.cast(_to_microseconds(column.type, field.name))
        return column.cast(field.type)
    except pa.ArrowException as error:
        message = f"column {field.name} does not fit {field.type} without loss: {error}"
        raise LakeTableError(message) from error


def _to_microseconds(type_: pa.DataType, path: str) -> pa.DataType:
    if pa.types.is_nested(type_):
        return _convert_nested(type_, path, _to_microseconds)
    return pa.time64("us") if pa.types.is_time(type_) else type_


def _check_fields_exist(source: pa.DataType, target: pa.DataType, path: str) -> None:
    """Raise `LakeTableError` if a field is missing in the target: a cast would drop it."""
    types = pa.types
    if types.is_struct(source) and types.is_struct(target):
        target_types = {field.name: field.type for field in target}
        for field in source:
            if field.name not in target_types:
                message = f"the table has no column {path}{field.name}"
                raise LakeTableError(message)
            _check_fields_exist(field.type, target_types[field.name], f"{path}{field.name}.")
    elif types.is_map(source) and types.is_map(target):
        _check_fields_exist(source.key_type, target.key_type, f"{path}key.")
        _check_fields_exist(source.item_type, target.item_type, f"{path}value.")
    elif types.is_nested(source) and types.is_list(target):
        _check_fields_exist(source.value_type, target.value_type, f"{path}element.")
