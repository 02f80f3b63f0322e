"""What goes on behind a task, or began before `start`, is given once, whole, and counted once."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow.compute as pc
import pytest

from arrow_io.errors import PayloadDecodeError
from arrow_io.messages.transactions import TransactionLookahead
from arrow_io.read_metrics import ReadMetrics, Unit
from arrow_io.storage.trace import RequestKind, RequestTrace
from connector import open_topic
from connector.scan.topic_read import EntryRange
from tests.support.buckets import (
    TOPIC,
    memory_bucket,
    object_name,
    offload,
    offload_ledger,
    with_lost_entries,
)
from tests.support.entries import Message, encode_chunks, encode_entry, encode_marker
from tests.support.reading import block_table, read

if TYPE_CHECKING:
    from connector.options.topic_request import OnCorruption

pytestmark = pytest.mark.usefixtures("build")

_CHUNKS = encode_chunks(Message(payload=b"abcdefghi"), chunk_count=3, uuid="abc")
_SINGLE = encode_entry([Message(payload=b"single")], batched=False)
_LEDGER = 5
_BLOCK_PER_ENTRY, _TASK_PER_BLOCK = 140, 1


def _values(
    entries: list[bytes],
    metrics: ReadMetrics | None = None,
    **bounds: Any,  # noqa: ANN401
) -> list[list[bytes]]:
    """The values that each task gives, where each entry has a block and a task of its own."""
    with memory_bucket(offload([(_LEDGER, entries)], block_bytes=_BLOCK_PER_ENTRY)) as bucket:
        scan = open_topic(bucket.url, TOPIC, **bounds).scan.select(["__value__"])
        tasks = scan.plan(_TASK_PER_BLOCK)
        return [read(scan, [task], metrics)["__value__"].to_pylist() for task in tasks]


@pytest.mark.parametrize("between", range(3))
def test_message_is_given_where_it_first_goes_on(between: int) -> None:
    """Of tasks behind `start`, that one gives the message which meets it first."""
    entries = [_CHUNKS[0], *[_SINGLE] * between, _CHUNKS[1], _SINGLE, _CHUNKS[2]]

    given = _values(entries, start=(_LEDGER, 1))

    assert given == [*[[b"single"]] * between, [b"abcdefghi"], [b"single"], []]


def test_an_open_message_is_counted_by_the_task_that_reads_it() -> None:
    """A task that only passes it, on the way to the end of another message, does not count it."""
    chunks = encode_chunks(
        Message(payload=b"open"), chunk_count=2, uuid="open", txnid_most_bits=1, txnid_least_bits=1
    )
    reports = [ReadMetrics() for _ in range(4)]
    entries = [_CHUNKS[0], chunks[0], _CHUNKS[1], _CHUNKS[2]]
    with memory_bucket(offload([(_LEDGER, entries)], block_bytes=_BLOCK_PER_ENTRY)) as bucket:
        scan = open_topic(bucket.url, TOPIC).scan
        for task, metrics in zip(scan.plan(_TASK_PER_BLOCK), reports, strict=True):
            read(scan, [task], metrics)

    assert [each.open_messages for each in reports] == [0, 1, 0, 0]
    assert [each.open_transactions for each in reports] == [0, 1, 0, 0]


@pytest.mark.parametrize("where", ["start", "end"])
def test_ledgers_beside_a_task_are_read_by_the_same_ranges(where: str) -> None:
    """What a message needs of another ledger is asked for in ranges as small as the user set."""
    long = encode_chunks(Message(payload=b"x" * 2_000), chunk_count=2, uuid="long")
    objects = offload([(_LEDGER, [_SINGLE, long[0]]), (_LEDGER + 1, [_SINGLE, long[1]])])
    trace = RequestTrace(keep_records=True)
    with memory_bucket(objects) as bucket:
        options: dict[str, Any] = {"trace": trace, "range_bytes": 300}
        if where == "start":
            scan = open_topic(bucket.url, TOPIC, start=(_LEDGER + 1, 1), **options).scan
            tasks = scan.plan()
        else:
            scan = open_topic(bucket.url, TOPIC, **options).scan
            tasks = scan.plan(_TASK_PER_BLOCK)[:1]
        read(scan, tasks)

    ranges = [each for each in trace.records if each.kind is RequestKind.RANGE_GET]
    assert len({each.name for each in ranges}) == 2
    for each in ranges:
        assert each.start is not None
        assert each.stop is not None
        assert each.stop - each.start <= 300


def test_outcome_far_behind_in_another_ledger_is_found() -> None:
    """A look ahead that stops keeping entries goes on in the ledger where it stopped."""
    opened = encode_entry(
        [Message(payload=b"committed")], batched=False, txnid_most_bits=1, txnid_least_bits=1
    )
    ledgers = [
        (_LEDGER, [opened]),
        (_LEDGER + 1, [_SINGLE, _SINGLE, _SINGLE, encode_marker(21, txn_id=(1, 1))]),
        (_LEDGER + 2, [_SINGLE]),
    ]
    hurried = partial(TransactionLookahead, max_buffered_bytes=1)
    with (
        memory_bucket(offload(ledgers)) as bucket,
        patch("connector.scan.execution.TransactionLookahead", hurried),
    ):
        scan = open_topic(bucket.url, TOPIC, range_bytes=100).scan.select(["__value__"])
        first = scan.plan(_TASK_PER_BLOCK)[0]
        values = read(scan, [first])["__value__"].to_pylist()

    assert values == [b"committed"]


@pytest.mark.parametrize("on_corruption", ["raise", "salvage"])
@pytest.mark.parametrize(
    ("behind", "values", "incomplete"),
    [(_CHUNKS[1:], [b"abcdefghi", b"single"], 0), (_CHUNKS[2:], [b"single"], 1)],
    ids=["whole", "chunk lost"],
)
def test_a_look_back_passes_entries_that_the_offloader_lost(
    behind: list[bytes],
    values: list[bytes],
    incomplete: int,
    on_corruption: OnCorruption,
) -> None:
    """A message with chunks on both sides of them is given if it is whole, and counted if not."""
    name = object_name(_LEDGER)
    before = offload_ledger(name, [_SINGLE, _CHUNKS[0], _SINGLE], block_bytes=_BLOCK_PER_ENTRY)
    before[name.index_name] = with_lost_entries(before[name.index_name], 3)
    metrics = ReadMetrics()
    with memory_bucket(before | offload([(_LEDGER + 1, [*behind, _SINGLE])])) as bucket:
        start = (_LEDGER + 1, 0)
        scan = open_topic(bucket.url, TOPIC, start=start, on_corruption=on_corruption).scan
        given = read(scan.select(["__value__"]), metrics=metrics)["__value__"].to_pylist()

    assert given == values
    assert (metrics.incomplete_messages, metrics.lost) == (incomplete, {})


def test_duplicates_behind_the_start_are_ignored() -> None:
    """A chunk that was sent twice, before `start` and behind it, does not lose the message."""
    entries = [_CHUNKS[0], _CHUNKS[1], _CHUNKS[1], _CHUNKS[2]]
    metrics = ReadMetrics()

    given = _values(entries, metrics, start=(_LEDGER, 2))

    assert given == [[b"abcdefghi"], []]
    assert metrics.incomplete_messages == 0


def test_message_that_was_whole_before_the_start_is_not_given() -> None:
    """Chunks that come once more behind it are no message."""
    metrics = ReadMetrics()

    assert _values([*_CHUNKS, _CHUNKS[1], _CHUNKS[2]], metrics, start=(_LEDGER, 3)) == [[], []]
    assert metrics.incomplete_messages == 0


def test_message_that_was_lost_behind_the_start_stays_lost() -> None:
    """What came before `start` does not bring a message back that a gap behind it has lost."""
    entries = [_CHUNKS[0], _CHUNKS[2], _CHUNKS[1], _CHUNKS[2]]
    metrics = ReadMetrics()

    assert _values(entries, start=(_LEDGER, 0)) == [[], [], [], []]
    assert _values(entries, metrics, start=(_LEDGER, 1)) == [[], [], []]
    assert metrics.incomplete_messages == 1


def test_message_that_begins_anew_is_given_by_the_task_where_it_does() -> None:
    """What came of it before is given up, in the task before too."""
    metrics = ReadMetrics()

    assert _values([_CHUNKS[0], *_CHUNKS], metrics) == [[], [b"abcdefghi"], [], []]
    assert metrics.incomplete_messages == 1


@pytest.mark.parametrize("task_bytes", [_TASK_PER_BLOCK, 1 << 20])
def test_damage_behind_a_task_is_counted_once(task_bytes: int) -> None:
    """A task that looks for the outcome of a transaction passes what another task has to tell."""
    opened = encode_entry(
        [Message(payload=b"committed")], batched=False, txnid_most_bits=1, txnid_least_bits=1
    )
    entries = [opened, _SINGLE, _SINGLE, encode_marker(21, txn_id=(1, 1))]
    objects = offload([(_LEDGER, entries)], block_bytes=_BLOCK_PER_ENTRY)
    data_name = next(iter(objects))
    metrics = ReadMetrics()

    with memory_bucket(objects) as bucket:
        scan = open_topic(bucket.url, TOPIC, on_corruption="salvage").scan.select(["__value__"])
        block = block_table(scan.topics[0].ledgers[0]).block_start(1)
        damaged = bytearray(objects[data_name])
        damaged[block + 128] ^= 0xFF
        bucket.rot(data_name, bytes(damaged))
        table = read(scan, scan.plan(task_bytes), metrics)

    assert table["__value__"].to_pylist() == [b"committed", b"single"]
    assert metrics.lost == {(Unit.ENTRY, "CorruptBlockError"): 1}


def test_filter_of_a_ledger_decodes_no_value_of_another() -> None:
    """What begins in the ledger and ends behind it is left out before its value is looked at."""
    schema = {
        "type": "JSON",
        "schema": '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}',
    }
    broken = encode_chunks(Message(payload=b"no JSON"), chunk_count=2, uuid="broken")
    sound = encode_entry([Message(payload=b'{"n": 1}')], batched=False)
    wanted = (pc.field("__ledger_id__") == _LEDGER) & (pc.field("n") == 1)
    objects = offload([(_LEDGER, [sound, broken[0]]), (_LEDGER + 1, [broken[1]])])
    with memory_bucket(objects) as bucket:
        dataset = open_topic(bucket.url, TOPIC, schema=schema)

        assert dataset.to_table(["n"], filter=wanted).to_pylist() == [{"n": 1}]
        with pytest.raises(PayloadDecodeError):
            dataset.to_table(["n"], filter=pc.field("n") == 1)


@pytest.mark.parametrize("opens", [False, True], ids=["skipped", "read"])
def test_message_that_begins_anew_between_ranges_is_given(opens: bool) -> None:
    """What became of it before does not count, whether the gap is skipped or read through."""
    first, second = encode_chunks(Message(payload=b"anew"), chunk_count=2, uuid="anew")
    # It holds the gap open, and ends in it.
    other = encode_chunks(Message(payload=b"other"), chunk_count=2, uuid="other")
    entries = [other[0] if opens else _SINGLE, second, first, other[1], second]
    with memory_bucket(offload([(_LEDGER, entries)])) as bucket:
        scan = open_topic(bucket.url, TOPIC, columns=["__value__"]).scan
        [every] = scan.reads()
        ranges = (EntryRange(_LEDGER, 0, 1), EntryRange(_LEDGER, 4, 4))
        task = replace(every, ranges=ranges).task(ranges)

        values = read(scan, [task])["__value__"].to_pylist()

    assert values == ([] if opens else [b"single"]) + [b"anew"]
