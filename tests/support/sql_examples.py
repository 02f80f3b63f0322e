"""The questions of `sql_examples`, and DuckDB's answers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

from connector import register_duckdb

EXAMPLES = Path("sql_examples")
NAMES = sorted(each.stem for each in (EXAMPLES / "duckdb").glob("*.sql"))
URL = "tests/data/golden/pulsar-4.0.7/objects"


def duckdb_rows(name: str) -> list[tuple[Any, ...]]:
    """What DuckDB answers to one of the questions."""
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    register_duckdb(con, url=URL)
    return con.sql((EXAMPLES / "duckdb" / f"{name}.sql").read_text("utf-8")).fetchall()


def comparable(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """The same rows, times in UTC; a time without a zone is one of this machine's."""

    def plain(value: object) -> object:
        return value.astimezone(UTC) if isinstance(value, datetime) else value

    return [tuple(map(plain, row)) for row in rows]
