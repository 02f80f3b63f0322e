"""`python -m tests.benchmarks`: what decoding, SQL, offloading and copying cost on this machine.

Ledgers lie in memory and their bytes are handed out uncopied. CPU time is the least of several
rounds. Peak memory is that of a process of its own which reads the ledger from a local folder,
above what it had before it began.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from arrow_io.core import builds
from tests.benchmarks import (
    copy_speeds,
    copying,
    many_cores,
    map_files,
    querying,
    spark_copying,
    threads,
    unwrapping,
)
from tests.benchmarks.batches import MeasuredBatch, measure_batches
from tests.benchmarks.decoding import (
    BLOCK_RANGE_BYTES,
    LIBRARIES,
    SCANS,
    TYPED_SCANS,
    StoredLedger,
    decompress_all,
    payloads,
    scan,
    store,
)
from tests.benchmarks.memory import memory_bytes
from tests.benchmarks.offloading import ENTRY_SIZES, offload
from tests.benchmarks.resident import RESIDENT_URL, ResidentFileSystem
from tests.support.benchmark_ledgers import (
    AVRO_ZSTD,
    BENCHMARK_LEDGERS,
    JSON_LZ4,
    SINGLE_UNCOMPRESSED,
    SINGLES,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from tests.benchmarks.threads import MeasuredThreads

OFFLOADED_BYTES = 256 << 20
"""Length of the ledgers that are offloaded."""

LAKE_MESSAGES = 6_000_000
"""Messages of which a lake table has 99 %."""

SPARK_MESSAGES = 1_000_000
"""Messages that Spark copies."""

_PEAK = "--peak-of"


@dataclass(frozen=True)
class Measured:
    """One row of the table.

    Attributes:
        ledger: Name of the ledger.
        messages: How many messages it has.
        floor_seconds: CPU time of decompressing every payload.
        base_seconds: The floor that the scans are compared with.
        seconds: CPU time of each scan.
        peak_bytes: Most memory that reading all columns took.
    """

    ledger: str
    messages: int
    floor_seconds: float
    base_seconds: float
    seconds: dict[str, float]
    peak_bytes: int


@dataclass(frozen=True)
class MeasuredSingles:
    """One row of the table of messages that are not batched.

    Attributes:
        name: What the ledger is called.
        seconds: CPU time of all columns.
        library_seconds: CPU time of the library that decompresses them, called once a message; of
            a copy of each if they are not compressed.
    """

    name: str
    seconds: float
    library_seconds: float


@dataclass(frozen=True)
class MeasuredOffload:
    """One row of the table of offloads.

    Attributes:
        name: What its entries are.
        entry_bytes: Length of each entry.
        length_bytes: Length of all entries.
        seconds: CPU time of offloading them.
    """

    name: str
    entry_bytes: int
    length_bytes: int
    seconds: float

    @property
    def bytes_per_second(self) -> float:
        """Bytes of entries in a second of CPU time."""
        return self.length_bytes / self.seconds


def measure(*, messages: int | None = None, rounds: int = 7) -> list[Measured]:
    """Measure each scan of each ledger.

    Args:
        messages: Messages of each ledger; None: those of the ledger.
        rounds: How often each is done; the least CPU time counts.
    """
    rows: list[Measured] = []
    for ledger in BENCHMARK_LEDGERS:
        count = messages or ledger.message_count
        stored = store(ledger, RESIDENT_URL, count)
        dataset = stored.open(BLOCK_RANGE_BYTES)
        floor = _least(partial(decompress_all, payloads(dataset)), rounds)
        seconds = {
            name: _least(partial(scan, dataset, columns), rounds) for name, columns in SCANS.items()
        }
        for name, columns in stored.typed_columns().items():
            typed = stored.open(BLOCK_RANGE_BYTES, typed=True)
            seconds[name] = _least(partial(scan, typed, columns), rounds)
        ResidentFileSystem.objects.clear()
        # Nothing is to be decompressed in single messages, so the first ledger's floor stands in.
        base = rows[0].floor_seconds if ledger is SINGLE_UNCOMPRESSED else floor
        with tempfile.TemporaryDirectory() as folder:
            peak = _peak_bytes(store(ledger, folder, count))
        rows.append(Measured(ledger.name, count, floor, base, seconds, peak))
    return rows


def measure_singles(*, messages: int | None = None, rounds: int = 7) -> list[MeasuredSingles]:
    """Measure all columns of messages that are not batched, by codec; uncompressed first.

    Args:
        messages: Messages of each ledger; None: those of the ledger.
        rounds: How often each is done; the least CPU time counts.
    """
    rows = []
    for ledger in SINGLES:
        stored = store(ledger, RESIDENT_URL, messages or ledger.message_count)
        dataset = stored.open(BLOCK_RANGE_BYTES)
        seconds = _least(partial(scan, dataset, SCANS["all columns"]), rounds)
        found = payloads(dataset)
        library_seconds = _least(partial(decompress_all, found, LIBRARIES), rounds)
        rows.append(MeasuredSingles(ledger.name, seconds, library_seconds))
        del found
        ResidentFileSystem.objects.clear()
    return rows


def measure_threads(*, messages: int | None = None, rounds: int = 7) -> list[MeasuredThreads]:
    """Measure two threads that read the same at a time, each for itself.

    Args:
        messages: Messages of each ledger; None: those of the ledger.
        rounds: How often each is done; the least times count.
    """
    rows = []
    for ledger in (JSON_LZ4, AVRO_ZSTD):
        stored = store(ledger, RESIDENT_URL, messages or ledger.message_count)
        typed = stored.typed_columns()
        for columns, dataset in (
            (SCANS["all columns"], stored.open(BLOCK_RANGE_BYTES)),
            (typed["typed columns"], stored.open(BLOCK_RANGE_BYTES, typed=True)),
        ):
            kind = "typed columns" if columns is typed["typed columns"] else "all columns"
            tasks = dataset.scanner(columns).scan.plan()
            rows.append(threads.measure(f"{ledger.name}, {kind}", tasks, rounds))
        ResidentFileSystem.objects.clear()
    return rows


def measure_offloads(
    *, length_bytes: int = OFFLOADED_BYTES, rounds: int = 7
) -> list[MeasuredOffload]:
    """Measure offloads to memory, in blocks of the default size.

    Args:
        length_bytes: Length of each ledger, in bytes.
        rounds: How often each is done; the least CPU time counts.
    """
    rows: list[MeasuredOffload] = []
    for size in ENTRY_SIZES:
        ledger = size.ledger(length_bytes)
        seconds = _least(partial(offload, ledger), rounds)
        rows.append(
            MeasuredOffload(size.name, size.size_bytes, ledger.metadata.length_bytes, seconds)
        )
    return rows


@dataclass(frozen=True)
class MeasuredCopy:
    """One row of the table of copies.

    Attributes:
        ledger: Name of the ledger.
        by_hand_seconds: CPU time of writing its rows by `to_reader()` and `pyarrow.parquet`.
        seconds: CPU time of copying it to a table of plain Parquet, in all threads together.
    """

    ledger: str
    by_hand_seconds: float
    seconds: float


def measure_copies(*, messages: int | None = None, rounds: int = 7) -> list[MeasuredCopy]:
    """Measure copies of typed rows from one local folder to another.

    Args:
        messages: Messages of each ledger; None: those of the ledger.
        rounds: How often each is done; the least CPU time counts.
    """
    rows: list[MeasuredCopy] = []
    for ledger in (each for each in BENCHMARK_LEDGERS if each.schema is not None):
        with tempfile.TemporaryDirectory() as folder:
            stored = store(ledger, folder, messages or ledger.message_count)
            by_hand = _least(partial(copying.by_hand, stored, folder), rounds)
            copied = _least(partial(copying.copy, stored, folder), rounds)
        rows.append(MeasuredCopy(ledger.name, by_hand, copied))
    return rows


@dataclass(frozen=True)
class MeasuredSparkCopy:
    """A copy on Spark, beside the same copy without it.

    Attributes:
        rows: How many rows were copied.
        seconds: CPU time of the copy without Spark.
        first_seconds: CPU time of the first copy in a session, with all of Spark's processes.
        warm_seconds: That of a later one.
    """

    rows: int
    seconds: float
    first_seconds: float
    warm_seconds: float


def measure_spark_copy(
    spark: SparkSession, *, messages: int | None = None, rounds: int = 7
) -> MeasuredSparkCopy:
    """Measure the copy of a ledger of JSON from one local folder to another.

    Args:
        spark: The session.
        messages: Messages of the ledger; None: `SPARK_MESSAGES`.
        rounds: How often each is done once Spark is warm; the least CPU time counts.
    """
    clock = spark_copying.cpu_seconds
    with tempfile.TemporaryDirectory() as folder:
        stored = store(JSON_LZ4, folder, messages or SPARK_MESSAGES)
        on_spark = partial(spark_copying.copy_on_spark, spark, stored, folder)
        first = _least(on_spark, 1, clock)
        seconds = _least(partial(copying.copy, stored, folder), rounds, clock)
        return MeasuredSparkCopy(on_spark(), seconds, first, _least(on_spark, rounds, clock))


def _least(
    action: Callable[[], object], rounds: int, clock: Callable[[], float] = time.process_time
) -> float:
    def once() -> float:
        start = clock()
        action()
        return clock() - start

    return min(once() for _ in range(rounds))


def _peak_bytes(stored: StoredLedger) -> int:
    command = [sys.executable, "-m", "tests.benchmarks", _PEAK, stored.url, stored.topic]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout)


def _print_peak_bytes(url: str, topic: str) -> None:
    dataset = StoredLedger(url, topic, 0).open()
    dataset.head(1)  # what is loaded once is not the scan's
    before = memory_bytes("VmRSS")
    scan(dataset, SCANS["all columns"])
    print(memory_bytes("VmHWM") - before)  # noqa: T201


def _print_table(rows: list[Measured]) -> None:
    lines = [("ledger", "messages", "floor", *SCANS, *TYPED_SCANS, "peak memory")]
    lines.extend(
        (
            row.ledger,
            f"{row.messages:,}",
            f"{row.floor_seconds:.3f} s",
            *(_cell(row, scan_name) for scan_name in (*SCANS, *TYPED_SCANS)),
            f"{row.peak_bytes / 1e6:.0f} MB",
        )
        for row in rows
    )
    _print_aligned(lines)
    print(f"\n{SINGLE_UNCOMPRESSED.name} is compared with the floor of {JSON_LZ4.name}.")  # noqa: T201
    print(f"Build of the core: {'compiled' if builds.in_use.is_compiled else 'pure'}.")  # noqa: T201


def _print_singles(rows: list[MeasuredSingles]) -> None:
    lines = [("not batched", "all columns", "ratio to uncompressed", "ratio to the library")]
    lines.extend(
        (
            row.name,
            f"{row.seconds:.3f} s",
            f"{row.seconds / rows[0].seconds:.1f}×",
            f"{row.seconds / row.library_seconds:.2f}×",
        )
        for row in rows
    )
    print()  # noqa: T201
    _print_aligned(lines)


def _print_threads(rows: list[MeasuredThreads]) -> None:
    lines = [
        (
            "two",
            "threads",
            "processes",
            "ratio",
            "CPU time",
            "holds Python's lock",
            "calls a batch",
        ),
    ]
    lines.extend(
        (
            row.name,
            f"{row.speed_up:.2f}×",
            f"{row.process_speed_up:.2f}×",
            f"{row.speed_up / row.process_speed_up:.2f}",
            f"{row.cpu_ratio:.2f}×",
            f"{row.locked:.1%}",
            f"{row.calls:.0f}",
        )
        for row in rows
    )
    print()  # noqa: T201
    _print_aligned(lines)


def _print_many_cores(messages: int | None, rounds: int) -> None:
    print()  # noqa: T201
    _print_aligned(
        many_cores.table(many_cores.measure_many_cores(messages=messages, rounds=rounds))
    )


def _print_batches(rows: list[MeasuredBatch]) -> None:
    lines = [("a record batch", "rows", "µs", "calls")]
    lines.extend(
        (row.name, f"{row.rows:,}", f"{row.seconds * 1e6:.1f}", f"{row.calls}") for row in rows
    )
    print()  # noqa: T201
    _print_aligned(lines)


def _print_offloads(rows: list[MeasuredOffload]) -> None:
    lines = [("offload", "entries of", "MB", "MB/s")]
    lines.extend(
        (
            row.name,
            f"{row.entry_bytes:,} B",
            f"{row.length_bytes / 1e6:.0f}",
            f"{row.bytes_per_second / 1e6:.0f}",
        )
        for row in rows
    )
    print()  # noqa: T201
    _print_aligned(lines)


def _print_queries(messages: int | None, rounds: int) -> None:
    print()  # noqa: T201
    with tempfile.TemporaryDirectory() as folder:
        rows = querying.measure_queries(folder, messages=messages, rounds=rounds)
    _print_aligned(querying.table(rows))


def _print_map_files(messages: int | None, rounds: int) -> None:
    print()  # noqa: T201
    _print_aligned(map_files.table(map_files.measure_map_files(messages=messages, rounds=rounds)))


def _print_copies(rows: list[MeasuredCopy]) -> None:
    lines = [("copy to Parquet", "by hand", "copy_topics", "ratio")]
    lines.extend(
        (
            row.ledger,
            f"{row.by_hand_seconds:.3f} s",
            f"{row.seconds:.3f} s",
            f"{row.seconds / row.by_hand_seconds:.2f}×",
        )
        for row in rows
    )
    print()  # noqa: T201
    _print_aligned(lines)


def _print_lake_queries(messages: int | None, rounds: int) -> None:
    print()  # noqa: T201
    with tempfile.TemporaryDirectory() as folder:
        rows = querying.measure_lake(folder, messages=messages or LAKE_MESSAGES, rounds=rounds)
    _print_aligned(querying.table(rows))


def _print_unwrapping(messages: int | None, rounds: int) -> None:
    print()  # noqa: T201
    _print_aligned(
        unwrapping.table(unwrapping.measure_unwrapping(messages=messages, rounds=rounds))
    )


def _print_copy_speeds(messages: int | None, rounds: int) -> None:
    print()  # noqa: T201
    with tempfile.TemporaryDirectory() as folder:
        rows = copy_speeds.measure_copy_speeds(folder, messages=messages, rounds=rounds)
    _print_aligned(copy_speeds.table(rows))


def _print_spark_copy(messages: int | None, rounds: int) -> None:
    print()  # noqa: T201
    if not spark_copying.has_java():
        print("The copy on Spark is left out: there is no Java.")  # noqa: T201
        return
    before = spark_copying.cpu_seconds()
    with spark_copying.running_session() as spark:
        start_seconds = spark_copying.cpu_seconds() - before
        row = measure_spark_copy(spark, messages=messages, rounds=rounds)
    _print_aligned(
        [
            ("copy on Spark", "rows", "start", "first copy", "copy", "without Spark", "of it"),
            (
                JSON_LZ4.name,
                f"{row.rows:,}",
                f"{start_seconds:.3f} s",
                f"{row.first_seconds:.3f} s",
                f"{row.warm_seconds:.3f} s",
                f"{row.seconds:.3f} s",
                f"{row.seconds / row.warm_seconds:.0%}",
            ),
        ]
    )


def _print_aligned(lines: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)))  # noqa: T201


def _cell(row: Measured, scan_name: str) -> str:
    seconds = row.seconds.get(scan_name)
    return "–" if seconds is None else f"{seconds:.3f} s = {seconds / row.base_seconds:.2f}×"


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--messages", type=int, help="messages of each ledger")
    parser.add_argument("--rounds", type=int, default=7, help="rounds; the least time counts")
    parser.add_argument(_PEAK, nargs=2, metavar=("URL", "TOPIC"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peak_of:
        _print_peak_bytes(*given.peak_of)
        return
    _print_table(measure(messages=given.messages, rounds=given.rounds))
    _print_singles(measure_singles(messages=given.messages, rounds=given.rounds))
    _print_batches(measure_batches(given.rounds))
    _print_threads(measure_threads(messages=given.messages, rounds=given.rounds))
    _print_many_cores(given.messages, given.rounds)
    _print_map_files(given.messages, given.rounds)
    _print_queries(given.messages, given.rounds)
    _print_lake_queries(given.messages, given.rounds)
    _print_offloads(measure_offloads(rounds=given.rounds))
    _print_copies(measure_copies(messages=given.messages, rounds=given.rounds))
    _print_unwrapping(given.messages, given.rounds)
    _print_copy_speeds(given.messages, given.rounds)
    _print_spark_copy(given.messages, given.rounds)


if __name__ == "__main__":
    main()
