"""A data object of streaming offload (PIP-76), from entry to entry: where its blocks really stand.

A block ends behind the last entry that begins within the length that its writer counted, or with
that length (see `streaming_block`). So a walk from one frame to the next finds all blocks, whether
they were miscounted or not, and takes nothing within an entry for one.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING, Final

from arrow_io.errors import (
    CorruptBlockError,
    FormatError,
    MissingEntriesError,
    TruncatedObjectError,
)
from arrow_io.format.block_table import BlockEntry
from arrow_io.format.data_block import PADDING_PATTERN, is_padding
from arrow_io.format.entry_frame import ENTRY_HEADER_BYTES
from arrow_io.format.streaming_block import STREAMING_FIELDS_BYTES, parse_streaming_header
from arrow_io.format.streaming_index import MAX_LEDGERS
from arrow_io.messages.codecs import MAX_MESSAGE_BYTES
from arrow_io.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arrow_io.format.streaming_block import StreamingBlockHeader
    from arrow_io.storage.ranges import RangeReader

_FIRST_LOOK_BYTES: Final = 4 << 10
"""Read where a block should begin; an entry, by which it may stand further behind, is small."""
_ENTRY_HEADER: Final = struct.Struct(">iq")
_LOOK_GROWTH: Final = 16
_MAX_LOOK_BYTES: Final = 4 << 20
_MAX_ENTRY_BYTES: Final = MAX_MESSAGE_BYTES - ENTRY_HEADER_BYTES
_MAX_BLOCKS: Final = MAX_LEDGERS
"""Most blocks that are believed to be in an object, which has no more ledgers then; each takes a
kilobyte of memory. Each was a part of its upload, and stores allow some 50,000 of these at most."""


class ForwardReader:
    """Reads an object from its start on, some bytes more than are asked for, which it keeps."""

    def __init__(self, reader: RangeReader) -> None:
        self._reader = reader
        self._start, self._data = 0, b""
        self.size_bytes = reader.size_bytes

    def read(self, start: int, stop: int, least_bytes: int = _FIRST_LOOK_BYTES) -> bytes:
        """The bytes `[start, stop)`, as far as the object goes; a request asks for so many."""
        stop = min(stop, self.size_bytes)
        if start < self._start or stop > self._start + len(self._data):
            ahead = min(max(stop, start + least_bytes), self.size_bytes)
            self._start, self._data = start, self._reader.read(min(start, ahead), ahead)
        return self._data[start - self._start : max(stop - self._start, 0)]

    def places(self, wanted: bytes, first: int, last: int) -> Iterator[int]:
        """Where some bytes stand that begin at `first … last` (inclusive), ascending."""
        position, look_bytes = first, max(_FIRST_LOOK_BYTES - len(wanted), 1)
        while position <= last:
            behind = min(position + look_bytes, last + 1)
            data = self.read(position, behind + len(wanted) - 1)
            place = data.find(wanted)
            while place >= 0:
                yield position + place
                place = data.find(wanted, place + 1)
            position, look_bytes = behind, min(look_bytes * _LOOK_GROWTH, _MAX_LOOK_BYTES)

    def entry_bytes(
        self, position: int, entry_id: int, least_bytes: int = _FIRST_LOOK_BYTES
    ) -> int | None:
        """How many bytes an entry's data has whose frame begins there; None if none does."""
        header = self.read(position, position + _ENTRY_HEADER.size, least_bytes)
        if len(header) < _ENTRY_HEADER.size:
            return None
        length: int
        length, found = _ENTRY_HEADER.unpack(header)
        return length if length >= 0 and found == entry_id else None

    def frames(self, start: int, header: StreamingBlockHeader) -> Iterator[tuple[int, int]]:
        """Where each entry of a block begins, and where it ends.

        An entry begins within the length that the block's writer counted, and may end behind it.

        Args:
            start: Where the block begins.
            header: Its header.
        """
        told_stop = start + header.block_length_bytes
        position, entry_id = start + header.header_length_bytes, header.first_entry_id
        while position < told_stop:
            ahead_bytes = min(told_stop - position, _MAX_LOOK_BYTES)
            length = self.entry_bytes(position, entry_id, ahead_bytes)
            if length is None:
                return
            stop = position + _ENTRY_HEADER.size + length
            yield position, stop
            position, entry_id = stop, entry_id + 1


@dataclass(frozen=True, slots=True)
class WalkedBlock:
    """A data block with its entries."""

    header: StreamingBlockHeader
    start: int
    """Where it begins, in bytes."""
    stop: int
    """Where it really ends, in bytes."""
    entry_count: int
    length_bytes: int
    """Sum of the lengths of the entries' data."""
    last_position: int
    """Where the last entry begins, in bytes."""
    unwritten_bytes: int
    """Bytes of entries that its writer may have counted, and left no room for."""

    @property
    def first_entry_id(self) -> int:
        """Id of its first entry."""
        return self.header.first_entry_id

    @property
    def last_entry_id(self) -> int:
        """Id of the last entry that it has."""
        return self.first_entry_id + self.entry_count - 1

    def may_lack(self, entries: int) -> bool:
        """Whether its writer may have lost so many entries behind its last."""
        return entries * ENTRY_HEADER_BYTES <= self.unwritten_bytes


@dataclass(frozen=True, slots=True)
class WalkedShare:
    """The blocks that one ledger has in a segment, at least one."""

    ledger_id: int
    blocks: tuple[WalkedBlock, ...]
    rows: tuple[BlockEntry, ...]
    """The row of the index object for each block: offsets are by the writer's count."""

    @property
    def first_entry_id(self) -> int:
        """Id of the first entry."""
        return self.blocks[0].first_entry_id

    @property
    def last_entry_id(self) -> int:
        """Id of the last entry that is there."""
        return self.blocks[-1].last_entry_id

    @property
    def entry_count(self) -> int:
        """How many entries are there."""
        return sum(each.entry_count for each in self.blocks)

    @property
    def length_bytes(self) -> int:
        """Sum of the lengths of their data."""
        return sum(each.length_bytes for each in self.blocks)

    def may_lack(self, behind: int, length_bytes: int) -> bool:
        """Whether the writer may have lost entries for which it left no room.

        Args:
            behind: How many are missing behind the last that is there.
            length_bytes: Sum of the lengths of the data of all entries that are missing, those
                between blocks too.
        """
        between = [
            after.first_entry_id - before.last_entry_id - 1
            for before, after in pairwise(self.blocks)
        ]
        lost = zip(self.blocks, [*between, behind], strict=True)
        room = sum(
            block.unwritten_bytes - count * ENTRY_HEADER_BYTES for block, count in lost if count
        )
        return self.blocks[-1].may_lack(behind) and 0 <= length_bytes <= room

    def may_end_with(self, entry_id: int) -> bool:
        """Whether an entry may be the last that the writer was given of the ledger."""
        missing = entry_id - self.last_entry_id
        return missing >= 0 and self.blocks[-1].may_lack(missing)


@dataclass(frozen=True, slots=True)
class WalkedSegment:
    """What a walk over all blocks and entries of a data object found."""

    shares: tuple[WalkedShare, ...]
    """One of each ledger, in the order in which they stand in the object."""

    @property
    def blocks(self) -> list[WalkedBlock]:
        """All blocks."""
        return [block for share in self.shares for block in share.blocks]

    @property
    def told_length_bytes(self) -> int:
        """Length of the object by its writer's count."""
        return sum(each.header.block_length_bytes for each in self.blocks)

    @property
    def header_length_bytes(self) -> int:
        """Length of the header of each block."""
        return self.shares[0].blocks[0].header.header_length_bytes


def end_of_entries(data: ForwardReader, start: int, header: StreamingBlockHeader) -> int:
    """Where a block ends whose last entry begins within the length that its writer counted."""
    end = start + header.block_length_bytes
    for _, stop in data.frames(start, header):
        end = max(end, stop)
    return end


def walk_segment(reader: RangeReader) -> WalkedSegment:
    """Walk over the frames of all entries of a data object; no checksum is compared.

    Reads the object about once. Of entries, only what one request gives is in memory.

    Args:
        reader: Reads the object, of which `size_bytes` is the real length.

    Raises:
        TruncatedObjectError: The object ends within a block, or has no byte.
        UnknownFormatError: A block does not begin with the magic of PIP-76.
        CorruptBlockError: The header or an entry of a block does not follow on what is before it.
        MissingEntriesError: A block has no entry.
        MissingObjectError: There is no such object.
        StorageError: The store refused, or went on failing, or the object was replaced.
    """
    blocks: list[WalkedBlock] = []
    try:
        for block in _blocks(ForwardReader(reader)):
            if blocks:
                _check_follows(blocks[-1], block)
            blocks.append(block)
            if len(blocks) > _MAX_BLOCKS:
                message = f"more than {_MAX_BLOCKS} blocks are in the object"
                raise CorruptBlockError(message, offset=block.start)
        return WalkedSegment(_shares(blocks))
    except FormatError as error:
        error.located(object_key=reader.name)
        raise


def _shares(blocks: list[WalkedBlock]) -> tuple[WalkedShare, ...]:
    """The blocks of each ledger, with their rows in the index object."""
    offsets = accumulate((each.header.block_length_bytes for each in blocks), initial=0)
    rows = (
        (each, BlockEntry(each.first_entry_id, place, offset))
        for place, (each, offset) in enumerate(zip(blocks, offsets, strict=False), 1)
    )
    return tuple(
        WalkedShare(ledger_id, *zip(*group, strict=True))
        for ledger_id, group in groupby(rows, key=lambda each: each[0].header.ledger_id)
    )


def _blocks(data: ForwardReader) -> Iterator[WalkedBlock]:
    position = 0
    while not position or position < data.size_bytes:
        block = _block(data, position, _header(data, position))
        yield block
        position = block.stop


def _header(data: ForwardReader, start: int) -> StreamingBlockHeader:
    buffer = data.read(start, start + STREAMING_FIELDS_BYTES, _MAX_LOOK_BYTES)
    left_bytes = data.size_bytes - start
    if len(buffer) < STREAMING_FIELDS_BYTES:
        message = f"{counted(left_bytes, 'byte')} where a block must stand"
        raise TruncatedObjectError(message, offset=data.size_bytes)
    header = parse_streaming_header(buffer, offset=start)
    if header.block_length_bytes > left_bytes:
        message = f"{counted(left_bytes, 'byte')} of a block of {header.block_length_bytes}"
        raise TruncatedObjectError(message, ledger_id=header.ledger_id, offset=data.size_bytes)
    return header


def _block(data: ForwardReader, start: int, header: StreamingBlockHeader) -> WalkedBlock:
    """Walk over the entries of a block."""
    told_stop = start + header.block_length_bytes
    begin = end = start + header.header_length_bytes
    count, first_bytes, last_position = 0, 0, 0
    for position, stop in data.frames(start, header):
        length = stop - position - ENTRY_HEADER_BYTES
        first_bytes = first_bytes if count else length
        problem = _problem(length, stop, told_stop + first_bytes, data.size_bytes)
        if problem is not None:
            entry_id = header.first_entry_id + count
            raise problem.located(ledger_id=header.ledger_id, entry_id=entry_id, offset=position)
        count, last_position, end = count + 1, position, stop
    _check_behind(data, end, told_stop, header, count)
    unwritten_bytes = told_stop + first_bytes - end if end >= told_stop else 0
    return WalkedBlock(
        header,
        start,
        max(end, told_stop),
        count,
        end - begin - count * ENTRY_HEADER_BYTES,
        last_position,
        unwritten_bytes,
    )


def _problem(
    length: int, stop: int, most_stop: int, size_bytes: int
) -> CorruptBlockError | TruncatedObjectError | None:
    """Why an entry that ends at `stop` cannot be right; None if it can."""
    size = counted(length, "byte")
    if length > _MAX_ENTRY_BYTES:
        message = f"an entry of {size}; at most {_MAX_ENTRY_BYTES} are believed"
        return CorruptBlockError(message)
    if stop > most_stop:
        return CorruptBlockError(f"an entry of {size}, which reaches beyond its block")
    if stop > size_bytes:
        left = counted(size_bytes - (stop - length), "byte")
        return TruncatedObjectError(f"{left} of the {length} of an entry")
    return None


def _check_behind(
    data: ForwardReader, end: int, told_stop: int, header: StreamingBlockHeader, count: int
) -> None:
    """Check that a block has entries, and padding behind them if it goes on."""
    error: FormatError | None = None
    length = min(len(PADDING_PATTERN), told_stop - end)
    if length > 0 and not is_padding(data.read(end, end + length)):
        error = CorruptBlockError("neither this entry nor padding", offset=end)
        if end + ENTRY_HEADER_BYTES > data.size_bytes:
            message = f"{counted(data.size_bytes - end, 'byte')} of an entry"
            error = TruncatedObjectError(message, offset=data.size_bytes)
    elif not count:
        error = MissingEntriesError("a block without an entry", offset=end)
    if error is not None:
        entry_id = header.first_entry_id + count
        raise error.located(ledger_id=header.ledger_id, entry_id=entry_id)


def _check_follows(before: WalkedBlock, block: WalkedBlock) -> None:
    """Check that a block can stand behind another: ledgers ascend, and begin with entry 0."""
    header, last = block.header, before.header
    is_same = header.ledger_id == last.ledger_id
    first = before.last_entry_id + 1 if is_same else 0
    missing = header.first_entry_id - first
    message = None
    if header.header_length_bytes != last.header_length_bytes:
        message = (
            f"block header length {header.header_length_bytes}; blocks before have"
            f" {last.header_length_bytes}"
        )
    elif header.ledger_id < last.ledger_id:
        message = f"a block of the ledger behind one of ledger {last.ledger_id}"
    elif missing and not (is_same and missing > 0 and before.may_lack(missing)):
        message = f"the block begins with entry {header.first_entry_id}, not {first}"
    if message is not None:
        raise CorruptBlockError(message, ledger_id=header.ledger_id, offset=block.start)
