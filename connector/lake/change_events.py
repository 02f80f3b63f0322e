"""Change events in a copy: messages that change no row are left out, and counted.

A read returns a row for each message, so that tombstones and truncated tables have rows without
values. A table has no use for them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.core.wording import agreeing, counted
from arrow_io.payloads.envelopes import CHANGES, DELETED_COLUMN, OP_COLUMN, UNAVAILABLE_VALUE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from connector.scan.read_options import ReadOptions
    from connector.scan.topic_read import ScanTask


@dataclass(slots=True)
class LeftOut:
    """Numbers of messages that a copy of change events leaves out, and of values that it lacks.

    Attributes:
        tombstones: Null values, which follow deletes.
        truncations: Truncated tables.
        notices: Heartbeats, changes of the database's schema, and messages in its log.
        unavailable_values: Values that PostgreSQL's log lacks, because they are stored outside of
            their row and an update did not change them. The table has a placeholder for each.
    """

    tombstones: int = 0
    truncations: int = 0
    notices: int = 0
    unavailable_values: int = 0

    def add(self, other: LeftOut) -> Self:
        """Add the numbers of another part of the same copy, and return these."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        return self

    def sentences(self, *, keeps_latest: bool) -> Iterator[str]:
        """Yield one sentence for each thing that a reader of the table must know.

        Args:
            keeps_latest: Whether the table has the latest row of each key.
        """
        if self.tombstones:
            yield f"{counted(self.tombstones, 'tombstone')} left out"
        if self.truncations:
            events = counted(self.truncations, "truncation")
            effect = ", which removes no rows from this one" if keeps_latest else ""
            yield f"{events} of the database's table left out{effect}"
        if self.notices:
            verb = agreeing(self.notices, "changes", "change")
            yield f"{counted(self.notices, 'message')} that {verb} no row left out"
        if self.unavailable_values:
            values = counted(self.unavailable_values, "value")
            verb = agreeing(self.unavailable_values, "is", "are")
            yield (
                f"{values} {verb} {UNAVAILABLE_VALUE}, because the database's log lacks large"
                " values that an update does not change: its table needs REPLICA IDENTITY FULL"
            )


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """Selects the rows of change events that a copy writes.

    Attributes:
        keeps_tombstones: Whether tombstones are written too, because they delete their key.
    """

    keeps_tombstones: bool

    @staticmethod
    def add_columns(task: ScanTask) -> ScanTask:
        """Return a task that also reads the columns that the filter needs, after the others."""
        options = task.read.options.add_columns((OP_COLUMN, DELETED_COLUMN))
        return replace(task, read=replace(task.read, options=options))

    def select(self, batch: pa.RecordBatch, left_out: LeftOut) -> pa.RecordBatch:
        """Return the rows to write, and count the others.

        Values that were lost to damage are no rows either, but read metrics count those.
        """
        left_out.unavailable_values += _count_unavailable(batch)
        op, deleted = batch.column(OP_COLUMN), batch.column(DELETED_COLUMN)
        is_written = pc.is_in(op, value_set=CHANGES)
        if pc.all(is_written).as_py():
            return batch
        is_tombstone = pc.and_(op.is_null(), pc.fill_null(deleted, fill_value=False))
        is_truncation = pc.fill_null(pc.equal(op, "t"), fill_value=False)
        is_other = pc.invert(pc.or_(is_written, pc.or_(is_tombstone, is_truncation)))
        left_out.truncations += is_truncation.true_count
        left_out.notices += pc.and_(is_other, deleted.is_valid()).true_count
        if self.keeps_tombstones:
            is_written = pc.or_(is_written, is_tombstone)
        else:
            left_out.tombstones += is_tombstone.true_count
        return batch.filter(is_written)


def _count_unavailable(batch: pa.RecordBatch) -> int:
    count = 0
    for column in batch.columns:
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            count += pc.equal(column, pa.scalar(UNAVAILABLE_VALUE.encode(), column.type)).true_count
    return count


def change_filter(options: ReadOptions, key_columns: Sequence[str] | None) -> ChangeFilter | None:
    """Return which rows of change events a copy writes; None if values are not unwrapped.

    Args:
        options: How rows are read.
        key_columns: The columns that identify rows, if the table has the latest row of each key.
    """
    values = options.filterable.values
    if values is None or not options.is_unwrapped:
        return None
    # A tombstone has no row, and so no key that is a part of the row.
    row_columns = {each.name for each in values.fields if not each.is_key}
    return ChangeFilter(
        keeps_tombstones=key_columns is not None and row_columns.isdisjoint(key_columns)
    )
