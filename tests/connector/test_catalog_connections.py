"""Index objects are read by as many requests at a time as the location allows."""

from __future__ import annotations

import pytest

from connector import open_topic
from tests.support.large_bucket import LargeBucket
from tests.support.slow_store import SlowStore


@pytest.mark.parametrize(
    ("options", "waves"), [({}, [32, 32, 6]), ({"max_connections": 50}, [50, 20])]
)
def test_every_connection_is_busy(options: dict[str, object], waves: list[int]) -> None:
    """The store answers none before all are there: fewer at a time would fail, not take longer."""
    store = SlowStore(LargeBucket.of(1, 70).objects(), waves=waves)
    try:
        dataset = open_topic(store.url, "t0", storage_options=options, value="raw")
    finally:
        store.drop()

    assert store.waves_left == []
    assert store.flights.greatest == waves[0]
    assert "70 ledgers" in repr(dataset)
