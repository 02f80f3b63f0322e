"""Rows whose value cannot be decoded: where they stand, why, and their bytes.

A dead letter is a message that was read soundly, and whose value or key does not fit the topic's
schema. Damage of the bucket is none: it stops a copy, or is counted, as it is when reading.
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
"""Columns of a table of dead letters: the bytes of the value are last."""

RowPosition = tuple[int, int, int]
"""Ledger id, entry id, and batch index: −1 if it is not batched."""


@dataclass(slots=True)
class DeadLetterMetrics(ReadMetrics):
    """Metrics that take values which cannot be decoded for dead letters.

    Attributes:
        dead_letters: Why each value could not be decoded, by its position.
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
        """Keep a value as a dead letter, and count anything else."""
        if unit is not Unit.VALUE:
            # Not by `super()`, which a dataclass with slots does not find.
            ReadMetrics.lose(self, unit, error, count=count)
            return
        for each in (error, *additional_errors):
            self.dead_letters.setdefault(_position(each), each.message)

    def take_dead_letters(self, position: tuple[int, int]) -> dict[RowPosition, str]:
        """Those that stand at a ledger and entry id or behind; the metrics forget all they have."""
        reasons = {key: why for key, why in self.dead_letters.items() if key[:2] >= position}
        self.dead_letters = {}
        return reasons

    def counts(self) -> ReadMetrics:
        """The other counts."""
        return ReadMetrics(**{each.name: getattr(self, each.name) for each in fields(ReadMetrics)})


def _position(error: PulsarOffloadError) -> RowPosition:
    assert error.ledger_id is not None, "a row stands in a ledger"  # noqa: S101
    assert error.entry_id is not None, "and in an entry"  # noqa: S101
    return error.ledger_id, error.entry_id, -1 if error.batch_index is None else error.batch_index


def dead_letter_task(task: ScanTask) -> ScanTask:
    """The same task, with positions of rows; values that cannot be decoded do not end it.

    The positions stand behind its other columns.
    """
    options = task.read.options
    names = list(options.projection.schema.names)
    names += [each for each in POSITION_COLUMNS if each not in names]
    position_options = replace(
        options, projection=options.filterable.select(names), keep_values=True
    )
    return replace(task, read=replace(task.read, options=position_options))


def drop_dead_letters(batch: pa.RecordBatch, metrics: DeadLetterMetrics) -> pa.RecordBatch:
    """The rows that are no dead letters."""
    if not metrics.dead_letters:
        return batch
    alive = [each not in metrics.dead_letters for each in _positions(batch)]
    return batch.filter(pa.array(alive))


def read_dead_letters(
    task: ScanTask, dead_letters: Mapping[RowPosition, str]
) -> Iterator[pa.RecordBatch]:
    """Dead letters of a task, whose entries are read once more, for the bytes.

    It takes at most about as many requests as to read the task did, however many letters there are.

    Args:
        task: The task.
        dead_letters: Why each value could not be decoded, by its position.

    Raises:
        PulsarOffloadError: They cannot be read.
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
    """Ranges that have some entries, as few as it takes to read no byte twice.

    A block is read from its start, so those of a block are one range; so are those of blocks that
    stand closer together than one request reaches.

    Args:
        read: Has their ledgers.
        entries: Ledger and entry ids, ascending.
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
    ledgers, entries, members = (batch.column(name) for name in POSITION_COLUMNS)
    members = pc.fill_null(members, -1)
    return zip(ledgers.to_pylist(), entries.to_pylist(), members.to_pylist(), strict=True)
