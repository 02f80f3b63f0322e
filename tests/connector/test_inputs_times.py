"""`connector.inputs.times`: milliseconds ⇄ times of a calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.inputs.times import EPOCH, milliseconds_of, time_of


@given(milliseconds=st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_times_of_a_calendar_go_both_ways(milliseconds: int) -> None:
    """From the year 1 to the year 9999, to the millisecond."""
    time = time_of(milliseconds)

    assert time is not None
    assert milliseconds_of(time) == milliseconds


@pytest.mark.parametrize(
    "milliseconds", [253_402_300_800_000, -62_135_596_800_001, 2**63 - 1, -(2**63), 10**400]
)
def test_times_that_no_calendar_has(milliseconds: int) -> None:
    """Metadata may hold any number."""
    assert time_of(milliseconds) is None


def test_any_time_zone_and_fraction() -> None:
    """The zone counts; what is below a millisecond is cut off."""
    east = timezone(timedelta(hours=1))

    assert time_of(0) == EPOCH == datetime(1970, 1, 1, tzinfo=UTC)
    assert milliseconds_of(datetime(1970, 1, 1, 1, 0, 0, 1999, tzinfo=east)) == 1
