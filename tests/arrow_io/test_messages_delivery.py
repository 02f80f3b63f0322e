"""Which entries hold messages for a client, by what other entries and markers say."""

from __future__ import annotations

from array import array
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.core import builds
from arrow_io.errors import ChecksumError, CorruptEntryError
from arrow_io.messages import committed, layout
from arrow_io.messages.delivery import Delivery
from arrow_io.messages.encryption import PayloadDecryptor
from arrow_io.messages.message_reader import MessageReader, Needs
from arrow_io.messages.transactions import (
    Outcome,
    RecordedOutcome,
    TransactionLookahead,
    TransactionOutcomes,
)
from arrow_io.read_metrics import ReadMetrics, Tally
from tests.support.entries import Message, encode_chunks, encode_entry, encode_marker
from tests.support.runs import entry_run, runs_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from arrow_io.messages.entry_run import EntryRun


pytestmark = pytest.mark.usefixtures("build")

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


def _decided(
    entries: list[bytes], length: int, outcomes: TransactionOutcomes, first: int = 0
) -> tuple[list[bytes], ReadMetrics]:
    """Return the values from an entry on, and the metrics."""
    tally = Tally()
    runs = runs_of(entries[first:], length=length, first_entry_id=first)
    delivery = Delivery(runs, tally, PayloadDecryptor(), outcomes=outcomes)
    return list(_values(delivery, tally)), tally.metrics


class TestSegments:
    """Recorded outcomes decide where there are no markers."""

    @pytest.mark.parametrize("length", [1, 3, 1000])
    def test_each_outcome_is_counted(self, length: int) -> None:
        """An open transaction and one without an outcome are left out, and differ in the counts."""
        entries = [_message(n, n % 5 or None, members=1 + n % 2) for n in range(10)]
        outcomes = TransactionOutcomes(
            aborted=frozenset({(1, 1)}),
            states={(1, 2): Outcome.COMMITTED, (1, 3): Outcome.OPEN},
        )

        values, metrics = _decided(entries, length, outcomes)

        assert values == [b"0", b"2", b"5", b"5", b"7", b"7"]
        assert metrics.aborted_messages == 3
        assert (metrics.open_messages, metrics.open_transactions) == (3, 1)
        assert (metrics.unknown_messages, metrics.unknown_transactions) == (3, 1)
        assert (metrics.undecided_messages, metrics.undecided_transactions) == (6, 2)
        assert metrics.entries == 10

    @pytest.mark.parametrize("length", [1, 2, 3, 7, 1000])
    @pytest.mark.parametrize("first", [0, 1, 3, 4, 5])
    def test_rows_do_not_depend_on_the_entries_read_with_them(
        self, first: int, length: int
    ) -> None:
        """A transaction that the watermark decides in part has the same rows in any run."""
        entries = [_message(n, 1 + n % 2) for n in range(8)]
        outcomes = TransactionOutcomes((1, 3), states={(1, 2): Outcome.OPEN})

        values, metrics = _decided(entries, length, outcomes, first)

        assert values == [b"%d" % n for n in range(first, 4)]
        assert metrics.unknown_messages == len([n for n in range(max(4, first), 8) if n % 2 == 0])
        assert metrics.open_messages == len([n for n in range(max(4, first), 8) if n % 2])

    def test_a_broken_entry_hides_no_outcome(self) -> None:
        """It may have been a marker in a topic, but not in a segment."""
        entries = [_message(0, 1), b"\xff" * 20, _message(2, None)]
        tally = Tally()

        outcomes = TransactionOutcomes()
        runs = runs_of(entries, length=9)
        delivered = list(Delivery(runs, tally, PayloadDecryptor(), outcomes=outcomes))

        assert [run.count for run in delivered] == [2]
        assert tally.metrics.unknown_messages == 1
        with pytest.raises(CorruptEntryError):
            list(_delivered(entries, 9, Tally()))

    @pytest.mark.parametrize("is_committed", [True, False])
    def test_chunked_messages(self, is_committed: bool) -> None:
        """All chunks of a message have one transaction."""
        message = Message(payload=b"chunked")
        entries = [
            *encode_chunks(message, chunk_count=2, uuid="u", txnid_most_bits=1, txnid_least_bits=1),
            _message(2, None),
        ]
        states = {(1, 1): Outcome.COMMITTED if is_committed else Outcome.OPEN}

        values, _ = _decided(entries, 2, TransactionOutcomes(states=states))

        assert values == ([b"chunked"] if is_committed else []) + [b"2"]


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
    entries: list[tuple[int, int, int]], known: dict[int, bool], first: int, *, is_every_given: bool
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

    found = builds.in_use.delivery.leave_out(table, first, len(entries), undecided, numbers)

    assert found == stop
    assert list(table[layout.FLAGS :: layout.ENTRY_WIDTH]) == expected
    assert list(numbers[3::4]) == list(counts.values())
    mask = layout.LEFT_OUT | layout.MARKER
    kept = builds.in_use.delivery.move_unflagged(table, len(entries), mask)
    left = [place for place, flags in enumerate(expected) if not flags & mask]
    assert list(table[: kept * layout.ENTRY_WIDTH][:: layout.ENTRY_WIDTH]) == left


def test_entries_that_nothing_depends_on_are_given_as_they_are() -> None:
    """Neither copied nor verified: that is for whoever reads them."""
    run = entry_run([_message(0, None), _message(1, None, members=3)])

    (given_run,) = Delivery([run], Tally(), PayloadDecryptor(), verify=True)

    assert given_run is run
    assert not run.is_verified


# Outcomes


_SINGLE = encode_entry([Message(payload=b"x" * 100)], batched=False)
_COMMIT, _ABORT = 21, 22


class _Topic:
    """Entries in runs of two, and how often and from where they were opened again."""

    def __init__(self, *entries: bytes) -> None:
        self.entries = list(entries)
        self.reopened_behind: list[int] = []

    def runs(self) -> Iterator[EntryRun]:
        return runs_of(self.entries, length=2)

    def reopen(self, run: EntryRun) -> Iterator[EntryRun]:
        self.reopened_behind.append(run.last_entry_id)
        first = run.last_entry_id + 1
        return runs_of(self.entries[first:], length=2, first_entry_id=first)

    def lookahead(self, max_buffered_bytes: int = 1 << 20) -> TransactionLookahead:
        return TransactionLookahead(self.runs(), self.reopen, max_buffered_bytes=max_buffered_bytes)


def _marker(marker_type: int, most: int, least: int) -> bytes:
    return encode_marker(marker_type, txn_id=(most, least))


def _ids(runs: TransactionLookahead | Iterator[EntryRun]) -> list[int]:
    return [run.number(i, layout.ENTRY_ID) for run in runs for i in range(run.count)]


def test_entries_come_in_order_whether_looked_at_before_or_not() -> None:
    """What a look ahead has read is given when the reader comes to it, once."""
    topic = _Topic(*[_SINGLE] * 6, _marker(_COMMIT, 1, 2), _SINGLE)
    lookahead = topic.lookahead()
    entries = iter(lookahead)

    first = next(entries)
    assert lookahead.outcome(1, 2, (0, 0)) is Outcome.COMMITTED

    assert first.count == 2
    assert _ids(entries) == [2, 3, 4, 5, 6, 7]
    assert topic.reopened_behind == []


@pytest.mark.parametrize(
    ("marker_type", "outcome"), [(_COMMIT, Outcome.COMMITTED), (_ABORT, Outcome.ABORTED)]
)
def test_marker_tells_the_outcome(marker_type: int, outcome: Outcome) -> None:
    """Both ids have to be those of the marker."""
    topic = _Topic(_SINGLE, _marker(marker_type, 1, 2))

    assert topic.lookahead().outcome(1, 2, (0, 0)) is outcome
    assert topic.lookahead().outcome(2, 1, (0, 0)) is Outcome.OPEN
    assert topic.lookahead().outcome(1, 3, (0, 0)) is Outcome.OPEN


@pytest.mark.parametrize("marker_type", [0, 10, 13, 20])
def test_other_markers_tell_nothing(marker_type: int) -> None:
    """Only a commit or an abort decides a transaction."""
    topic = _Topic(_SINGLE, _marker(marker_type, 1, 2))

    assert topic.lookahead().outcome(1, 2, (0, 0)) is Outcome.OPEN


def test_ids_of_64_bits_are_told_apart() -> None:
    """Ids are unsigned numbers of 64 bits; the entry table has them signed."""
    topic = _Topic(_marker(_ABORT, 0, 2**63), _marker(_COMMIT, 2**64 - 1, 2**64 - 2))

    assert topic.lookahead().outcome(0, -(2**63), (0, 0)) is Outcome.ABORTED
    assert topic.lookahead().outcome(-1, -2, (0, 0)) is Outcome.COMMITTED


def test_outcome_is_remembered() -> None:
    """What was found once is not looked for again, nor what is known to be missing."""
    topic = _Topic(_SINGLE, _SINGLE, _marker(_COMMIT, 0, 1), _SINGLE)
    lookahead = topic.lookahead()

    outcomes = [lookahead.outcome(0, each, (0, 0)) for each in (1, 2, 1)]

    assert outcomes == [Outcome.COMMITTED, Outcome.OPEN, Outcome.COMMITTED]
    assert _ids(lookahead) == [0, 1, 2, 3]


def test_markers_that_the_reader_has_passed_are_known() -> None:
    """A marker that stands before its message, in the entries given, is known too."""
    topic = _Topic(_marker(_COMMIT, 0, 1), _SINGLE, _SINGLE, _SINGLE)
    lookahead = topic.lookahead()

    assert len(_ids(lookahead)) == 4
    assert lookahead.outcome(0, 1, (0, 0)) is Outcome.COMMITTED


@pytest.mark.parametrize("max_buffered_bytes", [0, 1, 300, 500])
def test_far_markers_are_looked_for_without_keeping_what_is_between(
    max_buffered_bytes: int,
) -> None:
    """Past the bound, the look ahead goes on by itself; the reader gets each entry once."""
    topic = _Topic(*[_SINGLE] * 9, _marker(_COMMIT, 0, 1), *[_SINGLE] * 5, _marker(_ABORT, 0, 2))
    lookahead = topic.lookahead(max_buffered_bytes)
    entries = iter(lookahead)
    first = next(entries)

    assert lookahead.outcome(0, 1, (0, 0)) is Outcome.COMMITTED
    assert lookahead.outcome(0, 2, (0, 0)) is Outcome.ABORTED
    assert lookahead.outcome(0, 3, (0, 0)) is Outcome.OPEN

    assert first.last_entry_id == 1
    assert _ids(entries) == list(range(2, 16))
    assert len(topic.reopened_behind) == 1
    assert lookahead.outcome(0, 1, (0, 0)) is Outcome.COMMITTED


def test_first_entry_that_may_have_been_the_marker_is_known() -> None:
    """Who finds no outcome can tell why: the first entry on the way that cannot be read."""
    broken = b"\xff" * 20
    topic = _Topic(_SINGLE, _SINGLE, broken, _marker(_COMMIT, 0, 1), broken, _SINGLE)
    lookahead = topic.lookahead()

    assert lookahead.outcome(0, 1, (0, 0)) is Outcome.COMMITTED
    assert lookahead.outcome(0, 2, (0, 0)) is Outcome.OPEN

    assert lookahead.damage is not None
    assert lookahead.damage.entry_id == 2
    assert _Topic(_SINGLE).lookahead().damage is None


def test_bound_is_of_all_that_is_kept() -> None:
    """The look ahead stops keeping when the entries together, not each, are more than the bound."""
    topic = _Topic(*[_SINGLE] * 10, _marker(_COMMIT, 0, 1))
    one_run = next(topic.runs()).held_bytes
    lookahead = topic.lookahead(max_buffered_bytes=2 * one_run)
    entries = iter(lookahead)
    next(entries)

    assert lookahead.outcome(0, 1, (0, 0)) is Outcome.COMMITTED

    assert topic.reopened_behind == [7]
    assert _ids(entries) == list(range(2, 11))


def test_bound_counts_what_is_kept_at_once() -> None:
    """What the reader has taken is no longer kept, and makes room."""
    topic = _Topic(*[_SINGLE] * 3, _marker(_COMMIT, 0, 1), *[_SINGLE] * 3, _marker(_COMMIT, 0, 2))
    one_run = max(run.held_bytes for run in topic.runs())
    lookahead = topic.lookahead(max_buffered_bytes=one_run)
    entries = iter(lookahead)

    next(entries)
    assert lookahead.outcome(0, 1, (0, 0)) is Outcome.COMMITTED
    next(entries)
    next(entries)
    assert lookahead.outcome(0, 2, (0, 0)) is Outcome.COMMITTED

    assert topic.reopened_behind == []
    assert _ids(entries) == [6, 7]


def test_gap_that_is_skipped_makes_room() -> None:
    """Where a run of the next range is buffered already, there is no gap to skip."""
    pieces = [(_SINGLE, _marker(_COMMIT, 0, number)) for number in range(3)]
    topic = _Topic(*(entry for each in pieces for entry in each))
    runs = list(topic.runs())
    runs[1].is_in_range = False
    skips: list[str] = []
    skip_gap = partial(skips.append, "gap")
    most = runs[0].held_bytes
    lookahead = TransactionLookahead(iter(runs), topic.reopen, skip_gap, max_buffered_bytes=most)
    entries = iter(lookahead)
    next(entries)

    assert lookahead.outcome(0, 1, (0, 0)) is Outcome.COMMITTED
    lookahead.skip_gap()
    assert skips == ["gap"]
    assert lookahead.outcome(0, 2, (0, 0)) is Outcome.COMMITTED
    lookahead.skip_gap()
    assert skips == ["gap"]

    assert _ids(entries) == [4, 5]
    assert topic.reopened_behind == []


@pytest.mark.parametrize(
    ("ledger_id", "outcome"),
    [(2, Outcome.COMMITTED), (3, Outcome.ABORTED), (5, Outcome.ABORTED), (6, Outcome.COMMITTED)],
)
def test_recorded_outcome_is_that_of_its_ledgers(ledger_id: int, outcome: Outcome) -> None:
    """In other ledgers the marker decides, and in all ledgers once it was read."""
    topic = _Topic(_SINGLE, _marker(_COMMIT, 1, 2))
    recorded = {"(1,2)": RecordedOutcome(3, 5, Outcome.ABORTED)}
    lookahead = TransactionLookahead(topic.runs(), topic.reopen, recorded=recorded)

    assert lookahead.outcome(1, 2, (ledger_id, 0)) is outcome
    assert lookahead.outcome(1, 3, (ledger_id, 0)) is Outcome.OPEN
    assert lookahead.outcome(1, 2, (ledger_id, 0)) is Outcome.COMMITTED


@pytest.mark.parametrize("is_read_before", [False, True])
@pytest.mark.parametrize("options", [{}, {"verify": True}], ids=str)
def test_checksums_are_compared_only_on_request(
    options: dict[str, Any], *, is_read_before: bool
) -> None:
    """A marker whose checksum is wrong is then damage; runs without markers are not verified."""
    marker = encode_marker(_COMMIT, txn_id=(0, 1), payload=b"a")
    topic = _Topic(_SINGLE, _SINGLE, marker[:-1] + b"b")
    lookahead = TransactionLookahead(topic.runs(), topic.reopen, **options)

    if is_read_before:
        assert [run.is_verified for run in lookahead] == [False, bool(options)]
    assert lookahead.outcome(0, 1, (0, 0)) is (Outcome.OPEN if options else Outcome.COMMITTED)
    assert (lookahead.damage is not None) == bool(options)
