"""What a report shows: times of ledgers, rates, and which findings are of the topics asked for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import TopicNotFoundError
from connector.catalog.opening import open_catalog
from connector.catalog.topic_ledgers import LedgerState
from connector.report.data import LedgerSpan, fill_times_from_neighbours, rates, report_data
from connector.upkeep.audit.audit import audit
from tests.support.bucket_reports import damaged_small_set

if TYPE_CHECKING:
    from pathlib import Path


def span(
    start_ms: int | None, stop_ms: int | None, *, entries: int = 0, size_bytes: int = 0
) -> LedgerSpan:
    """A ledger of which the times matter."""
    return LedgerSpan(
        topic="orders",
        ledger_id=1,
        state=LedgerState.OFFLOADED,
        entries=entries,
        size_bytes=size_bytes,
        start_ms=start_ms,
        stop_ms=stop_ms,
    )


def times(spans: list[LedgerSpan]) -> list[tuple[int | None, int | None]]:
    """When ledgers were created and closed."""
    return [(each.start_ms, each.stop_ms) for each in spans]


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        # Only when each was created, as in a bucket alone.
        ([(10, None), (20, None), (30, None)], [(10, 20), (20, 30), (30, None)]),
        # Only when each was closed, as in metadata of ledgers that are not offloaded.
        ([(None, 10), (None, 20), (None, 30)], [(None, 10), (10, 20), (20, 30)]),
        # Known times stay, and so do the gaps between them.
        ([(10, 12), (20, 22)], [(10, 12), (20, 22)]),
        # Those without any share the time of the one before, which ends nobody knows when.
        (
            [(0, None), (None, None), (None, None), (30, 40)],
            [(0, 10), (10, 20), (20, 30), (30, 40)],
        ),
        ([(0, 10), (None, None), (20, 30)], [(0, 10), (10, 20), (20, 30)]),
        ([(0, None), (None, None)], [(0, None), (None, None)]),
        ([(None, None), (None, None)], [(None, None), (None, None)]),
        # Clocks differ.
        ([(50, 40), (60, 70)], [(50, 50), (60, 70)]),
        ([], []),
    ],
)
def test_neighbours_tell_unknown_times(
    known: list[tuple[int | None, int | None]], expected: list[tuple[int | None, int | None]]
) -> None:
    """A time that is not known is the nearest one of the ledger before or behind."""
    assert times(fill_times_from_neighbours([span(*each) for each in known])) == expected


@given(
    known=st.lists(st.tuples(*[st.none() | st.integers(0, 1000)] * 2), max_size=12),
)
def test_what_is_known_of_a_ledger_stays(known: list[tuple[int | None, int | None]]) -> None:
    """Filling in changes no time that is known, but where a ledger ends before it begins."""
    filled = times(fill_times_from_neighbours([span(*each) for each in known]))

    for (start, stop), (start_after, stop_after) in zip(known, filled, strict=True):
        assert start is None or start_after == start
        if stop is not None:
            assert stop_after == max(stop, start_after or 0)
        if start_after is not None and stop_after is not None:
            assert start_after <= stop_after


@given(
    lengths=st.lists(
        st.tuples(st.integers(0, 5000), st.integers(0, 5000), st.integers(0, 10**6)), max_size=20
    ),
    bins=st.integers(1, 60),
)
def test_rates_add_up_to_what_was_written(lengths: list[tuple[int, int, int]], bins: int) -> None:
    """Whatever ledgers there are, rates times the length of their bins are all entries."""
    spans = [span(begin, begin + length, entries=count) for begin, length, count in lengths]

    per_bin = rates([each.write_span for each in spans if each.write_span], 0, 10_000, bins=bins)

    written = sum(each.count_per_s * (each.stop_ms - each.start_ms) / 1000 for each in per_bin)
    assert len(per_bin) == bins
    assert math.isclose(written, sum(count for _, _, count in lengths), rel_tol=1e-9, abs_tol=1e-6)
    assert all(each.count_per_s >= 0 for each in per_bin)


def test_what_lies_outside_of_the_bins_is_left_out() -> None:
    """Of what lies partly within, the share that does."""
    spans = [span(-1000, 1000, entries=20), span(1500, 5500, entries=40), span(-9, -1, entries=5)]
    around = span(-1000, 3000, entries=4)

    per_bin = rates(
        [each.write_span for each in (*spans, around) if each.write_span], 0, 2000, bins=2
    )

    assert [each.count_per_s for each in per_bin] == [11, 6]


def test_rates_stand_where_a_ledger_was_written() -> None:
    """A ledger counts in the bins that it lasted, each by its share of them."""
    spans = [
        span(1500, 3500, entries=20, size_bytes=200),
        span(4000, 4000, entries=7, size_bytes=70),
        span(5000, None, entries=999, size_bytes=999),
    ]

    per_bin = rates([each.write_span for each in spans if each.write_span], 0, 5000, bins=5)

    assert [each.count_per_s for each in per_bin] == [0, 5, 10, 5, 7]
    assert [each.bytes_per_s for each in per_bin] == [0, 50, 100, 50, 70]


def test_findings_are_those_of_the_topics_asked_for(tmp_path: Path) -> None:
    """Losses come first, and findings of other topics are counted apart."""
    bucket, metadata = damaged_small_set(tmp_path)
    catalog = open_catalog(str(bucket), metadata=str(metadata))
    found = audit(catalog)

    whole = report_data(catalog, found)
    part = report_data(catalog, found, "small-chunked")

    losses = [each.is_loss for each in whole.findings]
    assert losses == sorted(losses, reverse=True)
    assert sum(losses) == 4
    assert {str(each.topic) for each in part.findings} == {
        "persistent://public/default/small-chunked"
    }
    assert len(part.findings) + part.findings_elsewhere == len(whole.findings)
    assert whole.findings_elsewhere == 0
    with pytest.raises(TopicNotFoundError):
        report_data(catalog, found, "nothing-*")
