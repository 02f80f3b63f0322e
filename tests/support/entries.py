"""Messages to entries: the bytes that a Pulsar broker would hand to BookKeeper.

The inverse of `tests.support.reference`, by the same protobuf classes. Arguments are named as the
fields of `MessageMetadata` and `SingleMessageMetadata` in `PulsarApi.proto`.
"""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

import crc32c

from tests.support.codecs import CODECS, Codec, compress
from tests.support.pulsar_proto import (
    BrokerEntryMetadata,
    MessageMetadata,
    ProtoMessage,
    SingleMessageMetadata,
)
from tests.support.reference import BROKER_METADATA_MAGIC, CHECKSUM_MAGIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.reference import TxnId

SERVER_SEQUENCE_ID: Final = 2**64 - 1
"""Sequence id -1, which transaction markers carry."""

_OWN_FIELDS: Final = (
    "partition_key",
    "ordering_key",
    "event_time",
    "sequence_id",
    "null_value",
    "null_partition_key",
)


class OuterFields(TypedDict, total=False):
    """Fields of an entry's `MessageMetadata`; the entry lacks those that are not given."""

    producer_name: str
    sequence_id: int
    publish_time: int
    replicated_from: str
    replicate_to: list[str]
    partition_key: str
    partition_key_b64_encoded: bool
    ordering_key: bytes
    event_time: int
    encryption_keys: list[ProtoMessage]
    encryption_param: bytes
    schema_version: bytes
    deliver_at_time: int
    marker_type: int
    txnid_most_bits: int
    txnid_least_bits: int
    highest_sequence_id: int
    null_value: bool
    schema_id: bytes
    entry_hash_min: int
    entry_hash_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What a producer sets on one message.

    Attributes:
        payload: The value before compression; of a null value, empty.
        properties: Name and value pairs, in order; a name may occur more than once.
        partition_key: Key as text, Base64 if `partition_key_b64_encoded`; None: absent.
        partition_key_b64_encoded: Whether the key is the Base64 of bytes.
        ordering_key: None: absent.
        event_time: Ms since the epoch; None: absent.
        sequence_id: Unsigned; None: absent (of a single message: the entry's).
        null_value: None: absent.
        null_partition_key: None: absent.
        compacted_out: Whether compaction emptied this member of a batch.
        extra_fields: Serialised fields to stand before all others in the message's metadata.
    """

    payload: bytes = b""
    properties: tuple[tuple[str, str], ...] = ()
    partition_key: str | None = None
    partition_key_b64_encoded: bool = False
    ordering_key: bytes | None = None
    event_time: int | None = None
    sequence_id: int | None = None
    null_value: bool | None = None
    null_partition_key: bool | None = None
    compacted_out: bool = False
    extra_fields: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """What surrounds the metadata and the payload of an entry.

    Attributes:
        broker_metadata: `(broker_timestamp ms, index of the entry's last message)`; None: absent.
        checksum: Whether the entry has a CRC32C.
        codec: Codec of the payload.
        other_client: Use the form of the codec that clients other than Java's write.
    """

    broker_metadata: tuple[int, int] | None = None
    checksum: bool = True
    codec: Codec = "NONE"
    other_client: bool = False


_PLAIN: Final = Framing()


def encode_entry(
    messages: Sequence[Message],
    *,
    batched: bool,
    framing: Framing = _PLAIN,
    **outer: Unpack[OuterFields],
) -> bytes:
    """Encode one entry.

    Args:
        messages: The messages of the batch; exactly one if not batched.
        batched: Whether the entry is a batch, which it may be with one message too.
        framing: Checksum, broker entry metadata and codec.
        **outer: Fields of the entry's `MessageMetadata`. Those of a single message itself go
            before them.

    Returns:
        The entry.
    """
    metadata = _outer_metadata(outer)
    if batched:
        metadata.num_messages_in_batch = len(messages)
        payload = b"".join(map(_member, messages))
        extra_fields = b""
    else:
        (message,) = messages
        _set_own_fields(metadata, message)
        payload, extra_fields = message.payload, message.extra_fields
    # Java's client gives the size of a single message always, of a batch only if it is compressed.
    if framing.codec != "NONE" or not (batched or framing.other_client):
        metadata.uncompressed_size = len(payload)
    compressed = compress(framing.codec, payload, other_client=framing.other_client)
    return _frame(metadata, compressed, framing, extra_fields)


def encode_chunks(
    message: Message,
    *,
    chunk_count: int,
    uuid: str,
    framing: Framing = _PLAIN,
    **outer: Unpack[OuterFields],
) -> list[bytes]:
    """Encode one message as several entries, as `ProducerImpl` does: compress, then cut.

    Args:
        message: The message.
        chunk_count: Number of chunks, at least 2 and at most the compressed payload's bytes.
        uuid: Identity that the chunks share.
        framing: Checksum, broker entry metadata and codec of each entry.
        **outer: Fields of each entry's `MessageMetadata`.

    Returns:
        The entries, by chunk id.
    """
    compressed = compress(framing.codec, message.payload, other_client=framing.other_client)
    bounds = [len(compressed) * chunk_id // chunk_count for chunk_id in range(chunk_count + 1)]
    metadata = _outer_metadata(outer)
    _set_own_fields(metadata, message)
    metadata.uncompressed_size = len(message.payload)
    metadata.uuid = uuid
    metadata.num_chunks_from_msg = chunk_count
    metadata.total_chunk_msg_size = len(compressed)
    entries = []
    for chunk_id, (start, stop) in enumerate(itertools.pairwise(bounds)):
        metadata.chunk_id = chunk_id
        entries.append(_frame(metadata, compressed[start:stop], framing, message.extra_fields))
    return entries


def encode_marker(
    marker_type: int,
    *,
    txn_id: TxnId | None = None,
    payload: bytes = b"",
    publish_time: int = 0,
    framing: Framing = _PLAIN,
) -> bytes:
    """Encode a marker of the server, as Pulsar's `Markers` does.

    Args:
        marker_type: 10 to 13 for replicated subscriptions, 21 for commit, 22 for abort.
        txn_id: `(most, least)` bits, for markers of transactions.
        payload: The marker's own message, serialised.
        publish_time: Ms since the epoch.
        framing: Checksum and broker entry metadata.

    Returns:
        The entry.
    """
    outer = OuterFields(
        producer_name="pulsar.marker",
        sequence_id=0,
        publish_time=publish_time,
        marker_type=marker_type,
    )
    if txn_id is not None:
        outer["producer_name"] = "pulsar.txn.marker"
        outer["sequence_id"] = SERVER_SEQUENCE_ID
        outer["txnid_most_bits"], outer["txnid_least_bits"] = txn_id
    return encode_entry([Message(payload=payload)], batched=False, framing=framing, **outer)


def _outer_metadata(outer: OuterFields) -> ProtoMessage:
    required = {"producer_name": "producer", "sequence_id": 0, "publish_time": 1_700_000_000_000}
    return MessageMetadata(**(required | outer))


def _member(message: Message) -> bytes:
    metadata = SingleMessageMetadata(payload_size=len(message.payload))
    _set_own_fields(metadata, message)
    if message.compacted_out:
        metadata.compacted_out = True
    serialised: bytes = message.extra_fields + metadata.SerializeToString()
    return struct.pack(">I", len(serialised)) + serialised + message.payload


def _set_own_fields(metadata: ProtoMessage, message: Message) -> None:
    """Set what `SingleMessageMetadata` and `MessageMetadata` name alike."""
    for name in _OWN_FIELDS:
        value = getattr(message, name)
        if value is not None:
            setattr(metadata, name, value)
    if message.partition_key_b64_encoded:
        metadata.partition_key_b64_encoded = True
    for key, value in message.properties:
        metadata.properties.add(key=key, value=value)


def _frame(metadata: ProtoMessage, payload: bytes, framing: Framing, extra_fields: bytes) -> bytes:
    metadata.compression = CODECS.index(framing.codec)
    if framing.codec == "NONE":
        metadata.ClearField("compression")
    serialised: bytes = extra_fields + metadata.SerializeToString()
    rest = struct.pack(">I", len(serialised)) + serialised + payload
    if framing.checksum:
        rest = CHECKSUM_MAGIC + struct.pack(">I", crc32c.crc32c(rest)) + rest
    if framing.broker_metadata is None:
        return rest
    timestamp, index = framing.broker_metadata
    return _with_broker_metadata(BrokerEntryMetadata(broker_timestamp=timestamp, index=index), rest)


def _with_broker_metadata(metadata: ProtoMessage, rest: bytes) -> bytes:
    broker: bytes = metadata.SerializeToString()
    return BROKER_METADATA_MAGIC + struct.pack(">I", len(broker)) + broker + rest


def renumbered(entry: bytes, index: int) -> bytes:
    """The same entry, if it has broker metadata, with another index of its last message."""
    if not entry.startswith(BROKER_METADATA_MAGIC):
        return entry
    start = len(BROKER_METADATA_MAGIC) + 4
    (length,) = struct.unpack_from(">I", entry, start - 4)
    metadata = BrokerEntryMetadata.FromString(entry[start : start + length])
    metadata.index = index
    return _with_broker_metadata(metadata, entry[start + length :])
