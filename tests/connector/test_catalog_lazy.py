"""Which requests a catalog sends: index objects are read of the ledgers that are asked for."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from arrow_io.format.object_names import LedgerObjectName, has_ledger_id
from arrow_io.storage.location import Location
from arrow_io.storage.trace import RequestTrace
from connector import open_catalog, open_topic
from connector.catalog.bucket import Bucket
from connector.catalog.bucket_listing import list_bucket
from connector.catalog.metadata.folder import VALUE_FILE, MetadataFolder
from connector.display.topic_metrics import TopicMetrics
from connector.inputs.topic_names import TopicName
from connector.upkeep.forecast.cost import opening_requests
from tests.support.admin_server import running_admin_server
from tests.support.buckets import offload_ledger
from tests.support.cluster_model import ModelWorld, Stage
from tests.support.entries import Message, encode_entry
from tests.support.golden import GOLDEN, golden_topic, golden_topics
from tests.support.large_bucket import LargeBucket
from tests.support.owned_bucket import OTHER_UUID, SMALL, OwnedBucket, without_uuid
from tests.support.saved_metadata import Form, save
from tests.support.slow_store import SlowStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

LARGE = LargeBucket.of(topics=50, ledgers=10_000)
TOPIC = LARGE.topics[7]
CHUNKED = golden_topic("small-chunked")
OBJECTS = str(GOLDEN / SMALL / "objects")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A bucket with 10,000 ledgers of 50 topics."""
    return str(LARGE.save(tmp_path_factory.mktemp("large") / "objects"))


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The metadata of these topics."""
    return LARGE.save_metadata(tmp_path_factory.mktemp("large") / "metadata")


def _listing_and(names: Iterable[LedgerObjectName]) -> list[str]:
    return sorted(["", *(name.index_name for name in names)])


def _asked(trace: RequestTrace) -> list[str]:
    return sorted(record.name for record in trace.records)


def test_topics_that_are_asked_for_together(large: str, metadata: Path) -> None:
    """Each index object is read once, whoever asks how often, and when it is looked at."""
    trace = RequestTrace(keep_records=True)
    catalog = open_catalog(large, metadata=metadata, trace=trace)
    assert repr(catalog) == f"Catalog('{large}': 10000 ledgers, with metadata)"
    assert "(index object not read)" in catalog._repr_html_()
    assert _asked(trace) == _listing_and(())

    with ThreadPoolExecutor(4) as executor:
        topics = [*LARGE.topics[:3]] * 4
        found = list(executor.map(lambda topic: catalog.select(str(topic)), topics))

    assert all(len(each.ledgers) == 200 for (each,) in found)
    names = [name for topic in LARGE.topics[:3] for name in LARGE.names(topic)]
    assert _asked(trace) == _listing_and(names)
    assert "t0</td><td>200</td>" in catalog._repr_html_()
    again = catalog.refreshed()
    assert len(again.ledgers(LARGE.topics[1]).ledgers) == 200
    assert _asked(trace) == sorted(["", *_listing_and(names)])


def test_opening_is_foreseen(large: str, metadata: Path) -> None:
    """What opening a topic will send is what it sends, listings by their pages apart."""
    foreseen = opening_requests(open_catalog(large, metadata=metadata).opening([TOPIC]))
    trace = RequestTrace()

    open_topic(large, str(TOPIC), metadata=metadata, value="raw", trace=trace)

    assert foreseen.list_requests == 20
    assert foreseen.index_requests == trace.counts.index_requests
    assert foreseen.index_bytes == trace.counts.index_bytes
    assert foreseen.head_requests == trace.counts.head_requests == 0


@pytest.mark.parametrize(("has_metadata", "before"), [(True, 0), (False, 100)])
def test_all_is_read_where_all_is_asked_for(
    tmp_path: Path,
    has_metadata: bool,
    before: int,
) -> None:
    """Contents are those of the whole bucket, and so is what is read without metadata."""
    few = LargeBucket.of(topics=50, ledgers=100)
    url = str(few.save(tmp_path / "objects"))
    metadata = few.save_metadata(tmp_path / "metadata") if has_metadata else None
    trace = RequestTrace()

    catalog = open_catalog(url, metadata=metadata, trace=trace)

    assert trace.counts.index_requests == before
    assert len(catalog.contents.copies) == trace.counts.index_requests == 100


@pytest.mark.parametrize("source", ["folder", "admin"])
def test_what_the_metadata_does_not_have_is_told(tmp_path: Path, source: str) -> None:
    """A ledger that is newer than the metadata is found, and so is a topic that it lacks."""
    bucket = OwnedBucket.copied(tmp_path)
    entry = [encode_entry([Message(payload=b"new")], batched=False)]
    newer = LedgerObjectName(UUID(int=9), 900)
    other = LedgerObjectName(UUID(int=9), 901)
    for name, topic in ((newer, CHUNKED.managed_ledger), (other, "public/default/persistent/x")):
        for file, data in offload_ledger(name, entry, managed_ledger=topic).items():
            bucket.write(file, data)
    own = [LedgerObjectName(UUID(each.uuid), each.ledger_id) for each in CHUNKED.ledgers]
    trace, metrics = RequestTrace(keep_records=True), TopicMetrics()
    with running_admin_server(SMALL) as server:
        place = server.url if source == "admin" else str(bucket.metadata)
        catalog = open_catalog(str(bucket.objects), metadata=place, trace=trace)

        catalog.select(CHUNKED.name, metrics)

        assert metrics.unlisted_ledgers == 1
        assert _asked(trace) == _listing_and([*own, newer, other])
        (unknown,) = catalog.select("x", metrics)
        assert [each.ledger_id for each in unknown.ledgers] == [901]
        # Nothing but index objects tells what such a topic has.
        assert trace.counts.index_requests == len(catalog.bucket.listing.indexes)


def test_further_copies_of_a_ledger_are_looked_at(tmp_path: Path) -> None:
    """Those of the topic's own ledgers, for they may replace one that is damaged."""
    bucket = OwnedBucket.copied(tmp_path)
    bucket.copy_ledger(CHUNKED.ledgers[0])
    bucket.copy_ledger(golden_topic("small-encrypted").ledgers[0])
    trace = RequestTrace()
    catalog = bucket.catalog(trace=trace)

    states = catalog.ledgers(TopicName.parse(CHUNKED.name)).states

    assert [str(copy.name.uuid) for copy in states[0].others] == [str(OTHER_UUID)]
    # Of the other topic's ledger, the copy that its metadata does not name may be of any topic.
    assert trace.counts.index_requests == len(CHUNKED.ledgers) + 2


def test_ledgers_without_uuid_may_be_of_any_topic(tmp_path: Path) -> None:
    """A ledger id alone names no object: another cluster may have the id too."""
    bucket = OwnedBucket.copied(tmp_path)
    other = golden_topic("small-encrypted")
    bucket.change(other.name, {each.ledger_id: without_uuid for each in other.ledgers})
    trace = RequestTrace()

    bucket.catalog(trace=trace).select(CHUNKED.name)

    assert trace.counts.index_requests == len(CHUNKED.ledgers) + len(other.ledgers)


def test_one_who_may_not_list_every_topic_reads_all_index_objects() -> None:
    """A cluster that does not say which topics there are is no reason not to read one."""
    trace = RequestTrace()
    with running_admin_server(SMALL) as server:
        server.answers["admin", "v2", "persistent", "public", "default"] = (
            f'["{CHUNKED.name}"]'.encode()
        )
        del server.answers["admin", "v2", "tenants"]

        catalog = open_catalog(OBJECTS, metadata=server.url, trace=trace)
        (topic,) = catalog.select(CHUNKED.name)

    assert len(topic.ledgers) == len(CHUNKED.ledgers)
    assert trace.counts.index_requests == len(catalog.bucket.listing.indexes)


def test_a_cluster_of_more_topics_than_ledgers_is_not_asked_about_each(tmp_path: Path) -> None:
    """Index objects are fewer requests then."""
    objects = OwnedBucket.copied(tmp_path).objects
    with running_admin_server(SMALL) as server:
        names = [f"persistent://public/default/many-{number}" for number in range(1_000)]
        path = ("admin", "v2", "persistent", "public", "default")
        server.answers[path] = str([CHUNKED.name, *names]).replace("'", '"').encode()
        open_catalog(str(objects), metadata=server.url).select(CHUNKED.name)

    assert not any("many" in each for each in server.paths)


def test_an_index_object_deleted_after_the_listing(tmp_path: Path) -> None:
    """It is the metadata that tells that the ledger is lost; no other topic's is looked for."""
    bucket = OwnedBucket.copied(tmp_path)
    catalog = bucket.catalog()
    lost = CHUNKED.ledgers[3]
    bucket.delete(lost.index_object.name, lost.data_object.name)

    (problem,) = catalog.ledgers(TopicName.parse(CHUNKED.name)).problems

    assert problem.ledger_id == lost.ledger_id


def test_what_the_store_refuses_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index object that could not be read is not forgotten, and none is read twice for it."""
    bucket = Bucket(list_bucket(Location(OBJECTS)))
    name = next(filter(has_ledger_id, bucket.listing.indexes))
    with monkeypatch.context() as patch:
        patch.setattr(Location, "read_object", _refuse)
        with pytest.raises(PermissionError):
            bucket.copies([name])
    assert bucket.opened_copies == ()

    assert [copy.name for copy in bucket.copies([name, name])] == [name]


def _refuse(*_: object, **__: object) -> None:
    raise PermissionError


@pytest.mark.parametrize(("options", "waves"), [({}, [64, 6]), ({"max_connections": 50}, [50, 20])])
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
