"""Pulsar's primitive types: the bytes of its `*Schema.java`, to the limits of their columns."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.payloads import tables
from arrow_io.payloads.primitive import PRIMITIVE_TYPES, primitive_program, primitive_shape
from arrow_io.payloads.schema_info import SCHEMA_TYPES
from tests.support.payloads import shredded_alike

if TYPE_CHECKING:
    from arrow_io.payloads.program import Program

_DAY_NS = 86_400 * 10**9
_DAY_MS = 86_400_000
_SIZES = {
    "BOOLEAN": 1, "INT8": 1, "INT16": 2, "INT32": 4, "INT64": 8, "FLOAT": 4, "DOUBLE": 8, "DATE": 8,
    "TIME": 8, "TIMESTAMP": 8, "INSTANT": 12, "LOCAL_DATE": 8, "LOCAL_TIME": 8,
    "LOCAL_DATE_TIME": 16,
}  # fmt: skip


def _program(type_: str, time_unit: str = "ns") -> Program:
    return primitive_program(primitive_shape(type_, time_unit))


def _rows(type_: str, *payloads: bytes | None, time_unit: str = "ns") -> list[Any]:
    found = shredded_alike(_program(type_, time_unit), payloads)
    assert found.misfits == []
    return found.rows


def _codes(type_: str, *payloads: bytes, time_unit: str = "ns") -> list[int]:
    """Why payloads do not fit, none of which does."""
    found = shredded_alike(_program(type_, time_unit), payloads)
    assert found.rows == [None] * len(payloads)
    return found.codes


def _long(number: int) -> bytes:
    return number.to_bytes(8, signed=True)


def _instant(seconds: int, nanoseconds: int) -> bytes:
    return struct.pack(">qi", seconds, nanoseconds)


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        ("BYTES", pa.binary()),
        ("STRING", pa.binary()),
        ("BOOLEAN", pa.bool_()),
        ("INT8", pa.int8()),
        ("INT16", pa.int16()),
        ("INT32", pa.int32()),
        ("INT64", pa.int64()),
        ("FLOAT", pa.float32()),
        ("DOUBLE", pa.float64()),
        ("DATE", pa.timestamp("us", "UTC")),
        ("TIMESTAMP", pa.timestamp("us", "UTC")),
        ("TIME", pa.time64("us")),
        ("INSTANT", pa.timestamp("ns", "UTC")),
        ("LOCAL_DATE", pa.date32()),
        ("LOCAL_TIME", pa.time64("ns")),
        ("LOCAL_DATE_TIME", pa.timestamp("ns")),
    ],
)
def test_types(type_: str, expected: pa.DataType) -> None:
    """Each type has its column; in microseconds those that count nanoseconds change their unit."""
    assert primitive_shape(type_, "ns").type == expected
    other = primitive_shape(type_, "us").type
    assert str(other) == str(expected).replace("ns", "us")


def test_all_types_are_there() -> None:
    """Every type of Pulsar's that is no record and no pair is among them."""
    others = {"NONE", "JSON", "PROTOBUF", "AVRO", "KEY_VALUE", "PROTOBUF_NATIVE", "EXTERNAL"}

    assert SCHEMA_TYPES.keys() - others == PRIMITIVE_TYPES
    assert _SIZES.keys() == PRIMITIVE_TYPES - {"BYTES", "STRING"}


def test_floats() -> None:
    """Every bit is kept, also of what is no number."""
    for type_, code, size in (("FLOAT", "I", 4), ("DOUBLE", "Q", 8)):
        patterns = [0, 1, 0x7FC00001, 0xFF800001, 1 << (8 * size - 1), (1 << 8 * size) - 1]
        payloads = [struct.pack(f">{code}", pattern) for pattern in patterns]
        values = shredded_alike(_program(type_), payloads).values
        stored = bytes(values.buffers()[1])[: size * len(patterns)]
        assert list(struct.unpack(f"={len(patterns)}{code}", stored)) == patterns


def test_booleans() -> None:
    """As in Java, all but 0 is true."""
    assert _rows("BOOLEAN", b"\0", b"\1", b"\2", b"\xff") == [False, True, True, True]


@pytest.mark.parametrize("type_", ["DATE", "TIMESTAMP"])
def test_milliseconds(type_: str) -> None:
    """They become microseconds, as long as these fit."""
    most = (2**63 - 1) // 1000

    assert _rows(type_, _long(0), _long(-1), _long(most), _long(-most)) == [
        0, -1_000, most * 1_000, -most * 1_000,
    ]  # fmt: skip
    assert (
        _codes(type_, _long(most + 1), _long(-most - 1), _long(2**63 - 1))
        == [tables.OUT_OF_RANGE] * 3
    )


def test_times_of_day() -> None:
    """`java.sql.Time` is the time of a day in UTC, whatever its date, also before 1970."""
    assert _rows("TIME", _long(0), _long(_DAY_MS - 1)) == [0, (_DAY_MS - 1) * 1_000]
    instants = [_DAY_MS, -1, -_DAY_MS, 1_700_000_000_123, 2**63 - 1, -(2**63)]
    assert _rows("TIME", *map(_long, instants)) == [each % _DAY_MS * 1_000 for each in instants]
    assert _codes("TIME", b"", _long(0)[1:]) == [tables.WRONG_SIZE] * 2


def test_local_dates() -> None:
    """64 bits of days, of which 32 fit."""
    most = 2**31 - 1

    assert _rows("LOCAL_DATE", _long(0), _long(most), _long(-most - 1)) == [0, most, -most - 1]
    assert _codes("LOCAL_DATE", _long(most + 1), _long(-most - 2)) == [tables.OUT_OF_RANGE] * 2


def test_local_times() -> None:
    """Nanoseconds of the day; in microseconds only what is one."""
    assert _rows("LOCAL_TIME", _long(0), _long(_DAY_NS - 1)) == [0, _DAY_NS - 1]
    assert _rows("LOCAL_TIME", _long(_DAY_NS - 1_000), time_unit="us") == [_DAY_NS // 1_000 - 1]
    for unit in ("ns", "us"):
        assert (
            _codes("LOCAL_TIME", _long(_DAY_NS), _long(-1), _long(-1_000), time_unit=unit)
            == [tables.OUT_OF_RANGE] * 3
        )
    assert (
        _codes("LOCAL_TIME", _long(1), _long(_DAY_NS - 1), time_unit="us")
        == [tables.TOO_PRECISE] * 2
    )


@pytest.mark.parametrize(("unit", "units"), [("ns", 10**9), ("us", 10**6)])
def test_limits_of_instants(unit: str, units: int) -> None:
    """Every instant that the column can hold fits, the first and the last too; no other does."""
    per_unit = 10**9 // units

    def spelled(value: int) -> tuple[bytes, bytes]:
        seconds, rest = divmod(value, units)
        day, second = divmod(seconds, 86_400)
        return (
            _instant(seconds, rest * per_unit),
            _long(day) + _long(second * 10**9 + rest * per_unit),
        )

    inside = [0, 1, -1, units, -units, 2**63 - 1, 2**63 - units, -(2**63), -(2**63) + units]
    outside = [2**63, -(2**63) - 1, 2**63 + units, -(2**63) - units, 2**70 // units]
    outside = [value for value in outside if abs(value) >= 2**63]
    for number, type_ in enumerate(("INSTANT", "LOCAL_DATE_TIME")):
        assert _rows(type_, *(spelled(v)[number] for v in inside), time_unit=unit) == inside
        assert _codes(type_, *(spelled(v)[number] for v in outside), time_unit=unit) == [
            tables.OUT_OF_RANGE
        ] * len(outside)


def test_instants_that_are_none() -> None:
    """A part beyond its whole is refused; so are digits that microseconds would lose."""
    extremes = [2**63 - 1, -(2**63), 10**13 + 1, -(10**13) - 1]
    instants = [_instant(0, 10**9), _instant(0, -1), _instant(0, -(2**31))]
    instants += [_instant(seconds, 0) for seconds in extremes]
    times = [_long(0) + _long(_DAY_NS), _long(0) + _long(-1), _long(0) + _long(2**63 - 1)]
    times += [_long(day) + _long(0) for day in extremes]

    for unit in ("ns", "us"):
        assert _codes("INSTANT", *instants, time_unit=unit) == [tables.OUT_OF_RANGE] * 7
        assert _codes("LOCAL_DATE_TIME", *times, time_unit=unit) == [tables.OUT_OF_RANGE] * 7
    assert _codes("INSTANT", _instant(-1, 999_999_999), time_unit="us") == [tables.TOO_PRECISE]
    assert _codes("LOCAL_DATE_TIME", _long(-1) + _long(1), time_unit="us") == [tables.TOO_PRECISE]


@pytest.mark.parametrize("type_", _SIZES)
@pytest.mark.parametrize("unit", ["ns", "us"])
def test_wrong_sizes(type_: str, unit: str) -> None:
    """A payload that is shorter or longer than its type is refused; a null is none."""
    size = _SIZES[type_]
    wrong = [bytes(length) for length in range(20) if length != size]

    assert _codes(type_, *wrong, time_unit=unit) == [tables.WRONG_SIZE] * len(wrong)
    assert len(_rows(type_, None, bytes(size), None, time_unit=unit)) == 3


@given(
    type_=st.sampled_from(sorted(PRIMITIVE_TYPES)),
    unit=st.sampled_from(("ns", "us")),
    payloads=st.lists(st.binary(min_size=8, max_size=16) | st.binary(max_size=4), max_size=30),
)
def test_random_bytes(type_: str, unit: str, payloads: list[bytes]) -> None:
    """Both builds give the same for all bytes, values or codes."""
    found = shredded_alike(_program(type_, unit), payloads)

    assert set(found.codes) <= {tables.WRONG_SIZE, tables.OUT_OF_RANGE, tables.TOO_PRECISE}
