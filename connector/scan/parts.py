"""A planned scan in parts: for other processes, and for the fragments of a dataset."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from arrow_io.read_metrics import ReadMetrics
from connector.catalog.live_cluster import explain_missing_in_topic
from connector.filters.row_filters import BothFilters
from connector.scan.execution import count_read, execute, warn_incomplete
from connector.scan.topic_read import Pruning, task_of
from connector.scan.topic_scan import DEFAULT_TASK_BYTES, Scan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    import pyarrow.compute as pc

    from connector.catalog.live_cluster import LiveCluster
    from connector.filters.row_filters import RowFilter
    from connector.scan.read_options import ReadOptions
    from connector.scan.topic_read import ScanTask, TaskHandle, TopicRead

    Part: TypeAlias = tuple[tuple[int, TaskHandle], ...]
    """Tasks that one process reads: pairs of the number of the task's read and its handle."""

_LOG: Final = logging.getLogger("pulsar_offload")

_MIN_PART_BYTES: Final = 16 << 20
_MAX_PART_BYTES: Final = 128 << 20
_TARGET_PARTS: Final = 64
"""Number of parts to aim for. Engines do not tell a source the number of cores, and this many keep
a medium-sized cluster busy."""


def default_part_bytes(scan_bytes: int) -> int:
    """Return how many bytes of data objects a part should have, for a scan of this size.

    In Spark, a part costs about 30 ms regardless of its size, and 16 MiB take several times as long
    to decode. A failed part of more than 128 MiB is expensive to repeat.
    """
    return min(max(scan_bytes // _TARGET_PARTS, _MIN_PART_BYTES), _MAX_PART_BYTES)


def plan_parts(reads: Sequence[TopicRead], part_bytes: int | None = None) -> Iterator[Part]:
    """Split reads into parts of one or more tasks each, in order. Many small topics share one.

    Args:
        reads: The reads of a scan (`Scan.reads`).
        part_bytes: Approximate size of a part in bytes of data objects; a block is never split.
            None chooses by the size of the reads.
    """
    if part_bytes is None:
        part_bytes = default_part_bytes(sum(read.data_bytes for read in reads))
    for tasks in _grouped_tasks(reads, part_bytes):
        yield tuple((number, task.handle()) for number, task in tasks)


def _grouped_tasks(
    reads: Sequence[TopicRead], group_bytes: int
) -> Iterator[list[tuple[int, ScanTask]]]:
    """Yield groups of tasks, each with the number of its read."""
    tasks: list[tuple[int, ScanTask]] = []
    size_bytes = 0
    for number, read in enumerate(reads):
        for task in read.tasks(group_bytes):
            data_bytes = task.data_bytes
            # The size of data that only brokers have is unknown, and may be large.
            if tasks and (not read.is_size_known or size_bytes + data_bytes > group_bytes):
                yield tasks
                tasks, size_bytes = [], 0
            tasks.append((number, task))
            size_bytes += data_bytes
    if tasks:
        yield tasks


def report_losses(topic: str, metrics: ReadMetrics) -> None:
    """Warn about what was left out of a part, and log the location of each loss."""
    warn_incomplete(metrics, topic)
    for loss in metrics.losses:
        _LOG.warning("%s: %s", topic, loss)


@dataclass(frozen=True, repr=False)
class PartReader:
    """Reads parts of a planned scan, in any process. Picklable; holds no connection.

    It contains the reads with all ledgers, and the secrets that a read needs: send it once to each
    process if the engine can.

    Attributes:
        reads: The reads that were split into parts.
        cluster: Explains missing objects; None if the metadata is not live.
    """

    reads: tuple[TopicRead, ...]
    cluster: LiveCluster | None = None

    @classmethod
    def from_scan(cls, scan: Scan) -> PartReader:
        """Plan a scan; sends requests like `Scan.reads`."""
        return cls(tuple(scan.reads()), scan.cluster)

    def select(self, columns: Sequence[str]) -> PartReader:
        """Return a reader of the same parts with these columns, in this order.

        Raises:
            OptionError: A column does not exist.
        """
        reads = []
        for each in self.reads:
            projection = each.options.filterable.select(columns)
            reads.append(replace(each, options=replace(each.options, projection=projection)))
        return replace(self, reads=tuple(reads))

    def batches(
        self, part: Part, report: Callable[[str, ReadMetrics], None] = report_losses
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part, task by task, decoded in the caller's thread.

        Args:
            part: A part of the reads.
            report: Receives the topic and the metrics of each task that was read to its end.

        Raises:
            PulsarOffloadError: Data cannot be read or decoded (damage is counted instead when
                salvaging).
        """
        for number, handle in part:
            task = task_of([self.reads[number]], handle)
            topic = task.read.origin.topic
            metrics = ReadMetrics()
            with explain_missing_in_topic(self.cluster, topic):
                yield from execute(task, metrics)
            count_read(topic, metrics)
            report(topic, metrics)


@dataclass(frozen=True)
class PartScan(Scan):
    """A scan of some planned tasks; columns and filters can still be narrowed.

    Its own filter applies to rows that match the filters of the tasks.
    """

    tasks: tuple[ScanTask, ...] = ()

    @classmethod
    def from_tasks(cls, scan: Scan, tasks: Iterable[ScanTask]) -> PartScan:
        """Return a scan of tasks whose ranges were planned by another scan of the same topics.

        The tasks get the filter of `scan`. With a view, they keep theirs, which selects the view's
        messages.
        """
        own = scan.options
        if scan.view is None:
            tasks = [_with_options(each, own) for each in tasks]
        return cls(
            scan.topics, replace(own, row_filter=None), cluster=scan.cluster, tasks=tuple(tasks)
        )

    def plan(self, task_bytes: int = DEFAULT_TASK_BYTES) -> list[ScanTask]:
        """Return the tasks, with the scan's columns and filter; sends no request."""
        del task_bytes
        return [replace(each, read=self._narrowed(each.read)) for each in self.tasks]

    def reads_by_topic(self) -> list[list[TopicRead]]:
        """Return each task of a topic as a read of its own."""
        return [[replace(each.read, ranges=each.ranges)] for each in self.plan() if each.ranges]

    def pruning(self) -> Pruning:
        """Return nothing: the scan that planned the tasks has reported what it pruned."""
        return Pruning()

    def plan_count(self) -> tuple[Scan, int]:
        """Return this scan: all rows of its tasks have to be counted."""
        return self, 0

    def _narrowed(self, read: TopicRead) -> TopicRead:
        options = replace(
            read.options,
            projection=self.options.projection,
            limits=self.options.limits,
            row_filter=_both(read.options.row_filter, self.options.row_filter),
        )
        return replace(read, options=options)


def split_scan(scan: Scan, expression: pc.Expression | None, part_count: int) -> Iterator[PartScan]:
    """Yield scans that together have the rows of a scan, in order.

    Parts without rows that match the expression may be missing. Those that remain also have rows
    that do not match.

    Args:
        scan: The scan.
        expression: An Arrow expression over any columns; None omits nothing.
        part_count: Approximate number of parts, if each has at least `DEFAULT_TASK_BYTES`.

    Raises:
        OptionError: The expression cannot be applied to the columns.
        PulsarOffloadError: See `Scan.reads`.
    """
    # The filters of a view's tasks cannot be separated from this one.
    planned = scan if expression is None or scan.view is not None else scan.where(expression)
    reads = planned.reads()
    part_bytes = max(DEFAULT_TASK_BYTES, sum(each.data_bytes for each in reads) // part_count)
    for tasks in _grouped_tasks(reads, part_bytes):
        yield PartScan.from_tasks(scan, [task for _, task in tasks])


def _with_options(task: ScanTask, options: ReadOptions) -> ScanTask:
    """Return a task of a read with these options, but with the bounds that it was planned with."""
    own = replace(options, bounds=task.read.options.bounds)
    return replace(task, read=replace(task.read, options=own))


def _both(first: RowFilter | None, second: RowFilter | None) -> RowFilter | None:
    if first is None or second is None:
        return first or second
    return BothFilters(first, second)
