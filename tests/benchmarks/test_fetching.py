"""Benchmarks of reads through a store that takes its time; run untimed in the test suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.benchmarks import fetching

if TYPE_CHECKING:
    import pytest


def test_measure_gives_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures that `make bench-store` prints are there, for few messages and without waits."""
    monkeypatch.setattr(fetching, "FIRST_BYTE_S", 1e-6)
    monkeypatch.setattr(fetching, "BYTES_PER_S", 1e12)

    rows = fetching.measure_fetching(messages=500, ledgers=2, small_ledgers=20)

    assert [row.requests for row in rows] == [2, 2, 2, 1, 1, 1, 1, 20]
    assert all(row.seconds > 0 for row in rows)
    assert len(fetching.table(rows)) == 1 + len(rows)
