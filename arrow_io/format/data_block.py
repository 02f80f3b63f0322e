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

All numbers are big-endian. Padding repeats `FE DC DE AD`; the pattern starts with the first byte of
the padding, and its last word may be cut. Every block but the last has the maximum block size that
the offloader was set to; the last is just as long as its entries need.
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
"""Bytes of the header's fields: no header can be shorter."""
BLOCK_HEADER_BYTES = 128
"""Bytes of the header that Pulsar writes, zeroes included."""
MAX_BLOCK_HEADER_BYTES = 4096
"""Longest block header that we believe (inclusive)."""
PADDING_PATTERN = b"\xfe\xdc\xde\xad"

_FIELDS = struct.Struct(">Iqqq")


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """The fields of a data block's header."""

    block_length_bytes: int
    """Bytes of the block, header and padding included."""
    first_entry_id: int
    header_length_bytes: int = BLOCK_HEADER_BYTES


def write_block_header(header: BlockHeader) -> bytes:
    """The header of a data block, `header.header_length_bytes` long."""
    fields = _FIELDS.pack(
        DATA_BLOCK_MAGIC,
        header.header_length_bytes,
        header.block_length_bytes,
        header.first_entry_id,
    )
    return fields.ljust(header.header_length_bytes, b"\0")


def check_block_header(buffer: BytesLike, *, expected: BlockHeader, offset: int) -> None:
    """Compare the header of a data block with what the index block says.

    Pulsar itself never reads these headers; they alone show that an index block and a data
    object belong together.

    Args:
        buffer: The data block from its first byte on; at least its header.
        expected: What the index block says of this block (`IndexBlock.block_header`).
        offset: Byte offset of the block within the data object, for errors.

    Raises:
        TruncatedObjectError: `buffer` is shorter than the header.
        UnknownFormatError: The block has another magic.
        CorruptBlockError: A field differs from what is expected.
    """
    check_block_fields(buffer, _FIELDS, DATA_BLOCK_MAGIC, expected, offset=offset)


def parse_block_header(buffer: BytesLike, *, offset: int) -> BlockHeader:
    """Read the header of a data block of which no index block says anything.

    Args:
        buffer: The data block from its first byte on; `BLOCK_FIELDS_BYTES` of it at least.
        offset: Byte offset of the block within the data object, for errors.

    Raises:
        UnknownFormatError: The block has another magic.
        CorruptBlockError: Its header has a length that we do not believe, or is longer than the
            block.
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
        message = f"a block of {counted(block_length, 'byte')} with a header of {header_length}"
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
    """Compare the header of a data block, of either format, with what the index block says.

    Args:
        buffer: The data block from its first byte on; at least its header.
        layout: Its fields: the magic, those of `BlockHeader` as they stand, and further ones.
        magic: The magic.
        expected: What the index block says of this block.
        extra_fields: Name, value and offset within the header of each further field, likewise.
        offset: Byte offset of the block within the data object, for errors.

    Raises:
        TruncatedObjectError: `buffer` is shorter than the header.
        UnknownFormatError: The block has another magic.
        CorruptBlockError: A field differs from what is expected.
    """
    if len(buffer) < expected.header_length_bytes:
        message = (
            f"{counted(len(buffer), 'byte')} where a block header of"
            f" {expected.header_length_bytes} must stand"
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
            message = f"{name} {number} in the block header, {value} by the index block"
            raise CorruptBlockError(
                message, entry_id=expected.first_entry_id, offset=offset + field_offset
            )


def padding(n_bytes: int) -> bytes:
    """The bytes that fill a block behind its last entry, `n_bytes` ≥ 0 of them.

    Example:
        >>> padding(6).hex(" ")
        'fe dc de ad fe dc'
    """
    words, rest = divmod(n_bytes, len(PADDING_PATTERN))
    return PADDING_PATTERN * words + PADDING_PATTERN[:rest]


def is_padding(buffer: BytesLike) -> bool:
    """Whether all of `buffer` is padding, its first byte being the first of the padding."""
    return buffer == padding(len(buffer))


def block_length_bytes(
    *,
    max_block_bytes: int,
    first_entry_id: int,
    last_entry_id: int,
    ledger_length_bytes: int,
    earlier_length_bytes: int,
) -> int:
    """How long the block that starts with an entry is (Pulsar's `calculateBlockSize`).

    Args:
        max_block_bytes: Block size that the offloader is set to.
        first_entry_id: First entry of the block.
        last_entry_id: Last entry of the ledger (inclusive).
        ledger_length_bytes: Sum of the lengths of all entries' data.
        earlier_length_bytes: The part of that sum that lies in earlier blocks.
    """
    n_entries = last_entry_id - first_entry_id + 1
    exact = (
        BLOCK_HEADER_BYTES
        + n_entries * ENTRY_HEADER_BYTES
        + ledger_length_bytes
        - earlier_length_bytes
    )
    return min(max_block_bytes, exact)
