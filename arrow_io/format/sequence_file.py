"""SequenceFiles (Hadoop's `SequenceFile`, version 6), as Pulsar's filesystem offloader writes them.

A header, which says how the records are compressed, then records or blocks up to the end. Numbers
are big-endian. A *VInt* is the variable-length integer of Hadoop's `WritableUtils`, and a *Text* is
a VInt with the number of bytes, then UTF-8.

====== ============== ===========================================================================
Size   Field          Value
====== ============== ===========================================================================
3      magic          `SEQ`
1      version        6
Text   key class      `org.apache.hadoop.io.LongWritable`: an i64
Text   value class    `…BytesWritable` (i32 length, bytes) or `…LongWritable`
1      compressed     whether values are compressed
1      in blocks      whether blocks of records are compressed
Text   codec          only if compressed: `…compress.DefaultCodec`, ZLIB streams (RFC 1950)
4      metadata       number of pairs of Text, 0
16     sync marker    random bytes of this file
====== ============== ===========================================================================

**Records** (`NONE`, `RECORD`): i32 length of key and value, i32 length of the key (8), key, value.
With `RECORD`, the value is a ZLIB stream of the serialized value. A length of -1 is an *escape*:
the sync marker follows, then the next record.

**Blocks** (`BLOCK`): an escape with the sync marker, a VInt with the number of records, then four
buffers. Each is a VInt with the number of its bytes, and a ZLIB stream of: the lengths of the keys
as VInts, the keys, the lengths of the serialized values as VInts, the values.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from arrow_io.core.wording import counted
from arrow_io.errors import CorruptBlockError, TruncatedObjectError, UnknownFormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

SYNC_MARKER_BYTES: Final = 16
ESCAPE: Final = b"\xff\xff\xff\xff"
ESCAPE_BYTES: Final = len(ESCAPE) + SYNC_MARKER_BYTES
"""Length of an escape with the sync marker."""
KEY_BYTES: Final = 8
RECORD_HEADER_BYTES: Final = 8 + KEY_BYTES
"""Length of a record's two lengths and its key."""
MAX_VINT_BYTES: Final = 9
MAX_HEADER_BYTES: Final = 1 << 10
"""Bytes in which the header of any accepted file ends."""

BYTES_CLASS: Final = "org.apache.hadoop.io.BytesWritable"
LONG_CLASS: Final = "org.apache.hadoop.io.LongWritable"
CODEC: Final = "org.apache.hadoop.io.compress.DefaultCodec"
_MAGIC: Final = b"SEQ"
_VERSION: Final = 6
_MAX_ONE_BYTE: Final = 127
_MIN_ONE_BYTE: Final = -112
_MIN_POSITIVE: Final = -120
"""First bytes from here to `_MIN_ONE_BYTE` announce the bytes of a positive number."""
_MAX_RATIO: Final = 1032
"""Maximum number of bytes that one byte of a ZLIB stream can become."""


class Compression(StrEnum):
    """`SequenceFile.CompressionType`."""

    NONE = "none"
    RECORD = "record"
    BLOCK = "block"


@dataclass(frozen=True, slots=True)
class SequenceFileHeader:
    """The header of a SequenceFile with `LongWritable` keys.

    Attributes:
        value_class: `BYTES_CLASS` or `LONG_CLASS`.
        compression: How records are compressed.
        sync_marker: The 16 random bytes of this file.
    """

    value_class: str
    compression: Compression
    sync_marker: bytes

    @property
    def escape(self) -> bytes:
        """The escape with the sync marker, as it precedes blocks and some records."""
        return ESCAPE + self.sync_marker

    def serialize(self) -> bytes:
        """Return the bytes as Hadoop writes them."""
        is_compressed = self.compression is not Compression.NONE
        is_in_blocks = self.compression is Compression.BLOCK
        return b"".join(
            (
                _MAGIC,
                bytes([_VERSION]),
                _text(LONG_CLASS),
                _text(self.value_class),
                bytes([is_compressed, is_in_blocks]),
                _text(CODEC) if is_compressed else b"",
                bytes(4),
                self.sync_marker,
            )
        )


def parse_header(data: bytes | memoryview, value_class: str) -> tuple[SequenceFileHeader, int]:
    """Parse the header at the start of a file.

    Args:
        data: The first `MAX_HEADER_BYTES` bytes of the file, or all if it is shorter.
        value_class: The class that the values must have.

    Returns:
        The header and its length in bytes.

    Raises:
        UnknownFormatError: The bytes are not a SequenceFile of version 6, or one with other
            classes, another codec or metadata.
        TruncatedObjectError: The file ends in the header.
    """
    head = bytes(data[:MAX_HEADER_BYTES])
    start = head[: len(_MAGIC) + 1]
    expected = _MAGIC + bytes([_VERSION])
    if start != expected[: len(start)]:
        message = f"not a SequenceFile of version {_VERSION}: it begins with {start!r}"
        raise UnknownFormatError(message, offset=0)
    key_class, position = _read_text(head, len(expected))
    found_class, position = _read_text(head, position)
    _need(head, position + 2)
    flags = head[position : position + 2]
    position += 2
    codec = CODEC
    if flags[0]:
        codec, position = _read_text(head, position)
    for what, found, known in (
        ("key class", key_class, LONG_CLASS),
        ("value class", found_class, value_class),
        ("codec", codec, CODEC),
    ):
        if found != known:
            message = f"the {what} of the SequenceFile is {found!r}, not {known!r}"
            raise UnknownFormatError(message, offset=0)
    _need(head, position + 4 + SYNC_MARKER_BYTES)
    if flags not in {b"\0\0", b"\1\0", b"\1\1"} or head[position : position + 4] != bytes(4):
        message = "the SequenceFile has metadata, or an unknown form of compression"
        raise UnknownFormatError(message, offset=position)
    position += 4
    compression = {0: Compression.NONE, 1: Compression.RECORD, 2: Compression.BLOCK}[sum(flags)]
    stop = position + SYNC_MARKER_BYTES
    return SequenceFileHeader(value_class, compression, head[position:stop]), stop


def _need(head: bytes, stop: int) -> None:
    if stop <= len(head):
        return
    if len(head) == MAX_HEADER_BYTES:
        message = f"the header of the SequenceFile has more than {MAX_HEADER_BYTES} bytes"
        raise UnknownFormatError(message, offset=0)
    message = f"the file ends in its header: it has {counted(len(head), 'byte')}"
    raise TruncatedObjectError(message, offset=len(head))


def _text(text: str) -> bytes:
    data = text.encode()
    return vint_bytes(len(data)) + data


def _read_text(head: bytes, position: int) -> tuple[str, int]:
    _need(head, position + MAX_VINT_BYTES)
    length, position = read_vint(head, position)
    if not 0 <= length < MAX_HEADER_BYTES:
        message = f"the header of the SequenceFile has a text of {counted(length, 'byte')}"
        raise UnknownFormatError(message, offset=position)
    _need(head, position + length)
    return head[position : position + length].decode(errors="replace"), position + length


def vint_bytes(value: int) -> bytes:
    """Encode a 64-bit number as `WritableUtils.writeVLong` does.

    Example:
        >>> vint_bytes(127).hex(), vint_bytes(128).hex(), vint_bytes(-113).hex()
        ('7f', '8f80', '8770')
    """
    if _MIN_ONE_BYTE <= value <= _MAX_ONE_BYTE:
        return value.to_bytes(1, "big", signed=True)
    first, rest = (_MIN_ONE_BYTE, value) if value >= 0 else (_MIN_POSITIVE, ~value)
    size = max((rest.bit_length() + 7) // 8, 1)
    return (first - size).to_bytes(1, "big", signed=True) + rest.to_bytes(size, "big")


def vint_size(first: int) -> int:
    """Return the length in bytes of a VInt, including its first byte (0 … 255)."""
    signed = first - 256 if first > _MAX_ONE_BYTE else first
    if signed >= _MIN_ONE_BYTE:
        return 1
    return (_MIN_ONE_BYTE if signed >= _MIN_POSITIVE else _MIN_POSITIVE) - signed + 1


def read_vint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Decode a VInt; `data` has at least `MAX_VINT_BYTES` bytes from `position`, or all of it.

    Returns:
        The value and the position after it.

    Raises:
        TruncatedObjectError: The bytes end in the number.
    """
    size = vint_size(data[position]) if position < len(data) else 1
    stop = position + size
    if stop > len(data):
        message = "the bytes end in a length"
        raise TruncatedObjectError(message)
    if size == 1:
        return int.from_bytes(data[position:stop], "big", signed=True), stop
    value = int.from_bytes(data[position + 1 : stop], "big")
    is_negative = data[position] < 256 + _MIN_POSITIVE
    return ~value if is_negative else value, stop


def inflate(data: bytes | memoryview, max_bytes: int, what: str) -> bytes:
    """Decompress a whole ZLIB stream.

    Args:
        data: The stream.
        max_bytes: Maximum length of the result, in bytes.
        what: Its contents, for errors.

    Raises:
        CorruptBlockError: The stream is damaged, does not end, ends early, or becomes longer.
    """
    stream = zlib.decompressobj()
    try:
        # With one byte more than allowed, the library also checks the end of the stream.
        result = stream.decompress(data, max_bytes + 1)
    except zlib.error as error:
        message = f"the {what} cannot be decompressed: {error}"
        raise CorruptBlockError(message) from None
    if len(result) > max_bytes:
        message = f"the {what} become longer than {counted(max_bytes, 'byte')}"
        raise CorruptBlockError(message)
    if not stream.eof or stream.unused_data:
        message = f"the ZLIB stream of the {what} does not end where it should"
        raise CorruptBlockError(message)
    return result


def check_key_lengths(data: bytes | memoryview, count: int) -> None:
    """Check the ZLIB stream with the lengths of the keys of a block.

    Raises:
        CorruptBlockError: The stream is damaged, or is not `count` times `KEY_BYTES`.
    """
    if inflate(data, count, "lengths of the keys") != vint_bytes(KEY_BYTES) * count:
        message = f"the keys of a block are not {count} of {KEY_BYTES} bytes each"
        raise CorruptBlockError(message)


def max_record_count(key_length_bytes: int) -> int:
    """Return the maximum number of records in a block, by the length of its first ZLIB stream."""
    return key_length_bytes * _MAX_RATIO


def max_stream_bytes(size_bytes: int) -> int:
    """Return the maximum length of a ZLIB stream, by the length of what it becomes.

    Streams are a little longer than data that cannot be compressed (zlib's `compressBound`).
    """
    return size_bytes + size_bytes // 1000 + 64


def serialize_block(
    escape: bytes, keys: Sequence[int], values: Sequence[bytes], *, level: int = -1
) -> bytes:
    """Return one block as Hadoop writes it.

    Args:
        escape: The escape with the sync marker.
        keys: Keys of the records.
        values: Serialized values of the records.
        level: ZLIB level; Hadoop uses the library's default.
    """
    buffers = (
        vint_bytes(KEY_BYTES) * len(keys),
        struct.pack(f">{len(keys)}q", *keys),
        b"".join(vint_bytes(len(value)) for value in values),
        b"".join(values),
    )
    parts = [escape, vint_bytes(len(keys))]
    for buffer in buffers:
        data = zlib.compress(buffer, level)
        parts += (vint_bytes(len(data)), data)
    return b"".join(parts)
