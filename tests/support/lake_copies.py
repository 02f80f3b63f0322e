"""Topics to be copied to lakes, and the rows that the tables must have then."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from arrow_io.messages.message_metadata import Message
from connector import open_topic, write_messages
from connector.lake.copy import MESSAGE_COLUMNS
from connector.tables.dead_letters import DEAD_LETTERS
from tests.support.buckets import TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

SCHEMA: Final = {
    "type": "JSON",
    "schema": json.dumps(
        {
            "type": "record",
            "name": "Order",
            "fields": [
                {"name": "number", "type": "long"},
                {"name": "country", "type": ["null", "string"]},
            ],
        }
    ),
}
"""What the values are decoded by; the payloads of every `ODD`th message do not fit it."""
ODD: Final = 7
COLUMNS: Final = (*MESSAGE_COLUMNS, "number", "country")


def payload_of(number: int, *, is_sound: bool = True) -> bytes:
    """The value of a message."""
    if not is_sound:
        return b"no JSON, " + str(number).encode()
    country = ["DE", None, "FR"][number % 3]
    return json.dumps({"number": number, "country": country}).encode()


def write_topic(
    url: str,
    numbers: Sequence[int],
    topic: str = TOPIC,
    *,
    with_odd: bool = False,
    append: bool = False,
    **options: Any,  # noqa: ANN401 - those of `write_messages`
) -> None:
    """Write messages with these numbers, six a ledger, three an entry."""
    messages = [
        Message(
            payload=payload_of(n, is_sound=not with_odd or n % ODD != ODD - 1),
            publish_time_ms=1_700_000_000_000 + n * 10_000_000,
            key=f"k{n % 5}",
        )
        for n in numbers
    ]
    given = {"batch_messages": 3, "batch_delay_ms": 10**9, "ledger_entries": 2, "append": append}
    write_messages(url, topic, messages, **(given | options))


def batch_rows(
    url: str,
    topic: str | Sequence[str] = TOPIC,
    **options: Any,  # noqa: ANN401 - those of `open_topic`
) -> list[dict[str, Any]]:
    """The rows that one batch read gives, as a table must have them, in the order of positions."""
    given = {"schema": SCHEMA, "columns": list(COLUMNS), "time_unit": "us"} | options
    return in_order(open_topic(url, topic, **given).to_table())


def sound_rows(url: str, topic: str = TOPIC) -> tuple[list[dict[str, Any]], list[bytes]]:
    """The rows that can be decoded, and the payloads of the others, of a topic with such."""
    rows = batch_rows(url, topic, value="raw", columns=[*MESSAGE_COLUMNS, "__value__"])
    sound, dead = [], []
    for row in rows:
        payload = row.pop("__value__")
        if payload.startswith(b"no JSON"):
            dead.append(payload)
        else:
            sound.append(row | json.loads(payload))
    return sound, dead


def in_order(table: pa.Table) -> list[dict[str, Any]]:
    """All rows, in the order of their positions."""
    rows: list[dict[str, Any]] = table.to_pylist()
    return sorted(rows, key=_position)


def _position(row: dict[str, Any]) -> tuple[int, int, int]:
    batch_index = row["__batch_index__"]
    return row["__ledger_id__"], row["__entry_id__"], -1 if batch_index is None else batch_index


def letters_target(target: str) -> str:
    """Where the dead letters of a table are."""
    return target + DEAD_LETTERS
