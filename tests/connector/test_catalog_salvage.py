"""Salvaging beside another cluster: its rows are never given as those of the topic."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from arrow_io.format.index_block import read_index_block
from arrow_io.read_metrics import Unit
from connector import open_topic
from tests.support.golden import golden_topic
from tests.support.owned_bucket import OwnedBucket

if TYPE_CHECKING:
    from pathlib import Path

_DAY_MS = 86_400_000


@pytest.mark.parametrize("by_ms", [0, _DAY_MS], ids=["its own copy", "the other cluster's"])
def test_another_clusters_ledger_is_no_substitute(tmp_path: Path, by_ms: int) -> None:
    """Two clusters have a ledger of one id, topic, entries and bytes; the first one's is lost."""
    bucket = OwnedBucket.copied(tmp_path, "pulsar-4.0.7")
    topic = golden_topic("multi-ledger")
    ledger = topic.ledgers[3]
    whole = open_topic(str(bucket.objects), topic.name, metadata=bucket.metadata, value="raw")
    rows = whole.to_table(columns=["__ledger_id__"])["__ledger_id__"].to_pylist()
    name = bucket.copy_ledger(ledger)
    index = read_index_block(ledger.index_object.read_bytes(), object_key=name.index_name)
    created_ms = (index.ledger_metadata.ctime_ms or 0) + by_ms
    index = replace(index, ledger_metadata=replace(index.ledger_metadata, ctime_ms=created_ms))
    bucket.write(name.index_name, index.serialize())
    bucket.delete(ledger.index_object.name, ledger.data_object.name)

    dataset = open_topic(
        str(bucket.objects),
        topic.name,
        metadata=bucket.metadata,
        value="raw",
        on_corruption="salvage",
    )
    with pytest.warns(match="other copies" if by_ms == 0 else "1 × ledger lost"):
        read = dataset.to_table(columns=["__ledger_id__"])["__ledger_id__"].to_pylist()

    is_taken = by_ms == 0
    assert dataset.metrics.substituted_ledgers == int(is_taken)
    assert dataset.metrics.lost.total() == int(not is_taken)
    assert [unit for unit, _ in dataset.metrics.lost] == [Unit.LEDGER] * (not is_taken)
    assert read == rows if is_taken else read == [each for each in rows if each != ledger.ledger_id]
