"""Entries of every length are found as far as their block goes; what is too long is refused."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest

from arrow_io.errors import ChecksumError, CorruptBlockError, UnknownFormatError
from arrow_io.format.data_block import BLOCK_HEADER_BYTES
from arrow_io.format.entry_frame import ENTRY_HEADER_BYTES
from arrow_io.ledgers import block_walk
from arrow_io.ledgers import data as ledger_data
from arrow_io.ledgers.offset_memory import OffsetMemory
from arrow_io.ledgers.reader import OffloadedLedger
from arrow_io.messages import layout
from arrow_io.read_metrics import Tally, Unit
from arrow_io.storage.location import Location
from arrow_io.storage.trace import RequestTrace
from tests.support.buckets import memory_bucket, object_name, offload_ledger
from tests.support.entries import Message, encode_entry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


pytestmark = pytest.mark.usefixtures("build", "memory")

_MIB: Final = 1 << 20
_NAME: Final = object_name(7)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty memory of offsets, in place of the one that the process shares."""
    monkeypatch.setattr(ledger_data, "_OFFSETS", OffsetMemory())


@contextmanager
def _offloaded(
    entries: Sequence[bytes],
    *,
    block_bytes: int = 16 * _MIB,
    range_bytes: int = _MIB,
    trace: RequestTrace | None = None,
    claims: tuple[int, int] | None = None,
) -> Iterator[OffloadedLedger]:
    """A ledger in memory; `claims`: where in the data object another length of an entry stands."""
    objects = offload_ledger(_NAME, entries, block_bytes=block_bytes)
    if claims is not None:
        at, length = claims
        data = bytearray(objects[_NAME.data_name])
        data[at : at + 4] = length.to_bytes(4, "big")
        objects[_NAME.data_name] = bytes(data)
    with memory_bucket(objects) as bucket:
        location = Location(bucket.url, range_bytes=range_bytes, trace=trace or RequestTrace())
        yield OffloadedLedger.open(location, _NAME)


def _read(ledger: OffloadedLedger, first: int, last: int) -> list[bytes]:
    return [entry.data for entry in ledger.read_entries(first, last)]


@pytest.mark.parametrize("mean_bytes", [1, 100, 600_000, _MIB - 12, _MIB, 3 * _MIB])
def test_entries_of_every_mean_length_are_read(mean_bytes: int) -> None:
    """From a byte to more than a range, each by itself and with the others."""
    entries = [bytes([number]) * mean_bytes for number in range(3)]

    with _offloaded(entries) as ledger:
        assert _read(ledger, 0, 2) == entries
        for number, entry in enumerate(entries):
            assert _read(ledger, number, number) == [entry]


@pytest.mark.parametrize(("mean_bytes", "run_bytes"), [(16_383, 2 * _MIB), (16_384, 4 * _MIB)])
def test_runs_of_large_entries_are_larger(mean_bytes: int, run_bytes: int) -> None:
    """Entries of 16 KiB on average, with their headers, are large."""
    entries = [bytes(mean_bytes - ENTRY_HEADER_BYTES)] * 300

    with _offloaded(entries, range_bytes=16 * _MIB) as ledger:
        first, *others = ledger.data.entry_runs(0, 299, Tally())

    assert first.count == run_bytes // mean_bytes + 1
    assert first.count + sum(each.count for each in others) == 300


def test_an_entry_a_mib_from_what_is_remembered_is_remembered() -> None:
    """It is no closer: from there on a read of it begins, at the cost of one request."""
    trace = RequestTrace()
    before = bytes(_MIB - BLOCK_HEADER_BYTES - ENTRY_HEADER_BYTES)
    with _offloaded([before, b"one", b"two"], trace=trace) as ledger:
        assert _read(ledger, 0, 2) == [before, b"one", b"two"]
        requests = trace.counts.range_requests

        assert _read(ledger, 1, 1) == [b"one"]

    assert trace.counts.range_requests == requests + 1


def test_an_entry_closer_than_a_mib_to_the_start_is_not_remembered() -> None:
    """What is remembered is bounded: of such an entry, the block tells the place."""
    trace = RequestTrace()
    before = bytes(_MIB - BLOCK_HEADER_BYTES - ENTRY_HEADER_BYTES - 1)
    with _offloaded([before, b"one", b"two"], trace=trace, range_bytes=_MIB - 1) as ledger:
        assert _read(ledger, 0, 2) == [before, b"one", b"two"]
        requests = trace.counts.range_requests

        assert _read(ledger, 1, 1) == [b"one"]

    assert trace.counts.range_requests == requests + 2


def test_an_entry_closer_than_a_mib_to_one_that_is_remembered_is_not() -> None:
    """A read of it begins at the other one, half a MiB before."""
    trace = RequestTrace()
    half = bytes(_MIB // 2 - ENTRY_HEADER_BYTES)
    before = bytes(_MIB - BLOCK_HEADER_BYTES - ENTRY_HEADER_BYTES)
    entries = [before, half, b"one", b"two"]
    with _offloaded(entries, trace=trace, range_bytes=_MIB // 2) as ledger:
        assert _read(ledger, 0, 3) == entries
        requests = trace.counts.range_requests

        assert _read(ledger, 2, 2) == [b"one"]

    assert trace.counts.range_requests == requests + 2


def test_entries_are_remembered_a_mib_apart_however_many_are_walked_at_once() -> None:
    """Those inside a run too: a read of a late entry begins close before it."""
    entries = [bytes([number]) * (_MIB // 2) for number in range(16)]
    with _offloaded(entries, range_bytes=16 * _MIB) as ledger:
        assert _read(ledger, 0, 15) == entries

        known = [n for n in range(16) if ledger.data.position_of(n) is not None]
        assert known[0] <= 3
        assert all(1 < later - earlier <= 3 for earlier, later in pairwise(known))
        assert known[-1] >= 13
        for number in range(16):
            assert _read(ledger, number, number) == [entries[number]]


def test_what_an_open_walk_has_passed_is_known() -> None:
    """Whoever looks for an entry while another read is amid its block begins near to it."""
    trace = RequestTrace()
    entries = [bytes([number]) * _MIB for number in range(12)]
    with _offloaded(entries, trace=trace) as ledger:
        walk = ledger.read_entries(0, 11)
        assert [next(walk).data for _ in range(8)] == entries[:8]
        bytes_before = trace.counts.range_bytes

        assert _read(ledger, 6, 6) == entries[6:7]

        assert trace.counts.range_bytes - bytes_before <= 3 * _MIB
        assert [each.data for each in walk] == entries[8:]


def test_a_place_in_another_block_is_of_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block is entered at its start, unless an entry behind its first one is remembered."""
    monkeypatch.setattr(block_walk, "_REMEMBERED_DISTANCE_BYTES", 1)
    entries = [b"one", b"two", b"six"]
    with _offloaded(entries, block_bytes=143) as ledger:
        for number, entry in enumerate(entries):
            assert _read(ledger, number, number) == [entry]
        for first in range(3):
            assert _read(ledger, first, 2) == entries[first:]


def test_a_block_that_is_entered_at_its_first_entry_has_its_header_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Though the place of that entry is remembered."""
    monkeypatch.setattr(block_walk, "_REMEMBERED_DISTANCE_BYTES", 1)
    objects = offload_ledger(_NAME, [b"one", b"two"], block_bytes=143)
    data = bytearray(objects[_NAME.data_name])
    with memory_bucket(objects) as bucket:
        ledger = OffloadedLedger.open(Location(bucket.url), _NAME)
        assert _read(ledger, 0, 1) == [b"one", b"two"]
        data[143] ^= 0xFF
        bucket.rot(_NAME.data_name, bytes(data))

        with pytest.raises(UnknownFormatError) as caught:
            _read(ledger, 1, 1)

    assert (caught.value.object_key, caught.value.entry_id) == (_NAME.data_name, 1)


def test_the_last_entry_of_a_block_ends_before_the_next_block() -> None:
    """Though the bytes behind it have come already: they are those of another block."""
    entries = [b"one", b"two"]
    with _offloaded(entries, block_bytes=143, claims=(BLOCK_HEADER_BYTES, 4)) as ledger:
        with pytest.raises(CorruptBlockError, match="the block ends before entry 0") as caught:
            _read(ledger, 0, 1)
        tally = Tally(salvage=True)
        runs = list(ledger.data.entry_runs(0, 1, tally))

    assert (caught.value.entry_id, caught.value.offset) == (0, BLOCK_HEADER_BYTES)
    assert [run.last_entry_id for run in runs] == [1]
    assert tally.metrics.lost == {(Unit.ENTRY, "CorruptBlockError"): 1}


def test_an_entry_that_no_broker_writes_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A length that a message may have is believed; of more, nothing is requested."""
    monkeypatch.setattr(block_walk, "MAX_MESSAGE_BYTES", 1000)
    entries = [b"first", bytes(988), bytes(989)]
    trace = RequestTrace()
    with _offloaded(entries, range_bytes=200, trace=trace) as ledger:
        assert _read(ledger, 0, 1) == entries[:2]
        requests = trace.counts.range_requests
        with pytest.raises(CorruptBlockError, match="989 bytes; at most 988 are") as caught:
            _read(ledger, 2, 2)

    assert (caught.value.object_key, caught.value.entry_id) == (_NAME.data_name, 2)
    assert trace.counts.range_requests <= requests + 7


# Buckets and checksums


_HEADER_BYTES: Final = 128
_VALUES: Final = [b"first value", b"second value"]
_LENGTHS: Final = ([400_000, 300_000, 200_000, 100_000], [100_000, 200_000, 300_000, 400_000])


@contextmanager
def _damaged() -> Iterator[OffloadedLedger]:
    """A ledger of which the last byte of the first entry's value is wrong."""
    name = object_name(7)
    entries = [encode_entry([Message(payload=value)], batched=False) for value in _VALUES]
    objects = offload_ledger(name, entries)
    data = bytearray(objects[name.data_name])
    data[_HEADER_BYTES + ENTRY_HEADER_BYTES + len(entries[0]) - 1] ^= 0xFF
    with memory_bucket({**objects, name.data_name: bytes(data)}) as bucket:
        yield OffloadedLedger.open(Location(bucket.url), name)


def test_checksums_are_compared_unless_that_is_switched_off() -> None:
    """A value that was damaged is given only to those who ask for no comparison."""
    with _damaged() as ledger:
        with pytest.raises(ChecksumError) as caught:
            list(ledger.record_batches(["__value__"]))
        unverified = ledger.record_batches(["__value__"], verify_checksums=False)
        values = [value for batch in unverified for value in batch["__value__"].to_pylist()]

    assert (caught.value.ledger_id, caught.value.entry_id) == (7, 0)
    assert caught.value.object_key == ledger.name.data_name
    assert caught.value.offset == _HEADER_BYTES + ENTRY_HEADER_BYTES
    assert values == [_VALUES[0][:-1] + bytes([_VALUES[0][-1] ^ 0xFF]), *_VALUES[1:]]


def test_checksums_are_compared_if_asked_for() -> None:
    """It is asked for there, and nothing is compared by default."""
    with _damaged() as ledger:
        unasked = ledger.data.entry_runs(0, 1, Tally())
        asked = ledger.data.entry_runs(0, 1, Tally(), verify_checksums=True)
        for runs, compared in ((asked, True), (unasked, False)):
            (run,) = runs
            assert list(run.flagged(layout.BROKEN)) == [0] * compared


def test_buckets_share_no_remembered_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger of the same names and length may stand otherwise in another bucket, or version."""
    memory = OffsetMemory()
    monkeypatch.setattr(ledger_data, "_OFFSETS", memory)
    monkeypatch.setattr(block_walk, "_REMEMBERED_DISTANCE_BYTES", 1)
    name = object_name(7)
    one, two = ([bytes([n]) * length for n, length in enumerate(lengths)] for lengths in _LENGTHS)
    objects = [offload_ledger(name, entries) for entries in (one, two)]
    assert len({len(each[name.data_name]) for each in objects}) == 1
    with memory_bucket(objects[0]) as first, memory_bucket(objects[1]) as second:
        keys = set()
        for bucket, entries in ((first, one), (second, two)):
            ledger = OffloadedLedger.open(Location(bucket.url), name)
            assert [entry.data for entry in ledger.read_entries(0, 3)] == entries
            assert memory.floor(ledger.data.memory_key, 3) is not None
            keys.add(ledger.data.memory_key)
        assert len(keys) == 2
        for bucket, entries in ((first, one), (second, two)):
            ledger = OffloadedLedger.open(Location(bucket.url), name)
            for number, entry in enumerate(entries):
                assert [each.data for each in ledger.read_entries(number, number)] == [entry]
