"""The check that entries come in the order in which their broker numbered them.

A data object does not contain its ledger id. But if brokers count messages (PIP-70,
`AppendIndexMetadataInterceptor`), the index in the broker metadata increases with every entry of a
topic, across ledgers. The index decreases only when a count restarts at 0: after a topic was
deleted and recreated, or in ledgers that were appended offline.
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
    """Compares the broker index of each entry with that of the previous one.

    Attributes:
        first: Broker index of the first entry; None if it has none or starts a count.
        last: Broker index of the last entry; None if it has none.
    """

    def __init__(self) -> None:
        self.first: int | None = None
        self.last: int | None = None
        self._is_empty = True

    def errors(self, run: EntryRun) -> Iterator[EntryOrderError]:
        """Compare every entry of the next run with the one before it.

        Yields:
            An error for each entry whose index is not above that of the previous entry.
        """
        error = self._compare(run, 0)
        if error is not None:
            yield error
        entry = 0
        while True:
            entry = builds.in_use.entries.next_index_decrease(run.table, entry, run.count)
            if entry >= run.count:
                break
            self.last = _broker_index(run.fields(entry - 1))
            error = self._compare(run, entry)
            if error is not None:
                yield error
        self.last = _broker_index(run.fields(run.count - 1))

    def errors_at_ends(self, run: EntryRun) -> Iterator[EntryOrderError]:
        """Like `errors`, but compare only the first and the last entry of the next run."""
        for entry in (0, run.count - 1)[: run.count]:
            error = self._compare(run, entry)
            if error is not None:
                yield error

    def _compare(self, run: EntryRun, entry: int) -> EntryOrderError | None:
        numbers = run.fields(entry) if run.possible_flags & layout.HAS_BROKER_INDEX else []
        index = _broker_index(numbers)
        restarts = index is not None and index + 1 == max(numbers[layout.BATCH_SIZE], 1)
        if self._is_empty:
            self.first, self._is_empty = None if restarts else index, False
        # Compare nothing after an entry without an index: the broker may have restarted its count.
        previous, self.last = self.last, index
        if index is None or restarts or not goes_back(previous, index):
            return None
        error = order_error(previous, index)
        run.locate(error, entry)
        return error


def _broker_index(entry: list[int]) -> int | None:
    """Return the broker index of an entry's last message; None if it has none or is broken.

    The numbers of the entry are empty if it surely has none.
    """
    mask = layout.HAS_BROKER_INDEX | layout.BROKEN
    if not entry or entry[layout.FLAGS] & mask != layout.HAS_BROKER_INDEX:
        return None
    return entry[layout.BROKER_INDEX]


def goes_back(previous: int | None, index: int | None) -> bool:
    """Return whether an index is not above the previous one; False if either is None."""
    return previous is not None and index is not None and index <= previous


def order_error(previous: int | None, index: int | None) -> EntryOrderError:
    """Return the error for an entry whose broker index is not above the previous one."""
    message = (
        f"the broker gave index {index} after {previous}: either objects of ledgers were swapped,"
        " or these are ledgers of two topics of the same name, a deleted one and a newer one"
        " without its first ledgers. Pass metadata to select the ledgers of the topic, or start to"
        " leave out the older ones"
    )
    return EntryOrderError(message)
