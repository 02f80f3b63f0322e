"""Whether entries come in the order in which their broker numbered them.

A data object has no ledger id in it. But where brokers count messages (PIP-70,
`AppendIndexMetadataInterceptor`), the index in an entry's broker metadata rises from each entry of
a topic to the next, through all its ledgers.
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
            if self._last is not None and index is not None and index <= self._last:
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


def out_of_order(before: int, index: int) -> EntryOrderError:
    """The error for an entry that has this broker index, behind one that has that before."""
    message = (
        f"the broker gave index {index} behind {before}: the data objects of two ledgers were"
        " swapped, or the topic was deleted and made anew under its name"
    )
    return EntryOrderError(message)
