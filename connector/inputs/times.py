"""Pulsar's times, milliseconds since the epoch, and those of a calendar."""

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
    """A time of Pulsar's; None if it is one that no calendar has.

    Example:
        >>> time_of(1_700_000_000_000), time_of(2**63 - 1)
        (datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.timezone.utc), None)
    """
    try:
        return EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


def milliseconds_of(time: datetime) -> int:
    """A time, with time zone, as Pulsar counts it; what is below a millisecond is cut off.

    Example:
        >>> milliseconds_of(datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC))
        1700000000000
    """
    return (time - EPOCH) // _MS


def duration(option: str, text: str) -> timedelta:
    """A time span as users write it, such as `90s`, `10m`, `12h`, `7d` or `2w`.

    Args:
        option: Name of the option, for errors.
        text: A whole number, and its unit.

    Raises:
        OptionError: It is not that, or longer than Python's calendar.

    Example:
        >>> duration("age", "10m")
        datetime.timedelta(seconds=600)
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        message = f"{option} must be a whole number with s, m, h, d or w behind it, not {text!r}"
        raise OptionError(message)
    try:
        return timedelta(**{_UNITS[match[2]]: int(match[1])})
    except OverflowError:
        message = f"{option} cannot be {text}: that is longer than Python's calendar"
        raise OptionError(message) from None
