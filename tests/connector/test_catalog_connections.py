"""Index objects are read by as many requests at a time as the location allows."""

from __future__ import annotations

import pytest

from connector import open_topic
from connector.catalog.metadata.folder import VALUE_FILE, MetadataFolder
from tests.support.golden import golden_topics
from tests.support.large_bucket import LargeBucket
from tests.support.owned_bucket import SMALL
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


def test_files_of_metadata_are_read_at_once() -> None:
    """The value of each topic is asked for before any is answered."""
    topics = [each for each in golden_topics() if each.set_name == SMALL]
    values = {topic.name: (topic.folder / VALUE_FILE).read_bytes() for topic in topics}
    names = {topic: f"value-{number}" for number, topic in enumerate(values)}
    store = SlowStore({name: values[topic] for topic, name in names.items()}, waves=[len(topics)])
    try:
        source = MetadataFolder({topic: f"{store.url}/{name}" for topic, name in names.items()})
        found = source.topics()
    finally:
        store.drop()

    assert store.waves_left == []
    assert sorted(map(str, found)) == sorted(values)
