"""Conversion of table columns to message fields. An error names the column and the row.

Row numbers start at 0 at the beginning of the source.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MILLISECONDS: Final = pa.timestamp("ms", tz="UTC")
COLUMN_TYPES: Final[Mapping[str, pa.DataType]] = {
    "__publish_time__": MILLISECONDS,
    "__event_time__": MILLISECONDS,
    "__deliver_at__": MILLISECONDS,
    "__sequence_id__": pa.int64(),
    "__schema_version__": pa.int64(),
    "__producer_name__": pa.string(),
    "__replicated_from__": pa.string(),
    "__key__": pa.string(),
    "__key_bytes__": pa.binary(),
    "__ordering_key__": pa.binary(),
    "__properties__": pa.map_(pa.string(), pa.string()),
    "__null_value__": pa.bool_(),
}
"""Type that each column is cast to, without loss."""

_TO_MS: Final = (
    "; round it to ms first, by date_trunc('millisecond', …) in SQL or pyarrow's floor_temporal"
)
_PROPERTIES: Final = "__properties__"
_ENTRY_FIELDS: Final = {"key", "value"}
_PAIR: Final = 2


def plain_batch(batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
    """Return the rows with dictionary- and run-end-encoded columns decoded.

    Raises:
        OptionError: A column does not match its type, such as text that is not UTF-8.
    """
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            rows = (number for number in range(len(column)) if _is_broken(column.slice(number, 1)))
            raise value_error(name, first_row + next(rows, 0), str(error)) from None
        if pa.types.is_run_end_encoded(column.type):
            column = pc.run_end_decode(column)  # noqa: PLW2901 - of either, or of both
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()  # noqa: PLW2901
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _is_broken(value: pa.Array) -> bool:
    try:
        value.validate(full=True)
    except pa.ArrowInvalid:
        return True
    return False


def value_error(name: str, row: int, reason: str) -> OptionError:
    """Return the error for an invalid value of a column."""
    return OptionError(f"the column {name}, row {row} (from 0): {reason}")


def missing_column_error(row: int, reason: str, missing_column: str) -> OptionError:
    """Return the error for a row read from a topic that is ambiguous without another column."""
    return OptionError(
        f"row {row} (from 0) was read from a topic, and {reason}: read {missing_column} too, or add"
        " that column"
    )


def first_failing(length: int, fails: Callable[[int, int], bool]) -> int | None:
    """Return the first row that fails on its own, found by bisection; None if no single row fails.

    Args:
        length: Number of rows.
        fails: Takes the first row and the number of rows, and returns whether these rows fail.
    """
    start, stop = 0, length
    while stop - start > 1:
        half = (stop - start) // 2
        if fails(start, half):
            stop = start + half
        else:
            start += half
    return start if stop > start and fails(start, 1) and not fails(start, 0) else None


def cast(batch: pa.RecordBatch, name: str, type_: pa.DataType, first_row: int) -> pa.Array:
    """Return a column cast to another type, without loss.

    Raises:
        OptionError: The column cannot be cast. The error names the row, or the type if no row can
            be cast.
    """
    return cast_array(batch.column(name), name, type_, first_row)


def cast_array(column: pa.Array, name: str, type_: pa.DataType, first_row: int) -> pa.Array:
    """Return an array cast to another type, like `cast`. It need not be a column of a batch."""

    def find_error(start: int, length: int) -> pa.ArrowException | None:
        try:
            column.slice(start, length).cast(type_)
        except pa.ArrowException as error:
            return error
        return None

    try:
        return column.cast(type_)
    except pa.ArrowException:
        row = first_failing(len(column), lambda *rows: find_error(*rows) is not None)
        if row is not None:
            is_time = type_ == MILLISECONDS and pa.types.is_timestamp(column.type)
            reason = f"{find_error(row, 1)}{_TO_MS if is_time else ''}"
            raise value_error(name, first_row + row, reason) from None
        source_type = column.type
        # The full text of a nested type may be very long.
        type_text = (
            f"a {str(source_type).partition('<')[0]}" if source_type.num_fields else source_type
        )
        message = f"the column {name} is {type_text}, which cannot be cast to {type_}"
        raise OptionError(message) from None


def column_values(
    batch: pa.RecordBatch, name: str, first_row: int, default: object = None
) -> list[Any]:
    """Return the values of a column as Python objects, times in ms since the epoch.

    Args:
        batch: The rows.
        name: Name of the column, among `COLUMN_TYPES`.
        first_row: Number of the first row.
        default: Value for nulls, and for all rows if the column is missing.

    Raises:
        OptionError: See `cast`.
    """
    if name not in batch.schema.names:
        return [default] * batch.num_rows
    column = cast(batch, name, COLUMN_TYPES[name], first_row)
    if column.type == MILLISECONDS:
        column = column.view(pa.int64())
    return [default if value is None else value for value in column.to_pylist()]


def keys(batch: pa.RecordBatch, first_row: int) -> list[str | bytes | None]:
    """Return the keys: text, or bytes if `__key_bytes__` differs from the text's UTF-8.

    Raises:
        OptionError: See `cast`.
    """
    names = batch.schema.names
    if "__key__" in names and is_binary(batch.schema.field("__key__").type):
        binary: list[str | bytes | None] = cast(
            batch, "__key__", pa.binary(), first_row
        ).to_pylist()
        return binary
    texts = column_values(batch, "__key__", first_row)
    pairs = zip(texts, column_values(batch, "__key_bytes__", first_row), strict=True)
    return [
        text if data is None or (text is not None and text.encode() == data) else data
        for text, data in pairs
    ]


def properties(batch: pa.RecordBatch, first_row: int) -> list[tuple[tuple[str, str], ...]]:
    """Return the properties of each row as pairs of name and value.

    The column is a map, a list of entries or pairs, or a struct whose non-null fields are
    properties.

    Raises:
        OptionError: See `cast`. Or a name or a value in a map or list is null.
    """
    if _PROPERTIES not in batch.schema.names:
        return [()] * batch.num_rows
    column = batch.column(_PROPERTIES)
    if pa.types.is_struct(column.type):
        return _fields(column, first_row)
    rows: Sequence[Any]
    if _is_list_of(column.type, _is_entry):
        entry = pa.struct([("key", pa.string()), ("value", pa.string())])
        entries = cast(batch, _PROPERTIES, pa.list_(entry), first_row).to_pylist()
        rows = [[each and (each["key"], each["value"]) for each in row or ()] for row in entries]
    elif _is_list_of(column.type, _is_list):
        pairs = pa.list_(pa.list_(pa.string()))
        rows = [row or () for row in cast(batch, _PROPERTIES, pairs, first_row).to_pylist()]
    else:
        rows = column_values(batch, _PROPERTIES, first_row, default=())
    for number, row in zip(count(first_row), rows, strict=False):
        if any(pair is None or len(pair) != _PAIR or None in pair for pair in row):
            raise value_error(
                _PROPERTIES, number, "the name or value of a property is null or absent"
            )
    return [tuple((name, value) for name, value in row) for row in rows]


def _fields(column: pa.Array, first_row: int) -> list[tuple[tuple[str, str], ...]]:
    names = [field.name for field in column.type]
    texts = [
        cast_array(values, f"{_PROPERTIES}.{name}", pa.string(), first_row).to_pylist()
        for name, values in zip(names, column.flatten(), strict=True)
    ]
    return [
        tuple(pair for pair in zip(names, row, strict=True) if pair[1] is not None)
        for row in (zip(*texts, strict=True) if texts else [()] * len(column))
    ]


def _is_list(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(type_)
        or pa.types.is_large_list(type_)
        or pa.types.is_fixed_size_list(type_)
    )


def _is_list_of(type_: pa.DataType, is_item: Callable[[pa.DataType], bool]) -> bool:
    return _is_list(type_) and is_item(type_.value_type)


def _is_entry(type_: pa.DataType) -> bool:
    return pa.types.is_struct(type_) and {field.name for field in type_} == _ENTRY_FIELDS


def is_text(type_: pa.DataType) -> bool:
    """Return whether values of this type are text."""
    return bool(
        pa.types.is_string(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_string_view(type_)
    )


def is_binary(type_: pa.DataType) -> bool:
    """Return whether values of this type are bytes, or all null."""
    return bool(
        pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
        or pa.types.is_binary_view(type_)
        or pa.types.is_fixed_size_binary(type_)
        or pa.types.is_null(type_)
    )
