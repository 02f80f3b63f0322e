"""Which entries hold messages for a client, by what other entries say."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import ChecksumError, CorruptEntryError
from arrow_io.messages import committed, layout
from arrow_io.messages.delivery import Delivery
from arrow_io.messages.encryption import PayloadDecryptor
from arrow_io.messages.message_reader import MessageReader, Needs
from arrow_io.messages.transactions import TransactionLookahead
from arrow_io.read_metrics import Tally
from tests.support.builds import BUILDS
from tests.support.entries import Message, encode_chunks, encode_entry, encode_marker
from tests.support.runs import entry_run, runs_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from arrow_io.messages.entry_run import EntryRun

_COMMIT, _ABORT = 21, 22


def _message(number: int, transaction: int | None, *, members: int = 1) -> bytes:
    """A batch if it has not one message."""
    messages = [Message(payload=b"%d" % number)] * members
    if transaction is None:
        return encode_entry(messages, batched=members != 1)
    return encode_entry(
        messages, batched=members != 1, txnid_most_bits=1, txnid_least_bits=transaction
    )


def _delivered(entries: list[bytes], length: int, tally: Tally) -> Iterator[EntryRun]:
    def behind(run: EntryRun) -> Iterator[EntryRun]:
        first = run.last_entry_id + 1
        return runs_of(entries[first:], length=length, first_entry_id=first)

    lookahead = TransactionLookahead(runs_of(entries, length=length), behind, verify=True)
    yield from Delivery(lookahead, tally, PayloadDecryptor(), verify=True)


def _values(runs: Iterable[EntryRun], tally: Tally) -> Iterator[bytes]:
    for columns in MessageReader(runs, Needs(), tally):
        yield from columns.row_bytes(layout.ROW_PAYLOAD).to_pylist()


@pytest.mark.usefixtures("build")
class TestTransactions:
    """Each decided for all its messages in a run."""

    @pytest.mark.parametrize("length", [1, 3, 1000])
    @pytest.mark.parametrize("ways", [1, 2, 70])
    def test_any_number_may_be_open_at_once(self, ways: int, length: int) -> None:
        """More than an entry is compared with, too; every third is aborted, every fifth open."""
        assert committed._MAX_OUTCOMES < 70
        count = 3 * ways
        entries = [_message(number, number % ways) for number in range(count)]
        entries += [
            encode_marker(_ABORT if way % 3 == 1 else _COMMIT, txn_id=(1, way))
            for way in range(ways)
            if way % 5 != 4
        ]
        entries.append(_message(count, None, members=2))
        tally = Tally()

        values = list(_values(_delivered(entries, length, tally), tally))

        kept = [n for n in range(count) if n % ways % 3 != 1 and n % ways % 5 != 4]
        assert values == [b"%d" % number for number in [*kept, count, count]]
        metrics = tally.metrics
        opened = [way for way in range(ways) if way % 5 == 4]
        aborted = [way for way in range(ways) if way % 5 != 4 and way % 3 == 1]
        assert metrics.entries == len(entries)
        assert metrics.markers == ways - len(opened)
        assert (metrics.open_messages, metrics.open_transactions) == (3 * len(opened), len(opened))
        assert metrics.aborted_messages == 3 * len(aborted)

    def test_all_messages_of_batches_count(self) -> None:
        """How many an entry has stands in it."""
        entries = [_message(n, 1, members=n) for n in (2, 3, 5)]
        entries.append(encode_marker(_ABORT, txn_id=(1, 1)))
        tally = Tally()

        assert list(_values(_delivered(entries, 9, tally), tally)) == []
        assert tally.metrics.aborted_messages == 10


@pytest.mark.usefixtures("build")
class TestDamage:
    """Whatever is wrong, all that stands before it is given."""

    @pytest.mark.parametrize("length", [1, 2, 9])
    def test_messages_before_a_bad_chunk_are_given(self, length: int) -> None:
        """Chunks that have not the size that they announce."""
        chunks = encode_chunks(Message(payload=b"chunked"), chunk_count=2, uuid="u")
        other = encode_chunks(Message(payload=b"longer, by much"), chunk_count=2, uuid="u")
        entries = [_message(0, None), chunks[0], _message(1, None), other[1], _message(2, None)]
        tally = Tally()
        values: list[bytes] = []

        with pytest.raises(CorruptEntryError, match="chunks together") as caught:
            values.extend(_values(_delivered(entries, length, tally), tally))

        assert caught.value.entry_id == 3
        assert values == [b"0", b"1"]

    @pytest.mark.parametrize("length", [1, 2, 9])
    def test_a_marker_is_believed_only_if_its_checksum_holds(self, length: int) -> None:
        """Nor is a message left out by what a damaged one says."""
        marker = encode_marker(_COMMIT, txn_id=(1, 1))
        entries = [_message(0, None), _message(1, 1), marker[:-1] + bytes([marker[-1] ^ 1])]

        tally = Tally(salvage=True)
        assert list(_values(_delivered(entries, length, tally), tally)) == [b"0"]
        assert tally.metrics.open_messages == 1
        with pytest.raises(ChecksumError):
            list(_values(_delivered(entries, length, Tally()), Tally()))


_FLAGS = st.sampled_from(
    (0, layout.BATCHED, layout.TRANSACTION, layout.CHUNKED, layout.MARKER | layout.TRANSACTION)
)


@given(
    entries=st.lists(st.tuples(_FLAGS, st.integers(1, 4), st.integers(-1, 5)), max_size=30),
    known=st.dictionaries(st.integers(1, 4), st.booleans()),
    first=st.integers(0, 5),
    is_every_given=st.booleans(),
)
def test_the_core_leaves_out_what_is_known(
    entries: list[tuple[int, int, int]],
    known: dict[int, bool],
    first: int,
    *,
    is_every_given: bool,
) -> None:
    """Up to the first entry that is in chunks, or of a transaction that is not known."""
    undecided = layout.CHUNKED if is_every_given else layout.CHUNKED | layout.TRANSACTION
    first = min(first, len(entries))
    stop = first
    expected = [flags for flags, _, _ in entries]
    counts = dict.fromkeys(known, 0)
    for flags, transaction, size in entries[first:]:
        if flags & undecided and not flags & layout.MARKER:
            if flags & layout.CHUNKED or transaction not in known:
                break
            expected[stop] |= layout.LEFT_OUT * known[transaction]
            counts[transaction] += 1 if size < 0 else size
        stop += 1
    for build in BUILDS.values():
        table = array("q", bytes(8 * layout.ENTRY_WIDTH * len(entries)))
        for place, (flags, transaction, size) in enumerate(entries):
            base = place * layout.ENTRY_WIDTH
            table[base + layout.ENTRY_ID] = place
            table[base + layout.FLAGS] = flags
            table[base + layout.TXN_MOST] = 7
            table[base + layout.TXN_LEAST] = transaction
            table[base + layout.BATCH_SIZE] = size
        numbers = array("q")
        for transaction, is_left_out in known.items():
            numbers.extend((7, transaction, layout.LEFT_OUT * is_left_out, 0))

        found = build.delivery.leave_out(table, first, len(entries), undecided, numbers)

        assert found == stop
        assert list(table[layout.FLAGS :: layout.ENTRY_WIDTH]) == expected
        assert list(numbers[3::4]) == list(counts.values())
        mask = layout.LEFT_OUT | layout.MARKER
        kept = build.delivery.move_unflagged(table, len(entries), mask)
        left = [place for place, flags in enumerate(expected) if not flags & mask]
        assert list(table[: kept * layout.ENTRY_WIDTH][:: layout.ENTRY_WIDTH]) == left


def test_entries_that_nothing_depends_on_are_given_as_they_are() -> None:
    """Neither copied nor verified: that is for whoever reads them."""
    run = entry_run([_message(0, None), _message(1, None, members=3)])

    (given_run,) = Delivery([run], Tally(), PayloadDecryptor(), verify=True)

    assert given_run is run
    assert not run.is_verified
