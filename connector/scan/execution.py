"""The rows of a task, as record batches."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from arrow_io.errors import IncompleteReadWarning
from arrow_io.messages.chunks import ChunkLookback
from arrow_io.messages.encryption import PayloadDecryptor
from arrow_io.messages.message_reader import MessageReader
from arrow_io.messages.transactions import TransactionLookahead
from arrow_io.read_report import ReadReport
from arrow_io.tally import Tally
from connector.scan.entry_stream import EntryStream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arrow_io.columns import Origin, Projection
    from arrow_io.messages.message_columns import MessageColumns
    from connector.scan.read_options import ReadOptions
    from connector.scan.topic_read import ScanTask


def execute(task: ScanTask, report: ReadReport | None = None) -> Iterator[pa.RecordBatch]:
    """Read the rows of a task, in order of their positions.

    Args:
        task: The task.
        report: Receives the counts. Without it, a read that had to leave something out ends with an
            `IncompleteReadWarning`.

    Raises:
        PulsarOffloadError: Data cannot be read or decoded (damage is counted instead when
            salvaging).
    """
    counted = ReadReport() if report is None else report
    tally = _tally(task, counted)
    steps = _Steps.of(task.read.options)
    for rows in _rows(task, tally):
        batch = _give(rows, task.read.origin, steps, tally)
        if batch is not None:
            counted.rows += batch.num_rows
            yield batch
    if report is None:
        tell(counted, task.read.origin.topic)


def count(task: ScanTask, report: ReadReport) -> int:
    """How many rows a task has, without making their columns.

    Args:
        task: The task.
        report: Receives the counts.

    Raises:
        PulsarOffloadError: Data cannot be read or decoded (damage is counted instead when
            salvaging).
    """
    if task.read.options.row_filter is not None:
        return sum(batch.num_rows for batch in execute(task, report))
    total = 0
    for rows in _rows(task, _tally(task, report)):
        kept = task.read.options.bounds.kept(rows)
        total += rows.count if kept is None else len(kept)
    report.rows += total
    return total


def tell(report: ReadReport, topic: str) -> None:
    """Warn of what a read had to leave out, if it did."""
    for notice in report.notices():
        warnings.warn(f"{topic}: {notice}", IncompleteReadWarning, stacklevel=3)


@dataclass(frozen=True, slots=True)
class _Steps:
    """In which order the columns of rows are decoded.

    Attributes:
        options: How entries become rows.
        looked_at: The columns that the filter looks at; none without a filter.
        others: The columns that are given besides.
    """

    options: ReadOptions
    looked_at: Projection
    others: Projection

    @classmethod
    def of(cls, options: ReadOptions) -> _Steps:
        """The steps of a scan: the same for all its rows."""
        looked_at = () if options.row_filter is None else options.row_filter.columns
        others = [name for name in options.projection.schema.names if name not in looked_at]
        return cls(options, options.filterable.select(looked_at), options.projection.select(others))


def _give(
    rows: MessageColumns, origin: Origin, steps: _Steps, tally: Tally
) -> pa.RecordBatch | None:
    """Apply the bounds, then the filter, and decode the other columns of the rows that are left."""
    options = steps.options
    kept = options.bounds.kept(rows)
    if kept is not None:
        rows = rows.keep(kept)
    if not rows.count or options.row_filter is None:
        return options.projection.record_batch(rows, origin, tally) if rows.count else None
    decoded = steps.looked_at.record_batch(rows, origin, tally)
    kept = options.row_filter.kept(decoded)
    if len(kept) < rows.count:
        rows, decoded = rows.keep(kept), decoded.take(kept)
    if not rows.count:
        return None
    others = steps.others.record_batch(rows, origin, tally)
    if len(steps.others.columns) == len(options.projection.columns):
        return others
    columns = dict(zip(decoded.schema.names, decoded.columns, strict=True))
    columns |= zip(others.schema.names, others.columns, strict=True)
    schema = options.projection.schema
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _tally(task: ScanTask, report: ReadReport) -> Tally:
    options = task.read.options
    return Tally(report, salvage=options.salvage, keep_values=options.keep_values)


def _rows(task: ScanTask, tally: Tally) -> Iterator[MessageColumns]:
    options = task.read.options
    stream = EntryStream(task, tally)
    runs = (
        stream
        if options.uncommitted
        else TransactionLookahead(iter(stream), stream.behind, stream.skip_gap)
    )
    return iter(
        MessageReader(
            runs,
            options.needs,
            tally,
            limits=options.limits,
            lookback=ChunkLookback(stream.before, task.read.is_read),
            is_wanted=task.read.is_read,
            skip_gap=runs.skip_gap,
            decryptor=PayloadDecryptor(options.decryption_keys),
        )
    )
