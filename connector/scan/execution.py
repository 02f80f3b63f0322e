"""The rows of a task, as record batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from arrow_io.errors import IncompleteReadWarning
from arrow_io.messages.chunks import ChunkLookback
from arrow_io.messages.delivery import Delivery
from arrow_io.messages.encryption import PayloadDecryptor
from arrow_io.messages.message_reader import MessageReader
from arrow_io.messages.transactions import TransactionLookahead
from arrow_io.read_report import ReadReport
from arrow_io.storage.ranges_ahead import RangesAhead
from arrow_io.tally import Tally
from connector.read_warnings import warn_of_read
from connector.scan.entry_stream import EntryStream

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from arrow_io.columns import Assembly
    from arrow_io.messages.message_columns import MessageColumns
    from arrow_io.storage.ranges import ByteSpan
    from connector.scan.read_options import ReadOptions
    from connector.scan.topic_read import ScanTask, TopicRead
    from connector.statistics.ledger_parts import PassingGatherer


def execute(
    task: ScanTask,
    report: ReadReport | None = None,
    *,
    gatherer: PassingGatherer | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a task, in order of their positions, in the caller's thread.

    Args:
        task: The task.
        report: Receives the counts. Without it, a read that had to leave something out ends with an
            `IncompleteReadWarning`.
        gatherer: Makes segments of the entries as they are read; None: nothing does.

    Raises:
        PulsarOffloadError: Data cannot be read or decoded (damage is counted instead when
            salvaging).
    """
    counted = ReadReport() if report is None else report
    tally = tally_of(task.read.options, counted)
    with RangesAhead(byte_spans([task])) as ahead:
        yield from RowGiver.of(task.read).batches(_rows(task, tally, ahead, gatherer), tally)
    if report is None:
        tell(counted, task.read.origin.topic)


def count(tasks: Sequence[ScanTask], report: ReadReport) -> int:
    """How many rows tasks have; without a filter, their columns are not made.

    Args:
        tasks: The tasks, in the order in which they are read.
        report: Receives the counts.

    Raises:
        PulsarOffloadError: Data cannot be read or decoded (damage is counted instead when
            salvaging).
    """
    total = 0
    with RangesAhead(byte_spans(tasks)) as ahead:
        for task in tasks:
            options = task.read.options
            giver = None if options.row_filter is None else RowGiver.of(task.read)
            tally = tally_of(options, report)
            columns = _rows(task, tally, ahead)
            if giver is not None:
                total += sum(batch.num_rows for batch in giver.batches(columns, tally))
                continue
            for rows in columns:
                kept = options.bounds.kept(rows)
                found = rows.count if kept is None else len(kept)
                report.rows += found
                total += found
    return total


def tell(report: ReadReport, topic: str) -> None:
    """Warn of what a read had to leave out, if it did."""
    for notice in report.notices():
        warn_of_read(f"{topic}: {notice}", IncompleteReadWarning)


def byte_spans(tasks: Iterable[ScanTask]) -> Iterator[ByteSpan]:
    """The bytes that tasks read of objects, in the order in which they come to them."""
    for task in tasks:
        for each in task.ranges:
            ledger = task.read.ledger(each.ledger_id)
            yield from ledger.byte_spans(each.first_entry_id, each.last_entry_id)


def tally_of(options: ReadOptions, report: ReadReport) -> Tally:
    """What the options say of damage, with a report for the counts."""
    return Tally(report, salvage=options.salvage, keep_values=options.keep_values)


@dataclass(frozen=True, slots=True)
class RowGiver:
    """Makes the rows of a topic that were found those that are given: any number of threads may.

    Attributes:
        options: How entries become rows.
        every: All columns that are given.
        looked_at: The columns that the filter looks at; none without a filter.
        others: The columns that are given besides.
    """

    options: ReadOptions
    every: Assembly
    looked_at: Assembly
    others: Assembly

    @classmethod
    def of(cls, read: TopicRead) -> RowGiver:
        """That of a read."""
        options = read.options
        looked_at = () if options.row_filter is None else options.row_filter.columns
        others = [name for name in options.projection.schema.names if name not in looked_at]
        return cls(
            options,
            options.projection.assembly(read.origin),
            options.filterable.select(looked_at).assembly(read.origin),
            options.projection.select(others).assembly(read.origin),
        )

    def batches(self, found: Iterable[MessageColumns], tally: Tally) -> Iterator[pa.RecordBatch]:
        """What `give` leaves of each, if it leaves any row.

        Raises:
            PulsarOffloadError: A value cannot be decoded (counted instead when salvaging), or
                `found` raised it.
        """
        for rows in found:
            batch = self.give(rows, tally)
            if batch is not None:
                yield batch

    def give(self, rows: MessageColumns, tally: Tally) -> pa.RecordBatch | None:
        """Apply the bounds, then the filter; decode the other columns of what is left; count that.

        Raises:
            PulsarOffloadError: A value cannot be decoded (counted instead when salvaging).
        """
        batch = self._batch(rows, tally)
        if batch is not None:
            tally.report.rows += batch.num_rows
        return batch

    def _batch(self, rows: MessageColumns, tally: Tally) -> pa.RecordBatch | None:
        options = self.options
        kept = options.bounds.kept(rows)
        if kept is not None:
            rows = rows.keep(kept)
        if not rows.count or options.row_filter is None:
            return self.every.record_batch(rows, tally) if rows.count else None
        decoded = self.looked_at.record_batch(rows, tally)
        kept = options.row_filter.kept(decoded)
        if len(kept) < rows.count:
            rows, decoded = rows.keep(kept), decoded.take(kept)
        if not rows.count:
            return None
        others = self.others.record_batch(rows, tally)
        if others.num_columns == len(options.projection.columns):
            return others
        columns = dict(zip(decoded.schema.names, decoded.columns, strict=True))
        columns |= zip(others.schema.names, others.columns, strict=True)
        schema = options.projection.schema
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def delivered(
    task: ScanTask,
    tally: Tally,
    stream: EntryStream,
    decryptor: PayloadDecryptor,
) -> Delivery:
    """The entries of a task that hold rows.

    Args:
        task: The task.
        tally: Says whether damage is raised, or counted.
        stream: Where the entries come from.
        decryptor: Decrypts chunks.
    """
    options = task.read.options
    verify = options.compares_checksums
    outcomes = (
        None
        if options.uncommitted
        else TransactionLookahead(
            iter(stream), stream.behind, stream.skip_gap, known=task.read.outcomes, verify=verify
        )
    )
    return Delivery(
        outcomes or stream,
        tally,
        decryptor,
        join_payloads=options.needs.payload,
        verify=verify,
        lookback=ChunkLookback(stream.before, task.read.is_read),
        is_wanted=task.read.is_read,
        skip_gap=(outcomes or stream).skip_gap,
        beyond=task.read.beyond,
    )


def _rows(
    task: ScanTask, tally: Tally, ahead: RangesAhead, gatherer: PassingGatherer | None = None
) -> Iterator[MessageColumns]:
    options = task.read.options
    decryptor = PayloadDecryptor(options.decryption_keys)
    runs = delivered(task, tally, EntryStream(task, tally, ahead, gatherer=gatherer), decryptor)
    reader = MessageReader(runs, options.needs, tally, limits=options.limits, decryptor=decryptor)
    return iter(reader)
