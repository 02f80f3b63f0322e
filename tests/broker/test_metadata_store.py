"""Our reader of ZooKeeper finds what Pulsar wrote there, and what the admin API answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from arrow_io.errors import UndecodedValuesWarning
from connector import open_catalog
from connector.catalog.metadata.admin_client import AdminApi
from connector.catalog.metadata.source import open_metadata_source
from connector.inputs.topic_names import TopicName
from connector.upkeep.audit.audit import audit
from tests.broker.running_broker import MAX_LEDGER_ENTRIES
from tests.support.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from connector import Catalog
    from connector.catalog.metadata.source import MetadataSource
    from connector.catalog.metadata.topic_metadata import TopicMetadata
    from tests.broker.cluster import Cluster

pytestmark = pytest.mark.broker

OFFLOADED: Final = "stored-offloaded"
TERMINATED: Final = "stored-terminated"
READ: Final = "stored-read"
TYPED: Final = "stored-typed"
ODD: Final = "stored: odd ünd 100%"
TOPICS: Final = (OFFLOADED, TERMINATED, READ, TYPED, ODD)

PAYLOADS: Final = [b"message %d" % number for number in range(3 * MAX_LEDGER_ENTRIES)]
SCHEMA: Final = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "number", "type": "long"}],
}


@pytest.fixture(scope="module")
def stored(cluster: Cluster) -> Cluster:
    """The cluster, with a topic for each thing that its metadata store may have of one."""
    import pulsar

    for topic in (OFFLOADED, TERMINATED, READ, ODD):
        cluster.produce(topic, [*PAYLOADS, b"in BookKeeper"])
    cluster.admin.of_topic("POST", TERMINATED, "terminate")
    for topic in (OFFLOADED, TERMINATED, ODD):
        cluster.admin.offload(topic)

    cluster.admin.post_schema(TYPED, "AVRO", SCHEMA)
    cluster.produce(TYPED, [b"\x02"] * (len(PAYLOADS) + 1))
    cluster.admin.offload(TYPED)

    for name in ("closed", "open"):
        consumer = cluster.client.subscribe(
            READ, name, initial_position=pulsar.InitialPosition.Earliest
        )
        for _ in PAYLOADS[: MAX_LEDGER_ENTRIES + 2]:
            consumer.acknowledge(consumer.receive())
        consumer.close()
        if name == "closed":
            # The cursor's position goes to the metadata store when the topic is closed.
            cluster.admin.of_topic("PUT", READ, "unload")
    return cluster


@pytest.fixture(scope="module")
def source(stored: Cluster) -> MetadataSource:
    """The metadata store."""
    return open_metadata_source(stored.broker.metadata_store_url)


@pytest.fixture(scope="module")
def admin_api(stored: Cluster) -> AdminApi:
    """The admin API."""
    return AdminApi.from_options(stored.broker.admin_url, {})


def _catalog(stored: Cluster, metadata: str) -> Catalog:
    return open_catalog(stored.url, storage_options=stored.s3.storage_options, metadata=metadata)


def _ledgers(metadata: TopicMetadata | None) -> list[tuple[object, ...]]:
    """Return what both sources have of each ledger."""
    assert metadata is not None
    return [
        (
            each.ledger_id,
            each.entries,
            each.size_bytes,
            each.offload and each.offload.uuid,
            each.is_offloaded,
        )
        for each in metadata.ledgers
    ]


def test_topics_that_the_admin_api_lists(source: MetadataSource, admin_api: AdminApi) -> None:
    """The store must list each of them; it lists system topics too."""
    listed, stored = set(admin_api.topics()), set(source.topics())
    assert {TopicName.parse(topic) for topic in TOPICS} <= listed <= stored
    assert all(topic.is_system for topic in stored - listed)


@pytest.mark.parametrize("topic", TOPICS)
def test_ledgers_of_the_admin_api(source: MetadataSource, admin_api: AdminApi, topic: str) -> None:
    """Ids, entries, sizes, uuids and completeness must be equal."""
    name = TopicName.parse(topic)
    stored, answered = source.topic_metadata(name), admin_api.topic_metadata(name)
    assert _ledgers(stored) == _ledgers(answered)
    assert stored is not None
    assert answered is not None
    assert stored.terminated_position == answered.terminated_position
    assert stored.proven_to_ledger_id == answered.proven_to_ledger_id


def test_what_only_the_store_has(source: MetadataSource, stored: Cluster) -> None:
    """Driver and bucket of an offload are in no answer of the admin API."""
    metadata = source.topic_metadata(TopicName.parse(OFFLOADED))
    assert metadata is not None
    offloads = [each.offload for each in metadata.ledgers if each.offload]
    assert [each.driver for each in offloads] == ["aws-s3"] * 3
    assert {f"s3://{each.bucket}" for each in offloads} == {stored.url}


def test_positions_of_subscriptions(stored: Cluster) -> None:
    """The store has the position of each subscription once a broker has closed the topic."""
    topic = TopicName.parse(READ)
    source = open_metadata_source(stored.broker.metadata_store_url)

    def cursors() -> Mapping[str, tuple[int, int]]:
        metadata = source.topic_metadata(topic, again=True)
        assert metadata is not None
        return metadata.cursors

    # The first acknowledgement makes the broker write positions to BookKeeper.
    wait_until(lambda: "open" not in cursors(), PATIENCE_S)
    assert any("lacks the positions of" in warning for warning in source.warnings)
    answer = stored.admin.of_topic("GET", READ, "internalStats")["cursors"]
    positions = {
        name: tuple(map(int, cursor["markDeletePosition"].split(":")))
        for name, cursor in answer.items()
    }
    assert positions.keys() == {"closed", "open"}
    assert cursors().items() <= positions.items()
    stored.admin.of_topic("PUT", READ, "unload")
    assert cursors() == positions


def test_schemas_are_in_bookkeeper(stored: Cluster, source: MetadataSource) -> None:
    """The store only says that there is one; a schema that is given decodes the values."""
    options = {"metadata": stored.broker.metadata_store_url}
    assert source.schema_source(TopicName.parse(TYPED)) is None
    assert source.schema_source(TopicName.parse(OFFLOADED)) is None
    assert any("lacks the schemas of 1 topic:" in warning for warning in source.warnings)
    with pytest.warns(UndecodedValuesWarning, match="which brokers write to BookKeeper"):
        stored.open_topic(TYPED, **options)
    typed = stored.open_topic(TYPED, **options, schema=json.dumps(SCHEMA))
    assert typed.to_table(columns=["number"])["number"].to_pylist() == [1] * len(PAYLOADS)


def test_audit_is_that_by_the_admin_api(stored: Cluster) -> None:
    """Whichever source is asked, the same is found of these topics."""
    names = {TopicName.parse(topic) for topic in TOPICS}
    for url in (stored.broker.metadata_store_url, stored.broker.admin_url):
        found = audit(_catalog(stored, url))
        assert [each for each in found.findings if each.topic in names] == []


def test_snapshot_without_a_broker(stored: Cluster, tmp_path: Path) -> None:
    """What is saved from the store reads as what the client has sent."""
    file = str(tmp_path / "snapshot.json.gz")
    _catalog(stored, stored.broker.metadata_store_url).save(file)
    rows = stored.open_topic(OFFLOADED, metadata=file, value="raw").to_table(columns=["__value__"])
    assert rows["__value__"].to_pylist() == PAYLOADS
