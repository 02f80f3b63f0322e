"""The outcome of a transaction is found where its marker stands, however far behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from arrow_io.messages import layout
from arrow_io.messages.transactions import Outcome, TransactionLookahead
from tests.support.entries import Message, encode_entry, encode_marker
from tests.support.runs import runs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arrow_io.messages.entry_run import EntryRun

pytestmark = pytest.mark.usefixtures("build")

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
    assert lookahead.outcome(1, 2, 0) is Outcome.COMMITTED

    assert first.count == 2
    assert _ids(entries) == [2, 3, 4, 5, 6, 7]
    assert topic.reopened_behind == []


@pytest.mark.parametrize(
    ("marker_type", "outcome"), [(_COMMIT, Outcome.COMMITTED), (_ABORT, Outcome.ABORTED)]
)
def test_marker_tells_the_outcome(marker_type: int, outcome: Outcome) -> None:
    """Both ids have to be those of the marker."""
    topic = _Topic(_SINGLE, _marker(marker_type, 1, 2))

    assert topic.lookahead().outcome(1, 2, 0) is outcome
    assert topic.lookahead().outcome(2, 1, 0) is Outcome.OPEN
    assert topic.lookahead().outcome(1, 3, 0) is Outcome.OPEN


@pytest.mark.parametrize("marker_type", [0, 10, 13, 20])
def test_other_markers_tell_nothing(marker_type: int) -> None:
    """Only a commit or an abort decides a transaction."""
    topic = _Topic(_SINGLE, _marker(marker_type, 1, 2))

    assert topic.lookahead().outcome(1, 2, 0) is Outcome.OPEN


def test_ids_of_64_bits_are_told_apart() -> None:
    """Ids are unsigned numbers of 64 bits; the entry table has them signed."""
    topic = _Topic(_marker(_ABORT, 0, 2**63), _marker(_COMMIT, 2**64 - 1, 2**64 - 2))

    assert topic.lookahead().outcome(0, -(2**63), 0) is Outcome.ABORTED
    assert topic.lookahead().outcome(-1, -2, 0) is Outcome.COMMITTED


def test_outcome_is_remembered() -> None:
    """What was found once is not looked for again, nor what is known to be missing."""
    topic = _Topic(_SINGLE, _SINGLE, _marker(_COMMIT, 0, 1), _SINGLE)
    lookahead = topic.lookahead()

    outcomes = [lookahead.outcome(0, 1, 0), lookahead.outcome(0, 2, 0), lookahead.outcome(0, 1, 0)]

    assert outcomes == [Outcome.COMMITTED, Outcome.OPEN, Outcome.COMMITTED]
    assert _ids(lookahead) == [0, 1, 2, 3]


def test_markers_that_the_reader_has_passed_are_known() -> None:
    """A marker that stands before its message, in the entries given, is known too."""
    topic = _Topic(_marker(_COMMIT, 0, 1), _SINGLE, _SINGLE, _SINGLE)
    lookahead = topic.lookahead()

    assert len(_ids(lookahead)) == 4
    assert lookahead.outcome(0, 1, 0) is Outcome.COMMITTED


@pytest.mark.parametrize("max_buffered_bytes", [0, 1, 300, 500])
def test_far_markers_are_looked_for_without_keeping_what_is_between(
    max_buffered_bytes: int,
) -> None:
    """Past the bound, the look ahead goes on by itself; the reader gets each entry once."""
    topic = _Topic(*[_SINGLE] * 9, _marker(_COMMIT, 0, 1), *[_SINGLE] * 5, _marker(_ABORT, 0, 2))
    lookahead = topic.lookahead(max_buffered_bytes)
    entries = iter(lookahead)
    first = next(entries)

    assert lookahead.outcome(0, 1, 0) is Outcome.COMMITTED
    assert lookahead.outcome(0, 2, 0) is Outcome.ABORTED
    assert lookahead.outcome(0, 3, 0) is Outcome.OPEN

    assert first.last_entry_id == 1
    assert _ids(entries) == list(range(2, 16))
    assert len(topic.reopened_behind) == 1
    assert lookahead.outcome(0, 1, 0) is Outcome.COMMITTED


def test_first_entry_that_may_have_been_the_marker_is_known() -> None:
    """Who finds no outcome can tell why: the first entry on the way that cannot be read."""
    broken = b"\xff" * 20
    topic = _Topic(_SINGLE, _SINGLE, broken, _marker(_COMMIT, 0, 1), broken, _SINGLE)
    lookahead = topic.lookahead()

    assert lookahead.outcome(0, 1, 0) is Outcome.COMMITTED
    assert lookahead.outcome(0, 2, 0) is Outcome.OPEN

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

    assert lookahead.outcome(0, 1, 0) is Outcome.COMMITTED

    assert topic.reopened_behind == [7]
    assert _ids(entries) == list(range(2, 11))


def test_bound_counts_what_is_kept_at_once() -> None:
    """What the reader has taken is no longer kept, and makes room."""
    topic = _Topic(*[_SINGLE] * 3, _marker(_COMMIT, 0, 1), *[_SINGLE] * 3, _marker(_COMMIT, 0, 2))
    one_run = max(run.held_bytes for run in topic.runs())
    lookahead = topic.lookahead(max_buffered_bytes=one_run)
    entries = iter(lookahead)

    next(entries)
    assert lookahead.outcome(0, 1, 0) is Outcome.COMMITTED
    next(entries)
    next(entries)
    assert lookahead.outcome(0, 2, 0) is Outcome.COMMITTED

    assert topic.reopened_behind == []
    assert _ids(entries) == [6, 7]
