"""Helpers that split and convert Arrow arrays for the payload encoders.

Arrays have the type of the schema's shape, except for missing fields.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arrow_io.payloads.shape import Shape

_INTEGERS: Final = {32: pa.int32(), 64: pa.int64()}
_DECIMAL_BYTES: Final = 16
_DAY_SECONDS: Final = 86_400
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def null_error(path: str) -> OptionError:
    """Return the error for a null value in a field that the schema does not allow to be null."""
    return OptionError(f"{path} is null, which the schema does not allow")


def split_fields(
    values: pa.StructArray, shape: Shape, path: str
) -> Iterator[tuple[Shape, pa.Array | None, str]]:
    """Yield the shape, values and path of each field of a record, in the schema's order.

    The values are None if the field is missing. Values in rows where the record is null are
    meaningless.
    """
    for child, field in zip(shape.children, shape.type, strict=True):
        number = values.type.get_field_index(field.name)
        yield child, None if number < 0 else values.field(number), f"{path}.{field.name}"


class Entries(NamedTuple):
    """The concatenated entries of all maps of an array, and the number of entries of each map."""

    keys: pa.Array
    values: pa.Array
    lengths: list[int]


def split_entries(values: pa.MapArray, path: str) -> Entries:
    """Split maps, none of which is null, into keys and values.

    Raises:
        OptionError: A map contains a key twice; a reader would return only one of the two entries.
    """
    entry = pa.struct([values.type.key_field, values.type.item_field])
    lists = values.cast(pa.list_(entry))
    pairs = lists.flatten()
    keys, start, lengths = pairs.field(0), 0, lists.value_lengths().to_pylist()
    if keys.null_count:
        raise null_error(f"{path}[]")
    key_values = keys.to_pylist()
    for length in lengths:
        own = key_values[start : start + length]
        if len(set(own)) < length:
            duplicate = next(each for each in own if own.count(each) > 1)
            message = f"{path}: a map has the key {duplicate!r} twice"
            raise OptionError(message)
        start += length
    return Entries(keys, pairs.field(1), lengths)


def numbers(values: pa.Array) -> list[Any]:
    """Return values as Python numbers; for times, the numbers that Arrow stores."""
    if pa.types.is_temporal(values.type):
        values = values.view(_INTEGERS[values.type.bit_width])
    items: list[Any] = values.to_pylist()
    return items


def unscaled(values: pa.Decimal128Array) -> list[int]:
    """Return decimals, none of which is null, as unscaled integers."""
    data = memoryview(values.buffers()[1])
    starts = range(
        values.offset * _DECIMAL_BYTES,
        (values.offset + len(values)) * _DECIMAL_BYTES,
        _DECIMAL_BYTES,
    )
    return [
        int.from_bytes(data[start : start + _DECIMAL_BYTES], "little", signed=True)
        for start in starts
    ]


def to_floats(values: pa.Array, path: str) -> pa.Array:
    """Round numbers to the nearest 32-bit floats.

    Raises:
        OptionError: A finite number is out of range.
    """
    nearest, doubles = values.cast(pa.float32()), values.cast(pa.float64())
    out_of_range = doubles.filter(pc.and_(pc.is_inf(nearest), pc.is_finite(doubles)))
    if len(out_of_range):
        message = f"{path}: {out_of_range[0]} is out of the range of a float"
        raise OptionError(message)
    return nearest


def check_times(values: pa.Array, path: str) -> None:
    """Refuse times of day outside the day, which a cast from numbers can produce.

    Raises:
        OptionError: A value is not from midnight (inclusive) to midnight (exclusive).
    """
    numbers = values.view(_INTEGERS[values.type.bit_width])
    per_day = _DAY_SECONDS * _PER_SECOND[values.type.unit]
    out_of_range = numbers.filter(pc.or_(pc.less(numbers, 0), pc.greater_equal(numbers, per_day)))
    if len(out_of_range):
        message = f"{path}: {out_of_range[0]} {values.type.unit} is not a time of day"
        raise OptionError(message)


def cast_to_unit(values: pa.Array, unit: str, path: str) -> pa.Array:
    """Convert times to another unit.

    Raises:
        OptionError: A value is more precise than the unit, or out of its range or of the day.
    """
    type_ = values.type
    if pa.types.is_timestamp(type_):
        target = pa.timestamp(unit, tz=type_.tz)
    else:
        check_times(values, path)
        target = pa.time32(unit) if unit == "ms" else pa.time64(unit)
    try:
        return values.cast(target)
    except pa.ArrowException as error:
        message = f"{path}: {error}"
        raise OptionError(message) from None


def check_present(values: pa.BooleanArray, path: str) -> None:
    """Refuse false for a record without fields: its column is a boolean, true or null.

    Raises:
        OptionError: A value is false.
    """
    if pc.any(pc.invert(values)).as_py():
        message = (
            f"{path}: a record without fields must be true, or null if it is missing, not false"
        )
        raise OptionError(message)


def uuid_bytes(text: str, path: str) -> bytes:
    """Parse the text of a UUID.

    Raises:
        OptionError: The text is not a UUID.
    """
    try:
        return uuid.UUID(text).bytes
    except ValueError:
        message = f"{path}: {text[:50]!r} is not a UUID"
        raise OptionError(message) from None
