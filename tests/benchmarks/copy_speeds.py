"""How many bytes a second are copied to a table of each format, by one thread and by all.

The topic and the tables are in local folders. A thread decodes a task and writes its file. The
thread alone is pinned to a processor.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from connector import CopySizes, copy_topics
from connector.tables.executors import run_in_threads
from connector.tables.table_kinds import KINDS
from tests.benchmarks.decoding import payloads, store_alike
from tests.support.benchmark_ledgers import JSON_LZ4
from tests.support.executors import run_here
from tests.support.lake_kinds import table_in
from tests.support.latest_rows import catalog_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from connector.tables.evolution import TableKind
    from connector.tables.executors import Executor
    from tests.benchmarks.decoding import StoredLedger

LEDGERS: Final = 4
"""One task each, so that several threads have work."""
EXECUTORS: Final[dict[str, Executor]] = {"one": run_here, "all": run_in_threads}


@dataclass(frozen=True)
class CopySpeed:
    """One row of the table: the best of several rounds.

    Attributes:
        kind: The table's format.
        threads: Which threads copied: one, or one for each processor.
        data_bytes: Length of the data objects, compressed.
        value_bytes: Length of the messages after decompression.
        cpu_seconds: CPU time of all threads.
        seconds: Time.
        written_bytes: Length of the table's files.
    """

    kind: TableKind
    threads: str
    data_bytes: int
    value_bytes: int
    cpu_seconds: float
    seconds: float
    written_bytes: int


def measure_copy_speeds(
    folder: str, *, messages: int | None = None, rounds: int = 7
) -> list[CopySpeed]:
    """Measure copies of a topic of JSON in all formats.

    Args:
        folder: A local folder.
        messages: Messages of each of `LEDGERS`; None: those of the benchmark's ledger.
        rounds: How often each is done.
    """
    stored = store_alike(JSON_LZ4, folder, messages or JSON_LZ4.message_count, LEDGERS)
    value_bytes = sum(size for *_, size in payloads(stored.open()))
    return [
        min(
            (_copy(stored, Path(folder), kind, threads, value_bytes) for _ in range(rounds)),
            key=lambda each: each.cpu_seconds,
        )
        for kind in KINDS
        for threads in EXECUTORS
    ]


def table(rows: list[CopySpeed]) -> list[tuple[str, ...]]:
    """The cells of the table, its head first."""
    return [
        (
            "copy to",
            "threads",
            "CPU time",
            "a core: offloaded",
            "of JSON",
            "time",
            "offloaded",
            "of JSON",
            "files",
        ),
        *(
            (
                each.kind,
                each.threads,
                f"{each.cpu_seconds:.3f} s",
                f"{each.data_bytes / each.cpu_seconds / 1e6:.0f} MB/s",
                f"{each.value_bytes / each.cpu_seconds / 1e6:.0f} MB/s",
                f"{each.seconds:.3f} s",
                f"{each.data_bytes / each.seconds / 1e6:.0f} MB/s",
                f"{each.value_bytes / each.seconds / 1e6:.0f} MB/s",
                f"{each.written_bytes / 1e6:.1f} MB",
            )
            for each in rows
        ),
    ]


def _copy(
    stored: StoredLedger, folder: Path, kind: TableKind, threads: str, value_bytes: int
) -> CopySpeed:
    target = folder / "lake"
    target.mkdir()
    try:
        with table_in(target, kind), _pinned(is_pinned=threads == "one"):
            began, began_cpu = time.perf_counter(), time.process_time()
            [summary] = copy_topics(
                stored.url,
                stored.topic,
                executor=EXECUTORS[threads],
                sizes=CopySizes(task_bytes=1 << 20),
                **table_options(target, kind),
                **schema_option(stored),
            )
            seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - began_cpu
    finally:
        shutil.rmtree(target)
    data_bytes, written_bytes = summary.data_bytes, summary.written_bytes
    return CopySpeed(kind, threads, data_bytes, value_bytes, cpu_seconds, seconds, written_bytes)


def table_options(folder: Path, kind: TableKind) -> dict[str, Any]:
    """The options by which a copy finds the table of `table_in`."""
    if kind != "iceberg":
        return {"target": str(folder / "t"), "format": kind}
    return {"target": "shop.t", "format": kind, "table_options": catalog_options(folder)}


def schema_option(stored: StoredLedger) -> dict[str, Any]:
    """The option by which the values of a topic are decoded."""
    assert stored.schema is not None
    type_, definition = stored.schema
    return {"schema": {"type": type_, "data": definition}}


@contextmanager
def _pinned(*, is_pinned: bool) -> Iterator[None]:
    """Keep this thread, and those that it starts, on one processor."""
    if not is_pinned or not hasattr(os, "sched_setaffinity"):
        yield
        return
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, processors)
