"""What one ledger gives by itself: its own transactions, its own keys, its own requests."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from arrow_io.errors import CorruptBlockError, ObjectChangedError
from arrow_io.format.index_block import MANAGED_LEDGER_NAME_KEY
from arrow_io.ledgers import open_ledger
from arrow_io.ledgers.reader import ObjectVersions, OffloadedLedger
from arrow_io.messages.transactions import TransactionLookahead
from arrow_io.read_metrics import ReadMetrics, Tally, Unit
from arrow_io.storage.location import Location
from arrow_io.storage.object_version import ETag, WriteTime
from arrow_io.storage.trace import RequestTrace
from tests.support.buckets import MANAGED_LEDGER, memory_bucket, object_name, offload_ledger
from tests.support.encryption import key_pair, sealed_entry
from tests.support.entries import Message, encode_chunks, encode_entry, encode_marker
from tests.support.faulty_storage import FaultScript
from tests.support.reference import TXN_ABORT, TXN_COMMIT
from tests.support.slow_store import SlowStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arrow_io.messages.encryption import DecryptionKeys
    from arrow_io.storage.object_store import RangeContent

pytestmark = pytest.mark.usefixtures("build")

_NAME: Final = object_name(7)
_INSIDE: Final = encode_entry(
    [Message(payload=b"inside")], batched=False, txnid_most_bits=1, txnid_least_bits=2
)
_OUTSIDE: Final = encode_entry([Message(payload=b"outside")], batched=False)


def _keep(monkeypatch: pytest.MonkeyPatch, max_buffered_bytes: int) -> None:
    """Let a look-ahead at transactions keep no more than that between itself and the reader."""
    keeping = partial(TransactionLookahead, max_buffered_bytes=max_buffered_bytes)
    monkeypatch.setattr(open_ledger, "TransactionLookahead", keeping)


def _values(
    entries: Sequence[bytes], keys: DecryptionKeys | None = None
) -> tuple[list[bytes | None], ReadMetrics]:
    """The values of a ledger with an entry to a block."""
    tally = Tally()
    with memory_bucket(offload_ledger(_NAME, entries, block_bytes=140)) as bucket:
        ledger = OffloadedLedger.open(Location(bucket.url), _NAME)
        batches = ledger.record_batches(["__value__"], tally=tally, decryption_keys=keys)
        return [
            value for batch in batches for value in batch["__value__"].to_pylist()
        ], tally.metrics


@pytest.mark.parametrize("marker", [TXN_COMMIT, TXN_ABORT])
@pytest.mark.parametrize("between", [0, 1, 5])
def test_outcome_of_a_transaction_is_looked_for_in_the_whole_ledger(
    monkeypatch: pytest.MonkeyPatch, marker: int, between: int
) -> None:
    """Though no entry on the way to it is kept; each message is given, or left out."""
    _keep(monkeypatch, 0)
    entries = [_INSIDE, *[_OUTSIDE] * between, encode_marker(marker, txn_id=(1, 2))]

    values, metrics = _values(entries)

    assert values == [b"inside"] * (marker == TXN_COMMIT) + [b"outside"] * between
    assert metrics.entries == len(entries)


def test_looking_for_an_outcome_reads_no_entry_more_than_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What could not be kept is read again; what stands before it is not."""
    _keep(monkeypatch, 0)
    entries = [_INSIDE, *[_OUTSIDE] * 4, encode_marker(TXN_COMMIT, txn_id=(1, 2))]
    trace = RequestTrace()
    with memory_bucket(offload_ledger(_NAME, entries, block_bytes=140)) as bucket:
        largest = max(map(len, entries)) + 140
        location = Location(bucket.url, range_bytes=largest, trace=trace)
        ledger = OffloadedLedger.open(location, _NAME)
        blocks = ledger.index.block_count
        assert sum(batch.num_rows for batch in ledger.record_batches(["__value__"])) == 5

    assert blocks == len(entries)
    # The first two are read once: the reader stands at one, and the other is kept.
    assert trace.counts.range_requests == 2 * len(entries) - 2


@pytest.mark.parametrize("max_buffered_bytes", [0, 1 << 20])
def test_a_loss_that_a_look_ahead_meets_is_counted_once(
    monkeypatch: pytest.MonkeyPatch, max_buffered_bytes: int
) -> None:
    """Though it is read twice, the entry is one."""
    _keep(monkeypatch, max_buffered_bytes)
    entries = [_INSIDE, *[_OUTSIDE] * 4, encode_marker(TXN_COMMIT, txn_id=(1, 2))]
    objects, tally = offload_ledger(_NAME, entries, block_bytes=140), Tally(salvage=True)
    with memory_bucket(objects) as bucket:
        sound = OffloadedLedger.open(Location(bucket.url), _NAME)
        data = bytearray(objects[_NAME.data_name])
        data[sound.index.block_start(3)] ^= 0xFF
        bucket.put({_NAME.data_name: bytes(data)})
        ledger = OffloadedLedger.open(Location(bucket.url), _NAME)
        batches = ledger.record_batches(["__value__"], tally=tally)
        values = [value for batch in batches for value in batch["__value__"].to_pylist()]

    assert values == [b"inside", *[b"outside"] * 3]
    assert tally.metrics.lost == {(Unit.ENTRY, "UnknownFormatError"): 1}


def test_chunks_of_which_the_first_is_in_another_ledger_are_counted() -> None:
    """A ledger alone has no ledgers before it: that message is left out, and told."""
    chunks = encode_chunks(Message(payload=b"in two parts"), chunk_count=2, uuid="a")

    values, metrics = _values([chunks[1], _OUTSIDE])

    assert values == [b"outside"]
    assert (metrics.rows, metrics.entries, metrics.incomplete_messages) == (1, 2, 1)


def test_keys_open_what_was_encrypted_for_them() -> None:
    """Whoever has the key reads the payload."""
    pair = key_pair()
    entry = sealed_entry(encode_entry([Message(payload=b"secret")], batched=False), pair)

    values, _ = _values([entry], pair.keys())

    assert values == [b"secret"]


def test_all_up_to_the_last_entry_asked_for_is_requested_at_once() -> None:
    """Its place is estimated from its share of the block; what lies behind is asked for late."""
    entries = [bytes([number]) * 100 for number in range(10)]
    # Entry 4 is taken to end at 5/10 of 1,248 bytes, in the sixth range; it ends in the seventh.
    store = SlowStore(offload_ledger(_NAME, entries), waves=[1, 6, 1])
    ledger = OffloadedLedger.open(Location(store.url, range_bytes=112), _NAME)

    assert [entry.data for entry in ledger.read_entries(0, 4)] == entries[:5]

    assert store.waves_left == []
    assert store.flights.count == 8
    store.drop()


def test_blocks_that_are_wanted_in_part_are_fetched_ahead_as_far() -> None:
    """Behind where the last entry is taken to end, nothing is asked for that is not needed."""
    entries = [bytes([number]) * 100 for number in range(10)]
    script = FaultScript(offload_ledger(_NAME, entries))
    location = replace(script.location(is_async=True), range_bytes=112)
    ledger = OffloadedLedger.open(location, _NAME)
    for last in range(10):
        del script.requests[:]

        runs = ledger.data.entry_runs(0, last, Tally())

        assert [run.last_entry_id for run in runs] == list(range(last + 1))
        # The block's header of 128 bytes stands before the first.
        needed = range(0, 128 + (last + 1) * 112, 112)
        assert sorted(script.requests) == [(each, min(each + 112, 1248)) for each in needed]


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
        tally = Tally(salvage=True)
        assert list(ledger.data.entry_runs(0, 1, tally)) == []

    assert (caught.value.object_key, caught.value.entry_id) == (_NAME.data_name, 0)
    assert tally.metrics.lost == {(Unit.ENTRY, "CorruptBlockError"): 2}


def _tell(monkeypatch: pytest.MonkeyPatch, user_metadata: dict[str, str] | None) -> None:
    """Let a store that tells no user metadata with a range tell some."""
    original = Location.read_range

    def read_range(*args: Any, **options: Any) -> RangeContent:  # noqa: ANN401
        return replace(original(*args, **options), user_metadata=user_metadata)

    monkeypatch.setattr(Location, "read_range", read_range)
