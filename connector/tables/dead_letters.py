"""Dead letters: the position, error and bytes of each message whose value cannot be decoded.

A dead letter is an undamaged message whose value or key does not match the topic's schema. Damage
to the bucket is handled as in any other read: it fails the copy, or is counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.columns import ALL_COLUMNS, Origin, every_column
from arrow_io.errors import OptionError
from arrow_io.format.entry_frame import write_entry
from arrow_io.messages.codecs import NONE
from arrow_io.messages.entry_run import encode_run
from arrow_io.messages.entry_writer import encode_entry
from arrow_io.messages.message_columns import TIMESTAMP
from arrow_io.messages.message_metadata import Message, message_metadata
from arrow_io.messages.message_reader import MessageReader
from arrow_io.payloads.value_columns import VALUE_COLUMN
from arrow_io.read_metrics import ReadMetrics, Unit
from connector.live.entries import decode_key, has_binary_keys
from connector.scan.execution import RecordBatchBuilder, execute, new_tally
from connector.scan.topic_read import EntryRange, TopicRead

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from arrow_io.errors import PulsarOffloadError
    from arrow_io.ledgers.ledger import Block
    from arrow_io.messages.entry_run import EntryRun
    from connector.inputs.topic_names import TopicName
    from connector.scan.read_options import ReadOptions
    from connector.scan.topic_read import ScanTask

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

_RECORDED: Final = frozenset(
    {*DEAD_LETTERS_SCHEMA.names, "__partition__", "__segment_id__", "__null_value__"}
)
UNRECORDED_COLUMNS: Final = frozenset(each.name for each in ALL_COLUMNS) - _RECORDED
"""Message columns that cannot be computed from a dead letter."""
_RUN_BYTES: Final = 1 << 20

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


def refuse_branches(table_options: Mapping[str, object] | None) -> None:
    """Raise `OptionError` if rows would be written to a branch: all branches share dead letters."""
    branch = (table_options or {}).get("branch", "main")
    if branch != "main":
        message = (
            f"dead letters belong to the main branch, not to the branch {branch}: leave out branch,"
            " or let the copy write no dead letters"
        )
        raise OptionError(message)


def dead_letter_options(table_options: Mapping[str, object] | None) -> dict[str, object]:
    """Return options of the table of dead letters: in its own folder, unsorted, in no branch."""
    options = dict(table_options or {})
    for name in ("branch", "sort-order"):
        options.pop(name, None)
    if "location" in options:
        options["location"] = str(options["location"]).rstrip("/") + DEAD_LETTERS
    return options


def dead_letter_task(task: ScanTask) -> ScanTask:
    """Return a task that also reads row positions, and does not fail for values it cannot decode.

    The position columns follow the task's other columns.
    """
    options = replace(task.read.options.add_columns(POSITION_COLUMNS), keep_values=True)
    return replace(task, read=replace(task.read, options=options))


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


def decode_letters(
    letters: pa.Table, topic: TopicName, options: ReadOptions
) -> tuple[pa.Table, dict[int, str]]:
    """Decode the values of dead letters of one topic partition again, without the bucket.

    Args:
        letters: Rows with the columns `DEAD_LETTERS_SCHEMA`.
        topic: The topic partition.
        options: How values are decoded, and the columns of the rows. Columns that dead letters do
            not record (`UNRECORDED_COLUMNS`) are null.

    Returns:
        A row for each letter, in order; and the error of each letter that still cannot be decoded,
        by its index.

    Raises:
        SchemaError: The schema cannot be used for any value.
        StorageError: A schema registry cannot be asked.
    """
    origin = Origin(str(topic), topic.partition, topic.segment_id, UNRECORDED_COLUMNS)
    metrics = DeadLetterMetrics()
    own_options = replace(options, keep_values=True)
    tally = new_tally(own_options, metrics)
    builder = RecordBatchBuilder.from_read(TopicRead(origin, (), (), own_options))
    is_binary = has_binary_keys(options.filterable.values)
    runs = _encode_letters(letters, str(topic), has_binary_keys=is_binary)
    messages = MessageReader(runs, own_options.needs, tally, limits=options.limits)
    schema = options.projection.schema
    rows = pa.Table.from_batches(builder.build(messages, tally), schema)
    for index, (_, own) in enumerate(options.projection.columns):
        if own in POSITION_COLUMNS:
            rows = rows.set_column(index, schema.field(index), letters.column(own))
    return rows, {index: why for (_, index, _), why in metrics.dead_letters.items()}


def _encode_letters(
    letters: pa.Table, object_key: str, *, has_binary_keys: bool
) -> Iterator[EntryRun]:
    """Encode letters as entries of one message, whose ids are the indexes of the letters."""
    frames: list[bytes] = []
    size_bytes = first = 0
    for index, each in enumerate(_rows(letters)):
        key = each["__key__"]
        message = Message(
            payload=each[VALUE_COLUMN],
            publish_time_ms=each["__publish_time__"] // 1000,
            key=decode_key(key) if key and has_binary_keys else key,
            schema_version=each["__schema_version__"],
        )
        size = len(message.payload or b"")
        metadata = message_metadata(message, 0, compression=NONE, uncompressed_bytes=size)
        frames.append(write_entry(index, encode_entry(metadata, message.payload or b"")))
        size_bytes += len(frames[-1])
        if size_bytes >= _RUN_BYTES:
            yield encode_run(0, first, object_key, frames)
            frames, size_bytes, first = [], 0, index + 1
    if frames:
        yield encode_run(0, first, object_key, frames)


def _rows(letters: pa.Table) -> Iterator[dict[str, Any]]:
    """Iterate over letters; their publish times are in µs."""
    index = letters.schema.get_field_index("__publish_time__")
    times = letters.column(index).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    for batch in letters.set_column(index, "__publish_time__", times).to_batches():
        yield from batch.to_pylist()
