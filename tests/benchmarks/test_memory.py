"""Benchmarks of memory; run in the test suite on few messages."""

from __future__ import annotations

from tests.benchmarks.memory import measure_memory, table
from tests.support.benchmark_ledgers import BENCHMARK_LEDGERS


def test_measure_gives_each_row() -> None:
    """Each shape of ledger is read, and those with a schema twice."""
    rows = measure_memory(messages=500, ledgers=2)

    typed = sum(each.schema is not None for each in BENCHMARK_LEDGERS)
    assert len(rows) == len(BENCHMARK_LEDGERS) + typed
    assert all(row.peak_bytes >= 0 for row in rows)
    assert len(table(rows)) == 1 + len(rows)
