"""Golden topics as datasets, and the rows that they must give."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from connector import Catalog, TopicDataset, open_catalog, open_topic
from connector.inputs.topic_names import TopicName
from tests.support.expected import expected_golden_row, expected_rows, fingerprint
from tests.support.golden_entries import golden_entries
from tests.support.reference import decode_topic

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.expected import Row
    from tests.support.golden import GoldenTopic


def open_golden(topic: GoldenTopic, **options: Any) -> TopicDataset:  # noqa: ANN401 - open_topic's
    """Open a golden topic in its folder; the folder of each set is looked through only once."""
    folder = topic.objects_folder
    return open_topic(str(folder), topic.name, catalog=_catalog(folder), **options)


@functools.cache
def _catalog(folder: Path) -> Catalog:
    return open_catalog(str(folder))


def client_rows(topic: GoldenTopic) -> list[Row]:
    """What Pulsar's client read, in the order of positions, with fingerprints for values.

    The client itself gives the messages of a transaction when it is committed.
    """
    partition = TopicName.parse(topic.name).partition
    rows = [
        expected_golden_row(row, topic=topic.name, partition=partition) for row in topic.messages()
    ]
    return sorted(rows, key=lambda row: (row["__ledger_id__"], row["__entry_id__"]))


def reference_rows(topic: GoldenTopic) -> list[Row]:
    """What the reference decoder makes of the topic, all columns; nothing of encrypted batches."""
    partition = TopicName.parse(topic.name).partition
    return expected_rows(decode_topic(golden_entries(topic)), topic=topic.name, partition=partition)


def as_the_client_tells(rows: list[Row], expected: list[Row]) -> list[Row]:
    """The columns that `expected` has, with fingerprints for values."""
    return [
        {
            name: fingerprint(row[name]) if name == "__value__" else row[name]
            for name in expected[0]
            if name in row
        }
        for row in rows
    ]
