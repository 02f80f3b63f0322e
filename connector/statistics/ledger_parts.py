"""Zones gathered from blocks of ledgers that are read for another purpose, such as a copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from connector.statistics.gathering import zone_row
from connector.statistics.whole_ledgers import ZoneSplitter

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from arrow_io.ledgers.ledger import Ledger
    from arrow_io.messages.entry_run import EntryRun
    from connector.statistics.gathering import ZoneRow


@dataclass(frozen=True, slots=True)
class LedgerPart:
    """The zones of consecutive blocks of a ledger, none of whose entries is lost. Picklable.

    Attributes:
        last_entry_id: Last entry of the blocks (inclusive).
        length_bytes: Sum of the lengths of the entries' data.
        zones: Rows of statistics of their zones, in order.
    """

    topic: str
    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    length_bytes: int
    zones: tuple[ZoneRow, ...]


class ZoneGatherer:
    """Gathers zones of some ledgers in `parts` while another consumer reads their entries."""

    def __init__(self, topic: str, ledger_ids: Container[int]) -> None:
        self._topic = topic
        self._ledger_ids = ledger_ids
        self.parts: list[LedgerPart] = []

    def gather(
        self, ledger: Ledger, ends: tuple[int, int], runs: Iterator[EntryRun], *, verified: bool
    ) -> Iterator[EntryRun]:
        """Yield the same entries; if they are whole blocks, add a part once all have passed.

        Args:
            ledger: Their ledger.
            ends: The first and last (inclusive) requested entry.
            runs: The entries. The consumer may change their tables.
            verified: Whether their checksums were compared; if not, they are compared for the
                zones.
        """
        first, last = ends
        if ledger.ledger_id not in self._ledger_ids or not _are_whole_blocks(ledger, first, last):
            yield from runs
            return
        splitter, rows = ZoneSplitter(), []
        entries = length_bytes = 0
        for run in runs:
            own_run = run.copy_table()
            if not verified:
                own_run.verify_checksums()
            rows += [zone_row(ledger, self._topic, each) for each in splitter.add(own_run)]
            entries += run.count
            length_bytes += run.frame_bytes
            yield run
        rows += [zone_row(ledger, self._topic, each) for each in splitter.flush()]
        if entries == last - first + 1:
            self.parts.append(
                LedgerPart(self._topic, ledger.ledger_id, first, last, length_bytes, tuple(rows))
            )


def _are_whole_blocks(ledger: Ledger, first: int, last: int) -> bool:
    blocks = ledger.blocks(first, last)
    return bool(blocks) and blocks[0].first_entry_id == first and blocks[-1].last_entry_id == last
