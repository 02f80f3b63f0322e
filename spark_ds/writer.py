"""Writing in Spark: tasks stage ledgers, which nobody reads, and the driver publishes them.

Each task has a share of the ids that the driver has chosen, and each attempt at it has uuids of its
own, so that a task that is repeated disturbs nothing. The driver decides once which attempts count,
and publishes their ledgers. In streams, where Spark makes a writer anew for each step and commits a
batch again after a crash, the decision bears the ids of query and batch, and stays in the bucket.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema

from arrow_io.errors import OptionError
from connector.writing.commit import begin, discard, metadata_files, publish, publish_earlier
from connector.writing.ledger_ids import mark_with_id
from connector.writing.message_rows import MessageRows
from connector.writing.staging import stage
from spark_ds.sentence_first import sentence_first
from spark_ds.spark_version import is_spark_since

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql.types import StructType

    from arrow_io.storage.location import Location
    from connector.catalog.bucket import BucketContents
    from connector.writing.commit_record import CommitRecordFile
    from connector.writing.staging import StagedWrite, WritePlan
    from connector.writing.write_target import WriteTarget
    from spark_ds.write_options import SinkOptions

_LOG: Final = logging.getLogger(__name__)

_QUERY_ID: Final = "sql.streaming.queryId"
"""Where Spark tells a task of which query it is; it is the same whenever the query is started.

Tasks of a job that `foreachBatch` starts are told of it too.
"""
_BATCH_ID: Final = "streaming.sql.batchId"
"""And of which batch, which is the same whenever it is run."""

_contents: dict[Location, BucketContents] = {}
"""What the bucket of the last batch held: a process that plans the next ones reads what is new."""


@dataclass(frozen=True, slots=True)
class StagedTask(WriterCommitMessage):
    """What a task tells the driver.

    Attributes:
        staged: What it staged.
        write_id: Id of the batch of a stream; None: it is no stream.
    """

    staged: StagedWrite
    write_id: str | None


class TopicBatchWriter(DataSourceArrowWriter):
    """Writes a data frame, all of it or nothing.

    Args:
        options: Where to, and how.
        schema: The columns.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        target = options.target
        file = target.commit_record_file(target.request.write_id)
        _check_columns(target, schema)
        earlier = publish_earlier(target, file)
        if earlier is not None:
            _log(target, earlier.warnings)
        self._plan = _plan(options, file) if earlier is None else None

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task, unless its write was published before; called on executors.

        Raises:
            PulsarOffloadError: See `stage`.
        """
        if self._plan is None:
            # Spark waits for who takes its rows.
            deque(iterator, maxlen=0)
            return WriterCommitMessage()
        return _stage(self._options, self._plan, iterator, write_id=None)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish what all tasks have staged.

        Raises:
            PulsarOffloadError: See `publish`; Spark calls `abort` then.
        """
        if self._plan is None:
            return
        with sentence_first():
            _publish(self._options.target, _tasks(messages), self._file(self._plan))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete what tasks have staged, unless it is decided and can be gone on with.

        Raises:
            PulsarOffloadError: See `discard`; Spark logs it.
        """
        del messages
        if self._plan is None:
            return
        with sentence_first():
            discard(self._options.target, self._file(self._plan))

    def _file(self, plan: WritePlan) -> CommitRecordFile:
        target = self._options.target
        return target.commit_record_file(target.request.write_id, plan.mark)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream, each once, however often Spark repeats it.

    Args:
        options: Where to, and how.
        schema: The columns.
        is_resuming: Whether it is made to end a batch that another one has begun.
    """

    def __init__(self, options: SinkOptions, schema: StructType, *, is_resuming: bool) -> None:
        request = options.target.request
        for name in ("write_id", "first_ledger_id"):
            if getattr(request, name) is not None:
                message = f"option {name} is not for streams, each batch of which has its own"
                raise OptionError(message)
        # Its batches are decided under ids, which come later.
        options.target.bucket.check_writes_new_objects()
        self._options = options
        self._plan: WritePlan | None = None
        if not is_resuming:
            _check_columns(options.target, schema)
            self._plan = _plan(options, options.target.commit_record_file(None))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedTask:
        """Stage the rows of a task; called on executors.

        Raises:
            PulsarOffloadError: See `stage`.
        """
        assert self._plan is not None, "only writers that have begun a batch are sent to tasks"  # noqa: S101
        task = _task()
        write_id = f"{task.getLocalProperty(_QUERY_ID)}-{task.getLocalProperty(_BATCH_ID)}"
        mark = mark_with_id(self._plan.mark, self._options.target.topic, write_id)
        plan = replace(self._plan, mark=mark)
        return _stage(self._options, plan, iterator, write_id=write_id)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish a batch, unless it was published; called again after a crash.

        Raises:
            PulsarOffloadError: See `publish`; Spark calls `abort` then, and the query fails.
        """
        del batchId
        with sentence_first():
            tasks = _tasks(messages)
            if tasks:
                _publish(self._options.target, tasks, self._file(tasks[0]))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Delete what tasks have staged, unless the batch is decided.

        If no task has ended, nothing says what there is to delete: it is data without index.

        Raises:
            PulsarOffloadError: See `discard`; Spark logs it.
        """
        del batchId
        with sentence_first():
            tasks = _tasks(messages)
            if tasks:
                discard(self._options.target, self._file(tasks[0]))

    def _file(self, task: StagedTask) -> CommitRecordFile:
        return self._options.target.commit_record_file(task.write_id, task.staged.mark)


def refuse_overwrite(*, overwrite: bool) -> None:
    """Refuse to replace a topic.

    Raises:
        OptionError: It is asked for.
    """
    if overwrite:
        message = (
            "what was offloaded is never replaced: append, or write to a topic of another name"
            " (of a stream, the output mode complete would replace it)"
        )
        raise OptionError(message)


def _check_columns(target: WriteTarget, schema: StructType) -> None:
    """Refuse, before any task runs, columns that cannot be written."""
    # Spark 4.1 has times in UTC, and cannot be asked for another zone.
    zone: dict[str, Any] = {"timezone": "UTC"} if is_spark_since((4, 2)) else {}
    no_rows = pa.RecordBatch.from_pylist([], to_arrow_schema(schema, **zone))
    list(MessageRows(target.read_schema(), publish_time_ms=0).messages(no_rows))


def _plan(options: SinkOptions, file: CommitRecordFile) -> WritePlan:
    target = options.target
    new_write = begin(
        target, file, id_stride=options.task_ledgers, previous=_contents.get(target.bucket)
    )
    _contents.clear()
    if new_write.contents is not None:
        _contents[target.bucket] = new_write.contents
    _log(target, new_write.plan.warnings)
    return new_write.plan


def _stage(
    options: SinkOptions, plan: WritePlan, batches: Iterator[pa.RecordBatch], write_id: str | None
) -> StagedTask:
    with sentence_first():
        ids = plan.ids.share(_task().partitionId(), options.task_ledgers)
        return StagedTask(stage(options.target, plan, ids, batches), write_id)


def _task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark calls this in a task"  # noqa: S101
    return context


def _tasks(messages: Sequence[WriterCommitMessage | None]) -> list[StagedTask]:
    return [each for each in messages if isinstance(each, StagedTask)]


def _publish(target: WriteTarget, tasks: Sequence[StagedTask], file: CommitRecordFile) -> None:
    files = metadata_files(target)
    if files is not None:
        files.resume(file.mark)
    staged = [each.staged for each in tasks]
    if not any(each.ledgers for each in staged):
        # A frame without rows; what was decided meanwhile, or before, counts nevertheless.
        if files is not None:
            files.end()
        earlier = publish_earlier(target, file)
        if earlier is not None:
            _log(target, earlier.warnings)
        return
    published = publish(target, staged, file, files=files)
    _log(target, dict.fromkeys(text for each in staged for text in each.warnings))
    _log(target, published.warnings)


def _log(target: WriteTarget, sentences: Iterable[str]) -> None:
    for sentence in sentences:
        _LOG.warning("pulsar_offload: %s: %s", target.topic, sentence)
