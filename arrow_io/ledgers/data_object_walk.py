"""A data object of PIP-17 without its index object → what the index object must say.

A data object has no index of its own. But each block says how long it is, and each entry how long
it is and which one: so a walk from one frame to the next finds all blocks and counts the entries.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arrow_io.core.wording import counted
from arrow_io.errors import (
    CorruptBlockError,
    FormatError,
    MissingEntriesError,
    TruncatedObjectError,
)
from arrow_io.format.block_table import INDEX_ENTRY, BlockTable
from arrow_io.format.data_block import (
    BLOCK_FIELDS_BYTES,
    PADDING_PATTERN,
    BlockHeader,
    is_padding,
    parse_block_header,
)
from arrow_io.format.entry_frame import ENTRY_HEADER_BYTES, read_entry_header
from arrow_io.format.index_block import MAX_INDEX_OBJECT_BYTES
from arrow_io.messages.codecs import MAX_MESSAGE_BYTES
from arrow_io.storage.range_stream import RangeStream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arrow_io.storage.ranges import RangeReader

_MAX_ENTRY_BYTES = MAX_MESSAGE_BYTES - ENTRY_HEADER_BYTES


@dataclass(frozen=True, slots=True)
class WalkedObject:
    """What a walk over all blocks and entries of a data object found."""

    table: BlockTable
    """Where the entries stand."""
    length_bytes: int
    """Sum of the lengths of the entries' data."""
    last_positions: Sequence[int]
    """Where the last entry of each block begins, in bytes."""
    is_padded: bool
    """Whether padding follows the last entry of the last block."""

    @property
    def shows_its_end(self) -> bool:
        """Whether the last block looks like the last of its ledger.

        Pulsar makes that one just as long as its entries, and all others as long as each other. So
        if it is padded, or as long as the first, the object was probably cut between two blocks.
        """
        table, last = self.table, self.table.block_count - 1
        is_full = last > 0 and (
            table.block_header(last).block_length_bytes == table.block_header(0).block_length_bytes
        )
        return not self.is_padded and not is_full


def walk_data_object(reader: RangeReader, ledger_id: int) -> WalkedObject:
    """Walk over the frames of all entries of a data object; no checksum is compared.

    Reads the object once, range by range. Of an entry, only its header has to be in memory.

    Args:
        reader: Reads the object, of which `size_bytes` is the real length.
        ledger_id: Ledger id, for errors.

    Raises:
        TruncatedObjectError: The object ends within a block, or has no byte.
        UnknownFormatError: A block does not begin with the magic of PIP-17.
        CorruptBlockError: The header or an entry of a block does not follow on what is before it.
        MissingEntriesError: A block has no entry: the offloader lost all from there on.
        MissingObjectError: There is no such object.
        StorageError: The store refused, or went on failing, or the object was replaced.
    """
    try:
        with RangeStream(reader.span(0, reader.size_bytes)) as stream:
            return _Walk(stream, reader.size_bytes).whole()
    except FormatError as error:
        error.located(object_key=reader.name, ledger_id=ledger_id)
        raise


class _Walk:
    def __init__(self, stream: RangeStream, size_bytes: int) -> None:
        self._stream = stream
        self._size_bytes = size_bytes
        self._position = 0
        self._entry_id = 0
        self._length_bytes = 0
        self._is_padded = False

    def whole(self) -> WalkedObject:
        """Walk to the end of the object."""
        rows, last_positions = bytearray(), array("q")
        header_length_bytes = self._header(None).header_length_bytes
        while self._position < self._size_bytes:
            header = self._header(header_length_bytes)
            rows += INDEX_ENTRY.pack(self._entry_id, len(last_positions) + 1, self._position)
            if len(rows) > MAX_INDEX_OBJECT_BYTES:
                message = f"{counted(len(last_positions), 'block')} are more than an index may have"
                raise CorruptBlockError(message, offset=self._position)
            last_positions.append(self._block(header))
        table = BlockTable(
            self._size_bytes, header_length_bytes, bytes(rows), last_entry_id=self._entry_id - 1
        )
        return WalkedObject(table, self._length_bytes, last_positions, self._is_padded)

    def _header(self, header_length_bytes: int | None) -> BlockHeader:
        """The header of the next block, which is as long as those before it."""
        offset = self._position
        view, start = self._stream.at(offset, BLOCK_FIELDS_BYTES)
        header = parse_block_header(view[start : start + BLOCK_FIELDS_BYTES], offset=offset)
        if header.first_entry_id != self._entry_id:
            message = f"the block begins with entry {header.first_entry_id}, not {self._entry_id}"
            raise CorruptBlockError(message, entry_id=self._entry_id, offset=offset)
        if header_length_bytes not in {None, header.header_length_bytes}:
            message = (
                f"block header length {header.header_length_bytes}; blocks before have"
                f" {header_length_bytes}"
            )
            raise CorruptBlockError(message, offset=offset)
        if header.block_length_bytes > self._size_bytes - offset:
            message = (
                f"{counted(self._size_bytes - offset, 'byte')} of a block of"
                f" {header.block_length_bytes}"
            )
            raise TruncatedObjectError(message, offset=self._size_bytes)
        return header

    def _block(self, header: BlockHeader) -> int:
        """Walk over the entries of a block; gives where the last of them begins."""
        stop = self._position + header.block_length_bytes
        self._position += header.header_length_bytes
        last_position = None
        while stop - self._position >= ENTRY_HEADER_BYTES:
            length = self._entry_length(stop)
            if length < 0:
                break
            last_position = self._position
            self._position += ENTRY_HEADER_BYTES + length
            self._length_bytes += length
            self._entry_id += 1
        self._is_padded = self._position < stop
        if self._is_padded:
            self._check_padding(min(len(PADDING_PATTERN), stop - self._position))
        if last_position is None:
            message = "a block without an entry: the offloader lost this entry and those behind it"
            raise MissingEntriesError(message, entry_id=self._entry_id, offset=self._position)
        self._position = stop
        return last_position

    def _entry_length(self, stop: int) -> int:
        """Length of the next entry's data; negative if there is none up to the block's end."""
        view, start = self._stream.at(self._position, ENTRY_HEADER_BYTES)
        length, entry_id = read_entry_header(view, start)
        if length < 0:
            return length
        problem, size = "", counted(length, "byte")
        if entry_id != self._entry_id:
            problem = f"entry id {entry_id} where entry {self._entry_id} must stand"
        elif length > _MAX_ENTRY_BYTES:
            problem = f"an entry of {size}; at most {_MAX_ENTRY_BYTES} are believed"
        elif length > stop - self._position - ENTRY_HEADER_BYTES:
            problem = f"an entry of {size}, which reaches beyond its block"
        if problem:
            raise CorruptBlockError(problem, entry_id=self._entry_id, offset=self._position)
        return length

    def _check_padding(self, length: int) -> None:
        view, start = self._stream.at(self._position, length)
        if not is_padding(view[start : start + length]):
            message = "neither an entry nor padding"
            raise CorruptBlockError(message, entry_id=self._entry_id, offset=self._position)
