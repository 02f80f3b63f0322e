"""How far a topic is settled: before the oldest transaction that has no outcome yet.

A row of a transaction is given if a marker behind it says so. Who reads up to an open transaction
and goes on behind it later would never give its rows; so what is new ends before it.

Statistics tell of the transactions of the ledgers that they know. Of the others only the entries
do. A little of each new one is read first, and of the one that was read last; if that shows none,
the topic is taken to have none, and is not downloaded twice. (A task that meets an open one
nevertheless says so, and fails.) If it shows any, all new entries are read once, ahead of the
tasks. Ledgers never change, so nothing is looked at a second time.
"""

from __future__ import annotations

from bisect import bisect_left
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from arrow_io.errors import MissingObjectError
from arrow_io.format.entry_frame import ENTRY_HEADER_BYTES
from arrow_io.messages import layout
from arrow_io.messages.transactions import TXN_ABORT, TXN_COMMIT
from arrow_io.read_metrics import Tally
from connector.increments.progress import Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from arrow_io.errors import CorruptEntryError
    from arrow_io.ledgers.ledger import Block, Ledger
    from arrow_io.messages.entry_run import EntryRun
    from connector.statistics.transactions import RecordedTransactions, ZoneTransactions

_TXN_COMMITTING: Final = 20
_TXN_MARKERS: Final = frozenset({_TXN_COMMITTING, TXN_COMMIT, TXN_ABORT})

_PROBE_BYTES: Final = 64 << 10
"""About how many bytes are read of a data block."""
_PROBED_BLOCKS: Final = 16
"""Of how many data blocks of a ledger, the last among them; 1 GiB of Pulsar's default size."""
_CONCURRENT_PROBES: Final = 16


class OpenTransactions:
    """The transactions of one topic partition without an outcome, as far as was looked.

    Args:
        verify_checksums: Whether an entry whose CRC32C differs is taken for damaged.
        salvage: Whether damage is passed over: who reads the rows counts it.

    Attributes:
        recorded: What statistics know of them; None: nothing.
    """

    def __init__(self, *, verify_checksums: bool = True, salvage: bool = False) -> None:
        self.recorded: RecordedTransactions | None = None
        self._verify = verify_checksums
        self._salvage = salvage
        self._probed: set[int] = set()
        self._are_used = False
        self._scanned_to = Position(0, 0)
        self._open_positions: dict[str, Position] = {}
        self._damage: CorruptEntryError | None = None

    @property
    def problems(self) -> Sequence[str]:
        """Why some of the statistics could not be used, in words."""
        return () if self.recorded is None else self.recorded.problems

    def needs_probe(self, ledger: Ledger) -> bool:
        """Whether nothing is known of a ledger yet, and it matters."""
        return not self._are_used and ledger.ledger_id not in self._probed

    def unprobed(self, ledgers: Iterable[Ledger]) -> Iterator[Ledger]:
        """The ledgers of which the beginning has to be read before `settled_position` can tell."""
        missing = [each for each in ledgers if self.needs_probe(each)]
        if self.recorded is not None and missing:
            is_transactional = self.recorded.have_transactions(missing)
            self._probed |= is_transactional.keys()
            self._are_used |= any(is_transactional.values())
        if not self._are_used:
            yield from (each for each in missing if each.ledger_id not in self._probed)

    def probe(self, ledger: Ledger) -> None:
        """Read a little of a ledger; several threads may probe several at once.

        Raises:
            StorageError: The data object cannot be read.
        """
        # Retention may have deleted it meanwhile; whoever reads its rows is told.
        with suppress(MissingObjectError):
            # Nothing but a write: what another thread found meanwhile must stand.
            if any(map(_shows_transaction, _first_entries(ledger))):
                self._are_used = True
        self._probed.add(ledger.ledger_id)

    def settled_position(
        self, ledgers: Sequence[Ledger], start: Position, stop: Position
    ) -> Position:
        """The last position up to `stop` before which no transaction is open that was not before.

        Args:
            ledgers: All that can be looked at, ascending, each probed that has entries between
                start and stop.
            start: Before it, everything is settled.
            stop: Greatest position to give.

        Raises:
            PulsarOffloadError: The entries cannot be read.
        """
        if not self._are_used:
            return stop
        if min(self._open_positions.values(), default=start) < start:
            # Somebody else read on: what began before must be found anew.
            self._open_positions, self._scanned_to = {}, start
        self._scanned_to = max(self._scanned_to, start)
        while self._scanned_to < stop or self._oldest(stop) < stop:
            if not self._scan_next(ledgers):
                break
        position = self._oldest(stop)
        if position < stop and self._damage is not None and not self._salvage:
            # It may have been the marker.
            raise self._damage
        return position

    def _oldest(self, stop: Position) -> Position:
        # They stand in the order in which they began.
        return min(next(iter(self._open_positions.values()), stop), stop)

    def _scan_next(self, ledgers: Sequence[Ledger]) -> bool:
        """Look at a ledger, or its entries up to the end of a block; False if there are no more."""
        index = bisect_left(ledgers, self._scanned_to.ledger_id, key=_ledger_id)
        if index == len(ledgers):
            return False
        ledger = ledgers[index]
        is_same_ledger = ledger.ledger_id == self._scanned_to.ledger_id
        first = self._scanned_to.entry_id if is_same_ledger else 0
        zones = None if self.recorded is None else self.recorded.zones(ledgers, index)
        if zones is None:
            blocks = ledger.blocks(first, ledger.last_entry_id)
            last = blocks[0].last_entry_id if len(blocks) > 1 else ledger.last_entry_id
            self._read(ledger, first, last)
        else:
            last = ledger.last_entry_id
            self._note_zones(ledger, first, zones)
        self._scanned_to = position_after(ledger, last)
        return True

    def _read(self, ledger: Ledger, first: int, last: int) -> None:
        tally = Tally(salvage=self._salvage)
        for run in ledger.entry_runs(first, last, tally, verify_checksums=self._verify):
            self._note_run(run)

    def _note_zones(self, ledger: Ledger, first: int, zones: Iterable[ZoneTransactions]) -> None:
        """Note what statistics say of a ledger's entries from one on."""
        for each in zones:
            if each.last_entry_id < first:
                continue
            undecided = [name for name in each.first_entry_ids if name not in each.outcomes]
            if any(each.first_entry_ids[name] < first for name in undecided):
                # They may have another message from there on, or none.
                self._read(ledger, first, each.last_entry_id)
                continue
            for name in each.outcomes:
                self._open_positions.pop(name, None)
            for name in undecided:
                place = Position(ledger.ledger_id, each.first_entry_ids[name])
                self._open_positions.setdefault(name, place)

    def _note_run(self, run: EntryRun) -> None:
        for index in run.flagged(layout.MARKER | layout.TRANSACTION | layout.BROKEN):
            flags = run.number(index, layout.FLAGS)
            if flags & layout.BROKEN:
                self._damage = self._damage or run.error(index)
                continue
            most, least = run.number(index, layout.TXN_MOST), run.number(index, layout.TXN_LEAST)
            name = f"({most},{least})"
            if not flags & layout.MARKER:
                place = Position(run.ledger_id, run.number(index, layout.ENTRY_ID))
                self._open_positions.setdefault(name, place)
            elif run.number(index, layout.MARKER_TYPE) in {TXN_COMMIT, TXN_ABORT}:
                self._open_positions.pop(name, None)


def probe_all(probes: Iterable[tuple[OpenTransactions, Ledger]]) -> None:
    """Probe ledgers of any topics, several at once.

    Raises:
        StorageError: A data object cannot be read.
    """
    pairs = list(probes)
    if pairs:
        with ThreadPoolExecutor(min(len(pairs), _CONCURRENT_PROBES)) as executor:
            list(executor.map(lambda pair: pair[0].probe(pair[1]), pairs))


def position_after(ledger: Ledger, last_entry_id: int) -> Position:
    """The position behind an entry; behind the last one of a ledger, where the next may begin."""
    if last_entry_id >= ledger.last_entry_id:
        return Position(ledger.ledger_id + 1, 0)
    return Position(ledger.ledger_id, last_entry_id + 1)


def _first_entries(ledger: Ledger) -> Iterator[EntryRun]:
    """The first entries of some of a ledger's blocks."""
    small = ledger.with_range_bytes(_PROBE_BYTES)
    blocks = small.blocks(0, small.last_entry_id)
    step = -(-len(blocks) // _PROBED_BLOCKS) or 1
    for block in reversed(blocks[::-step]):
        few = _PROBE_BYTES // _mean_bytes(ledger, block) or 1
        last = min(block.first_entry_id + few - 1, block.last_entry_id)
        # Damage is met again, and told, by who reads the rows.
        yield from small.entry_runs(block.first_entry_id, last, Tally(salvage=True))


def _mean_bytes(ledger: Ledger, block: Block) -> int:
    """About how many bytes an entry takes."""
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
