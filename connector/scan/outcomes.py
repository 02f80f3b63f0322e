"""Outcomes of transactions that statistics record, so that a read need not look for markers.

Without a recorded outcome, a task reads entries after its ranges until it finds the transaction's
marker. For an open transaction it reads to the end of the topic.
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
"""Maximum number of outcomes that tasks carry; for other transactions they look for the markers."""
_MAX_MENTIONS: Final = 1_000_000
"""Maximum number of mentions of transactions to look through before giving up."""


def add_outcomes(
    read: TopicRead, ledgers: Sequence[Ledger], statistics: Statistics | None
) -> TopicRead:
    """Return the read with the recorded outcomes of its transactions.

    Only transactions that begin and end in different zones need one: within a zone, the reader
    meets the marker anyway.

    Raises:
        StorageError: Statistics cannot be read.
    """
    if statistics is None or read.options.uncommitted or not read.ranges:
        return read
    if read.segment_outcomes is not None:
        # A segment has no markers that statistics could record.
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
    # Transactions without a marker so far, and the first ledger with their messages.
    pending: dict[str, int] = {}
    closed: set[str] = set()
    # Transactions with a message after the marker: a read that starts between them finds no marker.
    doubtful: set[str] = set()
    last = read.ranges[-1].ledger_id
    mentions = 0
    for index in range(
        bisect_left(ledgers, read.ranges[0].ledger_id, key=_ledger_id), len(ledgers)
    ):
        ledger_id = ledgers[index].ledger_id
        zones = transactions.zones(ledgers, index)
        if zones is None:
            # The unrecorded ledger may contain the markers.
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
