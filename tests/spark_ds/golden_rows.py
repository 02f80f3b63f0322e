"""Rows of tables and rows that Pulsar's client read, in one form in which they can be compared."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, TypeAlias

from connector import open_topic
from tests.support.golden import GoldenRow, GoldenTopic, golden_topics

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

Row: TypeAlias = tuple[object, ...]

COLUMNS: Final = (
    "__topic__",
    "__partition__",
    "__ledger_id__",
    "__entry_id__",
    "__batch_index__",
    "__publish_time__",
    "__event_time__",
    "__sequence_id__",
    "__producer_name__",
    "__key__",
    "__properties__",
    "__value__",
)
"""The columns that are compared; all that `messages.jsonl.gz` has by default, and the topic."""


def topics_named(*names: str) -> list[GoldenTopic]:
    """Golden topics of `public/default` by local name; all partitions of a partitioned one."""
    wanted = {f"persistent://public/default/{name}" for name in names}
    return [topic for topic in golden_topics() if _base(topic.name) in wanted]


def keys_and_values(url: object, topic: str) -> list[Row]:
    """Keys and raw values of a topic's messages by our own reader, in an order without meaning."""
    columns = ["__key__", "__value__"]
    table = open_topic(str(url), topic, value="raw").to_table(columns=columns)
    return sorted(zip(*(table[name].to_pylist() for name in columns), strict=True), key=str)


def golden_rows(topics: Iterable[GoldenTopic]) -> list[Row]:
    """What Pulsar's client read of some topics, by topic and position."""
    return sorted(
        (_row(topic, message) for topic in topics for message in topic.messages()), key=str
    )


def table_rows(table: pa.Table) -> list[Row]:
    """The rows of a table that has `COLUMNS`, by topic and position."""
    return sorted(_table_rows(table), key=str)


def _table_rows(table: pa.Table) -> Iterator[Row]:
    for row in table.select(COLUMNS).to_pylist():
        yield (
            *(
                _milliseconds(row[name]) if name.endswith("time__") else row[name]
                for name in COLUMNS[:-2]
            ),
            sorted(row["__properties__"]),
            None if row["__value__"] is None else hashlib.sha256(row["__value__"]).hexdigest(),
        )


def _row(topic: GoldenTopic, message: GoldenRow) -> Row:
    partition = topic.name.rpartition("-partition-")
    return (
        topic.name,
        int(partition[2]) if partition[0] else -1,
        message["ledger"],
        message["entry"],
        message["batch"] if message["batch"] >= 0 else None,
        message["publish_time"],
        message["event_time"] or None,
        message["sequence_id"],
        message["producer"],
        message.get("key"),
        sorted(message["properties"].items()),
        None if message["null_value"] else message["sha256"],
    )


def _base(name: str) -> str:
    return name.rpartition("-partition-")[0] or name


def _milliseconds(time: object) -> int | None:
    return None if time is None else round(time.timestamp() * 1000)  # type: ignore[attr-defined]
