"""Damage ends a read, unless it salvages: then it is counted."""

from __future__ import annotations

import pytest

from arrow_io.errors import ChecksumError
from arrow_io.read_metrics import ReadMetrics, Tally, Unit


def test_loss_is_raised_by_default() -> None:
    """The error itself, and nothing is counted."""
    tally = Tally()
    error = ChecksumError("broken", entry_id=3)

    with pytest.raises(ChecksumError) as caught:
        tally.lose(Unit.ENTRY, error)

    assert caught.value is error
    assert tally.metrics == ReadMetrics()


def test_loss_is_counted_when_salvaging() -> None:
    """In the metrics that were given, as often as it is said."""
    metrics = ReadMetrics()

    Tally(metrics, salvage=True).lose(Unit.ENTRY, ChecksumError("broken", entry_id=3), count=7)

    assert metrics.lost == {(Unit.ENTRY, "ChecksumError"): 7}
    assert metrics.losses == ["broken (entry 3)"]


@pytest.mark.parametrize("salvage", [False, True])
def test_what_is_not_counted_is_ruled_by_the_same(salvage: bool) -> None:
    """Entries that someone else counts are raised, or passed over, by the same rule."""
    tally = Tally(ReadMetrics(rows=3), salvage=salvage)

    uncounted = tally.uncounted()

    assert uncounted.salvage is salvage
    assert uncounted.metrics == ReadMetrics()
    assert uncounted.metrics is not tally.metrics
