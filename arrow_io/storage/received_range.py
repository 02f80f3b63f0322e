"""The bytes of one range, put together as they come from a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arrow_io.storage.range_memory import RangeMemory


class ReceivedRange:
    """The first bytes of a range, as far as they have come.

    Args:
        size_bytes: Length of the range, in bytes.
        memory: Has the memory for them.

    Attributes:
        received_bytes: How many bytes have come.
        is_too_long: Whether more came than the range has. What came then was dropped, and all that
            came behind it.
    """

    def __init__(self, size_bytes: int, memory: RangeMemory) -> None:
        self._size_bytes = size_bytes
        self._block = memory.take(size_bytes)
        self.received_bytes = 0
        self.is_too_long = False

    def add(self, part: bytes) -> None:
        """Put what came next behind what came before."""
        stop = self.received_bytes + len(part)
        self.is_too_long |= stop > self._size_bytes
        if not self.is_too_long:
            self._block.set(self.received_bytes, part)
            self.received_bytes = stop

    def data(self) -> memoryview:
        """What has come; read-only."""
        return self._block.view(self.received_bytes)
