"""The entry encoder: messages → entries, batched and compressed as by producers and brokers.

The layout is that of Pulsar's `Commands`, whole numbers big-endian:

========================================== =====================================================
Bytes                                      Present if
========================================== =====================================================
`0E 02`, u32 size, BrokerEntryMetadata     the broker adds it (PIP-70)
`0E 01`, u32 CRC32C of all that follows    always
u32 size, MessageMetadata                  always
payload, compressed                        always; may be empty
========================================== =====================================================

A batch's payload, before compression, repeats `{u32 size, SingleMessageMetadata, payload}`.
Messages are assigned to batches by the rules of the Java client (`BatchMessageContainerImpl`).
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import crc32c

from arrow_io.core.option_values import check_whole_number
from arrow_io.errors import EntryTooLargeError, OptionError
from arrow_io.messages.codecs import COMPRESSION_TYPES, MAX_MESSAGE_BYTES, NONE, ZLIB, compress
from arrow_io.messages.message_metadata import (
    Chunk,
    Message,
    batch_metadata,
    broker_entry_metadata,
    message_metadata,
    single_message_metadata,
)

DEFAULT_BATCH_MESSAGES: Final = 1000
DEFAULT_BATCH_BYTES: Final = 128 << 10
DEFAULT_MAX_MESSAGE_BYTES: Final = 5 << 20
"""Default of the Java client, and of a broker's `maxMessageSize`, like the two defaults above."""
MIN_MAX_MESSAGE_BYTES: Final = 1 << 10
"""Smallest `max_message_bytes` (inclusive): a chunk must have room besides its metadata."""
MAX_ENTRY_BYTES: Final = MAX_MESSAGE_BYTES - (1 << 10)
"""Longest entry to write: readers accept its length even with broker entry metadata."""

_BROKER_METADATA_MAGIC: Final = b"\x0e\x02"
_CHECKSUM_MAGIC: Final = b"\x0e\x01"
_MAX_COUNT: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryOptions:
    """The options for encoding messages as entries.

    Raises:
        OptionError: A value is not allowed.
    """

    compression: str = "NONE"
    """NONE, LZ4, ZLIB, ZSTD or SNAPPY, in any letter case."""
    batch_messages: int = DEFAULT_BATCH_MESSAGES
    """Maximum number of messages in a batch; 1 disables batches."""
    batch_bytes: int = DEFAULT_BATCH_BYTES
    """Maximum size of a batch before compression, including the metadata of its messages; a longer
    message is written on its own."""
    batch_delay_ms: int | None = 0
    """Maximum delay of a message's publish time after that of its batch's first message, in ms;
    None for any difference. A batch has one publish time, that of its first message, so 0 preserves
    all publish times. The Java client, which sets the times itself, waits 1 ms for messages
    (`batchingMaxPublishDelay`)."""
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    """Longest entry, without broker entry metadata (a broker's `maxMessageSize`)."""
    chunking: bool = False
    """Whether to store a longer message in chunks (PIP-37) instead of raising an error."""
    broker_metadata: bool = False
    """Whether entries have broker entry metadata (PIP-70): the index of their last message, from 0,
    and the broker's time, for which the publish time is used."""

    def __post_init__(self) -> None:
        codec: object = self.compression
        if not (isinstance(codec, str) and codec.upper() in COMPRESSION_TYPES):
            allowed = ", ".join(COMPRESSION_TYPES)
            message = f"compression must be one of {allowed}, not {self.compression!r}"
            raise OptionError(message)
        delay = () if self.batch_delay_ms is None else (("batch_delay_ms", 0, _MAX_COUNT),)
        for name, lowest, highest in (
            ("batch_messages", 1, _MAX_COUNT),
            ("batch_bytes", 1, MAX_ENTRY_BYTES),
            *delay,
            ("max_message_bytes", MIN_MAX_MESSAGE_BYTES, MAX_ENTRY_BYTES),
        ):
            check_whole_number(name, getattr(self, name), lowest, highest)


class WrittenEntry(NamedTuple):
    """An entry as it is stored in BookKeeper."""

    data: bytes
    publish_time_ms: int
    """Publish time of all its messages, ms since the epoch."""


class EntryWriter:
    """Writes the entries of one topic or partition; holds at most one batch in memory.

    Messages share a batch if the limits allow it, and if producer name, schema version and source
    cluster are the same. As in the Java client, a message with delayed delivery is written on its
    own, and a batch of one as a single message.

    Example:
        >>> writer = EntryWriter(EntryOptions(compression="lz4"))
        >>> for _ in range(2):
        ...     assert writer.add(Message(payload=b"value", publish_time_ms=0)) == []
        >>> [len(entry.data) for entry in writer.flush()]
        [62]
    """

    def __init__(self, options: EntryOptions | None = None) -> None:
        self._options = options or EntryOptions()
        self._compression = COMPRESSION_TYPES[self._options.compression.upper()]
        self._batch: list[_BatchMember] = []
        self._batch_bytes = 0
        self._message_count = 0
        self._next_index = 0
        self.retimed_messages = 0
        """Number of messages stored with another publish time, that of their batch."""
        self.retimed_ms = 0
        """Greatest difference between the two times, in ms."""

    @property
    def message_count(self) -> int:
        """Number of messages added."""
        return self._message_count

    @property
    def last_index(self) -> int:
        """Broker index of the last message written; -1 if there is none yet.

        As with a broker, a chunked message counts once per chunk.
        """
        return self._next_index - 1

    def add(self, message: Message) -> list[WrittenEntry]:
        """Add the next message.

        Returns:
            The entries that are now complete, in order; often none.

        Raises:
            EntryTooLargeError: The message is longer than 128 MiB; or its entry is too long, and
                chunking is off or its metadata leaves no room for a chunk.
            OptionError: A value has the wrong type, or is out of the range of its field.
        """
        member, joins_batch = self._number_message(message)
        self._message_count += 1
        entries = [] if joins_batch else self.flush()
        self._batch.append(member)
        self._batch_bytes += len(member.encoded)
        is_alone = message.deliver_at_ms is not None
        if is_alone or len(self._batch) >= self._options.batch_messages:
            entries += self.flush()
        return entries

    def flush(self) -> list[WrittenEntry]:
        """Return the entries of the messages that are still pending.

        Raises:
            EntryTooLargeError: See `add`.
        """
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        if len(batch) > 1:
            entry = self._batch_entry(batch)
            if len(entry) <= self._options.max_message_bytes:
                self._count_retimed(batch)
                return [self._store(entry, batch[0].message, len(batch))]
        return [entry for member in batch for entry in self._single_entries(member)]

    def _count_retimed(self, batch: list[_BatchMember]) -> None:
        stored_ms = batch[0].message.publish_time_ms
        differences = [abs(each.message.publish_time_ms - stored_ms) for each in batch]
        self.retimed_messages += sum(each > 0 for each in differences)
        self.retimed_ms = max(self.retimed_ms, *differences)

    def _number_message(self, message: Message) -> tuple[_BatchMember, bool]:
        """Encode a message as a batch member; also return whether it fits the open batch."""
        payload = message.payload or b""
        size_bytes = _size_bytes(payload)
        if size_bytes > MAX_MESSAGE_BYTES:
            text = f"the message has {size_bytes} bytes; at most {MAX_MESSAGE_BYTES} are allowed"
            raise EntryTooLargeError(text)
        requested_id = message.sequence_id
        sequence_id = self._message_count if requested_id is None else requested_id
        try:
            own = single_message_metadata(message, sequence_id)
            encoded = b"".join((len(own).to_bytes(4), own, payload))
            joins_batch = self._joins_batch(message, len(encoded))
            if not joins_batch:
                # Check the fields that the first message contributes to the batch's metadata.
                message_metadata(message, sequence_id, compression=NONE, uncompressed_bytes=0)
        except (AttributeError, OverflowError, TypeError, ValueError) as error:
            text = f"message {self._message_count} cannot be written: {error}"
            raise OptionError(text) from error
        return _BatchMember(message, sequence_id, encoded), joins_batch

    def _joins_batch(self, message: Message, member_bytes: int) -> bool:
        if not self._batch or message.deliver_at_ms is not None:
            return False
        first, allowed_ms = self._batch[0].message, self._options.batch_delay_ms
        delay_ms = message.publish_time_ms - first.publish_time_ms
        return (
            _batch_fields(message) == _batch_fields(first)
            and (allowed_ms is None or 0 <= delay_ms <= allowed_ms)
            and self._batch_bytes + member_bytes <= self._options.batch_bytes
        )

    def _batch_entry(self, batch: list[_BatchMember]) -> bytes:
        payload = b"".join(each.encoded for each in batch)
        metadata = batch_metadata(
            batch[0].message,
            (batch[0].sequence_id, batch[-1].sequence_id),
            message_count=len(batch),
            compression=self._compression,
            uncompressed_bytes=len(payload),
        )
        return encode_entry(metadata, compress(self._compression, payload))

    def _single_entries(self, member: _BatchMember) -> list[WrittenEntry]:
        """Encode a message that is not in a batch: as one entry, or one entry per chunk."""
        message, sequence_id, _ = member
        payload = message.payload or b""
        # The C++ and Python clients drop a message whose empty payload is compressed with ZLIB.
        codec = self._compression if payload or self._compression != ZLIB else NONE
        compressed = compress(codec, payload)

        def entry(data: bytes, chunk: Chunk | None = None) -> bytes:
            metadata = message_metadata(
                message,
                sequence_id,
                compression=codec,
                uncompressed_bytes=len(payload),
                chunk=chunk,
            )
            return encode_entry(metadata, data)

        whole = entry(compressed)
        limit = self._options.max_message_bytes
        if len(whole) <= limit:
            return [self._store(whole, message)]
        # Numbers at least as great as those of any chunk, for the longest possible metadata.
        count, total_bytes = len(compressed), len(compressed)
        uuid = f"{message.producer_name}-{sequence_id}"
        largest = Chunk(uuid=uuid, chunk_id=count, chunk_count=count, total_bytes=total_bytes)
        room = limit - len(entry(b"", largest))
        if room < 1 or not self._options.chunking:
            text = f"the message's entry has {len(whole)} bytes; at most {limit} are allowed"
            raise EntryTooLargeError(text)
        parts = [compressed[start : start + room] for start in range(0, total_bytes, room)]
        chunk = replace(largest, chunk_count=len(parts))
        return [
            self._store(entry(part, replace(chunk, chunk_id=chunk_id)), message)
            for chunk_id, part in enumerate(parts)
        ]

    def _store(self, entry: bytes, first: Message, message_count: int = 1) -> WrittenEntry:
        """Add the broker entry metadata."""
        self._next_index += message_count
        if self._options.broker_metadata:
            metadata = broker_entry_metadata(first.publish_time_ms, self.last_index)
            entry = b"".join((_BROKER_METADATA_MAGIC, len(metadata).to_bytes(4), metadata, entry))
        return WrittenEntry(entry, first.publish_time_ms)


class _BatchMember(NamedTuple):
    message: Message
    sequence_id: int
    encoded: bytes


def _size_bytes(payload: object) -> int:
    """Return the length of a payload; 0 for another type, which a later check refuses."""
    return len(payload) if isinstance(payload, Sized) else 0


def _batch_fields(message: Message) -> tuple[object, ...]:
    """Return the metadata that all messages of a batch share, except the publish time."""
    return message.producer_name, message.schema_version, message.replicated_from


def encode_entry(metadata: bytes, payload: bytes) -> bytes:
    """Encode an entry as a producer sends it, from its MessageMetadata and compressed payload."""
    head = len(metadata).to_bytes(4) + metadata
    checksum = crc32c.crc32c(payload, crc32c.crc32c(head))
    return b"".join((_CHECKSUM_MAGIC, checksum.to_bytes(4), head, payload))
