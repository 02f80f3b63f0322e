"""What one ledger gives by itself: its own transactions, its own keys, its own requests."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from arrow_io import ledger_reader
from arrow_io.errors import CorruptBlockError, EntryNotInLedgerError, ObjectChangedError
from arrow_io.format.index_block import MANAGED_LEDGER_NAME_KEY
from arrow_io.ledger_reader import ObjectVersions, OffloadedLedger
from arrow_io.messages.transactions import TransactionLookahead
from arrow_io.read_report import ReadReport, Unit
from arrow_io.storage.location import Location
from arrow_io.storage.object_version import ETag, WriteTime
from tests.support.buckets import MANAGED_LEDGER, memory_bucket, object_name, offload_ledger
from tests.support.encryption import key_pair, sealed_entry
from tests.support.entries import Message, encode_entry, encode_marker
from tests.support.faulty_storage import FaultScript
from tests.support.reference import TXN_ABORT, TXN_COMMIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arrow_io.messages.encryption import DecryptionKeys
    from arrow_io.storage.object_store import ObjectContent

pytestmark = pytest.mark.usefixtures("build")

_NAME: Final = object_name(7)


def _values(
    entries: Sequence[bytes], keys: DecryptionKeys | None = None
) -> tuple[list[bytes | None], ReadReport]:
    """The values of a ledger with an entry to a block."""
    report = ReadReport()
    with memory_bucket(offload_ledger(_NAME, entries, block_bytes=140)) as bucket:
        ledger = OffloadedLedger.open(Location(bucket.url), _NAME)
        batches = ledger.record_batches(["__value__"], report=report, decryption_keys=keys)
        return [value for batch in batches for value in batch["__value__"].to_pylist()], report


@pytest.mark.parametrize("marker", [TXN_COMMIT, TXN_ABORT])
@pytest.mark.parametrize("between", [0, 5])
def test_outcome_of_a_transaction_is_looked_for_in_the_whole_ledger(
    monkeypatch: pytest.MonkeyPatch, marker: int, between: int
) -> None:
    """Though no entry on the way to it is kept; each message is given, or left out."""
    keeping_none = partial(TransactionLookahead, max_kept_bytes=0)
    monkeypatch.setattr(ledger_reader, "TransactionLookahead", keeping_none)
    inside = encode_entry(
        [Message(payload=b"inside")], batched=False, txnid_most_bits=1, txnid_least_bits=2
    )
    outside = [encode_entry([Message(payload=b"outside")], batched=False)] * between
    entries = [inside, *outside, encode_marker(marker, txn_id=(1, 2))]

    values, report = _values(entries)

    assert values == [b"inside"] * (marker == TXN_COMMIT) + [b"outside"] * between
    assert report.entries == len(entries)


def test_keys_open_what_was_encrypted_for_them() -> None:
    """Whoever has the key reads the payload."""
    pair = key_pair()
    entry = sealed_entry(encode_entry([Message(payload=b"secret")], batched=False), pair)

    values, _ = _values([entry], pair.keys())

    assert values == [b"secret"]


def test_entries_are_requested_one_range_at_a_time() -> None:
    """Whoever stops in the middle has asked for nothing behind it, whatever the store allows."""
    entries = [bytes([number]) * 100 for number in range(10)]
    script = FaultScript(offload_ledger(_NAME, entries))
    location = script.location(is_async=True)
    ledger = OffloadedLedger.open(location, _NAME, range_bytes=112)
    del script.requests[:]

    taken = ledger.read_entries(0, 9)
    for number in range(5):
        assert next(taken).data == entries[number]
        # The block's header of 128 bytes stands before the first.
        assert max(stop for _, stop in script.requests) <= 128 + 112 * (number + 2)

    assert len(script.requests) <= 7


def test_error_of_an_entry_that_is_not_there_names_the_object() -> None:
    """And the ledger."""
    with memory_bucket(offload_ledger(_NAME, [b"one"])) as bucket:
        ledger = OffloadedLedger.open(Location(bucket.url), _NAME)
        with pytest.raises(EntryNotInLedgerError) as caught:
            next(ledger.read_entries(0, 1))

    assert (caught.value.object_key, caught.value.ledger_id) == (_NAME.data_name, 7)


def test_index_object_of_another_version_is_not_read() -> None:
    """The version that was listed, or else the one that was read, is the ledger's own."""
    with memory_bucket(offload_ledger(_NAME, [b"one"])) as bucket:
        location = Location(bucket.url)
        listed = {each.name: each.version for each in location.list_objects()}
        version, of_data = listed[_NAME.index_name], ETag("data")

        for known in (None, version):
            ledger = OffloadedLedger.open(location, _NAME, versions=ObjectVersions(known, of_data))
            assert ledger.versions == ObjectVersions(version, of_data)
        other = WriteTime(1, datetime(2026, 1, 1, tzinfo=UTC))
        with pytest.raises(ObjectChangedError) as caught:
            OffloadedLedger.open(location, _NAME, versions=ObjectVersions(other))

    assert (caught.value.object_key, caught.value.ledger_id) == (_NAME.index_name, 7)


@pytest.mark.parametrize("told", [None, {}, {MANAGED_LEDGER_NAME_KEY: MANAGED_LEDGER}])
def test_data_object_of_the_same_topic_is_read(
    monkeypatch: pytest.MonkeyPatch, told: dict[str, str] | None
) -> None:
    """As one whose store does not tell."""
    _tell(monkeypatch, told)
    with memory_bucket(offload_ledger(_NAME, [b"one"])) as bucket:
        ledger = OffloadedLedger.open(Location(bucket.url), _NAME)
        assert [entry.data for entry in ledger.read_entries(0, 0)] == [b"one"]


def test_data_object_of_another_topic_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its user metadata says so; not one entry of it is given, and a salvage counts them all."""
    _tell(monkeypatch, {MANAGED_LEDGER_NAME_KEY: "another"})
    with memory_bucket(offload_ledger(_NAME, [b"one", b"two"])) as bucket:
        ledger = OffloadedLedger.open(Location(bucket.url), _NAME)
        with pytest.raises(CorruptBlockError, match="of managed ledger 'another'") as caught:
            next(ledger.read_entries(0, 0))
        report = ReadReport(salvage=True)
        assert list(ledger.entry_runs(0, 1, report)) == []

    assert (caught.value.object_key, caught.value.entry_id) == (_NAME.data_name, 0)
    assert report.lost == {(Unit.ENTRY, "CorruptBlockError"): 2}


def _tell(monkeypatch: pytest.MonkeyPatch, user_metadata: dict[str, str] | None) -> None:
    """Let a store that tells no user metadata with a range tell some."""
    original = Location.read_range

    def read_range(*args: Any, **options: Any) -> ObjectContent:  # noqa: ANN401
        return replace(original(*args, **options), user_metadata=user_metadata)

    monkeypatch.setattr(Location, "read_range", read_range)
