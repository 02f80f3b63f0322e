"""A question in SQL, of a topic and of the same messages as lines of JSON in a local file."""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from arrow_io.messages.message_metadata import Message
from connector import copy_topics, register_duckdb, write_messages
from tests.benchmarks.decoding import store
from tests.support.benchmark_ledgers import JSON_LZ4

if TYPE_CHECKING:
    from tests.benchmarks.decoding import StoredLedger

_QUESTION = "SELECT status, count(*), sum(total) FROM {} GROUP BY ALL ORDER BY ALL"
THREADS = 2
_TIME_MS = 1_800_000_000_000


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
    stored = store(JSON_LZ4, folder, messages or JSON_LZ4.message_count)
    connection, questions = open_queries(folder, stored, THREADS)
    with connection:
        return [_asked(name, connection, sql, rounds) for name, sql in questions.items()]


def open_queries(
    folder: str, stored: StoredLedger, threads: int
) -> tuple[duckdb.DuckDBPyConnection, dict[str, str]]:
    """Write the file, and connect to DuckDB.

    Args:
        folder: Where the file is written, unless it exists.
        stored: The orders.
        threads: Threads of DuckDB.

    Returns:
        The connection, and the question to the topic and to the file by the function that reads it.
    """
    lines = Path(folder) / "orders.ndjson"
    if not lines.exists():
        with lines.open("wb") as file:
            members = itertools.islice(JSON_LZ4.members(), stored.messages)
            file.writelines(payload + b"\n" for _, payload in members)
    schema = Path(folder) / "schema.json"
    schema.write_text(json.dumps({"type": JSON_LZ4.schema_type, "data": JSON_LZ4.schema}))
    connection = duckdb.connect(config={"threads": threads})
    register_duckdb(connection, url=stored.url, schema=schema)
    return connection, {
        "read_pulsar": _QUESTION.format(f"read_pulsar('{stored.topic}')"),
        "read_json": _QUESTION.format(f"read_json('{lines}')"),
    }


def measure_lake(folder: str, *, messages: int, rounds: int = 7) -> list[Asked]:
    """Ask DuckDB of a topic of which 99 % were copied to a table: by `lake`, and of each alone.

    The answer of `read_parquet` lacks the other 1 %. Args: see `measure_queries`.
    """
    stored = store(JSON_LZ4, folder, messages)
    schema = {"type": JSON_LZ4.schema_type, "data": JSON_LZ4.schema}
    target = f"{folder}/lake"
    copy_topics(stored.url, stored.topic, target, format="parquet", schema=schema)
    later = itertools.islice(JSON_LZ4.members(), max(1, messages // 99))
    added = [Message(payload=payload, publish_time_ms=_TIME_MS) for _, payload in later]
    write_messages(stored.url, stored.topic, added, compression="LZ4", append=True)
    with duckdb.connect(config={"threads": THREADS}) as connection:
        register_duckdb(connection, url=stored.url, schema=schema)
        topic = f"'{stored.topic}'"
        options = "lake_options := {'format': 'parquet'}"
        return [
            _asked(name, connection, _QUESTION.format(source), rounds)
            for name, source in (
                ("read_pulsar, lake", f"read_pulsar({topic}, lake := '{target}', {options})"),
                ("read_pulsar", f"read_pulsar({topic})"),
                ("read_parquet, 99 %", f"read_parquet('{target}/*.parquet')"),
            )
        ]


def table(rows: list[Asked]) -> list[tuple[str, ...]]:
    """The cells of the table, its head first."""
    plain = rows[-1]
    return [
        (f"SQL, {THREADS} threads", "seconds", "CPU time", f"to {plain.source}", "CPU"),
        *(
            (
                each.source,
                f"{each.seconds:.3f} s",
                f"{each.cpu_seconds:.3f} s",
                f"{each.seconds / plain.seconds:.2f}×",
                f"{each.cpu_seconds / plain.cpu_seconds:.2f}×",
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
