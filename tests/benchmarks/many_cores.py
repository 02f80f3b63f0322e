"""A read on more cores than this machine has: what it costs, a model of it, and a simulation.

Costs of a unit are CPU times: the walk that finds its entries, the hand-over to a thread and back,
and its decoding, by as many threads as this machine has cores for: they share its caches. The part
that holds Python's lock is measured in one thread. Meanwhile as many results are held as there are
threads, as by a read: otherwise memory would be used again while it is in a cache. The simulation
reads with the real walk, hand-over and lock; its units hold Python's lock for as long as decoding
does, and wait for the remaining time instead of decoding.
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

from arrow_io.core.prefetch import prefetch_units
from arrow_io.core.shared_budget import process_budgets
from arrow_io.read_metrics import ReadMetrics
from arrow_io.storage.range_prefetch import RangePrefetcher
from connector.scan import scan_units
from connector.scan.execution import byte_spans
from tests.benchmarks import threads
from tests.benchmarks.decoding import BLOCK_RANGE_BYTES, SCANS, store
from tests.benchmarks.resident import RESIDENT_URL, ResidentFileSystem
from tests.support.benchmark_ledgers import (
    AVRO_ZSTD,
    JSON_LZ4,
    SINGLE_UNCOMPRESSED,
    TEXT_UNCOMPRESSED,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from connector.scan.scan_units import ScanUnit, UnitResult
    from connector.scan.topic_read import ScanTask

CORES: Final = (1, 2, 4, 8, 16, 32)
_LEDGERS: Final = (JSON_LZ4, AVRO_ZSTD, TEXT_UNCOMPRESSED, SINGLE_UNCOMPRESSED)
_MESSAGES: Final = 1_000_000
"""So many that the first units, which are small, hardly count."""
_EMPTY_UNITS: Final = 2000


@dataclass(frozen=True)
class Costs:
    """CPU times of a mean unit of a read, in seconds.

    Attributes:
        units: How many units the read has.
        walk_s: Of the thread that finds the unit's entries.
        walk_locked_s: The part of it that holds Python's lock.
        decode_s: Of the thread that decodes the unit.
        decode_locked_s: The part of it that holds Python's lock.
        hand_over_s: Of all threads that pass the unit on, which hold Python's lock.
    """

    units: int
    walk_s: float
    walk_locked_s: float
    decode_s: float
    decode_locked_s: float
    hand_over_s: float

    @property
    def locked_s(self) -> float:
        """How long all threads together hold Python's lock for the unit."""
        return self.walk_locked_s + self.decode_locked_s + self.hand_over_s

    @property
    def cpu_s(self) -> float:
        """CPU time of all threads together."""
        return self.walk_s + self.decode_s + self.hand_over_s

    @property
    def walk_cores(self) -> float:
        """How many decoding threads one walk can keep busy."""
        return self.decode_s / self.walk_s

    @property
    def lock_cores(self) -> float:
        """How many decoding threads Python's lock can keep busy."""
        return self.decode_s / self.locked_s

    def reads_per_s(self, threads: int, processors: int | None = None) -> float:
        """Return how often a second the whole read is possible, by the model.

        The threads wait for each other at two places: at Python's lock, and at the walk. Mean value
        analysis of closed networks adds threads one by one; each finds the queues that the others
        make on average.

        Args:
            threads: Threads that decode.
            processors: Processors that all threads share; None if there are enough.
        """
        waits = (self.locked_s, self.walk_s - self.walk_locked_s)
        elsewhere_s = self.decode_s - self.decode_locked_s
        queues = [0.0] * len(waits)
        units_per_s = 0.0
        for count in range(1, threads + 1):
            stays = [each * (1 + queue) for each, queue in zip(waits, queues, strict=True)]
            units_per_s = count / (elsewhere_s + sum(stays))
            queues = [units_per_s * each for each in stays]
        if processors is not None:
            units_per_s = min(units_per_s, processors / self.cpu_s)
        return units_per_s / self.units


@dataclass(frozen=True)
class Simulated:
    """A read whose decoding is simulated.

    Attributes:
        seconds: Wall time.
        wait_s: Mean time that a unit really waited.
        waited: The part of the units for which the consumer had to wait.
        held_bytes: Approximate memory of the most results that waited for the consumer.
    """

    seconds: float
    wait_s: float
    waited: float
    held_bytes: int


@dataclass(frozen=True)
class MeasuredCores:
    """One row of the table of many cores.

    Attributes:
        name: The ledger, and what is read of it.
        cores: Cores that the read believes to have.
        threads: Threads that decode.
        entries: How many entries are read.
        data_bytes: How many bytes of data objects are read.
        costs: Costs of a unit.
        simulated: The simulated read.
        speed_up: How many times as fast the simulation is as with one thread.
        model_speed_up: The same by the model.
        seconds: Wall time of the real read; None for other numbers of cores than this machine has.
        model_seconds: The same by the model.
        cpu_ratio: CPU time of the real read, divided by that of the model; None likewise.
    """

    name: str
    cores: int
    threads: int
    entries: int
    data_bytes: int
    costs: Costs
    simulated: Simulated
    speed_up: float
    model_speed_up: float
    seconds: float | None
    model_seconds: float
    cpu_ratio: float | None


def measure_many_cores(
    *, messages: int | None = None, rounds: int = 7, real_cores: int = 2
) -> list[MeasuredCores]:
    """Measure the costs of reads, and simulate them, for each number of `CORES`.

    Args:
        messages: Messages of each ledger; None: `_MESSAGES`.
        rounds: How often each is measured; the least time counts.
        real_cores: Number of cores for which the real read is measured too.
    """
    rows: list[MeasuredCores] = []
    for ledger in _LEDGERS:
        stored = store(ledger, RESIDENT_URL, messages or _MESSAGES)
        reads = [("all columns", SCANS["all columns"], stored.open(BLOCK_RANGE_BYTES))]
        if ledger.schema is not None:
            columns = stored.typed_columns()["typed columns"]
            reads.append(("typed columns", columns, stored.open(BLOCK_RANGE_BYTES, typed=True)))
        for kind, columns, dataset in reads:
            tasks = dataset.scanner(columns).scan.plan()
            rows += _measure(f"{ledger.name}, {kind}", tasks, rounds, real_cores)
        ResidentFileSystem.objects.clear()
    return rows


def _measure(
    name: str, tasks: Sequence[ScanTask], rounds: int, real_cores: int
) -> Iterator[MeasuredCores]:
    metrics = ReadMetrics()
    for _batch in scan_units.prefetch_rows(tasks, metrics):
        pass
    first: tuple[float, float] | None = None
    for cores in CORES:
        with patch.object(scan_units, "processor_count", lambda cores=cores: cores):
            decoding = scan_units.decoding_threads()
            busy = min(cores, real_cores)
            costs, ratio = measure_costs(tasks, decoding, rounds, busy)
            simulated = min(
                (_simulate(tasks, costs, decoding) for _ in range(rounds)),
                key=lambda each: each.seconds,
            )
            seconds = cpu_ratio = None
            if cores == real_cores:
                seconds = min(_wall_s(partial(_read, tasks)) for _ in range(rounds))
                cpu_ratio = ratio
        model = 1 / _as_simulated(costs, simulated).reads_per_s(decoding)
        first = first or (simulated.seconds, model)
        yield MeasuredCores(
            name,
            cores,
            decoding,
            metrics.entries,
            sum(task.data_bytes for task in tasks),
            costs,
            simulated,
            speed_up=first[0] / simulated.seconds,
            model_speed_up=first[1] / model,
            seconds=seconds,
            model_seconds=1 / costs.reads_per_s(decoding, cores),
            cpu_ratio=cpu_ratio,
        )


def measure_costs(
    tasks: Sequence[ScanTask], decoding: int, rounds: int, busy: int
) -> tuple[Costs, float]:
    """Measure what a unit of a read costs; the least of several rounds counts.

    Args:
        tasks: What is read.
        decoding: Threads that would decode.
        rounds: How often it is measured.
        busy: Threads that do decode, at a time.

    Returns:
        The costs, and the CPU time of the real read divided by theirs: the median of the rounds,
        which have the read in turn with its parts, so that another load of the machine is one of
        both.
    """
    ratios: list[float] = []
    walk: list[float] = []
    decode: list[float] = []
    walk_locked: list[float] = []
    decode_locked: list[float] = []
    hand_over: list[float] = []
    for _ in range(rounds):
        units: list[ScanUnit] = []
        find = partial(_find, tasks, units)
        walk.append(_cpu_s(find))
        count = len(units)
        decode.append(_cpu_s(partial(_decode_beside, units, decoding, busy)))
        units.clear()
        hand_over.append(_cpu_s(partial(_hand_over, decoding)) / _EMPTY_UNITS)
        cpu_s = walk[-1] + decode[-1] + hand_over[-1] * count
        ratios.append(_cpu_s(partial(_read, tasks)) / cpu_s)
        walk_locked.append(threads.locked_s(find))
        decode_locked.append(threads.locked_s(partial(_decode, units, decoding)))
    costs = Costs(
        count,
        min(walk) / count,
        min(*walk, *walk_locked) / count,
        min(decode) / count,
        min(*decode, *decode_locked) / count,
        min(hand_over),
    )
    return costs, median(ratios)


def _units(tasks: Sequence[ScanTask]) -> Iterator[ScanUnit]:
    prefetch = RangePrefetcher(byte_spans(tasks))
    return scan_units.scan_units(tasks, prefetch, scan_units.decoding_threads())


def _find(tasks: Sequence[ScanTask], units: list[ScanUnit]) -> None:
    """Walk over all entries, and add the units that they are split into."""
    units.extend(_units(tasks))


def _decode(units: Iterable[ScanUnit], held: int) -> None:
    results: deque[UnitResult] = deque(maxlen=held)
    for unit in units:
        results.append(unit())


def _decode_beside(units: Sequence[ScanUnit], decoding: int, busy: int) -> None:
    """Decode units in several threads, each of which holds its part of the results."""
    pending = iter(units)
    with ThreadPoolExecutor(busy) as workers:
        for each in [workers.submit(_decode, pending, decoding // busy) for _ in range(busy)]:
            each.result()


def _hand_over(decoding: int) -> None:
    """Pass units on that do nothing."""
    for _ in prefetch_units(iter([int] * _EMPTY_UNITS), threads=decoding, shared=True):
        pass


def _read(tasks: Sequence[ScanTask]) -> None:
    for _batch in scan_units.prefetch_rows(tasks, ReadMetrics()):
        pass


def _simulate(tasks: Sequence[ScanTask], costs: Costs, decoding: int) -> Simulated:
    """Read with threads that wait instead of decoding."""
    waits: list[float] = []

    def decode(_unit: ScanUnit) -> float:
        begin_s = time.thread_time()
        while time.thread_time() - begin_s < costs.decode_locked_s:
            pass
        start_s = time.perf_counter()
        time.sleep(costs.decode_s - costs.decode_locked_s)
        end_s = time.perf_counter()
        waits.append(end_s - start_s)
        return end_s

    units = (partial(decode, unit) for unit in _units(tasks))
    held = waited = 0
    start_s = time.perf_counter()
    with closing(prefetch_units(units, threads=decoding, shared=True)) as results:
        asked_s = start_s
        for end_s in results:
            waited += end_s > asked_s
            held = max(held, process_budgets().results.total)
            asked_s = time.perf_counter()
    seconds = time.perf_counter() - start_s
    unit_bytes = scan_units.unit_memory_bytes(decoding)
    return Simulated(seconds, sum(waits) / len(waits), waited / len(waits), (1 + held) * unit_bytes)


def _as_simulated(costs: Costs, simulated: Simulated) -> Costs:
    """Return costs with the time that units really waited: to sleep takes longer than asked for."""
    return Costs(
        costs.units,
        costs.walk_s,
        costs.walk_locked_s,
        costs.decode_locked_s + simulated.wait_s,
        costs.decode_locked_s,
        costs.hand_over_s,
    )


def _cpu_s(action: Callable[[], object]) -> float:
    start_s = time.process_time()
    action()
    return time.process_time() - start_s


def _wall_s(action: Callable[[], object]) -> float:
    start_s = time.perf_counter()
    action()
    return time.perf_counter() - start_s


def table(rows: Sequence[MeasuredCores]) -> list[tuple[str, ...]]:
    """The lines of the table; times are µs of a unit."""
    lines: list[tuple[str, ...]] = [
        (
            "many cores",
            "cores",
            "threads",
            "walk",
            "hand-over",
            "decode",
            "locked",
            "entries/s",
            "MB/s",
            "walk feeds",
            "lock feeds",
            "simulated",
            "model",
            "waited",
            "memory",
            "read",
            "model",
            "CPU time",
        )
    ]
    for row in rows:
        costs, walk_s = row.costs, row.costs.walk_s * row.costs.units
        times = (costs.walk_s, costs.hand_over_s, costs.decode_s, costs.locked_s)
        lines.append(
            (
                row.name,
                f"{row.cores}",
                f"{row.threads}",
                *(f"{each * 1e6:.0f}" for each in times),
                f"{row.entries / walk_s / 1e6:.2f} M",
                f"{row.data_bytes / walk_s / 1e6:,.0f}",
                f"{costs.walk_cores:.1f}",
                f"{costs.lock_cores:.1f}",
                f"{row.speed_up:.2f}×",
                f"{row.model_speed_up:.2f}×",
                f"{row.simulated.waited:.0%}",
                f"{row.simulated.held_bytes / 1e6:.0f} MB",
                "–" if row.seconds is None else f"{row.seconds:.3f} s",
                f"{row.model_seconds:.3f} s",
                "–" if row.cpu_ratio is None else f"{row.cpu_ratio:.2f}×",
            )
        )
    return lines
