"""The metadata encoder: a producer's message → the protobuf messages of its entry.

`MessageMetadata` describes an entry, and also its message if the entry is not a batch;
`SingleMessageMetadata` describes one message of a batch; the broker adds `BrokerEntryMetadata`
(PulsarApi.proto). Fields are written in the order of their numbers. Fields that the Java client
always writes are always written. So the bytes equal those of Pulsar's own serialiser (LightProto).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from types import NoneType
from typing import Final, TypeAlias

from arrow_io.messages.wire import varint_bytes

DEFAULT_PRODUCER_NAME: Final = "pulsar-offload"

_LONG_BYTES: Final = 8
_INT64_STOP: Final = 1 << 63
_UINT64_MASK: Final = (1 << 64) - 1
_LENGTH_DELIMITED: Final = 2
"""Wire type of text, bytes and messages; numbers have 0."""
_MAX_FIELD: Final = 30

_Properties: TypeAlias = Mapping[str, str] | tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message to be produced."""

    payload: bytes | None
    """The value's bytes; None for a null value, which deletes the key in a compacted topic."""
    publish_time_ms: int
    """Publish time, ms since the epoch."""
    key: str | bytes | None = None
    """Partition key; bytes are stored as Base64, and marked as such."""
    ordering_key: bytes | None = None
    properties: _Properties = ()
    """By name, or pairs of name and value; in order."""
    event_time_ms: int | None = None
    """Event time, ms since the epoch; None or 0 for none."""
    sequence_id: int | None = None
    """A signed 64-bit number; None for the number of messages written before this one."""
    producer_name: str = DEFAULT_PRODUCER_NAME
    schema_version: int | bytes | None = None
    """Schema version in Pulsar's registry; bytes for a version of another registry."""
    replicated_from: str | None = None
    """Cluster that the message was replicated from."""
    deliver_at_ms: int | None = None
    """Earliest delivery time, ms since the epoch."""
    is_null_key: bool = False
    """Whether the key of a SEPARATED KEY_VALUE is null."""

    @property
    def key_text(self) -> str | None:
        """The key as it is stored, and as a client's `getKey()` returns it."""
        return _key_text(self.key)


_BYTES: Final = (bytes, bytearray, memoryview)
_FIELD_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "payload": (*_BYTES, NoneType),
    "publish_time_ms": (Integral,),
    "key": (str, bytes, NoneType),
    "ordering_key": (*_BYTES, NoneType),
    "properties": (Mapping, Sequence),
    "event_time_ms": (Integral, NoneType),
    "sequence_id": (Integral, NoneType),
    "producer_name": (str,),
    "schema_version": (Integral, bytes, NoneType),
    "replicated_from": (str, NoneType),
    "deliver_at_ms": (Integral, NoneType),
}


def wrong_field(message: Message) -> str | None:
    """Return the name of a field whose value has the wrong type; None if all are right.

    Example:
        >>> wrong_field(Message(payload="text", publish_time_ms=0))
        'payload'
    """
    for name, types in _FIELD_TYPES.items():
        if not isinstance(getattr(message, name), types):
            return name
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """The part of a message that an entry holds (PIP-37)."""

    uuid: str
    """Identity that all chunks of the message share."""
    chunk_id: int
    chunk_count: int
    total_bytes: int
    """Length of the whole payload, compressed."""


def single_message_metadata(message: Message, sequence_id: int) -> bytes:
    """Encode the SingleMessageMetadata of a message in a batch.

    Raises:
        TypeError: A value of the message has the wrong type.
        AttributeError: Likewise.
        ValueError: A value is out of its field's range, or text is not encodable as UTF-8.
    """
    return single_message_fields(
        len(message.payload or b""),
        sequence_id=sequence_id,
        key=message.key,
        ordering_key=message.ordering_key,
        properties=message.properties,
        event_time_ms=message.event_time_ms,
        is_null=message.payload is None,
        is_null_key=message.is_null_key,
    )


def single_message_fields(
    payload_bytes: int,
    *,
    sequence_id: int | None = None,
    key: str | bytes | None,
    ordering_key: bytes | None,
    properties: _Properties,
    event_time_ms: int | None,
    is_null: bool,
    is_null_key: bool = False,
) -> bytes:
    """Encode a SingleMessageMetadata from the fields of a `Message`, without creating one.

    Raises the errors of `single_message_metadata`.
    """
    # Most messages have few of the fields: skip the calls for missing ones.
    fields = [_properties(1, properties)] if properties else []
    if key is not None:
        fields.append(_text(2, _key_text(key)))
    fields.append(_number(3, payload_bytes))
    if event_time_ms:
        fields.append(_time(5, event_time_ms))
    if key is not None:
        # The Java client writes it for every key, true or false.
        fields.append(_number(6, isinstance(key, bytes)))
    if ordering_key is not None:
        fields.append(_data(7, ordering_key))
    if sequence_id is not None:
        fields.append(_number(8, _unsigned(sequence_id)))
    if is_null:
        fields.append(_flag(9, is_set=True))
    if is_null_key:
        fields.append(_flag(10, is_set=True))
    return b"".join(fields)


def batch_metadata(
    first: Message,
    sequence_ids: tuple[int, int],
    *,
    message_count: int,
    compression: int,
    uncompressed_bytes: int,
) -> bytes:
    """Encode the MessageMetadata of a batch.

    Args:
        first: First message of the batch. Its keys are written here too, as a hint to the broker.
        sequence_ids: Sequence ids of the first and the last message.
        message_count: Number of messages in the batch.
        compression: CompressionType of the payload; 0 is left out.
        uncompressed_bytes: Length of the payload before compression; written if it is compressed.

    Raises:
        TypeError: A value of the message has the wrong type.
        AttributeError: Likewise.
        ValueError: A value is out of its field's range, or text is not encodable as UTF-8.
        OverflowError: The schema version is not a signed 64-bit number.
    """
    lowest, highest = sequence_ids
    return b"".join(
        (
            _data(1, first.producer_name.encode()),
            _number(2, _unsigned(lowest)),
            _number(3, _milliseconds(first.publish_time_ms)),
            _text(5, first.replicated_from),
            _text(6, first.key_text),
            _number(8, compression or None),
            _number(9, uncompressed_bytes if compression else None),
            _number(11, message_count),
            _data(16, _schema_version(first)),
            b"" if first.key is None else _number(17, isinstance(first.key, bytes)),
            _data(18, first.ordering_key),
            _number(24, _unsigned(highest)),
        )
    )


def message_metadata(
    message: Message,
    sequence_id: int,
    *,
    compression: int,
    uncompressed_bytes: int,
    chunk: Chunk | None = None,
) -> bytes:
    """Encode the MessageMetadata of a message that is not a member of a batch.

    Arguments and errors are those of `batch_metadata`, but `uncompressed_bytes` is always written.
    `chunk` is the part of the message that the entry holds; None for all of it.
    """
    return b"".join(
        (
            _data(1, message.producer_name.encode()),
            _number(2, _unsigned(sequence_id)),
            _number(3, _milliseconds(message.publish_time_ms)),
            _properties(4, message.properties),
            _text(5, message.replicated_from),
            _text(6, message.key_text),
            _number(8, compression or None),
            _number(9, uncompressed_bytes),
            _time(12, message.event_time_ms or None),
            _data(16, _schema_version(message)),
            b"" if message.key is None else _number(17, isinstance(message.key, bytes)),
            _data(18, message.ordering_key),
            _time(19, message.deliver_at_ms),
            _flag(25, is_set=message.payload is None),
            b"" if chunk is None else _chunk_fields(chunk),
            _flag(30, is_set=message.is_null_key),
        )
    )


def encryption_fields(keys: Sequence[tuple[str, bytes]], algorithm: str, param: bytes) -> bytes:
    """Encode the additional MessageMetadata fields of an encrypted entry.

    `keys` are pairs of a key pair's name and the data key wrapped with its public key; `algorithm`
    is the name of the cipher, or empty; `param` is the initialisation vector.
    """
    wrapped = (_data(13, _data(1, name.encode()) + _data(2, key)) for name, key in keys)
    return b"".join((*wrapped, _text(14, algorithm or None), _data(15, param)))


def broker_entry_metadata(broker_timestamp_ms: int, index: int) -> bytes:
    """Encode the BrokerEntryMetadata of an entry (PIP-70).

    The time is when the broker stored it, `index` the broker index of its last message.

    Raises:
        ValueError: The time is before 1970.
    """
    return _number(1, _milliseconds(broker_timestamp_ms)) + _number(2, index)


def _schema_version(message: Message) -> bytes | None:
    """Return a schema version as it is stored: 8 bytes, big-endian (`LongSchemaVersion`)."""
    version = message.schema_version
    if version is None or isinstance(version, bytes):
        return version
    return version.to_bytes(_LONG_BYTES, signed=True)


def _chunk_fields(chunk: Chunk) -> bytes:
    return (
        _text(26, chunk.uuid)
        + _number(27, chunk.chunk_count)
        + _number(28, chunk.total_bytes)
        + _number(29, chunk.chunk_id)
    )


def _key_text(key: str | bytes | None) -> str | None:
    return base64.b64encode(key).decode() if isinstance(key, bytes) else key


def _properties(field: int, properties: _Properties) -> bytes:
    """Encode properties as KeyValue messages, in their order."""
    pairs = properties.items() if isinstance(properties, Mapping) else properties
    return b"".join(
        [_data(field, _data(1, name.encode()) + _data(2, value.encode())) for name, value in pairs]
    )


def _unsigned(number: int) -> int:
    """Convert a signed 64-bit number to the unsigned number with the same bits."""
    if not -_INT64_STOP <= number < _INT64_STOP:
        message = f"{number} is not a signed 64-bit number"
        raise ValueError(message)
    return number & _UINT64_MASK


def _number(field: int, number: int | None) -> bytes:
    return b"" if number is None else _NUMBER_TAGS[field] + varint_bytes(number)


def _time(field: int, time_ms: int | None) -> bytes:
    return b"" if time_ms is None else _number(field, _milliseconds(time_ms))


def _milliseconds(time_ms: int) -> int:
    """Check that a time is one that clients, which read a signed number, can represent."""
    if not 0 <= time_ms < _INT64_STOP:
        message = f"{time_ms} ms is not a time from 1970 on"
        raise ValueError(message)
    return time_ms


def _flag(field: int, *, is_set: bool) -> bytes:
    return _number(field, 1) if is_set else b""


def _text(field: int, text: str | None) -> bytes:
    return b"" if text is None else _data(field, text.encode())


def _data(field: int, data: bytes | None) -> bytes:
    if data is None:
        return b""
    return _DATA_TAGS[field] + varint_bytes(len(data)) + data


_NUMBER_TAGS: Final = tuple(varint_bytes(field << 3) for field in range(_MAX_FIELD + 1))
_DATA_TAGS: Final = tuple(
    varint_bytes(field << 3 | _LENGTH_DELIMITED) for field in range(_MAX_FIELD + 1)
)
