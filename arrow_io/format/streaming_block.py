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

from arrow_io.format.data_block import (
    BLOCK_HEADER_BYTES,
    BlockHeader,
    check_block_fields,
)
from arrow_io.format.magics import STREAMING_DATA_BLOCK_MAGIC

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
    common = BlockHeader(
        expected.block_length_bytes, expected.first_entry_id, expected.header_length_bytes
    )
    owner = ("ledger id", expected.ledger_id, LEDGER_ID_OFFSET)
    check_block_fields(buffer, _FIELDS, STREAMING_DATA_BLOCK_MAGIC, common, [owner], offset=offset)
