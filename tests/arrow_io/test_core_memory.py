"""Where buffers come from, in each thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from arrow_io.core.memory import UseSystemMemory, allocate

_SIZE = 1 << 20


def _taken_from_the_system() -> bool:
    """Whether the next buffer is."""
    pool = pa.system_memory_pool()
    before = pool.bytes_allocated()
    buffer = allocate(_SIZE)
    assert buffer.size == _SIZE
    return bool(pool.bytes_allocated() - before >= _SIZE)


@pytest.fixture(autouse=True)
def _other_default() -> None:
    if pa.default_memory_pool().backend_name == "system":
        pytest.skip("Arrow's default is the system's allocator here")


def test_memory_is_the_systems_within_the_context_alone() -> None:
    """Also if it ends by an error, and within another one."""
    assert not _taken_from_the_system()
    with UseSystemMemory():
        with pytest.raises(ZeroDivisionError), UseSystemMemory():
            _ = 1 / 0
        assert _taken_from_the_system()
    assert not _taken_from_the_system()


def test_memory_is_chosen_for_each_thread() -> None:
    """What one thread chose is nothing to another, though that was started within the context."""
    with UseSystemMemory(), ThreadPoolExecutor(1) as pool:
        assert not pool.submit(_taken_from_the_system).result()
