"""Which transactions were committed (PIP-31): a marker behind the messages says so.

A message of a transaction is a row only if a TXN_COMMIT marker with its ids follows in the same
topic partition. So, unless that is known, the reader looks ahead: the entries read on the way are
kept, up to a bound, and given to the reader when it comes to them; past the bound, the look-ahead
goes on by itself, and they are read twice.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from arrow_io.messages import layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from arrow_io.errors import CorruptEntryError
    from arrow_io.messages.entry_run import EntryRun

TXN_COMMIT = 21
TXN_ABORT = 22
MAX_BUFFERED_BYTES = 32 << 20


class Outcome(Enum):
    """What became of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    """No marker in what is offloaded: still open, or decided in a newer ledger."""


class RecordedOutcome(NamedTuple):
    """What is known of a transaction without reading.

    It holds for its messages in some ledgers: whoever knows it has seen that they hold no marker of
    it before one of these messages.
    """

    first_ledger_id: int
    last_ledger_id: int
    """Inclusive."""
    outcome: Outcome


_NOTHING: Final[Mapping[str, RecordedOutcome]] = MappingProxyType({})


class TransactionLookahead:
    """The entries of one topic partition, in order, with a look ahead at transaction markers.

    Args:
        runs: Entries from where the reader begins to the end of what is offloaded.
        reopen: Gives the entries behind a run, afresh, to the end of what is offloaded.
        skip_gap: Makes `runs` go on with the next that is `is_in_range`; None if all are.
        recorded: What is known of transactions, by their ids as `__txn_id__` has them.
        verify: Whether checksums are compared before markers are believed, if they were not yet;
            then those of whatever is looked at ahead.
        max_buffered_bytes: How many bytes of entries and their tables to keep between reader and
            look-ahead.

    Attributes:
        damage: The error of the first entry met that cannot be decoded, and may have been a marker;
            None if there is none.
    """

    def __init__(
        self,
        runs: Iterator[EntryRun],
        reopen: Callable[[EntryRun], Iterator[EntryRun]],
        skip_gap: Callable[[], None] | None = None,
        *,
        recorded: Mapping[str, RecordedOutcome] = _NOTHING,
        verify: bool = False,
        max_buffered_bytes: int = MAX_BUFFERED_BYTES,
    ) -> None:
        self._runs = runs
        self._reopen = reopen
        self._skip_gap = skip_gap
        self._recorded = recorded
        self._verify = verify
        self._max_buffered_bytes = max_buffered_bytes
        self._lookahead: Iterator[EntryRun] | None = None
        self._buffered: deque[EntryRun] = deque()
        self._buffered_bytes = 0
        self._outcomes: dict[tuple[int, int], Outcome] = {}
        self.damage: CorruptEntryError | None = None

    def __iter__(self) -> Iterator[EntryRun]:
        """The entries, in order."""
        while True:
            if self._buffered:
                run = self._buffered.popleft()
                self._buffered_bytes -= run.held_bytes
            else:
                following = next(self._runs, None)
                if following is None:
                    return
                run = following
                if self._verify and run.has(layout.MARKER):
                    run.verify_checksums()
                self._note_markers(run)
            yield run

    def skip_gap(self) -> None:
        """Go on with the next run that is `is_in_range`."""
        while self._buffered and not self._buffered[0].is_in_range:
            self._buffered_bytes -= self._buffered.popleft().held_bytes
        if not self._buffered and self._skip_gap is not None:
            self._skip_gap()

    def outcome(self, most: int, least: int, ledger_id: int) -> Outcome:
        """What became of the transaction with these id bits, of which a ledger has a message."""
        if self._recorded and (most, least) not in self._outcomes:
            recorded = self._recorded.get(f"({most},{least})")
            if (
                recorded is not None
                and recorded.first_ledger_id <= ledger_id <= recorded.last_ledger_id
            ):
                return recorded.outcome
        while (most, least) not in self._outcomes:
            if not self._look_ahead():
                return Outcome.OPEN
        return self._outcomes[most, least]

    def _look_ahead(self) -> bool:
        run = next(self._runs if self._lookahead is None else self._lookahead, None)
        if run is None:
            return False
        if self._verify:
            # Any that is broken may have been a marker.
            run.verify_checksums()
        self._note_markers(run)
        if self._lookahead is None:
            self._buffered.append(run)
            self._buffered_bytes += run.held_bytes
            if self._buffered_bytes > self._max_buffered_bytes:
                self._lookahead = self._reopen(run)
        return True

    def _note_markers(self, run: EntryRun) -> None:
        for index in run.flagged(layout.MARKER | layout.BROKEN):
            if run.number(index, layout.FLAGS) & layout.BROKEN:
                self.damage = self.damage or run.error(index)
                continue
            marker = run.number(index, layout.MARKER_TYPE)
            if marker in {TXN_COMMIT, TXN_ABORT}:
                ids = (
                    run.number(index, layout.TXN_MOST),
                    run.number(index, layout.TXN_LEAST),
                )
                self._outcomes[ids] = Outcome.COMMITTED if marker == TXN_COMMIT else Outcome.ABORTED
