"""The requests that a task will send, and the bytes that they return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from connector.scan.topic_read import ScanTask


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRange:
    """The part of one ledger that a task reads; `last_entry_id` is inclusive.

    Attributes:
        topic: Full name of the topic or partition.
        requests: Number of range requests.
        bytes: Number of bytes that they return.
    """

    topic: str
    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    requests: int
    bytes: int


def planned_ranges(task: ScanTask, range_bytes: int | None) -> Iterator[PlannedRange]:
    """Yield what a task reads of each ledger; nothing for ranges whose entries are all lost.

    `range_bytes` is the maximum size of a range request; None: as set when the ledgers were opened.
    """
    for ledger, entries, start, stop in task.block_ranges():
        yield PlannedRange(
            topic=task.read.origin.topic,
            ledger_id=entries.ledger_id,
            first_entry_id=entries.first_entry_id,
            last_entry_id=entries.last_entry_id,
            requests=-(-(stop - start) // (range_bytes or ledger.location.first_range_bytes)),
            bytes=stop - start,
        )
