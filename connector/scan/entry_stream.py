"""The entries of a task, in order, including entries between and after the task's ranges.

A task's ranges may have gaps between them. A reader needs entries of a gap, or after the last
range, to complete chunked messages and transactions that began in a range. These entries have
`is_in_range` false, and the reader calls `skip_gap` when it needs no more of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrow_io.core.lazy import cached_property
from arrow_io.messages.broker_order import BrokerOrder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arrow_io.ledgers.ledger import Ledger
    from arrow_io.messages.entry_run import EntryRun
    from arrow_io.read_metrics import Tally
    from arrow_io.storage.range_prefetch import RangePrefetcher
    from connector.scan.topic_read import ScanTask, Stretch
    from connector.statistics.ledger_parts import ZoneGatherer


class EntryStream:
    """The entries from a task's first to the topic's last; also reads backwards on request.

    Args:
        task: The task.
        tally: Counts losses among the task's own entries. Losses of other entries are counted by
            the tasks that return their rows.
        prefetch: Sends the requests for the task's own entries; None sends requests per range of
            entries.
        verify_task_entries: Whether checksums of the task's own entries are compared here, if they
            are compared at all; otherwise the consumer compares them.
        verify_plain_batches: Whether this includes those of plain batches; otherwise the message
            reader compares them, while it splits the batches.
        gatherer: Builds zones from the task's own entries; None builds none.
    """

    def __init__(
        self,
        task: ScanTask,
        tally: Tally,
        prefetch: RangePrefetcher | None = None,
        *,
        verify_task_entries: bool = True,
        verify_plain_batches: bool = True,
        gatherer: ZoneGatherer | None = None,
    ) -> None:
        self._read = task.read
        self._tally = tally
        self._prefetch = prefetch
        self._stretches = task.read.stretches(task.ranges)
        self._verify = task.read.options.compares_checksums
        self._verify_task_entries = self._verify and verify_task_entries
        self._verify_plain_batches = verify_plain_batches
        self._gatherer = gatherer
        self._is_gap_skipped = False

    def skip_gap(self) -> None:
        """Continue with the next range, because the entries before it are not needed.

        Call it after the last entry of a range, or after an entry that is not `is_in_range`.
        """
        self._is_gap_skipped = True

    def __iter__(self) -> Iterator[EntryRun]:
        for stretch, next_stretch in zip(
            self._stretches, [*self._stretches[1:], None], strict=True
        ):
            # Between stretches, the broker may have restarted its entry index.
            order = BrokerOrder()
            last = stretch.last
            for each in stretch.ranges:
                ledger = self._read.ledger(each.ledger_id)
                for run in self._task_runs(ledger, each.first_entry_id, each.last_entry_id):
                    self._check_order(order, run)
                    run.is_before_gap = (run.ledger_id, run.last_entry_id) == last
                    yield run
            ledger_id, entry_id = last
            if not self._is_gap_skipped:
                stop = next_stretch.first if next_stretch else None
                for run in self._runs_between((ledger_id, entry_id + 1), stop):
                    yield run
                    if self._is_gap_skipped:
                        break
            self._is_gap_skipped = False

    def runs_after(self, run: EntryRun) -> Iterator[EntryRun]:
        """Return all entries after a run; losses are not counted here.

        The reader meets the same losses again, and counts them then.
        """
        return self._runs_between((run.ledger_id, run.last_entry_id + 1), None)

    def runs_before(self, run: EntryRun) -> Iterator[EntryRun] | None:
        """Return the entries before a run's range, nearest block first, in order within a block.

        Returns None if tasks read all of them, because those tasks return the messages that begin
        there.
        """
        position = run.ledger_id, run.last_entry_id
        first = max(each.first for each in self._stretches if each.first <= position)
        start = self._read.ledgers[0].ledger_id, 0
        leading = self._first_read_stretch
        if leading.first == start < first <= leading.last:
            return None
        return self._runs_backwards(*first)

    @cached_property
    def _first_read_stretch(self) -> Stretch:
        return self._read.stretches(self._read.ranges)[0]

    def _runs_backwards(self, ledger_id: int, entry_id: int) -> Iterator[EntryRun]:
        for ledger in reversed(self._read.ledgers[: self._read.ledger_index(ledger_id) + 1]):
            last = entry_id - 1 if ledger.ledger_id == ledger_id else ledger.last_entry_id
            for block in reversed(ledger.blocks(0, last)):
                stop = min(last, block.last_entry_id)
                runs = self._runs(ledger, block.first_entry_id, stop, self._tally.uncounted())
                yield from reversed(list(runs))

    def _runs_between(
        self, first: tuple[int, int], stop: tuple[int, int] | None
    ) -> Iterator[EntryRun]:
        """Yield the entries from `first` (inclusive) to `stop` (exclusive; None: the topic's end).

        Positions are pairs of ledger id and entry id.
        """
        uncounted = self._tally.uncounted()
        for ledger in self._read.ledgers[self._read.ledger_index(first[0]) :]:
            ledger_id = ledger.ledger_id
            if stop is not None and ledger_id > stop[0]:
                return
            begin = first[1] if ledger_id == first[0] else 0
            end = stop[1] - 1 if stop is not None and ledger_id == stop[0] else ledger.last_entry_id
            yield from self._runs(ledger, begin, end, uncounted)

    def _check_order(self, order: BrokerOrder, run: EntryRun) -> None:
        # Only the first and last entry are compared: comparing all would take too much time.
        for error in order.errors_at_ends(run):
            if not self._tally.salvage:
                raise error
            self._tally.metrics.doubts.append(str(error))

    def _runs(self, ledger: Ledger, first: int, last: int, tally: Tally) -> Iterator[EntryRun]:
        """Yield entries outside the task's ranges; raise if the read was stopped meanwhile."""
        for run in ledger.entry_runs(
            first, last, tally, verify_checksums=self._verify, is_in_range=False
        ):
            if self._prefetch is not None:
                self._prefetch.check_running()
            yield run

    def _task_runs(self, ledger: Ledger, first: int, last: int) -> Iterator[EntryRun]:
        verified = self._verify_task_entries and self._verify_plain_batches
        runs = ledger.entry_runs(
            first, last, self._tally, verify_checksums=verified, prefetcher=self._prefetch
        )
        if self._verify_task_entries and not verified:
            runs = map(_verify_other_entries, runs)
        if self._gatherer is None:
            return runs
        return self._gatherer.gather(ledger, (first, last), runs, verified=verified)


def _verify_other_entries(run: EntryRun) -> EntryRun:
    """Compare the checksums of a run, unless all of its entries are plain batches; return it."""
    if not run.has_only_plain_batches:
        run.verify_checksums()
    return run
