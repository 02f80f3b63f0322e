"""Pulsar's primitive schema types: programs for payloads that are one value, big-endian.

Sources: `*Schema.java` of Pulsar's Java client. `java.util.Date` and `java.sql.Timestamp` are
instants in milliseconds, and stay instants. `java.sql.Time` is stored as an instant too, but means
a time of day (UTC): its date is ignored.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa

from arrow_io.payloads import tables
from arrow_io.payloads.program import Program, ProgramBuilder, scale_limits
from arrow_io.payloads.shape import UNITS, UTC_MICROSECONDS, Shape, scalar

_DAY_NANOSECONDS: Final = 86_400 * 10**9


class _Fixed(NamedTuple):
    """A number: Arrow type, width in bytes, and factor to the unit of its column."""

    type: pa.DataType
    size: int
    multiplier: int = 1


_FIXED: Final = {
    "INT8": _Fixed(pa.int8(), 1),
    "INT16": _Fixed(pa.int16(), 2),
    "INT32": _Fixed(pa.int32(), 4),
    "INT64": _Fixed(pa.int64(), 8),
    "DATE": _Fixed(UTC_MICROSECONDS, 8, 1000),
    "TIMESTAMP": _Fixed(UTC_MICROSECONDS, 8, 1000),
    "LOCAL_DATE": _Fixed(pa.date32(), 8),
}
_FLOATS: Final = {"FLOAT": pa.float32(), "DOUBLE": pa.float64()}
PRIMITIVE_TYPES: Final = frozenset(
    {*_FIXED, *_FLOATS, "BYTES", "STRING", "BOOLEAN", "TIME", "INSTANT", "LOCAL_TIME",
     "LOCAL_DATE_TIME"}
)  # fmt: skip


def primitive_shape(type_: str, time_unit: str) -> Shape:
    """Return the shape of one of `PRIMITIVE_TYPES`, with `time_unit` for nanosecond types."""
    if type_ in _FIXED:
        return scalar("", _FIXED[type_].type, type_)
    types = {
        "BYTES": pa.binary(),
        # Converted to text later, which never fails: as in Java, U+FFFD replaces invalid bytes.
        "STRING": pa.binary(),
        "BOOLEAN": pa.bool_(),
        "TIME": pa.time64("us"),
        "INSTANT": pa.timestamp(time_unit, tz="UTC"),
        "LOCAL_TIME": pa.time64(time_unit),
        "LOCAL_DATE_TIME": pa.timestamp(time_unit),
        **_FLOATS,
    }
    return scalar("", types[type_], type_)


def primitive_program(shape: Shape) -> Program:
    """Compile the program that reads a primitive type into a shape of `primitive_shape`."""
    builder = ProgramBuilder("primitive", shape)
    type_: str = shape.origin
    op = builder.reserve()
    if type_ in {"BYTES", "STRING"}:
        builder.set(op, tables.VALUE_BYTES, 0)
    elif type_ == "BOOLEAN":
        builder.set(op, tables.VALUE_BOOLEAN, 0)
    elif type_ in _FLOATS:
        builder.set(op, tables.VALUE_FLOAT, 0, shape.type.bit_width // 8)
    elif type_ == "INSTANT":
        builder.set(op, tables.VALUE_INSTANT, 0, UNITS[shape.type.unit])
    elif type_ == "LOCAL_DATE_TIME":
        builder.set(op, tables.VALUE_DATE_TIME, 0, UNITS[shape.type.unit])
    elif type_ == "TIME":
        builder.set(op, tables.VALUE_TIME, 0, 1000)
    elif type_ == "LOCAL_TIME":
        divisor = UNITS["ns"] // UNITS[shape.type.unit]
        scale = builder.scale(0, _DAY_NANOSECONDS - 1, divisor=divisor)
        builder.set(op, tables.VALUE_INTEGER, 0, 8, scale)
    else:
        _, size, multiplier = _FIXED[type_]
        bits = shape.type.bit_width
        scale = builder.scale(*scale_limits(bits, multiplier), multiplier=multiplier)
        builder.set(op, tables.VALUE_INTEGER, 0, size, scale)
    return builder.build()
