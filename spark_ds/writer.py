"""Writes in Spark: tasks stage ledgers, and the driver publishes them.

Each task has its own share of the ids that the driver chose, and each attempt has its own uuids. So
a repeated task disturbs nothing. The driver commits one attempt of each task, and publishes their
ledgers. For streams, Spark creates a writer for each step, and commits a batch again after a crash.
So the commit record's id is made of the ids of query and batch, and the record stays in the bucket.
"""

from __future__ import annotations

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
from spark_ds.process_log import log_sentences
from spark_ds.spark_version import is_spark_since
from spark_ds.tracebacks import hide_traceback

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql.types import StructType

    from arrow_io.storage.location import Location
    from connector.catalog.bucket import BucketContents
    from connector.writing.commit_record import CommitRecordFile
    from connector.writing.staging import StagedWrite, WritePlan
    from connector.writing.write_target import WriteTarget
    from spark_ds.write_options import SinkOptions


_QUERY_ID: Final = "sql.streaming.queryId"
"""Spark's local property with a query's id, which stays the same when the query is restarted.
Tasks of jobs that `foreachBatch` starts have it too."""
_BATCH_ID: Final = "streaming.sql.batchId"
"""Spark's local property with a batch's id, which stays the same when the batch is repeated."""

_contents: dict[Location, BucketContents] = {}
"""Bucket contents at the last batch, so that a process that plans several reads only new
objects."""


@dataclass(frozen=True, slots=True)
class StagedTask(WriterCommitMessage):
    """Message from a task to the driver: the ledgers that it staged.

    Attributes:
        write_id: Id of a stream's batch; None for a batch write.
    """

    staged: StagedWrite
    write_id: str | None


class TopicBatchWriter(DataSourceArrowWriter):
    """Writer of a data frame: all rows or none."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        target = options.target
        file = target.commit_record_file(target.request.write_id)
        _check_columns(target, schema)
        earlier = publish_earlier(target, file)
        if earlier is not None:
            _log(target, earlier.warnings)
        self._plan = _begin_write(options, file) if earlier is None else None

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task, unless the write was published before. Called on executors.

        Raises:
            PulsarOffloadError: See `stage`.
        """
        if self._plan is None:
            # Spark waits until its rows are consumed.
            deque(iterator, maxlen=0)
            return WriterCommitMessage()
        return _stage(self._options, self._plan, iterator, write_id=None)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish what all tasks have staged.

        Raises:
            PulsarOffloadError: See `publish`. Spark then calls `abort`.
        """
        if self._plan is None:
            return
        with hide_traceback():
            _publish(self._options.target, _staged_tasks(messages), self._file(self._plan))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete what tasks have staged, unless the write is committed and can be repeated.

        Raises:
            PulsarOffloadError: See `discard`. Spark logs it.
        """
        del messages
        if self._plan is None:
            return
        with hide_traceback():
            discard(self._options.target, self._file(self._plan))

    def _file(self, plan: WritePlan) -> CommitRecordFile:
        target = self._options.target
        return target.commit_record_file(target.request.write_id, plan.mark)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writer of a stream's batches, each exactly once even if Spark repeats it.

    Args:
        is_resuming: Whether this writer commits or aborts a batch that another one began.
    """

    def __init__(self, options: SinkOptions, schema: StructType, *, is_resuming: bool) -> None:
        request = options.target.request
        for name in ("write_id", "first_ledger_id"):
            if getattr(request, name) is not None:
                message = f"option {name} is not for streams: each batch has its own"
                raise OptionError(message)
        # Batches are committed under ids, which are known only later.
        options.target.bucket.check_writes_new_objects()
        self._options = options
        self._plan: WritePlan | None = None
        if not is_resuming:
            _check_columns(options.target, schema)
            self._plan = _begin_write(options, options.target.commit_record_file(None))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedTask:
        """Stage the rows of a task. Called on executors.

        Raises:
            PulsarOffloadError: See `stage`.
        """
        assert self._plan is not None, "only writers that have begun a batch are sent to tasks"  # noqa: S101
        task = _current_task()
        write_id = f"{task.getLocalProperty(_QUERY_ID)}-{task.getLocalProperty(_BATCH_ID)}"
        mark = mark_with_id(self._plan.mark, self._options.target.topic, write_id)
        plan = replace(self._plan, mark=mark)
        return _stage(self._options, plan, iterator, write_id=write_id)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish a batch, unless it was published before. Called again after a crash.

        Raises:
            PulsarOffloadError: See `publish`. Spark then calls `abort`, and the query fails.
        """
        del batchId
        with hide_traceback():
            tasks = _staged_tasks(messages)
            if tasks:
                _publish(self._options.target, tasks, self._file(tasks[0]))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Delete what tasks have staged, unless the batch is committed.

        If no task has ended, the driver does not know the staged objects. They remain as data
        without index.

        Raises:
            PulsarOffloadError: See `discard`. Spark logs it.
        """
        del batchId
        with hide_traceback():
            tasks = _staged_tasks(messages)
            if tasks:
                discard(self._options.target, self._file(tasks[0]))

    def _file(self, task: StagedTask) -> CommitRecordFile:
        return self._options.target.commit_record_file(task.write_id, task.staged.mark)


def refuse_overwrite(*, overwrite: bool) -> None:
    """Raise `OptionError` if a topic is to be replaced."""
    if overwrite:
        message = (
            "an offloaded topic is never replaced: append to it, or write to another topic name"
            " (a stream's output mode complete would replace it)"
        )
        raise OptionError(message)


def _check_columns(target: WriteTarget, schema: StructType) -> None:
    """Raise for columns that cannot be written, before any task runs."""
    # Spark 4.1 always converts times to UTC, and has no parameter for the zone.
    zone: dict[str, Any] = {"timezone": "UTC"} if is_spark_since((4, 2)) else {}
    no_rows = pa.RecordBatch.from_pylist([], to_arrow_schema(schema, **zone))
    list(MessageRows(target.read_schema(), publish_time_ms=0).messages(no_rows))


def _begin_write(options: SinkOptions, file: CommitRecordFile) -> WritePlan:
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
    with hide_traceback():
        ids = plan.ids.share(_current_task().partitionId(), options.task_ledgers)
        return StagedTask(stage(options.target, plan, ids, batches), write_id)


def _current_task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark calls this in a task"  # noqa: S101
    return context


def _staged_tasks(messages: Sequence[WriterCommitMessage | None]) -> list[StagedTask]:
    return [each for each in messages if isinstance(each, StagedTask)]


def _publish(target: WriteTarget, tasks: Sequence[StagedTask], file: CommitRecordFile) -> None:
    files = metadata_files(target)
    if files is not None:
        files.resume(file.mark)
    staged = [each.staged for each in tasks]
    if not any(each.ledgers for each in staged):
        # The frame has no rows, but an earlier or concurrent write may be committed.
        if files is not None:
            files.end()
        earlier = publish_earlier(target, file)
        if earlier is not None:
            _log(target, earlier.warnings)
        return
    result = publish(target, staged, file, files=files)
    _log(target, dict.fromkeys(text for each in staged for text in each.warnings))
    _log(target, result.warnings)


def _log(target: WriteTarget, sentences: Iterable[str]) -> None:
    log_sentences(f"{target.topic}: {each}" for each in sentences)
