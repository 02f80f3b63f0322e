"""Dead letters: the position, error and bytes of each message whose value cannot be decoded.

A dead letter is an undamaged message whose value or key does not match the topic's schema. Damage
to the bucket is handled as in any other read: it fails the copy, or is counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.columns import every_column
from arrow_io.messages.message_columns import TIMESTAMP
from arrow_io.payloads.value_columns import VALUE_COLUMN
from arrow_io.read_metrics import ReadMetrics, Unit
from connector.scan.execution import execute
from connector.scan.topic_read import EntryRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from arrow_io.errors import PulsarOffloadError
    from arrow_io.ledgers.ledger import Block
    from connector.scan.topic_read import ScanTask, TopicRead

DEAD_LETTERS: Final = "_dead_letters"
"""Suffix of the name of a table of dead letters."""
POSITION_COLUMNS: Final = ("__ledger_id__", "__entry_id__", "__batch_index__")
_COLUMNS: Final = (
    "__topic__",
    *POSITION_COLUMNS,
    "__publish_time__",
    "__key__",
    "__schema_version__",
    VALUE_COLUMN,
)
REASON_COLUMN: Final = "reason"
DEAD_LETTERS_SCHEMA: Final = pa.schema(
    [
        ("__topic__", pa.string()),
        ("__ledger_id__", pa.int64()),
        ("__entry_id__", pa.int64()),
        ("__batch_index__", pa.int32()),
        ("__publish_time__", TIMESTAMP),
        ("__key__", pa.string()),
        ("__schema_version__", pa.int64()),
        (REASON_COLUMN, pa.string()),
        (VALUE_COLUMN, pa.binary()),
    ]
)
"""Columns of a table of dead letters. The raw value is last."""

RowPosition = tuple[int, int, int]
"""Ledger id, entry id and batch index, which is −1 if the message is not batched."""


@dataclass(slots=True)
class DeadLetterMetrics(ReadMetrics):
    """Read metrics that collect values which cannot be decoded, instead of counting them as lost.

    Attributes:
        dead_letters: The error of each such value, by its position.
    """

    dead_letters: dict[RowPosition, str] = field(default_factory=dict)

    def lose(
        self,
        unit: Unit,
        error: PulsarOffloadError,
        *,
        count: int = 1,
        additional_errors: Iterable[PulsarOffloadError] = (),
    ) -> None:
        """Collect a value as a dead letter, and count any other loss."""
        if unit is not Unit.VALUE:
            # `super()` without arguments does not work in a dataclass with slots.
            ReadMetrics.lose(self, unit, error, count=count)
            return
        for each in (error, *additional_errors):
            self.dead_letters.setdefault(_position(each), each.message)

    def take_dead_letters(self) -> dict[RowPosition, str]:
        """Return the dead letters, and clear the collection."""
        reasons, self.dead_letters = self.dead_letters, {}
        return reasons

    def counts(self) -> ReadMetrics:
        """Return the metrics without the dead letters."""
        return ReadMetrics(**{each.name: getattr(self, each.name) for each in fields(ReadMetrics)})


def _position(error: PulsarOffloadError) -> RowPosition:
    assert error.ledger_id is not None, "every row has a ledger"  # noqa: S101
    assert error.entry_id is not None, "and an entry"  # noqa: S101
    return error.ledger_id, error.entry_id, -1 if error.batch_index is None else error.batch_index


def dead_letter_task(task: ScanTask) -> ScanTask:
    """Return a task that also reads row positions, and does not fail for values it cannot decode.

    The position columns follow the task's other columns.
    """
    options = task.read.options
    names = list(options.projection.schema.names)
    names += [each for each in POSITION_COLUMNS if each not in names]
    position_options = replace(
        options, projection=options.filterable.select(names), keep_values=True
    )
    return replace(task, read=replace(task.read, options=position_options))


def drop_dead_letters(batch: pa.RecordBatch, metrics: DeadLetterMetrics) -> pa.RecordBatch:
    """Return the rows that are not dead letters."""
    if not metrics.dead_letters:
        return batch
    alive = [each not in metrics.dead_letters for each in _positions(batch)]
    return batch.filter(pa.array(alive))


def read_dead_letters(
    task: ScanTask, dead_letters: Mapping[RowPosition, str]
) -> Iterator[pa.RecordBatch]:
    """Read a task's dead letters with their raw values and their errors.

    Their entries are read a second time. This takes at most about as many requests as the task
    itself, however many dead letters there are.

    Raises:
        PulsarOffloadError: The entries cannot be read.
    """
    options = task.read.options
    plain = every_column()
    raw = replace(options, projection=plain.select(_COLUMNS), filterable=plain, row_filter=None)
    entries = sorted({(ledger_id, entry_id) for ledger_id, entry_id, _ in dead_letters})
    ranges = tuple(_plan_ranges(task.read, entries))
    read = replace(task.read, options=raw, ranges=ranges)
    for batch in execute(read.task(ranges), ReadMetrics()):
        reasons = [dead_letters.get(each) for each in _positions(batch)]
        with_reason = batch.append_column(REASON_COLUMN, pa.array(reasons, pa.string()))
        matching = with_reason.filter(pc.is_valid(with_reason.column(REASON_COLUMN)))
        yield matching.select(DEAD_LETTERS_SCHEMA.names)


def _plan_ranges(read: TopicRead, entries: Iterable[tuple[int, int]]) -> Iterator[EntryRange]:
    """Plan as few entry ranges as possible that cover `entries` and read no byte twice.

    A block is read from its start, so the entries of a block share a range. So do blocks that are
    closer together than the size of one request. `entries` are ledger and entry ids, ascending.
    """
    current: EntryRange | None = None
    block: Block | None = None
    for ledger_id, entry_id in entries:
        ledger = read.ledger(ledger_id)
        is_same_ledger = current is not None and current.ledger_id == ledger_id
        if not is_same_ledger or block is None or entry_id > block.last_entry_id:
            blocks = ledger.blocks(entry_id, entry_id)
            following = blocks[0] if blocks else None
            if current is not None and not (
                is_same_ledger and _are_near(block, following, ledger.location.first_range_bytes)
            ):
                yield current
                current = None
            block = following
        first = entry_id if current is None else current.first_entry_id
        current = EntryRange(ledger_id, first, entry_id)
    if current is not None:
        yield current


def _are_near(one: Block | None, other: Block | None, range_bytes: int) -> bool:
    return one is not None and other is not None and other.start - one.stop < range_bytes


def _positions(batch: pa.RecordBatch) -> Iterator[RowPosition]:
    ledgers, entries, indexes = (batch.column(name) for name in POSITION_COLUMNS)
    indexes = pc.fill_null(indexes, -1)
    return zip(ledgers.to_pylist(), entries.to_pylist(), indexes.to_pylist(), strict=True)
