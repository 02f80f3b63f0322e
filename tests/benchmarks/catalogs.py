"""Catalogs of many ledgers: opened from a snapshot, and through a store that takes its time."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from arrow_io.storage.location import Location
from arrow_io.storage.own_options import DEFAULT_MAX_INDEX_READS
from connector import open_catalog, open_topic
from connector.catalog.snapshot.snapshot import save_snapshot
from tests.benchmarks.memory import memory_bytes
from tests.support.large_bucket import LargeBucket
from tests.support.slow_store import SlowStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.slow_store import Flights

SHAPES = ((1_000, 100_000), (1, 100_000))
"""How many topics, and how many ledgers all of them have."""
FIRST_BYTE_S = 0.030


@dataclass(frozen=True)
class MeasuredCatalog:
    """What opening a snapshot, and one topic of it, takes in a process of its own.

    Attributes:
        topics: How many topics it has.
        ledgers: How many ledgers it has.
        seconds: CPU time.
        memory_bytes: By how much the resident memory grew.
    """

    topics: int
    ledgers: int
    seconds: float
    memory_bytes: int


def measure_catalogs(
    folder: Path, shapes: Sequence[tuple[int, int]] = SHAPES, *, rounds: int = 5
) -> list[MeasuredCatalog]:
    """Measure the opening of snapshots; of several rounds the least counts.

    Args:
        folder: Where snapshots are written.
        shapes: How many topics, and ledgers of all of them, each has.
        rounds: How often each is opened.
    """
    rows = []
    for topics, ledgers in shapes:
        path = folder / f"{topics}-{ledgers}.json.gz"
        bucket = LargeBucket.of(topics, ledgers)
        save_snapshot(bucket.snapshot(Location(str(folder))), str(path))
        command = [sys.executable, "-m", "tests.benchmarks.catalogs", str(path)]
        opened = [
            subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
            for _ in range(rounds)
        ]
        seconds = min(float(each[0]) for each in opened)
        rows.append(MeasuredCatalog(topics, ledgers, seconds, min(int(each[1]) for each in opened)))
    return rows


def open_through_store(ledgers: int, *, first_byte_s: float = FIRST_BYTE_S) -> Flights:
    """Open a topic in a bucket behind a slow store, and give its requests in flight.

    Args:
        ledgers: How many ledgers the topic has.
        first_byte_s: Time to the first byte of each answer, in seconds.
    """
    objects = LargeBucket.of(1, ledgers).objects()
    store = SlowStore(objects, first_byte_s=first_byte_s, connections=DEFAULT_MAX_INDEX_READS)
    try:
        open_topic(store.url, "t0", value="raw")
    finally:
        store.drop()
    return store.flights


def table(rows: Sequence[MeasuredCatalog], flights: Flights) -> list[str]:
    """The figures as lines of text."""
    lines = [
        f"{row.topics:,} topics, {row.ledgers:,} ledgers: a snapshot and one topic of it opened in"
        f" {row.seconds:.3f} s CPU, {row.memory_bytes / row.ledgers:.0f} B a ledger"
        for row in rows
    ]
    lines.append(
        f"open_topic, {flights.count:,} requests of {FIRST_BYTE_S * 1000:.0f} ms to the first"
        f" byte: {flights.mean:.1f} of {DEFAULT_MAX_INDEX_READS} connections busy,"
        f" {flights.seconds:.1f} s"
    )
    return lines


def _print_opened(path: str) -> None:
    """Open a snapshot, as another process is asked to; the imports are not counted."""
    before_bytes, start = memory_bytes("VmRSS"), time.process_time()
    catalog = open_catalog(str(Path(path).parent), metadata=path)
    dataset = open_topic(str(Path(path).parent), "t0", catalog=catalog, value="raw")
    print(time.process_time() - start, memory_bytes("VmRSS") - before_bytes)  # noqa: T201
    del dataset


if __name__ == "__main__":
    _print_opened(sys.argv[1])
