"""Frames of Confluent's serializers: the schema of a registry that a payload was written with.

    byte 0 | i32 schema id, big-endian | message indexes, for protobuf only | value

Message indexes are a number and as many indexes, all zigzag varints: the path of the message in its
file, nested messages after those that contain them. The number 0 stands for the path [0]
(Confluent's `MessageIndexes`).

In Pulsar 5.0 the metadata of an entry may also have the schema id (PIP-420). There it is the byte
`FF` (`SchemaIdUtil`) and what an implementation of the schema chose: the four bytes of the id, or
such a frame. Payloads then have no frame, or one with the same id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Self

from arrow_io.core import builds
from arrow_io.core.wording import counted
from arrow_io.errors import PayloadDecodeError, PulsarOffloadError, SchemaError
from arrow_io.messages import layout
from arrow_io.messages.entry_run import int64_view
from arrow_io.messages.message_columns import PayloadSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from arrow_io.messages.message_columns import MessageColumns

_MAGIC: Final = 0
_GUID_MAGIC: Final = 1
_ID_BYTES: Final = 4
_FRAME_BYTES: Final = 1 + _ID_BYTES
_VALUE_MAGIC: Final = b"\xff"
_KEY_VALUE_MAGIC: Final = b"\xfe"
_MAX_VARINT_BYTES: Final = 5
_MAX_INDEXES: Final = 64
"""Maximum length of a path; protobuf's parsers allow about as many nested messages."""


class Frame(NamedTuple):
    """The schema that a payload names.

    Attributes:
        schema_id: Its id in the registry, as a signed 32-bit number.
        indexes: Path of the protobuf message in the schema's file; None if it is not stored.
    """

    schema_id: int
    indexes: tuple[int, ...] | None = None

    @classmethod
    def parse(cls, frame: bytes) -> Self:
        """Parse the bytes of a frame that `read_frame` returned."""
        schema_id = int.from_bytes(frame[1:_FRAME_BYTES], signed=True)
        indexes = _read_indexes(frame, _FRAME_BYTES)
        return cls(schema_id, None if indexes is None else indexes[0])


def read_frame(payload: bytes | memoryview, *, has_indexes: bool) -> bytes:
    """Return the bytes of the frame at the start of a payload.

    `has_indexes` is whether message indexes follow the id.

    Raises:
        PayloadDecodeError: The payload does not start with a frame.
    """
    if len(payload) < _FRAME_BYTES:
        size = counted(len(payload), "byte")
        message = f"the payload has {size}, too few for a frame with a schema id"
        raise PayloadDecodeError(message)
    if payload[0] != _MAGIC:
        message = f"the payload starts with 0x{payload[0]:02x}, not with 0 and a schema id"
        raise PayloadDecodeError(message)
    if not has_indexes:
        return bytes(payload[:_FRAME_BYTES])
    indexes = _read_indexes(payload, _FRAME_BYTES)
    if indexes is None:
        message = "the message indexes after the schema id of the payload are malformed"
        raise PayloadDecodeError(message)
    return bytes(payload[: indexes[1]])


def entry_frame(schema_id: bytes) -> bytes:
    """Return the frame for the schema id in an entry's metadata; it may lack message indexes.

    Raises:
        PayloadDecodeError: The id is not one of Confluent's registry.
        SchemaError: It consists of two ids, of a key and a value.
    """
    if schema_id.startswith(_KEY_VALUE_MAGIC):
        message = "the key and the value have a schema id each, which is not supported"
        raise SchemaError(message)
    own_id = schema_id.removeprefix(_VALUE_MAGIC)
    if len(own_id) == _ID_BYTES:
        return bytes([_MAGIC]) + own_id
    if len(own_id) >= _FRAME_BYTES and own_id[0] == _MAGIC:
        is_whole = len(own_id) == _FRAME_BYTES
        indexes = None if is_whole else _read_indexes(own_id, _FRAME_BYTES)
        if is_whole or (indexes is not None and indexes[1] == len(own_id)):
            return own_id
    kind = "a GUID, which is not supported" if own_id[:1] == bytes([_GUID_MAGIC]) else "unknown"
    message = f"the schema id 0x{schema_id[:32].hex()} of the entry is {kind}"
    raise PayloadDecodeError(message)


def _read_indexes(data: bytes | memoryview, position: int) -> tuple[tuple[int, ...], int] | None:
    """Return message indexes and the position after them; None if they are malformed."""
    numbers: list[int] = []
    count = 1
    while len(numbers) < count:
        number = shift = 0
        while True:
            if position >= len(data) or shift >= 7 * _MAX_VARINT_BYTES:
                return None
            byte = data[position]
            position += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:  # noqa: PLR2004 - the bit that marks more bytes
                break
        number = number >> 1 ^ -(number & 1)
        if not numbers:
            count = 1 + number
            if not 0 <= number <= _MAX_INDEXES:
                return None
        numbers.append(number)
    return tuple(numbers[1:]) or (0,), position


def framed_sources(
    rows: MessageColumns,
    lose: Callable[[int, PulsarOffloadError], None],
    *,
    has_indexes: bool,
) -> Iterator[PayloadSource]:
    """Yield the sources of the values of all rows, without their frames.

    The name of each source's schema is its frame; None if no row of it has a value.

    Args:
        rows: The messages.
        lose: Called with each row that has no frame, and the error; raises or counts it.
        has_indexes: Whether frames have message indexes.
    """
    splitter = _Splitter(rows, lose, has_indexes=has_indexes)
    for source in rows.payload_sources(layout.SCHEMA_ID):
        yield from splitter.split(source)


class _Splitter:
    def __init__(
        self,
        rows: MessageColumns,
        lose: Callable[[int, PulsarOffloadError], None],
        *,
        has_indexes: bool,
    ) -> None:
        _, self._values = int64_view(max(1, rows.count))
        self._lose = lose
        self._has_indexes = has_indexes

    def split(self, source: PayloadSource) -> Iterator[PayloadSource]:
        """Yield the sources without frames of a source whose entries have one schema id or none."""
        row, stop, data, positions, schema_id = source
        values = self._values
        while row < stop:
            first = row
            while row < stop and positions[row] == layout.ABSENT:
                values[row] = layout.ABSENT
                row += 1
            if row == stop:
                yield PayloadSource(first, stop, data, values, None)
                return
            start, length = positions[row] >> 32, positions[row] & 0xFFFFFFFF
            try:
                frame, prefix = self._frame(data[start : start + length], schema_id)
            except (PayloadDecodeError, SchemaError) as error:
                self._lose(row, error)
                values[row] = layout.ABSENT
                row += 1
                yield PayloadSource(first, row, data, values, None)
                continue
            row = builds.in_use.columns.strip_prefix(
                data, positions, row, stop, prefix or frame[:_FRAME_BYTES], bool(prefix), values
            )
            yield PayloadSource(first, row, data, values, frame)

    def _frame(self, payload: memoryview, schema_id: bytes | None) -> tuple[bytes, bytes]:
        """Return the frame for a payload, and the bytes of it that the payload starts with."""
        if schema_id:
            outer = entry_frame(schema_id)
            if payload[:_FRAME_BYTES] != outer[:_FRAME_BYTES]:
                return outer, b""
        frame = read_frame(payload, has_indexes=self._has_indexes)
        return frame, frame
