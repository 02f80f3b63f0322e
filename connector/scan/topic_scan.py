"""A scan of topics: immutable, planned without reading data, cut into tasks for any process."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any, Protocol

from arrow_io.core.lazy import cached_property
from connector.catalog.live_cluster import explaining
from connector.catalog.topic_ledgers import topic_of
from connector.filters.row_filters import ArrowFilter, BothFilters
from connector.scan.outcomes import add_outcomes
from connector.scan.pruning import plan_count, topic_read
from connector.scan.tail_read import add_tail, tail_read
from connector.scan.topic_read import Pruning

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractContextManager

    import pyarrow.compute as pc

    from arrow_io.read_metrics import ReadMetrics
    from connector.catalog.live_cluster import LiveCluster
    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.filters.row_filters import RowFilter
    from connector.inputs.topic_names import TopicName
    from connector.live.tail import LiveTail
    from connector.scan.read_options import ReadOptions
    from connector.scan.topic_read import ScanTask, TopicRead
    from connector.statistics.store import Statistics

DEFAULT_TASK_BYTES = 256 << 20


class View(Protocol):
    """Which messages of the topics of a scan there are, if it takes reading them to know."""

    @property
    def metrics(self) -> ReadMetrics:
        """What was met by whoever looked for them."""

    def count(self) -> int:
        """How many there are, without a filter."""

    def narrow(self, number: int, read: TopicRead) -> TopicRead:
        """What of a read has to be read for those of a topic, given by its number in the scan."""


@dataclass(frozen=True)
class Scan:
    """What to read of some topics. Immutable: `select` and `where` return copies.

    Attributes:
        topics: The topics, partitions each by itself.
        options: How entries become rows.
        statistics: What is known of zones; None if nothing is.
        view: Which messages there are; None: all.
        tails: What of each topic only its brokers have, of those that have such a tail.
        cluster: Explains objects that are missing; None if the topics' metadata is not live.
    """

    topics: tuple[TopicLedgers, ...]
    options: ReadOptions
    statistics: Statistics | None = None
    view: View | None = None
    tails: Mapping[TopicName, LiveTail] = field(default_factory=dict)
    cluster: LiveCluster | None = field(default=None, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """Pickled by its fields; what was planned is planned anew."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def explaining(self) -> AbstractContextManager[None]:
        """Explain objects that are missing while the topics are read."""
        return explaining(self.cluster, partial(topic_of, self.topics))

    def select(self, columns: Iterable[str]) -> Scan:
        """Give only these columns, in this order; any that `filterable` has.

        Raises:
            OptionError: There is no such column.
        """
        chosen = self.options.filterable.select(columns)
        return replace(self, options=replace(self.options, projection=chosen))

    def where(self, expression: pc.Expression) -> Scan:
        """Give only rows for which the expression is true, of those that are given until now.

        Raises:
            OptionError: The expression cannot be applied to the columns.
        """
        return self.add_filter(
            ArrowFilter.from_expression(expression, self.options.filterable.schema)
        )

    def add_filter(self, row_filter: RowFilter) -> Scan:
        """Give only the rows that a filter keeps, of those that are given until now."""
        before = self.options.row_filter
        both = row_filter if before is None else BothFilters(before, row_filter)
        return replace(self, options=replace(self.options, row_filter=both))

    def reads(self) -> list[TopicRead]:
        """What has to be read of each topic that can have rows; its tail by itself, behind it.

        Sends no request, but for statistics and a view, which are read once for a scan.

        Raises:
            StorageError: Statistics cannot be read.
            PulsarOffloadError: The view cannot be read.
        """
        return [read for reads in self.reads_by_topic() for read in reads]

    def reads_by_topic(self) -> list[list[TopicRead]]:
        """As `reads`, for each topic."""
        pairs = ((read, tail_read(read)) for read in self._reads)
        return [[each for each in pair if each is not None and each.ranges] for pair in pairs]

    def every_read(self) -> list[TopicRead]:
        """What has to be read of each topic's objects, also where that is nothing."""
        return list(self._reads)

    def pruning(self) -> Pruning:
        """What statistics spare of all topics together; as `reads`.

        Raises:
            StorageError: They cannot be read.
        """
        return reduce(add, (each.pruning for each in self._reads), Pruning())

    @cached_property
    def _reads(self) -> list[TopicRead]:
        reads = [
            add_tail(topic_read(topic, self.options, self.statistics), self.tails.get(topic.topic))
            for topic in self.topics
        ]
        if self.view is not None:
            reads = [self.view.narrow(number, each) for number, each in enumerate(reads)]
        return [
            add_outcomes(read, topic.data, self.statistics)
            for topic, read in zip(self.topics, reads, strict=True)
        ]

    def plan_count(self) -> tuple[Scan, int]:
        """What has to be read to count rows; and how many are known without that.

        The scan has no filter.

        Raises:
            StorageError: Statistics cannot be read.
        """
        if self.view is not None:
            return self._replace_reads([]), self.view.count()
        if self.statistics is None:
            return self, 0
        pairs = [
            plan_count(topic, read, self.statistics)
            for topic, read in zip(self.topics, self._reads, strict=True)
        ]
        return self._replace_reads([read for read, _ in pairs]), sum(rows for _, rows in pairs)

    def _replace_reads(self, reads: list[TopicRead]) -> Scan:
        scan = replace(self)
        vars(scan)["_reads"] = reads
        return scan

    def plan(self, task_bytes: int = DEFAULT_TASK_BYTES) -> list[ScanTask]:
        """Cut the scan into tasks, at data blocks; sends no request, but as `reads`.

        Args:
            task_bytes: About how many bytes of data objects a task should have to read; a block is
                never cut.

        Returns:
            The tasks, in order of the topics and of the positions in them.
        """
        return [task for read in self.reads() for task in read.tasks(task_bytes)]
