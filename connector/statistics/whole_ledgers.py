"""Whole ledgers, split into zones that are summarized in several threads."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from arrow_io.core.prefetch import prefetch_units
from arrow_io.core.processors import processor_count
from arrow_io.errors import FormatError, MissingObjectError
from arrow_io.messages import layout
from arrow_io.read_metrics import Tally, Unit
from arrow_io.storage.range_prefetch import RangePrefetcher
from connector.statistics.zones import ZONE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from arrow_io.errors import PulsarOffloadError
    from arrow_io.ledgers.ledger import Ledger
    from arrow_io.messages.entry_run import EntryRun
    from arrow_io.read_metrics import ReadMetrics

_LedgerT = TypeVar("_LedgerT", bound="Ledger")
_T = TypeVar("_T")


Explaining: TypeAlias = "Callable[[str], AbstractContextManager[None]]"
"""Returns a context for a topic that explains missing objects (`explain_missing`)."""


def unexplained(topic: str) -> AbstractContextManager[None]:
    """Return a context that explains nothing: a missing object counts as damage."""
    del topic
    return nullcontext()


@dataclass(frozen=True, slots=True)
class WholeLedger(Generic[_LedgerT, _T]):
    """A ledger that was read to its end, or to an error.

    Attributes:
        topic: Its topic or partition, as the caller names it.
        ledger: The ledger.
        zones: The summary of each of its zones, in order.
        metrics: Losses outside the zones: lost entries, and unreadable bytes between entries.
        error: Why reading stopped; None if it reached the ledger's end.
    """

    topic: str
    ledger: _LedgerT
    zones: list[_T]
    metrics: ReadMetrics
    error: PulsarOffloadError | None

    @property
    def is_sound(self) -> bool:
        """Whether there is no damage except in entries."""
        return self.error is None and all(unit is Unit.ENTRY for unit, _ in self.metrics.lost)

    @property
    def losses(self) -> list[str]:
        """What could not be read of it, as sentences."""
        return [*self.metrics.losses, *([] if self.error is None else [str(self.error)])]


def whole_ledgers(
    ledgers: Iterable[tuple[str, _LedgerT]],
    summarize: Callable[[_LedgerT, str, Sequence[EntryRun]], _T],
    *,
    threads: int | None = None,
    explaining: Explaining = unexplained,
) -> Generator[WholeLedger[_LedgerT, _T], None, None]:
    """Read whole ledgers, skipping damage.

    Args:
        ledgers: Ledgers, with the name of the topic or partition of each.
        summarize: Called for each zone, in any thread, with its ledger, the topic's name, and its
            entries with verified checksums.
        threads: Number of threads that call it; None: one per core.
        explaining: Raises another error for a missing object if the cluster trimmed its ledger.

    Yields:
        Each ledger, in this order.

    Raises:
        TrimmedEntriesError: The cluster trimmed a ledger before it was read.
        StorageError: A request failed after all retries.
    """
    zones: list[_T] = []
    units = _units(ledgers, summarize, explaining)
    with closing(prefetch_units(units, threads=threads or processor_count())) as results:
        for each in results:
            if isinstance(each, WholeLedger):
                yield replace(each, zones=zones)
                zones = []
            else:
                zones.append(each)


def _units(
    ledgers: Iterable[tuple[str, _LedgerT]],
    summarize: Callable[[_LedgerT, str, Sequence[EntryRun]], _T],
    explaining: Explaining,
) -> Generator[Callable[[], _T | WholeLedger[_LedgerT, _T]], None, None]:
    """Yield units for the zones of each ledger, then one for the ledger itself."""
    pairs = list(ledgers)
    spans = (span for _, each in pairs for span in each.byte_spans(0, each.last_entry_id))
    with RangePrefetcher(spans) as prefetch:
        for topic, ledger in pairs:
            tally = Tally(salvage=True)
            error: PulsarOffloadError | None = None
            try:
                runs = ledger.entry_runs(0, ledger.last_entry_id, tally, prefetcher=prefetch)
                with explaining(topic):
                    for zone in split_zones(runs):
                        yield partial(_summarize_checked, summarize, ledger, topic, zone)
            except (FormatError, MissingObjectError) as read_error:
                error = read_error
            yield partial(WholeLedger, topic, ledger, [], tally.metrics, error)


def _summarize_checked(
    summarize: Callable[[_LedgerT, str, Sequence[EntryRun]], _T],
    ledger: _LedgerT,
    topic: str,
    runs: Sequence[EntryRun],
) -> _T:
    for run in runs:
        run.verify_checksums()
    return summarize(ledger, topic, runs)


def split_zones(runs: Iterable[EntryRun]) -> Iterator[list[EntryRun]]:
    """Split the entries of a ledger, in order, into zones; lost entries are in none."""
    splitter = ZoneSplitter()
    for run in runs:
        yield from splitter.add(run)
    yield from splitter.flush()


class ZoneSplitter:
    """Splits entries into zones; each is within one data block and has no gap.

    So the zones of a ledger do not depend on where a read started, provided that it started at a
    block.
    """

    def __init__(self) -> None:
        self._pending: list[EntryRun] = []
        self._limit = 0  # maximum end of the zone, as an offset in the data object

    def add(self, run: EntryRun) -> Iterator[list[EntryRun]]:
        """Add the next entries, and yield the zones that are complete; must be exhausted."""
        index = 0
        while index < run.count:
            stop = _stop_before(run, index, self._limit) if self._is_next(run, index) else index
            if stop == index:
                yield from self.flush()
                self._limit = run.entry_start(index) + ZONE_BYTES
                stop = max(_stop_before(run, index, self._limit), index + 1)
            self._pending.append(run.part(index, stop))
            index = stop

    def flush(self) -> Iterator[list[EntryRun]]:
        """Yield the last zone, if there is one."""
        if self._pending:
            zone, self._pending = self._pending, []
            yield zone

    def _is_next(self, run: EntryRun, index: int) -> bool:
        """Return whether an entry directly follows the pending ones in the same object."""
        if not self._pending:
            return False
        last = self._pending[-1]
        return (
            last.object_key == run.object_key
            and last.last_entry_id + 1 == run.number(index, layout.ENTRY_ID)
            and last.entry_stop(last.count - 1) == run.entry_start(index)
        )


def _stop_before(run: EntryRun, first: int, limit: int) -> int:
    """Return the index after the last entry from `first` on that ends at or before `limit`."""
    return bisect_right(range(run.count), limit, lo=first, key=run.entry_stop)
