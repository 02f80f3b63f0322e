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

All numbers are big-endian. Pulsar's writer (BufferedOffloadStream) does not count the first entry
in block_len. So a full block is longer than its header says, by up to that entry's length, and all
later blocks start that much later. Entries that did not fit even then are lost.
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
"""Size of the header's fields, the minimum length of a header."""

_FIELDS = struct.Struct(">Iqqqq")


@dataclass(frozen=True, slots=True)
class StreamingBlockHeader:
    """The header fields of a data block in a streaming object."""

    block_length_bytes: int
    """Length of the block as its writer counted it, including header and padding."""
    first_entry_id: int
    ledger_id: int
    header_length_bytes: int = BLOCK_HEADER_BYTES

    def serialize(self) -> bytes:
        """Return the header, `header_length_bytes` long."""
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
    """Compare the header of a data block with the index block; see `check_block_header`."""
    common = BlockHeader(
        expected.block_length_bytes, expected.first_entry_id, expected.header_length_bytes
    )
    owner = ("ledger id", expected.ledger_id, LEDGER_ID_OFFSET)
    check_block_fields(buffer, _FIELDS, STREAMING_DATA_BLOCK_MAGIC, common, [owner], offset=offset)
