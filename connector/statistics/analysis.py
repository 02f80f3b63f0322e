"""Fills a folder of statistics with what it does not know yet of some ledgers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from arrow_io.wording import agreeing, counted
from connector.statistics.gathering import segment_row
from connector.statistics.segment_writer import SegmentWriter
from connector.statistics.segments import IDENTITY, version_text
from connector.statistics.whole_ledgers import whole_ledgers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from arrow_io.ledger_data import LedgerData
    from connector.statistics.gathering import SegmentRow
    from connector.statistics.store import Statistics


@dataclass(frozen=True, slots=True)
class Analyzed:
    """What became of a ledger.

    Attributes:
        topic: Its topic or partition.
        ledger_id: Its id.
        segments: How many segments it has.
        bytes: How many bytes they have.
        losses: What could not be read of it, in words.
    """

    topic: str
    ledger_id: int
    segments: int
    bytes: int
    losses: tuple[str, ...]


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
    with SegmentWriter(statistics) as writer:
        for whole in whole_ledgers(ledgers, segment_row, threads=threads):
            rows = whole.segments
            writer.add(whole, rows)
            losses = *whole.losses, *_damage(rows)
            ledger = whole.ledger
            progress(Analyzed(whole.topic, ledger.ledger_id, len(rows), ledger.data_stop, losses))
    return writer.statistics


def _damage(rows: Iterable[SegmentRow]) -> Iterator[str]:
    """Which segments of a ledger have entries that are not as they were written, in words."""
    for row in rows:
        if row["damaged"]:
            number, first, last = (row[n] for n in ("damaged", "first_entry_id", "last_entry_id"))
            verb = agreeing(number, "is", "are")
            among = f"among entries {first} … {last} of ledger {row['ledger_id']}"
            yield f"{among}, {counted(number, 'entry')} {verb} damaged ({row['object']})"


def _identity(ledger: LedgerData) -> tuple[Any, ...]:
    return (
        ledger.ledger_id,
        ledger.name.data_name,
        ledger.data_stop,
        version_text(ledger.version),
    )
