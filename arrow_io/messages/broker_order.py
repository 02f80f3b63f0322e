"""Whether entries come in the order in which their broker numbered them.

A data object has no ledger id in it. But if brokers count messages (PIP-70,
`AppendIndexMetadataInterceptor`), the index in an entry's broker metadata rises from each entry of
a topic to the next, through all its ledgers. Only a count that begins at 0 goes back: that of a
topic that was deleted and made anew, or of ledgers that were appended offline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrow_io.core import builds
from arrow_io.errors import EntryOrderError
from arrow_io.messages import layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arrow_io.messages.entry_run import EntryRun


class BrokerOrder:
    """Compares each entry that it is shown with the one that it was shown before.

    Attributes:
        first: Broker's index of the first entry; None if it has none or begins a count.
        last: That of the last entry; None if it has none.
    """

    def __init__(self) -> None:
        self.first: int | None = None
        self.last: int | None = None
        self._is_empty = True

    def errors(self, run: EntryRun) -> Iterator[EntryOrderError]:
        """Compare the next run of entries, each with the one before it.

        Yields:
            An error for each entry whose index is not above that of the one before it.
        """
        error = self._compared(run, 0)
        if error is not None:
            yield error
        entry = 0
        while True:
            entry = builds.in_use.entries.next_going_back(run.table, entry, run.count)
            if entry >= run.count:
                break
            self.last = _broker_index(run, entry - 1)
            error = self._compared(run, entry)
            if error is not None:
                yield error
        self.last = _broker_index(run, run.count - 1)

    def errors_at_ends(self, run: EntryRun) -> Iterator[EntryOrderError]:
        """Compare the first entry of the next run with the one before it, and the last with it.

        Yields:
            As `errors`.
        """
        for entry in (0, run.count - 1)[: run.count]:
            error = self._compared(run, entry)
            if error is not None:
                yield error

    def _compared(self, run: EntryRun, entry: int) -> EntryOrderError | None:
        index = _broker_index(run, entry)
        begins = index is not None and index + 1 == max(run.number(entry, layout.BATCH_SIZE), 1)
        if self._is_empty:
            self.first, self._is_empty = None if begins else index, False
        # An entry without an index: the broker did not count, and may have begun anew since.
        before, self.last = self.last, index
        if index is None or begins or not goes_back(before, index):
            return None
        error = order_error(before, index)
        run.locate(error, entry)
        return error


def _broker_index(run: EntryRun, entry: int) -> int | None:
    """The broker's index of an entry's last message; None if it has none, or is broken."""
    mask = layout.HAS_BROKER_INDEX | layout.BROKEN
    if run.table[entry * layout.ENTRY_WIDTH + layout.FLAGS] & mask != layout.HAS_BROKER_INDEX:
        return None
    return run.number(entry, layout.BROKER_INDEX)


def goes_back(before: int | None, index: int | None) -> bool:
    """Whether an index is not above the one before it; False if either is not known."""
    return before is not None and index is not None and index <= before


def order_error(before: int | None, index: int | None) -> EntryOrderError:
    """The error for an entry that has this broker index, behind one that has that before."""
    message = (
        f"the broker gave index {index} behind {before}: either objects of ledgers were swapped, or"
        " these are ledgers of two topics of one name, the older one deleted and the newer one"
        " without its first ledgers; metadata says which ledgers the topic has, and start can leave"
        " out the older ones"
    )
    return EntryOrderError(message)
