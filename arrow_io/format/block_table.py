"""The block table of an offloaded ledger: which block of the data object holds which entries.

It consists of the index entries (rows) of the index block (`index_block`), as bytes: 20 for each
data block, instead of a Python object.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from arrow_io.core.wording import counted
from arrow_io.errors import EntryNotInLedgerError, MissingEntriesError, OptionError
from arrow_io.format.data_block import BlockHeader, check_block_header

if TYPE_CHECKING:
    from arrow_io.format.entry_frame import BytesLike

INDEX_ENTRY_BYTES = 20
INDEX_ENTRY = struct.Struct(">qiq")

_UNSIGNED_ENTRY = struct.Struct(">QIQ")
_FIRST_ENTRY_ID = struct.Struct(">q")
_OFFSET = struct.Struct(">q")
_OFFSET_POSITION = 12


class BlockEntry(NamedTuple):
    """The record of one data block in the index block."""

    first_entry_id: int
    part_id: int
    """Number of the part in the multipart upload, from 1; for information only."""
    offset: int
    """Start of the block in the data object, in bytes."""


@dataclass(frozen=True, slots=True)
class BlockTable:
    """The byte ranges of a ledger's blocks in a data object, and the entries that they hold.

    Blocks are numbered from 0; a block number outside 0 … `block_count` - 1 is an `OptionError`.
    """

    data_object_length_bytes: int
    """End of the last block.

    In PIP-17, where an object holds one ledger, this is the recorded length of the object; compare
    it with the actual length.
    """
    data_header_length_bytes: int
    """Length of each data block's header."""
    entry_table: bytes
    """The index entries, as the index object stores them."""
    last_entry_id: int
    """Id of the ledger's last entry (inclusive), even if that entry is missing."""
    block_count: int = field(init=False, repr=False, compare=False)
    """Number of data blocks that hold entries."""
    missing_from_entry_id: int | None = field(init=False, repr=False, compare=False)
    """First entry that the offloader lost, together with all later ones; None if it lost none.

    If an entry is too large for a block, Pulsar's offloader uploads a block of padding and stops as
    if it were done. The index entry of that block points at the end of the data object."""

    def __post_init__(self) -> None:
        """Compute the fields that depend on the last index entry."""
        last = self._row_count - 1
        is_defective = self._row_offset(last) == self.data_object_length_bytes
        missing_from = self._row_first_entry_id(last) if is_defective else None
        object.__setattr__(self, "block_count", last + 1 - is_defective)
        object.__setattr__(self, "missing_from_entry_id", missing_from)

    @property
    def entries(self) -> tuple[BlockEntry, ...]:
        """All index entries, also a defective last one; a new tuple at each access."""
        return tuple(map(BlockEntry._make, INDEX_ENTRY.iter_unpack(self.entry_table)))

    @property
    def entry_count(self) -> int:
        """Number of entries from the first block's on, including missing ones."""
        return self.last_entry_id - self.least_entry_id + 1

    @property
    def stored_bytes(self) -> int:
        """Size of all blocks in the data object, in bytes."""
        return self.data_object_length_bytes - self._row_offset(0)

    @property
    def least_entry_id(self) -> int:
        """Id of the first entry of the first block: 0 in PIP-17."""
        return self._row_first_entry_id(0)

    @property
    def may_lack_entries(self) -> bool:
        """Whether the offloader lost entries, or may have."""
        return self.missing_from_entry_id is not None

    def find_block(self, entry_id: int) -> int:
        """Return the number of the block that holds an entry.

        Raises:
            EntryNotInLedgerError: The entry id is outside `least_entry_id` … `last_entry_id`
                (inclusive).
            MissingEntriesError: The offloader lost the entry.
        """
        if not self.least_entry_id <= entry_id <= self.last_entry_id:
            message = f"the ledger has the entries {self.least_entry_id} … {self.last_entry_id}"
            raise EntryNotInLedgerError(message, entry_id=entry_id)
        missing_from = self.missing_from_entry_id
        if missing_from is not None and entry_id >= missing_from:
            message = (
                f"entries {missing_from} … {self.last_entry_id} were lost when the ledger was "
                "offloaded: an entry was larger than a block"
            )
            raise MissingEntriesError(message, entry_id=entry_id)
        return bisect_right(range(self._row_count), entry_id, key=self._row_first_entry_id) - 1

    def block_start(self, block: int) -> int:
        """Return the start of a block in the data object, in bytes."""
        return self._row_offset(self._check_number(block))

    def block_stop(self, block: int) -> int:
        """Return the end of a block in the data object, in bytes (exclusive)."""
        next_block = self._check_number(block) + 1
        if next_block == self._row_count:
            return self.data_object_length_bytes
        return self._row_offset(next_block)

    def first_entry_id(self, block: int) -> int:
        """Return the id of the first entry of a block."""
        return self._row_first_entry_id(self._check_number(block))

    def block_last_entry_id(self, block: int) -> int:
        """Return the id of the last entry of a block (inclusive)."""
        next_block = self._check_number(block) + 1
        if next_block == self._row_count:
            return self.last_entry_id
        return self._row_first_entry_id(next_block) - 1

    def block_header(self, block: int) -> BlockHeader:
        """Return the header that the data object must have at a block's start."""
        return BlockHeader(
            self.block_stop(block) - self.block_start(block),
            self.first_entry_id(block),
            self.data_header_length_bytes,
        )

    def check_header(self, buffer: BytesLike, block: int, *, offset: int) -> None:
        """Compare the header of block number `block` with the table; see `check_block_header`."""
        check_block_header(buffer, expected=self.block_header(block), offset=offset)

    @property
    def _row_count(self) -> int:
        return len(self.entry_table) // INDEX_ENTRY_BYTES

    def _row_first_entry_id(self, row: int) -> int:
        entry_id: int = _FIRST_ENTRY_ID.unpack_from(self.entry_table, row * INDEX_ENTRY_BYTES)[0]
        return entry_id

    def _row_offset(self, row: int) -> int:
        position = row * INDEX_ENTRY_BYTES + _OFFSET_POSITION
        offset: int = _OFFSET.unpack_from(self.entry_table, position)[0]
        return offset

    def _check_number(self, block: int) -> int:
        if not 0 <= block < self.block_count:
            has = counted(self.block_count, "block")
            message = f"no block {block}: the ledger has {has}, from 0"
            raise OptionError(message)
        return block


def pack_entry_table(entry_table: bytes) -> bytes:
    """Compress an entry table for transfer: about 3 bytes for each block instead of 20.

    The difference between two neighbouring index entries is nearly the same for all of them.
    """
    previous: tuple[int, ...] = 0, 0, 0
    differences = bytearray()
    for row in _UNSIGNED_ENTRY.iter_unpack(entry_table):
        differences += _UNSIGNED_ENTRY.pack(*_add_wrapped(row, previous, -1))
        previous = row
    columns = (differences[position::INDEX_ENTRY_BYTES] for position in range(INDEX_ENTRY_BYTES))
    return zlib.compress(b"".join(columns))


def unpack_entry_table(data: bytes) -> bytes:
    """Return the entry table that `pack_entry_table` compressed.

    Example:
        >>> unpack_entry_table(pack_entry_table(bytes(range(40)))) == bytes(range(40))
        True
    """
    columns = zlib.decompress(data)
    row_count = len(columns) // INDEX_ENTRY_BYTES
    differences = b"".join(columns[row::row_count] for row in range(row_count))
    row: tuple[int, ...] = 0, 0, 0
    table = bytearray()
    for difference in _UNSIGNED_ENTRY.iter_unpack(differences):
        row = _add_wrapped(row, difference, 1)
        table += _UNSIGNED_ENTRY.pack(*row)
    return bytes(table)


def _add_wrapped(row: tuple[int, ...], other: tuple[int, ...], sign: int) -> tuple[int, ...]:
    """Add or subtract two index entries field by field, modulo the width of each field."""
    bits = 64, 32, 64
    return tuple((a + sign * b) % 2**n for a, b, n in zip(row, other, bits, strict=True))
