"""The frame of an entry within a data block (Pulsar's BlockAwareSegmentInputStreamImpl).

====== ==== ========= ==== ==============================================
Offset Size Field     Type Value
====== ==== ========= ==== ==============================================
0      4    entry_len i32  length of the data in bytes, ≥ 0; big-endian
4      8    entry_id  i64  big-endian
12     …    data           the entry as the broker gave it to BookKeeper
====== ==== ========= ==== ==============================================

Frames follow each other without alignment, their entry ids rise by one, and none crosses the end of
its block. `arrow_io.messages` reads whole blocks in its own compiled loop.
"""

from __future__ import annotations

import struct
from typing import TypeAlias

BytesLike: TypeAlias = bytes | bytearray | memoryview
"""Bytes in memory; a memoryview must be contiguous with items of one byte."""

ENTRY_HEADER_BYTES = 12
"""Length of the header before an entry's data."""

_ENTRY_HEADER = struct.Struct(">iq")


def write_entry(entry_id: int, data: BytesLike) -> bytes:
    """Return the frame of an entry shorter than 2 GiB: its header, then its data."""
    return _ENTRY_HEADER.pack(len(data), entry_id) + data


def read_entry_header(buffer: BytesLike, position: int) -> tuple[int, int]:
    """Return the length of an entry's data and its id; the length is negative for padding.

    Args:
        buffer: Bytes of a data block.
        position: Start of the header in them; at least 12 bytes follow.
    """
    length, entry_id = _ENTRY_HEADER.unpack_from(buffer, position)
    return length, entry_id
