"""A run of entries tells where everything stands, and which of its checksums are wrong."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.core import builds
from arrow_io.errors import ChecksumError, CorruptEntryError
from arrow_io.messages import layout
from tests.support.entries import Framing, Message, encode_entry
from tests.support.runs import OBJECT_KEY, entry_run

if TYPE_CHECKING:
    from arrow_io.messages.entry_run import EntryRun

pytestmark = pytest.mark.usefixtures("build")

_SINGLE = encode_entry([Message(payload=b"payload", partition_key="key")], batched=False)
_WITHOUT_CHECKSUM = encode_entry(
    [Message(payload=b"free")], batched=False, framing=Framing(checksum=False)
)
_WITH_BROKER_METADATA = encode_entry(
    [Message(payload=b"p")], batched=False, framing=Framing(broker_metadata=(1, 2))
)
_ALL = [_SINGLE, _WITHOUT_CHECKSUM, _WITH_BROKER_METADATA]


def test_bytes_and_numbers_of_an_entry() -> None:
    """Positions are those in the run's own buffer; what an entry has not is empty."""
    run = entry_run(_ALL, first_entry_id=7)

    assert bytes(run.view(0, layout.PAYLOAD)) == b"payload"
    assert bytes(run.view(0, layout.KEY)) == b"key"
    assert bytes(run.view(1, layout.KEY)) == b""
    assert [run.view(n, layout.FRAME) for n in range(3)] == _ALL
    assert [run.number(n, layout.ENTRY_ID) for n in range(3)] == [7, 8, 9]
    assert run.fields(1)[layout.ENTRY_ID] == 8
    assert bytes(run.bytes_at(layout.ABSENT)) == b""


def test_length_of_the_entries() -> None:
    """The entries' data are counted, their headers are not."""
    run = entry_run(_ALL, first_entry_id=7)

    assert run.frame_bytes == sum(map(len, _ALL))
    assert run.held_bytes == run.frame_bytes + 3 * 8 * layout.ENTRY_WIDTH
    assert run.last_entry_id == 9


@pytest.mark.parametrize("is_verified", [False, True])
def test_flagged_entries_are_found(*, is_verified: bool) -> None:
    """Whatever is known of the run: those with a flag, those of damage too, and no others."""
    batch = encode_entry([Message(payload=b"b")] * 2, batched=True)
    damaged = _SINGLE[:-1] + b"?"
    run = entry_run([_SINGLE, batch, damaged, batch])
    if is_verified:
        run.verify_checksums()

    assert list(run.flagged(layout.BATCHED)) == [1, 3]
    assert list(run.flagged(layout.BROKEN)) == ([2] if is_verified else [])
    assert list(run.flagged(layout.MARKER)) == []
    assert list(run.part(2, 4).flagged(layout.BATCHED | layout.BROKEN)) == (
        [0, 1] if is_verified else [1]
    )
    assert run.next_flagged(2, layout.BATCHED) == 3
    assert run.next_flagged(0, layout.CHUNKED) == 4


@pytest.mark.parametrize("is_verified", [False, True])
@pytest.mark.parametrize("kinds", ["aaa", "aab", "abb", "aba", "cce", "cdd", "bed", "d", "adda?"])
def test_entries_of_one_kind(kinds: str, *, is_verified: bool) -> None:
    """They end where one is a batch and they are not, or is compressed in another way."""
    two = [Message(payload=b"b" * 100)] * 2
    made = {
        "a": encode_entry(two[:1], batched=False),
        "b": encode_entry(two, batched=True),
        "c": encode_entry(two[:1], batched=False, framing=Framing(codec="LZ4")),
        "d": encode_entry(two, batched=True, framing=Framing(codec="LZ4")),
        "e": encode_entry(two, batched=True, framing=Framing(codec="ZSTD")),
    }
    made["?"] = made["d"][:-1] + b"?"
    run = entry_run([made[each] for each in kinds])
    if is_verified:
        run.verify_checksums()
    else:
        # It is not known yet that it is broken, and of no kind.
        kinds = kinds.replace("?", "d")

    for part in (run, run.part(0, run.count)):
        for first, kind in enumerate(kinds):
            following = [n for n in range(first, len(kinds)) if kinds[n] != kind]
            assert part.kind_stop(first, len(kinds)) == min(following, default=len(kinds))


@pytest.mark.parametrize("entry", range(3))
def test_each_byte_that_a_checksum_covers(entry: int) -> None:
    """Where the metadata or the payload of an entry changed, that entry and no other is broken."""
    start = {0: 6, 1: None, 2: 16}[entry]
    whole = _ALL[entry]
    for position in range(start or 0, len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x01
        run = entry_run([*_ALL[:entry], bytes(damaged), *_ALL[entry + 1 :]])
        run.verify_checksums()

        codes = [run.number(n, layout.ERROR) for n in range(3)]

        assert codes[:entry] + codes[entry + 1 :] == [0, 0]
        if start is not None:
            assert codes[entry] == layout.BAD_CHECKSUM, position
            assert run.number(entry, layout.FLAGS) == layout.BROKEN


def test_stored_checksum_that_changed() -> None:
    """It is the comparison that fails, whichever side was damaged."""
    for position in range(2, 6):
        damaged = bytearray(_SINGLE)
        damaged[position] ^= 0x80
        run = entry_run([bytes(damaged), _SINGLE])
        run.verify_checksums()

        assert [run.number(n, layout.ERROR) for n in range(2)] == [layout.BAD_CHECKSUM, 0]


def test_errors_say_where() -> None:
    """An error of a broken entry has its object, ledger, entry, and offset in the object."""
    damaged = _SINGLE[:-1] + b"!"
    run = dataclasses.replace(
        entry_run([_SINGLE, damaged, b"\0\0"], ledger_id=5, first_entry_id=40), offset=1000
    )
    run.verify_checksums()

    checksum, frame = run.error(1), run.error(2)

    assert type(checksum) is ChecksumError
    assert type(frame) is CorruptEntryError
    offset = 1000 + 12 + len(_SINGLE) + 12
    for error, entry_id, place in ((checksum, 41, offset), (frame, 42, offset + len(damaged) + 12)):
        assert error.object_key == OBJECT_KEY
        assert (error.ledger_id, error.entry_id, error.offset) == (5, entry_id, place)


def _stops(run: EntryRun, max_messages: int, max_bytes: int) -> list[int]:
    """The ends of parts, each of which takes one entry after the other while both limits allow."""
    stops: list[int] = []
    first = 0
    for stop in range(1, run.count + 1):
        part = run.part(first, stop)
        messages = sum(max(1, part.number(n, layout.BATCH_SIZE)) for n in range(part.count))
        if stop - first > 1 and (messages > max_messages or 2 * part.frame_bytes > max_bytes):
            first = stop - 1
            stops.append(first)
    return [*stops, run.count]


@given(
    sizes=st.lists(st.tuples(st.integers(0, 5), st.sampled_from((1, 80))), min_size=1, max_size=40),
    max_messages=st.integers(1, 60),
    max_bytes=st.integers(1, 6000),
)
def test_parts_are_as_few_as_both_limits_allow(
    sizes: list[tuple[int, int]], max_messages: int, max_bytes: int
) -> None:
    """No part has room for the next entry, and only a part of one entry exceeds a limit."""
    entries = [
        encode_entry([Message(payload=bytes(length))] * max(1, messages), batched=messages > 0)
        for messages, length in sizes
    ]
    run = entry_run(entries)

    parts = list(run.parts(max_messages, max_bytes, members=True, payload=True))

    assert [each.run.last_entry_id + 1 for each in parts] == _stops(run, max_messages, max_bytes)
    assert sum(each.message_count for each in parts) == sum(max(1, each) for each, _ in sizes)
    assert [each.counted_bytes for each in parts] == [2 * each.run.frame_bytes for each in parts]


def test_each_part_is_found_by_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that walks a topic splits runs of thousands of small messages."""
    run = entry_run([_SINGLE, encode_entry([Message()], batched=True)] * 2000)
    starts: list[int] = []
    count_fitting = builds.in_use.entries.count_fitting

    def count(table: memoryview, first: int, *others: Any) -> None:  # noqa: ANN401
        starts.append(first)
        count_fitting(table, first, *others)

    monkeypatch.setattr(builds.in_use.entries, "count_fitting", count)

    parts = list(run.parts(500, 1 << 30, members=True, payload=True))

    assert [each.message_count for each in parts] == [500] * 8
    assert starts == list(range(0, 4000, 500))


@pytest.mark.parametrize("max_messages", [1, 499, 500, 1 << 30])
@pytest.mark.parametrize("max_bytes", [1, 1000, 5000, 1 << 30])
def test_parts_of_plain_messages_need_no_table(max_messages: int, max_bytes: int) -> None:
    """They are as many as with one, which the thread that decodes them reads."""
    entries = [encode_entry([Message(payload=bytes(n % 90))], batched=False) for n in range(1000)]
    run, other = entry_run(entries), entry_run(entries)
    assert other.table

    parts, others = (
        list(each.parts(max_messages, max_bytes, members=True, payload=True))
        for each in (run, other)
    )

    assert run.__dict__.get("table") is None
    assert [each[1:] for each in parts] == [each[1:] for each in others]
    assert [each.run.last_entry_id for each in parts] == [each.run.last_entry_id for each in others]
