"""What the commands list: one row a topic, a ledger, or a range of entries that will be read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from arrow_io.ledger_reader import OffloadedLedger
    from connector.catalog.catalog import Catalog, TopicLedgers
    from connector.scan import ScanTask

Row: TypeAlias = dict[str, Any]
"""A line of a listing, by column."""


class PlannedRange(TypedDict):
    """What of one ledger a read takes."""

    topic: str
    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    requests: int
    bytes: int


_INTEGER = pa.int64()
TEXTS = pa.list_(pa.string())
TOPIC_SCHEMA = pa.schema(
    {"topic": pa.string()}
    | dict.fromkeys(("partitions", "ledgers", "entries", "bytes", "unsound"), _INTEGER)
    | {"problems": TEXTS}
)
LEDGER_SCHEMA = pa.schema(
    {
        "topic": pa.string(),
        "partition": _INTEGER,
        "ledger_id": _INTEGER,
        "entries": _INTEGER,
        "first_entry_id": _INTEGER,
        "last_entry_id": _INTEGER,
        "blocks": _INTEGER,
        "bytes": _INTEGER,
        "offloaded": pa.timestamp("us", "UTC"),
        "uuid": pa.string(),
        "warnings": TEXTS,
        "problems": TEXTS,
    }
)
PLAN_SCHEMA = pa.schema(
    {"topic": pa.string()}
    | dict.fromkeys(("ledger_id", "first_entry_id", "last_entry_id", "requests", "bytes"), _INTEGER)
)


def topic_rows(topics: Iterable[TopicLedgers]) -> list[Row]:
    """One row a topic, whatever partitions it has."""
    partitions: dict[str, list[TopicLedgers]] = {}
    for each in topics:
        partitions.setdefault(str(each.topic.base), []).append(each)
    rows: list[Row] = []
    for name, parts in partitions.items():
        indexes = [ledger.index for part in parts for ledger in part.ledgers]
        problems = [problem for part in parts for problem in _problems(part)]
        rows.append(
            {
                "topic": name,
                "partitions": sum(part.topic.partition >= 0 for part in parts),
                "ledgers": len(indexes),
                "entries": sum(index.entry_count for index in indexes),
                "bytes": sum(index.data_object_length_bytes for index in indexes),
                "unsound": len(problems),
                "problems": problems,
            }
        )
    return rows


def ledger_rows(topic: TopicLedgers, catalog: Catalog) -> list[Row]:
    """One row a ledger, by ledger id; those that cannot be read have a problem and little else."""
    offloaded = {copy.name: copy.modified for copy in catalog.contents.copies}
    place = {"topic": str(topic.topic), "partition": topic.topic.partition}
    rows = [
        place
        | {
            "ledger_id": ledger.ledger_id,
            "entries": ledger.index.entry_count,
            "first_entry_id": 0,
            "last_entry_id": ledger.last_entry_id,
            "blocks": ledger.index.block_count,
            "bytes": ledger.index.data_object_length_bytes,
            "offloaded": offloaded[ledger.name],
            "uuid": str(ledger.name.uuid),
            "warnings": list(ledger.warnings),
            "problems": _lost_entries(ledger),
        }
        for ledger in topic.ledgers
    ]
    rows += [
        place | {"ledger_id": problem.ledger_id, "warnings": [], "problems": [str(problem)]}
        for problem in topic.problems
    ]
    return sorted(rows, key=lambda row: row["ledger_id"] or 0)


def _problems(topic: TopicLedgers) -> list[str]:
    lost = [problem for ledger in topic.ledgers for problem in _lost_entries(ledger)]
    return [*map(str, topic.problems), *lost]


def _lost_entries(ledger: OffloadedLedger) -> list[str]:
    first = ledger.index.missing_from_entry_id
    if first is None:
        return []
    lost = f"entries {first} … {ledger.last_entry_id} were lost when the ledger was offloaded"
    return [f"{lost} (ledger {ledger.ledger_id})"]


def planned_ranges(task: ScanTask, range_bytes: int) -> Iterator[PlannedRange]:
    """What a task reads of each ledger; nothing of one whose entries in it are all lost."""
    entries = {ledger.name: (first, last) for ledger, first, last in task.entry_ranges()}
    for ledger, start, stop in task.block_ranges():
        first, last = entries[ledger.name]
        yield PlannedRange(
            topic=task.origin.topic,
            ledger_id=ledger.ledger_id,
            first_entry_id=first,
            last_entry_id=last,
            requests=math.ceil((stop - start) / range_bytes),
            bytes=stop - start,
        )
