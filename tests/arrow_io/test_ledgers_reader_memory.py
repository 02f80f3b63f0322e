"""What a ledger's reader remembers, bucket by bucket, and what it compares if it is asked to."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from arrow_io.errors import ChecksumError
from arrow_io.format.entry_frame import ENTRY_HEADER_BYTES
from arrow_io.ledgers import block_walk
from arrow_io.ledgers import data as ledger_data
from arrow_io.ledgers.offset_memory import OffsetMemory
from arrow_io.ledgers.reader import OffloadedLedger
from arrow_io.messages import layout
from arrow_io.read_metrics import Tally
from arrow_io.storage.location import Location
from tests.support.buckets import memory_bucket, object_name, offload_ledger
from tests.support.entries import Message, encode_entry

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("build")

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


def test_buckets_share_no_remembered_offsets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
