"""Topics of which a table keeps the latest row of each key, and the rows that it must have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from arrow_io.messages.message_metadata import Message
from connector import copy_topics, open_topic, write_messages
from connector.lake.copy import plan_copy
from tests.support.buckets import TOPIC
from tests.support.lake_kinds import read_back

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from connector.lake.copy_plan import CopyPlan
    from connector.lake.table_copy import TableSummary
    from connector.tables.evolution import TableKind
    from connector.tables.table import LakeTable

_TOLD_BY: Final = (
    "__topic__",
    "__ledger_id__",
    "__entry_id__",
    "__batch_index__",
    "__key__",
    "__null_value__",
    "__value__",
)


def write_keyed(
    url: str,
    messages: Iterable[tuple[str | None, bytes | None]],
    topic: str = TOPIC,
    *,
    first: int = 0,
    **options: Any,  # noqa: ANN401 - those of `write_messages`
) -> None:
    """Write messages with these keys and values, four a ledger, two an entry.

    Args:
        url: The bucket.
        messages: Keys and values.
        topic: The topic.
        first: Number of the first message, which says when it was published.
        options: As of `write_messages`.
    """
    found = [
        Message(payload=value, publish_time_ms=1_700_000_000_000 + number * 40_000_000, key=key)
        for number, (key, value) in enumerate(messages, first)
    ]
    given: dict[str, Any] = {"batch_messages": 2, "batch_delay_ms": 10**9, "ledger_entries": 2}
    write_messages(url, topic, found, **(given | options))


def copy_latest(
    url: str,
    folder: Path,
    kind: TableKind,
    topic: str | Sequence[str] = TOPIC,
    **options: Any,  # noqa: ANN401 - those of `copy_topics`
) -> TableSummary:
    """Copy to the table that `table_in` opens."""
    [summary] = copy_topics(url, topic, **(_given(folder, kind) | options))
    return summary


def plan_latest(
    url: str,
    folder: Path,
    kind: TableKind,
    **options: Any,  # noqa: ANN401 - those of `plan_copy`
) -> CopyPlan:
    """What `copy_latest` would do."""
    [plan] = plan_copy(url, TOPIC, **(_given(folder, kind) | options))
    return plan


def _given(folder: Path, kind: TableKind) -> dict[str, Any]:
    given = {"format": kind, "latest_per_key": True, "value": "raw"}
    if kind == "iceberg":
        return given | {"target": "shop.t", "table_options": catalog_options(folder)}
    return given | {"target": str(folder / "t")}


def catalog_options(folder: Path) -> dict[str, str]:
    """The Iceberg catalog of a folder, as `table_in` has it."""
    database = f"sqlite:///{folder}/catalog.db"
    return {"type": "sql", "uri": database, "warehouse": folder.absolute().as_uri()}


def latest_rows(
    url: str, topic: str | Sequence[str] = TOPIC
) -> dict[tuple[str, str], dict[str, Any]]:
    """The row that each key of each topic partition must have, of all that a plain read gives."""
    rows = open_topic(url, topic, value="raw", columns=list(_TOLD_BY), time_unit="us").to_table()
    latest: dict[tuple[str, str], dict[str, Any]] = {}
    for row in sorted(rows.to_pylist(), key=_position):
        if row["__key__"] is None:
            continue
        identity = row["__topic__"], row["__key__"]
        latest.pop(identity, None)
        if not row["__null_value__"]:
            latest[identity] = row
    return latest


def check_latest(url: str, table: LakeTable, topic: str | Sequence[str] = TOPIC) -> None:
    """Compare the rows of a table with those that it must have."""
    rows = read_back(table).to_pylist()
    wanted = sorted(latest_rows(url, topic).values(), key=_position)
    names = [each for each in _TOLD_BY if rows and each in rows[0]]
    found = [{name: row[name] for name in names} for row in sorted(rows, key=_position)]
    assert found == [{name: row[name] for name in names} for row in wanted]


def _position(row: dict[str, Any]) -> tuple[int, int, int]:
    batch_index = row["__batch_index__"]
    return row["__ledger_id__"], row["__entry_id__"], -1 if batch_index is None else batch_index
