"""How much of a store's speed reads have: a simulated one, whose waits cost no CPU."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arrow_io.storage.location import Location
from connector import open_topic
from tests.benchmarks.decoding import DEFAULT_COLUMNS
from tests.support.benchmark_ledgers import SINGLE_UNCOMPRESSED
from tests.support.buckets import TOPIC, object_name, offload_ledger
from tests.support.entries import Message, encode_entry
from tests.support.slow_store import SlowStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from connector import TopicDataset
    from tests.support.benchmark_ledgers import BenchmarkLedger

FIRST_BYTE_S = 0.030
BYTES_PER_S = 40e6
CONNECTIONS = 32
FEW_CONNECTIONS = 8
_ATTEMPTS = 3

_POSITIONS = DEFAULT_COLUMNS[:3]


@dataclass(frozen=True, slots=True)
class Fetched:
    """One row of the table.

    Attributes:
        name: What was read.
        seconds: How long it took.
        ideal_seconds: How long the same requests, or bytes, take with all connections busy.
        requests: Requests for bytes.
        mean_connections: Connections busy in the mean.
        cpu_seconds: CPU time of the process. If it is more than the ideal times the cores, decoding
            is the limit, and not the network.
    """

    name: str
    seconds: float
    ideal_seconds: float
    requests: int
    mean_connections: float
    cpu_seconds: float


def measure_fetching(messages: int, ledgers: int, small_ledgers: int) -> list[Fetched]:
    """Read large and small ledgers of a store that takes its time.

    Args:
        messages: Messages of 100 bytes in each large ledger.
        ledgers: How many large ledgers there are.
        small_ledgers: How many ledgers of a few entries there are.
    """
    few = max(1, ledgers * FEW_CONNECTIONS // CONNECTIONS)
    return [
        *_large(messages, ledgers, CONNECTIONS),
        *_large(messages, few, FEW_CONNECTIONS),
        _small(small_ledgers),
    ]


def table(rows: list[Fetched]) -> list[str]:
    """The lines of the table."""
    lines = [
        (
            f"{'reading':38} {'requests':>8} {'seconds':>8} {'ideal':>8} {'ratio':>6} {'busy':>5}"
            f" {'CPU':>7}"
        )
    ]
    lines += [
        f"{each.name:38} {each.requests:8,} {each.seconds:8.3f} {each.ideal_seconds:8.3f}"
        f" {each.seconds / each.ideal_seconds:5.2f}× {each.mean_connections:5.1f}"
        f" {each.cpu_seconds:7.3f}"
        for each in rows
    ]
    return lines


def slow_store(objects: dict[str, bytes], connections: int = CONNECTIONS) -> SlowStore:
    """A store of the speed that is measured; slices of what it holds are no copies."""
    return SlowStore(
        {name: memoryview(data) for name, data in objects.items()},
        first_byte_s=FIRST_BYTE_S,
        bytes_per_s=BYTES_PER_S,
        connections=connections,
        tells_times=False,
    )


def _measured(
    store: SlowStore, name: str, read: Callable[[], object], ideal_seconds: float | None = None
) -> Fetched:
    return min(
        (_attempt(store, name, read, ideal_seconds) for _ in range(_ATTEMPTS)),
        key=lambda each: each.seconds,
    )


def _attempt(
    store: SlowStore, name: str, read: Callable[[], object], ideal_seconds: float | None
) -> Fetched:
    store.measure_anew()
    began, began_cpu = time.perf_counter(), time.process_time()
    read()
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - began_cpu
    flights = store.flights
    ideal = ideal_seconds or flights.count * FIRST_BYTE_S / CONNECTIONS
    return Fetched(name, seconds, ideal, flights.count, flights.mean, cpu_seconds)


def alike_ledgers(ledger: BenchmarkLedger, messages: int, count: int) -> dict[str, bytes]:
    """The objects of so many ledgers of the same messages, by name."""
    entries = list(ledger.entries(messages))
    objects: dict[str, bytes] = {}
    data = b""
    for number in range(1, count + 1):
        name = object_name(number)
        objects |= offload_ledger(name, entries, block_bytes=64 << 20)
        # No data object says of which ledger it is: all have the same bytes.
        data = data or objects[name.data_name]
        objects[name.data_name] = data
    return objects


def _large(messages: int, ledgers: int, connections: int) -> list[Fetched]:
    store = slow_store(alike_ledgers(SINGLE_UNCOMPRESSED, messages, ledgers), connections)
    options = {"max_connections": connections}
    dataset = open_topic(store.url, TOPIC, value="raw", storage_options=options)
    raw_seconds = min(_plain_reads(store, connections) for _ in range(_ATTEMPTS))
    readings = {
        "positions": lambda: read_all(dataset, _POSITIONS),
        "all columns": lambda: read_all(dataset, DEFAULT_COLUMNS),
        "count_rows": dataset.count_rows,
    }
    rows = [
        _measured(store, f"{name}, {connections} connections", read, raw_seconds)
        for name, read in readings.items()
    ]
    if connections == CONNECTIONS:
        rows.append(_point(store))
    store.drop()
    return rows


def _plain_reads(store: SlowStore, connections: int) -> float:
    """Seconds in which so many threads read all data objects, in the ranges of a long read."""
    location = Location(store.url)
    range_bytes = 3 << 20
    ranges = [
        (name, start, min(start + range_bytes, len(data)))
        for name, data in store.objects.items()
        if not name.endswith("-index")
        for start in range(0, len(data), range_bytes)
    ]
    with ThreadPoolExecutor(connections) as threads:
        began = time.perf_counter()
        list(threads.map(lambda each: len(location.read_range(*each).data), ranges))
        return time.perf_counter() - began


def read_all(dataset: TopicDataset, columns: tuple[str, ...]) -> int:
    """Read some columns of a dataset; gives the number of rows."""
    return sum(batch.num_rows for batch in dataset.to_batches(columns))


def _point(store: SlowStore) -> Fetched:
    """An entry ¾ into a block of which no place is remembered."""
    dataset = open_topic(store.url, TOPIC, value="raw")
    ledger = dataset.scan.topics[0].ledgers[-1]
    block = ledger.data.blocks(0, ledger.last_entry_id)[0]
    entry = block.first_entry_id + (block.last_entry_id - block.first_entry_id) * 3 // 4
    # A copy has a length of its own, under which nothing is remembered.
    seconds = FIRST_BYTE_S + (block.stop - block.start) * 0.75 / BYTES_PER_S / CONNECTIONS
    return _attempt(
        store, "an entry ¾ into a block", lambda: list(ledger.read_entries(entry, entry)), seconds
    )


def _small(ledgers: int) -> Fetched:
    entry = encode_entry([Message(payload=bytes(100))] * 10, batched=True)
    objects: dict[str, bytes] = {}
    for number in range(1, ledgers + 1):
        objects |= offload_ledger(object_name(number), [entry] * 3)
    store = slow_store(objects)
    dataset = open_topic(store.url, TOPIC, value="raw")
    row = _measured(store, f"count_rows, {ledgers:,} small ledgers", dataset.count_rows)
    store.drop()
    return row
