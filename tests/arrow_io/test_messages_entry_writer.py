"""Entries are what Pulsar's Java client would send, and hold what their messages say."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import EntryTooLargeError, OptionError
from arrow_io.format.object_names import LedgerObjectName
from arrow_io.ledgers.reader import OffloadedLedger
from arrow_io.messages.entry_writer import MAX_ENTRY_BYTES, EntryOptions, EntryWriter
from arrow_io.messages.message_metadata import Message
from arrow_io.storage.location import Location
from tests.support import entries as oracle
from tests.support.buckets import memory_bucket, offload_ledger
from tests.support.codecs import CODECS, Codec, decompress
from tests.support.golden import golden_topic, golden_topics
from tests.support.golden_entries import golden_entries
from tests.support.pulsar_proto import BrokerEntryMetadata, MessageMetadata, ProtoMessage
from tests.support.reference import decode_topic
from tests.support.written_messages import (
    message_of,
    messages,
    told,
    told_by_reference,
    written_entries,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.support.golden import GoldenTopic

_MESSAGE = Message(payload=b"value", publish_time_ms=1_700_000_000_000)

# Topics of whose entries not every byte is the Java client's own: the compressor spells the payload
# in another way, or chunks are cut elsewhere.
_COMPRESSED = {
    f"public/default/{name}"
    for name in (
        "avro-orders", "bytes-batched-lz4", "bytes-batched-snappy", "bytes-batched-zlib",
        "bytes-batched-zstd", "bytes-single-lz4", "bytes-single-snappy", "bytes-single-zlib",
        "bytes-single-zstd", "json-orders", "kv-avro-separated", "kv-string-avro-separated",
        "multi-ledger", "protobuf-native", "small-bytes-batched-lz4",
    )
}  # fmt: skip
_CHUNKED = {"public/default/chunked", "public/default/small-chunked"}
_PLAIN_TOPICS = [
    topic
    for topic in golden_topics()
    if topic.set_name != "pulsar-4.0.7-clients"
    and not any(word in topic.name for word in ("encrypted", "transactions"))
]
"""Topics of the Java client without encryption and transactions, which are not written."""


def _written(given: Iterable[Message], **options: Any) -> list[bytes]:  # noqa: ANN401
    return written_entries(EntryWriter(EntryOptions(**options)), given)


class _Parts(NamedTuple):
    """An entry taken apart: protobuf messages, and the bytes of the metadata and the payload."""

    broker: ProtoMessage
    metadata: ProtoMessage
    serialised: bytes
    payload: bytes


def _apart(entry: bytes) -> _Parts:
    rest = _without_broker(entry)
    broker = BrokerEntryMetadata.FromString(entry[6 : len(entry) - len(rest)])
    stop = 10 + int.from_bytes(rest[6:10])
    return _Parts(broker, MessageMetadata.FromString(rest[10:stop]), rest[10:stop], rest[stop:])


def _uncompressed(entries: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """The bytes of each entry's metadata, and its payload before compression."""
    parts = [_apart(entry) for entry in entries]
    return [
        (
            each.serialised,
            decompress(
                CODECS[each.metadata.compression], each.payload, each.metadata.uncompressed_size
            ),
        )
        for each in parts
    ]


def _without_broker(entry: bytes) -> bytes:
    return entry[6 + int.from_bytes(entry[2:6]) :] if entry.startswith(b"\x0e\x02") else entry


def _rewritten(topic: GoldenTopic) -> list[tuple[list[bytes], list[bytes]]]:
    """The entries of each message or batch of a topic, and what the writer makes of the same."""
    ledgers = golden_entries(topic)
    stored = {
        (ledger_id, entry_id): _without_broker(entry)
        for ledger_id, entries in ledgers
        for entry_id, entry in enumerate(entries)
    }
    chunks: dict[str, list[bytes]] = {}
    for entry in stored.values():
        metadata = _apart(entry).metadata
        if metadata.num_chunks_from_msg > 1:
            chunks.setdefault(metadata.uuid, []).append(entry)
    pairs = []
    for place, group in itertools.groupby(
        decode_topic(ledgers), key=lambda each: (each.ledger_id, each.entry_id)
    ):
        metadata = _apart(stored[place]).metadata
        before = chunks.get(metadata.uuid, [stored[place]])
        members = [message_of(message) for message in group]
        # The numbers of a chunk may get longer by the bytes that its payload's length takes.
        room = 2 * (_varint_bytes(metadata.total_chunk_msg_size) - 1) if len(before) > 1 else 0
        after = _written(
            members,
            compression=CODECS[metadata.compression],
            batch_messages=len(members) + 1,
            batch_bytes=MAX_ENTRY_BYTES,
            max_message_bytes=len(before[0]) + room if len(before) > 1 else MAX_ENTRY_BYTES,
            chunking=True,
        )
        pairs.append((before, after))
    return pairs


def _is_nothing_by_zlib(entry: bytes) -> bool:
    metadata = _apart(entry).metadata
    return CODECS[metadata.compression] == "ZLIB" and not metadata.uncompressed_size


def _varint_bytes(number: int) -> int:
    return max(1, -(-number.bit_length() // 7))


def _likeness(topic: GoldenTopic) -> str:
    """How far the entries that the writer makes of a topic are those of its producer."""
    pairs = [pair for pair in _rewritten(topic) if not _is_nothing_by_zlib(pair[0][0])]
    assert pairs
    if all(before == after for before, after in pairs):
        return "identical"
    if any(len(before) > 1 for before, _ in pairs):
        return "chunked"
    alike = all(_uncompressed(before) == _uncompressed(after) for before, after in pairs)
    return "identical but for compression" if alike else "different"


def test_entries_are_those_of_the_java_client() -> None:
    """Each topic of the Java client is the same bytes again, but for how they were compressed."""
    plain = {topic.name.removeprefix("persistent://"): topic for topic in _PLAIN_TOPICS}

    likeness = {name: _likeness(topic) for name, topic in plain.items()}

    assert likeness == {
        **dict.fromkeys(plain, "identical"),
        **dict.fromkeys(_COMPRESSED, "identical but for compression"),
        **dict.fromkeys(_CHUNKED, "chunked"),
    }


@pytest.mark.parametrize("name", sorted(_CHUNKED))
def test_chunks_are_those_of_the_java_client(name: str) -> None:
    """Uncompressed, a message is cut into the same entries; compressed, into as many."""
    pairs = _rewritten(golden_topic(f"persistent://{name}"))

    uncompressed = [pair for pair in pairs if not _apart(pair[0][0]).metadata.compression]
    assert any(len(before) > 1 for before, _ in uncompressed)
    assert all(before == after for before, after in uncompressed)
    assert all(len(before) == len(after) for before, after in pairs)


@given(given=messages(), codec=st.sampled_from(CODECS), limit=st.integers(1, 5))
def test_a_reader_gets_what_was_written(given: list[Message], codec: Codec, limit: int) -> None:
    """Whatever messages are batched together, each reads as it was, in order."""
    entries = _written(given, compression=codec, batch_messages=limit, batch_bytes=500)

    read = decode_topic([(7, entries)])

    assert told_by_reference(read) == [told(each, number) for number, each in enumerate(given)]


@given(given=messages(), codec=st.sampled_from(CODECS))
def test_entries_are_those_of_the_protobuf_library(given: list[Message], codec: Codec) -> None:
    """Single messages, and batches, are the bytes that a protobuf library makes of their fields."""
    message = replace(given[0], key=None, sequence_id=5)
    own = oracle.Message(
        payload=message.payload or b"",
        properties=tuple(dict(message.properties).items()),
        ordering_key=message.ordering_key,
        event_time=message.event_time_ms or None,
        sequence_id=5,
        null_value=True if message.payload is None else None,
        null_partition_key=True if message.is_null_key else None,
    )
    outer = oracle.OuterFields(
        producer_name=message.producer_name, sequence_id=5, publish_time=message.publish_time_ms
    )
    version = told(message, 0)["schema_version"]
    if isinstance(version, bytes):
        outer["schema_version"] = version
    if message.replicated_from is not None:
        outer["replicated_from"] = message.replicated_from
    in_batch = replace(message, deliver_at_ms=None)

    single = _written([in_batch], compression=codec)
    pair = _written([in_batch, in_batch], compression=codec)

    is_stored = codec == "ZLIB" and not message.payload
    framing = oracle.Framing(codec="NONE" if is_stored else codec)
    expected = oracle.encode_entry([own], batched=False, framing=framing, **outer)
    assert _uncompressed(single) == _uncompressed([expected])
    outer["highest_sequence_id"] = 5
    if in_batch.ordering_key is not None:
        outer["ordering_key"] = in_batch.ordering_key
    expected = oracle.encode_entry(
        [own, own], batched=True, framing=oracle.Framing(codec=codec), **outer
    )
    assert _uncompressed(pair) == _uncompressed([expected])


def _batch_sizes(entries: Sequence[bytes]) -> list[int]:
    """Messages of each entry; 0 for one that is no batch."""
    metadata = [_apart(entry).metadata for entry in entries]
    return [
        each.num_messages_in_batch if each.HasField("num_messages_in_batch") else 0
        for each in metadata
    ]


_LATER = replace(_MESSAGE, publish_time_ms=_MESSAGE.publish_time_ms + 3)
_EARLIER = replace(_MESSAGE, publish_time_ms=_MESSAGE.publish_time_ms - 1)


@pytest.mark.parametrize(
    ("given", "options", "sizes"),
    [
        pytest.param([_MESSAGE] * 5, {}, [5], id="together"),
        pytest.param([_MESSAGE] * 5, {"batch_messages": 2}, [2, 2, 0], id="as many as allowed"),
        pytest.param([_MESSAGE] * 3, {"batch_messages": 1}, [0, 0, 0], id="no batches"),
        pytest.param([_MESSAGE] * 3, {"batch_bytes": 26}, [2, 0], id="as long as allowed"),
        pytest.param([_MESSAGE] * 3, {"batch_bytes": 25}, [0, 0, 0], id="too long for two"),
        pytest.param([_MESSAGE, _LATER], {}, [0, 0], id="publish time kept"),
        pytest.param([_MESSAGE, _LATER], {"batch_delay_ms": 2}, [0, 0], id="beyond the delay"),
        pytest.param([_MESSAGE, _LATER], {"batch_delay_ms": 3}, [2], id="within the delay"),
        pytest.param([_MESSAGE, _EARLIER], {"batch_delay_ms": 3}, [0, 0], id="earlier"),
        pytest.param([_MESSAGE, _EARLIER, _LATER], {"batch_delay_ms": None}, [3], id="at any time"),
        pytest.param(
            [_MESSAGE, _MESSAGE, replace(_MESSAGE, deliver_at_ms=9), _MESSAGE, _MESSAGE],
            {},
            [2, 0, 2],
            id="delivered later",
        ),
        pytest.param(
            [_MESSAGE, _MESSAGE, replace(_MESSAGE, schema_version=1), _MESSAGE],
            {},
            [2, 0, 0],
            id="another schema",
        ),
        pytest.param(
            [_MESSAGE, replace(_MESSAGE, producer_name="q")], {}, [0, 0], id="another producer"
        ),
        pytest.param(
            [_MESSAGE, replace(_MESSAGE, replicated_from="west")], {}, [0, 0], id="from elsewhere"
        ),
    ],
)
def test_messages_share_a_batch_as_far_as_they_are_alike(
    given: list[Message], options: dict[str, Any], sizes: list[int]
) -> None:
    """A batch ends at its limits, and where its metadata would not be true of the next message."""
    assert _batch_sizes(_written(given, **options)) == sizes


def test_messages_of_a_batch_take_its_publish_time() -> None:
    """Within the delay allowed, the publish time of the first message is that of all."""
    read = decode_topic([(0, _written([_MESSAGE, _LATER], batch_delay_ms=3))])

    assert [each.publish_time_ms for each in read] == [_MESSAGE.publish_time_ms] * 2


def test_a_batch_that_fits_no_entry_is_written_as_single_messages() -> None:
    """The longest entry bounds batches too, whatever their own limit is."""
    messages_of_600 = [replace(_MESSAGE, payload=bytes([n]) * 600) for n in range(4)]

    entries = _written(messages_of_600, max_message_bytes=1024)

    assert _batch_sizes(entries) == [0] * 4
    assert [each.payload for each in decode_topic([(0, entries)])] == [
        each.payload for each in messages_of_600
    ]


def test_broker_entry_metadata_counts_messages() -> None:
    """Each message has the next index, a message in chunks one for each chunk."""
    long = replace(_MESSAGE, payload=bytes(range(256)) * 8, deliver_at_ms=1)
    writer = EntryWriter(
        EntryOptions(broker_metadata=True, max_message_bytes=1024, chunking=True, batch_messages=3)
    )
    given = [_MESSAGE, _MESSAGE, _MESSAGE, long, _LATER]

    entries = written_entries(writer, given)

    brokers = [_apart(entry).broker for entry in entries]
    times = [_MESSAGE.publish_time_ms] * 4 + [_LATER.publish_time_ms]
    assert [broker.index for broker in brokers] == [2, 3, 4, 5, 6]
    assert [broker.broker_timestamp for broker in brokers] == times
    assert [each.broker_index for each in decode_topic([(0, entries)])] == [0, 1, 2, 5, 6]
    assert (writer.last_index, writer.message_count) == (6, 5)


@given(
    size=st.integers(900, 6000),
    codec=st.sampled_from(CODECS),
    limit=st.integers(1024, 1200),
    broker_metadata=st.booleans(),
)
def test_a_chunked_message_is_read_whole(
    size: int, codec: Codec, limit: int, *, broker_metadata: bool
) -> None:
    """Chunks are as long as an entry may be, but for the last, and join to the message."""
    payload = random.Random(size).randbytes(size)
    given = [_MESSAGE, replace(_MESSAGE, payload=payload, key=b"key"), _MESSAGE]

    entries = _written(
        given,
        compression=codec,
        max_message_bytes=limit,
        chunking=True,
        broker_metadata=broker_metadata,
    )

    assert max(len(_without_broker(entry)) for entry in entries) <= limit
    assert told_by_reference(decode_topic([(0, entries)])) == [
        told(each, number) for number, each in enumerate(given)
    ]


@pytest.mark.parametrize("payload", [bytes(1000), None], ids=["payload", "properties"])
def test_a_message_that_is_too_long_is_refused(payload: bytes | None) -> None:
    """Without chunks no entry is longer than allowed; metadata is never cut into chunks."""
    message = replace(_MESSAGE, payload=payload, properties={} if payload else {"a": "x" * 1000})

    with pytest.raises(EntryTooLargeError, match="1024 are allowed"):
        _written([message], max_message_bytes=1024, chunking=payload is None)


def test_a_payload_beyond_belief_is_refused() -> None:
    """What a reader would not believe is not written."""
    with pytest.raises(EntryTooLargeError, match="134217728 are allowed"):
        EntryWriter().add(replace(_MESSAGE, payload=bytes((128 << 20) + 1)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"publish_time_ms": -1},
        {"publish_time_ms": 2**63},
        {"publish_time_ms": 1.5},
        {"publish_time_ms": None},
        {"event_time_ms": -5},
        {"deliver_at_ms": 2**63},
        {"sequence_id": 2**63},
        {"sequence_id": -(2**63) - 1},
        {"sequence_id": "1"},
        {"schema_version": 2**63},
        {"schema_version": "1"},
        {"producer_name": None},
        {"producer_name": "\ud800"},
        {"key": "\ud800"},
        {"key": 5},
        {"ordering_key": "text"},
        {"properties": {"a": None}},
        {"properties": {"a": 1}},
        {"properties": (("a",),)},
        {"properties": 7},
        {"payload": "text"},
        {"payload": 5},
        {"replicated_from": b"west"},
    ],
    ids=str,
)
@pytest.mark.parametrize("number", [0, 1])
def test_a_value_that_no_field_takes_is_refused(wrong: dict[str, Any], number: int) -> None:
    """A wrong value is an error of ours that names the message, which is left out."""
    writer = EntryWriter()
    before = [_MESSAGE] * number
    taken = [entry for message in before for entry in writer.add(message)]

    with pytest.raises(OptionError, match=f"message {number} cannot be written"):
        writer.add(replace(_MESSAGE, **wrong))

    entries = [entry.data for entry in [*taken, *writer.flush()]]
    assert len(decode_topic([(0, entries)])) == number


@pytest.mark.parametrize(
    "wrong",
    [
        {"compression": "gzip"},
        {"compression": ""},
        {"compression": None},
        {"batch_messages": 0},
        {"batch_messages": "3"},
        {"batch_bytes": 0},
        {"batch_bytes": (128 << 20) - 1023},
        {"batch_delay_ms": -1},
        {"max_message_bytes": 1023},
        {"max_message_bytes": (128 << 20) - 1023},
    ],
    ids=str,
)
def test_options_out_of_bounds_are_refused(wrong: dict[str, Any]) -> None:
    """The error names the option, what was given, and what is allowed."""
    (option,) = wrong

    with pytest.raises(OptionError, match=option) as caught:
        EntryOptions(**wrong)
    assert str(wrong[option]) in str(caught.value)


@pytest.mark.parametrize("payload", [None, b""])
@pytest.mark.parametrize("batch_messages", [1, 2])
def test_nothing_is_not_compressed_by_zlib(payload: bytes | None, batch_messages: int) -> None:
    """A single message without a payload is stored as it is: other clients drop ZLIB's nothing."""
    message = replace(_MESSAGE, payload=payload)

    [entry] = _written([message], compression="zlib", batch_messages=batch_messages)

    parts = _apart(entry)
    assert CODECS[parts.metadata.compression] == "NONE"
    assert parts.payload == b""


def test_codecs_go_by_any_letter_case() -> None:
    """`lz4` is `LZ4`."""
    assert _written([_MESSAGE], compression="lz4") == _written([_MESSAGE], compression="LZ4")


def test_the_longest_entry_that_may_be_written_is_read() -> None:
    """What a broker adds to an entry does not make it longer than readers believe."""
    writer = EntryWriter(EntryOptions(max_message_bytes=MAX_ENTRY_BYTES, broker_metadata=True))
    message = replace(_MESSAGE, payload=bytes(MAX_ENTRY_BYTES - 100))
    (entry,) = (*writer.add(message), *writer.flush())
    name = LedgerObjectName(UUID(int=1), 1)

    with memory_bucket(offload_ledger(name, [entry.data])) as bucket:
        ledger = OffloadedLedger.open(Location(bucket.url), name)
        (batch,) = ledger.record_batches(["__value__"])

    assert len(entry.data) > MAX_ENTRY_BYTES - 100
    assert len(batch["__value__"][0].as_py()) == MAX_ENTRY_BYTES - 100
