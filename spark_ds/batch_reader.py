"""A batch read in Spark: planned on the driver, executed on executors, as Arrow record batches."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from arrow_io.columns import Projection
from arrow_io.read_report import ReadReport
from connector.scan import ReadOptions, execute
from spark_ds.column_types import spark_schema
from spark_ds.sentence_first import sentence_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from connector.scan import LedgerReference, Scan, ScanTask

_LOG: Final = logging.getLogger(__name__)

_MIN_TASK_BYTES: Final = 16 << 20
_MAX_TASK_BYTES: Final = 128 << 20
_WANTED_TASKS: Final = 64
"""Spark does not tell a source how many cores it has; so many keep a middling cluster busy."""


def default_task_bytes(scan_bytes: int) -> int:
    """How many bytes of data objects a Spark task should read, by how many there are in all.

    A task costs about 30 ms whatever it reads, and 16 MiB take several times as long to decode; of
    more than 128 MiB, one that fails is dear to repeat.
    """
    return min(max(scan_bytes // _WANTED_TASKS, _MIN_TASK_BYTES), _MAX_TASK_BYTES)


@dataclass(frozen=True, slots=True)
class _Common:
    """What the tasks of one topic have in common, which the reader brings along for all of them.

    Attributes:
        following: The ledgers behind the first task; what stands behind each other task ends alike.
        options: How entries become rows, the topic's schemas among it.
    """

    following: tuple[LedgerReference, ...]
    options: ReadOptions


@dataclass(frozen=True, slots=True)
class _Share:
    """A task without what it has in common with others.

    Attributes:
        task: The task, `following` and `options` left out.
        following_count: How many of the topic's ledgers stand behind it.
    """

    task: ScanTask
    following_count: int

    @classmethod
    def of(cls, task: ScanTask) -> _Share:
        """What is left of a task."""
        return cls(replace(task, following=(), options=_NO_OPTIONS), len(task.following))

    def whole(self, common: _Common) -> ScanTask:
        """The task."""
        behind = common.following[len(common.following) - self.following_count :]
        return replace(self.task, following=behind, options=common.options)


_NO_OPTIONS: Final = ReadOptions(Projection(()), Projection(()))


class TopicBatchReader(DataSourceReader):
    """Reads a scan of topics.

    Has no `pushFilters`: in Spark 4.3 a scan that was planned with a filter is used again for the
    next query of the same data frame, which then lacks rows.

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

    def __init__(self, scan: Scan, unsound: ReadReport, task_bytes: int | None = None) -> None:
        if task_bytes is None:
            task_bytes = default_task_bytes(sum(task.data_bytes for task in scan.plan()))
        tasks = scan.plan(task_bytes)
        self._unsound = unsound
        self._groups = list(_grouped(tasks, task_bytes))
        # If each task had its own, the partitions of a topic would grow with the square of its
        # ledgers, and hold its schemas over and over.
        self._common: dict[str, _Common] = {}
        for task in tasks:
            self._common.setdefault(task.origin.topic, _Common(task.following, task.options))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled as one that can only read: Spark sends the reader along with each task."""
        return _reading_only, (type(self), self._common)

    def partitions(self) -> Sequence[InputPartition]:
        """One or more tasks each, in order; many small topics make one partition."""
        _log("the bucket", self._unsound)
        return [InputPartition(tuple(_Share.of(task) for task in group)) for group in self._groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition; called on executors.

        Args:
            partition: One of `partitions`; or one without a value, which Spark makes up if there
                is none.

        Raises:
            PulsarOffloadError: Data cannot be read or decoded (damage is logged when salvaging).
        """
        shares: tuple[_Share, ...] = partition.value or ()
        with sentence_first():
            for share in shares:
                topic = share.task.origin.topic
                task = share.whole(self._common[topic])
                report = ReadReport(salvage=task.options.salvage)
                schema = task.options.projection.schema
                taken = spark_schema(schema)
                for batch in execute(task, report):
                    yield batch if taken == schema else batch.cast(taken)
                _log(topic, report)


def _reading_only(cls: type[TopicBatchReader], common: dict[str, _Common]) -> TopicBatchReader:
    reader = cls.__new__(cls)
    reader._common = common  # noqa: SLF001 - in place of the constructor
    return reader


def _grouped(tasks: list[ScanTask], task_bytes: int) -> Iterator[tuple[ScanTask, ...]]:
    group: list[ScanTask] = []
    size = 0
    for task in tasks:
        if group and size + task.data_bytes > task_bytes:
            yield tuple(group)
            group, size = [], 0
        group.append(task)
        size += task.data_bytes
    if group:
        yield tuple(group)


def _log(what: str, report: ReadReport) -> None:
    for sentence in (*report.notices(), *report.losses):
        _LOG.warning("pulsar_offload: %s: %s", what, sentence)
