"""Axes of charts: positions of ticks, and texts for numbers and times."""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from connector.display.text import three_digits
from connector.inputs.times import EPOCH, milliseconds_of

if TYPE_CHECKING:
    from collections.abc import Callable

_SECOND_MS: Final = 1_000
_MINUTE_MS: Final = 60 * _SECOND_MS
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS
_STEPS_MS: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(count * _SECOND_MS for count in (1, 2, 5, 10, 15, 30)),
    *(count * _MINUTE_MS for count in (1, 2, 5, 10, 15, 30)),
    *(count * _HOUR_MS for count in (1, 2, 3, 6, 12)),
    *(count * _DAY_MS for count in (1, 2, 7, 14)),
)
_MONTHS: Final = (1, 2, 3, 6, 12, 24, 60, 120, 300, 600, 1200, 6000, 12_000, 60_000, 240_000)
"""Steps longer than two weeks, in months; the last is longer than Python's calendar."""
_MONTH_MS: Final = 30 * _DAY_MS


def time_ticks(start_ms: int, stop_ms: int, *, most: int) -> list[tuple[int, str]]:
    """Return round times between two times, each with its label.

    Args:
        start_ms: First time, inclusive, ms since the epoch.
        stop_ms: Last time, inclusive; later than the first.
        most: Maximum number of ticks.
    """
    at_least = -(-(stop_ms - start_ms) // max(1, most - 1))
    step = bisect_left(_STEPS_MS, at_least)
    if step == len(_STEPS_MS):
        return _month_ticks(start_ms, stop_ms, at_least)
    step_ms = _STEPS_MS[step]
    first = -(-start_ms // step_ms) * step_ms
    return [(time, _tick_text(time, step_ms)) for time in range(first, stop_ms + 1, step_ms)]


def _tick_text(time_ms: int, step_ms: int) -> str:
    """Return the date at midnight, or else the time of day, as exact as the step requires."""
    if time_ms % _DAY_MS == 0:
        return f"{_time(time_ms):%Y-%m-%d}"
    if step_ms >= _MINUTE_MS:
        return f"{_time(time_ms):%H:%M}"
    return time_text(time_ms)[11:]


def _month_ticks(start_ms: int, stop_ms: int, at_least_ms: int) -> list[tuple[int, str]]:
    months = next(count for count in _MONTHS if count * _MONTH_MS >= at_least_ms)
    first, last = _time(start_ms), _time(stop_ms)
    ticks = []
    # Months since the year 0; Python's calendar starts with the year 1.
    begin = max(12, first.year * 12 + first.month - 1)
    for month in range(-(-begin // months) * months, last.year * 12 + last.month, months):
        time = datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC)
        if first <= time <= last:
            ticks.append(
                (milliseconds_of(time), f"{time:%Y}" if months % 12 == 0 else f"{time:%Y-%m}")
            )
    return ticks


def value_ticks(highest: float, text: Callable[[float], str]) -> list[tuple[float, str]]:
    """Return round numbers, at least three, from 0 to one that is at least the highest value.

    Args:
        highest: The highest value, 0 or more.
        text: Formats a number as its label.
    """
    if highest <= 0:
        highest = 1.0
    power = 10.0 ** len(str(int(highest))) if highest >= 1 else 1.0
    while power * 0.1 >= highest:
        power *= 0.1
    step = next(each for each in (0.1, 0.2, 0.25, 0.5) if each * power * 4 >= highest) * power
    count = next(number for number in range(2, 6) if number * step >= highest)
    return [(number * step, text(number * step)) for number in range(count + 1)]


def count_text(number: float) -> str:
    """Return a number in few characters.

    Example:
        >>> count_text(0.25), count_text(1234), count_text(2_500_000)
        ('0.25', '1,234', '2.5 M')
    """
    for unit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if number >= unit:
            return f"{number / unit:,.3g} {letter}"
    return three_digits(number)


def time_text(time_ms: int) -> str:
    """Return a time, with milliseconds only if it has any.

    Example:
        >>> time_text(1_700_000_000_000), time_text(1_700_000_000_250)
        ('2023-11-14 22:13:20', '2023-11-14 22:13:20.250')
    """
    timespec = "milliseconds" if time_ms % _SECOND_MS else "seconds"
    return _time(time_ms).replace(tzinfo=None).isoformat(" ", timespec)


def duration_text(duration_ms: int) -> str:
    """Return a duration in one unit.

    Example:
        >>> duration_text(250), duration_text(15_800), duration_text(3 * 86_400_000)
        ('250 ms', '15.8 s', '3 days')
    """
    for unit_ms, unit in ((_DAY_MS, "days"), (_HOUR_MS, "hours"), (_MINUTE_MS, "minutes")):
        if duration_ms >= 2 * unit_ms:
            return f"{three_digits(duration_ms / unit_ms)} {unit}"
    if duration_ms >= _SECOND_MS:
        return f"{three_digits(duration_ms / _SECOND_MS)} s"
    return f"{duration_ms} ms"


def _time(time_ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=time_ms)
