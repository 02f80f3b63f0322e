"""Batch reads in Spark: planned on the driver, executed on executors as Arrow record batches."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.sql.datasource import DataSourceReader, InputPartition

from arrow_io.read_metrics import ReadMetrics
from connector.catalog.live_cluster import explain_missing_in_topic
from connector.scan.execution import execute
from connector.scan.topic_read import task_of
from spark_ds.column_types import spark_schema
from spark_ds.tracebacks import hide_traceback

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from connector.catalog.live_cluster import LiveCluster
    from connector.scan.topic_read import TaskHandle, TopicRead
    from connector.scan.topic_scan import Scan

_NumberedTask: TypeAlias = "tuple[int, TaskHandle]"

_LOG: Final = logging.getLogger(__name__)

_MIN_TASK_BYTES: Final = 16 << 20
_MAX_TASK_BYTES: Final = 128 << 20
_TARGET_TASKS: Final = 64
"""Number of tasks to aim for. Spark does not tell a source the number of cores, and this many
keep a medium-sized cluster busy."""


def default_task_bytes(scan_bytes: int) -> int:
    """Return how many bytes of data objects a Spark task should read, for a scan of this size.

    A task costs about 30 ms regardless of its size, and 16 MiB take several times as long to
    decode. A failed task of more than 128 MiB is expensive to repeat.
    """
    return min(max(scan_bytes // _TARGET_TASKS, _MIN_TASK_BYTES), _MAX_TASK_BYTES)


class TopicBatchReader(DataSourceReader):
    """A reader of a scan of topics.

    It has no `pushFilters`: Spark 4.1 to 4.3 reuses a scan that was planned with a filter for the
    next query of the same data frame, which then lacks rows. The condition of the option `where`
    applies to all queries of a frame.

    Losses of a task (open transactions, incomplete chunked messages, damage that was skipped) are
    logged at level WARNING with their locations. The log goes to the executor's standard error, and
    to `spark.tvf.python_worker_logs()` if `spark.sql.pyspark.worker.logging.enabled` is set.

    Args:
        unsound: Losses found when the topics were opened.
        task_bytes: See `plan_partitions`. None chooses by the size of the scan.
    """

    def __init__(self, scan: Scan, unsound: ReadMetrics, task_bytes: int | None = None) -> None:
        self._reads = scan.reads()
        self._cluster = scan.cluster
        self._unsound = unsound
        self._pruning = scan.pruning()
        if task_bytes is None:
            task_bytes = default_task_bytes(sum(read.data_bytes for read in self._reads))
        self._partitions = list(plan_partitions(self._reads, task_bytes))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle only what `read` needs: Spark sends the reader with each task."""
        return _new_task_reader, (type(self), self._reads, self._cluster)

    def partitions(self) -> Sequence[InputPartition]:
        """Return partitions of one or more tasks each, in order. Many small topics share one."""
        log_metrics("the bucket", self._unsound)
        for sentence in self._pruning.lines():
            level = logging.WARNING if sentence in self._pruning.problems else logging.INFO
            _LOG.log(level, "pulsar_offload: %s", sentence)
        return self._partitions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition. Called on executors.

        If there are no partitions, Spark creates one without a value.

        Raises:
            PulsarOffloadError: Data cannot be read or decoded. With salvage, damage is logged.
        """
        parts: tuple[_NumberedTask, ...] = partition.value or ()
        with hide_traceback():
            for number, handle in parts:
                task = task_of([self._reads[number]], handle)
                options = task.read.options
                metrics = ReadMetrics()
                schema = options.projection.schema
                target_schema = spark_schema(schema)
                with explain_missing_in_topic(self._cluster, task.read.origin.topic):
                    for batch in execute(task, metrics):
                        yield batch if target_schema == schema else batch.cast(target_schema)
                log_metrics(task.read.origin.topic, metrics)


def _new_task_reader(
    cls: type[TopicBatchReader], reads: list[TopicRead], cluster: LiveCluster | None
) -> TopicBatchReader:
    reader = cls.__new__(cls)
    reader._reads, reader._cluster = reads, cluster  # noqa: SLF001 - in place of the constructor
    return reader


def plan_partitions(reads: Sequence[TopicRead], task_bytes: int) -> Iterator[InputPartition]:
    """Split the reads into partitions of about `task_bytes` of data objects.

    A partition consists of tasks. Each is a pair of its read's number and its handle.
    """
    parts: list[_NumberedTask] = []
    size_bytes = 0
    for number, read in enumerate(reads):
        for task in read.tasks(task_bytes):
            data_bytes = task.data_bytes
            # The size of data that only brokers have is unknown, and may be large.
            is_unknown = not read.ledgers[-1].stored_bytes
            if parts and (is_unknown or size_bytes + data_bytes > task_bytes):
                yield InputPartition(tuple(parts))
                parts, size_bytes = [], 0
            parts.append((number, task.handle()))
            size_bytes += data_bytes
    if parts:
        yield InputPartition(tuple(parts))


def log_metrics(source: str, metrics: ReadMetrics) -> None:
    """Log the notices and losses of a read of a topic or bucket."""
    for sentence in (*metrics.notices(), *metrics.waiting(), *metrics.losses):
        _LOG.warning("pulsar_offload: %s: %s", source, sentence)
