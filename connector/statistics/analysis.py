"""Analysis: adds zones of ledgers that are not recorded yet to a folder of statistics."""

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
    """The result of analyzing a ledger.

    Attributes:
        topic: Its topic or partition.
        ledger_id: Its id.
        zones: Number of its zones.
        bytes: Number of its stored bytes.
        losses: What could not be read of it, as sentences.
    """

    topic: str
    ledger_id: int
    zones: int
    bytes: int
    losses: tuple[str, ...]


Analyzer: TypeAlias = """Callable[
    [Statistics, Sequence[tuple[str, Ledger]], Callable[[Analyzed], None], Explaining], object
]"""
"""A function like `analyze`, which may use other processes."""


def unknown_ledgers(statistics: Statistics, topic: str, ledgers: Sequence[Ledger]) -> list[Ledger]:
    """Return the ledgers whose objects, in their current versions, statistics do not record."""
    objects = DataObjects((topic, each) for each in ledgers)
    recorded_ids: set[int] = set()
    for _, rows in statistics.ledgers(topic):
        recorded_ids.update(rows.filter(objects.are_same(rows)).column("ledger_id").to_pylist())
    return [each for each in ledgers if each.ledger_id not in recorded_ids]


def analyze(
    statistics: Statistics,
    ledgers: Iterable[tuple[str, Ledger]],
    progress: Callable[[Analyzed], None] = lambda _: None,
    explaining: Explaining = unexplained,
    *,
    threads: int | None = None,
) -> Statistics:
    """Read whole ledgers, write their zones, and return the folder with the new files.

    Each file that is written holds whole ledgers, so a killed run can be continued by the next.
    `progress` is called after each ledger. For the other arguments see `whole_ledgers`.

    Raises:
        OptionError: The folder cannot be written to.
        TrimmedEntriesError: The cluster trimmed a ledger; zones of earlier ledgers are written.
        StorageError: A request failed after all retries; zones of earlier ledgers are written.
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
    """Yield a sentence for each zone that has damaged entries."""
    for row in rows:
        if row["damaged"]:
            number, first, last = (row[n] for n in ("damaged", "first_entry_id", "last_entry_id"))
            verb = agreeing(number, "is", "are")
            among = f"among entries {first} … {last} of ledger {row['ledger_id']}"
            yield f"{among}, {counted(number, 'entry')} {verb} damaged ({row['object']})"
