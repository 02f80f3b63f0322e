"""A copy of Debezium's change events to plain Parquet, unwrapped and as they are."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from arrow_io.messages.message_metadata import Message
from connector import copy_topics, write_messages
from tests.support.debezium import recording

if TYPE_CHECKING:
    from collections.abc import Iterator

MESSAGES: Final = 200_000
_TOPIC: Final = "orders"
_DELETES: Final = 10
"""One in this many events is a delete."""
_LOGS: Final = {"PostgreSQL": False, "MariaDB": True}
"""Databases, and whether an update has the row before it."""


@dataclass(frozen=True)
class MeasuredUnwrapping:
    """One row of the table.

    Attributes:
        database: What the events are like.
        rows: Number of events.
        plain_seconds: CPU time of a copy of the envelopes.
        seconds: CPU time of a copy of the rows.
    """

    database: str
    rows: int
    plain_seconds: float
    seconds: float


def measure_unwrapping(*, messages: int | None = None, rounds: int = 7) -> list[MeasuredUnwrapping]:
    """Measure both copies, of JSON.

    Args:
        messages: Number of events; None: `MESSAGES`.
        rounds: How often each is done; the least CPU time counts.
    """
    recorded = recording("mariadb", "mysrv.shop.orders", "json")
    assert recorded.schema.reader.value is not None
    schema = {"type": "JSON", "schema": recorded.schema.reader.value.data}
    events = [each for each in recorded.rows if each is not None]
    update = next(each for each in reversed(events) if each["op"] == "u")
    measured = []
    for database, has_before in _LOGS.items():
        with tempfile.TemporaryDirectory() as folder:
            written = _messages(update, messages or MESSAGES, has_before=has_before)
            write_messages(folder, _TOPIC, written, batch_messages=500)
            copy = partial(_copy, folder, schema)
            plain_seconds = min(copy(n)[0] for n in range(rounds))
            seconds, rows = min(copy(n, unwrap="debezium") for n in range(rounds))
        measured.append(MeasuredUnwrapping(database, rows, plain_seconds, seconds))
    return measured


def _messages(update: dict[str, Any], count: int, *, has_before: bool) -> Iterator[Message]:
    for number in range(count):
        after = update["after"] | {"number": number, "note": f"note {number}"}
        before = update["before"] | {"number": number}
        event = update | {"before": before if has_before else None, "after": after}
        if number % _DELETES == 0:
            event |= {"op": "d", "before": before, "after": None}
        payload = json.dumps(event, separators=(",", ":")).encode()
        yield Message(payload=payload, publish_time_ms=1_700_000_000_000 + number, key=str(number))


def _copy(url: str, schema: dict[str, str], number: int, **options: Any) -> tuple[float, int]:  # noqa: ANN401
    target = f"{url}/{'-'.join(['copy', *options])}-{number}"
    began = time.process_time()
    [summary] = copy_topics(url, _TOPIC, target, format="parquet", schema=schema, **options)
    return time.process_time() - began, summary.rows


def table(rows: list[MeasuredUnwrapping]) -> list[tuple[str, ...]]:
    """The cells of the table, its head first."""
    return [
        ("copy of change events like", "events", "envelopes", "rows", "rows/s", "ratio"),
        *(
            (
                row.database,
                f"{row.rows:,}",
                f"{row.plain_seconds:.3f} s",
                f"{row.seconds:.3f} s",
                f"{row.rows / row.seconds:,.0f}",
                f"{row.seconds / row.plain_seconds:.2f}×",
            )
            for row in rows
        ),
    ]
