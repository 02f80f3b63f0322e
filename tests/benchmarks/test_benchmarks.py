"""The benchmarks, run untimed in the test suite on few messages."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from arrow_io.core.memory import allocate
from arrow_io.messages import bodies
from arrow_io.payloads import decoder
from arrow_io.payloads.shredding import Shredding
from tests.benchmarks import __main__ as bench
from tests.benchmarks import copy_speeds, fetching, knowledge, many_cores, memory, threads
from tests.benchmarks.__main__ import (
    measure,
    measure_copies,
    measure_offloads,
    measure_singles,
    measure_threads,
)
from tests.benchmarks.batches import measure_batches
from tests.benchmarks.catalogs import measure_catalogs, open_through_store
from tests.benchmarks.catalogs import table as table_of_catalogs
from tests.benchmarks.clients import CLIENTS, measure_clients
from tests.benchmarks.clients import table as table_of_clients
from tests.benchmarks.copying import by_hand, copy
from tests.benchmarks.decoding import (
    SCANS,
    TYPED_SCANS,
    decompress_all,
    payloads,
    scan,
    store,
)
from tests.benchmarks.map_files import measure_map_files
from tests.benchmarks.map_files import table as table_of_map_files
from tests.benchmarks.offloading import ENTRY_SIZES, offload
from tests.benchmarks.querying import measure_lake, measure_queries
from tests.benchmarks.querying import table as table_of_queries
from tests.benchmarks.resident import RESIDENT_URL
from tests.benchmarks.unwrapping import measure_unwrapping
from tests.benchmarks.unwrapping import table as table_of_unwrapping
from tests.support.benchmark_ledgers import AVRO_ZSTD, BENCHMARK_LEDGERS, SINGLES

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pytest_benchmark.fixture import BenchmarkFixture

    from tests.benchmarks.offloading import EntrySize
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


def test_map_files_of_each_compression_are_measured() -> None:
    """Beside the data blocks of the same ledger, and ZLIB where that is used."""
    rows = measure_map_files(messages=MESSAGES, rounds=1)

    assert len(rows) == 3 * 4
    assert [row.zlib_seconds is None for row in rows] == [True, True, False, False] * 3
    assert all(row.entry_seconds > 0 and row.scan_seconds > 0 for row in rows)
    assert len(table_of_map_files(rows)) == 1 + len(rows)


def test_threads_are_measured() -> None:
    """Of what holds Python's lock, and of what gives it up, there is some in each read."""
    rows = measure_threads(messages=MESSAGES, rounds=1)

    assert len({row.name for row in rows}) == len(rows) == 4
    assert all(0 < row.locked < 1 for row in rows)
    assert all(row.speed_up > 0 and row.cpu_ratio > 0 for row in rows)
    assert all(row.process_speed_up > 0 and row.calls > 0 for row in rows)


def test_only_the_call_of_zstd_counts_as_unlocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Python does before it, such as to allocate room for the joined frames, is locked."""
    locked_s = 0

    def allocate_locked(size_bytes: int) -> pa.Buffer:
        nonlocal locked_s
        locked_s += 1
        return allocate(size_bytes)

    stored = store(AVRO_ZSTD, RESIDENT_URL, MESSAGES)
    dataset = stored.open()
    monkeypatch.setattr(bodies, "allocate", allocate_locked)
    with threads.watched(lambda: locked_s) as unlocked:
        assert scan(dataset, SCANS["all columns"]) == MESSAGES

    assert locked_s >= 2
    assert unlocked
    assert not any(unlocked)


def test_many_cores_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read has a row for each number of cores, and one is also read without a simulation."""
    monkeypatch.setattr(many_cores, "CORES", (2, 32))

    rows = many_cores.measure_many_cores(messages=MESSAGES, rounds=1)

    assert [row.cores for row in rows] == [2, 32] * 6
    assert all(row.threads <= row.cores and row.simulated.seconds > 0 for row in rows)
    assert all((row.seconds is None) == (row.cores == 32) for row in rows)
    assert len(many_cores.table(rows)) == 1 + len(rows)


@pytest.mark.parametrize(
    ("walk_s", "decode_locked_s", "threads", "speed_up"),
    [(0.0, 0.0, 32, 32.0), (0.1, 0.0, 32, 10.0), (0.0, 0.25, 32, 4.0), (0.0, 0.25, 2, 1.882)],
)
def test_model_of_many_cores(
    walk_s: float, decode_locked_s: float, threads: int, speed_up: float
) -> None:
    """Threads are as fast as the walk, the lock and the processors allow."""
    costs = many_cores.Costs(10, walk_s, 0.0, 1.0, decode_locked_s, 0.0)

    reads_per_s = costs.reads_per_s(threads)

    assert reads_per_s == pytest.approx(speed_up / costs.units, rel=0.01)
    assert costs.reads_per_s(threads, 1) == pytest.approx(min(1 / costs.cpu_s / 10, reads_per_s))


def test_batches_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record batch takes few calls of Python, however many fields and rows there are."""
    monkeypatch.setattr(decoder, "Shredding", Shredding)  # without guards
    rows = measure_batches(1)

    assert len({(row.name, row.rows) for row in rows}) == len(rows) == 8
    assert all(row.seconds > 0 for row in rows)
    assert len({row.calls for row in rows}) == 1
    assert rows[0].calls < 85


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


def test_unwrapping_is_measured() -> None:
    """Both copies have a row for each event, of databases that log the row before or do not."""
    rows = measure_unwrapping(messages=MESSAGES, rounds=1)

    assert [row.rows for row in rows] == [MESSAGES] * 2
    assert {len(line) for line in table_of_unwrapping(rows)} == {6}


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


def test_both_answer_the_same(tmp_path: Path) -> None:
    """What is measured has to be the same question of the same messages."""
    rows = measure_queries(str(tmp_path), messages=2000, rounds=1)

    topic, lines = rows
    assert topic.answer == lines.answer
    assert sum(count for _, count in topic.answer) == 2000
    assert len(table_of_queries(rows)) == 1 + len(rows)


def test_a_table_and_its_topic_answer_the_same(tmp_path: Path) -> None:
    """With the rows of a lake table, and without it; the table alone lacks the last ones."""
    rows = measure_lake(str(tmp_path), messages=990, rounds=1)

    joined, topic, table = rows
    assert joined.answer == topic.answer
    assert sum(count for _, count in joined.answer) == 1000
    assert sum(count for _, count in table.answer) == 990
    assert len(table_of_queries(rows)) == 1 + len(rows)


def test_catalogs_are_measured(tmp_path: Path) -> None:
    """The figures that `make bench-store` prints are there for each shape, and for the store."""
    rows = measure_catalogs(tmp_path, [(3, 300)], rounds=1)
    flights = open_through_store(40, first_byte_s=0)

    assert [(row.topics, row.ledgers) for row in rows] == [(3, 300)]
    assert rows[0].seconds > 0
    assert flights.count == 40
    assert len(table_of_catalogs(rows, flights)) == 2


def test_copy_speeds_are_measured(tmp_path: Path) -> None:
    """All bytes are copied to a table of each format, by one thread and by all."""
    rows = copy_speeds.measure_copy_speeds(str(tmp_path), messages=500, rounds=1)

    assert len({(row.kind, row.threads) for row in rows}) == 6
    assert all(row.value_bytes > row.data_bytes > row.written_bytes for row in rows)
    assert len(copy_speeds.table(rows)) == 1 + len(rows)


def test_fetching_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures that `make bench-store` prints are there, for few messages and without waits."""
    monkeypatch.setattr(fetching, "FIRST_BYTE_S", 1e-6)
    monkeypatch.setattr(fetching, "BYTES_PER_S", 1e12)

    rows = fetching.measure_fetching(messages=500, ledgers=2, small_ledgers=20)

    assert [row.requests for row in rows] == [2, 2, 2, 1, 1, 1, 1, 20]
    assert all(row.seconds > 0 for row in rows)
    assert len(fetching.table(rows)) == 1 + len(rows)


def test_statistics_are_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The figures that `make bench-store` prints are there, for few messages and without waits."""
    monkeypatch.setattr(fetching, "FIRST_BYTE_S", 1e-6)
    monkeypatch.setattr(fetching, "BYTES_PER_S", 1e12)
    monkeypatch.setattr(knowledge, "_FILE_LEDGERS", 5)

    rows = knowledge.measure_reads(tmp_path, messages=10_000, ledgers=2)
    plans = knowledge.measure_plans(tmp_path, ledgers=20)

    shares = {row.name: row.share for row in rows}
    assert shares["analyze"] == shares["positions, without statistics"] > 0.99
    assert shares["1 % by time"] < 0.7
    assert shares["one of 20 keys, the mean"] < 0.7
    assert shares["count_rows"] == 0
    assert shares["count(*)"] < 0.01
    assert shares["pulsar_bounds"] < 0.7
    assert shares["max(time)"] > 0.99
    assert shares["count(*) of 1 % by time"] < 0.7
    assert [each.ranges for each in plans] == [2, 20, 0]
    assert len(knowledge.table(rows, plans)) == 3 + len(rows) + len(plans)


def test_memory_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shape of ledger without a schema is read, and one with a schema twice."""
    plain = next(each for each in BENCHMARK_LEDGERS if not each.schema)
    typed = next(each for each in BENCHMARK_LEDGERS if each.schema)
    monkeypatch.setattr(memory, "BENCHMARK_LEDGERS", [plain, typed])

    rows = memory.measure_memory(messages=500, ledgers=2)

    assert len(rows) == 3
    assert all(row.peak_bytes >= 0 for row in rows)
    assert len(memory.table(rows)) == 1 + len(rows)


@pytest.mark.stores
def test_clients_are_measured(tmp_path: Path) -> None:
    """Each client must read the ranges that are compared."""
    rows = measure_clients(
        os.environ["VERSITYGW"], str(tmp_path), messages=500, ledgers=2, rounds=1
    )

    assert [row.requests for row in rows] == [2] * 2 * len(CLIENTS)
    assert len(table_of_clients(rows)) == 1 + len(rows)
