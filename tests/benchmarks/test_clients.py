"""Benchmarks of clients of S3; run untimed with the tests of stores, on few messages."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.benchmarks.clients import CLIENTS, measure_clients, table

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.stores
def test_measure_gives_each_row(tmp_path: Path) -> None:
    """Each client must read the ranges that are compared."""
    rows = measure_clients(
        os.environ["VERSITYGW"], str(tmp_path), messages=500, ledgers=2, rounds=1
    )

    assert [row.requests for row in rows] == [2] * 2 * len(CLIENTS)
    assert len(table(rows)) == 1 + len(rows)
