"""`python -m tests.benchmarks.store`: how busy connections are, and what clients and catalogs take.

These benchmarks wait as a store makes them wait, so they take their time. What clients of S3 cost
is measured if the environment variable VERSITYGW names a program, as in `make bench-store`.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tests.benchmarks import catalogs, clients, fetching, knowledge, memory

_LEDGERS = 5_000


def main() -> None:
    """Measure, and print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        rows = catalogs.measure_catalogs(Path(folder))
        spared = knowledge.measure_reads(Path(folder), messages=100_000, ledgers=10)
        plans = knowledge.measure_plans(Path(folder), ledgers=100_000)
    lines = ["catalogs", *catalogs.table(rows, catalogs.open_through_store(_LEDGERS))]
    fetched = fetching.measure_fetching(messages=300_000, ledgers=40, small_ledgers=_LEDGERS)
    lines += ["", *fetching.table(fetched)]
    lines += ["", *knowledge.table(spared, plans)]
    lines += ["", *memory.table(memory.measure_memory(messages=300_000, ledgers=12))]
    lines += ["", *_clients(Path(os.environ.get("VERSITYGW", "versitygw")))]
    print("\n".join(lines))  # noqa: T201


def _clients(gateway: Path) -> list[str]:
    if not gateway.is_file():
        return ["Clients of S3 are left out: `make stores` builds a server."]
    with tempfile.TemporaryDirectory() as folder:
        rows = clients.measure_clients(str(gateway), folder, messages=300_000, ledgers=16)
    return clients.table(rows)


if __name__ == "__main__":
    main()
