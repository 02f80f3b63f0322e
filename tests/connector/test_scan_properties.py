"""However a scan is cut, bounded, filtered or projected, its rows are those of the whole."""

from __future__ import annotations

import itertools
import operator
import pickle
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.messages.transactions import TransactionLookahead
from arrow_io.read_metrics import ReadMetrics
from connector import TopicDataset, open_topic
from connector.scan.topic_read import EntryRange
from tests.support.buckets import TOPIC, memory_bucket, offload
from tests.support.builds import using_build
from tests.support.encryption import key_pair, sealed_entry
from tests.support.expected import COLUMNS
from tests.support.reading import read
from tests.support.topics import Topic, topics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from connector.scan.topic_read import ScanTask, TopicRead
    from connector.scan.topic_scan import Scan
Position: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True)
class Stored:
    """A topic in a bucket, and how it is read."""

    topic: Topic
    block_bytes: int
    task_bytes: int
    range_bytes: int
    build: str

    @contextmanager
    def opened(self, **options: Any) -> Iterator[TopicDataset]:  # noqa: ANN401 - of open_topic
        """Open it, with all columns."""
        objects = offload(self.topic.ledgers, block_bytes=self.block_bytes)
        options = {"columns": COLUMNS, "range_bytes": self.range_bytes, **options}
        with memory_bucket(objects) as bucket, using_build(self.build):
            yield open_topic(bucket.url, TOPIC, **options)


def _stored(topic: st.SearchStrategy[Topic]) -> st.SearchStrategy[Stored]:
    return st.builds(
        Stored,
        topic,
        block_bytes=st.sampled_from((140, 300, 700, 1 << 20)),
        task_bytes=st.sampled_from((1, 500, 1500, 5000)),
        range_bytes=st.sampled_from((100, 1 << 20)),
        build=st.sampled_from(("compiled", "compiled", "pure")),
    )


_STORED: Final = _stored(topics(compacted=False))
_TRANSACTIONS: Final = st.sampled_from(("committed", "all"))


def _elsewhere(task: ScanTask) -> ScanTask:
    """The task as another process gets it."""
    copy: ScanTask = pickle.loads(pickle.dumps(task))
    return copy


def _position(row: dict[str, Any]) -> Position:
    return row["__ledger_id__"], row["__entry_id__"], row["__batch_index__"] or 0


def _positions(table: pa.Table) -> list[Position]:
    return [_position(row) for row in table.to_pylist()]


def _kept(table: pa.Table, keep: list[bool]) -> pa.Table:
    return table.filter(pa.array(keep, pa.bool_()))


@given(stored=_STORED, transactions=_TRANSACTIONS, data=st.data())
def test_any_cut_gives_each_row_once(
    *,
    stored: Stored,
    transactions: str,
    data: st.DataObject,
) -> None:
    """Tasks, pickled and executed in any order, give together the rows of the whole."""
    metrics, of_tasks = ReadMetrics(), ReadMetrics()
    with stored.opened(transactions=transactions) as dataset:
        whole = read(dataset.scan, dataset.scan.plan(), metrics)
        tasks = dataset.scan.plan(stored.task_bytes)
        order = data.draw(st.permutations(range(len(tasks))))
        parts = {
            number: read(dataset.scan, [_elsewhere(tasks[number])], of_tasks) for number in order
        }

    # A message is given by the task in which it begins, so one that is chunked may come early.
    given = pa.concat_tables([whole.slice(0, 0), *(parts[n] for n in range(len(tasks)))])
    assert sorted(_positions(given)) == _positions(whole)
    rank = sorted(range(len(whole)), key=_positions(given).__getitem__)
    assert given.take(pa.array(rank, pa.int64())).equals(whole)
    for part in parts.values():
        assert _positions(part) == sorted(_positions(part))
    for each in (metrics, of_tasks):
        assert (each.rows, each.entries) == (len(whole), metrics.entries)
        assert each.aborted_messages == metrics.aborted_messages
        assert each.open_messages == metrics.open_messages


@st.composite
def _shared_out(draw: st.DrawFn, every: TopicRead) -> list[tuple[EntryRange, ...]]:
    """Any of a topic's entries, each given to any of a few tasks or to none, in ranges."""
    places = [
        (ledger.ledger_id, entry_id)
        for ledger in every.ledgers
        for entry_id in range(ledger.last_entry_id + 1)
    ]
    owners = st.lists(st.integers(-1, 1), min_size=len(places), max_size=len(places))
    tasks: dict[int, list[EntryRange]] = {}
    last = None
    for (ledger_id, entry_id), owner in zip(places, draw(owners), strict=True):
        ranges = tasks.setdefault(owner, [])
        if owner == last and ranges[-1].ledger_id == ledger_id:
            ranges[-1] = ranges[-1]._replace(last_entry_id=entry_id)
        else:
            ranges.append(EntryRange(ledger_id, entry_id, entry_id))
        last = owner
    return [tuple(ranges) for owner, ranges in tasks.items() if owner >= 0]


@given(
    stored=_stored(topics(compacted=False, shapes=("single", "chunked", "chunked", "transaction"))),
    transactions=_TRANSACTIONS,
    max_buffered_bytes=st.sampled_from((1, 300, 1 << 20)),
    data=st.data(),
)
def test_any_ranges_give_the_rows_that_stand_in_them(
    *,
    stored: Stored,
    transactions: str,
    max_buffered_bytes: int,
    data: st.DataObject,
) -> None:
    """Whatever is left out, and whoever reads the rest, each row that stands in it comes once."""
    with stored.opened(transactions=transactions) as dataset:
        whole = read(dataset.scan)
        [every] = dataset.scan.reads()
        shares = data.draw(_shared_out(every), label="ranges of each task")
        ranges = sorted(itertools.chain.from_iterable(shares))
        some = replace(every, ranges=tuple(ranges))
        looking_ahead = partial(TransactionLookahead, max_buffered_bytes=max_buffered_bytes)
        with patch("connector.scan.execution.TransactionLookahead", looking_ahead):
            parts = [read(dataset.scan, [_elsewhere(some.task(each))]) for each in shares]

    given = pa.concat_tables([whole.slice(0, 0), *parts])
    inside = [row for row in whole.to_pylist() if some.is_read(*_position(row)[:2])]
    assert sorted(given.to_pylist(), key=_position) == inside
    for part in parts:
        assert _positions(part) == sorted(_positions(part))


@given(stored=_STORED)
def test_outcomes_beyond_what_is_kept_are_read_twice(stored: Stored) -> None:
    """However few entries are kept on the way to a transaction's marker, the rows are the same."""
    with stored.opened() as dataset:
        expected = _positions(read(dataset.scan))
        hurried = partial(TransactionLookahead, max_buffered_bytes=1)
        with patch("connector.scan.execution.TransactionLookahead", hurried):
            metrics = ReadMetrics()
            tasks = dataset.scan.plan(stored.task_bytes)
            given = read(dataset.scan, map(_elsewhere, tasks), metrics)

    assert sorted(_positions(given)) == expected
    assert metrics.lost.total() == 0


@st.composite
def _message_ids(draw: st.DrawFn, topic: Topic) -> tuple[int, ...]:
    """Message ids in, between and outside the ledgers of a topic, with batch index or without."""
    first, last = topic.ledgers[0][0], topic.ledgers[-1][0]
    ledger = draw(
        st.integers(max(first - 1, 0), last + 1)
        if last - first < 99
        else st.sampled_from([ledger_id for ledger_id, _ in topic.ledgers])
    )
    entry = draw(st.integers(0, max(len(entries) for _, entries in topic.ledgers)))
    batch = draw(st.none() | st.integers(-1, 6))
    return (ledger, entry) if batch is None else (ledger, entry, batch)


def _full(message_id: tuple[int, ...]) -> Position:
    ledger, entry, *batch = message_id
    return ledger, entry, max(0, *batch, 0)


@given(stored=_STORED, data=st.data())
def test_bounds_by_message_id_are_exact(stored: Stored, data: st.DataObject) -> None:
    """Rows at or behind `start` and before `end`, by the position of a message's last chunk."""
    start = data.draw(st.none() | _message_ids(stored.topic))
    end = data.draw(st.none() | _message_ids(stored.topic))
    if start is not None and end is not None:
        start, end = sorted((start, end), key=_full)
    with stored.opened() as dataset:
        whole = read(dataset.scan)
    with stored.opened(start=start, end=end) as dataset:
        bounded = read(dataset.scan)
        cut = read(dataset.scan, map(_elsewhere, dataset.scan.plan(stored.task_bytes)))

    expected = _kept(
        whole,
        [
            (start is None or _full(start) <= position) and (end is None or position < _full(end))
            for position in _positions(whole)
        ],
    )
    assert bounded.equals(expected)
    assert sorted(_positions(cut)) == _positions(expected)


@given(stored=_STORED, data=st.data())
def test_neighbouring_bounds_join_without_seam(stored: Stored, data: st.DataObject) -> None:
    """[a, b) and [b, c) together are [a, c), chunked messages across b included."""
    ids = sorted(data.draw(st.tuples(*[_message_ids(stored.topic)] * 3)), key=_full)

    def rows(start: tuple[int, ...], end: tuple[int, ...]) -> list[Position]:
        with stored.opened(start=start, end=end) as dataset:
            return _positions(read(dataset.scan, dataset.scan.plan(stored.task_bytes)))

    first, middle, last = ids
    assert sorted(rows(first, middle) + rows(middle, last)) == sorted(rows(first, last))


@given(stored=_STORED, data=st.data())
def test_bounds_by_publish_time_are_exact(stored: Stored, data: st.DataObject) -> None:
    """Publish times are in no order, and yet just the rows between the bounds come."""
    with stored.opened() as dataset:
        whole = read(dataset.scan)
    times = whole["__publish_time__"].to_pylist()
    moments: st.SearchStrategy[datetime | None] = st.none()
    if times:
        nudge = st.sampled_from((-1000, -1, 0, 1, 999, 1000))
        moments |= st.builds(
            lambda time, us: time + timedelta(microseconds=us), st.sampled_from(times), nudge
        )
    start, end = data.draw(moments), data.draw(moments)
    if start is not None and end is not None:
        start, end = sorted((start, end))

    with stored.opened(start=start, end=end) as dataset:
        bounded = read(dataset.scan)
        cut = read(dataset.scan, map(_elsewhere, dataset.scan.plan(stored.task_bytes)))

    expected = _kept(
        whole,
        [(start is None or start <= time) and (end is None or time < end) for time in times],
    )
    assert bounded.equals(expected)
    assert sorted(_positions(cut)) == _positions(expected)


_COMPARABLE: Final = [name for name in COLUMNS if name != "__properties__"]


@st.composite
def _comparisons(draw: st.DrawFn, table: pa.Table) -> pc.Expression:
    """Comparisons of any column but properties, with a value that occurs in it or with null."""
    name = draw(st.sampled_from(_COMPARABLE))
    field, values = pc.field(name), [v for v in table[name].to_pylist() if v is not None]
    if not values or draw(st.booleans()):
        return draw(st.sampled_from((field.is_null(), field.is_valid())))
    value = pa.scalar(draw(st.sampled_from(values)), table.schema.field(name).type)
    compared = [field == value, field != value]
    if not pa.types.is_boolean(value.type):
        compared += [field < value, field >= value, field.isin([value.as_py()])]
    return draw(st.sampled_from(compared))


def _expressions(table: pa.Table) -> st.SearchStrategy[pc.Expression]:
    """Comparisons, and what they give with and, or and not."""
    return st.recursive(
        _comparisons(table),
        lambda inner: (
            st.builds(operator.and_, inner, inner)
            | st.builds(operator.or_, inner, inner)
            | st.builds(operator.invert, inner)
        ),
        max_leaves=4,
    )


@given(
    stored=_STORED,
    columns=st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=4, unique=True),
    data=st.data(),
)
def test_filters_are_exact(*, stored: Stored, columns: list[str], data: st.DataObject) -> None:
    """Just the rows for which the filter is true, whatever columns are asked for."""
    with stored.opened() as dataset:
        whole = read(dataset.scan)
        expression = data.draw(_expressions(whole), label="filter")
        scan = dataset.scanner(columns, expression).scan
        filtered = read(scan)
        cut = read(scan, map(_elsewhere, scan.plan(stored.task_bytes)))

    expected = whole.filter(expression)
    assert filtered.equals(expected.select(columns))
    assert cut.num_rows == expected.num_rows


@given(stored=_STORED, columns=st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True))
def test_projections_are_columns_of_the_whole(stored: Stored, columns: list[str]) -> None:
    """Any columns in any order have the values that they have among all columns."""
    with stored.opened(transactions="all") as dataset:
        whole: pa.Table = read(dataset.scan)
        scan: Scan = dataset.scan.select(columns)
        projected = read(scan)

    assert projected.equals(whole.select(columns))


@given(stored=_STORED, kind=st.sampled_from(("P-256", "RSA")))
def test_encrypted_topic_gives_the_rows_of_the_clear_one(stored: Stored, kind: str) -> None:
    """Whatever is encrypted and however it is cut, the keys make it what it was."""
    pair = key_pair(kind)
    data_key = bytes(range(32))
    ledgers = [
        (ledger_id, [sealed_entry(entry, pair, data_key=data_key) for entry in entries])
        for ledger_id, entries in stored.topic.ledgers
    ]
    with stored.opened() as dataset:
        expected = read(dataset.scan)

    sealed = replace(stored, topic=replace(stored.topic, ledgers=ledgers))
    with sealed.opened(decryption_keys=pair.keys()) as dataset:
        tasks = dataset.scan.plan(stored.task_bytes)
        parts = [read(dataset.scan, [_elsewhere(task)]) for task in tasks]

    given = pa.concat_tables([expected.slice(0, 0), *parts])
    rank = sorted(range(len(given)), key=_positions(given).__getitem__)
    assert given.take(pa.array(rank, pa.int64())).equals(expected)
