"""`python -m tests.benchmarks.peers`: our decoders beside the fastest peers, on one processor.

Both sides decode the same payloads, which are in memory, to Arrow arrays, and drop each record
batch. First the values are compared: a difference ends the run. Then pairs of runs alternate, and
the least CPU time of each side counts.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Final

from arrow_io.core import builds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.benchmarks.peers.measuring import Measured

NOT_COMPARED: Final = {
    "fastavro": "it builds no columns",
    "simdjson": "it is C++; simd-json is its port, and sonic-rs parses in the same way",
    "DuckDB's read_avro": "its extension cannot be installed without a download",
}
"""Peers that are left out, and why."""


def table(rows: Sequence[Measured], peers: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the cells of the table of one type of schema, its head first."""
    names = list(peers)
    head = ("payload", "rows a batch", "records/s", "cells/s", "MB/s", *names)
    return [
        head,
        *(
            (
                each.kind,
                f"{each.rows:,}",
                _millions(each.count / each.seconds),
                _millions(each.cells / each.seconds),
                f"{each.size_bytes / each.seconds / 1e6:,.0f}",
                *(
                    f"{each.speed_ups[name]:.2f}" if name in each.speed_ups else "–"
                    for name in names
                ),
            )
            for each in rows
        ),
    ]


def _millions(number: float) -> str:
    return f"{number / 1e6:.1f} M"


def print_table(cells: Sequence[Sequence[str]]) -> None:
    """Print a table as Markdown."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    for line in (cells[0], rule, *cells[1:]):
        texts = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        print(f"| {' | '.join(texts)} |")  # noqa: T201


def main() -> None:
    """Measure, and print the tables."""
    # Before any library is loaded that starts as many threads as there are processors.
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    from tests.benchmarks.peers.measuring import PEERS, ROWS, measure  # noqa: PLC0415
    from tests.benchmarks.peers.payloads import KINDS  # noqa: PLC0415

    kinds = {kind.name: kind for kind in KINDS}
    names = [name for peers in PEERS.values() for name in peers]
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.peers", description=__doc__)
    add = parser.add_argument
    add("--payload", action="append", choices=kinds, help="a kind of payload; repeatable")
    add("--rows", action="append", type=int, help="rows of a record batch; repeatable")
    add("--peer", action="append", choices=names, help="a peer; repeatable")
    add("--messages", type=int, help="payloads of each kind")
    add("--rounds", type=int, default=3, help="least number of pairs of runs")
    add("--seconds", type=float, default=1.0, help="least CPU time of all pairs of one figure")
    arguments = parser.parse_args()

    chosen = [kinds[name] for name in arguments.payload or kinds]
    rows: list[Measured] = []
    for measured in measure(
        chosen,
        rows=arguments.rows or ROWS,
        peers=arguments.peer or (),
        messages=arguments.messages,
        rounds=arguments.rounds,
        min_seconds=arguments.seconds,
    ):
        # A run takes many minutes: if it is ended, what it has measured is not lost.
        print(*table([measured], measured.speed_ups)[1], sep=", ", file=sys.stderr)  # noqa: T201
        rows.append(measured)
    for type_, peers in PEERS.items():
        of_type = [each for each in rows if each.type == type_]
        if of_type:
            print(f"\n{type_}: our speed divided by that of each peer\n")  # noqa: T201
            chosen_peers = [each for each in peers if each in (arguments.peer or peers)]
            print_table(table(of_type, chosen_peers))
    _print_reasons(rows)


def _print_reasons(rows: Iterable[Measured]) -> None:
    kinds: dict[tuple[str, str], list[str]] = {}
    for each in rows:
        for name, reason in each.reasons.items():
            kinds.setdefault((name, reason), []).append(each.kind)
    print("\nNot compared:")  # noqa: T201
    for (name, reason), of_kinds in kinds.items():
        print(f"- {name} of {', '.join(dict.fromkeys(of_kinds))}: {reason}")  # noqa: T201
    for name, reason in NOT_COMPARED.items():
        print(f"- {name}: {reason}")  # noqa: T201
    libraries = ("duckdb", "polars", "protobuf", "pyarrow")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in libraries)
    build = "compiled" if builds.in_use.is_compiled else "pure"
    print(f"\n{versions}. Build of the core: {build}.")  # noqa: T201


if __name__ == "__main__":
    main()
