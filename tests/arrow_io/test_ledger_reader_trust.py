"""What a reader of a ledger takes on trust: remembered offsets, and bytes that it was told to."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

import pytest

from arrow_io import ledger_reader
from arrow_io.errors import ChecksumError
from arrow_io.ledger_reader import OffloadedLedger
from arrow_io.storage.location import Location
from tests.support.buckets import memory_bucket, object_name, offload_ledger
from tests.support.entries import Message, encode_entry
from tests.support.expected import rows_of

pytestmark = pytest.mark.usefixtures("build")

_NAME: Final = object_name(7)


def test_buckets_share_no_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects of one name and length in two buckets may hold other entries: a copy that was edited.

    What was remembered of the one must lead nobody astray in the other.
    """
    monkeypatch.setattr(ledger_reader, "_REMEMBERED_DISTANCE_BYTES", 1)
    both = [[b"a" * 10, b"b" * 300, b"c" * 20], [b"a" * 300, b"b" * 10, b"c" * 20]]
    with ExitStack() as stack:
        ledgers = []
        for entries in both:
            bucket = stack.enter_context(memory_bucket(offload_ledger(_NAME, entries)))
            location = Location(bucket.url)
            ledgers.append(OffloadedLedger.open(location, _NAME, range_bytes=50))
        for _ in range(2):
            for ledger, entries in zip(ledgers, both, strict=True):
                assert [entry.data for entry in ledger.read_entries(0, 2)] == entries
                for entry_id in range(3):
                    (entry,) = ledger.read_entries(entry_id, entry_id)
                    assert entry.data == entries[entry_id]


def test_checksums_are_compared_unless_the_reader_says_no() -> None:
    """Bytes that a checksum contradicts are an error; told not to compare, they are given."""
    entries = [encode_entry([Message(payload=value)], batched=False) for value in (b"one", b"two")]
    objects = offload_ledger(_NAME, entries)
    objects[_NAME.data_name] = objects[_NAME.data_name].replace(b"two", b"twa")
    with memory_bucket(objects) as bucket:
        ledger = OffloadedLedger.open(Location(bucket.url), _NAME)

        with pytest.raises(ChecksumError) as caught:
            list(ledger.record_batches(["__value__"]))
        batches = list(ledger.record_batches(["__value__"], verify_checksums=False))

    assert caught.value.entry_id == 1
    assert [row["__value__"] for batch in batches for row in rows_of(batch)] == [b"one", b"twa"]
