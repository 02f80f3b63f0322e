"""What a copy would read and write, before it does: bytes, requests, and with prices money."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from arrow_io.core.option_values import check_whole_number
from arrow_io.storage.trace import RequestCounts
from connector.lake.file_writer import PART_BYTES
from connector.scan.planned_ranges import planned_ranges

if TYPE_CHECKING:
    from connector.increments.increment import Increment

_UPLOAD_REQUESTS = 2
"""To begin an object that is written in parts, and to complete it."""
_COMMIT_REQUESTS = 2
"""A progress file and an entry of a log, or less."""


_MAX_BYTES: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySizes:
    """How much is put together.

    Attributes:
        file_bytes: Bytes of a file after which the next is begun, about.
        task_bytes: Bytes of data objects that a task reads, about: each has files of its own.
        commit_bytes: Bytes of data objects after which what was written is committed, about.

    Raises:
        OptionError: One is not a positive whole number.
    """

    file_bytes: int = 128 << 20
    task_bytes: int = 256 << 20
    commit_bytes: int = 4 << 30

    def __post_init__(self) -> None:
        """Check the sizes."""
        for each in fields(self):
            check_whole_number(each.name, getattr(self, each.name), 1, _MAX_BYTES)


DEFAULT_SIZES: Final = CopySizes()


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """What a copy to one table would do now.

    Attributes:
        target: The table.
        tasks: How many tasks it has.
        ledgers: Of how many ledgers it reads.
        data_bytes: Bytes of data objects that it reads, blocks taken whole.
        commits: How many commits it makes, about.
        reading: Requests for data, and the bytes that they bring.
        writing: Requests that write, as though the files were as long as what is read and each
            task had one partition: they are shorter, as a rule, and more of them if there are more
            partitions.
        lag_bytes: Bytes in the bucket that cannot be copied yet.
        notices: One sentence for each thing a reader of the table must know of.
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
    """The plan of a copy of all that is new; sends nothing."""
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
