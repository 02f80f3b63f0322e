"""The outcomes of transactions: from markers (PIP-31), or from a metadata store (PIP-473).

A message of a transaction becomes a row only if a TXN_COMMIT marker with its ids follows in the
same topic partition. So, unless the outcome is recorded, a lookahead reads on until it finds the
marker. It buffers the entries up to a bound, and the reader takes them from the buffer. Beyond the
bound, the lookahead continues independently, and these entries are read twice.

Segments of scalable topics have no markers. Their cluster records the outcomes in its metadata
store, so nothing is read on there.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, TypeAlias

from arrow_io.messages import layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from arrow_io.errors import CorruptEntryError
    from arrow_io.messages.entry_run import EntryRun

TransactionId: TypeAlias = tuple[int, int]
"""The most and the least significant bits, both signed."""

TXN_COMMIT = 21
TXN_ABORT = 22
MAX_BUFFERED_BYTES = 32 << 20


class Outcome(Enum):
    """The outcome of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    """The offloaded entries hold no marker, so it is open or decided in a newer ledger; or the
    metadata store records it as open."""
    UNKNOWN = "unknown"
    """The segment's metadata, if there is any, does not tell."""


@dataclass(frozen=True, slots=True)
class TransactionOutcomes:
    """The outcomes of a segment's transactions, as its cluster's metadata store records them.

    It has a few numbers for each transaction that was aborted in the segment's ledgers, or that the
    cluster had not forgotten. The default knows no outcome.

    Attributes:
        watermark: Ledger and entry id (inclusive) up to which no transaction is open; None if it
            is not recorded.
        aborted: The aborted transactions that have messages in the segment.
        states: The outcomes of other transactions, which decide after the watermark.
        ended_ledger_id: Greatest id (inclusive) of a ledger after the watermark in which all other
            transactions are known to be committed; -1 if there is none.
    """

    watermark: tuple[int, int] | None = None
    aborted: frozenset[TransactionId] = frozenset()
    states: Mapping[TransactionId, Outcome] = field(default_factory=dict, hash=False)
    ended_ledger_id: int = -1

    damage: ClassVar[None] = None
    """No entry of a segment holds an outcome, so a broken one hides none."""

    def outcome(self, most: int, least: int, position: tuple[int, int]) -> Outcome:
        """Return the outcome of a transaction, by its id bits, for a message at a position.

        `position` is the ledger and entry id of the message.
        """
        if (most, least) in self.aborted:
            return Outcome.ABORTED
        if self.watermark is not None and position <= self.watermark:
            return Outcome.COMMITTED
        ended = Outcome.COMMITTED if position[0] <= self.ended_ledger_id else Outcome.UNKNOWN
        return self.states.get((most, least), ended)

    def differs_within(self, run: EntryRun) -> bool:
        """Return whether a transaction may have several outcomes among the entries of a run."""
        first = run.ledger_id, run.number(0, layout.ENTRY_ID)
        return self.watermark is not None and (
            first <= self.watermark < (run.ledger_id, run.last_entry_id)
        )


class RecordedOutcome(NamedTuple):
    """The outcome of a transaction that was recorded by an earlier read.

    It holds for the messages of the transaction in a range of ledgers: these hold no marker of it
    before one of these messages.
    """

    first_ledger_id: int
    last_ledger_id: int
    """Inclusive."""
    outcome: Outcome


_NOTHING: Final[Mapping[str, RecordedOutcome]] = MappingProxyType({})


class TransactionLookahead:
    """The entries of one topic partition, in order, with a lookahead for transaction markers.

    Args:
        runs: Entries from the reader's start to the end of the offloaded entries.
        reopen: Opens the entries after a run, to the end of the offloaded entries.
        skip_gap: Makes `runs` continue with the next run that is `is_in_range`; None if all are.
        recorded: Recorded outcomes by transaction id, spelled as in `__txn_id__`.
        verify: Whether to compare checksums, if that was not done, before markers are trusted. Then
            the lookahead verifies every run that it reads.
        max_buffered_bytes: Maximum bytes of entries and their tables between reader and lookahead.

    Attributes:
        damage: Error of the first entry that cannot be decoded, and may have been a marker; None if
            there is none.
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
        """Return the entries, in order."""
        while True:
            if self._buffered:
                run = self._buffered.popleft()
                self._buffered_bytes -= run.held_bytes
            else:
                next_run = next(self._runs, None)
                if next_run is None:
                    return
                run = next_run
                if self._verify and run.has_flag(layout.MARKER):
                    run.verify_checksums()
                self._add_markers(run)
            yield run

    def skip_gap(self) -> None:
        """Continue with the next run that is `is_in_range`."""
        while self._buffered and not self._buffered[0].is_in_range:
            self._buffered_bytes -= self._buffered.popleft().held_bytes
        if not self._buffered and self._skip_gap is not None:
            self._skip_gap()

    def outcome(self, most: int, least: int, position: tuple[int, int]) -> Outcome:
        """Return the outcome of a transaction, by its id bits, for a message at a position.

        `position` is the ledger and entry id of the message.
        """
        if self._recorded and (most, least) not in self._outcomes:
            recorded = self._recorded.get(f"({most},{least})")
            if (
                recorded is not None
                and recorded.first_ledger_id <= position[0] <= recorded.last_ledger_id
            ):
                return recorded.outcome
        while (most, least) not in self._outcomes:
            if not self._look_ahead():
                return Outcome.OPEN
        return self._outcomes[most, least]

    def differs_within(self, run: EntryRun) -> bool:  # noqa: ARG002 - as `TransactionOutcomes`
        """Return False: markers and recorded outcomes decide about whole ledgers."""
        return False

    def _look_ahead(self) -> bool:
        run = next(self._runs if self._lookahead is None else self._lookahead, None)
        if run is None:
            return False
        if self._verify:
            # Any broken entry may have been a marker.
            run.verify_checksums()
        self._add_markers(run)
        if self._lookahead is None:
            self._buffered.append(run)
            self._buffered_bytes += run.held_bytes
            if self._buffered_bytes > self._max_buffered_bytes:
                self._lookahead = self._reopen(run)
        return True

    def _add_markers(self, run: EntryRun) -> None:
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
