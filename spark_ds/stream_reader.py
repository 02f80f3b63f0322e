"""Streams in Spark: planned by one process on the driver, executed on executors.

Spark asks the planner for the next end offset, stores it, and reads the partitions between two
offsets, repeatedly if necessary. They yield the same rows each time, whatever is offloaded in the
meantime. So a sink that stores each batch once has each row once.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from arrow_io.core import telemetry
from arrow_io.core.lazy import cached_property
from arrow_io.read_metrics import ReadMetrics
from connector.catalog.live_cluster import explain_missing_in_topic
from connector.increments.increment import execute_increment
from connector.increments.progress import Progress
from connector.scan.execution import count_read
from connector.scan.parts import default_part_bytes, plan_parts
from connector.scan.topic_read import task_of
from spark_ds.batch_reader import log_metrics
from spark_ds.column_types import spark_schema
from spark_ds.offsets import to_offset
from spark_ds.process_log import log_sentences
from spark_ds.tracebacks import hide_traceback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from connector.catalog.live_cluster import LiveCluster
    from connector.scan.topic_read import TopicRead
    from spark_ds.stream_source import StreamSource


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader of topics as a stream.

    Opens nothing until the planner calls it: Spark also creates a reader for each executor. What a
    batch leaves out or waits for is logged at level WARNING, by the planner once per run.
    """

    def __init__(self, open_source: Callable[[], StreamSource]) -> None:
        self._open_source = open_source
        self._is_frozen = False
        self._is_fresh = True
        self._logged: set[str] = set()
        self._latest: dict[str, Any] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle an unopened reader, which only reads: Spark sends the reader with each task."""
        return type(self), (_refuse_opening,)

    @cached_property
    def _source(self) -> StreamSource:
        return self._open_source()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - the name is Spark's
        """Return the offset at which a new query starts.

        Raises:
            PulsarOffloadError: The topics cannot be opened, or an option is not allowed.
        """
        with hide_traceback():
            return self._source.begin().to_value()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of the options. If there are two, Spark gets the first.

        Raises:
            PulsarOffloadError: See `initialOffset`.
        """
        with hide_traceback():
            limits = self._source.limits
            if limits.max_bytes is not None:
                return ReadMaxBytes(limits.max_bytes)
            if limits.max_ledgers is not None:
                return ReadMaxFiles(limits.max_ledgers)
            return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Stop refreshing the bucket: the query ends with its current ledgers."""
        with hide_traceback():
            self._is_frozen = self._source is not None

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the offset at which the next batch ends; `start` if there is nothing new to read.

        Raises:
            LateLedgerError: A ledger appeared before the offset.
            MissingObjectError: A ledger was deleted before it was read.
            PulsarOffloadError: The topics cannot be read.
        """
        with hide_traceback():
            source = self._source
            if not (self._is_frozen or self._is_fresh):
                source.increments.refresh()
            self._is_fresh = False
            limits = None if isinstance(limit, ReadAllAvailable) else source.limits
            increment = source.increments.next_increment(Progress.from_value(start), limits)
            self._log_notices(increment.notices)
            telemetry.measure("lag", increment.lag.data_bytes, topic=increment.topic)
            offset = to_offset(increment)
            self._latest = {"behind": offset["behind"]}
            return start if increment.after == increment.before else offset

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the lag of the last batch, without a request."""
        return self._latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return partitions of one or more tasks each, in order. Many small topics share one.

        Raises:
            MissingObjectError: A ledger was deleted after Spark stored the offsets.
            PulsarOffloadError: The topics cannot be read.
        """
        with hide_traceback():
            source = self._source
            increment = source.increments.increment_between(
                Progress.from_value(start), Progress.from_value(end)
            )
            self._log_notices(increment.notices)
            task_bytes = source.task_bytes or default_part_bytes(increment.data_bytes)
            # An executor has only the partition. Pickle each read once for all its tasks.
            cluster = source.increments.catalog.cluster()
            reads = [
                pickle.dumps((read, cluster.for_topic(read.origin.topic) if cluster else None))
                for read in increment.reads
            ]
            return [
                InputPartition(tuple((reads[number], handle) for number, handle in part))
                for part in plan_parts(increment.reads, task_bytes)
            ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition. Called on executors.

        Raises:
            OpenTransactionError: A transaction in the partition has no outcome yet.
            PulsarOffloadError: Data cannot be read or decoded. With salvage, damage is logged.
        """
        with hide_traceback():
            for text, handle in partition.value or ():
                read: TopicRead
                cluster: LiveCluster | None
                read, cluster = pickle.loads(text)  # noqa: S301 - made by `partitions`
                metrics = ReadMetrics()
                schema = read.options.projection.schema
                target_schema = spark_schema(schema)
                with explain_missing_in_topic(cluster, read.origin.topic):
                    for batch in execute_increment(task_of([read], handle), metrics):
                        yield batch if target_schema == schema else batch.cast(target_schema)
                count_read(read.origin.topic, metrics)
                log_metrics(read.origin.topic, metrics)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: data that was read stays in the bucket."""

    def _log_notices(self, notices: Sequence[str]) -> None:
        for notice in notices:
            if notice not in self._logged:
                self._logged.add(notice)
                log_sentences([notice])


def _refuse_opening() -> NoReturn:
    message = "a reader in a task cannot open topics"
    raise RuntimeError(message)
