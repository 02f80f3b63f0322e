"""Benchmarks of the read path; run untimed in the test suite, on few messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.benchmarks import __main__ as bench
from tests.benchmarks.__main__ import measure, measure_singles, measure_threads
from tests.benchmarks.decoding import SCANS, TYPED_SCANS, decompress_all, payloads, scan, store
from tests.benchmarks.resident import RESIDENT_URL
from tests.support.benchmark_ledgers import BENCHMARK_LEDGERS, SINGLES

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

    from tests.support.benchmark_ledgers import BenchmarkLedger

MESSAGES = 2000


@pytest.mark.parametrize("ledger", BENCHMARK_LEDGERS, ids=lambda ledger: ledger.name)
@pytest.mark.parametrize("columns", SCANS)
def test_scan(benchmark: BenchmarkFixture, ledger: BenchmarkLedger, columns: str) -> None:
    """A scan gives every message of the ledger."""
    dataset = store(ledger, RESIDENT_URL, MESSAGES).open()

    rows = benchmark(scan, dataset, SCANS[columns])

    assert rows == MESSAGES


@pytest.mark.parametrize(
    "ledger", [each for each in BENCHMARK_LEDGERS if each.schema], ids=lambda ledger: ledger.name
)
@pytest.mark.parametrize("name", TYPED_SCANS)
def test_typed_scan(benchmark: BenchmarkFixture, ledger: BenchmarkLedger, name: str) -> None:
    """A scan of typed columns gives every message of the ledger."""
    stored = store(ledger, RESIDENT_URL, MESSAGES)
    columns = stored.typed_columns()[name]

    rows = benchmark(scan, stored.open(typed=True), columns)

    assert rows == MESSAGES


@pytest.mark.parametrize("ledger", BENCHMARK_LEDGERS, ids=lambda ledger: ledger.name)
def test_floor(benchmark: BenchmarkFixture, ledger: BenchmarkLedger) -> None:
    """The floor decompresses the payload of every entry."""
    found = payloads(store(ledger, RESIDENT_URL, MESSAGES).open())

    benchmark(decompress_all, found)

    assert len(found) == -(-MESSAGES // (ledger.batch_size or 1))


def test_measure_gives_each_scan_of_each_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table that `make bench` prints has a row for each ledger and a figure for each scan."""
    plain = next(each for each in BENCHMARK_LEDGERS if not each.schema)
    ledgers = [plain, next(each for each in BENCHMARK_LEDGERS if each.schema)]
    monkeypatch.setattr(bench, "BENCHMARK_LEDGERS", ledgers)

    rows = measure(messages=MESSAGES, rounds=1)

    assert [row.ledger for row in rows] == [ledger.name for ledger in ledgers]
    for row, ledger in zip(rows, ledgers, strict=True):
        assert set(row.seconds) == {*SCANS, *(TYPED_SCANS if ledger.schema else ())}
    assert all(row.peak_bytes > 0 for row in rows)


def test_singles_of_each_codec_are_measured() -> None:
    """The table of messages that are not batched has each ledger of them."""
    rows = measure_singles(messages=50, rounds=1)

    assert [row.name for row in rows] == [ledger.name for ledger in SINGLES]
    assert all(row.seconds > 0 and row.library_seconds > 0 for row in rows)


def test_threads_are_measured() -> None:
    """Of what holds Python's lock, and of what gives it up, there is some in each read."""
    rows = measure_threads(messages=MESSAGES, rounds=1)

    assert len({row.name for row in rows}) == len(rows) == 4
    assert all(0 < row.locked < 1 for row in rows)
    assert all(row.speed_up > 0 and row.cpu_ratio > 0 for row in rows)
