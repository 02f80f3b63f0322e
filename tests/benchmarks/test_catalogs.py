"""Benchmarks of catalogs; run untimed in the test suite, on a few ledgers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.benchmarks.catalogs import measure_catalogs, open_through_store, table

if TYPE_CHECKING:
    from pathlib import Path


def test_measure_gives_each_shape(tmp_path: Path) -> None:
    """The figures that `make bench-store` prints are there for each shape, and for the store."""
    rows = measure_catalogs(tmp_path, [(3, 300)], rounds=1)
    flights = open_through_store(40, first_byte_s=0)

    assert [(row.topics, row.ledgers) for row in rows] == [(3, 300)]
    assert rows[0].seconds > 0
    assert flights.count == 40
    assert len(table(rows, flights)) == 2
