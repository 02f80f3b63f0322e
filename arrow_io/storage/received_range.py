"""The bytes of one range, collected as they arrive from a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arrow_io.storage.range_memory import RangeMemory


class ReceivedRange:
    """The part of a range that has arrived.

    Attributes:
        received_bytes: Number of bytes that have arrived.
        is_too_long: Whether more bytes arrived than the range has. That part and all later ones are
            dropped.
    """

    def __init__(self, size_bytes: int, memory: RangeMemory) -> None:
        self._size_bytes = size_bytes
        self._block = memory.take(size_bytes)
        self.received_bytes = 0
        self.is_too_long = False

    def add(self, part: bytes) -> None:
        """Append the next part."""
        stop = self.received_bytes + len(part)
        self.is_too_long |= stop > self._size_bytes
        if not self.is_too_long:
            self._block.set(self.received_bytes, part)
            self.received_bytes = stop

    def data(self) -> memoryview:
        """Return a read-only view of the bytes that have arrived."""
        return self._block.view(self.received_bytes)
