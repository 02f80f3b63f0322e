"""The end of a topic that is not offloaded is read of a real broker, whatever happens meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pulsar
import pytest
from pulsar.schema import AvroSchema

from arrow_io.errors import (
    BrokerError,
    EncryptedPayloadError,
    IncompleteReadWarning,
    TopicNotFoundError,
    TrimmedEntriesError,
)
from connector import register_duckdb
from tests.broker.client_messages import read_all
from tests.broker.running_broker import MAX_LEDGER_ENTRIES
from tests.broker.written_topics import FIRST_TIME_MS
from tests.support.encryption import key_pair
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from connector import TopicDataset
    from tests.broker.cluster import Cluster

pytestmark = pytest.mark.broker

_COUNT: Final = 3 * MAX_LEDGER_ENTRIES + 2
_CHUNK_BYTES: Final = 30


def payloads(first: int, stop: int) -> list[bytes]:
    """What messages with these numbers have in them."""
    return [b"message %d" % number for number in range(first, stop)]


def opened(cluster: Cluster, topic: str, **options: Any) -> TopicDataset:  # noqa: ANN401
    """A topic with its tail, undecoded."""
    return cluster.open_topic(topic, value="raw", live=cluster.broker.service_url, **options)


def values(dataset: TopicDataset) -> list[bytes]:
    """The values of a topic, in order."""
    found: list[bytes] = dataset.to_table(["__value__"]).column(0).to_pylist()
    return found


@pytest.mark.parametrize("offloaded", [0, MAX_LEDGER_ENTRIES + 1, _COUNT])
def test_rows_are_those_of_a_client(cluster: Cluster, offloaded: int) -> None:
    """Whatever part of a topic is offloaded: nothing, something, or all but the open ledger."""
    topic = f"live-rows-{offloaded}"
    if offloaded:
        cluster.produce(topic, payloads(0, offloaded))
        cluster.admin.offload(topic)
    _produce_batches(cluster, topic, payloads(offloaded, _COUNT))

    table = opened(cluster, topic).to_table()

    read = read_all(cluster.client, topic)
    assert [message.payload for _, message in read] == payloads(0, _COUNT)
    rows = table.to_pylist()
    assert [
        (row["__ledger_id__"], row["__entry_id__"], -1 if index is None else index)
        for row in rows
        for index in [row["__batch_index__"]]
    ] == [(at.ledger_id, at.entry_id, at.batch_index) for at, _ in read]
    for row, (_, message) in zip(rows, read, strict=True):
        assert row["__value__"] == message.payload
        assert (row["__key__"] or "") == message.key
        assert dict(row["__properties__"]) == message.properties
        assert row["__producer_name__"] == message.producer_name
        assert round(row["__publish_time__"].timestamp() * 1000) == message.publish_time_ms
        event_time = row["__event_time__"]
        assert (event_time.timestamp() * 1000 if event_time else 0) == message.event_time_ms


def _produce_batches(cluster: Cluster, topic: str, messages: Sequence[bytes]) -> None:
    """Send messages in batches, each with all that a producer may give."""
    producer = cluster.client.create_producer(
        topic, batching_enabled=True, batching_max_messages=3, batching_max_publish_delay_ms=1000
    )
    for number, payload in enumerate(messages):
        producer.send_async(
            payload,
            None,
            properties={"number": str(number), "": "ü"},
            partition_key=f"key {number % 3}" if number % 4 else None,
            event_timestamp=FIRST_TIME_MS + number,
        )
    producer.flush()
    producer.close()


def test_what_comes_meanwhile_changes_nothing(cluster: Cluster) -> None:
    """Neither messages nor an offload, between opening and reading, and while it is read."""
    topic = "live-meanwhile"
    cluster.produce(topic, payloads(0, _COUNT))
    before = opened(cluster, topic)
    cluster.produce(topic, payloads(_COUNT, 2 * _COUNT))
    cluster.admin.offload(topic)
    assert values(before) == payloads(0, _COUNT)
    assert values(opened(cluster, topic)) == payloads(0, 2 * _COUNT)

    reading = opened(cluster, topic, batch_rows=1)
    batches = reading.to_batches(columns=["__value__"])
    found = next(batches).column(0).to_pylist()
    cluster.produce(topic, payloads(2 * _COUNT, 3 * _COUNT))
    cluster.admin.offload(topic)
    for batch in batches:
        found += batch.column(0).to_pylist()
    assert found == payloads(0, 2 * _COUNT)


def test_what_is_trimmed_meanwhile_is_missed(cluster: Cluster) -> None:
    """Retention deletes it while nobody holds it; a topic that is opened then has what is left."""
    topic = "live-trimmed"
    cluster.produce(topic, payloads(0, _COUNT))
    dataset = opened(cluster, topic)
    policy = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    cluster.admin.of_topic("POST", topic, "retention", policy)
    first = cluster.admin.ledgers(topic)[0]["ledgerId"]

    def is_trimmed() -> bool:
        cluster.admin.of_topic("POST", topic, "trim")
        return bool(cluster.admin.ledgers(topic)[0]["ledgerId"] > first)

    wait_until(is_trimmed, 60)
    with pytest.raises(TrimmedEntriesError):
        dataset.to_table()
    assert values(opened(cluster, topic)) == [
        message.payload for _, message in read_all(cluster.client, topic)
    ]


def test_chunks_that_begin_in_the_bucket_end_in_the_tail(cluster: Cluster) -> None:
    """Each of them once, wherever a ledger ends between its chunks."""
    topic = "live-chunks"
    messages = [str(number) * 100 for number in range(8)]
    for number, message in enumerate(messages):
        cluster.broker.order("send-chunked", topic, message, _CHUNK_BYTES)
        if number in {2, 5}:
            cluster.admin.offload(topic)

    dataset = opened(cluster, topic)

    assert values(dataset) == [each.encode() for each in messages]
    assert dataset.metrics.incomplete_messages == 0
    assert dataset.count_rows() == len(messages)


def test_transactions_that_begin_in_the_bucket_end_in_the_tail(cluster: Cluster) -> None:
    """Messages of those that are committed are rows; of others they are counted."""
    topic, order = "live-transactions", cluster.broker.order
    committed, aborted = order("begin-transaction"), order("begin-transaction")
    order("send-in-transaction", committed, topic, "committed 1")
    order("send-in-transaction", aborted, topic, "aborted")
    cluster.produce(topic, payloads(0, MAX_LEDGER_ENTRIES + 1))
    cluster.admin.offload(topic)

    def told() -> tuple[set[bytes], int]:
        dataset = opened(cluster, topic)
        return set(values(dataset)), dataset.metrics.open_messages

    def is_answering() -> bool:
        # Pulsar's offloader fails once after a read that ended near the end of a ledger (README).
        try:
            opened(cluster, topic)
        except BrokerError:
            return False
        return True

    order("send-in-transaction", committed, topic, "committed 2")
    with pytest.warns(IncompleteReadWarning, match="without an outcome"):
        assert told()[1] == 2
    order("end-transaction", aborted, "abort")
    order("end-transaction", committed, "commit")
    everything = {b"committed 1", b"committed 2", *payloads(0, MAX_LEDGER_ENTRIES + 1)}
    wait_until(is_answering)
    assert told() == (everything, 0)


def test_partitions_of_which_nothing_is_offloaded(cluster: Cluster) -> None:
    """All of them are read, with metadata and without."""
    topic = "live-partitions"
    cluster.admin.of_topic("PUT", topic, "partitions", 3)
    cluster.produce(topic, payloads(0, _COUNT))
    cluster.admin.offload(f"{topic}-partition-1")
    for options in ({}, {"metadata": None}):
        rows = opened(cluster, topic, **options).to_table(["__partition__", "__value__"])
        assert set(rows.column(0).to_pylist()) == {0, 1, 2}
        assert sorted(rows.column(1).to_pylist()) == sorted(payloads(0, _COUNT))


def test_a_topic_that_is_not_there_is_not_made(cluster: Cluster) -> None:
    """A reader of a client would make it."""
    for options in ({}, {"metadata": None}):
        with pytest.raises(TopicNotFoundError):
            opened(cluster, "live-nowhere", **options)
    topics = cluster.admin.ask("GET", "persistent/public/default")
    assert not [each for each in topics if "nowhere" in each]


def test_the_latest_of_each_key_may_be_in_the_tail(cluster: Cluster) -> None:
    """A key that only the bucket has is left, one that the tail has is the tail's."""
    topic = "live-latest"
    producer = cluster.client.create_producer(topic, batching_enabled=False)
    for number in range(_COUNT):
        if number == MAX_LEDGER_ENTRIES + 1:
            cluster.admin.offload(topic)
        producer.send(b"%d" % number, partition_key=f"{number % 5}" if number else "first")
    producer.close()
    rows = opened(cluster, topic, view="latest").to_table(["__key__", "__value__"])
    latest = {"first": b"0"} | {str(n % 5): b"%d" % n for n in range(1, _COUNT)}
    assert dict(zip(*(rows.column(n).to_pylist() for n in range(2)), strict=True)) == latest


def test_engines_read_the_tail(cluster: Cluster) -> None:
    """DuckDB, Polars and the command line, whose standard output has nothing but rows."""
    import duckdb

    topic = "live-engines"
    cluster.produce(topic, payloads(0, _COUNT))
    options = {"live": cluster.broker.service_url, "metadata": cluster.broker.admin_url}
    cluster.admin.offload(topic)
    dataset = opened(cluster, topic)
    assert dataset.scan_polars().select("__value__").collect()["__value__"].to_list() == payloads(
        0, _COUNT
    )
    with duckdb.connect() as connection:
        register_duckdb(connection, cluster.url, storage_options=cluster.s3.storage_options)
        given = ", ".join(f"{name} := '{value}'" for name, value in options.items())
        counted = connection.sql(f"SELECT count(*) FROM read_pulsar('{topic}', {given})")  # noqa: S608
        assert counted.fetchall() == [(_COUNT,)]
    storage = {f"storage-option={name}": each for name, each in cluster.s3.storage_options.items()}
    texts = {
        name: each if isinstance(each, str) else json.dumps(each)
        for name, each in (storage | options).items()
    }
    words = [f"--{name}={text}" for name, text in texts.items()]
    command = [sys.executable, "-m", "connector.cli", "tail", cluster.url, topic, "-n3", "--json"]
    printed = subprocess.run([*command, "--value=raw", *words], check=True, capture_output=True)
    lines = [json.loads(line) for line in printed.stdout.splitlines()]
    assert [each["__value__"].encode() for each in lines] == payloads(_COUNT - 3, _COUNT)


def test_brokers_that_cannot_be_reached(cluster: Cluster) -> None:
    """The error names them, and no secret."""
    cluster.produce("live-unreached", payloads(0, 1))
    options = {"timeout_s": 1, "token": "a-secret-token"}
    with pytest.raises(BrokerError, match=r"at pulsar://127\.0\.0\.1:1") as caught:
        cluster.open_topic("live-unreached", live="pulsar://127.0.0.1:1", live_options=options)
    assert "a-secret-token" not in str(caught.value)


def test_values_of_every_schema_version_are_typed(cluster: Cluster) -> None:
    """Those of the bucket by the schema they were written with, and those of the tail."""
    topic = "live-typed"
    for fields in (["a"], ["a", "b"]):
        definition = {
            "type": "record",
            "name": "Row",
            "fields": [{"name": name, "type": ["null", "int"], "default": None} for name in fields],
        }
        schema = AvroSchema(None, schema_definition=definition)
        producer = cluster.client.create_producer(topic, schema=schema)
        for number in range(MAX_LEDGER_ENTRIES + 1):
            producer.send(dict.fromkeys(fields, number))
        producer.close()
        cluster.admin.offload(topic)
    dataset = cluster.open_topic(topic, live=cluster.broker.service_url)
    numbers = list(range(MAX_LEDGER_ENTRIES + 1))
    rows = dataset.to_table(["a", "b", "__schema_version__"])
    assert rows.column("a").to_pylist() == numbers * 2
    assert rows.column("b").to_pylist() == [None] * len(numbers) + numbers
    assert rows.column("__schema_version__").to_pylist() == [0] * len(numbers) + [1] * len(numbers)


@pytest.mark.parametrize("batched", [False, True])
def test_what_is_encrypted_is_opened_by_our_keys(
    cluster: Cluster, tmp_path: Path, *, batched: bool
) -> None:
    """A client without a key gives it as it is."""
    topic = f"live-encrypted-{batched}"
    pair = key_pair("RSA", "mine")
    private, public = tmp_path / "mine-priv.pem", tmp_path / "mine-pub.pem"
    private.write_bytes(pair.pem())
    public.write_bytes(pair.public_pem())
    producer = cluster.client.create_producer(
        topic,
        batching_enabled=batched,
        batching_max_publish_delay_ms=1000,
        compression_type=pulsar.CompressionType.LZ4,
        encryption_key="mine",
        crypto_key_reader=pulsar.CryptoKeyReader(str(public), str(private)),
    )
    for payload in payloads(0, _COUNT):
        producer.send_async(payload, None, partition_key="key")
    producer.flush()
    producer.close()
    cluster.admin.offload(topic)
    dataset = opened(cluster, topic, decryption_keys=str(private))
    assert values(dataset) == payloads(0, _COUNT)
    with pytest.raises(EncryptedPayloadError, match="mine"):
        opened(cluster, topic).to_table()
