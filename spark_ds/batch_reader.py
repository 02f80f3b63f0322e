"""A batch read in Spark: planned on the driver, executed on executors, as Arrow record batches."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.sql.datasource import DataSourceReader, InputPartition

from arrow_io.read_metrics import ReadMetrics
from connector.catalog.live_cluster import explain_missing_in_topic
from connector.scan.execution import execute
from connector.scan.topic_read import task_of
from spark_ds.column_types import spark_schema
from spark_ds.sentence_first import sentence_first

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
"""Spark does not say to a source how many cores it has; so many keep a middling cluster busy."""


def default_task_bytes(scan_bytes: int) -> int:
    """How many bytes of data objects a Spark task should read, by how many there are in all.

    A task costs about 30 ms whatever it reads, and 16 MiB take several times as long to decode; of
    more than 128 MiB, one that fails is dear to repeat.
    """
    return min(max(scan_bytes // _TARGET_TASKS, _MIN_TASK_BYTES), _MAX_TASK_BYTES)


class TopicBatchReader(DataSourceReader):
    """Reads a scan of topics.

    Has no `pushFilters`: in Spark 4.1 to 4.3 a scan that was planned with a filter is used again
    for the next query of the same data frame, which then lacks rows. What a frame has by the option
    `where` it has in all queries.

    What a task had to leave out (open transactions, incomplete chunked messages, damage that was
    passed over) is logged at level WARNING, with the place of each loss: the executor's standard
    error shows it, and `spark.tvf.python_worker_logs()` where
    `spark.sql.pyspark.worker.logging.enabled` is set.

    Args:
        scan: What to read.
        unsound: What was lost already when the topics were opened.
        task_bytes: How many bytes of data objects a task should read, about; None to choose by the
            size of the scan.
    """

    def __init__(self, scan: Scan, unsound: ReadMetrics, task_bytes: int | None = None) -> None:
        self._reads = scan.reads()
        self._cluster = scan.cluster
        self._unsound = unsound
        self._pruning = scan.pruning()
        if task_bytes is None:
            task_bytes = default_task_bytes(sum(read.data_bytes for read in self._reads))
        self._partitions = list(partitions_of(self._reads, task_bytes))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled as one that can only read: Spark sends the reader along with each task."""
        return _new_task_reader, (type(self), self._reads, self._cluster)

    def partitions(self) -> Sequence[InputPartition]:
        """One or more tasks each, in order; many small topics make one partition."""
        log_metrics("the bucket", self._unsound)
        for sentence in self._pruning.lines():
            level = logging.WARNING if sentence in self._pruning.problems else logging.INFO
            _LOG.log(level, "pulsar_offload: %s", sentence)
        return self._partitions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition; called on executors.

        Args:
            partition: One of `partitions`; or one without a value, which Spark makes up if there
                is none.

        Raises:
            PulsarOffloadError: Data cannot be read or decoded (damage is logged when salvaging).
        """
        parts: tuple[_NumberedTask, ...] = partition.value or ()
        with sentence_first():
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


def partitions_of(reads: Sequence[TopicRead], task_bytes: int) -> Iterator[InputPartition]:
    """The tasks of all topics: each as the number of its read, and its handle.

    Args:
        reads: What is read of each topic.
        task_bytes: How many bytes of data objects a partition should read, about.
    """
    parts: list[_NumberedTask] = []
    size_bytes = 0
    for number, read in enumerate(reads):
        for task in read.tasks(task_bytes):
            data_bytes = task.data_bytes
            # What brokers have may be much, and nobody knows how much.
            is_unknown = not read.ledgers[-1].stored_bytes
            if parts and (is_unknown or size_bytes + data_bytes > task_bytes):
                yield InputPartition(tuple(parts))
                parts, size_bytes = [], 0
            parts.append((number, task.handle()))
            size_bytes += data_bytes
    if parts:
        yield InputPartition(tuple(parts))


def log_metrics(source: str, metrics: ReadMetrics) -> None:
    """Log what a read met besides its rows.

    Args:
        source: What was read.
        metrics: What was met.
    """
    for sentence in (*metrics.notices(), *metrics.waiting(), *metrics.losses):
        _LOG.warning("pulsar_offload: %s: %s", source, sentence)
