"""The rows of a scan with some numbers, read from the tasks that have them."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from arrow_io.read_metrics import ReadMetrics
from connector.filters.row_filters import BothFilters
from connector.scan.execution import execute

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow.compute as pc

    from connector.scan.topic_read import ScanTask


def numbered_rows(
    tasks: Sequence[ScanTask], numbers: Sequence[int], metrics: ReadMetrics
) -> Iterator[pa.RecordBatch]:
    """Yield the rows with some numbers, in order; numbers past the last row yield nothing.

    Tasks before the last number are counted as the scan reads them: a compaction may have emptied
    messages, which only a read of payloads notices. Columns are decoded only of tasks with one of
    the rows, and of these only the rows. A read that salvages counts losses while it decodes, so it
    decodes all tasks up to the last number.

    Args:
        tasks: All tasks of the scan, in order.
        numbers: Numbers of rows from 0, ascending and distinct.
        metrics: Receives the metrics of the tasks that are decoded.

    Raises:
        PulsarOffloadError: Data cannot be read or decoded (damage is counted instead when
            salvaging).
    """
    selection = _RowNumbers(numbers)
    for task in tasks:
        if selection.is_complete:
            return
        end = None
        if task is not tasks[-1] and not task.read.options.salvage:
            end = selection.passed_rows + _count_rows(task)
        if end is None or selection.next_number < end:
            yield from _matching_rows(task, selection, end, metrics)
        if end is not None:
            selection.passed_rows = end


def _matching_rows(
    task: ScanTask, selection: _RowNumbers, end: int | None, metrics: ReadMetrics
) -> Iterator[pa.RecordBatch]:
    own = task.read.options.row_filter
    row_filter = selection if own is None else BothFilters(own, selection)
    options = replace(task.read.options, row_filter=row_filter)
    task = replace(task, read=replace(task.read, options=options))
    for batch in execute(task, metrics):
        yield batch
        if selection.is_complete or (end is not None and selection.next_number >= end):
            return


def _count_rows(task: ScanTask) -> int:
    options = task.read.options
    options = replace(options, projection=options.filterable.select([]))
    task = replace(task, read=replace(task.read, options=options))
    return sum(batch.num_rows for batch in execute(task, ReadMetrics()))


@dataclass
class _RowNumbers:
    """A filter that matches rows by their numbers, while one thread reads all rows in order.

    Attributes:
        numbers: Numbers of rows, ascending and distinct.
        found: How many of the numbers were reached.
        passed_rows: How many rows were passed.
    """

    numbers: Sequence[int]
    found: int = 0
    passed_rows: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether all numbers were reached."""
        return self.found == len(self.numbers)

    @property
    def next_number(self) -> int:
        """The first number that was not reached."""
        return self.numbers[self.found]

    @property
    def columns(self) -> tuple[str, ...]:
        """No column: rows are counted."""
        return ()

    @property
    def literals(self) -> tuple[pa.Scalar, ...]:
        """No literal."""
        return ()

    def can_match(self, guarantees: Sequence[pc.Expression], schema: pa.Schema) -> list[bool]:
        """Return that rows of each group can match."""
        del schema
        return [True] * len(guarantees)

    def matching_rows(self, batch: pa.RecordBatch) -> pa.Int64Array:
        """Return the indices of the rows with the numbers; `batch` follows the previous one."""
        first, self.passed_rows = self.passed_rows, self.passed_rows + batch.num_rows
        start, self.found = self.found, bisect_left(self.numbers, self.passed_rows, self.found)
        return pa.array([each - first for each in self.numbers[start : self.found]], pa.int64())
