"""Statistics of topics in a bucket, in zones so small that a topic of a few entries has many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from connector import open_topic
from connector.statistics.analysis import analyze
from connector.statistics.store import open_statistics
from connector.statistics.zones import ZONE_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Collection

    from arrow_io.ledgers.ledger import Ledger
    from connector.statistics.store import Statistics


def ledgers_of(
    url: str, topic: str, options: dict[str, Any] | None = None
) -> list[tuple[str, Ledger]]:
    """The ledgers of a topic with the name of the topic or partition of each; damaged ones too."""
    dataset = open_topic(url, topic, on_corruption="salvage", **(options or {}))
    return [(str(each.topic), ledger) for each in dataset.scan.topics for ledger in each.data]


def analyzed(
    url: str,
    topic: str,
    folder: str,
    *,
    zone_bytes: int = 1,
    ledger_ids: Collection[int] | None = None,
) -> Statistics:
    """Write statistics of a topic.

    Args:
        url: Bucket of the topic.
        topic: Its full name.
        folder: Folder or URL of the statistics.
        zone_bytes: About how long zones are; by default each entry is one.
        ledger_ids: The ledgers; None for all.
    """
    ledgers = [
        (name, ledger)
        for name, ledger in ledgers_of(url, topic)
        if ledger_ids is None or ledger.ledger_id in ledger_ids
    ]
    with patch("connector.statistics.whole_ledgers.ZONE_BYTES", zone_bytes):
        return analyze(open_statistics(folder), ledgers)


def rows_of(statistics: Statistics, topic: str) -> list[dict[str, Any]]:
    """All that is told of the zones of a topic, file by file."""
    tables = [
        file.zones(range(file.footer.num_row_groups), ZONE_SCHEMA.names)
        for file in statistics.files
    ]
    return [row for table in tables for row in table.to_pylist() if row["topic"] == topic]
