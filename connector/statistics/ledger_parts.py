"""Blocks of ledgers that are read for whatever reason → their zones, made in passing."""

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
    """The zones of consecutive blocks of a ledger. Can be pickled.

    Attributes:
        topic: Its topic or partition.
        ledger_id: Its id.
        first_entry_id: First entry of the blocks.
        last_entry_id: Last entry (inclusive); none between is lost.
        length_bytes: Sum of the lengths of the entries' data.
        zones: What is kept of each of their zones, in order.
    """

    topic: str
    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    length_bytes: int
    zones: tuple[ZoneRow, ...]


class ZoneGatherer:
    """Makes zones of entries on their way to who reads them.

    Args:
        topic: The topic or partition that is read.
        ledger_ids: The ledgers whose zones are made.

    Attributes:
        parts: What was made until now.
    """

    def __init__(self, topic: str, ledger_ids: Container[int]) -> None:
        self._topic = topic
        self._ledger_ids = ledger_ids
        self.parts: list[LedgerPart] = []

    def gather(
        self, ledger: Ledger, ends: tuple[int, int], runs: Iterator[EntryRun], *, verified: bool
    ) -> Iterator[EntryRun]:
        """The same entries; if they are whole blocks, a part is made of them once all have passed.

        Args:
            ledger: Their ledger.
            ends: The first entry and the last one (inclusive) that are asked for.
            runs: The entries. Whoever takes them may change their table.
            verified: Whether their checksums were compared; else that is done for the zones.
        """
        first, last = ends
        if ledger.ledger_id not in self._ledger_ids or not _are_whole_blocks(ledger, first, last):
            yield from runs
            return
        splitter, rows = ZoneSplitter(), []
        entries = length_bytes = 0
        for run in runs:
            own = run.copy_table()
            if not verified:
                own.verify_checksums()
            rows += [zone_row(ledger, self._topic, each) for each in splitter.add(own)]
            entries += run.count
            length_bytes += run.frame_bytes
            yield run
        rows += [zone_row(ledger, self._topic, each) for each in splitter.rest()]
        if entries == last - first + 1:
            self.parts.append(
                LedgerPart(self._topic, ledger.ledger_id, first, last, length_bytes, tuple(rows))
            )


def _are_whole_blocks(ledger: Ledger, first: int, last: int) -> bool:
    blocks = ledger.blocks(first, last)
    return bool(blocks) and blocks[0].first_entry_id == first and blocks[-1].last_entry_id == last
