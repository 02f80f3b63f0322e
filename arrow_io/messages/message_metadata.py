"""What a producer says of a message → the protobuf messages that stand in its entry.

`MessageMetadata` describes an entry, and its message if it is not a batch; `SingleMessageMetadata`
one message of a batch; `BrokerEntryMetadata` is what the broker adds (PulsarApi.proto). Fields are
written in the order of their numbers, and those that the Java client always writes always, so the
bytes are those of Pulsar's own serialiser (LightProto).
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
"""Wire type of text, bytes and messages; that of numbers is 0."""
_MAX_FIELD: Final = 30

_Properties: TypeAlias = Mapping[str, str] | tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What a producer sends."""

    payload: bytes | None
    """The value's bytes; None for a null value, which a compacted topic takes as a deletion."""
    publish_time_ms: int
    """When it was published, ms since the epoch."""
    key: str | bytes | None = None
    """Partition key; bytes are stored as Base64, and marked so."""
    ordering_key: bytes | None = None
    properties: _Properties = ()
    """By name, or pairs of name and value; in order."""
    event_time_ms: int | None = None
    """Ms since the epoch; None or 0: none."""
    sequence_id: int | None = None
    """A signed 64-bit number; None: how many messages were written before this one."""
    producer_name: str = DEFAULT_PRODUCER_NAME
    schema_version: int | bytes | None = None
    """Version of its schema in Pulsar's registry; bytes are those of another registry."""
    replicated_from: str | None = None
    """Cluster that it was replicated from."""
    deliver_at_ms: int | None = None
    """Time before which it is not to be delivered, ms since the epoch."""
    is_null_key: bool = False
    """Whether the key of a KEY_VALUE whose parts are SEPARATED is null."""

    @property
    def key_text(self) -> str | None:
        """The key as it is stored, and as a client's `getKey()` gives it."""
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
    """Name of a field whose value has the wrong type; None if all are right.

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
    """Which part of a message an entry holds (PIP-37)."""

    uuid: str
    """Identity that the message's chunks share."""
    chunk_id: int
    chunk_count: int
    total_bytes: int
    """Length of the whole payload, compressed."""


def single_message_metadata(message: Message, sequence_id: int) -> bytes:
    """The SingleMessageMetadata of a message in a batch.

    Raises:
        TypeError: A value of the message is of the wrong type.
        AttributeError: Likewise.
        ValueError: A value is out of its field's range, or is text that UTF-8 cannot hold.
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
    """The SingleMessageMetadata of what a `Message` would have; no object is made for each message.

    Raises:
        TypeError: See `single_message_metadata`.
        AttributeError: Likewise.
        ValueError: Likewise.
    """
    # Most messages have few of the fields: what is not there is not passed on.
    fields = [_properties(1, properties)] if properties else []
    if key is not None:
        fields.append(_text(2, _key_text(key)))
    fields.append(_number(3, payload_bytes))
    if event_time_ms:
        fields.append(_time(5, event_time_ms))
    if key is not None:
        # Java's client writes it for every key, true or false.
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
    """The MessageMetadata of a batch.

    Args:
        first: First message of the batch. Its keys stand here too, as a hint to the broker.
        sequence_ids: Those of the first and of the last message.
        message_count: Messages of the batch.
        compression: CompressionType of the payload; 0 is left out.
        uncompressed_bytes: Length of the payload before compression; written if it is compressed.

    Raises:
        TypeError: A value of the message is of the wrong type.
        AttributeError: Likewise.
        ValueError: A value is out of its field's range, or is text that UTF-8 cannot hold.
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
    """The MessageMetadata of a message that is not a member of a batch.

    Args:
        message: The message.
        sequence_id: Its sequence id.
        compression: CompressionType of the payload; 0 is left out.
        uncompressed_bytes: Length of the payload before compression.
        chunk: Which part of the message the entry holds; None: all of it.

    Raises:
        TypeError: A value of the message is of the wrong type.
        AttributeError: Likewise.
        ValueError: A value is out of its field's range, or is text that UTF-8 cannot hold.
        OverflowError: The schema version is not a signed 64-bit number.
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
    """What the MessageMetadata of an encrypted entry has besides.

    Args:
        keys: For each key pair its name, and the data key as its public key wraps it.
        algorithm: Name of the cipher; empty if it is not told.
        param: Initialisation vector.
    """
    wrapped = (_data(13, _data(1, name.encode()) + _data(2, key)) for name, key in keys)
    return b"".join((*wrapped, _text(14, algorithm or None), _data(15, param)))


def broker_entry_metadata(broker_timestamp_ms: int, index: int) -> bytes:
    """The BrokerEntryMetadata of an entry (PIP-70).

    Args:
        broker_timestamp_ms: When the broker stored it, ms since the epoch.
        index: The broker's running number of its last message.

    Raises:
        ValueError: The time is before 1970.
    """
    return _number(1, _milliseconds(broker_timestamp_ms)) + _number(2, index)


def _schema_version(message: Message) -> bytes | None:
    """A message's schema version as it is stored: 8 bytes, big-endian (`LongSchemaVersion`)."""
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
    """KeyValue messages, in the order of the properties."""
    pairs = properties.items() if isinstance(properties, Mapping) else properties
    return b"".join(
        [_data(field, _data(1, name.encode()) + _data(2, value.encode())) for name, value in pairs]
    )


def _unsigned(number: int) -> int:
    """A signed 64-bit number as the unsigned one of the same bits."""
    if not -_INT64_STOP <= number < _INT64_STOP:
        message = f"{number} is not a signed 64-bit number"
        raise ValueError(message)
    return number & _UINT64_MASK


def _number(field: int, number: int | None) -> bytes:
    """A field with a number, or nothing."""
    return b"" if number is None else _NUMBER_TAGS[field] + varint_bytes(number)


def _time(field: int, time_ms: int | None) -> bytes:
    """A field with a time, or nothing."""
    return b"" if time_ms is None else _number(field, _milliseconds(time_ms))


def _milliseconds(time_ms: int) -> int:
    """A time as it is stored, which clients read as a signed number."""
    if not 0 <= time_ms < _INT64_STOP:
        message = f"{time_ms} ms is not a time after 1970 began"
        raise ValueError(message)
    return time_ms


def _flag(field: int, *, is_set: bool) -> bytes:
    return _number(field, 1) if is_set else b""


def _text(field: int, text: str | None) -> bytes:
    return b"" if text is None else _data(field, text.encode())


def _data(field: int, data: bytes | None) -> bytes:
    """A field with bytes, or nothing."""
    if data is None:
        return b""
    return _DATA_TAGS[field] + varint_bytes(len(data)) + data


_NUMBER_TAGS: Final = tuple(varint_bytes(field << 3) for field in range(_MAX_FIELD + 1))
_DATA_TAGS: Final = tuple(
    varint_bytes(field << 3 | _LENGTH_DELIMITED) for field in range(_MAX_FIELD + 1)
)
