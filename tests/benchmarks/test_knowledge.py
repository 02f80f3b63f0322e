"""Benchmarks of statistics; run untimed in the test suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.benchmarks import knowledge

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_measures_give_each_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The figures that `make bench-store` prints are there, for few messages and without waits."""
    monkeypatch.setattr(knowledge, "FIRST_BYTE_S", 1e-6)
    monkeypatch.setattr(knowledge, "BYTES_PER_S", 1e12)
    monkeypatch.setattr(knowledge, "_FILE_LEDGERS", 5)

    rows = knowledge.measure_reads(tmp_path, messages=10_000, ledgers=2)
    plans = knowledge.measure_plans(tmp_path, ledgers=20)

    shares = {row.name: row.share for row in rows}
    assert shares["analyze"] == shares["positions, without statistics"] > 0.99
    assert shares["1 % by time"] < 0.7
    assert shares["one of 20 keys, the mean"] < 0.7
    assert shares["count_rows"] == 0
    assert [each.ranges for each in plans] == [2, 20, 0]
    assert len(knowledge.table(rows, plans)) == 3 + len(rows) + len(plans)
