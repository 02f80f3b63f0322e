"""The frame of an entry within a data block (Pulsar's BlockAwareSegmentInputStreamImpl).

====== ==== ========= ==== ==============================================
Offset Size Field     Type Value
====== ==== ========= ==== ==============================================
0      4    entry_len i32  length of the data in bytes, ≥ 0; big-endian
4      8    entry_id  i64  big-endian
12     …    data           the entry as the broker gave it to BookKeeper
====== ==== ========= ==== ==============================================

Frames follow each other without alignment, their entry ids rise by one, and none crosses the end
of its block. This file serves the writer and random access; `arrow_io.messages` scans whole blocks
in a loop of its own.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, TypeAlias

from arrow_io.errors import TruncatedObjectError
from arrow_io.wording import counted

BytesLike: TypeAlias = bytes | bytearray | memoryview
"""Bytes in memory; a memoryview must be contiguous and have items of one byte."""

ENTRY_HEADER_BYTES = 12
"""Bytes in front of an entry's data."""

_ENTRY_HEADER = struct.Struct(">iq")


class EntryHeader(NamedTuple):
    """The 12 bytes in front of an entry's data."""

    length_bytes: int
    """Length of the data; negative where padding stands in place of an entry."""
    entry_id: int


def write_entry(entry_id: int, data: BytesLike) -> bytes:
    """The frame of an entry: its header, then its data.

    Args:
        entry_id: Id of the entry within its ledger.
        data: The entry, shorter than 2 GiB.
    """
    return _ENTRY_HEADER.pack(len(data), entry_id) + data


def read_entry_header(buffer: BytesLike, index: int) -> EntryHeader:
    """Read the header of an entry.

    Neither field is compared with anything here: only the caller knows the end of the block and the
    entry id that must stand there.

    Args:
        buffer: Bytes of a data block.
        index: Where the frame starts in `buffer`, in bytes.

    Raises:
        TruncatedObjectError: Fewer than 12 bytes are left in `buffer`.
    """
    left = len(buffer) - index
    if left < ENTRY_HEADER_BYTES:
        message = f"{counted(left, 'byte')} left where an entry header must stand"
        raise TruncatedObjectError(message)
    return EntryHeader(*_ENTRY_HEADER.unpack_from(buffer, index))
