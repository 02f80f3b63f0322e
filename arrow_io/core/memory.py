"""Where the memory of record batches, and of what is decompressed for them, comes from."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Chosen(threading.local):
    pool: pa.MemoryPool | None = None
    """None: Arrow's default."""


_chosen = _Chosen()


def allocate(size_bytes: int) -> pa.Buffer:
    """A new Arrow buffer; its bytes are not set."""
    return pa.allocate_buffer(size_bytes, memory_pool=_chosen.pool)


@contextmanager
def use_system_memory() -> Iterator[None]:
    """Have `allocate` take memory from the system's allocator, in this thread.

    Arrow's own keeps up to about 30 MB for each thread that takes memory from it. Of many threads,
    whose batches another one gives back, that is several times what all batches take together.
    """
    before = _chosen.pool
    _chosen.pool = pa.system_memory_pool()
    try:
        yield
    finally:
        _chosen.pool = before
