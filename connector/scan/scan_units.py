"""A scan split into units that several threads decode, with results in row order.

One thread walks the entries, which is cheap. It resolves everything that depends on other entries:
outcomes of transactions and chunks of messages. The expensive work is done per unit in any thread:
checksums, decompression, columns and values.
"""

from __future__ import annotations

import logging
import sys
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias

from arrow_io.core import telemetry
from arrow_io.core.memory import UseSystemMemory
from arrow_io.core.prefetch import most_units, prefetch_units
from arrow_io.core.processors import processor_count
from arrow_io.errors import PulsarOffloadError
from arrow_io.messages.encryption import PayloadDecryptor
from arrow_io.messages.message_reader import BatchLimits
from arrow_io.read_metrics import ReadMetrics
from arrow_io.storage.range_prefetch import RangePrefetcher
from connector.scan.entry_stream import EntryStream
from connector.scan.execution import RecordBatchBuilder, build_delivery, byte_spans, new_tally
from connector.scan.read_options import max_decoded_rows
from connector.scan.table_read import TableTask

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from arrow_io.messages.entry_run import EntryRun, MeasuredRun
    from connector.scan.read_options import ReadOptions
    from connector.scan.topic_read import ScanTask

    ScanUnit: TypeAlias = Callable[[], "UnitResult"]
    Memory: TypeAlias = Callable[[], AbstractContextManager[None]]
    """Returns a context that chooses the allocator of its thread."""


DECODED_PREFETCH_BYTES: Final = 96 << 20
"""Approximate memory of all record batches that `prefetch_rows` prefetches."""
_MAX_THREADS: Final = 8
"""Maximum number of threads that decode, if Python has a global lock.

More threads would have smaller units in the same memory. The time for which a unit holds the lock
shrinks less than the unit does, so they would make a read slower (see `make bench`).
"""
_FEW_THREADS: Final = 4
_MAX_UNIT_BYTES: Final = 256 << 20
"""Maximum bytes of record batches that a unit prefetches; values may grow when decoded."""
_MAX_BATCHES: Final = 1 << 20
_COLUMN_BYTES: Final = 1024
"""Approximate memory of a column or nested field of a record batch, apart from its rows."""


def decoding_threads() -> int:
    """Return how many threads decode the units of all reads: one per core, up to a limit."""
    has_global_lock = getattr(sys, "_is_gil_enabled", lambda: True)()
    return min(processor_count(), _MAX_THREADS) if has_global_lock else processor_count()


def unit_memory_bytes(threads: int) -> int:
    """Return the approximate memory of a unit: its entries and the record batches made of them."""
    return DECODED_PREFETCH_BYTES // most_units(threads)


def batch_limits(options: ReadOptions, threads: int) -> BatchLimits:
    """Return the size limits of `prefetch_rows`'s record batches: as requested, or smaller."""
    return options.limits.limit_bytes(unit_memory_bytes(threads))


def unit_limits(options: ReadOptions, threads: int) -> BatchLimits:
    """Return the size limits of a unit: as many whole record batches as memory allows.

    Larger units keep the cost of handing results between threads low when record batches are small.
    """
    each = batch_limits(options, threads)
    values, size_bytes = options.filterable.values, unit_memory_bytes(threads)
    limits = BatchLimits(max_rows=max_decoded_rows(values), max_bytes=size_bytes).limit_bytes(
        size_bytes
    )
    columns = 1 + len(options.projection.columns) + (0 if values is None else values.node_count)
    batches = max(1, size_bytes // 4 // (columns * _COLUMN_BYTES))
    return replace(
        each,
        max_rows=max(1, min(batches, limits.max_rows // each.max_rows)) * each.max_rows,
        max_bytes=max(1, min(batches, limits.max_bytes // each.max_bytes)) * each.max_bytes,
    )


def prefetch_rows(
    tasks: Sequence[ScanTask], metrics: ReadMetrics
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the rows of tasks, in order, decoded in advance by `decoding_threads`.

    Reading starts when the first batch is requested, and stops soon after the last requested batch.

    Raises:
        PulsarOffloadError: Data cannot be read or decoded (damage is counted instead when
            salvaging).
    """
    prefetch = RangePrefetcher(byte_spans(tasks))
    threads = decoding_threads()
    units = prefetch_units(
        scan_units(tasks, prefetch, threads),
        threads=threads,
        shared=True,
        stop=prefetch.stop,
        shrink=prefetch.shrink,
    )
    with closing(units) as results:
        for result in results:
            for part in chain((result,), result.remaining_parts):
                metrics.add(part.metrics)
                for batch in part.batches:
                    metrics.rows += batch.num_rows
                    yield batch
                if part.error is not None:
                    raise part.error
                del part
            del result


def _memory_of(threads: int) -> Memory:
    """Return the allocator of a read: the system's if many threads run.

    With many threads, Arrow's memory pool retains too much freed memory.
    """
    return UseSystemMemory if threads > _FEW_THREADS else nullcontext


@dataclass(frozen=True, slots=True)
class UnitResult:
    """The result of decoding a unit.

    Attributes:
        batches: Its rows, in order; no batch is empty.
        metrics: Counts since the previous unit, except these rows.
        error: The error that ended the read after these rows; None if there was no error.
        remaining_parts: Further results of the same unit, each decoded when the consumer reaches
            it.
    """

    batches: Sequence[pa.RecordBatch] = ()
    metrics: ReadMetrics = field(default_factory=ReadMetrics)
    error: PulsarOffloadError | None = None
    remaining_parts: Iterable[UnitResult] = ()


def scan_units(
    tasks: Sequence[ScanTask], prefetch: RangePrefetcher, threads: int
) -> Generator[ScanUnit, None, None]:
    """Split tasks into units; calling a unit decodes it, in any thread.

    The first unit is small, so that its rows arrive soon. Each unit has at most twice as many
    record batches as the previous one, so that little work is wasted if the consumer stops. An
    error in reading entries is the result of the last unit. After it, `prefetch` is closed.

    Args:
        tasks: The tasks.
        prefetch: Sends the requests for their entries.
        threads: How many threads decode the units, which determines their size.
    """
    memory = _memory_of(threads)
    with closing(_split(tasks, prefetch, threads)) as units:
        while True:
            # Not across the yield: the thread's allocations in between are not ours.
            with memory():
                unit = next(units, None)
            if unit is None:
                return
            yield unit


def _split(
    tasks: Sequence[ScanTask], prefetch: RangePrefetcher, threads: int
) -> Generator[ScanUnit, None, None]:
    metrics = ReadMetrics()
    with prefetch:
        growth = _Growth()
        try:
            for task in tasks:
                if isinstance(task, TableTask):
                    yield from (
                        partial(_read_table, each, _memory_of(threads)) for each in task.units()
                    )
                else:
                    yield from _TaskSplitter(task, metrics, prefetch, growth, threads).units()
        except PulsarOffloadError as error:
            yield partial(UnitResult, (), metrics, error)
        else:
            yield partial(UnitResult, (), metrics)


class _Growth:
    """How many record batches the next unit of a read may have, across tasks."""

    def __init__(self) -> None:
        self.batches = 1
        self.is_first = True

    def grow(self) -> None:
        # The first unit has only one run of entries.
        if not self.is_first:
            self.batches = min(2 * self.batches, _MAX_BATCHES)
        self.is_first = False


class _TaskSplitter:
    """Splits one task into units.

    Entries are counted in `metrics` while they are walked; each unit takes the counts so far.
    """

    def __init__(
        self,
        task: ScanTask,
        metrics: ReadMetrics,
        prefetch: RangePrefetcher,
        growth: _Growth,
        threads: int,
    ) -> None:
        self._growth = growth
        self._memory = _memory_of(threads)
        self._options = task.read.options
        self._limits = batch_limits(self._options, threads)
        self._unit_limits = unit_limits(self._options, threads)
        self._tally = new_tally(self._options, metrics)
        stream = EntryStream(task, self._tally, prefetch, verify_task_entries=False)
        self._decryptor = PayloadDecryptor(self._options.decryption_keys)
        self._delivery = build_delivery(task, self._tally, stream, self._decryptor)
        self._builder = RecordBatchBuilder.from_read(task.read)

    def units(self) -> Iterator[ScanUnit]:
        """Yield the units; the very first ends after one run of entries."""
        pending = self._new_pending()
        try:
            for run in self._delivery:
                for part in self._parts(run, pending):
                    if not pending.has_room(part):
                        yield self._unit(pending)
                        pending = self._new_pending()
                    pending.add(part)
                    if self._growth.is_first:
                        yield self._unit(pending)
                        pending = self._new_pending()
        except PulsarOffloadError:
            if pending.runs:
                yield self._unit(pending)
            raise
        if pending.runs:
            yield self._unit(pending)

    def _parts(self, run: EntryRun, pending: _PendingUnit) -> Iterator[MeasuredRun]:
        needs = self._builder.needs
        return run.parts(
            pending.max_messages, pending.max_bytes, members=needs.members, payload=needs.payload
        )

    def _new_pending(self) -> _PendingUnit:
        unit_limits, each, batches = self._unit_limits, self._limits, self._growth.batches
        return _PendingUnit(
            min(unit_limits.max_rows, batches * each.max_rows),
            min(unit_limits.max_bytes, batches * each.max_bytes),
        )

    def _unit(self, pending: _PendingUnit) -> ScanUnit:
        limits = self._limits
        if not self._growth.is_first:
            # Columns that are full are replaced: leave room, and they are not replaced in vain.
            rows = min(pending.messages + 1, limits.max_rows)
            limits = BatchLimits(rows, limits.max_rows, limits.max_bytes, limits.max_bytes)
        self._growth.grow()
        counts = self._tally.metrics.drain()
        return partial(
            _decode,
            self._builder,
            pending.runs,
            limits,
            self._decryptor,
            counts,
            messages=pending.messages,
            memory=self._memory,
        )


class _PendingUnit:
    """Runs of entries that will be decoded together.

    Args:
        max_messages: Maximum number of their messages.
        max_bytes: Maximum of their bytes, as `BatchLimits.max_bytes` counts them.
    """

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.runs: list[EntryRun] = []
        self.messages = 0
        self._bytes = 0

    def has_room(self, run: MeasuredRun) -> bool:
        """Return whether another run fits; the first always does."""
        return not self.runs or (
            self.messages + run.message_count <= self.max_messages
            and self._bytes + run.counted_bytes <= self.max_bytes
        )

    def add(self, run: MeasuredRun) -> None:
        self.runs.append(run.run)
        self.messages += run.message_count
        self._bytes += run.counted_bytes


def _decode(
    builder: RecordBatchBuilder,
    runs: Sequence[EntryRun],
    limits: BatchLimits,
    decryptor: PayloadDecryptor,
    counts: ReadMetrics,
    *,
    messages: int,
    memory: Memory,
) -> UnitResult:
    """Decode a unit; `messages` is the number of messages that its entries announce."""
    # Count in a copy, because a unit may run again.
    tally = new_tally(builder.options, ReadMetrics().add(counts))
    with telemetry.operation("decode", logging.DEBUG) as operation, memory():
        reader = builder.message_reader(runs, tally, limits, decryptor)
        batches = builder.build(reader, tally)
        first, is_last = _decode_part(batches, tally.metrics, messages)
        if operation.is_observed:
            operation.note(rows=sum(each.num_rows for each in first.batches))
            if first.error is not None:
                operation.note(error_type=type(first.error).__name__)
    if is_last:
        return first
    return replace(first, remaining_parts=_remaining_parts(batches, tally.metrics, memory))


def _remaining_parts(
    batches: Iterator[pa.RecordBatch], counts: ReadMetrics, memory: Memory
) -> Iterator[UnitResult]:
    is_last = False
    while not is_last:
        with memory():
            part, is_last = _decode_part(batches, counts)
        yield part
        del part


def _decode_part(
    batches: Iterator[pa.RecordBatch], counts: ReadMetrics, messages: int = -1
) -> tuple[UnitResult, bool]:
    """Decode about `_MAX_UNIT_BYTES` of a unit, which is nearly always all of it.

    Args:
        batches: The record batches.
        counts: What is counted while they are decoded.
        messages: Number of rows after which no other batch is expected.

    Returns:
        The part, and whether it is the last one.
    """
    decoded_batches: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    error: PulsarOffloadError | None = None
    is_last = False
    try:
        while size_bytes < _MAX_UNIT_BYTES and not is_last:
            batch = next(batches, None)
            if batch is None:
                is_last = True
                continue
            decoded_batches.append(batch)
            rows += batch.num_rows
            # Arrow looks at each buffer, while it holds Python's lock.
            if rows != messages:
                size_bytes += batch.get_total_buffer_size()
    except PulsarOffloadError as read_error:
        error, is_last = read_error, True
    counts.rows = 0
    return UnitResult(decoded_batches, counts if is_last else counts.drain(), error), is_last


def _read_table(unit: Callable[[], Iterator[pa.RecordBatch]], memory: Memory) -> UnitResult:
    with telemetry.operation("decode", logging.DEBUG) as operation, memory():
        try:
            batches = tuple(unit())
        except PulsarOffloadError as error:
            operation.note(error_type=type(error).__name__)
            return UnitResult(error=error)
        operation.note(rows=sum(each.num_rows for each in batches))
    return UnitResult(batches)
