"""The reconstruction of a PIP-17 index: a data object without its index object → its block table.

Each block records its length, and each entry its length and id. So a walk from one frame to the
next finds all blocks and counts the entries.
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
    """The result of a walk over all blocks and entries of a data object."""

    table: BlockTable
    length_bytes: int
    """Sum of the lengths of the entries' data."""
    last_positions: Sequence[int]
    """Start of the last entry of each block, in bytes."""
    is_padded: bool
    """Whether padding follows the last entry of the last block."""

    @property
    def looks_complete(self) -> bool:
        """Whether the last block looks like the last one of its ledger.

        Pulsar makes all blocks equally long, except the last, which has no padding. If the last
        block is padded, or as long as the first, the object was probably truncated there.
        """
        table, last = self.table, self.table.block_count - 1
        is_full = last > 0 and (
            table.block_header(last).block_length_bytes == table.block_header(0).block_length_bytes
        )
        return not self.is_padded and not is_full


def walk_data_object(reader: RangeReader, ledger_id: int) -> WalkedObject:
    """Walk over the frames of all entries of a data object, range by range; ignore checksums.

    Args:
        reader: Reader of the object; `size_bytes` is the real length.
        ledger_id: Ledger id, for errors.

    Raises:
        TruncatedObjectError: The object ends within a block, or is empty.
        UnknownFormatError: A block does not begin with the magic of PIP-17.
        CorruptBlockError: The header or an entry of a block does not continue the previous one.
        MissingEntriesError: A block has no entry: the offloader lost all entries from there.
        MissingObjectError: The object is missing.
        StorageError: The store denied access, requests failed until the deadline, or the object was
            replaced.
    """
    try:
        with RangeStream(reader.span(0, reader.size_bytes)) as stream:
            return _Walk(stream, reader.size_bytes).walk()
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

    def walk(self) -> WalkedObject:
        rows, last_positions = bytearray(), array("q")
        header_length_bytes = self._read_header(None).header_length_bytes
        while self._position < self._size_bytes:
            header = self._read_header(header_length_bytes)
            rows += INDEX_ENTRY.pack(self._entry_id, len(last_positions) + 1, self._position)
            if len(rows) > MAX_INDEX_OBJECT_BYTES:
                message = f"{counted(len(last_positions), 'block')} are more than an index may have"
                raise CorruptBlockError(message, offset=self._position)
            last_positions.append(self._walk_block(header))
        table = BlockTable(
            self._size_bytes, header_length_bytes, bytes(rows), last_entry_id=self._entry_id - 1
        )
        return WalkedObject(table, self._length_bytes, last_positions, self._is_padded)

    def _read_header(self, header_length_bytes: int | None) -> BlockHeader:
        """Read the header of the next block; its length must equal that of earlier headers."""
        offset = self._position
        view, start = self._stream.at(offset, BLOCK_FIELDS_BYTES)
        header = parse_block_header(view[start : start + BLOCK_FIELDS_BYTES], offset=offset)
        if header.first_entry_id != self._entry_id:
            message = f"the block begins with entry {header.first_entry_id}, not {self._entry_id}"
            raise CorruptBlockError(message, entry_id=self._entry_id, offset=offset)
        if header_length_bytes not in {None, header.header_length_bytes}:
            message = (
                f"block header length {header.header_length_bytes}; earlier blocks have"
                f" {header_length_bytes}"
            )
            raise CorruptBlockError(message, offset=offset)
        if header.block_length_bytes > self._size_bytes - offset:
            message = (
                f"the object has {counted(self._size_bytes - offset, 'byte')} of a block of"
                f" {header.block_length_bytes}"
            )
            raise TruncatedObjectError(message, offset=self._size_bytes)
        return header

    def _walk_block(self, header: BlockHeader) -> int:
        """Walk over the entries of a block; return the start of the last one."""
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
            message = "a block without an entry: the offloader lost this entry and those after it"
            raise MissingEntriesError(message, entry_id=self._entry_id, offset=self._position)
        self._position = stop
        return last_position

    def _entry_length(self, stop: int) -> int:
        """Return the length of the next entry's data; negative if the block has no other entry."""
        view, start = self._stream.at(self._position, ENTRY_HEADER_BYTES)
        length, entry_id = read_entry_header(view, start)
        if length < 0:
            return length
        problem, size = "", counted(length, "byte")
        if entry_id != self._entry_id:
            problem = f"found entry id {entry_id} instead of {self._entry_id}"
        elif length > _MAX_ENTRY_BYTES:
            problem = f"the entry announces {size}; at most {_MAX_ENTRY_BYTES} are accepted"
        elif length > stop - self._position - ENTRY_HEADER_BYTES:
            problem = f"the entry announces {size}, which exceeds its block"
        if problem:
            raise CorruptBlockError(problem, entry_id=self._entry_id, offset=self._position)
        return length

    def _check_padding(self, length: int) -> None:
        view, start = self._stream.at(self._position, length)
        if not is_padding(view[start : start + length]):
            message = "found neither an entry nor padding"
            raise CorruptBlockError(message, entry_id=self._entry_id, offset=self._position)
