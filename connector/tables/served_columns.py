"""Which columns of a read a lake table has: the same values, or values cast without loss."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from arrow_io.payloads.value_columns import VALUE_COLUMN
from connector.tables.copied_rows import ColumnForm

if TYPE_CHECKING:
    from collections.abc import Iterable

    from arrow_io.columns import Projection
    from arrow_io.payloads.schema_info import SchemaInfo
    from arrow_io.payloads.value_columns import ValueColumns, ValueField
    from connector.tables.copied_rows import CopiedRows

_NO_DEFAULT: Final = object()


def unserved_column(
    names: Iterable[str],
    columns: Projection,
    table: pa.Schema,
    rows: CopiedRows,
) -> str | None:
    """Return why a table cannot replace the bucket for some columns, or None if it can.

    Args:
        names: Names of the columns.
        columns: All columns of the topic.
        table: Columns of the table.
        rows: Facts about the rows of the table.

    Returns:
        A part of a sentence about the table, which names the first such column.
    """
    fields = () if columns.values is None else columns.values.fields
    values = {each.name for each in fields}
    form = ColumnForm.from_columns(columns)
    own_names = dict(columns.columns)
    for name in names:
        if name not in table.names:
            return f"it has no column {name}"
        if name in rows.null_columns:
            return f"its column {name} is null in rows that were dead letters"
        is_value = name in values or own_names.get(name) == VALUE_COLUMN
        if not rows.has_form(form, is_value=is_value):
            return f"its column {name} was copied with another naming, value, unwrap or schema"
        wanted, stored = columns.schema.field(name).type, table.field(name).type
        if not _is_column_lossless(stored, wanted):
            return f"its column {name} is {stored}, and the topic's is {wanted}"
        late = _late_problem(name, columns.values) if name in rows.late_columns else None
        if late is not None:
            return late
    return None


def _late_problem(name: str, values: ValueColumns | None) -> str | None:
    """Return why rows lack the values of a column that was added later; None if they are null."""
    fields = () if values is None else values.fields
    field = next((each for each in fields if each.name == name), None)
    if field is None or values is None:
        return f"its column {name} was added after the first copy"
    if _is_null_by_default(values, field):
        return None
    return (
        f"its column {name} was added after the first copy, and the schema gives earlier messages"
        " another value than null"
    )


def _is_column_lossless(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a column can be cast; Delta stores times of day as µs since midnight."""
    is_delta_time = pa.types.is_int64(stored) and pa.types.is_time(wanted)
    return bool(is_delta_time) or _is_lossless(stored, wanted)


def _is_lossless(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a cast returns the values that were copied to a column of another type."""
    types = pa.types
    if stored == wanted:
        return True
    if types.is_struct(stored) and types.is_struct(wanted):
        return [each.name for each in stored] == [each.name for each in wanted] and all(
            _is_lossless(one.type, two.type) for one, two in zip(stored, wanted, strict=True)
        )
    if types.is_map(stored) and types.is_map(wanted):
        return _is_lossless(stored.key_type, wanted.key_type) and _is_lossless(
            stored.item_type, wanted.item_type
        )
    if types.is_list(stored) and types.is_list(wanted):
        return _is_lossless(stored.value_type, wanted.value_type)
    # Tables store narrow numbers and times in wider types. A copy fails if a time is not exact.
    are_times = types.is_timestamp(stored) and types.is_timestamp(wanted)
    are_integers = types.is_signed_integer(stored) and types.is_signed_integer(wanted)
    return bool(
        (are_integers and stored.bit_width >= wanted.bit_width)
        or (are_times and (stored.tz is None) == (wanted.tz is None))
        or (types.is_time(stored) and types.is_time(wanted))
    )


def _is_null_by_default(values: ValueColumns, field: ValueField) -> bool:
    """Return whether the column is null for a message that was written without the field."""
    reader = values.schema.reader
    part = (reader.key if field.is_key else reader.value) if reader.type == "KEY_VALUE" else reader
    if part is None or field.field is None or part.type not in {"AVRO", "JSON"}:
        return False
    definition = _field_definition(part, field.field)
    default = definition.get("default", _NO_DEFAULT)
    # In a nested record, fields may have defaults of their own.
    is_nested = '"fields"' in json.dumps(definition)
    is_null = default is None or (default is _NO_DEFAULT and part.type == "JSON")
    return is_null and not is_nested and "aliases" not in definition


def _field_definition(schema: SchemaInfo, name: str) -> dict[str, object]:
    try:
        fields = json.loads(schema.data)["fields"]
        return next(dict(each) for each in fields if each["name"] == name)
    except (ValueError, KeyError, TypeError, StopIteration):
        return {"aliases": name}
