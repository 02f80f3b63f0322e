"""`connector.catalog.topic_lookup`: how many requests it takes to look for what was not listed."""

from __future__ import annotations

import gc
import weakref
from itertools import count
from typing import TYPE_CHECKING

import pytest

from arrow_io.storage.trace import RequestTrace
from connector import open_catalog, open_topic
from connector.inputs.topic_names import TopicName
from tests.support.cluster_model import ModelWorld, Stage
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
    """Metadata without uuids names no object to ask for; one listing has those of all topics."""
    metadata = save(world, world.first, (Form.STATS,)).metadata
    for topic in world.first.topics.values():
        world.lose(topic.ledgers[0], index=True, data=True)
    world.bucket.put("README", b"the bucket is there")
    trace = RequestTrace()
    catalog = open_catalog(world.bucket.url, metadata=metadata, trace=trace)
    found = catalog.ledgers_of(catalog.topics())
    assert [len(each.missing) for each in found] == [1] * _TOPICS
    assert trace.counts.list_requests == 2


@pytest.mark.parametrize("segments", [0, 2])
def test_abandoned_data_objects_are_asked_for_once(world: ModelWorld, segments: int) -> None:
    """While a bucket stays as it is, another look at it takes a listing and nothing else."""
    world.first.segments = segments
    for topic in world.first.topics.values():
        world.fail_offload(world.begin_offload(topic.ledgers[1], Stage.DATA))
    trace = RequestTrace()
    catalog = open_catalog(world.bucket.url, trace=trace)
    assert trace.counts.head_requests >= _TOPICS
    for _ in range(3):
        before = trace.counts
        catalog = catalog.refreshed()
        assert trace.counts.list_requests == before.list_requests + 1
        assert trace.counts.head_requests == before.head_requests


def test_a_data_object_is_asked_for_again_when_others_are_new(world: ModelWorld) -> None:
    """Pages of a listing are of different times: it may lack an offload, and have a later one."""
    first, second, *_ = world.first.topics.values()
    attempt = world.begin_offload(first.ledgers[1], Stage.DATA)
    catalog = open_catalog(world.bucket.url)
    world.offload(second.ledgers[1])
    requests = count()

    def finish_after_the_listing() -> None:
        if next(requests) == 1:
            world.finish_offload(attempt)

    world.bucket.before_request = finish_after_the_listing
    found = catalog.refreshed().ledgers(TopicName.parse(first.name)).ledgers
    assert [each.ledger_id for each in found] == [each.ledger_id for each in first.ledgers[:2]]


@pytest.mark.filterwarnings("ignore::arrow_io.errors.IncompleteReadWarning")
@pytest.mark.parametrize("has_metadata", [True, False])
def test_a_dataset_keeps_no_listing_alive(world: ModelWorld, has_metadata: bool) -> None:
    """It may outlive its catalog, and the bucket may have millions of objects of other topics."""
    metadata = save(world, world.first).metadata if has_metadata else None
    catalog = open_catalog(world.bucket.url, metadata=metadata)
    topic = next(iter(world.first.topics.values()))
    dataset = open_topic(world.bucket.url, topic.name, catalog=catalog, value="raw")
    watched: tuple[object, ...] = (catalog, catalog.bucket, catalog.bucket.listing)
    alive = [weakref.ref(each) for each in watched]
    del catalog, watched
    gc.collect()
    assert [each() for each in alive] == [None] * len(alive)
    assert dataset.count_rows() == len(topic.ledgers[0].rows)
