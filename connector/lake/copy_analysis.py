"""Statistics of the ledgers that a copy reads completely.

Each task computes the zones (statistics of about 1 MiB) of the parts of ledgers that it reads.
Once all parts of a ledger are available, its zones are written.
"""

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
    """A context manager that collects the zones of ledgers and writes them.

    The tasks of a ledger may belong to several commits. If the statistics cannot be read or
    written, a warning is issued and the analysis stops: the copy does not depend on it.

    Raises:
        OptionError: The folder of statistics cannot be written to.
    """

    def __init__(self, statistics: Statistics) -> None:
        self._writer = ZoneWriter(statistics)
        self._unknown: dict[str, set[int]] = {}
        self._parts: dict[tuple[str, int], list[LedgerPart]] = {}
        self._has_failed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Write the remaining zones, even after an error."""
        with self._disable_on_error():
            self._writer.write()

    def select_ledgers(self, reads: Iterable[TopicRead]) -> dict[str, frozenset[int]]:
        """Return, by topic, the ledgers whose zones the tasks must compute.

        These are the ledgers without statistics whose entries before each read were all analyzed.
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
        """Add the parts that the tasks of some reads computed, in any order.

        Returns:
            Number of ledgers of which all parts are available now.
        """
        by_topic = {each.origin.topic: each for each in reads}
        whole = 0
        for part in sorted(parts, key=_position):
            if part.first_entry_id != self._next_entry_id(part.topic, part.ledger_id):
                # The entries in between were not analyzed.
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
        """Return the first entry of a ledger that has not been analyzed."""
        parts = self._parts.get((topic, ledger_id))
        return parts[-1].last_entry_id + 1 if parts else 0

    @contextmanager
    def _disable_on_error(self) -> Iterator[None]:
        """Turn an error of the statistics into a warning, and stop the analysis."""
        try:
            yield
        except PulsarOffloadError as error:
            self._has_failed = True
            message = f"cannot write statistics of the copied ledgers: {error}"
            warn_of_read(message, UnusedStatisticsWarning)


def _is_as_long(ledger: Ledger, parts: Iterable[LedgerPart]) -> bool:
    """Return whether the parts add up to the ledger's length; 0 means it is not recorded."""
    return ledger.length_bytes in {0, sum(each.length_bytes for each in parts)}
