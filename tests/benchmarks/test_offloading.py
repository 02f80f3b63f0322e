"""Benchmarks of the offloader; run untimed in the test suite, on small ledgers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.benchmarks.__main__ import measure_offloads
from tests.benchmarks.offloading import ENTRY_SIZES, offload

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

    from tests.benchmarks.offloading import EntrySize

LENGTH_BYTES = 1 << 20


@pytest.mark.parametrize("size", ENTRY_SIZES, ids=lambda size: size.name)
def test_offload(benchmark: BenchmarkFixture, size: EntrySize) -> None:
    """An offload writes every entry of the ledger."""
    result = benchmark(offload, size.ledger(LENGTH_BYTES), block_bytes=1 << 18)

    assert result.data_bytes > LENGTH_BYTES
    assert result.block_count > 4


def test_measure_gives_each_size() -> None:
    """The table that `make bench` prints has a figure for each size of entries."""
    rows = measure_offloads(length_bytes=LENGTH_BYTES, rounds=1)

    assert [row.name for row in rows] == [size.name for size in ENTRY_SIZES]
    assert all(row.bytes_per_second > 0 for row in rows)
