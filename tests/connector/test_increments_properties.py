"""However what is new is cut, and however ledgers arrive, increments are together one batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import OpenTransactionError
from connector import open_topic
from connector.increments.increment import Limits
from connector.increments.progress import Progress
from connector.inputs.topic_names import TopicName
from tests.support.buckets import TOPIC, memory_bucket, offload
from tests.support.expected import COLUMNS
from tests.support.increments import in_order, increments_of, position_of, read_increment, read_on
from tests.support.reading import read
from tests.support.reference import first_open_position
from tests.support.topics import SHAPES, topics

if TYPE_CHECKING:
    import pyarrow as pa

    from tests.support.topics import Topic

_LIMITS = st.builds(
    Limits,
    max_bytes=st.none() | st.sampled_from((1, 300, 1000)),
    max_ledgers=st.none() | st.sampled_from((1, 2)),
)
_BLOCK_BYTES = st.sampled_from((140, 300, 1 << 20))
_TASK_BYTES = st.sampled_from((1, 500, 1 << 20))
_SHAPES = (*SHAPES, "transaction", "chunked", "transaction")


@st.composite
def _arrivals(draw: st.DrawFn, topic: Topic) -> list[int]:
    """How many of a topic's ledgers are in the bucket at each time, at last all of them."""
    count = len(topic.ledgers)
    numbers = draw(st.sets(st.integers(1, count))) | {count}
    return sorted(numbers)


@given(
    topic=topics(compacted=False, shapes=_SHAPES),
    block_bytes=_BLOCK_BYTES,
    task_bytes=_TASK_BYTES,
    transactions=st.sampled_from(("committed", "committed", "all")),
    data=st.data(),
)
def test_increments_are_together_one_batch(
    *, topic: Topic, block_bytes: int, task_bytes: int, transactions: str, data: st.DataObject
) -> None:
    """Each row before the first open transaction is given once; what stands behind it, not yet."""
    options: dict[str, Any] = {"columns": COLUMNS, "transactions": transactions}
    given_rows: list[pa.RecordBatch] = []
    progress = Progress()
    arrivals = data.draw(_arrivals(topic), label="ledgers in the bucket")
    with (
        memory_bucket(offload(topic.ledgers[: arrivals[0]], block_bytes=block_bytes)) as bucket,
        patch("connector.increments.settled._PROBED_BLOCKS", 1000),
    ):
        source = increments_of(bucket.url, **options)
        for before, count in zip([arrivals[0], *arrivals], arrivals, strict=False):
            bucket.put(offload(topic.ledgers[before:count], block_bytes=block_bytes))
            if data.draw(st.booleans(), label="begin a new run"):
                source = increments_of(bucket.url, **options)
                progress = Progress.from_json(progress.to_json())
            else:
                source.refresh()
            limits = data.draw(_LIMITS, label="limits")
            batches, progress = read_on(source, progress, limits, task_bytes)
            given_rows += batches
        whole = read(open_topic(bucket.url, TOPIC, **options).scan)

    still_open = first_open_position(topic.ledgers) if transactions == "committed" else None
    settled = [
        row
        for row in whole.to_pylist()
        if still_open is None or (row["__ledger_id__"], row["__entry_id__"]) < still_open
    ]
    assert in_order(given_rows, whole.schema) == settled
    end = progress.topic_progress(TopicName.parse(TOPIC)).next
    first_ledger_id, last_ledger_id = topic.ledgers[0][0], topic.ledgers[-1][0]
    assert max(end, (first_ledger_id, 0)) == (still_open or (last_ledger_id + 1, 0))


@given(
    topic=topics(compacted=False, shapes=("transaction", "transaction", "single")),
    data=st.data(),
)
def test_no_row_is_skipped_that_was_not_seen_to_be_open(topic: Topic, data: st.DataObject) -> None:
    """A task that meets an open transaction fails, if the planner knows of none."""
    count = data.draw(st.integers(1, len(topic.ledgers)), label="ledgers in the bucket")
    with (
        memory_bucket(offload(topic.ledgers[:count])) as bucket,
        patch("connector.increments.settled._shows_transaction", lambda _run: False),
    ):
        increment = increments_of(bucket.url, columns=COLUMNS).next_increment(Progress())
        if first_open_position(topic.ledgers[:count]) is None:
            first = read_increment(increment)
        else:
            first = None
            with pytest.raises(OpenTransactionError, match="run it again when the outcome is"):
                read_increment(increment)
        bucket.put(offload(topic.ledgers[count:]))
        whole = read(open_topic(bucket.url, TOPIC, columns=COLUMNS).scan)
        later = increments_of(bucket.url, columns=COLUMNS)
        if first_open_position(topic.ledgers) is None:
            again = read_increment(later.increment_between(increment.before, increment.after))
            rest, _ = read_on(later, increment.after)

            assert in_order(again + rest, whole.schema) == whole.to_pylist()
            if first is not None:
                assert in_order(first, whole.schema) == in_order(again, whole.schema)


@given(topic=topics(compacted=False, shapes=_SHAPES), limits=_LIMITS, data=st.data())
def test_an_increment_is_the_same_when_it_is_read_again(
    topic: Topic, limits: Limits, data: st.DataObject
) -> None:
    """Between two positions lie the same rows, by another process and when more has come.

    Their order is that of the tasks: a chunked message is of the task that has its first chunk.
    """
    count = data.draw(st.integers(1, len(topic.ledgers)), label="ledgers in the bucket")
    with memory_bucket(offload(topic.ledgers[:count], block_bytes=300)) as bucket:
        increment = increments_of(bucket.url).next_increment(Progress(), limits)
        first = read_increment(increment, 1)
        bucket.put(offload(topic.ledgers[count:], block_bytes=300))
        again = increments_of(bucket.url).increment_between(
            increment.before, Progress.from_json(increment.after.to_json())
        )
        second = read_increment(again)

    assert again.amount.data_bytes == sum(read.data_bytes for read in increment.reads)
    rows, rows_again = (
        sorted((row for batch in batches for row in batch.to_pylist()), key=position_of)
        for batches in (first, second)
    )
    assert rows == rows_again
