"""Looks for the blocks and entries of a data object of streaming offload (PIP-76)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arrow_io.format.streaming_block import StreamingBlockHeader
    from arrow_io.storage.ranges import RangeReader

_FIRST_LOOK_BYTES: Final = 4 << 10
"""Read where a block should begin; an entry, by which it may stand further behind, is small."""
_ENTRY_HEADER: Final = struct.Struct(">iq")
_LOOK_GROWTH: Final = 16
_MAX_LOOK_BYTES: Final = 4 << 20


class ForwardReader:
    """Reads an object from its start on, some bytes more than are asked for, which it keeps."""

    def __init__(self, reader: RangeReader) -> None:
        self._reader = reader
        self._start, self._data = 0, b""
        self.size_bytes = reader.size_bytes

    def read(self, start: int, stop: int, least_bytes: int = _FIRST_LOOK_BYTES) -> bytes:
        """The bytes `[start, stop)`, as far as the object goes; a request asks for so many."""
        stop = min(stop, self.size_bytes)
        if start < self._start or stop > self._start + len(self._data):
            ahead = min(max(stop, start + least_bytes), self.size_bytes)
            self._start, self._data = start, self._reader.read(min(start, ahead), ahead)
        return self._data[start - self._start : max(stop - self._start, 0)]

    def places(self, wanted: bytes, first: int, last: int) -> Iterator[int]:
        """Where some bytes stand that begin at `first … last` (inclusive), ascending."""
        position, look_bytes = first, max(_FIRST_LOOK_BYTES - len(wanted), 1)
        while position <= last:
            behind = min(position + look_bytes, last + 1)
            data = self.read(position, behind + len(wanted) - 1)
            place = data.find(wanted)
            while place >= 0:
                yield position + place
                place = data.find(wanted, place + 1)
            position, look_bytes = behind, min(look_bytes * _LOOK_GROWTH, _MAX_LOOK_BYTES)

    def entry_bytes(
        self, position: int, entry_id: int, least_bytes: int = _FIRST_LOOK_BYTES
    ) -> int | None:
        """How many bytes an entry's data has whose frame begins there; None if none does."""
        header = self.read(position, position + _ENTRY_HEADER.size, least_bytes)
        if len(header) < _ENTRY_HEADER.size:
            return None
        length: int
        length, found = _ENTRY_HEADER.unpack(header)
        return length if length >= 0 and found == entry_id else None

    def frames(self, start: int, header: StreamingBlockHeader) -> Iterator[tuple[int, int]]:
        """Where each entry of a block begins, and where it ends.

        An entry begins within the length that the block's writer counted, and may end behind it.

        Args:
            start: Where the block begins.
            header: Its header.
        """
        told_stop = start + header.block_length_bytes
        position, entry_id = start + header.header_length_bytes, header.first_entry_id
        while position < told_stop:
            ahead_bytes = min(told_stop - position, _MAX_LOOK_BYTES)
            length = self.entry_bytes(position, entry_id, ahead_bytes)
            if length is None:
                return
            stop = position + _ENTRY_HEADER.size + length
            yield position, stop
            position, entry_id = stop, entry_id + 1


def end_of_entries(data: ForwardReader, start: int, header: StreamingBlockHeader) -> int:
    """Where a block ends whose last entry begins within the length that its writer counted."""
    end = start + header.block_length_bytes
    for _, stop in data.frames(start, header):
        end = max(end, stop)
    return end
