"""A scan's plan as a table: how much it will read, how much is pruned, and why."""

from __future__ import annotations

from collections import defaultdict
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from connector.scan.planned_ranges import planned_ranges
from connector.scan.topic_scan import DEFAULT_TASK_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arrow_io.ledgers.ledger import Ledger
    from connector.scan.table_read import TableRead
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
        "unused_table": pa.string(),
    }
)
"""One row per topic partition; before them, one of the table if rows are read from it (`lake`).

- `ledgers`, `bytes`: its ledgers, and the size of their data blocks.
- `read_ledgers`, `read_bytes`, `requests`, `tasks`: what has to be read. Data blocks count whole
  unless the positions of entries in them are known.
- `skipped_zones`, `skipped_bytes`: zones pruned by statistics.
- `skipped_ledgers`: ledgers pruned by the times at which they were written (`clock_slack`).
- `unknown_ledgers`: ledgers that statistics were asked about and do not record.
- `unused_statistics`: why some statistics could not be used.
- `unused_table`: why the table cannot be used.

Of a table, `topic` is its name, and each request reads a part of a file; at least one is counted
for each file.

Entries outside bounds by id, or ruled out by filters on positions, appear in no column.
"""


def plan_table(scan: Scan, range_bytes: int | None = None) -> pa.Table:
    """Return the plan of a scan, in `PLAN_SCHEMA`; sends requests only for statistics.

    `range_bytes` is the maximum size of a range request; None: as set when the ledgers were opened.

    Raises:
        StorageError: The statistics cannot be read.
    """
    by_topic: dict[str, list[TopicRead]] = defaultdict(list)
    for each in scan.every_read():
        by_topic[each.origin.topic].append(each)
    rows = [_row(each, range_bytes) for each in by_topic.values()]
    for row in rows:
        row["unused_table"] = scan.table_problem
    if scan.table_read is not None:
        rows.insert(0, _table_row(scan.table_read))
    return pa.Table.from_pylist(rows, PLAN_SCHEMA)


def _row(reads: Sequence[TopicRead], range_bytes: int | None) -> dict[str, object]:
    """Return the row of a topic, which has several reads if a table has most of its rows."""
    tasks = [task for each in reads for task in each.tasks(DEFAULT_TASK_BYTES)]
    ranges = [each for task in tasks for each in planned_ranges(task, range_bytes)]
    pruning = reduce(add, (each.pruning for each in reads))
    ledgers = reads[0].ledgers
    return {
        "topic": reads[0].origin.topic,
        "ledgers": len(ledgers),
        "bytes": sum(map(_data_bytes, ledgers)),
        "read_ledgers": len({each.ledger_id for read in reads for each in read.ranges}),
        "read_bytes": sum(each.bytes for each in ranges),
        "requests": sum(each.requests for each in ranges),
        "tasks": len(tasks),
        "skipped_zones": pruning.zones,
        "skipped_bytes": pruning.bytes,
        "skipped_ledgers": pruning.ledgers_by_time,
        "unknown_ledgers": pruning.unknown_ledgers,
        "unused_statistics": list(pruning.problems),
    }


def _table_row(read: TableRead) -> dict[str, object]:
    numbers = dict.fromkeys(PLAN_SCHEMA.names[1:-2], 0)
    return numbers | {
        "topic": read.origin.topic,
        "bytes": read.data_bytes,
        "read_bytes": read.data_bytes,
        "requests": len(read.numbers),
        "tasks": len(list(read.tasks(DEFAULT_TASK_BYTES))),
        "unused_statistics": [],
    }


def _data_bytes(ledger: Ledger) -> int:
    return sum(stop - start for start, stop in ledger.extents(0, ledger.last_entry_id))
