"""Data blocks of streaming offload (PIP-76, StreamingDataBlockHeaderImpl).

====== ==== ============== ==== ==================================================
Offset Size Field          Type Value
====== ==== ============== ==== ==================================================
0      4    magic          u32  0x26A66D32
4      8    header_len     i64  128
12     8    block_len      i64  bytes of this block, header and padding included
20     8    first_entry_id i64  id of the first entry of this block
28     8    ledger_id      i64  ledger of all its entries
36     92                       zeroes
128    …                        entries and padding as in `data_block`
====== ==== ============== ==== ==================================================

All numbers are big-endian. Pulsar's writer (BufferedOffloadStream) leaves the first entry out of
block_len: a block whose entries fill it is longer than its header says, by up to that entry's
length, and all that follows in the object stands so much further behind. Entries for which there
was no room even so are nowhere.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arrow_io.errors import CorruptBlockError, TruncatedObjectError
from arrow_io.format.data_block import (
    BLOCK_HEADER_BYTES,
    BLOCK_LENGTH_OFFSET,
    FIRST_ENTRY_ID_OFFSET,
    HEADER_LENGTH_OFFSET,
)
from arrow_io.format.magics import STREAMING_DATA_BLOCK_MAGIC, check_magic
from arrow_io.wording import counted

if TYPE_CHECKING:
    from arrow_io.format.entry_frame import BytesLike

LEDGER_ID_OFFSET = 28
STREAMING_FIELDS_BYTES = 36
"""Bytes of the header's fields: no header can be shorter."""

_FIELDS = struct.Struct(">Iqqqq")


@dataclass(frozen=True, slots=True)
class StreamingBlockHeader:
    """The fields of the header of a data block in a streaming object."""

    block_length_bytes: int
    """Bytes of the block by its writer's count, header and padding included."""
    first_entry_id: int
    ledger_id: int
    header_length_bytes: int = BLOCK_HEADER_BYTES

    def serialize(self) -> bytes:
        """The header, `header_length_bytes` long."""
        fields = _FIELDS.pack(
            STREAMING_DATA_BLOCK_MAGIC,
            self.header_length_bytes,
            self.block_length_bytes,
            self.first_entry_id,
            self.ledger_id,
        )
        return fields.ljust(self.header_length_bytes, b"\0")


def check_streaming_header(
    buffer: BytesLike, *, expected: StreamingBlockHeader, offset: int
) -> None:
    """Compare the header of a data block with what the index block says.

    Args:
        buffer: The data block from its first byte on; at least its header.
        expected: What the index block says of this block.
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
    magic, header_length, block_length, first_entry_id, ledger_id = _FIELDS.unpack_from(buffer)
    check_magic(magic, STREAMING_DATA_BLOCK_MAGIC, offset=offset)
    for name, found, wanted, field_offset in (
        ("header length", header_length, expected.header_length_bytes, HEADER_LENGTH_OFFSET),
        ("block length", block_length, expected.block_length_bytes, BLOCK_LENGTH_OFFSET),
        ("first entry id", first_entry_id, expected.first_entry_id, FIRST_ENTRY_ID_OFFSET),
        ("ledger id", ledger_id, expected.ledger_id, LEDGER_ID_OFFSET),
    ):
        if found != wanted:
            message = f"{name} {found} in the block header, {wanted} by the index block"
            raise CorruptBlockError(
                message, entry_id=expected.first_entry_id, offset=offset + field_offset
            )
