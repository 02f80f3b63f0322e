"""A question in SQL, of a topic and of the same messages as lines of JSON in a local file."""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from connector import register_duckdb
from tests.benchmarks.decoding import store
from tests.support.benchmark_ledgers import JSON_LZ4

_QUESTION = "SELECT status, count(*), sum(total) FROM {} GROUP BY ALL ORDER BY ALL"
THREADS = 2


@dataclass(frozen=True, slots=True)
class Asked:
    """One row of the table.

    Attributes:
        source: Where the rows come from, as SQL names it.
        answer: The status and the number of messages of each group.
        seconds: How long the answer took.
        cpu_seconds: CPU time of the process.
    """

    source: str
    answer: list[tuple[Any, ...]]
    seconds: float
    cpu_seconds: float


def measure_queries(folder: str, *, messages: int | None = None, rounds: int = 7) -> list[Asked]:
    """Ask DuckDB, with as many threads, of orders that are batched and compressed; and of the file.

    Args:
        folder: Where both are written; on the same disk, or in memory.
        messages: How many messages; None: those of the ledger.
        rounds: How often each is asked; the least time counts.
    """
    count = messages or JSON_LZ4.message_count
    stored = store(JSON_LZ4, folder, count)
    lines = Path(folder) / "orders.ndjson"
    with lines.open("wb") as file:
        members = itertools.islice(JSON_LZ4.members(), count)
        file.writelines(payload + b"\n" for _, payload in members)
    schema = Path(folder) / "schema.json"
    schema.write_text(json.dumps({"type": JSON_LZ4.schema_type, "data": JSON_LZ4.schema}))
    with duckdb.connect(config={"threads": THREADS}) as connection:
        register_duckdb(connection, url=stored.url, schema=schema)
        return [
            _asked(name, connection, sql, rounds)
            for name, sql in (
                ("read_pulsar", _QUESTION.format(f"read_pulsar('{stored.topic}')")),
                ("read_json", _QUESTION.format(f"read_json('{lines}')")),
            )
        ]


def table(rows: list[Asked]) -> list[tuple[str, ...]]:
    """The cells of the table, its head first."""
    plain = rows[-1]
    return [
        (f"SQL, {THREADS} threads", "seconds", "CPU time", "ratio to read_json"),
        *(
            (
                each.source,
                f"{each.seconds:.3f} s",
                f"{each.cpu_seconds:.3f} s",
                f"{each.seconds / plain.seconds:.2f}×",
            )
            for each in rows
        ),
    ]


def _asked(source: str, connection: duckdb.DuckDBPyConnection, question: str, rounds: int) -> Asked:
    def once() -> Asked:
        began, began_cpu = time.perf_counter(), time.process_time()
        answer = connection.execute(question).fetchall()
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - began_cpu
        # Sums of floating-point numbers depend on the order of rows.
        return Asked(source, [row[:2] for row in answer], seconds, cpu_seconds)

    return min((once() for _ in range(rounds)), key=lambda each: each.seconds)
