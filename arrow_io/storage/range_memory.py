"""A pool of memory for the ranges of one read.

A long read allocates and drops megabytes for each range. From an allocator the pages would be new
to the process each time, and each first touch of a page costs time.
"""

from __future__ import annotations

from collections import deque

import pyarrow as pa


class RangeMemory:
    """A pool that reuses the memory of dropped ranges for new ones.

    The pool never holds more than was in use at a time. It holds nothing after `close`, or after
    the last block that refers to it is dropped.

    Any thread may take or drop blocks, and garbage collection may drop some anywhere. So there is
    no lock: memory changes owner in one call of a `deque`, and other fields may be out of date.
    """

    def __init__(self) -> None:
        self._unused: deque[pa.Buffer] = deque()
        self._longest_bytes = 0
        self._keeps_unused = True
        self._is_open = True

    def take(self, size_bytes: int) -> RangeBlock:
        """Return a block of at least `size_bytes` uninitialized bytes."""
        self._keeps_unused = True
        # Ranges grow while a topic is read, so memory that is too short now stays too short.
        self._longest_bytes = max(self._longest_bytes, size_bytes)
        while True:
            try:
                memory = self._unused.pop()
            except IndexError:
                memory = pa.allocate_buffer(size_bytes, memory_pool=pa.system_memory_pool())
            if memory.size >= size_bytes:
                return RangeBlock(memory, self)

    def give_back(self, memory: pa.Buffer) -> None:
        """Take back the memory of a block that has no references any more."""
        if self._is_open and self._keeps_unused and memory.size >= self._longest_bytes:
            self._unused.append(memory)

    def unused_bytes(self) -> int:
        """Return the size of the memory that waits to be reused, in bytes."""
        return sum(each.size for each in self._unused.copy())

    def drop_unused(self) -> None:
        """Free all unused memory, and hold none until the next block is taken."""
        self._keeps_unused = False
        self._unused.clear()

    def close(self) -> None:
        """Free all unused memory and hold none from now on; blocks in use stay valid."""
        self._is_open = False
        self._unused.clear()


class RangeBlock:
    """Memory that returns to its pool when the block and all views of it are dropped."""

    def __init__(self, memory: pa.Buffer, pool: RangeMemory) -> None:
        self._memory = memory
        self._bytes = memoryview(memory).cast("B")
        self._pool = pool

    def __del__(self) -> None:
        self._pool.give_back(self._memory)

    def set(self, start: int, data: bytes) -> None:
        """Write `data` at `start`; the block must have room."""
        self._bytes[start : start + len(data)] = data

    def view(self, size_bytes: int) -> memoryview:
        """Return a read-only view of the first bytes."""
        # A view of `_memory` would not keep the block alive, which returns the memory.
        buffer = pa.foreign_buffer(self._memory.address, size_bytes, base=self)
        return memoryview(buffer).cast("B")
