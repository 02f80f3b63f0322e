"""The transaction filter: a consumer of Pulsar receives only committed messages (PIP-31)."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from arrow_io.core import builds
from arrow_io.messages import layout
from arrow_io.messages.transactions import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arrow_io.messages.entry_run import EntryRun
    from arrow_io.messages.later_entries import LaterEntries
    from arrow_io.messages.transactions import (
        TransactionId,
        TransactionLookahead,
        TransactionOutcomes,
    )
    from arrow_io.read_metrics import ReadMetrics, Tally

_OUTCOME_WIDTH: Final = 4
_MAX_OUTCOMES: Final = 64
"""Number of transactions that an entry is compared with; more are rarely open at once."""


class CommittedTransactions:
    """Decides for entries of transactions whether they were committed; counts those that were not.

    Args:
        outcomes: The outcomes that markers among the entries, or a metadata store, record.
        tally: Decides whether damage is raised; its metrics receive the counts.
        later_entries: Source of outcomes after the last entry; None if there is none.
    """

    def __init__(
        self,
        outcomes: TransactionLookahead | TransactionOutcomes,
        tally: Tally,
        later_entries: LaterEntries | None,
    ) -> None:
        self._outcomes = outcomes
        self._tally = tally
        self._later_entries = later_entries
        self._later_outcomes: dict[TransactionId, Outcome | None] = {}
        self._undecided: Mapping[Outcome, set[TransactionId]] = {
            Outcome.OPEN: set(),
            Outcome.UNKNOWN: set(),
        }

    def outcome(self, run: EntryRun, entry: list[int]) -> Outcome | None:
        """Return the outcome of an entry's transaction, valid for all its messages in the run.

        Returns:
            None if the outcome must be determined per entry (`is_committed`).

        Raises:
            CorruptEntryError: There is no marker, and a broken entry may have been the marker.
        """
        if self._outcomes.differs_within(run):
            return None
        outcome = self._outcome(run, entry)
        if outcome in self._undecided:
            if self._later_entries is not None:
                return None
            self._add_undecided(run, entry, outcome)
        return outcome

    def is_committed(self, run: EntryRun, index: int, entry: list[int]) -> bool:
        """Return whether a consumer receives the messages of an entry; count them if not.

        Raises:
            CorruptEntryError: See `outcome`.
            PulsarOffloadError: The source of later entries cannot be read.
        """
        metrics = self._tally.metrics
        # The task that has the entry in its ranges counts it.
        messages = (
            builds.in_use.entries.count_messages(run.table, index, index + 1) * run.is_in_range
        )
        outcome = self._outcome(run, entry)
        if outcome in self._undecided:
            outcome = self._later_outcome(run, entry) or outcome
            metrics.ended_beyond += messages * (outcome is Outcome.COMMITTED)
        if outcome in self._undecided:
            self._add_undecided(run, entry, outcome)
        _count(metrics, outcome, messages)
        return outcome is Outcome.COMMITTED

    def finish(self) -> None:
        """Count the transactions without an outcome; call it after the last entry."""
        self._tally.metrics.open_transactions += len(self._undecided[Outcome.OPEN])
        self._tally.metrics.unknown_transactions += len(self._undecided[Outcome.UNKNOWN])

    def _outcome(self, run: EntryRun, entry: list[int]) -> Outcome:
        """Return the recorded outcome of an entry's transaction."""
        position = run.ledger_id, entry[layout.ENTRY_ID]
        return self._outcomes.outcome(entry[layout.TXN_MOST], entry[layout.TXN_LEAST], position)

    def _later_outcome(self, run: EntryRun, entry: list[int]) -> Outcome | None:
        """Look up an entry's transaction in the entries after the last offloaded one.

        Returns:
            None if they do not tell.
        """
        position = run.ledger_id, entry[layout.ENTRY_ID]
        if self._later_entries is None or not self._later_entries.reaches(*position):
            # Even if other messages of the transaction are delivered: the rows of an entry must
            # not depend on the entries that are read with it.
            return None
        ids = entry[layout.TXN_MOST], entry[layout.TXN_LEAST]
        if ids in self._later_outcomes:
            return self._later_outcomes[ids]
        is_chunked = bool(entry[layout.FLAGS] & layout.CHUNKED)
        if is_chunked and entry[layout.CHUNK_ID]:
            return None
        is_delivered = self._later_entries.delivers(*position, is_chunked=is_chunked)
        outcomes = {None: None, True: Outcome.COMMITTED, False: Outcome.ABORTED}
        if is_delivered is not None or not is_chunked:
            self._later_outcomes[ids] = outcomes[is_delivered]
        return outcomes[is_delivered]

    def _add_undecided(self, run: EntryRun, entry: list[int], outcome: Outcome) -> None:
        """Record a transaction without an outcome; raise if a broken entry may be its marker."""
        if self._outcomes.damage is not None and not self._tally.salvage:
            raise self._outcomes.damage
        if run.is_in_range:
            self._undecided[outcome].add((entry[layout.TXN_MOST], entry[layout.TXN_LEAST]))


class RunOutcomes:
    """The outcomes of a run's transactions that were looked up so far.

    Args:
        metrics: Receives the counts of omitted messages.
        undecided: Flags of entries that need a decision: `CHUNKED`, and also `TRANSACTION` if
            transactions are decided.
    """

    def __init__(self, metrics: ReadMetrics, undecided: int) -> None:
        self._metrics = metrics
        self._undecided = undecided
        self._numbers = array("q")
        self._outcomes: list[Outcome] = []

    def add(self, entry: list[int], outcome: Outcome) -> None:
        """Record the outcome of an entry's transaction."""
        if len(self._outcomes) == _MAX_OUTCOMES:
            self.count()
        flag = 0 if outcome is Outcome.COMMITTED else layout.LEFT_OUT
        self._numbers.extend((entry[layout.TXN_MOST], entry[layout.TXN_LEAST], flag, 0))
        self._outcomes.append(outcome)

    def apply(self, run: EntryRun, first: int) -> int:
        """Flag entries from `first` that are not delivered; return the first undecided entry."""
        undecided: int = builds.in_use.delivery.leave_out(
            run.table, first, run.count, self._undecided, self._numbers
        )
        return undecided

    def count(self) -> None:
        """Add the messages of these transactions to the metrics, and forget the outcomes."""
        for index, outcome in enumerate(self._outcomes):
            _count(self._metrics, outcome, self._numbers[_OUTCOME_WIDTH * index + 3])
        self._numbers = array("q")
        self._outcomes.clear()


def _count(metrics: ReadMetrics, outcome: Outcome, messages: int) -> None:
    if outcome is Outcome.ABORTED:
        metrics.aborted_messages += messages
    elif outcome is Outcome.OPEN:
        metrics.open_messages += messages
    elif outcome is Outcome.UNKNOWN:
        metrics.unknown_messages += messages
