"""Pulsar's times, milliseconds since the epoch, and those of a calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


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
