"""Whether entries come in the order in which their broker numbered them.

A data object has no ledger id in it. But where brokers count messages (PIP-70,
`AppendIndexMetadataInterceptor`), the index in an entry's broker metadata rises from each entry of
a topic to the next, through all its ledgers. Only a count that begins at 0 goes back: that of a
topic that was deleted and made anew, or of ledgers that were appended offline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrow_io.errors import EntryOrderError
from arrow_io.messages import tables

if TYPE_CHECKING:
    from arrow_io.messages.entry_run import EntryRun
    from arrow_io.read_report import ReadReport


class BrokerOrder:
    """Compares the first and the last entry of each run with what came before.

    Args:
        report: Told of runs that are out of order, if it is salvaging.
    """

    def __init__(self, report: ReadReport) -> None:
        self._report = report
        self._last: int | None = None

    def check(self, run: EntryRun) -> None:
        """Compare the next run of a topic's entries.

        Raises:
            EntryOrderError: The index of an entry is not above that of one before it.
        """
        for entry in (0, run.count - 1)[: run.count]:
            index = broker_index(run, entry)
            if goes_back(self._last, index) and not begins_count(run, entry):
                error = out_of_order(self._last, index)
                run.locate(error, entry)
                if not self._report.salvage:
                    raise error
                self._report.doubts.append(str(error))
            # An entry without an index: the broker did not count, and may have begun anew since.
            self._last = index


def broker_index(run: EntryRun, entry: int) -> int | None:
    """The broker's index of an entry's last message; None where it has none, or is broken."""
    flags = run.number(entry, tables.FLAGS)
    if not flags & tables.HAS_BROKER_INDEX or flags & tables.BROKEN:
        return None
    return run.number(entry, tables.BROKER_INDEX)


def goes_back(before: int | None, index: int | None) -> bool:
    """Whether an index is not above the one before it; nothing is said of what has none."""
    return before is not None and index is not None and index <= before


def begins_count(run: EntryRun, entry: int) -> bool:
    """Whether the first message of an entry is the first that a broker counted."""
    last = broker_index(run, entry)
    return last is not None and last + 1 == max(run.number(entry, tables.BATCH_SIZE), 1)


def out_of_order(before: int | None, index: int | None) -> EntryOrderError:
    """The error for an entry that has this broker index, behind one that has that before."""
    message = (
        f"the broker gave index {index} behind {before}: the objects of two ledgers were swapped,"
        " or one is of another ledger"
    )
    return EntryOrderError(message)
