"""Arrow arrays → what those ask for who write payloads of them, column by column.

Arrays have the type that a schema's shape has, but for fields that were not given.
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


def is_null(path: str) -> OptionError:
    """The error for a null where the schema has none."""
    return OptionError(f"{path} is null, which the schema does not allow")


def split_fields(
    values: pa.StructArray, shape: Shape, path: str
) -> Iterator[tuple[Shape, pa.Array | None, str]]:
    """The fields of a record in the schema's order, with their values and paths.

    The values are None if the field was not given. Those of rows that are null do not count.
    """
    for child, field in zip(shape.children, shape.type, strict=True):
        number = values.type.get_field_index(field.name)
        yield child, None if number < 0 else values.field(number), f"{path}.{field.name}"


class Entries(NamedTuple):
    """The entries of all maps of an array, one behind the other.

    Attributes:
        keys: Their keys.
        values: Their values.
        lengths: How many of them each map has.
    """

    keys: pa.Array
    values: pa.Array
    lengths: list[int]


def split_entries(values: pa.MapArray, path: str) -> Entries:
    """Take maps apart, none of which is null.

    Raises:
        OptionError: A key stands twice in a map: of two such entries a reader gives one.
    """
    entry = pa.struct([values.type.key_field, values.type.item_field])
    lists = values.cast(pa.list_(entry))
    pairs = lists.flatten()
    keys, start, lengths = pairs.field(0), 0, lists.value_lengths().to_pylist()
    if keys.null_count:
        raise is_null(f"{path}[]")
    spelled = keys.to_pylist()
    for length in lengths:
        own = spelled[start : start + length]
        if len(set(own)) < length:
            twice = next(each for each in own if own.count(each) > 1)
            message = f"{path}: the key {twice!r} stands twice"
            raise OptionError(message)
        start += length
    return Entries(keys, pairs.field(1), lengths)


def numbers(values: pa.Array) -> list[Any]:
    """Values as Python's numbers; for times, the number that Arrow keeps."""
    if pa.types.is_temporal(values.type):
        values = values.view(_INTEGERS[values.type.bit_width])
    items: list[Any] = values.to_pylist()
    return items


def unscaled(values: pa.Decimal128Array) -> list[int]:
    """Decimals, none of which is null, as whole numbers of their last digit."""
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


def floats(values: pa.Array, path: str) -> pa.Array:
    """Numbers as floats, the nearest that there are.

    Raises:
        OptionError: One is beyond all floats.
    """
    nearest, doubles = values.cast(pa.float32()), values.cast(pa.float64())
    out_of_range = doubles.filter(pc.and_(pc.is_inf(nearest), pc.is_finite(doubles)))
    if len(out_of_range):
        message = f"{path}: {out_of_range[0]} is too great for a float"
        raise OptionError(message)
    return nearest


def check_times(values: pa.Array, path: str) -> None:
    """Refuse times of day beyond the day, which numbers may be that were cast to them.

    Raises:
        OptionError: One is not from midnight to midnight.
    """
    numbers = values.view(_INTEGERS[values.type.bit_width])
    per_day = _DAY_SECONDS * _PER_SECOND[values.type.unit]
    out_of_range = numbers.filter(pc.or_(pc.less(numbers, 0), pc.greater_equal(numbers, per_day)))
    if len(out_of_range):
        message = f"{path}: {out_of_range[0]} {values.type.unit} are not a time of day"
        raise OptionError(message)


def cast_to_unit(values: pa.Array, unit: str, path: str) -> pa.Array:
    """Times in another unit.

    Raises:
        OptionError: One has more digits than the unit, or is beyond its range or the day.
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


def check_there(values: pa.BooleanArray, path: str) -> None:
    """Refuse false for a record without fields, which can only be there.

    Raises:
        OptionError: A value is false.
    """
    if pc.any(pc.invert(values)).as_py():
        message = f"{path}: a record without fields is true, or null if it is not there"
        raise OptionError(message)


def uuid_bytes(text: str, path: str) -> bytes:
    """The bytes of a UUID, spelled as text.

    Raises:
        OptionError: It is none.
    """
    try:
        return uuid.UUID(text).bytes
    except ValueError:
        message = f"{path}: {text[:50]!r} is not a UUID"
        raise OptionError(message) from None
