"""A topic that we wrote is given to a broker, and Pulsar's client reads it there."""

from __future__ import annotations

import functools
import itertools
import time
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from connector import open_catalog
from connector.catalog.metadata.admin_client import AdminApi as CheckedApi
from connector.upkeep.attachment import Verdict, check_attachment
from connector.upkeep.repair.ledger_repair import REBUILT
from connector.upkeep.repair.repair import plan_repair, repair
from tests.broker.admin_api import NAMESPACE
from tests.broker.client_messages import Position, expected, read_all, read_values, receive
from tests.broker.written_topics import SALE, TOPICS, sale

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.broker.client_messages import ClientMessage
    from tests.broker.cluster import Cluster

pytestmark = pytest.mark.broker

PARTITIONED = [name for name, topic in TOPICS.items() if "partitions" in topic.options]
WHOLE = [name for name in TOPICS if name not in PARTITIONED]
POSITION = ["__partition__", "__ledger_id__", "__entry_id__", "__batch_index__"]


@pytest.fixture(scope="module")
def attached(cluster: Cluster) -> Cluster:
    """The cluster, with all topics attached."""
    for name, topic in TOPICS.items():
        cluster.write(name, topic.messages, schema=topic.schema, **topic.options)
        cluster.attach(name, schema=topic.schema)
    return cluster


@functools.cache
def positions(cluster: Cluster, topic: str) -> list[Position]:
    """Where our reader says that the messages of a topic are."""
    rows = cluster.open_topic(topic, value="raw").to_table(columns=POSITION).to_pylist()
    return [
        Position(*(-1 if row[name] is None else row[name] for name in POSITION)) for row in rows
    ]


def by_partition(read: list[tuple[Position, ClientMessage]]) -> Iterator[tuple[Position, bytes]]:
    """Payloads with their positions, partition after partition, each in the order of the client."""
    parts = defaultdict(list)
    for where, message in read:
        assert message.payload is not None
        parts[where.partition].append((where, message.payload))
    for number in sorted(parts):
        yield from parts[number]


def check_whole(cluster: Cluster, topic: str) -> None:
    """Each message of a topic is read, in order, and is where our reader says that it is."""
    read = read_all(cluster.client, topic)
    assert [message for _, message in read] == expected(TOPICS[topic].messages)
    assert [where for where, _ in read] == positions(cluster, topic)


def check_partitioned(cluster: Cluster, topic: str) -> None:
    """Each message is read, those of a partition in order, where our reader says that they are."""
    wanted = expected(TOPICS[topic].messages)
    read = receive(cluster.client, topic, len(wanted))
    numbers = {message.payload: number for number, message in enumerate(wanted)}
    assert (
        sorted((message for _, message in read), key=lambda each: numbers[each.payload]) == wanted
    )
    in_order = list(by_partition(read))
    assert [where for where, _ in in_order] == positions(cluster, topic)
    for (before, first), (after, second) in itertools.pairwise(in_order):
        assert before.partition < after.partition or numbers[first] < numbers[second]


@pytest.mark.parametrize("topic", WHOLE)
def test_a_client_reads_what_we_wrote(attached: Cluster, topic: str) -> None:
    """Every message of an attached topic must be the one that was given, in its place."""
    check_whole(attached, topic)


@pytest.mark.parametrize("topic", PARTITIONED)
def test_a_client_reads_the_partitions_that_we_wrote(attached: Cluster, topic: str) -> None:
    """Every message of an attached partitioned topic must be the one that was given."""
    check_partitioned(attached, topic)


def test_the_posted_schema_is_the_first_version(attached: Cluster) -> None:
    """A client must decode the values of an attached topic by the schema that was posted."""
    stored = attached.admin.ask("GET", f"schemas/{NAMESPACE}/avro/schema")
    assert (stored["type"], stored["version"]) == ("AVRO", 0)
    values = read_values(attached.client, "avro", SALE, len(TOPICS["avro"].messages))
    assert values == [sale(number) for number in range(len(values))]


def test_messages_sent_later_come_behind_ours(attached: Cluster) -> None:
    """What is produced into an attached topic must follow what we wrote, and all must stay."""
    topic = "continued"
    ours = TOPICS["batched-lz4"]
    attached.write(topic, ours.messages, **ours.options)
    attached.attach(topic)
    late = [b"late %d" % number for number in range(20)]
    attached.produce(topic, late)
    attached.admin.offload(topic)
    read = [message.payload for _, message in read_all(attached.client, topic)]
    assert read == [message.payload for message in ours.messages] + late


def test_a_broker_reads_by_repaired_index_objects(attached: Cluster) -> None:
    """Made anew of the data objects and what the admin API tells, they must serve every message."""
    topic, sound = "repaired", TOPICS["batched-lz4"]
    attached.write(topic, sound.messages, **sound.options)
    attached.attach(topic)
    location = attached.open_catalog().location
    whole = attached.open_topic(topic, value="raw").to_table()
    lost = {each.name.index_name for each in attached.open_topic(topic).scan.topics[0].ledgers}
    location.delete_objects(lost)
    catalog = attached.open_catalog()
    repaired = [each for each in repair(location, plan_repair(catalog)) if each.index is not None]
    assert {each.attempt.name.index_name for each in repaired} == lost
    assert {each.ledger and each.ledger.metadata_from for each in repaired} == {REBUILT}
    attached.restart()
    read = [message for _, message in read_all(attached.client, topic)]
    assert read == expected(sound.messages)
    assert attached.open_topic(topic, value="raw").to_table().equals(whole)


def test_what_stands_in_the_way_of_attaching_is_told(attached: Cluster) -> None:
    """Nothing must, until the namespace keeps nothing, or the topic is attached."""
    topic, sound = "checked", TOPICS["batched-lz4"]
    attached.write(topic, sound.messages, **sound.options)

    def problems() -> set[str]:
        catalog = open_catalog(
            attached.url,
            storage_options=attached.s3.storage_options,
            metadata=attached.metadata_folder(topic),
        )
        cluster = CheckedApi.from_options(attached.broker.admin_url, {})
        found = check_attachment(catalog, topic, cluster, now_ms=time.time_ns() // 1_000_000)
        assert "zk:" in found.steps[1], "the broker tells its metadata store"
        return {each.subject for each in found.checks if each.verdict is Verdict.PROBLEM}

    assert problems() == set()
    nothing = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    attached.admin.ask("POST", f"namespaces/{NAMESPACE}/retention", nothing)
    assert problems() == {"retention"}
    attached.admin.ask("DELETE", f"namespaces/{NAMESPACE}/retention")
    attached.attach(topic)
    assert problems() == {"topic", "ledger ids"}


def test_a_restarted_broker_has_all_topics(attached: Cluster) -> None:
    """After a restart of the broker, every message must be read as before."""
    attached.restart()
    for topic in WHOLE:
        check_whole(attached, topic)
    for topic in PARTITIONED:
        check_partitioned(attached, topic)
