"""A stream in Spark: planned by one process on the driver, executed on executors.

Spark asks the planner how far it can read, writes that down, and has the partitions between two
offsets read, again and again if need be. They give the same rows each time, whatever is offloaded
meanwhile; so a sink that keeps each batch once has each row once.
"""

from __future__ import annotations

import logging
import pickle
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from arrow_io.core.lazy import cached_property
from arrow_io.read_metrics import ReadMetrics
from connector.catalog.live_cluster import explain_missing_in_topic
from connector.increments.increment import execute_increment
from connector.increments.progress import Progress
from connector.scan.topic_read import task_of
from spark_ds.batch_reader import default_task_bytes, log_metrics, partitions_of
from spark_ds.column_types import spark_schema
from spark_ds.offsets import offset_of
from spark_ds.sentence_first import sentence_first

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from connector.catalog.live_cluster import LiveCluster
    from connector.scan.topic_read import TopicRead
    from spark_ds.stream_source import StreamSource

_LOG: Final = logging.getLogger(__name__)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as a stream.

    Nothing is opened before the planner asks for it: Spark also makes one for each executor.
    What a batch leaves out or waits for is logged at level WARNING, by the planner once in a run.

    Args:
        open_source: Opens the topics.
    """

    def __init__(self, open_source: Callable[[], StreamSource]) -> None:
        self._open_source = open_source
        self._is_frozen = False
        self._is_fresh = True
        self._logged: set[str] = set()
        self._latest: dict[str, Any] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled as one that can only read: Spark sends the reader along with each task."""
        return type(self), (_refuse_opening,)

    @cached_property
    def _source(self) -> StreamSource:
        return self._open_source()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - the name is Spark's
        """Where a new query begins.

        Raises:
            PulsarOffloadError: The topics cannot be opened, or an option is not allowed.
        """
        with sentence_first():
            return self._source.begin().to_value()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit of the options; of two that are given, Spark is told one.

        Raises:
            PulsarOffloadError: As `initialOffset`.
        """
        with sentence_first():
            limits = self._source.limits
            if limits.max_bytes is not None:
                return ReadMaxBytes(limits.max_bytes)
            if limits.max_ledgers is not None:
                return ReadMaxFiles(limits.max_ledgers)
            return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Look at the bucket no more: the query ends with what is there now."""
        with sentence_first():
            self._is_frozen = self._source is not None

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends; `start` if nothing that is new can be read now.

        Raises:
            LateLedgerError: A ledger came to light below the offset.
            MissingObjectError: A ledger was deleted before it was read.
            PulsarOffloadError: The topics cannot be read.
        """
        with sentence_first():
            source = self._source
            if not (self._is_frozen or self._is_fresh):
                source.increments.refresh()
            self._is_fresh = False
            limits = None if isinstance(limit, ReadAllAvailable) else source.limits
            increment = source.increments.next_increment(Progress.from_value(start), limits)
            self._log_notices(increment.notices)
            offset = offset_of(increment)
            self._latest = {"behind": offset["behind"]}
            return start if increment.after == increment.before else offset

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """How far behind the last batch is; sends no request."""
        return self._latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One or more tasks each, in order; many small topics make one partition.

        Raises:
            MissingObjectError: A ledger was deleted since the offsets were written down.
            PulsarOffloadError: The topics cannot be read.
        """
        with sentence_first():
            source = self._source
            increment = source.increments.increment_between(
                Progress.from_value(start), Progress.from_value(end)
            )
            self._log_notices(increment.notices)
            task_bytes = source.task_bytes or default_task_bytes(increment.data_bytes)
            # Whoever reads has nothing but the partition, and many share what is read.
            cluster = source.increments.catalog.cluster()
            reads = [
                pickle.dumps((read, cluster.for_topic(read.origin.topic) if cluster else None))
                for read in increment.reads
            ]
            return [
                InputPartition(tuple((reads[number], handle) for number, handle in each.value))
                for each in partitions_of(increment.reads, task_bytes)
            ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition; called on executors.

        Raises:
            OpenTransactionError: A transaction in it has no outcome yet.
            PulsarOffloadError: Data cannot be read or decoded (damage is logged when salvaging).
        """
        with sentence_first():
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
                log_metrics(read.origin.topic, metrics)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: what was read stays in the bucket."""

    def _log_notices(self, notices: Sequence[str]) -> None:
        for notice in notices:
            if notice not in self._logged:
                self._logged.add(notice)
                _LOG.warning("pulsar_offload: %s", notice)


def _refuse_opening() -> NoReturn:
    message = "a reader of a task opens nothing"
    raise RuntimeError(message)
