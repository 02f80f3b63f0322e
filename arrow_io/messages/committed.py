"""Which messages of transactions a client of Pulsar is given (PIP-31): committed ones."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from arrow_io.core import builds
from arrow_io.messages import layout
from arrow_io.messages.transactions import Outcome

if TYPE_CHECKING:
    from arrow_io.messages.entry_run import EntryRun
    from arrow_io.messages.later_entries import LaterEntries
    from arrow_io.messages.transactions import TransactionLookahead
    from arrow_io.read_metrics import ReadMetrics, Tally

_OUTCOME_WIDTH: Final = 4
_MAX_OUTCOMES: Final = 64
"""An entry is compared with so many transactions; seldom are more open at once."""


class CommittedTransactions:
    """Tells of entries whether their transactions were committed, and counts what was not.

    Args:
        outcomes: What markers among the entries tell.
        tally: Says whether damage is raised; its metrics receive the counts.
        later_entries: Whoever knows what became of transactions behind the last entry; None:
            nobody.
    """

    def __init__(
        self, outcomes: TransactionLookahead, tally: Tally, later_entries: LaterEntries | None
    ) -> None:
        self._outcomes = outcomes
        self._tally = tally
        self._later_entries = later_entries
        self._later_outcomes: dict[tuple[int, int], Outcome] = {}
        self._open: set[tuple[int, int]] = set()

    def outcome(self, run: EntryRun, entry: list[int]) -> Outcome | None:
        """What became of all messages that the transaction of an entry has in its run.

        Returns:
            None if that has to be asked of each entry (`is_committed`).

        Raises:
            CorruptEntryError: Nothing tells, and an entry is broken that may have been the marker.
        """
        outcome = self._outcome(run, entry)
        if outcome is Outcome.OPEN:
            if self._later_entries is not None:
                return None
            self._note_open(run, entry)
        return outcome

    def is_committed(self, run: EntryRun, index: int, entry: list[int]) -> bool:
        """Whether a client is given the messages of an entry; counts them if not.

        Raises:
            CorruptEntryError: As for `outcome`.
            PulsarOffloadError: Whoever knows cannot be asked.
        """
        metrics = self._tally.metrics
        # What is not in range is counted by whoever reads it for itself.
        messages = (
            builds.in_use.entries.count_messages(run.table, index, index + 1) * run.is_in_range
        )
        outcome = self._outcome(run, entry)
        if outcome is Outcome.OPEN:
            outcome = self._later_outcome(run, entry)
            metrics.ended_beyond += messages * (outcome is Outcome.COMMITTED)
        if outcome is Outcome.OPEN:
            self._note_open(run, entry)
        _count(metrics, outcome, messages)
        return outcome is Outcome.COMMITTED

    def finish(self) -> None:
        """Count the transactions that are still open: called when there are no more entries."""
        self._tally.metrics.open_transactions += len(self._open)

    def _outcome(self, run: EntryRun, entry: list[int]) -> Outcome:
        """What is offloaded tells of the transaction of an entry."""
        return self._outcomes.outcome(
            entry[layout.TXN_MOST], entry[layout.TXN_LEAST], run.ledger_id
        )

    def _later_outcome(self, run: EntryRun, entry: list[int]) -> Outcome:
        """What became of a transaction behind the last entry; it has a message in this one."""
        place = run.ledger_id, entry[layout.ENTRY_ID]
        if self._later_entries is None or not self._later_entries.reaches(*place):
            # Whatever else of it is given: rows must not depend on what is read together.
            return Outcome.OPEN
        ids = entry[layout.TXN_MOST], entry[layout.TXN_LEAST]
        if ids in self._later_outcomes:
            return self._later_outcomes[ids]
        is_chunked = bool(entry[layout.FLAGS] & layout.CHUNKED)
        if is_chunked and entry[layout.CHUNK_ID]:
            return Outcome.OPEN
        is_delivered = self._later_entries.delivers(*place, is_chunked=is_chunked)
        ends = {None: Outcome.OPEN, True: Outcome.COMMITTED, False: Outcome.ABORTED}
        if is_delivered is not None or not is_chunked:
            self._later_outcomes[ids] = ends[is_delivered]
        return ends[is_delivered]

    def _note_open(self, run: EntryRun, entry: list[int]) -> None:
        """Note that nothing tells what became of the transaction of an entry.

        Raises:
            CorruptEntryError: An entry is broken that may have been its marker.
        """
        if self._outcomes.damage is not None and not self._tally.salvage:
            raise self._outcomes.damage
        if run.is_in_range:
            self._open.add((entry[layout.TXN_MOST], entry[layout.TXN_LEAST]))


class RunOutcomes:
    """What became of the transactions of one run, as far as it was asked for.

    Args:
        metrics: Receives the counts of messages that are left out.
        undecided: Flags of entries that nothing is known of unless it is added: `CHUNKED`, or
            `TRANSACTION` too.
    """

    def __init__(self, metrics: ReadMetrics, undecided: int) -> None:
        self._metrics = metrics
        self._undecided = undecided
        self._numbers = array("q")
        self._outcomes: list[Outcome] = []

    def add(self, entry: list[int], outcome: Outcome) -> None:
        """Note what became of the transaction of an entry."""
        if len(self._outcomes) == _MAX_OUTCOMES:
            self.count()
        flag = 0 if outcome is Outcome.COMMITTED else layout.LEFT_OUT
        self._numbers.extend((entry[layout.TXN_MOST], entry[layout.TXN_LEAST], flag, 0))
        self._outcomes.append(outcome)

    def apply(self, run: EntryRun, first: int) -> int:
        """Leave out what is not given of a run's entries from one on; gives the first undecided."""
        undecided: int = builds.in_use.delivery.leave_out(
            run.table, first, run.count, self._undecided, self._numbers
        )
        return undecided

    def count(self) -> None:
        """Report the messages of all these transactions, and forget what became of them."""
        for place, outcome in enumerate(self._outcomes):
            _count(self._metrics, outcome, self._numbers[_OUTCOME_WIDTH * place + 3])
        self._numbers = array("q")
        self._outcomes.clear()


def _count(metrics: ReadMetrics, outcome: Outcome, messages: int) -> None:
    if outcome is Outcome.ABORTED:
        metrics.aborted_messages += messages
    elif outcome is Outcome.OPEN:
        metrics.open_messages += messages
