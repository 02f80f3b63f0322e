"""Topics of a bucket are replayed into a running Pulsar, whose client reads what they had."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from arrow_io.errors import BrokerError, OptionError
from connector import open_topic, replay_topic
from connector.inputs.topic_names import TopicName
from connector.writing.message_router import java_string_hash
from tests.broker.admin_api import AdminError
from tests.broker.client_messages import ClientMessage, all_of, expected, read_all
from tests.broker.written_topics import SALE, TOPICS, Topic, messages
from tests.support.encryption import KEY_FOLDER
from tests.support.golden import GOLDEN, golden_topic, golden_topics
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.broker.cluster import Cluster
    from tests.support.golden import GoldenRow, GoldenTopic

pytestmark = pytest.mark.broker

NAMESPACE: Final = "public/replayed"
_KILLED_SECONDS: Final = 60

OPEN_TRANSACTION: Final = "transactions-open"
"""Its client stopped before the open transaction, and so does a replay."""


@pytest.fixture(scope="module")
def target(cluster: Cluster) -> Cluster:
    """The cluster, with a namespace whose topics deduplicate."""
    cluster.admin.ask("PUT", f"namespaces/{NAMESPACE}", {})
    cluster.admin.ask("POST", f"namespaces/{NAMESPACE}/deduplication", True)  # noqa: FBT003
    return cluster


def name_of(topic: str) -> str:
    """Where a topic is replayed to."""
    return f"persistent://{NAMESPACE}/{topic}"


def replay(cluster: Cluster, topic: str, to: str | None = None, **options: Any) -> int:  # noqa: ANN401
    """Replay a topic that was written into the bucket; gives how many messages were sent."""
    done = replay_topic(
        cluster.url,
        topic,
        to=cluster.broker.service_url,
        to_topic=name_of(to or topic),
        storage_options=cluster.s3.storage_options,
        **options,
    )
    return sum(each.messages for each in done)


def without_publisher(read: list[ClientMessage]) -> list[ClientMessage]:
    """The same, without what a replay cannot keep."""
    return [replace(each, publish_time_ms=0, producer_name="") for each in read]


def read_target(cluster: Cluster, topic: str) -> list[ClientMessage]:
    """All messages of a topic or partition that was replayed to."""
    return without_publisher([each for _, each in read_all(cluster.client, name_of(topic))])


def schema_of(cluster: Cluster, topic: str) -> tuple[str, object]:
    """Type and definition of a topic's newest schema."""
    answer = cluster.admin.ask("GET", f"schemas/{NAMESPACE}/{topic}/schema")
    return answer["type"], json.loads(answer["data"])


def write(cluster: Cluster, name: str, topic: Topic) -> list[ClientMessage]:
    """Write a topic; gives what a client has to read of it."""
    cluster.write(name, topic.messages, schema=topic.schema, **topic.options)
    return without_publisher(expected(topic.messages))


def rows_of(cluster: Cluster, topic: str, column: str) -> list[Any]:
    """A column of a topic in the bucket."""
    options = cluster.s3.storage_options
    dataset = open_topic(cluster.url, topic, value="raw", storage_options=options)
    rows: list[Any] = dataset.to_table(columns=[column])[column].to_pylist()
    return rows


# What messages are


def golden() -> list[GoldenTopic]:
    """Every golden topic without partitions."""
    return [each for each in golden_topics() if TopicName.parse(each.name).partition < 0]


@pytest.mark.parametrize("topic", golden(), ids=str)
def test_golden_topics_are_replayed(target: Cluster, topic: GoldenTopic) -> None:
    """What Pulsar's client read of a topic, it reads of the replay."""
    to = name_of(f"{topic.set_name}-{TopicName.parse(topic.name).local_name}")
    folder = GOLDEN / topic.set_name

    [done] = replay_topic(
        str(folder / "objects"),
        topic.name,
        to=target.broker.service_url,
        to_topic=to,
        metadata=str(folder),
        decryption_keys=KEY_FOLDER,
    )

    rows = list(topic.messages())
    read = [each for _, each in read_all(target.client, to)]
    assert [_told(each) for each in read] == [_golden(each) for each in rows]
    assert done.messages == len(rows)
    assert done.base64_keys == sum(row.get("key_b64", False) for row in rows)
    assert (done.lag_bytes > 0) == (OPEN_TRANSACTION in topic.name)


def _told(message: ClientMessage) -> dict[str, object]:
    return {
        "key": message.key,
        "ordering_key": message.ordering_key.encode(),
        "properties": message.properties,
        "event_time": message.event_time_ms,
        "null_value": message.payload is None,
        "sha256": hashlib.sha256(message.payload or b"").hexdigest(),
    }


def _golden(row: GoldenRow) -> dict[str, object]:
    return {
        "key": row.get("key", ""),
        "ordering_key": bytes.fromhex(row.get("ordering_key", "")),
        "properties": row["properties"],
        "event_time": row["event_time"],
        "null_value": row["null_value"],
        "sha256": row.get("sha256", hashlib.sha256(b"").hexdigest()),
    }


@pytest.mark.parametrize("name", [name for name in TOPICS if name != "partitioned"])
def test_written_topics_are_replayed(target: Cluster, name: str) -> None:
    """Topics of ours come out equal, and their schema is registered with the target."""
    topic = TOPICS[name]
    wanted = write(target, f"to-replay-{name}", topic)

    sent = replay(target, f"to-replay-{name}", name, schema=topic.schema)

    assert sent == len(wanted)
    assert read_target(target, name) == wanted
    if topic.schema is not None:
        assert schema_of(target, name) == (topic.schema["type"], SALE)


def test_versions_of_a_schema_are_replayed(target: Cluster) -> None:
    """Each version is registered in its turn, and messages have theirs."""
    folder = GOLDEN / "pulsar-4.0.7"
    to = "versions"
    replay_topic(
        str(folder / "objects"),
        "avro-evolved",
        to=target.broker.service_url,
        to_topic=name_of(to),
        metadata=str(folder),
    )

    own = json.loads((folder / "public__default__avro-evolved" / "schemas-rest.json").read_text())
    answer = target.admin.ask("GET", f"schemas/{NAMESPACE}/{to}/schemas")
    assert [json.loads(each["data"]) for each in answer["getSchemaResponses"]] == [
        json.loads(each["data"]) for each in own["getSchemaResponses"]
    ]
    [row_versions, versions] = [
        [row.get("schema_version") for row in golden_topic("avro-evolved").messages()],
        [each.hex() for each in _schema_versions(target, name_of(to))],
    ]
    assert versions == row_versions


def _schema_versions(cluster: Cluster, topic: str) -> list[bytes]:
    import pulsar

    reader = cluster.client.create_reader(topic, pulsar.MessageId.earliest)
    try:
        found = []
        for message in all_of(reader):
            version = message.schema_version()
            found.append(version if isinstance(version, bytes) else version.encode("latin-1"))
        return found
    finally:
        reader.close()


def test_what_cannot_be_kept_is_carried(target: Cluster) -> None:
    """Columns that are named become properties beside a message's own."""
    topic = Topic(messages(60, 100), {"batch_messages": 7, "batch_delay_ms": 0})
    wanted = write(target, "carried", topic)

    replay(target, "carried", carry=["__publish_time__", "__message_id__", "__txn_id__"])

    read = read_target(target, "carried")
    for each, before, message in zip(read, wanted, topic.messages, strict=True):
        carried = {k: v for k, v in each.properties.items() if k not in before.properties}
        assert set(carried) == {"pulsar-offload.publish-time", "pulsar-offload.message-id"}
        assert carried["pulsar-offload.publish-time"] == str(message.publish_time_ms)
        assert replace(each, properties=before.properties) == before


def test_messages_longer_than_the_broker_allows_are_replayed(target: Cluster) -> None:
    """They go in chunks, in their place among the others."""
    few = messages(12, 100)
    long = replace(few[5], payload=os.urandom(12 << 20))
    topic = Topic(
        [*few[:5], long, *few[6:]],
        {"batch_messages": 1, "chunking": True, "max_message_bytes": 5 << 20},
    )
    wanted = write(target, "longer", topic)

    replay(target, "longer")

    assert read_target(target, "longer") == wanted


@pytest.mark.parametrize("keep_batches", [True, False])
def test_batches_are_kept_or_filled(target: Cluster, keep_batches: bool) -> None:
    """Entries are as they were, or have as many messages as go into one."""
    name = f"batches-{keep_batches}"
    write(target, name, Topic(messages(200, 50), {"batch_messages": 5}))

    replay(target, name, keep_batches=keep_batches)

    places = [where for where, _ in read_all(target.client, name_of(name))]
    sizes: dict[tuple[int, int], int] = {}
    for each in places:
        entry = each.ledger_id, each.entry_id
        sizes[entry] = sizes.get(entry, 0) + 1
    # The first message goes alone, to see whether the broker deduplicates.
    first, *others = sizes.values()
    assert first == 1
    assert others == ([4, *[5] * 39] if keep_batches else [199])


# Where messages go


def _make_partitioned(cluster: Cluster, topic: str, count: int) -> None:
    cluster.admin.ask("PUT", f"persistent/{NAMESPACE}/{topic}/partitions", count)


def test_partitions_are_kept(target: Cluster) -> None:
    """Each partition goes to that of its number, which has to be there."""
    topic = TOPICS["partitioned"]
    write(target, "kept", topic)
    with pytest.raises(OptionError, match="has no partitions"):
        replay(target, "kept", "kept-in-none")
    _make_partitioned(target, "kept", 3)

    assert replay(target, "kept") == len(topic.messages)
    assert replay(target, "kept") == 0

    for number in range(3):
        name = f"kept-partition-{number}"
        wanted = rows_of(target, name, "__value__")
        assert [each.payload for each in read_target(target, name)] == wanted


def test_keys_choose_the_partition(target: Cluster) -> None:
    """A key's messages are where Java's hash puts them, in order; each message is there once."""
    topic = Topic(messages(400, 60), {"batch_messages": 9, "partitions": 2})
    cluster_messages = write(target, "by-key", topic)
    _make_partitioned(target, "by-key-of-3", 3)

    assert replay(target, "by-key", "by-key-of-3", by_key=True, keep_batches=True) == 400
    assert replay(target, "by-key", "by-key-of-3", by_key=True) == 0

    parts = [read_target(target, f"by-key-of-3-partition-{number}") for number in range(3)]
    for number, part in enumerate(parts):
        assert {java_string_hash(each.key) % 3 for each in part if each.key} == {number}
        for key in {each.key for each in part if each.key}:
            own = [each for each in part if each.key == key]
            assert own == [each for each in cluster_messages if each.key == key]
    everything = [each for part in parts for each in part]
    assert sorted(everything, key=_all_of) == sorted(cluster_messages, key=_all_of)


def _all_of(message: ClientMessage) -> str:
    return repr(replace(message, properties=dict(sorted(message.properties.items()))))


# Each message once


def test_a_replay_goes_on_behind_other_messages(target: Cluster) -> None:
    """What others have sent, before or between, is left alone; what comes later is replayed."""
    first = Topic(messages(90, 80), {"batch_messages": 5})
    wanted = write(target, "shared", first)
    target.produce(name_of("shared"), [b"before"])

    first_ledger_id = rows_of(target, "shared", "__ledger_id__")[0]
    assert replay(target, "shared", end=(first_ledger_id, 5)) == 25
    target.produce(name_of("shared"), [b"between"])
    replay(target, "shared")
    assert replay(target, "shared") == 0

    read = read_target(target, "shared")
    others = [each.payload for each in read if each.payload in {b"before", b"between"}]
    assert others == [b"before", b"between"]
    assert [each for each in read if each.payload not in {b"before", b"between"}] == wanted


def test_another_replay_id_replays_anew(target: Cluster) -> None:
    """The same messages go to the same topic a second time if that is asked for."""
    wanted = write(target, "twice", Topic(messages(40, 50), {"batch_messages": 7}))

    replay(target, "twice")
    assert replay(target, "twice", replay_id="again") == 40

    assert read_target(target, "twice") == wanted * 2


@pytest.mark.parametrize("seen", [1, 120, 700])
def test_a_killed_replay_goes_on_where_it_was(target: Cluster, seen: int) -> None:
    """Killed at any moment and run again, the target has each message once, in order."""
    name = f"killed-{seen}"
    wanted = write(target, name, Topic(messages(1500, 120), {"batch_messages": 30}))
    process = subprocess.Popen(_command(target, name, "--rate", "700"))
    try:
        wait_until(lambda: len(_there(target, name)) >= seen, _KILLED_SECONDS)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    before = len(_there(target, name))

    result = subprocess.run(
        [*_command(target, name), "--json"], check=True, capture_output=True, text=True
    )

    assert seen <= before < len(wanted)
    assert json.loads(result.stdout)["messages"] == len(wanted) - before
    assert read_target(target, name) == wanted


def _there(cluster: Cluster, topic: str) -> list[ClientMessage]:
    try:
        cluster.admin.ask("GET", f"persistent/{NAMESPACE}/{topic}/stats")
    except AdminError:
        return []
    return read_target(cluster, topic)


def _command(cluster: Cluster, topic: str, *options: str) -> list[str]:
    storage = [f"--storage-option={k}={v}" for k, v in _flat(cluster.s3.storage_options)]
    return [
        *(sys.executable, "-m", "connector.cli", "replay", cluster.url, topic),
        *("--to", cluster.broker.service_url, "--to-topic", name_of(topic), *options, *storage),
    ]


def _flat(options: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in options.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", json.dumps(value) if not isinstance(value, str) else value


def test_a_broker_that_does_not_deduplicate_is_refused(target: Cluster) -> None:
    """One message is sent before that is known; another run does not send it again."""
    write(target, "not-deduplicated", Topic(messages(40, 50), {"batch_messages": 7}))
    to = "persistent://public/default/not-deduplicated-target"

    for said in ("does not deduplicate", "the broker has forgotten which"):
        with pytest.raises(BrokerError, match=said):
            replay_topic(
                target.url,
                "not-deduplicated",
                to=target.broker.service_url,
                to_topic=to,
                storage_options=target.s3.storage_options,
            )
    assert len(read_all(target.client, to)) == 1


def test_a_restarted_broker_gets_each_message_once(target: Cluster) -> None:
    """The client sends again what was under way; the broker knows what it has."""
    name = "restarted"
    wanted = write(target, name, Topic(messages(2000, 120), {"batch_messages": 30}))
    process = subprocess.Popen(_command(target, name, "--rate", "400"))
    try:
        wait_until(lambda: len(_there(target, name)) >= 100, _KILLED_SECONDS)
        target.restart()
        assert process.wait(_KILLED_SECONDS) == 0
    finally:
        process.kill()
        process.wait()

    assert replay(target, name) == 0
    assert read_target(target, name) == wanted
