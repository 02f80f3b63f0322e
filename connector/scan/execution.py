"""Reading the rows of a task, as record batches."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.core import telemetry
from arrow_io.errors import IncompleteReadWarning
from arrow_io.messages.chunks import ChunkLookback
from arrow_io.messages.delivery import Delivery
from arrow_io.messages.encryption import PayloadDecryptor
from arrow_io.messages.message_reader import MessageReader
from arrow_io.messages.transactions import TransactionLookahead
from arrow_io.read_metrics import ReadMetrics, Tally
from arrow_io.storage.range_prefetch import RangePrefetcher
from connector.display.warnings import warn_of_read
from connector.scan.entry_stream import EntryStream
from connector.scan.table_read import TableTask

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from arrow_io.columns import Assembly
    from arrow_io.messages.entry_run import EntryRun
    from arrow_io.messages.message_columns import MessageColumns
    from arrow_io.messages.message_reader import BatchLimits, Needs
    from arrow_io.storage.ranges import ByteSpan
    from connector.filters.row_filters import RowFilter
    from connector.scan.read_options import ReadOptions
    from connector.scan.topic_read import ScanTask, TopicRead
    from connector.statistics.ledger_parts import ZoneGatherer


def execute(
    task: ScanTask,
    metrics: ReadMetrics | None = None,
    *,
    gatherer: ZoneGatherer | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a task, in order of their positions, in the caller's thread.

    Args:
        task: The task.
        metrics: Receives the read metrics. If None, a read that had to leave something out ends
            with an `IncompleteReadWarning`.
        gatherer: Builds zones from the entries as they are read; None builds none. Of a table, no
            entries are read.

    Raises:
        PulsarOffloadError: Data cannot be read or decoded (damage is counted instead when
            salvaging).
    """
    batches: Generator[pa.RecordBatch, None, None]
    if isinstance(task, TableTask):
        batches = task.batches(ReadMetrics() if metrics is None else metrics)
    else:
        batches = _execute(task, metrics, gatherer)
    return telemetry.observe_batches("decode", batches, topic=task.read.origin.topic)


def _execute(
    task: ScanTask, metrics: ReadMetrics | None, gatherer: ZoneGatherer | None
) -> Generator[pa.RecordBatch, None, None]:
    read_metrics = ReadMetrics() if metrics is None else metrics
    tally = new_tally(task.read.options, read_metrics)
    with RangePrefetcher(byte_spans([task])) as prefetch:
        builder = RecordBatchBuilder.from_read(task.read)
        yield from builder.build(_rows(builder, task, tally, prefetch, gatherer), tally)
    if metrics is None:
        warn_incomplete(read_metrics, task.read.origin.topic)


def warn_incomplete(metrics: ReadMetrics, topic: str, *, is_last: bool = True) -> None:
    """Warn about what a read had to leave out, if anything.

    Unless `is_last`, messages whose chunks are still missing are left to a later read, such as the
    next step of a copy.
    """
    for notice in (*metrics.notices(), *(metrics.waiting() if is_last else ())):
        warn_of_read(f"{topic}: {notice}", IncompleteReadWarning)


def record_read(topic: str | None, metrics: ReadMetrics) -> None:
    """Report the rows of a read that has ended, and what it left out, as measurements and logs.

    Args:
        topic: The topic; None if there are several.
        metrics: The metrics of the read.
    """
    count_read(topic, metrics)
    for (unit, reason), amount in metrics.dropped().items():
        fields = {"topic": topic, "unit": unit, "reason": reason, "amount": amount}
        telemetry.log(logging.WARNING, "dropped", **fields)


def count_read(topic: str | None, metrics: ReadMetrics) -> None:
    """Report the same as `record_read`, as measurements alone."""
    telemetry.count("rows", metrics.rows, topic=topic)
    for (unit, reason), amount in metrics.dropped().items():
        telemetry.count("dropped", amount, topic=topic, unit=unit, reason=reason)


def byte_spans(tasks: Iterable[ScanTask]) -> Iterator[ByteSpan]:
    """Yield the bytes of data objects that tasks read, in the order in which they are read."""
    for task in tasks:
        for each in task.ranges:
            ledger = task.read.ledger(each.ledger_id)
            yield from ledger.byte_spans(each.first_entry_id, each.last_entry_id)


def new_tally(options: ReadOptions, metrics: ReadMetrics) -> Tally:
    """Return a tally that treats damage as the options say and counts it in the metrics."""
    return Tally(metrics, salvage=options.salvage, keep_values=options.keep_values)


@dataclass(frozen=True, slots=True)
class RecordBatchBuilder:
    """Builds record batches from message columns, applying the bounds and the filter.

    Decodes the predicate columns, which the filter needs, first; then the remaining columns of the
    rows that match. Safe to use from several threads.

    Attributes:
        options: How entries become rows.
        needs: `options.needs`.
        compares_checksums: `options.compares_checksums`.
        copies_values: `options.copies_values`.
        requested_columns: Builds the columns of batches without a filter.
        predicate_columns: Builds the columns that the filter needs.
        remaining_columns: Builds the other columns of rows that match.
    """

    options: ReadOptions
    needs: Needs
    compares_checksums: bool
    copies_values: bool
    requested_columns: Assembly
    predicate_columns: Assembly
    remaining_columns: Assembly

    @classmethod
    def from_read(cls, read: TopicRead) -> RecordBatchBuilder:
        """Return the builder for the rows of a topic read."""
        options = read.options
        predicate_columns = () if options.row_filter is None else options.row_filter.columns
        remaining_columns = [
            name for name in options.projection.schema.names if name not in predicate_columns
        ]
        return cls(
            options,
            options.needs,
            options.compares_checksums,
            options.copies_values,
            options.projection.assembly(read.origin),
            options.filterable.select(predicate_columns).assembly(read.origin),
            options.projection.select(remaining_columns).assembly(read.origin),
        )

    def message_reader(
        self,
        runs: Iterable[EntryRun],
        tally: Tally,
        limits: BatchLimits,
        decryptor: PayloadDecryptor,
    ) -> MessageReader:
        """Return the reader of the messages of some entries."""
        return MessageReader(
            runs,
            self.needs,
            tally,
            limits=limits,
            decryptor=decryptor,
            verify=self.compares_checksums,
            copy_values=self.copies_values,
        )

    def build(self, messages: Iterable[MessageColumns], tally: Tally) -> Iterator[pa.RecordBatch]:
        """Apply the bounds, then the filter; decode the remaining columns of the rows that match.

        No batch is empty; the rows are counted in the tally's metrics.

        Raises:
            PulsarOffloadError: A value cannot be decoded (counted instead when salvaging), or
                `messages` raised it.
        """
        for columns in messages:
            selection = self.options.bounds.matching_rows(columns)
            rows = columns if selection is None else columns.take(selection)
            if not rows.count:
                continue
            if self.options.row_filter is None:
                batches = self.requested_columns.record_batches(rows, tally)
            else:
                batches = self._filter(rows, self.options.row_filter, tally)
            # Do not hold messages and batches while the next ones are made.
            del columns, rows
            for batch in batches:
                tally.metrics.rows += batch.num_rows
                yield batch
                del batch
            del batches

    def _filter(
        self, rows: MessageColumns, row_filter: RowFilter, tally: Tally
    ) -> Iterator[pa.RecordBatch]:
        first = 0
        for decoded in self.predicate_columns.record_batches(rows, tally):
            count = decoded.num_rows
            selection = row_filter.matching_rows(decoded)
            matching_rows, matching_batch = rows, decoded
            if len(selection) < rows.count:
                matching_rows = rows.take(pc.add(selection, first) if first else selection)
            if len(selection) < count:
                matching_batch = decoded.take(selection)
            if matching_rows.count:
                yield from self._add_remaining_columns(matching_batch, matching_rows, tally)
            first += count

    def _add_remaining_columns(
        self, decoded: pa.RecordBatch, rows: MessageColumns, tally: Tally
    ) -> Iterator[pa.RecordBatch]:
        schema = self.options.projection.schema
        first = 0
        for remaining in self.remaining_columns.record_batches(rows, tally):
            if remaining.num_columns == len(schema):
                yield remaining
                continue
            part = decoded.slice(first, remaining.num_rows)
            columns = dict(zip(decoded.schema.names, part.columns, strict=True))
            columns |= zip(remaining.schema.names, remaining.columns, strict=True)
            arrays = [columns[name] for name in schema.names]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            first += remaining.num_rows


def build_delivery(
    task: ScanTask,
    tally: Tally,
    stream: EntryStream,
    decryptor: PayloadDecryptor,
) -> Delivery:
    """Return the entries of a task that a Pulsar consumer would receive.

    The tally raises or counts damage; the decryptor decrypts chunks.
    """
    options = task.read.options
    verify = options.compares_checksums
    outcomes = None if options.uncommitted else task.read.segment_outcomes
    runs: EntryStream | TransactionLookahead = stream
    if not options.uncommitted and outcomes is None:
        runs = TransactionLookahead(
            iter(stream),
            stream.runs_after,
            stream.skip_gap,
            recorded=task.read.outcomes,
            verify=verify,
        )
    return Delivery(
        runs,
        tally,
        decryptor,
        join_payloads=options.needs.payload,
        verify=verify,
        lookback=ChunkLookback(stream.runs_before, task.read.is_read),
        is_requested=task.read.is_read,
        skip_gap=runs.skip_gap,
        later_entries=task.read.later_entries,
        outcomes=outcomes,
    )


def _rows(
    builder: RecordBatchBuilder,
    task: ScanTask,
    tally: Tally,
    prefetch: RangePrefetcher,
    gatherer: ZoneGatherer | None = None,
) -> Iterator[MessageColumns]:
    options = task.read.options
    decryptor = PayloadDecryptor(options.decryption_keys)
    stream = EntryStream(
        task,
        tally,
        prefetch,
        # Zones are made from entries that are already verified.
        verify_plain_batches=gatherer is not None or not builder.needs.members,
        gatherer=gatherer,
    )
    runs = build_delivery(task, tally, stream, decryptor)
    return iter(builder.message_reader(runs, tally, options.limits, decryptor))
