"""Benchmarks of memory; run in the test suite on few messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.benchmarks import memory
from tests.benchmarks.memory import measure_memory, table
from tests.support.benchmark_ledgers import BENCHMARK_LEDGERS

if TYPE_CHECKING:
    import pytest


def test_measure_gives_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shape of ledger without a schema is read, and one with a schema twice."""
    plain = next(each for each in BENCHMARK_LEDGERS if not each.schema)
    typed = next(each for each in BENCHMARK_LEDGERS if each.schema)
    monkeypatch.setattr(memory, "BENCHMARK_LEDGERS", [plain, typed])

    rows = measure_memory(messages=500, ledgers=2)

    assert len(rows) == 3
    assert all(row.peak_bytes >= 0 for row in rows)
    assert len(table(rows)) == 1 + len(rows)
