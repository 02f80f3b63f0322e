"""Every golden topic gives the same rows with statistics as without, whatever is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow.compute as pc
import pytest

from connector.statistics.analysis import analyze
from connector.statistics.store import open_statistics
from tests.support.buckets import memory_bucket
from tests.support.encryption import KEY_FOLDER
from tests.support.expected import COLUMNS
from tests.support.golden import GOLDEN_SETS, golden_topics
from tests.support.golden_datasets import open_golden
from tests.support.reading import read

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from connector.scan.topic_scan import Scan
    from tests.support.golden import GoldenTopic


@pytest.fixture(scope="module")
def folder() -> Iterator[str]:
    """Statistics of all golden topics, in zones of a few entries."""
    with memory_bucket({}) as bucket, patch("connector.statistics.whole_ledgers.ZONE_BYTES", 1000):
        for set_name in GOLDEN_SETS:
            ledgers = [
                (str(each.topic), ledger)
                for topic in golden_topics()
                if topic.set_name == set_name
                for each in _scan(topic).topics
                for ledger in each.data
            ]
            analyze(open_statistics(bucket.url), ledgers)
        yield bucket.url


def _scan(topic: GoldenTopic, **options: Any) -> Scan:  # noqa: ANN401 - open_topic's
    dataset = open_golden(topic, columns=COLUMNS, decryption_keys=KEY_FOLDER, **options)
    return dataset.scan


def _filters(rows: pa.Table) -> Iterator[pc.Expression]:
    """Filters by the values of a row in the middle, and by none that occurs."""
    values = {name: rows[name][rows.num_rows // 2] for name in rows.column_names}
    published, key = pc.field("__publish_time__"), pc.field("__key__")
    yield (pc.field("__ledger_id__") == values["__ledger_id__"]) & (
        pc.field("__entry_id__") == values["__entry_id__"]
    )
    yield (published == values["__publish_time__"]) | (published < rows["__publish_time__"][0])
    yield pc.field("__event_time__").is_null() | (key == "no such key")
    yield pc.field("__broker_time__") > values["__broker_time__"]
    yield pc.field("__schema_version__") == values["__schema_version__"]
    yield (key == values["__key__"]) if values["__key__"].is_valid else key.is_valid()
    yield key == "no such key"


@pytest.mark.parametrize("topic", golden_topics(), ids=str)
def test_rows_are_those_without_statistics(topic: GoldenTopic, folder: str) -> None:
    """For filters on each column that statistics tell of, at a value that occurs."""
    rows = read(_scan(topic))
    scan = _scan(topic, statistics=folder)
    for expression in _filters(rows):
        filtered = scan.where(expression)
        assert read(filtered).equals(rows.filter(expression)), expression
        for each in filtered.reads():
            assert not each.pruning.problems
            assert not each.pruning.unknown_ledgers
