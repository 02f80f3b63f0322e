"""Partitioning of a table's rows, by the transforms of Iceberg's specification.

Every kind of table uses these transforms, so partitions have the same names and values in each.
Times are in UTC.

| text | column of | value | partition field |
|---|---|---|---|
| `x` | any type below, bool | the value itself | `x` |
| `year(x)` | date, timestamp | years since 1970 | `x_year` |
| `month(x)` | date, timestamp | months since January 1970 | `x_month` |
| `day(x)` | date, timestamp | days since 1970-01-01 | `x_day` |
| `hour(x)` | timestamp | hours since 1970-01-01 00:00 | `x_hour` |
| `bucket(16, x)` | integer, decimal, string, binary, date, time, timestamp | 0 … 15 | `x_bucket` |

Null values belong to the partition null.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from datetime import date, time, timedelta
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.core.extras import install_command
from arrow_io.errors import LakeTableError, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from decimal import Decimal

Transform: TypeAlias = Literal["identity", "year", "month", "day", "hour", "bucket"]

MAX_PARTITIONS: Final = 1_000
"""Maximum number of partitions in a record batch: each needs a file."""

_SPELLINGS: Final = (
    "a column, year(column), month(column), day(column), hour(column), bucket(16, column)"
)
_TIME_TRANSFORM: Final = re.compile(r"(year|month|day|hour)\((.+)\)")
_BUCKET_TRANSFORM: Final = re.compile(r"bucket\(\s*(\d{1,10})\s*,(.+)\)")
_MAX_BUCKETS: Final = 2**31 - 1
_EPOCH: Final = date(1970, 1, 1)
_FIRST_DAY: Final = (date.min - _EPOCH).days
_STOP_DAY: Final = (date.max - _EPOCH).days + 1
_DAY_SECONDS: Final = 86_400
_HOUR_SECONDS: Final = 3_600
_MICROSECONDS: Final = 1_000_000
_TICKS: Final = {"s": 1, "ms": 1_000, "us": _MICROSECONDS, "ns": 1_000_000_000}
"""Ticks per second of each of Arrow's time units."""


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One value that rows are partitioned by.

    Attributes:
        source: The column that the value is computed from.
        transform: The transform that computes it.
        buckets: Number of buckets; 0 for other transforms.
    """

    source: str
    transform: Transform = "identity"
    buckets: int = 0

    @property
    def name(self) -> str:
        """The field's name, as Iceberg's specification defines it."""
        return self.source if self.transform == "identity" else f"{self.source}_{self.transform}"

    def __str__(self) -> str:
        """Return the text that `Partitioning.parse` reads."""
        if self.transform == "identity":
            return self.source
        argument = f"{self.buckets}, {self.source}" if self.transform == "bucket" else self.source
        return f"{self.transform}({argument})"

    def result_type(self, source_type: pa.DataType) -> pa.DataType:
        """Return the type of a column that holds the field's values.

        For `day` this is a date, as Iceberg displays it; its bytes are those of a number of days.
        """
        if self.transform == "identity":
            return source_type
        return pa.date32() if self.transform == "day" else pa.int32()

    def values(self, column: pa.Array) -> pa.Array:
        """Return the field's value in each row: int32, except for `identity`.

        Raises:
            LakeTableError: A time is not in the years 1 to 9999.
        """
        try:
            return self._values(column)
        except _OutOfYearsError as error:
            message = (
                f"cannot partition by {self}: column {self.source} has a time outside the years"
                " 1 to 9999"
            )
            raise LakeTableError(message) from error

    def _values(self, column: pa.Array) -> pa.Array:
        if self.transform == "bucket":
            return _hash_to_buckets(column, self.buckets)
        if self.transform == "hour":
            hours = _floor_divide(_ticks(column), _per_second(column) * _HOUR_SECONDS)
            return hours.cast(pa.int32())
        if self.transform == "identity":
            if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
                _days(column)
            return column
        days = _days(column)
        return days if self.transform == "day" else _calendar_units(days, self.transform)

    def text(self, value: Any) -> str:  # noqa: ANN401 - of the column's type
        """Return one of the field's values, not null, as Iceberg displays it and names folders.

        Example:
            >>> PartitionField("at", "month").text(575)
            '2017-12'
        """
        if self.transform == "year":
            return f"{_EPOCH.year + value:04}"
        if self.transform == "month":
            return f"{_EPOCH.year + value // 12:04}-{value % 12 + 1:02}"
        if self.transform == "day":
            return _date(value).isoformat()
        if self.transform == "hour":
            return f"{_date(value // 24).isoformat()}-{value % 24:02}"
        return _text(value)


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The fields that a table's rows are partitioned by.

    Attributes:
        fields: The fields, outermost first. Empty if the table is not partitioned.
    """

    fields: tuple[PartitionField, ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str], schema: pa.Schema) -> Partitioning:
        """Parse the partition fields that a user specified.

        If a text is the name of a column, it means that column and not a transform.

        Args:
            texts: Texts such as `day(__publish_time__)`, `bucket(16, customer)` or `country`.
            schema: Columns of the table.

        Raises:
            OptionError: A text is malformed, names no column, does not suit the column's type, or
                repeats a field.
        """
        fields: list[PartitionField] = []
        for text in texts:
            field = _parse_field(text.strip(), schema)
            _check_type(field, schema.field(field.source).type)
            _check_other_fields(field, fields, schema)
            fields.append(field)
        return cls(tuple(fields))

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that `parse` reads."""
        return tuple(map(str, self.fields))

    def split(self, batch: pa.RecordBatch) -> list[tuple[tuple[Any, ...], pa.RecordBatch]]:
        """Split rows with the columns of the table by partition.

        Returns:
            For each partition its values, one per field (None: null), and its rows in their order.
            Partitions are in order of first appearance.

        Raises:
            LakeTableError: The rows belong to more than `MAX_PARTITIONS`, or a time is not in the
                years 1 to 9999.
        """
        if not self.fields:
            return [((), batch)]
        if not batch.num_rows:
            return []
        columns = [field.values(batch.column(field.source)) for field in self.fields]
        groups = _number_groups(columns)
        sizes = groups.value_counts().field("counts").to_pylist()
        if len(sizes) > MAX_PARTITIONS:
            message = (
                f"the rows of a record batch belong to more than {MAX_PARTITIONS} partitions by"
                f" {', '.join(self.texts)}: choose coarser partitions"
            )
            raise LakeTableError(message)
        bounds = [0]
        for size in sizes:
            bounds.append(bounds[-1] + size)
        firsts = pa.array(bounds[:-1], pa.uint64())
        # Rows in order of time are usually in order of partition too, and need no copy.
        if not pc.all(pc.less_equal(groups[:-1], groups[1:]), min_count=0).as_py():
            order = pc.sort_indices(groups)  # which is stable
            batch, firsts = batch.take(order), order.take(firsts)
        values = zip(*(column.take(firsts).to_pylist() for column in columns), strict=True)
        parts = (batch.slice(start, stop - start) for start, stop in pairwise(bounds))
        return list(zip(values, parts, strict=True))


class _OutOfYearsError(ValueError):
    """A time outside the years 1 to 9999, for which Python, DuckDB and Spark have no date."""


def _parse_field(text: str, schema: pa.Schema) -> PartitionField:
    field = PartitionField(text)
    if text not in schema.names:
        if match := _TIME_TRANSFORM.fullmatch(text):
            field = PartitionField(match[2].strip(), cast("Transform", match[1]))
        elif match := _BUCKET_TRANSFORM.fullmatch(text):
            field = PartitionField(match[2].strip(), "bucket", int(match[1]))
            if find_spec("mmh3") is None:
                message = f"partitioning by {text} needs mmh3: {install_command('delta')}"
                raise OptionError(message)
            if not 1 <= field.buckets <= _MAX_BUCKETS:
                message = f"cannot partition by {text}: buckets are 1 to {_MAX_BUCKETS}"
                raise OptionError(message)
    column_count = schema.names.count(field.source)
    if column_count != 1:
        problem = "there are several columns" if column_count else "there is no column"
        message = (
            f"cannot partition by {text!r}: {problem} {field.source!r};"
            f" allowed are {_SPELLINGS} of {', '.join(schema.names)}"
        )
        raise OptionError(message)
    return field


def _check_type(field: PartitionField, type_: pa.DataType) -> None:
    types = pa.types
    has_date = types.is_date32(type_) or types.is_timestamp(type_)
    if field.transform == "hour":
        allowed = types.is_timestamp(type_)
    elif field.transform in {"year", "month", "day"}:
        allowed = has_date
    else:
        # Partition values are Python objects, whose times have no nanoseconds.
        exact = field.transform == "bucket" or getattr(type_, "unit", "us") != "ns"
        allowed = exact and (
            has_date
            or types.is_signed_integer(type_)
            or types.is_decimal(type_)
            or types.is_string(type_)
            or types.is_binary(type_)
            or types.is_time64(type_)
            or (types.is_boolean(type_) and field.transform == "identity")
        )
    if not allowed:
        message = f"cannot partition by {field}: column {field.source} has the type {type_}"
        raise OptionError(message)


def _check_other_fields(
    field: PartitionField, earlier: Sequence[PartitionField], schema: pa.Schema
) -> None:
    """Raise `OptionError` if a field conflicts with an earlier one or with a column."""
    time_transforms = {"year", "month", "day", "hour"}
    for other in earlier:
        are_both_time = {field.transform, other.transform} <= time_transforms
        if other.name == field.name or (other.source == field.source and are_both_time):
            message = f"cannot partition by {field} and by {other}: one follows from the other"
            raise OptionError(message)
    if field.transform != "identity" and field.name in schema.names:
        message = f"cannot partition by {field}: the table already has a column {field.name}"
        raise OptionError(message)


def _number_groups(columns: Sequence[pa.Array]) -> pa.Int32Array:
    """Return the partition number of each row, counted by first appearance."""
    groups: pa.Array | None = None
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        if groups is None:
            groups = encoded.indices
        else:
            # Both numbers are at most the number of rows, so the product fits 64 bits.
            pairs = pc.add(
                pc.multiply(groups.cast(pa.int64()), len(encoded.dictionary)), encoded.indices
            )
            groups = pairs.dictionary_encode().indices
    return groups


def _text(value: Any) -> str:  # noqa: ANN401 - of the column's type
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, date | time) else str(value)


# ------------------------------------------------------------------------------------------- times


def _date(days: int) -> date:
    return _EPOCH + timedelta(days=days)


def _per_second(column: pa.Array) -> int:
    return _TICKS[column.type.unit]


def _days(column: pa.Array) -> pa.Int32Array:
    """Return the days since 1970 of dates or timestamps. Raises `_OutOfYearsError`."""
    if pa.types.is_date(column.type):
        days = column.view(pa.int32())
        _check_range(days, _FIRST_DAY, _STOP_DAY)
        return days
    return _floor_divide(_ticks(column), _per_second(column) * _DAY_SECONDS).cast(pa.int32())


def _calendar_units(days: pa.Int32Array, transform: Transform) -> pa.Int32Array:
    dates = days.view(pa.date32())
    years = pc.subtract(pc.year(dates), _EPOCH.year)
    if transform == "month":
        years = pc.add(pc.multiply(years, 12), pc.subtract(pc.month(dates), 1))
    return years.cast(pa.int32())


def _ticks(column: pa.Array) -> pa.Int64Array:
    """Return timestamps as ticks since 1970. Raises `_OutOfYearsError`."""
    ticks = column.view(pa.int64())
    a_day = _per_second(column) * _DAY_SECONDS
    if column.type.unit != "ns":  # whose 64 bits reach from 1677 to 2262
        _check_range(ticks, _FIRST_DAY * a_day, _STOP_DAY * a_day)
    return ticks


def _check_range(numbers: pa.Array, start: int, stop: int) -> None:
    extremes = pc.min_max(numbers).as_py()
    if extremes["min"] is not None and not start <= extremes["min"] <= extremes["max"] < stop:
        raise _OutOfYearsError


def _floor_divide(numbers: pa.Int64Array, divisor: int) -> pa.Int64Array:
    """Divide and round down.

    Arrow rounds towards zero, which would move the last day of 1969 to 1970.
    """
    quotients = pc.divide(numbers, divisor)
    below = pc.less(numbers, pc.multiply(quotients, divisor))
    return pc.subtract(quotients, below.cast(pa.int64()))


# ------------------------------------------------------------------------------------------ hashes


def _hash_to_buckets(column: pa.Array, buckets: int) -> pa.Int32Array:
    """Return Iceberg's bucket of each value: its 32-bit Murmur3 hash (x86) modulo `buckets`.

    Each distinct value is hashed once.
    """
    encoded = column.dictionary_encode()
    values, to_bytes = _hashed_values(encoded.dictionary)
    import mmh3

    numbers = [(mmh3.hash(to_bytes(each)) & 0x7FFF_FFFF) % buckets for each in values.to_pylist()]
    return pa.array(numbers, pa.int32()).take(encoded.indices)


def _hashed_values(values: pa.Array) -> tuple[pa.Array, Callable[[Any], bytes | str]]:
    """Return the values to hash, and the function that converts one to bytes.

    As the specification requires, integers and times of every width are hashed as 64-bit numbers,
    times in µs.
    """
    type_ = values.type
    if pa.types.is_timestamp(type_):
        ticks, per_second = _ticks(values), _per_second(values)
        if per_second > _MICROSECONDS:
            return _floor_divide(ticks, per_second // _MICROSECONDS), _long_bytes
        return pc.multiply(ticks, _MICROSECONDS // per_second), _long_bytes
    if pa.types.is_time64(type_):
        numbers = values.view(pa.int64())
        return pc.divide(numbers, _TICKS[type_.unit] // _MICROSECONDS), _long_bytes
    if pa.types.is_date(type_):
        return values.view(pa.int32()), _long_bytes
    if pa.types.is_decimal(type_):
        return values, _decimal_bytes
    return values, _long_bytes if pa.types.is_integer(type_) else _same


def _long_bytes(number: int) -> bytes:
    return number.to_bytes(8, "little", signed=True)


def _decimal_bytes(number: Decimal) -> bytes:
    """Return the unscaled value as a minimal big-endian two's complement number."""
    sign, digits, _ = number.as_tuple()
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return unscaled.to_bytes(size, "big", signed=True)


def _same(value: bytes | str) -> bytes | str:
    return value
