"""Axes of a report's charts: round values and times, few enough to be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.report.axes import (
    count_text,
    duration_text,
    time_text,
    time_ticks,
    value_ticks,
)

LAST_MS = 253_402_300_799_999  # the last moment of the year 9999
FIRST_MS = -62_135_596_800_000  # the first of the year 1


@given(
    start_ms=st.integers(FIRST_MS, LAST_MS - 1),
    length_ms=st.integers(1, LAST_MS - FIRST_MS) | st.integers(1, 10_000_000),
    most=st.integers(2, 8),
)
def test_time_ticks_are_few_and_within(start_ms: int, length_ms: int, most: int) -> None:
    """Whatever the span of time, ticks lie within it, ascend, and are not more than asked for."""
    stop_ms = min(start_ms + length_ms, LAST_MS)

    ticks = time_ticks(start_ms, stop_ms, most=most)

    times = [time_ms for time_ms, _ in ticks]
    assert all(start_ms <= time_ms <= stop_ms for time_ms in times)
    assert times == sorted(set(times))
    # Months differ in length, so that one more may fit.
    assert len(ticks) <= most + 1
    assert len({text for _, text in ticks}) == len(ticks) or stop_ms - start_ms >= 86_400_000


@pytest.mark.parametrize(
    ("length_ms", "expected"),
    [
        (250, ["22:13:20", "22:13:20.050", "22:13:20.100", "22:13:20.150", "22:13:20.200"]),
        (20_000, ["22:13:20", "22:13:25", "22:13:30", "22:13:35", "22:13:40"]),
        (3_600_000, ["22:15", "22:30", "22:45", "23:00"]),
        (86_400_000 * 2, ["2023-11-15", "12:00", "2023-11-16", "12:00"]),
        (86_400_000 * 6, ["2023-11-15", "2023-11-17", "2023-11-19"]),
        (86_400_000 * 200, ["2024-01", "2024-03", "2024-05"]),
        (86_400_000 * 2000, ["2024", "2026", "2028"]),
    ],
)
def test_time_ticks_are_written_as_short_as_can_be(length_ms: int, expected: list[str]) -> None:
    """Clock, day, month or year: as much of the time is written as its ticks differ in."""
    start_ms = 1_700_000_000_000

    ticks = time_ticks(start_ms, start_ms + length_ms, most=6)

    assert [text for _, text in ticks][: len(expected)] == expected


@given(highest=st.floats(0, 1e18) | st.integers(0, 10_000).map(float))
def test_value_ticks_reach_the_highest(highest: float) -> None:
    """Levels begin at 0, are equally far apart, and end at or not far above the highest value."""
    values = [value for value, _ in value_ticks(highest, str)]

    assert values[0] == 0
    assert 3 <= len(values) <= 5
    assert values[-1] == pytest.approx((len(values) - 1) * values[1])
    assert highest <= values[-1] * (1 + 1e-9)
    assert values[-1] <= max(2 * highest * (1 + 1e-9), 1)


def test_numbers_are_written_in_few_characters() -> None:
    """Numbers have three digits at most where they are large, and their unit."""
    assert [count_text(each) for each in (0, 0.25, 12.5, 1234, 2_500_000, 3e9, 4e12)] == [
        *("0", "0.25", "12.5", "1,234", "2.5 M", "3 G", "4 T"),
    ]
    assert [duration_text(each) for each in (0, 250, 15_800, 150_000, 9_000_000, 259_200_000)] == [
        *("0 ms", "250 ms", "15.8 s", "2.5 minutes", "2.5 hours", "3 days"),
    ]
    assert time_text(1_700_000_000_000) == "2023-11-14 22:13:20"
    assert time_text(1_700_000_000_250) == "2023-11-14 22:13:20.250"
