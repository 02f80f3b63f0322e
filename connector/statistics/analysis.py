"""Fills a folder of statistics with what it does not know yet of some ledgers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from arrow_io.core.wording import agreeing, counted
from connector.statistics.data_objects import DataObjects
from connector.statistics.gathering import zone_row
from connector.statistics.whole_ledgers import unexplained, whole_ledgers
from connector.statistics.zone_writer import ZoneWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from arrow_io.ledgers.ledger import Ledger
    from connector.statistics.gathering import ZoneRow
    from connector.statistics.store import Statistics
    from connector.statistics.whole_ledgers import Explaining


@dataclass(frozen=True, slots=True)
class Analyzed:
    """What became of a ledger.

    Attributes:
        topic: Its topic or partition.
        ledger_id: Its id.
        zones: How many zones it has.
        bytes: How many bytes they have.
        losses: What could not be read of it, in words.
    """

    topic: str
    ledger_id: int
    zones: int
    bytes: int
    losses: tuple[str, ...]


Analyzer: TypeAlias = """Callable[
    [Statistics, Sequence[tuple[str, Ledger]], Callable[[Analyzed], None], Explaining], object
]"""
"""What fills a folder as `analyze` does, in this process or elsewhere."""


def unknown_ledgers(statistics: Statistics, topic: str, ledgers: Sequence[Ledger]) -> list[Ledger]:
    """Those of a topic's ledgers whose objects, in these versions, statistics do not know."""
    objects = DataObjects((topic, each) for each in ledgers)
    recorded: set[int] = set()
    for _, rows in statistics.ledgers(topic):
        recorded.update(rows.filter(objects.are_same(rows)).column("ledger_id").to_pylist())
    return [each for each in ledgers if each.ledger_id not in recorded]


def analyze(
    statistics: Statistics,
    ledgers: Iterable[tuple[str, Ledger]],
    progress: Callable[[Analyzed], None] = lambda _: None,
    explaining: Explaining = unexplained,
    *,
    threads: int | None = None,
) -> Statistics:
    """Read ledgers whole, and write what they hold.

    Whatever is written holds whole ledgers; if the run is killed, the next one goes on behind it.

    Args:
        statistics: The folder.
        ledgers: Ledgers, with the name of the topic or partition of each.
        progress: Called after each ledger that was read.
        explaining: As `whole_ledgers` takes it.
        threads: In how many they are decoded; None: in as many as there are cores.

    Returns:
        The folder, with the new files.

    Raises:
        OptionError: The folder cannot be written to.
        TrimmedEntriesError: The cluster trimmed a ledger; what was read before is written.
        StorageError: A request went on failing; likewise.
    """
    with ZoneWriter(statistics) as writer:
        for whole in whole_ledgers(ledgers, zone_row, threads=threads, explaining=explaining):
            rows = whole.zones
            writer.add(whole, rows)
            losses = *whole.losses, *_damage(rows)
            ledger = whole.ledger
            size_bytes = ledger.stored_bytes
            progress(Analyzed(whole.topic, ledger.ledger_id, len(rows), size_bytes, losses))
    return writer.statistics


def _damage(rows: Iterable[ZoneRow]) -> Iterator[str]:
    """Which zones of a ledger have entries that are not as they were written, in words."""
    for row in rows:
        if row["damaged"]:
            number, first, last = (row[n] for n in ("damaged", "first_entry_id", "last_entry_id"))
            verb = agreeing(number, "is", "are")
            among = f"among entries {first} … {last} of ledger {row['ledger_id']}"
            yield f"{among}, {counted(number, 'entry')} {verb} damaged ({row['object']})"
