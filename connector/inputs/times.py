"""Pulsar's times, in milliseconds since the epoch, as datetimes; and durations."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from arrow_io.errors import OptionError

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_DURATION: Final = re.compile(r"(\d{1,9})([smhdw])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def time_of(milliseconds: int) -> datetime | None:
    """Return the datetime of a time in ms since 1970; None if it is out of Python's range.

    Example:
        >>> time_of(1_700_000_000_000), time_of(2**63 - 1)
        (datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.timezone.utc), None)
    """
    try:
        return EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


def milliseconds_of(time: datetime) -> int:
    """Return a datetime, with time zone, in ms since 1970, rounded down.

    Example:
        >>> milliseconds_of(datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC))
        1700000000000
    """
    return (time - EPOCH) // _MS


def duration(option: str, text: str) -> timedelta:
    """Parse a duration: a whole number and its unit, such as `90s`, `10m`, `12h`, `7d` or `2w`.

    `option` is the name of the option, for errors.

    Raises:
        OptionError: The text has another form, or the duration exceeds Python's range.

    Example:
        >>> duration("age", "10m")
        datetime.timedelta(seconds=600)
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        message = f"{option} must be a whole number followed by s, m, h, d or w, not {text!r}"
        raise OptionError(message)
    try:
        return timedelta(**{_UNITS[match[2]]: int(match[1])})
    except OverflowError:
        message = f"{option} cannot be {text}: it exceeds Python's longest duration"
        raise OptionError(message) from None
