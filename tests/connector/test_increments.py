"""What is new in topics whose ledgers come late, go early, or should be there and are not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pytest

from arrow_io.errors import (
    FormatError,
    LateLedgerError,
    MissingObjectError,
    OptionError,
    TopicNotFoundError,
)
from arrow_io.format.index_block import MANAGED_LEDGER_NAME_KEY
from arrow_io.storage.location import Location
from arrow_io.storage.trace import RequestKind, RequestTrace
from connector import open_catalog
from connector.increments.increment import Increments, Limits
from connector.increments.progress import Position, Progress, TopicProgress
from connector.inputs.topic_names import TopicName
from tests.support.buckets import (
    MANAGED_LEDGER,
    TOPIC,
    MemoryBucket,
    memory_bucket,
    offload_ledger,
)
from tests.support.buckets import object_name as new_name
from tests.support.entries import Message, encode_entry, encode_marker
from tests.support.golden import golden_topic
from tests.support.increments import increments_of, read_increment, read_on
from tests.support.owned_bucket import OwnedBucket, not_offloaded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from connector.inputs.bounds import Bound


CHUNKED = golden_topic("small-chunked")
NAME = TopicName.parse(TOPIC)
IDS = tuple(range(10, 90, 10))
ENTRY = encode_entry([Message(payload=b"x")], batched=False)
OBJECTS = [offload_ledger(new_name(ledger_id), [ENTRY, ENTRY]) for ledger_id in IDS]
"""The data object and the index object of each ledger."""


def _put(bucket: MemoryBucket, *numbers: int) -> None:
    """Let ledgers be offloaded, by their numbers in the topic."""
    for number in numbers:
        bucket.put(OBJECTS[number])


def _delete(bucket: MemoryBucket, *numbers: int) -> None:
    for number in numbers:
        for name in OBJECTS[number]:
            bucket.delete(name)


def _source(bucket: MemoryBucket, **options: Any) -> Increments:  # noqa: ANN401
    return increments_of(bucket.url, **options)


def _ledgers(batches: Sequence[pa.RecordBatch]) -> set[int]:
    return {each for batch in batches for each in batch["__ledger_id__"].to_pylist()}


def test_a_late_ledger_is_an_error(bucket: MemoryBucket) -> None:
    """Rows that would never be given are told of, each time until the user says to go on."""
    _put(bucket, 0, 2, 3)
    _, progress = read_on(_source(bucket), Progress())
    _put(bucket, 1, 4, 5, 6, 7)

    for _ in range(2):
        with pytest.raises(LateLedgerError, match="its rows were not read") as caught:
            _source(bucket).next_increment(progress)
        assert caught.value.ledger_id == IDS[1]
    lenient = _source(bucket, on_corruption="salvage")
    increment = lenient.next_increment(progress)
    assert [str(IDS[1]) in notice for notice in increment.notices] == [True]
    assert _ledgers(read_increment(increment)) == {*IDS[4:]}
    assert lenient.next_increment(increment.after).notices == ()


def test_a_ledger_that_comes_while_a_batch_is_repeated_is_no_part_of_it(
    bucket: MemoryBucket,
) -> None:
    """What was said to lie between two positions does not grow."""
    _put(bucket, 0, 2, 3)
    increment = _source(bucket).next_increment(Progress())
    _put(bucket, 1)

    again = _source(bucket).increment_between(increment.before, increment.after)

    assert _ledgers(read_increment(again)) == {IDS[0], IDS[2], IDS[3]}


def test_retention_deletes_what_was_read(bucket: MemoryBucket) -> None:
    """Old ledgers go without a word, and are forgotten, so that progress does not grow for ever."""
    _put(bucket, *range(5))
    rows, progress = read_on(_source(bucket), Progress())
    _delete(bucket, 0, 1)
    _put(bucket, 5, 6, 7)

    source = _source(bucket)
    increment = source.next_increment(progress)
    last = increment.after.topic_progress(NAME)
    assert (last.ledger_ids, last.first_ledger_id) == (IDS[2:], IDS[1] + 1)
    assert increment.notices == ()
    _put(bucket, 0)
    more, end = read_on(_source(bucket), increment.after)
    assert (more, end) == ([], increment.after)
    assert _ledgers(rows + read_increment(increment)) == {*IDS}


def test_a_topic_of_which_nothing_is_left(bucket: MemoryBucket) -> None:
    """It goes on where it was when it is written to again."""
    bucket.put(offload_ledger(new_name(1), [ENTRY], managed_ledger="a/b/persistent/other"))
    _put(bucket, 0, 1)
    source = _source(bucket)
    _, progress = read_on(source, Progress())
    _delete(bucket, 0, 1)
    source.refresh()
    assert source.next_increment(progress).after == progress
    _put(bucket, 2)
    source.refresh()

    rows, _ = read_on(source, progress)
    assert _ledgers(rows) == {IDS[2]}


def test_progress_of_a_newer_catalog_is_told(bucket: MemoryBucket) -> None:
    """Who looked at the bucket before another one did hears that this may be why a ledger lacks."""
    _put(bucket, 0, 1)
    older = _source(bucket)
    older.next_increment(Progress())
    _put(bucket, 2, 3)
    progress = _source(bucket).next_increment(Progress(), Limits(max_ledgers=1)).after

    with pytest.raises(MissingObjectError, match="the catalog is older than the progress"):
        older.next_increment(progress)
    older.refresh()
    assert older.next_increment(progress).after != progress


def test_a_ledger_that_is_deleted_before_it_is_read_is_lost(bucket: MemoryBucket) -> None:
    """Data loss is an error, when it is planned and when it is repeated, or is told once."""
    _put(bucket, *range(6))
    source = _source(bucket)
    first = source.next_increment(Progress(), Limits(max_ledgers=2))
    second = source.next_increment(first.after, Limits(max_ledgers=3))
    _delete(bucket, 3)

    says = "was deleted before it was read"
    with pytest.raises(MissingObjectError, match=says) as planned:
        _source(bucket).next_increment(first.after)
    with pytest.raises(MissingObjectError, match=says) as repeated:
        _source(bucket).increment_between(first.after, second.after)
    assert planned.value.ledger_id == repeated.value.ledger_id == IDS[3]
    lenient = _source(bucket, on_corruption="salvage")
    again = lenient.increment_between(first.after, second.after)
    assert _ledgers(read_increment(again)) == {IDS[2], IDS[4]}
    assert len(again.notices) == 1
    told = lenient.next_increment(first.after)
    assert len(told.notices) == 1
    assert lenient.next_increment(told.after).notices == ()


@pytest.fixture
def owned(tmp_path: Path) -> OwnedBucket:
    """A bucket and what its cluster knows."""
    return OwnedBucket.copied(tmp_path)


def _of(owned: OwnedBucket, **options: Any) -> Increments:  # noqa: ANN401
    given = {"metadata": owned.metadata}
    return increments_of(str(owned.objects), (CHUNKED.name,), given, **options)


@pytest.mark.parametrize("salvage", [False, True])
def test_a_ledger_that_is_not_offloaded_yet_is_waited_for(
    owned: OwnedBucket, *, salvage: bool
) -> None:
    """What is offloaded behind it comes after it, though damage would be passed over."""
    ids = [each.ledger_id for each in CHUNKED.ledgers]
    whole, _ = read_on(_of(owned), Progress())
    known = owned.known(CHUNKED.name)
    owned.change(CHUNKED.name, {ids[3]: not_offloaded})
    lenient = _of(owned, on_corruption="salvage")
    options = replace(lenient.options, salvage=salvage)
    source = Increments(lenient.catalog, (CHUNKED.name,), options)

    first = source.next_increment(Progress())
    assert _ledgers(read_increment(first)) <= {*ids[:3]}
    assert f"nothing is read from ledger {ids[3]} on" in first.notices[0]
    assert first.lag.ledgers == len(ids) - 4
    assert source.next_increment(first.after).after == first.after
    owned.tell(known)
    source.refresh()
    rest, _ = read_on(source, first.after)
    assert [row for each in read_increment(first) + rest for row in each.to_pylist()] == [
        row for each in whole for row in each.to_pylist()
    ]


def test_an_offload_without_an_index_object_is_waited_for(
    bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without metadata, a data object shows that a ledger is on its way; it is asked once."""
    asked: list[str] = []

    def user_metadata(_location: Location, name: str) -> dict[str, str]:
        asked.append(name)
        return {MANAGED_LEDGER_NAME_KEY: MANAGED_LEDGER}

    # A store in memory keeps none.
    monkeypatch.setattr(Location, "user_metadata", user_metadata)
    _put(bucket, *range(5))
    data_name, index_name = OBJECTS[2]
    bucket.delete(index_name)
    options = _source(bucket, on_corruption="salvage").options
    asked.clear()
    source = Increments(open_catalog(bucket.url), (TOPIC,), replace(options, salvage=False))

    first = source.next_increment(Progress())
    assert _ledgers(read_increment(first)) == {*IDS[:2]}
    assert f"nothing is read from ledger {IDS[2]} on: its data object exists" in first.notices[0]
    assert first.lag.ledgers == 2
    for _ in range(3):
        source.refresh()
        assert source.next_increment(first.after).after == first.after
    assert asked == [data_name]
    lenient = Increments(open_catalog(bucket.url), (TOPIC,), options).next_increment(first.after)
    assert f"ledger {IDS[2]} is left out" in lenient.notices[0]
    assert _ledgers(read_increment(lenient)) == {*IDS[3:5]}
    bucket.put(OBJECTS[2])
    source.refresh()
    assert _ledgers(read_increment(source.next_increment(first.after))) == {*IDS[2:5]}


def test_what_cannot_be_read_is_an_error(bucket: MemoryBucket) -> None:
    """A damaged index object above the position ends a run; below it nobody asks."""
    _put(bucket, *range(5))
    source = _source(bucket)
    first = source.next_increment(Progress(), Limits(max_ledgers=3))
    _, damaged = OBJECTS[3]
    bucket.put({damaged: OBJECTS[3][damaged][:-9]})
    source.refresh()

    with pytest.raises(FormatError) as caught:
        source.next_increment(first.after)
    assert caught.value.ledger_id == IDS[3]
    beyond = Progress({NAME: TopicProgress.at(Position(IDS[4], 0))})
    assert _ledgers(read_increment(source.next_increment(beyond))) == {IDS[4]}


def test_a_topic_without_transactions_is_not_downloaded_twice() -> None:
    """The planner reads a little of each ledger once, and index objects once in a run."""
    entry = encode_entry([Message(payload=b"x" * 2000)], batched=False)
    objects: dict[str, bytes] = {}
    for ledger_id in range(5):
        objects |= offload_ledger(new_name(ledger_id), [entry] * 300, block_bytes=200_000)
    with memory_bucket(objects) as bucket:
        trace = RequestTrace(keep_records=True)
        catalog = open_catalog(bucket.url, trace=trace)
        source = Increments(catalog, ("orders",), increments_of(bucket.url).options)
        opened = trace.counts.index_requests
        first = source.next_increment(Progress(), Limits(max_ledgers=2))
        ranges = [each for each in trace.records if each.kind is RequestKind.RANGE_GET]
        for _ in range(3):
            source.refresh()
            first = source.next_increment(first.after, Limits(max_ledgers=1))
        bucket.put(offload_ledger(new_name(5), [entry], block_bytes=200_000))
        source.refresh()
        source.next_increment(first.after)

    assert opened == 5
    assert trace.counts.index_requests == 6
    probed = sum((each.stop or 0) - (each.start or 0) for each in ranges)
    assert probed <= 5 * 4 * (64 << 10)
    assert probed < sum(map(len, objects.values())) / 2
    every = [each for each in trace.records if each.kind is RequestKind.RANGE_GET]
    assert len(every) == len(ranges) + 1


def test_entries_are_looked_at_once_for_transactions() -> None:
    """A transaction that stays open holds back what is behind it, and costs nothing again."""
    single = encode_entry([Message(payload=b"x")], batched=False)
    opened = encode_entry(
        [Message(payload=b"t")], batched=False, txnid_most_bits=1, txnid_least_bits=2
    )
    ledgers = [[single, opened, single], [single] * 3, [single, opened]]
    with memory_bucket({}) as bucket:
        bucket.put(offload_ledger(new_name(0), ledgers[0]))
        trace = RequestTrace(keep_records=True)
        catalog = open_catalog(bucket.url, trace=trace)
        source = Increments(catalog, ("orders",), increments_of(bucket.url).options)
        first = source.next_increment(Progress())
        assert first.after.topic_progress(TopicName.parse("orders")).next == (0, 1)
        for number, entries in enumerate(ledgers[1:], 1):
            bucket.put(offload_ledger(new_name(number), entries))
            source.refresh()
            assert source.next_increment(first.after).after == first.after
        asked = trace.counts.range_requests
        source.refresh()
        held = source.next_increment(first.after)
        assert trace.counts.range_requests == asked
        assert "ledger 0, entry 1 on: its transaction has no outcome" in held.notices[0]
        bucket.put(offload_ledger(new_name(3), [encode_marker(21, txn_id=(1, 2)), single]))
        source.refresh()
        last = source.next_increment(first.after)
        rows = [row["__value__"] for each in read_increment(last) for row in each.to_pylist()]

    assert rows == [b"t", b"x", b"x", b"x", b"x", b"x", b"t", b"x"]
    assert last.lag.ledgers == 0


def test_a_topic_that_had_transactions_has_them_in_the_next_run() -> None:
    """They are looked for, though what is read ahead of a new ledger shows none."""
    long = encode_entry([Message(payload=b"x" * 2000)], batched=False)
    opened = encode_entry(
        [Message(payload=b"t")], batched=False, txnid_most_bits=1, txnid_least_bits=3
    )
    ended = encode_marker(21, txn_id=(1, 2))
    with memory_bucket(offload_ledger(new_name(0), [ENTRY, ended])) as bucket:
        _, progress = read_on(_source(bucket), Progress())
        bucket.put(offload_ledger(new_name(1), [*[long] * 60, opened, ENTRY]))

        increment = _source(bucket).next_increment(progress)

    assert increment.after.topic_progress(NAME).next == (1, 60)


def test_topics_take_turns(bucket: MemoryBucket) -> None:
    """A limit is shared among topics, and one that waits does not hold back the others."""
    for partition in range(3):
        name = f"{MANAGED_LEDGER}-partition-{partition}"
        for ledger_id in range(partition, 9, 3):
            bucket.put(offload_ledger(new_name(ledger_id), [ENTRY], managed_ledger=name))
    source = _source(bucket)

    increment = source.next_increment(Progress(), Limits(max_ledgers=3))
    assert [len(each.ranges) for each in increment.reads] == [1, 1, 1]
    least = source.next_increment(Progress(), Limits(max_bytes=1))
    assert (len(least.reads), least.ledgers) == (1, 1)
    assert least.data_bytes == sum(read.data_bytes for read in least.reads)


@pytest.mark.parametrize(
    "end", [(IDS[0], 1), "87:1", "2024-01-01", date(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC)]
)
def test_there_is_no_end(bucket: MemoryBucket, end: Bound) -> None:
    """Rows behind it would be passed over as if they had been read, and never given."""
    _put(bucket, 0)
    with pytest.raises(OptionError, match="an incremental read has no end"):
        _source(bucket, end=end)


@pytest.mark.parametrize("busy", range(3))
@pytest.mark.parametrize("limits", [Limits(max_ledgers=1), Limits(max_bytes=1)], ids=str)
def test_no_topic_waits_for_ever(bucket: MemoryBucket, limits: Limits, busy: int) -> None:
    """What is there is read in as many increments, however fast another topic grows."""
    names = [f"{MANAGED_LEDGER}-partition-{partition}" for partition in range(3)]
    blocks = 2  # Of each ledger.

    def put(ledger_id: int, partition: int, *, entry: bytes = ENTRY) -> None:
        name = new_name(ledger_id)
        bucket.put(
            offload_ledger(name, [entry] * blocks, block_bytes=1, managed_ledger=names[partition])
        )

    ids = range(9)
    for ledger_id in ids:
        put(ledger_id, ledger_id % 3)
    large = encode_entry([Message(payload=b"x" * 1000)], batched=False)
    source, progress = _source(bucket), Progress()

    found: set[int] = set()
    for number in range(blocks * len(ids)):
        increment = source.next_increment(progress, limits)
        found |= _ledgers(read_increment(increment))
        progress = increment.after
        put(100 + number, busy, entry=large)
        source.refresh()

    assert found >= {*ids}


def test_what_no_increment_can_have(bucket: MemoryBucket) -> None:
    """Topics that are nowhere."""
    _put(bucket, 0)
    source = Increments(open_catalog(bucket.url), ("nothing",), _source(bucket).options)
    with pytest.raises(TopicNotFoundError, match="nothing"):
        source.next_increment(Progress())


def test_what_the_metadata_does_not_know_yet_is_told(owned: OwnedBucket) -> None:
    """Metadata that is older than the bucket holds ledgers back, and the reader hears of it."""
    ids = [each.ledger_id for each in CHUNKED.ledgers]
    owned.change(CHUNKED.name, {ids[-1]: not_offloaded})

    increment = _of(owned).next_increment(Progress())

    assert increment.after.topic_progress(TopicName.parse(CHUNKED.name)).next == (ids[-2] + 1, 0)
    assert ["does not list 1 ledger in the bucket" in each for each in increment.notices] == [True]
    at_it = Progress({TopicName.parse(CHUNKED.name): TopicProgress.at(Position(ids[-1], 0))})
    assert _of(owned).next_increment(at_it).notices == increment.notices
