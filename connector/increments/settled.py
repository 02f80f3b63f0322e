"""The settled position of a topic: where its oldest open transaction begins, or else its end.

A message of a transaction becomes a row when a later marker commits it. A reader that passed an
open transaction, which has no marker yet, would never return its rows. So increments end before it.

Statistics record the transactions of some ledgers. The other new ledgers, and the one that was read
last, are probed: a sample of their entries is read. If no sample shows a transaction, the topic is
assumed to have none, which saves downloading it twice. (A task that meets an open transaction then
fails with an error.) If a sample shows one, all new entries are scanned before the tasks run.
Ledgers never change, so nothing is scanned twice.

The outcomes of a segment's transactions are metadata, which changes. Entries up to its watermark
need no scan, and the entry that holds back the position is looked up again with each new metadata.
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from arrow_io.core.threads import ContextThreadPool
from arrow_io.errors import MissingObjectError
from arrow_io.format.entry_frame import ENTRY_HEADER_BYTES
from arrow_io.messages import layout
from arrow_io.messages.transactions import TXN_ABORT, TXN_COMMIT, Outcome
from arrow_io.read_metrics import Tally
from connector.increments.progress import Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from arrow_io.errors import CorruptEntryError
    from arrow_io.ledgers.ledger import Block, Ledger
    from arrow_io.messages.entry_run import EntryRun
    from arrow_io.messages.transactions import TransactionId, TransactionOutcomes
    from connector.statistics.transactions import RecordedTransactions, ZoneTransactions

_TXN_COMMITTING: Final = 20
_TXN_MARKERS: Final = frozenset({_TXN_COMMITTING, TXN_COMMIT, TXN_ABORT})

_PROBE_BYTES: Final = 64 << 10
"""Approximate number of bytes that are probed of a data block."""
_PROBED_BLOCKS: Final = 16
"""Number of probed data blocks of a ledger, including the last; 1 GiB of Pulsar's default size."""
_CONCURRENT_PROBES: Final = 16


class OpenTransactions:
    """The open transactions of one topic partition, as far as its ledgers were scanned.

    Args:
        verify_checksums: Whether an entry whose CRC32C differs counts as damaged.
        salvage: Whether damage is skipped, because the read of the rows counts it.

    Attributes:
        recorded: The transactions that statistics record; None if there are no statistics.
        outcomes: The current outcomes of a segment's transactions; None if markers decide.
    """

    def __init__(self, *, verify_checksums: bool = True, salvage: bool = False) -> None:
        self.recorded: RecordedTransactions | None = None
        self.outcomes: TransactionOutcomes | None = None
        self._verify = verify_checksums
        self._salvage = salvage
        self._probed: set[int] = set()
        self._has_transactions = False
        self._scanned_to = Position(0, 0)
        self._open_positions: dict[str, Position] = {}
        self._damage: CorruptEntryError | None = None
        self._undecided: tuple[Position, TransactionId] | None = None

    @property
    def problems(self) -> Sequence[str]:
        """Why some of the statistics could not be used, as sentences."""
        return () if self.recorded is None else self.recorded.problems

    def needs_probe(self, ledger: Ledger) -> bool:
        """Return whether a ledger has to be probed: none has to if a transaction was found."""
        return (
            not self._has_transactions
            and ledger.ledger_id not in self._probed
            and Position(ledger.ledger_id, ledger.last_entry_id) >= self._watermark
        )

    @property
    def _watermark(self) -> Position:
        """The position before which a segment's metadata decides about all transactions."""
        if self.outcomes is None or self.outcomes.watermark is None:
            return Position(0, 0)
        ledger_id, entry_id = self.outcomes.watermark
        return Position(ledger_id, entry_id + 1)

    def unprobed(self, ledgers: Iterable[Ledger]) -> Iterator[Ledger]:
        """Yield the ledgers that have to be probed before `settled_position` can be called."""
        unprobed = [each for each in ledgers if self.needs_probe(each)]
        if self.recorded is not None and unprobed:
            is_transactional = self.recorded.have_transactions(unprobed)
            self._probed |= is_transactional.keys()
            self._has_transactions |= any(is_transactional.values())
        if not self._has_transactions:
            yield from (each for each in unprobed if each.ledger_id not in self._probed)

    def probe(self, ledger: Ledger) -> None:
        """Read a sample of a ledger; safe to call from several threads.

        Raises:
            StorageError: The data object cannot be read.
        """
        # Retention may have deleted it meanwhile; the read of its rows reports that.
        with suppress(MissingObjectError):
            # Only ever set to True, so that concurrent probes do not undo each other.
            if any(map(_shows_transaction, _first_entries(ledger))):
                self._has_transactions = True
        self._probed.add(ledger.ledger_id)

    def settled_position(
        self, ledgers: Sequence[Ledger], start: Position, stop: Position
    ) -> Position:
        """Return the settled position between `start` and `stop`; `stop` if no transaction is open.

        Args:
            ledgers: All readable ledgers, ascending; those with entries between start and stop must
                have been probed.
            start: Position before which everything is settled.
            stop: Maximum position to return.

        Raises:
            PulsarOffloadError: The entries cannot be read.
        """
        if not self._has_transactions:
            return stop
        if self.outcomes is not None:
            return self._decided_position(self.outcomes, ledgers, start, stop)
        if min(self._open_positions.values(), default=start) < start:
            # Another reader passed a transaction that is open here: this state is outdated.
            self._open_positions, self._scanned_to = {}, start
        self._scanned_to = max(self._scanned_to, start)
        while self._scanned_to < stop or self._oldest(stop) < stop:
            if not self._scan_next(ledgers):
                break
        position = self._oldest(stop)
        if position < stop and self._damage is not None and not self._salvage:
            # The damaged entry may have been the marker.
            raise self._damage
        return position

    def _decided_position(
        self,
        outcomes: TransactionOutcomes,
        ledgers: Sequence[Ledger],
        start: Position,
        stop: Position,
    ) -> Position:
        """Return the position of the first message without an outcome, or `stop`."""
        if self._undecided is not None:
            position, transaction = self._undecided
            if start <= position and not _is_decided(outcomes, transaction, position):
                return min(position, stop)
            # The rest of its data block was not scanned.
            self._scanned_to, self._undecided = position, None
        self._scanned_to = max(self._scanned_to, start, self._watermark)
        while self._scanned_to < self._oldest_undecided(stop):
            if not self._scan_next(ledgers):
                break
        return self._oldest_undecided(stop)

    def _oldest_undecided(self, stop: Position) -> Position:
        return stop if self._undecided is None else min(self._undecided[0], stop)

    def _oldest(self, stop: Position) -> Position:
        # The dict is in the order in which the transactions began.
        return min(next(iter(self._open_positions.values()), stop), stop)

    def _scan_next(self, ledgers: Sequence[Ledger]) -> bool:
        """Scan the next recorded ledger or unrecorded data block; return False at the end."""
        index = bisect_left(ledgers, self._scanned_to.ledger_id, key=_ledger_id)
        if index == len(ledgers):
            return False
        ledger = ledgers[index]
        is_same_ledger = ledger.ledger_id == self._scanned_to.ledger_id
        first = self._scanned_to.entry_id if is_same_ledger else 0
        zones = None if self.recorded is None else self.recorded.zones(ledgers, index)
        last = ledger.last_entry_id
        if zones is None and first <= last:
            blocks = ledger.blocks(first, ledger.last_entry_id)
            last = blocks[0].last_entry_id if len(blocks) > 1 else last
            self._read(ledger, first, last)
        else:
            self._note_zones(ledger, first, zones or ())
        self._scanned_to = position_after(ledger, last)
        return True

    def _read(self, ledger: Ledger, first: int, last: int) -> None:
        tally = Tally(salvage=self._salvage)
        for run in ledger.entry_runs(first, last, tally, verify_checksums=self._verify):
            if self.outcomes is None:
                self._note_run(run)
                continue
            self._undecided = _first_undecided(self.outcomes, run)
            if self._undecided is not None:
                return

    def _note_zones(self, ledger: Ledger, first: int, zones: Iterable[ZoneTransactions]) -> None:
        """Update the open transactions from recorded zones of a ledger, from an entry on."""
        for each in zones:
            if each.last_entry_id < first:
                continue
            if self.outcomes is not None:
                last = Position(ledger.ledger_id, each.last_entry_id)
                transactions = map(_transaction_id, each.first_entry_ids)
                if not all(_is_decided(self.outcomes, one, last) for one in transactions):
                    self._read(ledger, max(first, each.first_entry_id), each.last_entry_id)
                if self._undecided is not None:
                    return
                continue
            undecided = [name for name in each.first_entry_ids if name not in each.outcomes]
            if any(each.first_entry_ids[name] < first for name in undecided):
                # Statistics do not say whether they have another message from that entry on.
                self._read(ledger, first, each.last_entry_id)
                continue
            for name in each.outcomes:
                self._open_positions.pop(name, None)
            for name in undecided:
                position = Position(ledger.ledger_id, each.first_entry_ids[name])
                self._open_positions.setdefault(name, position)

    def _note_run(self, run: EntryRun) -> None:
        for index in run.flagged(layout.MARKER | layout.TRANSACTION | layout.BROKEN):
            flags = run.number(index, layout.FLAGS)
            if flags & layout.BROKEN:
                self._damage = self._damage or run.error(index)
                continue
            most, least = run.number(index, layout.TXN_MOST), run.number(index, layout.TXN_LEAST)
            name = f"({most},{least})"
            if not flags & layout.MARKER:
                position = Position(run.ledger_id, run.number(index, layout.ENTRY_ID))
                self._open_positions.setdefault(name, position)
            elif run.number(index, layout.MARKER_TYPE) in {TXN_COMMIT, TXN_ABORT}:
                self._open_positions.pop(name, None)


def _first_undecided(
    outcomes: TransactionOutcomes, run: EntryRun
) -> tuple[Position, TransactionId] | None:
    """Return position and transaction of the first entry whose transaction has no outcome."""
    for index in run.flagged(layout.TRANSACTION):
        if run.number(index, layout.FLAGS) & layout.MARKER:
            continue
        transaction = run.number(index, layout.TXN_MOST), run.number(index, layout.TXN_LEAST)
        position = Position(run.ledger_id, run.number(index, layout.ENTRY_ID))
        if not _is_decided(outcomes, transaction, position):
            return position, transaction
    return None


def _is_decided(
    outcomes: TransactionOutcomes, transaction: TransactionId, position: Position
) -> bool:
    return outcomes.outcome(*transaction, position) in {Outcome.COMMITTED, Outcome.ABORTED}


def _transaction_id(name: str) -> TransactionId:
    """Return the id bits of a `__txn_id__`."""
    most, least = name[1:-1].split(",")
    return int(most), int(least)


def probe_all(probes: Iterable[tuple[OpenTransactions, Ledger]]) -> None:
    """Probe ledgers of any topics concurrently.

    Raises:
        StorageError: A data object cannot be read.
    """
    pairs = list(probes)
    if pairs:
        with ContextThreadPool(min(len(pairs), _CONCURRENT_PROBES)) as executor:
            list(executor.map(lambda pair: pair[0].probe(pair[1]), pairs))


def position_after(ledger: Ledger, last_entry_id: int) -> Position:
    """Return the position after an entry; after a ledger's last entry, entry 0 of the next id."""
    if last_entry_id >= ledger.last_entry_id:
        return Position(ledger.ledger_id + 1, 0)
    return Position(ledger.ledger_id, last_entry_id + 1)


def _first_entries(ledger: Ledger) -> Iterator[EntryRun]:
    """Yield the first entries of a sample of a ledger's blocks."""
    small = ledger.with_range_bytes(_PROBE_BYTES)
    blocks = small.blocks(0, small.last_entry_id)
    step = -(-len(blocks) // _PROBED_BLOCKS) or 1
    for block in reversed(blocks[::-step]):
        entry_count = _PROBE_BYTES // _mean_bytes(ledger, block) or 1
        last = min(block.first_entry_id + entry_count - 1, block.last_entry_id)
        # Damage is skipped here, because the read of the rows reports it.
        yield from small.entry_runs(block.first_entry_id, last, Tally(salvage=True))


def _mean_bytes(ledger: Ledger, block: Block) -> int:
    if ledger.length_bytes:
        return ENTRY_HEADER_BYTES + ledger.length_bytes // (ledger.last_entry_id + 1)
    entries = block.last_entry_id - block.first_entry_id + 1
    return max(ENTRY_HEADER_BYTES, (block.stop - block.start) // entries)


def _shows_transaction(run: EntryRun) -> bool:
    for index in run.flagged(layout.MARKER | layout.TRANSACTION):
        if run.number(index, layout.FLAGS) & layout.TRANSACTION:
            return True
        if run.number(index, layout.MARKER_TYPE) in _TXN_MARKERS:
            return True
    return False


def _ledger_id(ledger: Ledger) -> int:
    return ledger.ledger_id
