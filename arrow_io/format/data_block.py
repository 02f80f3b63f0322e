"""Data blocks: the pieces that a data object is made of (PIP-17, DataBlockHeaderImpl).

====== ==== ============== ==== ==================================================
Offset Size Field          Type Value
====== ==== ============== ==== ==================================================
0      4    magic          u32  0xFBDBABCB
4      8    header_len     i64  128
12     8    block_len      i64  bytes of this block, header and padding included
20     8    first_entry_id i64  id of the first entry of this block
28     100                      zeroes
128    …                        entries (see `entry_frame`)
…      …                        padding up to block_len
====== ==== ============== ==== ==================================================

All numbers are big-endian. Padding repeats `FE DC DE AD` from its first byte; the last word may be
incomplete. Every block but the last has the offloader's maximum block size; the last block is as
long as its entries need.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arrow_io.core.wording import counted
from arrow_io.errors import CorruptBlockError, TruncatedObjectError
from arrow_io.format.entry_frame import ENTRY_HEADER_BYTES, BytesLike
from arrow_io.format.magics import DATA_BLOCK_MAGIC, check_magic

if TYPE_CHECKING:
    from collections.abc import Sequence

HEADER_LENGTH_OFFSET = 4
BLOCK_LENGTH_OFFSET = 12
FIRST_ENTRY_ID_OFFSET = 20
BLOCK_FIELDS_BYTES = 28
"""Size of the header's fields, the minimum length of a header."""
BLOCK_HEADER_BYTES = 128
"""Length of the header that Pulsar writes, with trailing zeroes."""
MAX_BLOCK_HEADER_BYTES = 4096
"""Maximum header length that is accepted (inclusive)."""
PADDING_PATTERN = b"\xfe\xdc\xde\xad"

_FIELDS = struct.Struct(">Iqqq")


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """The fields of a data block's header."""

    block_length_bytes: int
    """Length of the block, including header and padding."""
    first_entry_id: int
    header_length_bytes: int = BLOCK_HEADER_BYTES


def write_block_header(header: BlockHeader) -> bytes:
    """Return the bytes of a block header, `header.header_length_bytes` long."""
    fields = _FIELDS.pack(
        DATA_BLOCK_MAGIC,
        header.header_length_bytes,
        header.block_length_bytes,
        header.first_entry_id,
    )
    return fields.ljust(header.header_length_bytes, b"\0")


def check_block_header(buffer: BytesLike, *, expected: BlockHeader, offset: int) -> None:
    """Compare the header of a data block with the index block.

    Pulsar itself never reads these headers; they alone show that an index block and a data object
    belong together.

    Args:
        buffer: The data block from its first byte; at least its header.
        expected: The header according to the index block (`IndexBlock.block_header`).
        offset: Offset of the block within the data object in bytes, for errors.

    Raises:
        TruncatedObjectError: `buffer` is shorter than the header.
        UnknownFormatError: The block has another magic.
        CorruptBlockError: A field differs from what is expected.
    """
    check_block_fields(buffer, _FIELDS, DATA_BLOCK_MAGIC, expected, offset=offset)


def parse_block_header(buffer: BytesLike, *, offset: int) -> BlockHeader:
    """Read the header of a data block without an index block to compare it with.

    Args:
        buffer: The data block from its first byte; at least `BLOCK_FIELDS_BYTES`.
        offset: Offset of the block within the data object in bytes, for errors.

    Raises:
        UnknownFormatError: The block has another magic.
        CorruptBlockError: The header's length is out of bounds or greater than the block's.
    """
    magic, header_length, block_length, first_entry_id = _FIELDS.unpack_from(buffer)
    check_magic(magic, DATA_BLOCK_MAGIC, offset=offset)
    if not BLOCK_FIELDS_BYTES <= header_length <= MAX_BLOCK_HEADER_BYTES:
        message = (
            f"block header length {header_length}; allowed are"
            f" {BLOCK_FIELDS_BYTES} … {MAX_BLOCK_HEADER_BYTES}"
        )
        raise CorruptBlockError(message, offset=offset + HEADER_LENGTH_OFFSET)
    if block_length < header_length:
        message = (
            f"block length {block_length} is less than the block header length {header_length}"
        )
        raise CorruptBlockError(message, offset=offset + BLOCK_LENGTH_OFFSET)
    return BlockHeader(block_length, first_entry_id, header_length)


def check_block_fields(
    buffer: BytesLike,
    layout: struct.Struct,
    magic: int,
    expected: BlockHeader,
    extra_fields: Sequence[tuple[str, int, int]] = (),
    *,
    offset: int,
) -> None:
    """Compare the header of a data block of either format; see `check_block_header`.

    Args:
        buffer: The data block from its first byte; at least its header.
        layout: The fields: the magic, those of `BlockHeader` in their order, and additional ones.
        magic: The expected magic.
        expected: The header according to the index block.
        extra_fields: Name, expected value and offset within the header of each additional field.
        offset: Offset of the block within the data object in bytes, for errors.
    """
    if len(buffer) < expected.header_length_bytes:
        message = (
            f"{counted(len(buffer), 'byte')} instead of a block header of"
            f" {expected.header_length_bytes}"
        )
        raise TruncatedObjectError(message, offset=offset)
    actual_magic, *values = layout.unpack_from(buffer)
    check_magic(actual_magic, magic, offset=offset)
    expected_fields = (
        ("header length", expected.header_length_bytes, HEADER_LENGTH_OFFSET),
        ("block length", expected.block_length_bytes, BLOCK_LENGTH_OFFSET),
        ("first entry id", expected.first_entry_id, FIRST_ENTRY_ID_OFFSET),
        *extra_fields,
    )
    for number, (name, value, field_offset) in zip(values, expected_fields, strict=True):
        if number != value:
            message = f"{name} is {number} in the block header, but {value} in the index block"
            raise CorruptBlockError(
                message, entry_id=expected.first_entry_id, offset=offset + field_offset
            )


def padding(n_bytes: int) -> bytes:
    """Return the padding after a block's last entry, `n_bytes` ≥ 0 long.

    Example:
        >>> padding(6).hex(" ")
        'fe dc de ad fe dc'
    """
    words, rest = divmod(n_bytes, len(PADDING_PATTERN))
    return PADDING_PATTERN * words + PADDING_PATTERN[:rest]


def is_padding(buffer: BytesLike) -> bool:
    """Return whether all of `buffer` is padding, starting with the padding's first byte."""
    return buffer == padding(len(buffer))


def block_length_bytes(
    *,
    max_block_bytes: int,
    first_entry_id: int,
    last_entry_id: int,
    ledger_length_bytes: int,
    earlier_length_bytes: int,
) -> int:
    """Return the length of the block that starts with an entry (Pulsar's `calculateBlockSize`).

    Args:
        max_block_bytes: Maximum block size of the offloader.
        first_entry_id: First entry of the block.
        last_entry_id: Last entry of the ledger (inclusive).
        ledger_length_bytes: Sum of the lengths of all entries' data.
        earlier_length_bytes: The part of that sum in earlier blocks.
    """
    n_entries = last_entry_id - first_entry_id + 1
    exact = (
        BLOCK_HEADER_BYTES
        + n_entries * ENTRY_HEADER_BYTES
        + ledger_length_bytes
        - earlier_length_bytes
    )
    return min(max_block_bytes, exact)
