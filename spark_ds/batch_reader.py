"""Batch reads in Spark: planned on the driver, executed on executors as Arrow record batches."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from connector.scan.parts import PartReader, plan_parts
from spark_ds.column_types import spark_schema
from spark_ds.process_log import log_sentences
from spark_ds.tracebacks import hide_traceback

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from arrow_io.read_metrics import ReadMetrics
    from connector.scan.topic_scan import Scan

_LOG: Final = logging.getLogger(__name__)


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
        task_bytes: See `plan_parts`. None chooses by the size of the scan.
    """

    def __init__(self, scan: Scan, unsound: ReadMetrics, task_bytes: int | None = None) -> None:
        self._reader = PartReader.from_scan(scan)
        self._unsound = unsound
        self._pruning = scan.pruning()
        self._partitions = [
            InputPartition(part) for part in plan_parts(self._reader.reads, task_bytes)
        ]

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle only what `read` needs: Spark sends the reader with each task."""
        return _new_task_reader, (type(self), self._reader)

    def partitions(self) -> Sequence[InputPartition]:
        """Return partitions of one or more tasks each, in order. Many small topics share one."""
        log_metrics("the bucket", self._unsound)
        for sentence in self._pruning.lines():
            level = logging.WARNING if sentence in self._pruning.problems else logging.INFO
            log_sentences([sentence], level=level)
        return self._partitions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition. Called on executors.

        If there are no partitions, Spark creates one without a value.

        Raises:
            PulsarOffloadError: Data cannot be read or decoded. With salvage, damage is logged.
        """
        with hide_traceback():
            for batch in self._reader.batches(partition.value or (), log_metrics):
                target_schema = spark_schema(batch.schema)
                yield batch if target_schema == batch.schema else batch.cast(target_schema)


def _new_task_reader(cls: type[TopicBatchReader], part_reader: PartReader) -> TopicBatchReader:
    reader = cls.__new__(cls)
    reader._reader = part_reader  # noqa: SLF001 - in place of the constructor
    return reader


def log_metrics(source: str, metrics: ReadMetrics) -> None:
    """Log the notices and losses of a read of a topic or bucket."""
    sentences = (*metrics.notices(), *metrics.waiting(), *metrics.losses)
    log_sentences(f"{source}: {each}" for each in sentences)
