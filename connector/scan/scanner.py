"""A scanner: reads the rows of a scan as record batches or tables, or counts them."""

from __future__ import annotations

import logging
import sys
from collections import deque
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.core import telemetry
from arrow_io.core.option_values import check_whole_number
from arrow_io.errors import OptionError, UnusedStatisticsWarning, UnusedTableWarning
from arrow_io.read_metrics import ReadMetrics
from connector.display.topic_metrics import TopicMetrics
from connector.display.warnings import warn_of_read
from connector.scan.execution import execute, record_read, warn_incomplete
from connector.scan.row_numbers import numbered_rows
from connector.scan.scan_units import prefetch_rows
from connector.scan.topic_read import EntryRange

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from connector.scan.topic_read import TopicRead
    from connector.scan.topic_scan import Scan


@dataclass
class TopicScanner:
    """Scanner of some topics; each method starts a new read.

    Has the methods of `pyarrow.dataset.Scanner` that engines call.

    Attributes:
        scan: What to read.
        unsound: Losses found when the topic was opened: ledgers that cannot be read at all.
        metrics: Read metrics of the last read.
    """

    scan: Scan
    unsound: TopicMetrics = field(default_factory=TopicMetrics)
    metrics: TopicMetrics = field(default_factory=TopicMetrics)

    @property
    def projected_schema(self) -> pa.Schema:
        """Schema of the record batches."""
        return self.scan.options.projection.schema

    @property
    def dataset_schema(self) -> pa.Schema:
        """Schema of all columns that a filter may use."""
        return self.scan.options.filterable.schema

    def to_batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield record batches, partition by partition, in position order within each.

        Rows of a table (`lake`) come first, in any order.
        They are prefetched by one thread per core. Reading starts when the first batch is
        requested, and stops soon after the last requested batch.
        """
        self.metrics = self._new_metrics(self.scan)
        with self._counting() as counts:
            rows = prefetch_rows(self.scan.plan(), counts)
            observed = telemetry.observe_batches("read", rows, logging.INFO, topic=self.scan.name)
            with closing(observed) as batches:
                yield from batches
        self._warn()

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the same batches as a `pyarrow.RecordBatchReader`."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """Return all rows as a table."""
        return pa.Table.from_batches(self.to_batches(), self.projected_schema)

    def head(self, num_rows: int) -> pa.Table:
        """Return the first `num_rows` rows, or fewer if there are no more.

        Raises:
            OptionError: `num_rows` is not a whole number.
        """
        check_whole_number("num_rows", num_rows, -sys.maxsize, sys.maxsize)
        options = self.scan.options
        first_rows = max(1, min(num_rows, options.limits.first_rows))
        limits = replace(options.limits, first_rows=first_rows)
        scan = replace(self.scan, options=replace(options, limits=limits))
        self.metrics = self._new_metrics(scan)
        batches = []
        rows_left = num_rows
        # In this thread, because prefetched rows would be wasted.
        with self._counting() as counts:
            remaining = (batch for task in scan.plan() for batch in execute(task, counts))
            while rows_left > 0:
                batch = next(remaining, None)
                if batch is None:
                    break
                batches.append(batch.slice(0, rows_left))
                rows_left -= len(batches[-1])
            remaining.close()
        if rows_left > 0:
            self._warn()
        return pa.Table.from_batches(batches, self.projected_schema)

    def tail(self, num_rows: int) -> pa.Table:
        """Return the last `num_rows` rows of each partition, or fewer if there are no more.

        Partitions are read backwards from their ends, so topics are not read whole. Only the bucket
        is read, because rows of a table (`lake`) have no order.

        Raises:
            OptionError: `num_rows` is not a whole number, or is negative.
        """
        check_whole_number("num_rows", num_rows, 0, sys.maxsize)
        self.metrics = self._new_metrics(self.scan)
        batches: list[pa.RecordBatch] = []
        with self._counting() as counts:
            for reads in self.scan.without_lake().reads_by_topic() if num_rows else ():
                batches += _last_rows(reads, num_rows, counts)
        self._warn()
        return pa.Table.from_batches(batches, self.projected_schema)

    def take(self, indices: pa.Array | pa.ChunkedArray | Sequence[int]) -> pa.Table:
        """Return the rows with these numbers, counted from 0, in the order of the numbers.

        Reads to the last of the rows. Of tasks without one of them, no column is decoded; of the
        others, only the rows are. The metrics are those of tasks with one of the rows.

        Raises:
            IndexError: A number is negative, or no row has it.
            OptionError: The indices are not whole numbers.
        """
        numbers = _whole_numbers(indices)
        distinct = sorted(set(numbers))
        self.metrics = self._new_metrics(self.scan)
        with self._counting() as counts:
            batches = list(numbered_rows(self.scan.plan(), distinct, counts)) if distinct else []
        self._warn()
        table = pa.Table.from_batches(batches, self.projected_schema)
        if table.num_rows < len(distinct):
            message = f"there is no row with the number {distinct[table.num_rows]}"
            raise IndexError(message)
        if numbers == distinct:
            return table
        # Arrow loses the number of rows of a table without columns.
        rows = table.append_column("", pa.nulls(table.num_rows))
        return rows.take(_positions(numbers, distinct)).remove_column(table.num_columns)

    def count_rows(self) -> int:
        """Return how many rows there are; without a filter, no payload is decompressed."""
        return sum(self.row_counts())

    def row_counts(self) -> Generator[int, None, None]:
        """Yield the number of rows in parts, one by one as they are read.

        Zones whose rows all match are not read if statistics record how many there are. That is not
        recorded for zones with chunks or with messages of transactions.
        """
        scan, recorded_rows = self.scan.select([]).plan_count()
        rest = TopicScanner(scan, self.unsound)
        try:
            yield recorded_rows
            for batch in rest.to_batches():
                yield batch.num_rows
        finally:
            self.metrics = rest.metrics
            self.metrics.rows += recorded_rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def warn_of_plan(self) -> None:
        """Warn about what was left out before any task is read, for readers of planned tasks.

        That is: unsound ledgers, statistics that cannot be used, and losses of a view's first pass.

        Raises:
            PulsarOffloadError: See `Scan.reads`.
        """
        self.metrics = self._new_metrics(self.scan)
        self._warn()

    def _new_metrics(self, scan: Scan) -> TopicMetrics:
        """Return the initial metrics of a read: earlier losses, and pruning by statistics."""
        pruning = scan.pruning()
        for problem in pruning.problems:
            warn_of_read(problem, UnusedStatisticsWarning)
        if scan.table_problem is not None:
            warn_of_read(scan.table_problem, UnusedTableWarning)
        metrics = TopicMetrics(
            skipped_zones=pruning.zones,
            skipped_bytes=pruning.bytes,
            unknown_ledgers=pruning.unknown_ledgers,
            unused_statistics=list(pruning.problems),
        )
        metrics.add(self.unsound)
        return metrics if scan.view is None else metrics.add(scan.view.metrics)

    @contextmanager
    def _counting(self) -> Iterator[ReadMetrics]:
        """Yield metrics for a read's counts, and add them to the scanner's metrics.

        The losses that a view's first pass counted are not added again; only its second pass
        decodes values.
        """
        with self._recording(), self.scan.explaining():
            if self.scan.view is None:
                yield self.metrics
                return
            counts = ReadMetrics()
            try:
                yield counts
            finally:
                self.metrics.add(counts.value_metrics(self.metrics))

    @contextmanager
    def _recording(self) -> Iterator[None]:
        """Record the metrics when the read ends, even if it fails or is stopped."""
        metrics = self.metrics
        try:
            yield
        finally:
            record_read(self.scan.name, metrics)

    def _warn(self) -> None:
        # A scalable topic may have hundreds of segments, so it is named as a whole.
        names = (each.topic for each in self.scan.topics)
        texts = dict.fromkeys(str(each.base if each.segment else each) for each in names)
        warn_incomplete(self.metrics, ", ".join(texts))


def _whole_numbers(indices: pa.Array | pa.ChunkedArray | Sequence[int]) -> list[int]:
    try:
        if not isinstance(indices, pa.Array | pa.ChunkedArray):
            indices = pa.array(indices)
        numbers: list[int | None] = indices.cast(pa.int64()).to_pylist()
    except (pa.ArrowException, TypeError, ValueError) as error:
        message = f"indices must be whole numbers: {error}"
        raise OptionError(message) from error
    if None in numbers:
        message = "indices must be whole numbers, not null"
        raise OptionError(message)
    negative = next((each for each in numbers if each is not None and each < 0), None)
    if negative is not None:
        message = f"the number of a row cannot be negative: {negative}"
        raise IndexError(message)
    return [each for each in numbers if each is not None]


def _positions(numbers: Sequence[int], distinct: Sequence[int]) -> pa.Array:
    """Return the index of each number among the distinct ones."""
    int64 = pa.int64()
    return pc.index_in(pa.array(numbers, int64), value_set=pa.array(distinct, int64))


def _last_rows(
    reads: Sequence[TopicRead], num_rows: int, metrics: ReadMetrics
) -> list[pa.RecordBatch]:
    last_batches: deque[pa.RecordBatch] = deque()
    rows_left = num_rows
    for part in _split_reads_from_end(reads, num_rows):
        last: deque[pa.RecordBatch] = deque()
        count = 0
        for batch in execute(part.task(part.ranges), metrics):
            last.append(batch)
            count += batch.num_rows
            while count - last[0].num_rows >= rows_left:
                count -= last.popleft().num_rows
        if count > rows_left:
            last[0] = last[0].slice(count - rows_left)
        last_batches.extendleft(reversed(last))
        rows_left -= min(count, rows_left)
        if not rows_left:
            break
    return list(last_batches)


def _split_reads_from_end(reads: Sequence[TopicRead], entry_count: int) -> Iterator[TopicRead]:
    for read in reversed(reads):
        is_stored = read.ledgers[-1].stored_bytes > 0
        # The live tail is always read whole (see `tail_read`).
        parts = _split_from_end(read.ranges, entry_count) if is_stored else [read.ranges]
        for ranges in parts:
            yield replace(read, ranges=ranges)


def _split_from_end(
    ranges: Sequence[EntryRange], entry_count: int
) -> Iterator[tuple[EntryRange, ...]]:
    """Yield ranges from the end: the last entries, then four times as many each time.

    The growth is steep because many entries may have no rows (markers, or entries that do not
    match). Also, each part may have to read to the end of the topic for outcomes of transactions.
    """
    part: deque[EntryRange] = deque()
    entries_left = entry_count
    for ledger_id, first, last in reversed(ranges):
        stop = last + 1
        while stop > first:
            start = max(first, stop - entries_left)
            part.appendleft(EntryRange(ledger_id, start, stop - 1))
            entries_left -= stop - start
            stop = start
            if not entries_left:
                yield tuple(part)
                part.clear()
                entry_count *= 4
                entries_left = entry_count
    if part:
        yield tuple(part)
