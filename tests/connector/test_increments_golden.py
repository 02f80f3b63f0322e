"""Ledgers of a real broker, read as they come: a cut at every ledger, and anywhere else."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

from connector import open_catalog, open_topic
from connector.increments.increment import Increments, Limits
from connector.increments.progress import Position, Progress, TopicProgress
from connector.inputs.times import EPOCH
from connector.inputs.topic_names import TopicName
from connector.scan.execution import execute
from tests.support.buckets import golden_objects, memory_bucket
from tests.support.golden import GOLDEN, golden_topic, golden_topics
from tests.support.golden_datasets import open_golden
from tests.support.increments import in_order, increments_of, read_increment, read_on
from tests.support.reading import read

if TYPE_CHECKING:
    import pyarrow as pa

    from connector import Catalog
    from tests.support.golden import GoldenTopic

_OPTIONS: dict[str, Any] = {"value": "raw", "decryption_keys": str(GOLDEN / "keys")}
_SEVERAL = [topic for topic in golden_topics() if len(topic.ledgers) > 1]


def _whole(topic: GoldenTopic) -> pa.Table:
    return read(open_golden(topic, **_OPTIONS).scan)


@pytest.mark.parametrize("topic", _SEVERAL, ids=str)
@pytest.mark.parametrize("is_one_run", [True, False], ids=["one run", "a run each"])
def test_a_cut_at_every_ledger(topic: GoldenTopic, *, is_one_run: bool) -> None:
    """What was new as each ledger came is together what one batch read gives."""
    objects = golden_objects(topic)
    whole = _whole(topic)
    rows: list[pa.RecordBatch] = []
    progress = Progress()
    with memory_bucket({}) as bucket:
        source = None
        for ledger in topic.ledgers:
            names = (ledger.data_object.name, ledger.index_object.name)
            bucket.put({name: objects[name] for name in names})
            if source is None or not is_one_run:
                source = increments_of(bucket.url, (topic.name,), **_OPTIONS)
            source.refresh()
            batches, progress = read_on(source, Progress.from_json(progress.to_json()))
            rows += batches

    assert in_order(rows, whole.schema) == in_order(whole.to_batches(), whole.schema)


@pytest.mark.parametrize("topic", golden_topics(), ids=str)
def test_random_limits(topic: GoldenTopic) -> None:
    """However small the steps are, together they give what one batch read gives."""
    chance = random.Random(str(topic))
    whole = _whole(topic)
    rows: list[pa.RecordBatch] = []
    progress = Progress()
    source = increments_of(str(topic.objects_folder), (topic.name,), **_OPTIONS)
    while True:
        limits = Limits(chance.choice([None, 1, 5_000, 1 << 20]), chance.choice([None, 1, 2, 3]))
        increment = source.next_increment(progress, limits)
        if increment.after == progress:
            break
        rows += read_increment(increment, chance.choice([1, 10_000, 1 << 30]))
        progress = increment.after

    expected = in_order(whole.to_batches(), whole.schema)
    given = in_order(rows, whole.schema)
    if increment.notices:
        # What stands behind an open transaction waits for it.
        assert "its transaction has no outcome" in increment.notices[0]
        assert increment.lag.ledgers
        expected = expected[: len(given)]
    assert given == expected


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
