"""Fills a folder of statistics with what it does not know yet of some ledgers."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from arrow_io.read_report import Unit
from arrow_io.storage.ranges_ahead import RangesAhead
from arrow_io.tally import Tally
from arrow_io.wording import agreeing, counted
from connector.read_ahead import read_ahead
from connector.statistics.gathering import segment_units
from connector.statistics.segments import IDENTITY, SEGMENT_SCHEMA, version_text

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from arrow_io.ledger_data import LedgerData
    from arrow_io.read_report import ReadReport
    from connector.statistics.gathering import SegmentRow
    from connector.statistics.store import Statistics

_FILE_ROWS: Final = 16_384
"""About how many segments stand in a file: 16 GiB of data, which a killed run has to read again."""
_FILE_BYTES: Final = 64 << 20
"""Fewer do if their filters of keys have so many bytes."""


@dataclass(frozen=True, slots=True)
class Analyzed:
    """What became of a ledger.

    Attributes:
        topic: Its topic or partition.
        ledger_id: Its id.
        segments: How many segments it has.
        bytes: How many bytes they have.
        losses: What could not be read of it, in words.
        is_sound: Whether nothing is wrong but in entries. Else whoever reads has to read it whole,
            to meet what is wrong in what stands around them.
    """

    topic: str
    ledger_id: int
    segments: int
    bytes: int
    losses: tuple[str, ...]
    is_sound: bool = True


Analyzer: TypeAlias = """Callable[
    [Statistics, Sequence[tuple[str, LedgerData]], Callable[[Analyzed], None]], object
]"""
"""What fills a folder as `analyze` does, in this process or elsewhere."""


def unknown_ledgers(
    statistics: Statistics, topic: str, ledgers: Sequence[LedgerData]
) -> list[LedgerData]:
    """Those of a topic's ledgers whose objects, in these versions, statistics do not know."""
    known: set[tuple[object, ...]] = set()
    for _, found in statistics.ledgers(topic):
        columns = (found.column(name).to_pylist() for name in IDENTITY[1:])
        known |= set(zip(*columns, strict=True))
    return [each for each in ledgers if _identity(each) not in known]


def analyze(
    statistics: Statistics,
    ledgers: Iterable[tuple[str, LedgerData]],
    progress: Callable[[Analyzed], None] = lambda _: None,
    *,
    threads: int | None = None,
) -> Statistics:
    """Read ledgers whole, and write what they hold.

    Whatever is written holds whole ledgers; if the run is killed, the next one goes on behind it.

    Args:
        statistics: The folder.
        ledgers: Ledgers, with the name of the topic or partition of each.
        progress: Called after each ledger that was read.
        threads: In how many they are decoded; None: in as many as there are cores.

    Returns:
        The folder, with the new files.

    Raises:
        OptionError: The folder cannot be written to.
        StorageError: A request went on failing; what was read before is written.
    """
    statistics.location.check_writable()
    pending: list[SegmentRow] = []
    mine: list[SegmentRow] = []
    size_bytes = 0
    with closing(read_ahead(_units(ledgers), threads=threads or os.cpu_count() or 1)) as done:
        try:
            for each in done:
                if isinstance(each, Analyzed):
                    damage = tuple(_damage(mine))
                    pending += mine if each.is_sound else map(_all_damaged, mine)
                    mine = []
                    progress(replace(each, losses=each.losses + damage))
                else:
                    mine.append(each)
                    size_bytes += len(each.get("keys", b""))
                if not mine and (len(pending) >= _FILE_ROWS or size_bytes >= _FILE_BYTES):
                    statistics, pending, size_bytes = _written(statistics, pending), [], 0
        finally:
            statistics = _written(statistics, pending)
    return statistics


def _damage(rows: Iterable[SegmentRow]) -> Iterator[str]:
    """Which segments of a ledger have entries that are not as they were written, in words."""
    for row in rows:
        if row["damaged"]:
            number, first, last = (row[n] for n in ("damaged", "first_entry_id", "last_entry_id"))
            verb = agreeing(number, "is", "are")
            among = f"among entries {first} … {last} of ledger {row['ledger_id']}"
            yield f"{among}, {counted(number, 'entry')} {verb} damaged ({row['object']})"


def _written(statistics: Statistics, rows: Sequence[SegmentRow]) -> Statistics:
    if not rows:
        return statistics
    return statistics.added(pa.Table.from_pylist(list(rows), SEGMENT_SCHEMA))


def _units(
    ledgers: Iterable[tuple[str, LedgerData]],
) -> Generator[Callable[[], SegmentRow | Analyzed], None, None]:
    """The segments of each ledger, and behind them what became of it."""
    pairs = list(ledgers)
    spans = (ledger.byte_span(0, ledger.last_entry_id) for _, ledger in pairs)
    with RangesAhead(span for span in spans if span is not None) as ahead:
        for topic, ledger in pairs:
            tally = Tally(salvage=True)
            counts: Counter[str] = Counter()
            for unit in segment_units(ledger, topic, tally, ahead):
                counts["segments"] += 1
                yield unit
            yield _ended(topic, ledger, counts["segments"], tally.report)


def _ended(
    topic: str, ledger: LedgerData, segments: int, report: ReadReport
) -> Callable[[], Analyzed]:
    losses = tuple(report.losses)
    is_sound = all(unit is Unit.ENTRY for unit, _ in report.lost)
    return lambda: Analyzed(topic, ledger.ledger_id, segments, ledger.data_stop, losses, is_sound)


def _all_damaged(segment: SegmentRow) -> SegmentRow:
    return segment | {"damaged": segment["last_entry_id"] - segment["first_entry_id"] + 1}


def _identity(ledger: LedgerData) -> tuple[Any, ...]:
    return (
        ledger.ledger_id,
        ledger.name.data_name,
        ledger.data_stop,
        version_text(ledger.version),
    )
