"""Walks over the `data` file of a MapFile: its records and blocks, in storage order.

An entry is one record, whose key is its id. The record with the key -1 comes first and holds the
ledger's metadata. The bytes are described in `arrow_io.format.sequence_file`.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from typing import TYPE_CHECKING, Final, NamedTuple

from arrow_io.core import builds
from arrow_io.core.memory import allocate
from arrow_io.core.wording import counted
from arrow_io.errors import CorruptBlockError, TruncatedObjectError
from arrow_io.format.entry_frame import ENTRY_HEADER_BYTES
from arrow_io.format.map_file_index import METADATA_KEY
from arrow_io.format.sequence_file import (
    ESCAPE,
    ESCAPE_BYTES,
    KEY_BYTES,
    MAX_VINT_BYTES,
    RECORD_HEADER_BYTES,
    Compression,
    check_key_lengths,
    inflate,
    max_record_count,
    max_stream_bytes,
    read_vint,
)
from arrow_io.messages.codecs import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arrow_io.format.sequence_file import SequenceFileHeader
    from arrow_io.storage.range_stream import RangeStream

_RECORD: Final = struct.Struct(">iiq")
_LENGTH: Final = struct.Struct(">i")
_KEY: Final = struct.Struct(">q")
_CHUNK_BYTES: Final = 2 << 20
"""Approximate size of a chunk in bytes: the size of a core's second-level cache."""
_INFLATED_AT_ONCE: Final = 256 << 10
"""Maximum bytes of a ZLIB stream that are passed to the library at once: it copies the rest."""
_METADATA_BYTES: Final = 4 << 10
"""Size of the pieces in which a block is decompressed for its first value, in bytes."""
_MAX_RECORDS: Final = 1 << 23
"""Maximum number of records of a block."""
_MAX_KEY: Final = 1 << 62
"""Keys are smaller, so that the core can count on from each."""
_MAX_VALUE_BYTES: Final = MAX_MESSAGE_BYTES
_WRONG_KEY: Final = 3
_PROBLEMS: Final = {
    2: "found no record where one must begin",
    _WRONG_KEY: "found another key than the expected one",
    4: "the length of a value contradicts that of its record",
}
"""By status of `_records`."""


_WRONG_VALUES: Final = "the values of a block do not have the announced lengths"


class Group(NamedTuple):
    """Records that can only be found together: one record, or one block."""

    first_key: int
    record_count: int
    start: int
    """Position of the group, or of the escape before it, in the file."""
    stop: int
    """End (exclusive)."""

    @property
    def last_key(self) -> int:
        """Key of the last record (inclusive)."""
        return self.first_key + self.record_count - 1


class Chunk(NamedTuple):
    """Consecutive entries, decompressed, in the frames of PIP-17's data blocks."""

    first_key: int
    record_count: int
    frames: memoryview
    start: int
    """Position in the file; that of entries of one block is interpolated."""
    stop: int
    """End (exclusive)."""


class _Block(NamedTuple):
    """One block of a file in blocks; the first three ZLIB streams were read."""

    record_count: int
    """Number of its records."""
    key_lengths: memoryview
    keys: memoryview
    value_lengths: memoryview
    values_start: int
    """Start of the ZLIB stream of values in the file."""
    stop: int
    """End of that stream and of the block (exclusive)."""


class _Record(NamedTuple):
    """One record of a file that is not in blocks; its value was not read."""

    key: int
    start: int
    """Position of the record, or of the escape before it, in the file."""
    value_start: int
    """Start of its value in the file."""
    stop: int
    """End of its value (exclusive)."""


class MapFileWalk:
    """A walk over consecutive records of `data`; subclasses know how they are compressed.

    Attributes:
        position: Start of the next record or block, or of the escape before it.
        key: Key of the next record; None until the first one was read.
        resume_at: After an error, where the damaged record ends by its length, which may be
            damaged; None if that is unknown.
        piece_bytes: Values of blocks that become longer are decompressed in pieces of this size.
        is_aligned: Whether a sync marker was found where one may be. The first position may be
            wrong, and entries may look like records, but they do not contain the marker.

    Args:
        stream: The bytes of the file.
        header: Its header.
        size_bytes: Its length.
        position: Start of a record or block, or of the escape before it.
        key: Key of its first record; None: any.
    """

    def __init__(
        self,
        stream: RangeStream,
        header: SequenceFileHeader,
        size_bytes: int,
        position: int,
        key: int | None = None,
    ) -> None:
        self._stream = stream
        self._header = header
        self._size_bytes = size_bytes
        self.position = position
        self.key = key
        self.resume_at: int | None = None
        self.is_aligned = False
        self.piece_bytes = _CHUNK_BYTES
        self._result = array("q", bytes(8 * 6))

    def chunks(self, last_key: int) -> Iterator[Chunk]:
        """Decompress the records up to a key (inclusive), or to the end of the file.

        The last chunk of a file in blocks may have greater keys.

        Raises:
            CorruptBlockError: A record or block is damaged, or its key is not the next one.
            TruncatedObjectError: The file ends within a record or block.
            MissingObjectError: The file is missing.
            StorageError: The store denied access, requests failed until the deadline, or the file
                was replaced.
        """
        while self.position < self._size_bytes and (self.key is None or self.key <= last_key):
            self.resume_at = None
            yield from self._next_chunks(last_key)

    def groups(self) -> Iterator[Group]:
        """Find all records or blocks up to the end of the file, without reading values.

        Raises:
            PulsarOffloadError: See `chunks`.
        """
        while self.position < self._size_bytes:
            group = self._next_group()
            self.position, self.key = group.stop, group.last_key + 1
            yield group

    def find_next(self, stop: int, damaged: MapFileWalk) -> tuple[int, int | None] | None:
        """Find where a read can resume after the record or block at which another walk ended.

        This is where the damaged record ends by its length, if a record with the next key follows,
        or the first escape. Entries contain no escape: the sync marker is random.

        Args:
            stop: End of the positions that are searched (exclusive).
            damaged: The other walk; this one starts after its position.

        Returns:
            The position and the key of its first record, if that is known; None if there is none.
        """
        end, escape = damaged.resume_at, None
        if end is not None and end < stop and damaged.key is not None:
            escape = self._find_escape(end)
            self.position = end
            if escape is None and self._is_record(damaged.key + 1):
                return end, damaged.key + 1
        if escape is None:
            escape = self._find_escape(stop)
        return None if escape is None else (escape, None)

    def _find_escape(self, stop: int) -> int | None:
        """Return the position of the first escape with the sync marker before a position."""
        stop = min(stop, self._size_bytes - ESCAPE_BYTES + 1)
        while self.position < stop:
            view, start = self._stream.at(self.position, ESCAPE_BYTES)
            # Bytes of an escape that starts before the end may follow it.
            last = min(len(view), start + stop - self.position + ESCAPE_BYTES - 1)
            found = bytes(view[start:last]).find(self._header.escape)
            if found >= 0:
                return self.position + found
            self.position += last - start - ESCAPE_BYTES + 1
        return None

    def _is_record(self, key: int) -> bool:
        """Return whether the next record has a key."""
        try:
            return self._next_group().first_key == key
        except (CorruptBlockError, TruncatedObjectError):
            return False

    def _next_chunks(self, last_key: int) -> Iterator[Chunk]:
        raise NotImplementedError

    def _next_group(self) -> Group:
        raise NotImplementedError

    def _read(self, position: int, length: int) -> memoryview:
        """Return bytes of the file; `length` was not checked."""
        self._check_room(position, length)
        view, start = self._stream.at(position, length)
        return view[start : start + length]

    def _check_room(self, position: int, length: int) -> None:
        """Check that the file has bytes before they are read."""
        if length > self._size_bytes - position:
            message = (
                f"the file has {counted(self._size_bytes - position, 'byte')} of a record or block"
                f" that needs {length}"
            )
            raise TruncatedObjectError(message, offset=self._size_bytes)

    def _check_key(self, key: int, start: int) -> int:
        """Check the key of the first record that is read, and return it."""
        if self.key not in {None, key} or not METADATA_KEY <= key < _MAX_KEY:
            raise CorruptBlockError(_PROBLEMS[_WRONG_KEY], entry_id=self.key, offset=start)
        return key

    def _check_status(self, status: int) -> None:
        """Check why a function of the core stopped."""
        if status in _PROBLEMS:
            raise CorruptBlockError(_PROBLEMS[status], entry_id=self.key, offset=self.position)


class _Records(MapFileWalk):
    """A walk over records that are not compressed."""

    def _next_chunks(self, last_key: int) -> Iterator[Chunk]:
        key = self._next_record().key if self.key is None else self.key
        needed = RECORD_HEADER_BYTES + _LENGTH.size
        while True:
            if needed > _MAX_VALUE_BYTES:
                message = f"a record announces {counted(needed, 'byte')}"
                raise CorruptBlockError(message, entry_id=self.key, offset=self.position)
            self._check_room(self.position, needed)
            view, start = self._stream.at(self.position, needed)
            stop = min(len(view), start + _CHUNK_BYTES + needed)
            target = memoryview(allocate(stop - start)).cast("B")
            builds.in_use.records.frame_records(
                view,
                start,
                stop,
                key,
                # The first record of a resumed walk may have a greater key, which its reader needs.
                max(key, last_key),
                self._header.escape,
                target,
                self._result,
            )
            count, end, status, needed, frames_stop, escapes = self._result
            if count:
                break
            if status == _WRONG_KEY:
                # The lengths of the record agree, so only its key is damaged.
                self.resume_at = self.position + needed
            self._check_status(status)
        first, self.position, self.key = self.position, self.position + end - start, key + count
        self.is_aligned |= escapes > 0
        yield Chunk(key, count, target[:frames_stop].toreadonly(), first, self.position)

    def _next_record(self) -> _Record:
        start = position = self.position
        room = self._size_bytes - start
        # In one read: the start may be in an earlier range than the end.
        head = bytes(self._read(start, min(ESCAPE_BYTES + RECORD_HEADER_BYTES, room)))
        if head[: len(ESCAPE)] == ESCAPE:
            if head[:ESCAPE_BYTES] != self._header.escape:
                message = "a sync marker differs from that of the file"
                raise CorruptBlockError(message, entry_id=self.key, offset=start)
            self.is_aligned = True
            position, head = position + ESCAPE_BYTES, head[ESCAPE_BYTES:]
        self._check_room(position, RECORD_HEADER_BYTES)
        length, key_length, key = _RECORD.unpack_from(head)
        if key_length != KEY_BYTES or length < KEY_BYTES:
            raise CorruptBlockError(_PROBLEMS[2], entry_id=self.key, offset=start)
        value_start = position + RECORD_HEADER_BYTES
        self._check_room(value_start, length - KEY_BYTES)
        self.resume_at = value_start + length - KEY_BYTES
        return _Record(self._check_key(key, start), start, value_start, self.resume_at)

    def _next_group(self) -> Group:
        record = self._next_record()
        return Group(record.key, 1, record.start, record.stop)


class _CompressedRecords(_Records):
    """A walk over records whose values are ZLIB streams."""

    def _next_chunks(self, last_key: int) -> Iterator[Chunk]:
        start, first = self.position, self.key
        values: list[bytes] = []
        size_bytes = 0
        error: CorruptBlockError | TruncatedObjectError | None = None
        while (
            size_bytes < _CHUNK_BYTES
            and self.position < self._size_bytes
            and (self.key is None or self.key <= last_key)
        ):
            self.resume_at = None
            try:
                record = self._next_record()
                values.append(self._value(record))
            except (CorruptBlockError, TruncatedObjectError) as damage:
                error = damage
                break
            first = record.key if first is None else first
            size_bytes += len(values[-1])
            self.position, self.key = record.stop, record.key + 1
        if values and first is not None:
            yield self._chunk(first, values, start)
        if error is not None:
            raise error

    def _value(self, record: _Record) -> bytes:
        length = record.stop - record.value_start
        if length > _MAX_VALUE_BYTES:
            message = f"a record announces {counted(length, 'byte')}"
            raise CorruptBlockError(message, entry_id=record.key, offset=record.start)
        value = inflate(self._read(record.value_start, length), _MAX_VALUE_BYTES, "value")
        if len(value) < _LENGTH.size or _LENGTH.unpack_from(value)[0] != len(value) - _LENGTH.size:
            raise CorruptBlockError(_PROBLEMS[4], entry_id=record.key, offset=record.start)
        return value

    def _chunk(self, first: int, values: list[bytes], start: int) -> Chunk:
        count, lengths, joined = len(values), array("q", map(len, values)), b"".join(values)
        keys = struct.pack(f">{count}q", *range(first, first + count))
        target = memoryview(allocate(len(joined) + KEY_BYTES * count)).cast("B")
        builds.in_use.records.frame_values(
            joined, len(joined), lengths, keys, 0, count, first, target, self._result
        )
        self._check_status(self._result[2])
        return Chunk(first, count, target.toreadonly(), start, self.position)


class _Blocks(MapFileWalk):
    """A walk over blocks of records that are compressed together."""

    def _next_block(self) -> _Block:
        start = self.position
        # In one read: the start may be in an earlier range than the end.
        room = self._size_bytes - start
        head = bytes(self._read(start, min(ESCAPE_BYTES + MAX_VINT_BYTES, room)))
        self._check_room(start, ESCAPE_BYTES + 1)
        if head[:ESCAPE_BYTES] != self._header.escape:
            message = "a block does not begin with the sync marker"
            raise CorruptBlockError(message, entry_id=self.key, offset=start)
        self.is_aligned = True
        count, size = self._vint(head[ESCAPE_BYTES:])
        if not 0 < count <= _MAX_RECORDS:
            message = f"the block announces {count} records"
            raise CorruptBlockError(message, entry_id=self.key, offset=start)
        position = start + ESCAPE_BYTES + size
        streams = []
        for max_bytes in (count, count * KEY_BYTES, count * MAX_VINT_BYTES):
            position, length = self._stream_start(position, max_bytes)
            streams.append(self._read(position, length))
            position += length
        key_lengths, keys, value_lengths = streams
        if count > max_record_count(len(key_lengths)):
            message = f"the block announces {count} records"
            raise CorruptBlockError(message, entry_id=self.key, offset=start)
        position, length = self._stream_start(position)
        return _Block(count, key_lengths, keys, value_lengths, position, position + length)

    def _stream_start(self, position: int, max_bytes: int | None = None) -> tuple[int, int]:
        """Return the start of a ZLIB stream, after its length, and the length.

        `max_bytes` is the maximum length of what it becomes; None: unknown.
        """
        room = self._size_bytes - position
        length, size = self._vint(self._read(position, min(MAX_VINT_BYTES, max(room, 1))))
        if length < 0 or (max_bytes is not None and length > max_stream_bytes(max_bytes)):
            message = f"a ZLIB stream of the block has {counted(length, 'byte')}"
            raise CorruptBlockError(message, entry_id=self.key, offset=position)
        self._check_room(position + size, length)
        return position + size, length

    def _vint(self, data: bytes | memoryview) -> tuple[int, int]:
        try:
            return read_vint(data, 0)
        except TruncatedObjectError as error:
            raise error.located(offset=self._size_bytes) from None

    def _keys(self, block: _Block) -> bytes:
        """Return the serialized keys of a block, of which only the first is compared."""
        check_key_lengths(block.key_lengths, block.record_count)
        keys = inflate(block.keys, block.record_count * KEY_BYTES, "keys")
        if len(keys) != block.record_count * KEY_BYTES:
            message = f"the keys of a block do not have {KEY_BYTES} bytes each"
            raise CorruptBlockError(message, entry_id=self.key, offset=self.position)
        self._check_key(_KEY.unpack_from(keys)[0], self.position)
        return keys

    def _next_group(self) -> Group:
        block = self._next_block()
        keys = self._keys(block)
        first, last = _KEY.unpack_from(keys)[0], _KEY.unpack_from(keys, len(keys) - KEY_BYTES)[0]
        if last - first != block.record_count - 1:
            message = f"the keys of a block are not consecutive: {first} … {last}"
            raise CorruptBlockError(message, entry_id=self.key, offset=self.position)
        return Group(first, block.record_count, self.position, block.stop)

    def _next_chunks(self, last_key: int) -> Iterator[Chunk]:
        del last_key  # a block is decompressed as a whole
        block = self._next_block()
        keys, count = self._keys(block), block.record_count
        lengths, size_bytes = self._value_lengths(block)
        key = _KEY.unpack_from(keys)[0]
        start, stored_bytes = self.position, block.stop - self.position
        index = read_bytes = buffered_bytes = 0
        buffered: list[bytes] = []
        for piece in self._values(block, size_bytes):
            buffered.append(piece)
            buffered_bytes += len(piece)
            if index < count and buffered_bytes < lengths[index]:
                continue
            data = buffered[0] if len(buffered) == 1 else b"".join(buffered)
            value_count = min(count - index, len(data) // _LENGTH.size)
            target = memoryview(allocate(len(data) + KEY_BYTES * value_count)).cast("B")
            builds.in_use.records.frame_values(
                data, len(data), lengths, keys, index, count, key, target, self._result
            )
            found, end, status, _, frames_stop, _ = self._result
            buffered, buffered_bytes = [data[end:]] if end < len(data) else [], len(data) - end
            if found:
                read_bytes += end
                stop = self.position + stored_bytes * read_bytes // size_bytes
                index, key = index + found, key + found
                self.key = key
                yield Chunk(key - found, found, target[:frames_stop].toreadonly(), start, stop)
                start = stop
            self._check_status(status)
        self.position = block.stop

    def _value_lengths(self, block: _Block) -> tuple[array[int], int]:
        """Return the lengths of the serialized values of a block, and their sum."""
        count, what = block.record_count, "lengths of the values"
        encoded = inflate(block.value_lengths, count * MAX_VINT_BYTES, what)
        lengths = array("q", bytes(8 * count))
        builds.in_use.records.read_lengths(
            encoded, len(encoded), lengths, count, _MAX_VALUE_BYTES, self._result
        )
        _, end, status, _, size_bytes, _ = self._result
        stored_bytes = block.stop - block.values_start
        if status or end != len(encoded) or stored_bytes > max_stream_bytes(size_bytes):
            message = f"the {what} of a block are damaged"
            raise CorruptBlockError(message, entry_id=self.key, offset=self.position)
        return lengths, size_bytes

    def _values(self, block: _Block, size_bytes: int) -> Iterator[bytes]:
        """Decompress the values of a block, a piece at a time."""
        start, stop = block.values_start, block.stop
        if size_bytes <= self.piece_bytes:
            values = inflate(self._read(start, stop - start), size_bytes, "values")
            if len(values) != size_bytes:
                raise CorruptBlockError(_WRONG_VALUES, offset=self.position)
            yield values
            return
        stream = zlib.decompressobj()
        left_bytes, source_bytes = size_bytes, min(_INFLATED_AT_ONCE, self.piece_bytes)
        while start < stop and left_bytes >= 0 and not stream.eof:
            source: bytes | memoryview = self._read(start, min(source_bytes, stop - start))
            start += len(source)
            while source and left_bytes >= 0:
                try:
                    piece = stream.decompress(source, min(self.piece_bytes, left_bytes + 1))
                except zlib.error as error:
                    message = f"the values cannot be decompressed: {error}"
                    raise CorruptBlockError(message, offset=self.position) from None
                left_bytes -= len(piece)
                source = stream.unconsumed_tail
                if piece and left_bytes >= 0:
                    yield piece
        if left_bytes or not stream.eof or stream.unused_data or start < stop:
            raise CorruptBlockError(_WRONG_VALUES, offset=self.position)


def walk_map_file(
    stream: RangeStream,
    header: SequenceFileHeader,
    size_bytes: int,
    position: int,
    key: int | None = None,
) -> MapFileWalk:
    """Return a walk for the file's compression; see `MapFileWalk` for the arguments."""
    classes = {
        Compression.NONE: _Records,
        Compression.RECORD: _CompressedRecords,
        Compression.BLOCK: _Blocks,
    }
    return classes[header.compression](stream, header, size_bytes, position, key)


def read_metadata_record(
    stream: RangeStream, header: SequenceFileHeader, size_bytes: int, position: int
) -> bytes:
    """Return the value of the first record, the ledger's metadata.

    Args:
        stream: The bytes of the file.
        header: Its header.
        size_bytes: Its length.
        position: End of the header.

    Raises:
        CorruptBlockError: The first record is damaged, or has another key than -1.
        TruncatedObjectError: The file ends before its end.
        PulsarOffloadError: See `MapFileWalk.chunks`.
    """
    walk = walk_map_file(stream, header, size_bytes, position, METADATA_KEY)
    walk.piece_bytes = _METADATA_BYTES
    for chunk in walk.chunks(METADATA_KEY):
        length = int.from_bytes(chunk.frames[:4], "big")
        return bytes(chunk.frames[ENTRY_HEADER_BYTES : ENTRY_HEADER_BYTES + length])
    message = "the file has no record: it holds no ledger"
    raise TruncatedObjectError(message, offset=size_bytes)
