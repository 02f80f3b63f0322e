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
        cluster: Explains missing objects (`explain_missing`); None if the metadata is not live.
    """

    topics: tuple[TopicLedgers, ...]
    options: ReadOptions
    statistics: Statistics | None = None
    view: View | None = None
    tails: Mapping[TopicName, LiveTail] = field(default_factory=dict)
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
        """Return the reads of all topics that can have rows, in order.

        A topic's live tail is a read of its own, after the read of the objects. Sends no request
        except for statistics and a view, which are read once per scan.

        Raises:
            StorageError: Statistics cannot be read.
            PulsarOffloadError: The view cannot be read.
        """
        return [read for reads in self.reads_by_topic() for read in reads]

    def reads_by_topic(self) -> list[list[TopicRead]]:
        """Return the same as `reads`, as one list per topic."""
        pairs = ((read, tail_read(read)) for read in self._reads)
        return [[each for each in pair if each is not None and each.ranges] for pair in pairs]

    def every_read(self) -> list[TopicRead]:
        """Return the read of each topic's objects, including reads without ranges."""
        return list(self._reads)

    def pruning(self) -> Pruning:
        """Return what statistics prune in all topics together; sends requests like `reads`.

        Raises:
            StorageError: Statistics cannot be read.
        """
        return reduce(add, (each.pruning for each in self._reads), Pruning())

    @cached_property
    def _reads(self) -> list[TopicRead]:
        with telemetry.operation("plan", topic=self.name) as operation:
            reads = self._plan_reads()
            if operation.is_observed:
                operation.note(
                    data_bytes=sum(each.data_bytes for each in reads),
                    pruned_bytes=sum(each.pruning.bytes for each in reads),
                )
        return reads

    def _plan_reads(self) -> list[TopicRead]:
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
        """Return a scan of the rows that have to be counted, and the recorded count of the rest.

        Raises:
            StorageError: Statistics cannot be read.
        """
        if self.view is not None and self.options.row_filter is None:
            return self._replace_reads([]), self.view.count()
        rest, zones = self.plan_recorded()
        return rest, sum_of(zones.column("messages"))

    def plan_recorded(self, columns: Sequence[str] = ()) -> tuple[Scan, pa.Table]:
        """Return a scan of the rows that have to be read, and the recorded zones of the rest.

        All messages in these zones are rows. The zones, or whole ledgers, have the columns of
        `prunable_zones`, and also `columns`.

        Raises:
            StorageError: Statistics cannot be read.
        """
        if self.view is not None or self.statistics is None:
            return self, no_zones(columns)
        pairs = [
            plan_recorded(topic, read, self.statistics, columns)
            for topic, read in zip(self.topics, self._reads, strict=True)
        ]
        zones = [no_zones(columns), *(each for _, each in pairs)]
        return self._replace_reads([read for read, _ in pairs]), pa.concat_tables(zones)

    def by_topic(self) -> list[Scan]:
        """Return a scan for each topic, of the rows that this scan has of it."""
        return [
            replace(self, topics=(topic,), view=None)._replace_reads([read])  # noqa: SLF001
            for topic, read in zip(self.topics, self._reads, strict=True)
        ]

    def _replace_reads(self, reads: list[TopicRead]) -> Scan:
        scan = replace(self)
        vars(scan)["_reads"] = reads
        return scan

    def plan(self, task_bytes: int = DEFAULT_TASK_BYTES) -> list[ScanTask]:
        """Split the scan into tasks, at data blocks; sends requests like `reads`.

        A task reads about `task_bytes` of data objects, or one block if that is larger. The tasks
        are in order of the topics and of the positions in them.
        """
        return [task for read in self.reads() for task in read.tasks(task_bytes)]
