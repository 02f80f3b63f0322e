"""Entries to messages, slowly and plainly: the oracle of the decoder under test.

In come the entries of a topic's ledgers, as BookKeeper holds them; out come the messages that a
Pulsar client would deliver. Each step is written from the layout of an entry (Pulsar's `Commands`),
from `PulsarApi.proto` by way of the protobuf library, and from `ConsumerImpl` for chunked messages;
nothing is shared with the decoder, nothing is fast.

    [ 0E 02 | u32 size B | BrokerEntryMetadata (B bytes) ]      optional
    [ 0E 01 | u32 crc32c of all that follows ]                  optional
      u32 metadata size N | MessageMetadata (N bytes) | payload (the rest)

A batch's payload, decompressed, is one `{u32 size, SingleMessageMetadata, payload}` per message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import crc32c

from tests.support.codecs import CODECS, decompress
from tests.support.pulsar_proto import (
    BrokerEntryMetadata,
    MessageMetadata,
    ProtoMessage,
    SingleMessageMetadata,
)

Ledgers: TypeAlias = Sequence[tuple[int, Sequence[bytes]]]
"""`(ledger_id, entries)` in the topic's order; the position in `entries` is the entry id."""

Position: TypeAlias = tuple[int, int]
"""`(ledger_id, entry_id)`."""

TxnId: TypeAlias = tuple[int, int]
"""`(txnid_most_bits, txnid_least_bits)`, both unsigned."""

BROKER_METADATA_MAGIC: Final = b"\x0e\x02"
CHECKSUM_MAGIC: Final = b"\x0e\x01"
TXN_COMMIT: Final = 21
TXN_ABORT: Final = 22
NOT_BATCHED: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceMessage:
    """One message as Pulsar's client would deliver it.

    Attributes:
        ledger_id: Ledger of the message; of a chunked message, of its last chunk.
        entry_id: Entry of the message; of a chunked message, of its last chunk.
        batch_index: 0-based place in its batch, counting members compacted out; -1: not batched.
        first_chunk: Position of the first chunk; None: the message is not chunked.
        publish_time_ms: Producer's clock, ms since the epoch.
        event_time_ms: Ms since the epoch; 0: none.
        producer_name: Name of the producer.
        sequence_id: As the signed 64-bit number that Java shows.
        key: Partition key as text, Base64 if `key_b64`; None: no key.
        key_b64: Whether `key` is the Base64 of bytes.
        ordering_key: Ordering key; None: none.
        properties: Properties; of several with one name the last.
        schema_version: Opaque bytes, usually 8; None: none.
        broker_time_ms: When the broker took the entry, ms since the epoch; None: not recorded.
        broker_index: 0-based offset of the message in the topic, by the rule of Pulsar's client;
            None: not recorded. Brokers count a batch in a transaction as one message, so there the
            indexes of a batch's earlier messages repeat those before, down to below 0.
        deliver_at_ms: Delayed delivery, ms since the epoch; None: none.
        replicated_from: Source cluster; None: published here.
        txn_id: Transaction of the message; None: none.
        null_value: Whether the value is null.
        null_partition_key: Whether the key is null by intent.
        payload: Decompressed value; None: null, or encrypted.
        encrypted: Whether the payload is encrypted.
    """

    ledger_id: int
    entry_id: int
    batch_index: int
    first_chunk: Position | None
    publish_time_ms: int
    event_time_ms: int
    producer_name: str
    sequence_id: int
    key: str | None
    key_b64: bool
    ordering_key: bytes | None
    properties: dict[str, str]
    schema_version: bytes | None
    broker_time_ms: int | None
    broker_index: int | None
    deliver_at_ms: int | None
    replicated_from: str | None
    txn_id: TxnId | None
    null_value: bool
    null_partition_key: bool
    payload: bytes | None
    encrypted: bool


@dataclass(frozen=True, slots=True)
class EncryptedBatch:
    """An entry whose messages cannot be told apart, because the batch itself is encrypted."""

    ledger_id: int
    entry_id: int
    message_count: int
    key_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry taken apart as far as it needs no other entry and no key."""

    position: Position
    broker: ProtoMessage
    metadata: ProtoMessage
    payload: bytes

    @property
    def txn_id(self) -> TxnId | None:
        if self.metadata.HasField("txnid_most_bits") and self.metadata.HasField("txnid_least_bits"):
            return (self.metadata.txnid_most_bits, self.metadata.txnid_least_bits)
        return None

    @property
    def is_marker(self) -> bool:
        return bool(self.metadata.HasField("marker_type"))

    @property
    def is_batch(self) -> bool:
        return bool(self.metadata.HasField("num_messages_in_batch"))

    @property
    def is_encrypted(self) -> bool:
        return len(self.metadata.encryption_keys) > 0


@dataclass(slots=True)
class _ChunkedMessage:
    """A chunked message whose chunks are still coming in."""

    first_chunk: Position
    last_chunk_id: int
    payload: bytes


def decode_topic(
    ledgers: Ledgers, *, transactions: Literal["committed", "all"] = "committed"
) -> list[ReferenceMessage]:
    """Decode the messages of a topic, in the order of their positions.

    Markers never become messages. Encrypted batches give none: see `encrypted_batches`.

    Args:
        ledgers: The topic's ledgers from the first on.
        transactions: "committed" leaves out messages of transactions that were aborted or whose
            marker is not in `ledgers`; "all" keeps them.

    Returns:
        The messages.

    Raises:
        ValueError: An entry breaks the layout, or its checksum differs.
    """
    messages: list[ReferenceMessage] = []
    open_chunked: dict[str, _ChunkedMessage] = {}
    for entry in _visible_entries(ledgers, transactions):
        if entry.metadata.num_chunks_from_msg > 1:
            complete = _join_chunk(open_chunked, entry)
            if complete is not None:
                messages.append(_single(entry, complete.payload, complete.first_chunk))
        elif not entry.is_batch:
            messages.append(_single(entry, entry.payload, None))
        elif not entry.is_encrypted:
            messages.extend(_batch(entry))
    return messages


def encrypted_batches(ledgers: Ledgers) -> list[EncryptedBatch]:
    """List the encrypted batches, which `decode_topic` leaves out, in the order of positions."""
    return [
        EncryptedBatch(
            *entry.position,
            message_count=entry.metadata.num_messages_in_batch,
            key_names=tuple(key.key for key in entry.metadata.encryption_keys),
        )
        for entry in _visible_entries(ledgers, "committed")
        if entry.is_batch and entry.is_encrypted
    ]


def open_transactions(ledgers: Ledgers) -> list[TxnId]:
    """List the transactions with messages but no marker in `ledgers`, by their first message."""
    entries = list(_entries(ledgers))
    outcomes = _outcomes(entries)
    used = dict.fromkeys(e.txn_id for e in entries if e.txn_id is not None and not e.is_marker)
    return [txn_id for txn_id in used if txn_id not in outcomes]


def first_open_position(ledgers: Ledgers) -> Position | None:
    """Where the first message of a transaction without a marker in `ledgers` stands, if any is."""
    still_open = set(open_transactions(ledgers))
    entries = _entries(ledgers)
    places = (e.position for e in entries if e.txn_id in still_open and not e.is_marker)
    return next(places, None)


def _entries(ledgers: Ledgers) -> Iterator[_Entry]:
    for ledger_id, entries in ledgers:
        for entry_id, data in enumerate(entries):
            yield _parse_entry((ledger_id, entry_id), data)


def _parse_entry(position: Position, data: bytes) -> _Entry:
    broker = BrokerEntryMetadata()
    rest = data
    if rest.startswith(BROKER_METADATA_MAGIC):
        (size,) = struct.unpack_from(">I", rest, 2)
        broker = _parse(BrokerEntryMetadata, _exactly(rest[6:], size))
        rest = rest[6 + size :]
    if rest.startswith(CHECKSUM_MAGIC):
        (checksum,) = struct.unpack_from(">I", rest, 2)
        rest = rest[6:]
        if crc32c.crc32c(rest) != checksum:
            message = f"checksum of entry {position} differs"
            raise ValueError(message)
    (size,) = struct.unpack_from(">I", rest)
    metadata = _parse(MessageMetadata, _exactly(rest[4:], size))
    return _Entry(position, broker, metadata, rest[4 + size :])


def _parse(message_class: ProtoMessage, data: bytes) -> ProtoMessage:
    message = message_class.FromString(data)
    # The library parses a message without its required fields and leaves the check to the caller.
    if not message.IsInitialized():
        text = f"{message_class.__name__} lacks a required field"
        raise ValueError(text)
    return message


def _exactly(data: bytes, size: int) -> bytes:
    if not 0 <= size <= len(data):
        message = f"{size} bytes announced where {len(data)} are left"
        raise ValueError(message)
    return data[:size]


def _outcomes(entries: Sequence[_Entry]) -> dict[TxnId, int]:
    return {
        entry.txn_id: entry.metadata.marker_type
        for entry in entries
        if entry.txn_id is not None and entry.metadata.marker_type in {TXN_COMMIT, TXN_ABORT}
    }


def _visible_entries(
    ledgers: Ledgers, transactions: Literal["committed", "all"]
) -> Iterator[_Entry]:
    entries = list(_entries(ledgers))
    outcomes = _outcomes(entries)
    for entry in entries:
        hidden = (
            transactions == "committed"
            and entry.txn_id is not None
            and outcomes.get(entry.txn_id) != TXN_COMMIT
        )
        if not entry.is_marker and not hidden:
            yield entry


def _join_chunk(open_chunked: dict[str, _ChunkedMessage], entry: _Entry) -> _ChunkedMessage | None:
    """Add a chunk to its message, by the rules of `ConsumerImpl`; return the message if complete.

    Chunk 0 opens the message (again), the next chunk extends it, an earlier one is a duplicate and
    ignored, and a gap loses the message.
    """
    metadata = entry.metadata
    if metadata.chunk_id == 0:
        open_chunked[metadata.uuid] = _ChunkedMessage(entry.position, 0, entry.payload)
        return None
    message = open_chunked.get(metadata.uuid)
    if message is None or metadata.chunk_id <= message.last_chunk_id:
        return None
    if metadata.chunk_id > message.last_chunk_id + 1:
        del open_chunked[metadata.uuid]
        return None
    message.payload += entry.payload
    message.last_chunk_id = metadata.chunk_id
    if metadata.chunk_id < metadata.num_chunks_from_msg - 1:
        return None
    del open_chunked[metadata.uuid]
    # The total is of the compressed bytes before encryption, which lengthens each chunk.
    if not entry.is_encrypted and len(message.payload) != metadata.total_chunk_msg_size:
        text = f"chunks of {metadata.uuid} hold {len(message.payload)} bytes"
        raise ValueError(text)
    return message


def _single(entry: _Entry, payload: bytes, first_chunk: Position | None) -> ReferenceMessage:
    """The message of an entry that is no batch: all its values stand in MessageMetadata."""
    value = None if entry.is_encrypted else _decompress(entry.metadata, payload)
    return _message(
        entry, own=entry.metadata, batch_index=NOT_BATCHED, value=value, first_chunk=first_chunk
    )


def _batch(entry: _Entry) -> Iterator[ReferenceMessage]:
    """The messages of a batch, whose own values stand in their SingleMessageMetadata."""
    rest = _decompress(entry.metadata, entry.payload)
    for batch_index in range(entry.metadata.num_messages_in_batch):
        (size,) = struct.unpack_from(">I", rest)
        own = _parse(SingleMessageMetadata, _exactly(rest[4:], size))
        rest = rest[4 + size :]
        value = _exactly(rest, own.payload_size)
        rest = rest[own.payload_size :]
        if not own.compacted_out:
            yield _message(entry, own=own, batch_index=batch_index, value=value, first_chunk=None)
    if rest:
        message = f"{len(rest)} bytes follow the last message of batch {entry.position}"
        raise ValueError(message)


def _decompress(metadata: ProtoMessage, payload: bytes) -> bytes:
    return decompress(CODECS[metadata.compression], payload, metadata.uncompressed_size)


def _message(
    entry: _Entry,
    *,
    own: ProtoMessage,
    batch_index: int,
    value: bytes | None,
    first_chunk: Position | None,
) -> ReferenceMessage:
    """Put a message together.

    Args:
        entry: The entry of the message, or of its last chunk.
        own: Where the message's own values stand; the entry's MessageMetadata if not batched.
        batch_index: 0-based place in the batch, or -1.
        value: The decompressed payload; None: encrypted.
        first_chunk: Position of the first chunk of a chunked message.
    """
    outer = entry.metadata

    def own_or_outer(name: str) -> ProtoMessage:
        return getattr(own if own.HasField(name) else outer, name)

    null_value = bool(own_or_outer("null_value"))
    return ReferenceMessage(
        ledger_id=entry.position[0],
        entry_id=entry.position[1],
        batch_index=batch_index,
        first_chunk=first_chunk,
        publish_time_ms=outer.publish_time,
        event_time_ms=own_or_outer("event_time"),
        producer_name=outer.producer_name,
        sequence_id=_signed(own_or_outer("sequence_id")),
        key=_optional(own, "partition_key"),
        key_b64=own.HasField("partition_key") and own.partition_key_b64_encoded,
        ordering_key=_optional(own, "ordering_key"),
        properties={pair.key: pair.value for pair in own.properties},
        schema_version=_optional(outer, "schema_version"),
        broker_time_ms=_optional(entry.broker, "broker_timestamp"),
        broker_index=_broker_index(entry, batch_index),
        deliver_at_ms=_optional(outer, "deliver_at_time"),
        replicated_from=_optional(outer, "replicated_from"),
        txn_id=entry.txn_id,
        null_value=null_value,
        null_partition_key=bool(own_or_outer("null_partition_key")),
        payload=None if null_value else value,
        encrypted=entry.is_encrypted,
    )


def _optional(message: ProtoMessage, name: str) -> ProtoMessage:
    return getattr(message, name) if message.HasField(name) else None


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def _broker_index(entry: _Entry, batch_index: int) -> int | None:
    """The index that the broker gave the entry is that of the entry's last message."""
    if not entry.broker.HasField("index"):
        return None
    index: int = entry.broker.index
    if batch_index != NOT_BATCHED:
        index -= entry.metadata.num_messages_in_batch - 1 - batch_index
    return index
