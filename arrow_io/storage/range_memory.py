"""Memory for the ranges of one read, which is used again as soon as nothing refers to it.

A long read takes megabytes for each range, and drops as many. From an allocator they are new to the
process each time, page by page.
"""

from __future__ import annotations

from collections import deque

import pyarrow as pa


class RangeMemory:
    """Memory of ranges that were dropped, for those that come.

    What waits to be used again is never more than was in use at a time. Nothing waits behind
    `close`, nor when the last block is dropped that refers to this.

    Any thread may take blocks and drop them, and Python may drop some wherever it collects garbage.
    So nothing is locked here: memory changes hands by one call of a `deque`, and all else may be
    out of date.
    """

    def __init__(self) -> None:
        self._unused: deque[pa.Buffer] = deque()
        self._longest_bytes = 0
        self._keeps_unused = True
        self._is_open = True

    def take(self, size_bytes: int) -> RangeBlock:
        """A block of so many bytes, which are not set."""
        self._keeps_unused = True
        # Ranges grow while a topic is read: memory that is too short now will be so later.
        self._longest_bytes = max(self._longest_bytes, size_bytes)
        while True:
            try:
                memory = self._unused.pop()
            except IndexError:
                memory = pa.allocate_buffer(size_bytes, memory_pool=pa.system_memory_pool())
            if memory.size >= size_bytes:
                return RangeBlock(memory, self)

    def give_back(self, memory: pa.Buffer) -> None:
        """Take back the memory of a block that nothing refers to any more."""
        if self._is_open and self._keeps_unused and memory.size >= self._longest_bytes:
            self._unused.append(memory)

    def unused_bytes(self) -> int:
        """How many bytes wait to be used again."""
        return sum(each.size for each in self._unused.copy())

    def drop_unused(self) -> None:
        """Keep nothing that is unused, until the next block is taken."""
        self._keeps_unused = False
        self._unused.clear()

    def close(self) -> None:
        """Keep nothing any more; blocks that are in use stay as they are."""
        self._is_open = False
        self._unused.clear()


class RangeBlock:
    """Memory that goes back to where it came from when this and all views of it are dropped.

    Args:
        memory: The memory.
        home: Where it goes back to.
    """

    def __init__(self, memory: pa.Buffer, home: RangeMemory) -> None:
        self._memory = memory
        self._bytes = memoryview(memory).cast("B")
        self._home = home

    def __del__(self) -> None:
        """Give back the memory."""
        self._home.give_back(self._memory)

    def set(self, start: int, data: bytes) -> None:
        """Set the bytes from `start` on, as many as there are; the block must have room."""
        self._bytes[start : start + len(data)] = data

    def view(self, size_bytes: int) -> memoryview:
        """Its first bytes, at most all of them; read-only."""
        # A view of the memory itself would not keep the block.
        buffer = pa.foreign_buffer(self._memory.address, size_bytes, base=self)
        return memoryview(buffer).cast("B")
