"""Which entries of an offloaded ledger stand in which block of its data object.

The table is that of the index block (`index_block`), kept in its bytes: 20 for each data block,
instead of a Python object.
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
_OFFSET_PLACE = 12


class BlockEntry(NamedTuple):
    """What the index block says of one data block."""

    first_entry_id: int
    part_id: int
    """Number of the part in the multipart upload, from 1; for information only."""
    offset: int
    """Where the block starts in the data object, in bytes."""


@dataclass(frozen=True, slots=True)
class BlockTable:
    """Where the blocks of a ledger begin and end in a data object, and which entries they hold.

    Blocks are numbered from 0; a block number outside 0 … `block_count` - 1 is an `OptionError`.
    """

    data_object_length_bytes: int
    """Where the last block ends. With one ledger in the object, as in PIP-17, its length; compare
    it with the real one."""
    data_header_length_bytes: int
    """Length of each data block's header."""
    entry_table: bytes
    """The index entries as they lie in the index object."""
    last_entry_id: int
    """Id of the ledger's last entry (inclusive), whether it is stored or missing."""
    block_count: int = field(init=False, repr=False, compare=False)
    """Number of data blocks that hold entries."""
    missing_from_entry_id: int | None = field(init=False, repr=False, compare=False)
    """First entry that the offloader lost, with all behind it; None if it lost none.

    An entry that fits no block makes Pulsar's offloader upload a block of padding and stop, as
    though all were done. Its index entry then points at the end of the data object.
    """

    def __post_init__(self) -> None:
        """Find what is asked for most."""
        last = self._row_count - 1
        is_defective = self._row_offset(last) == self.data_object_length_bytes
        missing_from = self._row_first_entry_id(last) if is_defective else None
        object.__setattr__(self, "block_count", last + 1 - is_defective)
        object.__setattr__(self, "missing_from_entry_id", missing_from)

    @property
    def entries(self) -> tuple[BlockEntry, ...]:
        """All index entries, made anew at each call; a defective last one included."""
        return tuple(map(BlockEntry._make, INDEX_ENTRY.iter_unpack(self.entry_table)))

    @property
    def entry_count(self) -> int:
        """Number of entries from the first block's on, whether they are stored or missing."""
        return self.last_entry_id - self.least_entry_id + 1

    @property
    def stored_bytes(self) -> int:
        """How many bytes of the data object all blocks take."""
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
        """Number of the block that holds an entry.

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
        """Where a block starts in the data object, in bytes."""
        return self._row_offset(self._checked(block))

    def block_stop(self, block: int) -> int:
        """Where a block stops in the data object, in bytes (exclusive)."""
        following = self._checked(block) + 1
        if following == self._row_count:
            return self.data_object_length_bytes
        return self._row_offset(following)

    def first_entry_id(self, block: int) -> int:
        """Id of the first entry of a block."""
        return self._row_first_entry_id(self._checked(block))

    def block_last_entry_id(self, block: int) -> int:
        """Id of the last entry of a block (inclusive)."""
        following = self._checked(block) + 1
        if following == self._row_count:
            return self.last_entry_id
        return self._row_first_entry_id(following) - 1

    def block_header(self, block: int) -> BlockHeader:
        """The header that must stand at a block's start."""
        return BlockHeader(
            self.block_stop(block) - self.block_start(block),
            self.first_entry_id(block),
            self.data_header_length_bytes,
        )

    def check_header(self, buffer: BytesLike, block: int, *, offset: int) -> None:
        """Compare a block's header with what the table says of it.

        Args:
            buffer: The header.
            block: Number of the block.
            offset: Where the block stands, in bytes, for errors.

        Raises:
            TruncatedObjectError: `buffer` is shorter than the header.
            UnknownFormatError: The block has another magic.
            CorruptBlockError: A field of the header differs.
        """
        check_block_header(buffer, expected=self.block_header(block), offset=offset)

    @property
    def _row_count(self) -> int:
        return len(self.entry_table) // INDEX_ENTRY_BYTES

    def _row_first_entry_id(self, row: int) -> int:
        entry_id: int = _FIRST_ENTRY_ID.unpack_from(self.entry_table, row * INDEX_ENTRY_BYTES)[0]
        return entry_id

    def _row_offset(self, row: int) -> int:
        place = row * INDEX_ENTRY_BYTES + _OFFSET_PLACE
        offset: int = _OFFSET.unpack_from(self.entry_table, place)[0]
        return offset

    def _checked(self, block: int) -> int:
        if not 0 <= block < self.block_count:
            has = counted(self.block_count, "block")
            message = f"no block {block}: the ledger has {has}, from 0"
            raise OptionError(message)
        return block


def packed(entry_table: bytes) -> bytes:
    """An entry table in fewer bytes, as it travels: about 3 for a block instead of 20.

    The difference between two neighbouring index entries is nearly the same for all of them.
    """
    before: tuple[int, ...] = 0, 0, 0
    differences = bytearray()
    for row in _UNSIGNED_ENTRY.iter_unpack(entry_table):
        differences += _UNSIGNED_ENTRY.pack(*_wrapped(row, before, -1))
        before = row
    columns = (differences[place::INDEX_ENTRY_BYTES] for place in range(INDEX_ENTRY_BYTES))
    return zlib.compress(b"".join(columns))


def unpacked(data: bytes) -> bytes:
    """The entry table that `packed` was given.

    Example:
        >>> unpacked(packed(bytes(range(40)))) == bytes(range(40))
        True
    """
    columns = zlib.decompress(data)
    row_count = len(columns) // INDEX_ENTRY_BYTES
    differences = b"".join(columns[row::row_count] for row in range(row_count))
    row: tuple[int, ...] = 0, 0, 0
    table = bytearray()
    for difference in _UNSIGNED_ENTRY.iter_unpack(differences):
        row = _wrapped(row, difference, 1)
        table += _UNSIGNED_ENTRY.pack(*row)
    return bytes(table)


def _wrapped(row: tuple[int, ...], other: tuple[int, ...], sign: int) -> tuple[int, ...]:
    """Sum or difference, field by field, within the width of the field."""
    bits = 64, 32, 64
    return tuple((a + sign * b) % 2**n for a, b, n in zip(row, other, bits, strict=True))
