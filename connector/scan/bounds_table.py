"""The bounds of topics as a table: number of messages, first and last position, range of times.

Zones whose messages all count are not read, because statistics record their bounds. Everything else
is read, so the bounds are exact with any statistics, and without.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from connector.scan.scanner import TopicScanner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connector.scan.topic_scan import Scan

_TIME: Final = pa.timestamp("us", "UTC")
_POSITION: Final = {
    "__ledger_id__": ("ledger_id", pa.int64()),
    "__entry_id__": ("entry_id", pa.int64()),
    "__batch_index__": ("batch_index", pa.int32()),
}
"""Columns of rows; what they are called after `first_` and `last_`, and their types."""
_TIMES: Final = {
    "__publish_time__": "publish_time",
    "__event_time__": "event_time",
    "__broker_time__": "broker_time",
}
"""Columns of rows, and what statistics call them after `min_` and `max_`."""
_BOUND_COLUMNS: Final = [f"{end}_{name}" for name in _TIMES.values() for end in ("min", "max")]

BOUNDS_SCHEMA: Final = pa.schema(
    {
        "topic": pa.string(),
        "messages": pa.int64(),
        **{
            f"{end}_{name}": type_
            for end in ("first", "last")
            for name, type_ in _POSITION.values()
        },
    }
    | dict.fromkeys(_BOUND_COLUMNS, _TIME)
)
"""One row per topic partition.

- `messages`: number of rows.
- `first_ledger_id` … `last_batch_index`: positions of the first and the last row; null if there is
  none. The batch index is also null if the message is not batched.
- `min_publish_time`, `max_publish_time` and so on: null if no row has such a time.
"""


def bounds_table(scan: Scan) -> pa.Table:
    """Return the bounds of a scan's rows, in `BOUNDS_SCHEMA`.

    Raises:
        PulsarOffloadError: The statistics cannot be read, or rows that have to be.
    """
    names = {own: name for name, own in scan.options.filterable.columns}
    times = scan.select(names[each] for each in _TIMES).by_topic()
    # With a time among the columns, checksums are compared, and damage is met as for the times.
    positions = scan.select(names[each] for each in (*_POSITION, *_TIMES)).by_topic()
    rows = [_row(*each) for each in zip(times, positions, strict=True)]
    return pa.Table.from_pylist(rows, BOUNDS_SCHEMA)


def _row(times: Scan, positions: Scan) -> dict[str, object]:
    [topic] = times.topics
    rest, zones = times.plan_recorded(_BOUND_COLUMNS)
    bounds = _Bounds()
    bounds.add(zones, _BOUND_COLUMNS, pc.sum(zones.column("messages")).as_py() or 0)
    columns = [name for name in rest.options.projection.schema.names for _ in ("min", "max")]
    for batch in TopicScanner(rest).to_batches():
        bounds.add(batch, columns, batch.num_rows)
    row: dict[str, object] = {"topic": str(topic.topic), "messages": bounds.messages}
    if bounds.messages:
        scanner = TopicScanner(positions)
        # `head` would plan anew, without the view.
        with closing(scanner.to_batches()) as batches:
            first = next(batches).slice(0, 1)
        for end, rows in (("first", first), ("last", scanner.tail(1))):
            for (name, _), column in zip(_POSITION.values(), rows.columns, strict=False):
                [row[f"{end}_{name}"]] = column.to_pylist()
    return row | dict(zip(_BOUND_COLUMNS, bounds.ends, strict=True))


@dataclass
class _Bounds:
    """Bounds of the rows so far: their number, and the ends of their times in µs."""

    messages: int = 0
    ends: list[int | None] = field(default_factory=lambda: [None] * len(_BOUND_COLUMNS))

    def add(self, rows: pa.Table | pa.RecordBatch, columns: Sequence[str], messages: int) -> None:
        """Add rows, or zones, whose minimums and maximums are in some columns, alternately."""
        self.messages += messages
        for index, name in enumerate(columns):
            values = rows.column(name).cast(_TIME).cast(pa.int64())
            end, own = (min, pc.min) if index % 2 == 0 else (max, pc.max)
            known = [each for each in (self.ends[index], own(values).as_py()) if each is not None]
            self.ends[index] = end(known, default=None)
