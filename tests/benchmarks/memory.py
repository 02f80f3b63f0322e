"""How much memory a read takes on a machine of many cores, from a store that takes its time.

`python -m tests.benchmarks.memory LEDGER KIND MESSAGES LEDGERS` prints the most bytes that one read
took above what its process had before; the objects, which lie in memory too, were there before.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

from connector import open_topic
from connector.scan import scan_units
from tests.benchmarks.fetching import alike_ledgers
from tests.support.benchmark_ledgers import BENCHMARK_LEDGERS
from tests.support.buckets import TOPIC
from tests.support.slow_store import SlowStore

if TYPE_CHECKING:
    from connector import TopicDataset
    from tests.support.benchmark_ledgers import BenchmarkLedger

CORES: Final = 16
_LEDGERS: Final = {each.name: each for each in BENCHMARK_LEDGERS}
_KINDS: Final = ("all columns", "typed columns")


@dataclass(frozen=True, slots=True)
class MeasuredMemory:
    """One row of the table.

    Attributes:
        name: The ledgers, and what is read of them.
        peak_bytes: Most memory that the read took.
    """

    name: str
    peak_bytes: int


def measure_memory(*, messages: int, ledgers: int) -> list[MeasuredMemory]:
    """Read ledgers of each shape, each in a process of its own.

    Args:
        messages: Messages of each ledger.
        ledgers: How many of each shape there are.
    """
    return [
        MeasuredMemory(f"{ledger.name}, {kind}", _peak_bytes(ledger, kind, messages, ledgers))
        for ledger in BENCHMARK_LEDGERS
        for kind in _KINDS[: 1 if ledger.schema is None else 2]
    ]


def table(rows: list[MeasuredMemory]) -> list[str]:
    """The lines of the table."""
    lines = [f"{f'{CORES} cores, 32 connections':34} {'peak memory':>11}"]
    return lines + [f"{each.name:34} {each.peak_bytes / 1e6:8.0f} MB" for each in rows]


def _peak_bytes(ledger: BenchmarkLedger, kind: str, messages: int, ledgers: int) -> int:
    command = [sys.executable, "-m", "tests.benchmarks.memory", ledger.name, kind]
    done = subprocess.run(
        [*command, str(messages), str(ledgers)], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def memory_bytes(field: str) -> int:
    """A line of /proc/self/status: unlike getrusage's, its peak is not the parent process's."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(each for each in status.splitlines() if each.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


def _print_peak_bytes(name: str, kind: str, messages: str, ledgers: str) -> None:
    patch.object(scan_units, "processor_count", lambda: CORES).start()
    dataset = _stored(_LEDGERS[name], kind, int(messages), int(ledgers))
    dataset.head(1)  # what is loaded once is not the read's
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = memory_bytes("VmRSS")
    rows = sum(batch.num_rows for batch in dataset.to_batches())
    assert rows == int(messages) * int(ledgers)
    print(memory_bytes("VmHWM") - before)  # noqa: T201


def _stored(ledger: BenchmarkLedger, kind: str, messages: int, ledgers: int) -> TopicDataset:
    objects = alike_ledgers(ledger, messages, ledgers)
    # Slices of bytes are copies, as what comes over a network is.
    store = SlowStore(
        objects, first_byte_s=0.030, bytes_per_s=40e6, connections=32, tells_times=False
    )
    if kind == "all columns":
        return open_topic(store.url, TOPIC, value="raw")
    return open_topic(store.url, TOPIC, schema={"type": ledger.schema_type, "data": ledger.schema})


if __name__ == "__main__":
    _print_peak_bytes(*sys.argv[1:])
