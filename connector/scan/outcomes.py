"""What became of the transactions that a read meets, as far as statistics know it.

Otherwise a task reads on behind its ranges until it meets the marker of each transaction, through
all that need not be read; and to the end of the topic for one that is open.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from arrow_io.format.object_names import MAX_LEDGER_ID
from arrow_io.messages.transactions import Outcome, RecordedOutcome
from connector.scan.topic_read import EntryRange
from connector.statistics.transactions import RecordedTransactions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arrow_io.ledgers.ledger import Ledger
    from connector.scan.topic_read import TopicRead
    from connector.statistics.store import Statistics

_ledger_id: Final = attrgetter("ledger_id")
_MAX_OUTCOMES: Final = 10_000
"""Tasks carry no more; of other transactions they look for the markers."""
_MAX_MENTIONS: Final = 1_000_000
"""After so many mentions of transactions no more are looked up."""


def add_outcomes(
    read: TopicRead, ledgers: Sequence[Ledger], statistics: Statistics | None
) -> TopicRead:
    """The read, with what is known of the transactions that are not closed where they begin.

    Args:
        read: The read.
        ledgers: Its ledgers.
        statistics: What is known of zones, if anything is.

    Raises:
        StorageError: Statistics cannot be read.
    """
    if statistics is None or read.options.uncommitted or not read.ranges:
        return read
    transactions = RecordedTransactions(statistics, read.origin.topic)
    if not transactions.has_any:
        return read
    ledger_ids = {each.ledger_id for each in read.ranges}
    is_transactional = transactions.have_transactions(
        [each for each in ledgers if each.ledger_id in ledger_ids]
    )
    if not any(is_transactional.values()):
        return read
    return replace(read, outcomes=_outcomes(read, ledgers, transactions))


def _outcomes(
    read: TopicRead, ledgers: Sequence[Ledger], transactions: RecordedTransactions
) -> dict[str, RecordedOutcome]:
    outcomes: dict[str, RecordedOutcome] = {}
    # Those whose markers were not met until now, and the ledger from which on they are known.
    pending: dict[str, int] = {}
    closed: set[str] = set()
    # A message stands behind the marker: whoever begins to read between them finds none.
    doubtful: set[str] = set()
    last = read.ranges[-1].ledger_id
    mentions = 0
    for index in range(
        bisect_left(ledgers, read.ranges[0].ledger_id, key=_ledger_id), len(ledgers)
    ):
        ledger_id = ledgers[index].ledger_id
        zones = transactions.zones(ledgers, index)
        if zones is None:
            # The markers may stand in it.
            pending.clear()
        for each in zones or ():
            mentions += len(each.first_entry_ids) + len(each.outcomes)
            doubtful |= each.first_entry_ids.keys() & closed
            closed |= each.outcomes.keys()
            for name in pending.keys() & each.outcomes.keys():
                outcome = Outcome.COMMITTED if each.outcomes[name] else Outcome.ABORTED
                outcomes[name] = RecordedOutcome(pending.pop(name), ledger_id, outcome)
            if read.intersect_ranges(
                EntryRange(ledger_id, each.first_entry_id, each.last_entry_id)
            ):
                for name in each.first_entry_ids.keys() - each.outcomes.keys():
                    pending.setdefault(name, ledger_id)
        if mentions > _MAX_MENTIONS or len(outcomes) + len(pending) > _MAX_OUTCOMES:
            pending.clear()
            break
        if ledger_id >= last and not pending:
            break
    for name, first in pending.items():
        outcomes[name] = RecordedOutcome(first, MAX_LEDGER_ID, Outcome.OPEN)
    certain = (name for name in outcomes if name not in doubtful)
    return {name: outcomes[name] for name in islice(certain, _MAX_OUTCOMES)}
