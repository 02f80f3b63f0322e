"""The plan of a copy: the bytes and requests that it would read and write."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from arrow_io.core.option_values import check_whole_number
from arrow_io.storage.trace import RequestCounts
from connector.display.text import size_text
from connector.scan.planned_ranges import planned_ranges
from connector.tables.file_writer import PART_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.increments.increment import Increment
    from connector.tables.transforms import Partitioning

_UPLOAD_REQUESTS = 2
"""Requests that start and complete a multipart upload."""
_COMMIT_REQUESTS = 2
"""At most a progress file and a log entry."""


_MAX_BYTES: Final = 2**63 - 1
_HOUR_MS: Final = 3_600_000
_HOURS: Final = {"hour": 1, "day": 24, "month": 30 * 24, "year": 365 * 24}
"""Approximate length of the partitions of a transform."""
_SMALL_PARTITION_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySizes:
    """Target sizes of files, tasks and commits, in bytes.

    Attributes:
        file_bytes: Approximate size at which a file is completed and the next one is started.
        task_bytes: Approximate bytes of data objects that a task reads. Each task writes its own
            files.
        commit_bytes: Approximate bytes of data objects that are copied between two commits.

    Raises:
        OptionError: A size is not a positive whole number.
    """

    file_bytes: int = 128 << 20
    task_bytes: int = 256 << 20
    commit_bytes: int = 4 << 30

    def __post_init__(self) -> None:
        for each in fields(self):
            check_whole_number(each.name, getattr(self, each.name), 1, _MAX_BYTES)


DEFAULT_SIZES: Final = CopySizes()


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """What a copy to one table would do now.

    Attributes:
        target: The table.
        tasks: Number of tasks.
        ledgers: Number of ledgers to read.
        data_bytes: Bytes of data objects to read, in whole blocks.
        commits: Approximate number of commits.
        reading: Range requests for data, and their bytes.
        writing: Requests that write. The estimate assumes that files are as long as the data read,
            and that each task writes one partition. Files are usually shorter, and there are more
            of them if there are more partitions.
        lag_bytes: Bytes in the bucket that cannot be copied yet.
        notices: One sentence for each fact that a reader of the table must know.
    """

    target: str
    tasks: int
    ledgers: int
    data_bytes: int
    commits: int
    reading: RequestCounts
    writing: RequestCounts
    lag_bytes: int
    notices: tuple[str, ...]

    @property
    def counts(self) -> RequestCounts:
        """All requests and bytes."""
        return self.reading + self.writing


def plan_table_copy(target: str, increment: Increment, sizes: CopySizes) -> CopyPlan:
    """Plan the copy of an increment; send no request."""
    tasks = [task for read in increment.reads for task in read.tasks(sizes.task_bytes)]
    ranges = [each for task in tasks for each in planned_ranges(task, None)]
    commits = -(-increment.data_bytes // sizes.commit_bytes)
    puts = uploads = parts = 0
    for task in tasks:
        if task.data_bytes <= PART_BYTES:
            puts += 1
        else:
            uploads += _UPLOAD_REQUESTS * -(-task.data_bytes // sizes.file_bytes)
            parts += -(-task.data_bytes // PART_BYTES)
    return CopyPlan(
        target=target,
        tasks=len(tasks),
        ledgers=increment.ledgers,
        data_bytes=increment.data_bytes,
        commits=commits,
        reading=RequestCounts(
            range_requests=sum(each.requests for each in ranges),
            range_bytes=sum(each.bytes for each in ranges),
        ),
        writing=RequestCounts(
            put_requests=puts + commits * _COMMIT_REQUESTS,
            upload_requests=uploads,
            part_requests=parts,
            part_bytes=increment.data_bytes,
        ),
        lag_bytes=increment.lag.data_bytes,
        notices=increment.notices,
    )


def small_partition_notices(
    topics: Iterable[TopicLedgers], partitioning: Partitioning
) -> Iterator[str]:
    """Yield a sentence for each transform of a time whose partitions get little data.

    The rate of a topic is that of its ledgers before the last one, by the creation times that their
    index objects record. A topic with one ledger has no known rate. Sends no request.
    """
    bytes_per_ms = 0.0
    for topic in topics:
        ledgers = [
            (metadata.ctime_ms, each.copy.stored_bytes)
            for each in topic.states
            if each.copy is not None and each.copy.ledger is not None
            if (metadata := each.copy.ledger.ledger_metadata) is not None
            if metadata.ctime_ms is not None
        ]
        span_ms = ledgers[-1][0] - ledgers[0][0] if ledgers else 0
        if span_ms > 0:
            bytes_per_ms += sum(stored_bytes for _, stored_bytes in ledgers[:-1]) / span_ms
    for each in partitioning.fields:
        hours = _HOURS.get(each.transform)
        if hours is None or not bytes_per_ms:
            continue
        partition_bytes = int(bytes_per_ms * hours * _HOUR_MS)
        if partition_bytes < _SMALL_PARTITION_BYTES:
            yield (
                f"a partition of {each} gets about {size_text(partition_bytes)}, so the table will"
                " have many small files: use a longer period, or maintain the table"
            )
