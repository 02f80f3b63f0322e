"""What one ledger gives by itself: its own transactions, its own keys, its own requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from arrow_io.errors import EntryNotInLedgerError
from arrow_io.ledger_reader import OffloadedLedger
from arrow_io.read_report import ReadReport
from arrow_io.storage.location import Location
from tests.support.buckets import memory_bucket, object_name, offload_ledger
from tests.support.encryption import key_pair, sealed_entry
from tests.support.entries import Message, encode_entry, encode_marker
from tests.support.faulty_storage import FaultScript
from tests.support.reference import TXN_ABORT, TXN_COMMIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arrow_io.messages.encryption import DecryptionKeys

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
    marker: int, between: int
) -> None:
    """However many blocks behind its messages it stands; each message is given, or left out."""
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
    """Whoever stops in the middle has asked for nothing behind it, of a store that allows it too."""
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
    taken.close()

    assert len(script.requests) <= 7


def test_error_of_an_entry_that_is_not_there_names_the_object() -> None:
    """And the ledger."""
    with memory_bucket(offload_ledger(_NAME, [b"one"])) as bucket:
        ledger = OffloadedLedger.open(Location(bucket.url), _NAME)
        with pytest.raises(EntryNotInLedgerError) as caught:
            next(ledger.read_entries(0, 1))

    assert (caught.value.object_key, caught.value.ledger_id) == (_NAME.data_name, 7)
