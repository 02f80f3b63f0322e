"""`connector.catalog.topic_lookup`: how many requests it takes to look for what was not listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from arrow_io.storage.trace import RequestTrace
from connector import open_catalog
from tests.support.cluster_model import ModelWorld
from tests.support.saved_metadata import Form, save

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOPICS = 20


@pytest.fixture
def world() -> Iterator[ModelWorld]:
    """A cluster that has offloaded one ledger of each of several topics."""
    world = ModelWorld()
    for number in range(_TOPICS):
        topic = world.create(world.first, f"persistent://public/default/t{number}")
        for _ in range(2):
            world.produce(topic)
            world.roll(topic)
        world.offload(topic.ledgers[0])
    yield world
    world.drop()


def test_the_bucket_is_listed_once_more_for_all_topics(world: ModelWorld) -> None:
    """Metadata without uuids names no object to ask for, and one listing has those of all topics."""
    metadata = save(world, world.first, (Form.STATS,)).metadata
    for topic in world.first.topics.values():
        world.lose(topic.ledgers[0], index=True, data=True)
    world.bucket.put("README", b"the bucket is there")
    trace = RequestTrace()
    catalog = open_catalog(world.bucket.url, metadata=metadata, trace=trace)
    found = catalog.ledgers_of(catalog.topics())
    assert [len(each.missing) for each in found] == [1] * _TOPICS
    assert trace.counts.list_requests == 2
