"""The `index` of a MapFile (Hadoop's `MapFile`): positions of some records in its `data`.

A SequenceFile of blocks whose keys are entry ids and whose values are i64 positions in `data`. Its
first pair is always that of the first record, which has the key -1 (see `map_file_records`). A pair
follows for each record before which at least 128 records and at least one byte were written since
the last pair. If `data` is compressed in blocks, the position is that of the block that holds the
record; otherwise it is that of the record, or of the escape before it.

The index says nothing that a pass over `data` does not say, so it can be rebuilt.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from arrow_io.core.wording import counted
from arrow_io.errors import (
    CorruptBlockError,
    CorruptIndexError,
    PulsarOffloadError,
    TruncatedObjectError,
)
from arrow_io.format.sequence_file import (
    ESCAPE_BYTES,
    KEY_BYTES,
    LONG_CLASS,
    Compression,
    SequenceFileHeader,
    check_key_lengths,
    inflate,
    max_record_count,
    parse_header,
    read_vint,
    serialize_block,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

METADATA_KEY: Final = -1
"""Key of the first record, which holds the ledger's metadata."""
INDEX_INTERVAL: Final = 128
"""Hadoop's default of `io.map.index.interval`, in records."""
MAX_PAIRS: Final = 4 << 20
"""Maximum number of pairs that are read."""
_BLOCK_PAIRS: Final = 62_500
"""Pairs in a block, by Hadoop's default of `io.seqfile.compress.blocksize`: 1,000,000 bytes."""


@dataclass(frozen=True, slots=True)
class MapFileIndex:
    """The pairs of an index, ascending by key and position.

    Attributes:
        keys: Entry ids; the first is -1.
        positions: Positions in `data`, in bytes; the first is the end of its header.
    """

    keys: Sequence[int]
    positions: Sequence[int]

    def serialize(self, sync_marker: bytes) -> bytes:
        """Return the file as Hadoop writes it, with a sync marker of 16 bytes."""
        header = SequenceFileHeader(LONG_CLASS, Compression.BLOCK, sync_marker)
        parts = [header.serialize()]
        for start in range(0, len(self.keys), _BLOCK_PAIRS):
            values = self.positions[start : start + _BLOCK_PAIRS]
            keys = self.keys[start : start + _BLOCK_PAIRS]
            parts.append(
                serialize_block(header.escape, keys, [struct.pack(">q", v) for v in values])
            )
        return b"".join(parts)


def read_map_file_index(data: bytes, *, object_key: str) -> MapFileIndex:
    """Parse an index.

    Args:
        data: The whole file.
        object_key: Its name, for errors.

    Raises:
        UnknownFormatError: It is not a SequenceFile of positions, or not compressed in blocks.
        TruncatedObjectError: It is empty, or ends in its header or in a block.
        CorruptIndexError: A block is damaged, or the pairs do not ascend from the key -1.
    """
    try:
        header, position = parse_header(data, LONG_CLASS)
        keys, positions = array("q"), array("q")
        view = memoryview(data)
        while position < len(view):
            block_keys, block_positions, position = _read_block(view, position, header)
            keys.extend(block_keys)
            positions.extend(block_positions)
            if len(keys) > MAX_PAIRS:
                message = f"the index has more than {MAX_PAIRS} pairs"
                raise CorruptIndexError(message, offset=position)
    except CorruptBlockError as error:
        message = error.message
        raise CorruptIndexError(message, object_key=object_key, offset=position) from None
    except PulsarOffloadError as error:
        error.located(object_key=object_key)
        raise
    if not keys or keys[0] != METADATA_KEY or not _is_ascending(keys):
        message = "the keys of the index do not ascend from -1"
        raise CorruptIndexError(message, object_key=object_key)
    if not _is_ascending(positions):
        message = "the positions of the index do not ascend"
        raise CorruptIndexError(message, object_key=object_key)
    return MapFileIndex(keys, positions)


def _is_ascending(numbers: array[int]) -> bool:
    return all(map(int.__lt__, numbers, numbers[1:]))


def _read_block(
    view: memoryview, position: int, header: SequenceFileHeader
) -> tuple[array[int], array[int], int]:
    """Return the keys and values of a block, and its end."""
    if header.compression is not Compression.BLOCK:
        message = f"the index is compressed as {header.compression}, not in blocks"
        raise CorruptBlockError(message)
    count, streams, position = _read_streams(view, position, header.escape)
    keys = _numbers(count, streams[0], streams[1], "keys")
    return keys, _numbers(count, streams[2], streams[3], "positions"), position


def _read_streams(
    view: memoryview, position: int, escape: bytes
) -> tuple[int, list[memoryview], int]:
    """Return the number of pairs in a block, its ZLIB streams, and its end."""
    short = TruncatedObjectError(
        f"the index ends in a block: it has {counted(len(view), 'byte')}", offset=len(view)
    )
    start = position
    position += ESCAPE_BYTES
    if position > len(view):
        raise short
    if view[start:position] != escape:
        message = "a block of the index does not begin with the sync marker"
        raise CorruptBlockError(message)
    count, position = read_vint(view, position)
    streams = []
    for _ in range(4):
        length, position = read_vint(view, position)
        if length < 0:
            message = f"a ZLIB stream of the index has {counted(length, 'byte')}"
            raise CorruptBlockError(message)
        if length > len(view) - position:
            raise short
        streams.append(view[position : position + length])
        position += length
    if not 0 < count <= min(max_record_count(len(streams[0])), MAX_PAIRS):
        message = f"a block of the index announces {count} pairs"
        raise CorruptBlockError(message)
    return count, streams, position


def _numbers(count: int, lengths: memoryview, numbers: memoryview, what: str) -> array[int]:
    """Return the keys or values of a block, whose ZLIB streams are their lengths and themselves."""
    check_key_lengths(lengths, count)
    encoded = inflate(numbers, count * KEY_BYTES, what)
    if len(encoded) != count * KEY_BYTES:
        message = f"the {what} of the index are not {counted(count, 'number')}"
        raise CorruptBlockError(message)
    return array("q", struct.unpack(f">{count}q", encoded))


def build_index(
    groups: Iterable[tuple[int, int, int]], interval: int = INDEX_INTERVAL
) -> MapFileIndex:
    """Return the index that Hadoop writes for some records (`MapFile.Writer.append`).

    Args:
        groups: First key, number of records and position in `data` of each block or record,
            ascending without gaps from the key -1.
        interval: Records between two pairs.
    """
    keys, positions = array("q"), array("q")
    for key, position in _pairs(groups, interval):
        keys.append(key)
        positions.append(position)
    return MapFileIndex(keys, positions)


def _pairs(groups: Iterable[tuple[int, int, int]], interval: int) -> Iterator[tuple[int, int]]:
    next_key, last_position = METADATA_KEY, -1
    for first_key, count, position in groups:
        key = max(first_key, next_key)
        if key < first_key + count and position > last_position:
            yield key, position
            next_key, last_position = key + interval, position
