"""What a scan will read, and what it leaves out and why, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from connector.scan.planned_ranges import planned_ranges
from connector.scan.topic_scan import DEFAULT_TASK_BYTES

if TYPE_CHECKING:
    from arrow_io.ledgers.ledger import Ledger
    from connector.scan.topic_read import TopicRead
    from connector.scan.topic_scan import Scan

_NUMBER: Final = pa.int64()

PLAN_SCHEMA: Final = pa.schema(
    {
        "topic": pa.string(),
        "ledgers": _NUMBER,
        "bytes": _NUMBER,
        "read_ledgers": _NUMBER,
        "read_bytes": _NUMBER,
        "requests": _NUMBER,
        "tasks": _NUMBER,
        "skipped_zones": _NUMBER,
        "skipped_bytes": _NUMBER,
        "skipped_ledgers": _NUMBER,
        "unknown_ledgers": _NUMBER,
        "unused_statistics": pa.list_(pa.string()),
    }
)
"""One row a topic or partition: its ledgers, and how many bytes their data blocks have; in how many
of them something has to be read, how many bytes, by how many requests and tasks, data blocks taken
whole unless it is known where entries stand; how many zones, of how many bytes, statistics
spare; how many ledgers the times at which they were written spare (`clock_slack`); of how many
ledgers statistics were asked and know nothing; and why some statistics could not be used. Bounds by
id, and filters of positions, leave out the rest."""


def plan_table(scan: Scan, range_bytes: int | None = None) -> pa.Table:
    """The plan of a scan, in `PLAN_SCHEMA`; sends no request but for statistics.

    Args:
        scan: The scan.
        range_bytes: Most bytes that one request for data asks for; None: as the ledgers were
            opened.

    Raises:
        StorageError: The statistics cannot be read.
    """
    rows = [_row(each, range_bytes) for each in scan.every_read()]
    return pa.Table.from_pylist(rows, PLAN_SCHEMA)


def _row(read: TopicRead, range_bytes: int | None) -> dict[str, object]:
    tasks = list(read.tasks(DEFAULT_TASK_BYTES))
    ranges = [each for task in tasks for each in planned_ranges(task, range_bytes)]
    pruning = read.pruning
    return {
        "topic": read.origin.topic,
        "ledgers": len(read.ledgers),
        "bytes": sum(map(_data_bytes, read.ledgers)),
        "read_ledgers": len({each.ledger_id for each in read.ranges}),
        "read_bytes": sum(each.bytes for each in ranges),
        "requests": sum(each.requests for each in ranges),
        "tasks": len(tasks),
        "skipped_zones": pruning.zones,
        "skipped_bytes": pruning.bytes,
        "skipped_ledgers": pruning.ledgers_by_time,
        "unknown_ledgers": pruning.unknown_ledgers,
        "unused_statistics": list(pruning.problems),
    }


def _data_bytes(ledger: Ledger) -> int:
    return sum(stop - start for start, stop in ledger.extents(0, ledger.last_entry_id))
