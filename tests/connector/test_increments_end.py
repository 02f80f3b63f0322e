"""Increments of what has an end: the rows of one batch read up to it, wherever they begin."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

from arrow_io.errors import OptionError
from connector import open_catalog, open_topic
from connector.increments.increment import Increments
from connector.increments.progress import Position, Progress, TopicProgress
from connector.inputs.times import EPOCH
from connector.inputs.topic_names import TopicName
from connector.scan.execution import execute
from tests.support.golden import golden_topic

if TYPE_CHECKING:
    from connector import Catalog

_POSITION: Final = ["__ledger_id__", "__entry_id__", "__batch_index__"]
_PAIRS_FROM: Final = 5


def _given(catalog: Catalog, topic: str, start: Position, end: Any) -> list[Any]:  # noqa: ANN401
    dataset = open_topic(
        catalog.location.url, topic, catalog=catalog, columns=_POSITION, value="raw", end=end
    )
    increments = Increments(catalog, [topic], dataset.scan.options, may_end=True)
    before = Progress({TopicName.parse(topic): TopicProgress.at(start)})
    reads = increments.next_increment(before).reads
    batches = [batch for read in reads for batch in execute(read.task(read.ranges))]
    return [row for batch in batches for row in batch.to_pylist()]


def _rows(catalog: Catalog, topic: str, start: Position, end: Any) -> list[Any]:  # noqa: ANN401
    dataset = open_topic(
        catalog.location.url, topic, catalog=catalog, value="raw", start=(*start,), end=end
    )
    rows: list[Any] = dataset.to_table(columns=_POSITION).to_pylist()
    return rows


@pytest.mark.parametrize("name", ["small-chunked", "multi-ledger", "small-compacted"])
def test_rows_end_where_a_batch_read_does(name: str) -> None:
    """Also if the progress is behind the end already: then there are none."""
    topic = golden_topic(name)
    catalog = open_catalog(str(topic.objects_folder))
    rows = topic.messages()
    positions = [Position(row["ledger"], row["entry"]) for row in rows]
    some = positions[:: max(1, len(positions) // _PAIRS_FROM)]

    for start in some:
        for end in some:
            given = _given(catalog, topic.name, start, tuple(end))
            assert given == ([] if start > end else _rows(catalog, topic.name, start, tuple(end)))


def test_rows_end_at_a_time() -> None:
    """Exactly, though publish times are not in order."""
    topic = golden_topic("multi-ledger")
    rows = topic.messages()
    middle = sorted(row["publish_time"] for row in rows)[len(rows) // 2]
    end = EPOCH + timedelta(milliseconds=middle)
    start = Position(rows[0]["ledger"], 1)

    catalog = open_catalog(str(topic.objects_folder))
    found = _given(catalog, topic.name, start, end)

    assert 0 < len(found) < len(rows)
    assert found == _rows(catalog, topic.name, start, end)


def test_who_reads_on_cannot_have_an_end() -> None:
    """What lies behind it would be passed over, and never come."""
    topic = golden_topic("multi-ledger")
    url = str(topic.objects_folder)
    options = open_topic(url, topic.name, end="2030-01-01", value="raw").scan.options

    with pytest.raises(OptionError, match="leave the option end out"):
        Increments(open_catalog(url), [topic.name], options)
