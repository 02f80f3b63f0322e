"""Benchmarks of copies to plain Parquet; run untimed in the test suite, on few messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.benchmarks.__main__ import measure_copies
from tests.benchmarks.copying import by_hand, copy
from tests.benchmarks.decoding import store
from tests.support.benchmark_ledgers import BENCHMARK_LEDGERS

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_benchmark.fixture import BenchmarkFixture

    from tests.support.benchmark_ledgers import BenchmarkLedger

MESSAGES = 2000
TYPED = [each for each in BENCHMARK_LEDGERS if each.schema]


@pytest.mark.parametrize("ledger", TYPED, ids=lambda ledger: ledger.name)
@pytest.mark.parametrize("write", [by_hand, copy], ids=["by-hand", "copy"])
def test_copy(
    benchmark: BenchmarkFixture, ledger: BenchmarkLedger, write: object, tmp_path: Path
) -> None:
    """A copy has every message of the ledger."""
    stored = store(ledger, str(tmp_path), MESSAGES)

    rows = benchmark(write, stored, str(tmp_path))

    assert rows == MESSAGES


def test_measure_gives_each_ledger() -> None:
    """The table that `make bench` prints has both figures for each ledger with a schema."""
    rows = measure_copies(messages=MESSAGES, rounds=1)

    assert [row.ledger for row in rows] == [ledger.name for ledger in TYPED]
    assert all(row.seconds > 0 and row.by_hand_seconds > 0 for row in rows)
