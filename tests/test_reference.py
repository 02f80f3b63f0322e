"""The oracles are right themselves: by Pulsar's own answers, and by messages known beforehand."""

from __future__ import annotations

import base64
import hashlib
import io
import itertools
import json
from collections import defaultdict

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, unknown_fields
from hypothesis import given

from tests.support.benchmark_ledgers import (
    AVRO_ZSTD,
    BENCHMARK_LEDGERS,
    JSON_LZ4,
    ORDER_SCHEMA,
    PROTOBUF_LZ4,
    READING_SCHEMA,
    SINGLES,
    BenchmarkLedger,
)
from tests.support.entries import Message, encode_entry
from tests.support.golden import GoldenRow, GoldenTopic, golden_topic, golden_topics, row_payload
from tests.support.golden_entries import golden_entries
from tests.support.pulsar_proto import EncryptionKeys
from tests.support.reference import (
    NOT_BATCHED,
    EncryptedBatch,
    ReferenceMessage,
    decode_topic,
    encrypted_batches,
    open_transactions,
)
from tests.support.topics import DeliveredAt, Topic, topics

_ENTRY_WITH_CHECKSUM = encode_entry([Message(payload=b"pulsar")], batched=False)


def _row_without_payload(row: GoldenRow) -> dict[str, object]:
    payload_fields = {"size", "sha256", "data", "no_data"}
    return {name: value for name, value in row.items() if name not in payload_fields}


def _as_row(message: ReferenceMessage) -> dict[str, object]:
    """The message as a line of `messages.jsonl.gz`, where what a message lacks is absent."""
    row: dict[str, object] = {
        "ledger": message.ledger_id,
        "entry": message.entry_id,
        "batch": message.batch_index,
        "publish_time": message.publish_time_ms,
        "event_time": message.event_time_ms,
        "producer": message.producer_name,
        "sequence_id": message.sequence_id,
        "properties": message.properties,
        "null_value": message.null_value,
    }
    if message.first_chunk is not None:
        row["first_chunk"] = list(message.first_chunk)
    if message.key is not None:
        row |= {"key": message.key, "key_b64": message.key_b64}
    if message.ordering_key is not None:
        row["ordering_key"] = message.ordering_key.hex()
    if message.schema_version is not None:
        row["schema_version"] = message.schema_version.hex()
    if message.deliver_at_ms is not None:
        row["deliver_at"] = message.deliver_at_ms
    return row


def _assert_same_payload(message: ReferenceMessage, row: GoldenRow) -> None:
    assert (message.payload is None) == row.get("no_data", False)
    if message.payload is None:
        assert "sha256" not in row
        assert row["size"] == 0
        return
    assert len(message.payload) == row["size"]
    assert hashlib.sha256(message.payload).hexdigest() == row["sha256"]
    assert row_payload(row) in (message.payload, None)


@pytest.mark.parametrize("topic", golden_topics(), ids=str)
def test_golden_topic_decodes_to_what_the_client_read(topic: GoldenTopic) -> None:
    """Every row that Pulsar's client read, and no other, comes out, in its order."""
    ledgers = golden_entries(topic)
    locked = {(batch.ledger_id, batch.entry_id) for batch in encrypted_batches(ledgers)}
    rows = [row for row in topic.messages() if (row["ledger"], row["entry"]) not in locked]

    messages = decode_topic(ledgers)

    assert [_as_row(message) for message in messages] == list(map(_row_without_payload, rows))
    for message, row in zip(messages, rows, strict=True):
        if message.encrypted:
            assert message.payload is None
        else:
            _assert_same_payload(message, row)


@pytest.mark.parametrize("topic", golden_topics(), ids=str)
def test_golden_encrypted_batches_hold_the_rest_of_the_rows(topic: GoldenTopic) -> None:
    """An encrypted batch is listed with the number of messages that the client found in it."""
    rows_by_entry: dict[tuple[int, int], int] = defaultdict(int)
    for row in topic.messages():
        rows_by_entry[row["ledger"], row["entry"]] += 1

    batches = encrypted_batches(golden_entries(topic))

    assert len(decode_topic(golden_entries(topic))) + sum(b.message_count for b in batches) == (
        topic.message_count
    )
    for batch in batches:
        assert batch.message_count == rows_by_entry[batch.ledger_id, batch.entry_id]
        assert batch.key_names in {("client-rsa",), ("client-ec",)}


@pytest.mark.parametrize("topic", golden_topics(), ids=str)
def test_golden_broker_index_counts_the_messages(topic: GoldenTopic) -> None:
    """The broker's index rises from message to message, but by one only over a batch in a txn."""
    indexes: list[int] = []
    for message in decode_topic(golden_entries(topic), transactions="all"):
        if message.broker_index is not None:
            # The broker counts a batch in a transaction as one message, which Pulsar's client and
            # the reference do not know: their index is right for the last message of the batch.
            if message.txn_id is not None and message.batch_index > 0:
                indexes.pop()
            indexes.append(message.broker_index)

    assert indexes == sorted(set(indexes))
    assert bool(indexes) == (
        topic.set_name != "pulsar-4.0.7-small" and not topic.name.endswith("cpp-encrypted")
    )


def test_golden_open_transaction_is_left_out_and_listed() -> None:
    """Messages of a transaction without a marker come only when all transactions are asked for."""
    ledgers = golden_entries(golden_topic("transactions-open"))

    committed = decode_topic(ledgers)
    everything = decode_topic(ledgers, transactions="all")

    (txn_id,) = open_transactions(ledgers)
    assert txn_id not in {message.txn_id for message in committed}
    assert sum(message.txn_id == txn_id for message in everything) == 7
    assert [message for message in everything if message in committed] == committed


def _broker_index(at: DeliveredAt) -> int | None:
    delivered = at.delivered
    if delivered.framing.broker_metadata is None:
        return None
    _, last_index = delivered.framing.broker_metadata
    if delivered.batch_index == NOT_BATCHED:
        return last_index
    return last_index - (delivered.batch_size - 1 - delivered.batch_index)


def _expected(at: DeliveredAt) -> ReferenceMessage:
    message, outer, framing = at.delivered.message, at.delivered.outer, at.delivered.framing
    sequence_id = message.sequence_id or 0
    return ReferenceMessage(
        ledger_id=at.position[0],
        entry_id=at.position[1],
        batch_index=at.delivered.batch_index,
        first_chunk=at.first_chunk,
        publish_time_ms=outer["publish_time"],
        event_time_ms=message.event_time or 0,
        producer_name=outer["producer_name"],
        sequence_id=sequence_id - 2**64 * (sequence_id >= 2**63),
        key=message.partition_key,
        key_b64=message.partition_key_b64_encoded,
        ordering_key=message.ordering_key,
        properties=dict(message.properties),
        schema_version=outer.get("schema_version"),
        broker_time_ms=framing.broker_metadata[0] if framing.broker_metadata else None,
        broker_index=_broker_index(at),
        deliver_at_ms=outer.get("deliver_at_time"),
        replicated_from=outer.get("replicated_from"),
        txn_id=at.txn_id,
        null_value=bool(message.null_value),
        null_partition_key=bool(message.null_partition_key),
        payload=None if message.null_value else message.payload,
        encrypted=False,
    )


@given(topic=topics())
def test_generated_topic_decodes_to_what_it_was_made_of(topic: Topic) -> None:
    """Entries made of known messages give those messages at their places, and no other."""
    assert decode_topic(topic.ledgers, transactions="all") == list(map(_expected, topic.delivered))
    assert decode_topic(topic.ledgers) == [_expected(at) for at in topic.delivered if at.committed]


@given(topic=topics())
def test_generated_open_transactions_are_listed(topic: Topic) -> None:
    """Just the transactions that were given no outcome are listed as open."""
    assert set(open_transactions(topic.ledgers)) == topic.open_transactions


@pytest.mark.parametrize("ledger", BENCHMARK_LEDGERS, ids=lambda ledger: ledger.name)
@pytest.mark.parametrize("broker_metadata", [False, True])
def test_benchmark_ledger_has_its_shape(ledger: BenchmarkLedger, *, broker_metadata: bool) -> None:
    """A benchmark ledger has as many messages, batches and bytes a message as it says."""
    count = 1_250
    entries = list(ledger.entries(count, broker_metadata=broker_metadata))
    mean_bytes = {
        "json-lz4": 350,
        "avro-zstd": 150,
        "protobuf-lz4": 165,
        "text-uncompressed": 1100,
        "single-uncompressed": 100,
    }

    messages = decode_topic([(1, entries)])

    assert [message.sequence_id for message in messages] == list(range(count))
    assert len(entries) == -(-count // (ledger.batch_size or 1))
    payload_bytes = sum(len(message.payload or b"") for message in messages)
    assert payload_bytes / count == pytest.approx(mean_bytes[ledger.name], rel=0.1)
    assert {message.broker_index for message in messages} == (
        set(range(count)) if broker_metadata else {None}
    )
    assert all(bool(m.key and m.event_time_ms and m.properties) for m in messages) == (
        ledger.name == "json-lz4"
    )


def test_benchmark_transactions_are_committed() -> None:
    """Each behind its last message."""
    entries = list(SINGLES[-1].entries(250))

    messages = decode_topic([(1, entries)])

    assert [message.sequence_id for message in messages] == list(range(250))
    assert len(entries) == 253


def test_benchmark_ledger_always_has_the_same_bytes() -> None:
    """Two runs measure the same ledger."""
    for ledger in BENCHMARK_LEDGERS:
        assert list(ledger.entries(700)) == list(ledger.entries(700))


def _payloads(ledger: BenchmarkLedger) -> list[bytes]:
    """Payloads of its first messages, enough for every part that they are put together from."""
    return [payload for _, payload in itertools.islice(ledger.members(), 2_500)]


def test_benchmark_orders_follow_their_schema() -> None:
    """An order's datum reads whole, and is what a library writes of it and of its JSON text."""
    schema = fastavro.parse_schema(json.loads(ORDER_SCHEMA))

    def datum(order: object) -> bytes:
        data = io.BytesIO()
        fastavro.schemaless_writer(data, schema, order, strict_allow_default=True)
        return data.getvalue()

    for text, avro in zip(_payloads(JSON_LZ4), _payloads(AVRO_ZSTD), strict=True):
        order = json.loads(text)
        data = io.BytesIO(avro)

        assert json.dumps(order, ensure_ascii=False, separators=(",", ":")).encode() == text
        assert datum(order | {"signature": base64.b64decode(order["signature"])}) == avro
        assert datum(fastavro.schemaless_reader(data, schema, None)) == avro
        assert data.read() == b""


def test_benchmark_readings_follow_their_schema() -> None:
    """A reading is what protobuf writes of it, and each field of the schema is in some of them."""
    schema = json.loads(READING_SCHEMA)
    files = descriptor_pb2.FileDescriptorSet.FromString(
        base64.b64decode(schema["fileDescriptorSet"])
    )
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    descriptor = pool.FindMessageTypeByName(schema["rootMessageTypeName"])
    reading_class = message_factory.GetMessageClass(descriptor)

    readings = list(map(reading_class.FromString, _payloads(PROTOBUF_LZ4)))

    written = [reading.SerializeToString(deterministic=True) for reading in readings]
    assert written == _payloads(PROTOBUF_LZ4)
    assert not any(map(len, map(unknown_fields.UnknownFieldSet, readings)))
    present = {field.name for reading in readings for field, _ in reading.ListFields()}
    assert present == {field.name for field in descriptor.fields}


def test_encrypted_payload_is_withheld() -> None:
    """A message that is encrypted keeps its clear metadata; a batch is only listed."""
    keys = [EncryptionKeys(key="rsa", value=b"wrapped")]
    single = encode_entry(
        [Message(payload=b"cipher", partition_key="k")], batched=False, encryption_keys=keys
    )
    batch = encode_entry([Message(), Message()], batched=True, encryption_keys=keys)
    ledgers = [(5, [single, batch])]

    (message,) = decode_topic(ledgers)

    assert (message.key, message.payload, message.encrypted) == ("k", None, True)
    assert encrypted_batches(ledgers) == [EncryptedBatch(5, 1, 2, ("rsa",))]


@pytest.mark.parametrize("bit", range(8 * 6, 8 * len(_ENTRY_WITH_CHECKSUM), 7))
def test_flipped_bit_fails_the_checksum(bit: int) -> None:
    """A change anywhere behind the checksum is an error."""
    damaged = bytearray(_ENTRY_WITH_CHECKSUM)
    damaged[bit // 8] ^= 1 << bit % 8

    with pytest.raises(ValueError, match="checksum of entry"):
        decode_topic([(1, [bytes(damaged)])])
