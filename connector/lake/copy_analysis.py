"""What a copy learns in passing: the tasks' parts of ledgers → whole ledgers in a folder."""

from __future__ import annotations

from contextlib import contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Self

from arrow_io.errors import PulsarOffloadError, UnusedStatisticsWarning
from connector.display.warnings import warn_of_read
from connector.statistics.analysis import unknown_ledgers
from connector.statistics.zone_writer import ZoneWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from arrow_io.ledgers.ledger import Ledger
    from connector.scan.topic_read import TopicRead
    from connector.statistics.ledger_parts import LedgerPart
    from connector.statistics.store import Statistics

_position: Final = attrgetter("topic", "ledger_id", "first_entry_id")


class CopyAnalysis:
    """Writes the zones of ledgers that tasks read whole; a context manager, to write the rest.

    The tasks of a ledger may be of several commits. If the folder cannot be read or written to, a
    warning says so, and nothing more is learned: what is copied does not depend on it.

    Args:
        statistics: The folder.

    Raises:
        OptionError: The folder cannot be written to.
    """

    def __init__(self, statistics: Statistics) -> None:
        self._writer = ZoneWriter(statistics)
        self._unknown: dict[str, set[int]] = {}
        self._parts: dict[tuple[str, int], list[LedgerPart]] = {}
        self._has_failed = False

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Write what is left, behind an error too."""
        with self._disable_on_error():
            self._writer.write()

    def select_ledgers(self, reads: Iterable[TopicRead]) -> dict[str, frozenset[int]]:
        """By topic, the ledgers whose zones tasks are to make: of which nothing is known yet.

        Those are left out that were not learned from their first entry on.
        """
        selected: dict[str, frozenset[int]] = {}
        for read in [] if self._has_failed else reads:
            topic = read.origin.topic
            if topic not in self._unknown:
                with self._disable_on_error():
                    unknown = unknown_ledgers(self._writer.statistics, topic, read.ledgers)
                    self._unknown[topic] = {each.ledger_id for each in unknown}
            if self._has_failed:
                return {}
            selected[topic] = frozenset(
                each.ledger_id
                for each in read.ranges
                if each.ledger_id in self._unknown[topic]
                and each.first_entry_id == self._next_entry_id(topic, each.ledger_id)
            )
        return selected

    def add(self, reads: Sequence[TopicRead], parts: Iterable[LedgerPart]) -> int:
        """Take what tasks made of reads; gives how many ledgers are whole with it.

        Args:
            reads: The reads.
            parts: Of their ledgers, in any order.
        """
        by_topic = {each.origin.topic: each for each in reads}
        whole = 0
        for part in sorted(parts, key=_position):
            if part.first_entry_id != self._next_entry_id(part.topic, part.ledger_id):
                # What stands between was not learned.
                continue
            ledger_parts = self._parts.setdefault((part.topic, part.ledger_id), [])
            ledger_parts.append(part)
            ledger = by_topic[part.topic].ledger(part.ledger_id)
            if part.last_entry_id == ledger.last_entry_id:
                del self._parts[part.topic, part.ledger_id]
                if _is_as_long(ledger, ledger_parts) and not self._has_failed:
                    self._unknown[part.topic].discard(part.ledger_id)
                    with self._disable_on_error():
                        self._writer.add_zones(row for each in ledger_parts for row in each.zones)
                        whole += 1
        return whole

    def _next_entry_id(self, topic: str, ledger_id: int) -> int:
        """The first entry of a ledger that was not learned."""
        parts = self._parts.get((topic, ledger_id))
        return parts[-1].last_entry_id + 1 if parts else 0

    @contextmanager
    def _disable_on_error(self) -> Iterator[None]:
        """Learn nothing more behind an error of the folder."""
        try:
            yield
        except PulsarOffloadError as error:
            self._has_failed = True
            message = f"statistics of what was copied are not written: {error}"
            warn_of_read(message, UnusedStatisticsWarning)


def _is_as_long(ledger: Ledger, parts: Iterable[LedgerPart]) -> bool:
    """Whether all entries are together as long as the ledger was, as far as that is known."""
    return ledger.length_bytes in {0, sum(each.length_bytes for each in parts)}
