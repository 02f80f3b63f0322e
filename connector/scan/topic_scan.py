"""A scan of topics: immutable, planned without reading data, split into tasks for any process."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from arrow_io.core import telemetry
from arrow_io.core.lazy import cached_property
from connector.catalog.live_cluster import explain_missing
from connector.catalog.topic_ledgers import topic_with_ledger
from connector.filters.row_filters import ArrowFilter, BothFilters
from connector.inputs.topic_names import common_base
from connector.scan.outcomes import add_outcomes
from connector.scan.pruning import plan_recorded, topic_read
from connector.scan.table_read import Remainder, TableSplit
from connector.scan.tail_read import add_tail, tail_read
from connector.scan.topic_read import Pruning
from connector.scan.zone_lookup import no_zones, sum_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    import pyarrow.compute as pc

    from arrow_io.read_metrics import ReadMetrics
    from connector.catalog.live_cluster import LiveCluster
    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.filters.row_filters import RowFilter
    from connector.inputs.topic_names import TopicName
    from connector.live.tail import LiveTail
    from connector.scan.read_options import ReadOptions
    from connector.scan.table_read import LakeTable, TableRead
    from connector.scan.topic_read import ScanTask, TopicRead
    from connector.statistics.store import Statistics

DEFAULT_TASK_BYTES = 256 << 20


class View(Protocol):
    """A selection of the topics' messages that is found only by reading them (`LatestView`)."""

    @property
    def metrics(self) -> ReadMetrics:
        """Metrics of the read that found the messages."""

    def count(self) -> int:
        """Return the number of selected messages, without a filter."""

    def narrow(self, number: int, read: TopicRead) -> TopicRead:
        """Return the read of topic `number` of the scan, narrowed to the selected messages."""


@dataclass(frozen=True)
class Scan:
    """What to read of some topics. Immutable: `select` and `where` return copies.

    Attributes:
        topics: The topics; each partition is an item of its own.
        options: How entries become rows.
        statistics: Recorded zones; None if there are none.
        view: Selects messages; None: all.
        tails: The live tails of the topics that have one.
        lake: A table that has earlier rows; None: all rows are in the bucket. A view does not use
            it.
        cluster: Explains missing objects (`explain_missing`); None if the metadata is not live.
    """

    topics: tuple[TopicLedgers, ...]
    options: ReadOptions
    statistics: Statistics | None = None
    view: View | None = None
    tails: Mapping[TopicName, LiveTail] = field(default_factory=dict)
    lake: LakeTable | None = None
    cluster: LiveCluster | None = field(default=None, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone, so that cached reads are not pickled."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def name(self) -> str | None:
        """Name of the topic, without partition and segment; None if there are several topics."""
        return common_base(each.topic for each in self.topics)

    def explaining(self) -> AbstractContextManager[None]:
        """Return a context that explains missing objects (`explain_missing`)."""
        return explain_missing(self.cluster, partial(topic_with_ledger, self.topics))

    def select(self, columns: Iterable[str]) -> Scan:
        """Return a copy with these columns of `filterable`, in this order.

        Raises:
            OptionError: A column does not exist.
        """
        projection = self.options.filterable.select(columns)
        return replace(self, options=replace(self.options, projection=projection))

    def where(self, expression: pc.Expression) -> Scan:
        """Return a copy with only the rows for which an expression is also true.

        Raises:
            OptionError: The expression cannot be applied to the columns.
        """
        return self.add_filter(
            ArrowFilter.from_expression(expression, self.options.filterable.schema)
        )

    def add_filter(self, row_filter: RowFilter) -> Scan:
        """Return a copy with only the rows that also match a filter."""
        current = self.options.row_filter
        combined = row_filter if current is None else BothFilters(current, row_filter)
        return replace(self, options=replace(self.options, row_filter=combined))

    def reads(self) -> list[TopicRead]:
        """Return the reads of all topics that can have rows, in order; that of a table is first.

        A topic's live tail is a read of its own, after the read of the objects. Sends no request
        except for statistics and a view, which are read once per scan.

        Raises:
            StorageError: Statistics cannot be read.
            PulsarOffloadError: The view cannot be read.
        """
        table = [] if self.table_read is None else [self.table_read]
        return [*table, *(read for reads in self.reads_by_topic() for read in reads)]

    def reads_by_topic(self) -> list[list[TopicRead]]:
        """Return the reads of the bucket and of live tails, as one list per topic and remainder."""
        pairs = ((read, tail_read(read)) for _, read in self._reads)
        return [[each for each in pair if each is not None and each.ranges] for pair in pairs]

    def every_read(self) -> list[TopicRead]:
        """Return the reads of each topic's objects, including reads without ranges."""
        return [read for _, read in self._reads]

    @property
    def table_read(self) -> TableRead | None:
        """The read of the table; None if nothing is read from it."""
        return self._split.read

    @property
    def table_problem(self) -> str | None:
        """Why the table is not used, as a sentence; None without a table, or if it is used."""
        return self._split.problem

    def without_lake(self) -> Scan:
        """Return a scan of the rows in the bucket, in order of their positions."""
        return self if self.lake is None else replace(self, lake=None)

    def pruning(self) -> Pruning:
        """Return what statistics prune in all topics together; sends requests like `reads`.

        Raises:
            StorageError: Statistics cannot be read.
        """
        return reduce(add, (each.pruning for _, each in self._reads), Pruning())

    @cached_property
    def _split(self) -> TableSplit:
        if self.lake is not None and self.view is None:
            return self.lake.split(self.topics, self.options)
        problem = None if self.lake is None else "it has no view of the latest messages"
        return TableSplit(None, [[Remainder(self.options.bounds)] for _ in self.topics], problem)

    @cached_property
    def _reads(self) -> list[tuple[TopicLedgers, TopicRead]]:
        """The reads of the bucket, each with its topic."""
        with telemetry.operation("plan", topic=self.name) as operation:
            reads = self._plan_reads()
            if operation.is_observed:
                operation.note(
                    data_bytes=sum(each.data_bytes for _, each in reads),
                    pruned_bytes=sum(each.pruning.bytes for _, each in reads),
                )
        return reads

    def _plan_reads(self) -> list[tuple[TopicLedgers, TopicRead]]:
        reads = [
            (topic, self._plan_remainder(topic, each))
            for topic, remainders in zip(self.topics, self._split.remainders, strict=True)
            for each in remainders
        ]
        if self.view is not None:
            reads = [
                (topic, self.view.narrow(number, each))
                for number, (topic, each) in enumerate(reads)
            ]
        return [(topic, add_outcomes(each, topic.data, self.statistics)) for topic, each in reads]

    def _plan_remainder(self, topic: TopicLedgers, remainder: Remainder) -> TopicRead:
        options = replace(self.options, bounds=remainder.bounds)
        read = topic_read(topic, options, self.statistics)
        if remainder.entries is not None:
            ranges = (part for each in remainder.entries for part in read.intersect_ranges(each))
            # What it prunes is counted by the reads of the other remainders.
            read = replace(read, ranges=tuple(ranges), pruning=Pruning())
        return add_tail(read, self.tails.get(topic.topic)) if remainder.is_end else read

    def plan_count(self) -> tuple[Scan, int]:
        """Return a scan of the rows that have to be counted, and the recorded count of the rest.

        Raises:
            StorageError: Statistics cannot be read.
        """
        if self.view is not None and self.options.row_filter is None:
            return self._replace_reads([]), self.view.count()
        rest, zones = self.plan_recorded()
        recorded_rows = sum_of(zones.column("messages"))
        table_rows = None if self.table_read is None else self.table_read.rows
        if table_rows is None:
            return rest, recorded_rows
        return rest._without_table(), recorded_rows + table_rows  # noqa: SLF001

    def plan_recorded(self, columns: Sequence[str] = ()) -> tuple[Scan, pa.Table]:
        """Return a scan of the rows that have to be read, and the recorded zones of the rest.

        All messages in these zones are rows. The zones, or whole ledgers, have the columns of
        `prunable_zones`, and also `columns`.

        Raises:
            StorageError: Statistics cannot be read.
        """
        if self.view is not None or self.statistics is None:
            return self, no_zones(columns)
        topics = [topic for topic, _ in self._reads]
        pairs = [plan_recorded(*each, self.statistics, columns) for each in self._reads]
        zones = [no_zones(columns), *(each for _, each in pairs)]
        rest = self._replace_reads(list(zip(topics, (read for read, _ in pairs), strict=True)))
        return rest, pa.concat_tables(zones)

    def by_topic(self) -> list[Scan]:
        """Return a scan for each topic, of the rows that this scan has of it in the bucket."""
        return [
            replace(self, topics=(topic,), view=None, lake=None)._replace_reads(  # noqa: SLF001
                [(topic, read)]
            )
            for topic, read in self.without_lake()._reads  # noqa: SLF001
        ]

    def _replace_reads(self, reads: list[tuple[TopicLedgers, TopicRead]]) -> Scan:
        scan = replace(self)
        vars(scan).update(_reads=reads, _split=self._split)
        return scan

    def _without_table(self) -> Scan:
        scan = self._replace_reads(self._reads)
        vars(scan)["_split"] = replace(self._split, read=None)
        return scan

    def plan(self, task_bytes: int = DEFAULT_TASK_BYTES) -> list[ScanTask]:
        """Split the scan into tasks, at data blocks; sends requests like `reads`.

        A task reads about `task_bytes` of data objects, or one block if that is larger. The tasks
        are in order of the topics and of the positions in them.
        """
        return [task for read in self.reads() for task in read.tasks(task_bytes)]
