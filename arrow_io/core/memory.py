"""The allocator of the memory of record batches and decompressed payloads."""

from __future__ import annotations

import threading

import pyarrow as pa


class _PoolChoice(threading.local):
    pool: pa.MemoryPool | None = None
    """None: Arrow's default."""


_pool_choice = _PoolChoice()


def allocate(size_bytes: int) -> pa.Buffer:
    """Return a new Arrow buffer with uninitialized bytes."""
    return pa.allocate_buffer(size_bytes, memory_pool=_pool_choice.pool)


class UseSystemMemory:
    """A context in which `allocate` uses the system's allocator in this thread.

    Arrow's own allocator keeps up to about 30 MB for each thread that allocates. If many threads
    allocate batches that another thread frees, it keeps several times the size of all batches.
    """

    __slots__ = ("_previous",)

    def __enter__(self) -> None:
        self._previous = _pool_choice.pool
        _pool_choice.pool = pa.system_memory_pool()

    def __exit__(self, *_error: object) -> None:
        _pool_choice.pool = self._previous
