"""Messages as positions and numbers, and the Arrow arrays built from them.

The input is entries (`EntryRun`) and the decompressed payloads of batches. The output is record
batches of the requested columns; a column that nobody requests is never gathered.
"""

from __future__ import annotations

import base64
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.core import builds
from arrow_io.core.ipc_message import IpcMessage
from arrow_io.core.memory import allocate
from arrow_io.errors import CorruptEntryError, PulsarOffloadError
from arrow_io.messages import layout
from arrow_io.messages.entry_run import EntryRun, int64_view
from arrow_io.messages.gathered_message import GatheredMessage
from arrow_io.messages.gathering import Gathered, Gathering
from arrow_io.read_metrics import Unit

if TYPE_CHECKING:
    from arrow_io.read_metrics import Tally

_Error = TypeVar("_Error", bound=PulsarOffloadError)

TIMESTAMP = pa.timestamp("us", tz="UTC")
_TOO_LONG = "the values of one column take more than 2 GiB in one record batch"
_SINGLE_PROPERTY_TAG = 0x22
_BATCH_PROPERTY_TAG = 0x0A
_SLACK_BYTES = 64
"""Room after the last copied value, so that its end can be copied as fast as the rest."""
_NO_COPIES = memoryview(bytearray())
_NUMBERS_PER_PAGE = 4096 // 8
_NUMBERS_APART = 5 * 64 // 8
"""Five cache lines: an odd number, so that only every 64th column starts at the same page
offset."""


@dataclass(slots=True)
class _TablePart:
    """Rows `[start, stop)` whose bytes share the same buffers.

    `body` holds key, ordering key and the message's own metadata; `payload` holds the value. Both
    are the entry run's buffer if the message was neither batched, compressed nor chunked.
    """

    start: int
    stop: int
    run: EntryRun
    body: memoryview
    payload: memoryview
    property_tag: int


class PayloadSource(NamedTuple):
    """Rows `[start, stop)` whose payloads are in one buffer and have one schema."""

    start: int
    stop: int
    data: memoryview
    positions: memoryview
    """Positions of the payloads of all rows in `data`; −1: no payload."""
    schema_name: bytes | None
    """What the messages name their schema by; None: they name none."""


class _CopiedValues:
    """The values of all rows of message columns, back to back in row order.

    Attributes:
        view: Their buffer, with room for more values.
        stop: End of the values, in bytes.
    """

    def __init__(self, size_bytes: int) -> None:
        self.stop = 0
        self._buffer = allocate(size_bytes + _SLACK_BYTES)
        self.view = memoryview(self._buffer).cast("B")

    def has_room(self, size_bytes: int) -> bool:
        """Return whether as many more bytes fit."""
        return size_bytes <= len(self.view) - _SLACK_BYTES - self.stop

    @property
    def buffer(self) -> pa.Buffer | None:
        """The values; None if half of the buffer is unused."""
        return None if 2 * self.stop < self._buffer.size else self._buffer.slice(0, self.stop)


def _row_stride(capacity: int) -> int:
    """Return the distance between the starts of two columns of a row table, in numbers.

    A row is written to all columns at once. If the columns started at the same offset of a page,
    their cache lines would compete for the few slots that a cache has for that offset.
    """
    if capacity < _NUMBERS_PER_PAGE:
        return capacity
    return capacity + (_NUMBERS_APART - capacity) % _NUMBERS_PER_PAGE


class MessageColumns:
    """Up to `capacity` messages, filled front to back, read as Arrow arrays of `count` rows.

    Attributes:
        capacity: Maximum number of rows.
        count: Number of rows.
        size_bytes: Bytes of entries and values of the rows, as `BatchLimits.max_bytes` counts them.
        undecoded_rows: Rows whose value could not be decoded, and was counted as lost.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.count = 0
        self.size_bytes = 0
        self.undecoded_rows: set[int] = set()
        self._stride = _row_stride(capacity)
        self._buffer, self._rows = int64_view(self._stride * layout.ROW_WIDTH)
        self._gatherer = builds.in_use.gathering.Gatherer(self._rows, self._stride)
        self._parts: list[_TablePart] = []
        # None if the value of any row is not copied.
        self._values: _CopiedValues | None = None
        self._result = array("q", bytes(8 * 7))

    # Filling

    def add_singles(
        self, run: EntryRun, first: int, stop: int, values: memoryview | None = None
    ) -> int:
        """Add the entries `[first, stop)` of a run, one message each; return the first not added.

        `values` is the buffer of the decompressed values; None for the run's own buffer.
        """
        stop = min(stop, first + self.capacity - self.count)
        field = layout.PAYLOAD if values is None else layout.BODY
        builds.in_use.entries.add_singles(
            run.table, first, stop, field, self._rows, self._stride, self.count
        )
        payload = run.data if values is None else values
        self._values = None
        self._add_part(stop - first, run, run.data, payload, _SINGLE_PROPERTY_TAG)
        return stop

    def add_positions(
        self, run: EntryRun, first: int, batch_index: int, stop: int
    ) -> tuple[int, int, int]:
        """Add the messages of entries `[first, stop)` of a run without opening batches.

        If the first entry is a batch, `batch_index` is the index in it of the first message to add.

        Returns:
            Entry and batch index to resume with, and 0 or the error code of that entry.
        """
        result = self._result
        builds.in_use.entries.add_positions(
            run.table, first, batch_index, stop,
            self._rows, self._stride, self.capacity, self.count, result,
        )  # fmt: skip
        self._values = None
        self._add_part(result[0] - self.count, run, run.data, run.data, _BATCH_PROPERTY_TAG)
        return result[1], result[2], result[3]

    def split_batches(
        self,
        run: EntryRun,
        first: int,
        stop: int,
        bodies: memoryview | None,
        *,
        position: int,
        batch_index: int,
        weight: int = 1,
        verify: bool = False,
        value_bytes: int = 0,
    ) -> tuple[int, int, int, int]:
        """Add messages of batches `[first, stop)` of a run, as many as fit.

        Args:
            run: The entries.
            first: The first batch.
            stop: End of the batches, exclusive.
            bodies: The buffer of the decompressed batches; None for the run's own buffer.
            position: Start of the first message to add, in the body of the first batch, in bytes.
            batch_index: Index of that message in its batch.
            weight: How often the bytes of an entry count in `size_bytes`. Those of a body in
                `bodies` count once more.
            verify: Whether to compare the checksum of each batch, which is neither compressed nor
                encrypted, before it is split. An entry whose checksum differs is flagged as
                `BROKEN`.
            value_bytes: The expected size of all values of these columns, in bytes. If it is not 0,
                values are copied at once, while their bytes are in the processor's cache, unless
                they take much more or there may be too few rows for all of the messages.

        Returns:
            Entry, position and batch index of the next message, and 0 or its error code.
        """
        data = run.data if bodies is None else bodies
        field = layout.PAYLOAD if bodies is None else layout.BODY
        result = self._result
        copies, copied = _NO_COPIES, 0
        if value_bytes:
            needed = run.total_bytes(field, first, stop) - position
            self._make_room(run.message_count(first, stop) - batch_index, needed, value_bytes)
        else:
            self._values = None
        if self._values is not None:
            copies, copied = self._values.view, self._values.stop
        builds.in_use.metadata.split_batches(
            data, run.table, field, first, stop, position, batch_index,
            self._rows, self._stride, self.capacity, self.count, verify, copies, copied,
            weight, result,
        )  # fmt: skip
        row, entry, position, batch_index, code, copied, size_bytes = result
        values = data
        if self._values is not None:
            values, self._values.stop = copies, copied
        self._add_part(row - self.count, run, data, values, _BATCH_PROPERTY_TAG)
        if row:
            # Otherwise no row keeps the entries in memory.
            self.size_bytes += size_bytes
        return entry, position, batch_index, code

    def _make_room(self, rows: int, needed: int, expected: int) -> None:
        """Make room for copies of the values of more rows; copy none if there is not enough.

        The buffer is made before the first row, for all values of these columns.

        Args:
            rows: The number of rows.
            needed: The size of their values, in bytes.
            expected: The expected size of the values of all rows.
        """
        size_bytes = max(needed, expected)
        if rows > self.capacity - self.count:
            self._values = None
        elif self.count == 0 and size_bytes <= Gathering.max_bytes:
            self._values = _CopiedValues(size_bytes)
        elif self._values is not None and not self._values.has_room(needed):
            self._values = None

    def _add_part(
        self, rows: int, run: EntryRun, body: memoryview, payload: memoryview, property_tag: int
    ) -> None:
        if rows > 0:
            stop = self.count + rows
            self._parts.append(_TablePart(self.count, stop, run, body, payload, property_tag))
            self._gatherer.add(
                stop, run.ledger_id, run.table, run.data, body, payload, property_tag
            )
            self.count = stop

    # Selecting

    def take(self, selection: pa.Int64Array) -> MessageColumns:
        """Return the rows of a selection (ascending indices) as new columns on the same buffers."""
        indices = memoryview(selection.buffers()[1]).cast("q")[selection.offset :][: len(selection)]
        other = MessageColumns(max(1, len(selection)))
        other.size_bytes = self.size_bytes * len(selection) // max(1, self.count)
        other.undecoded_rows = {
            row
            for row, index in enumerate(indices if self.undecoded_rows else ())
            if index in self.undecoded_rows
        }
        builds.in_use.columns.take_rows(
            self._rows, self._stride, indices, len(selection), other._rows, other._stride
        )
        for each in self._parts:
            start = bisect_left(indices, each.start)
            stop = bisect_left(indices, each.stop, lo=start)
            other._add_part(stop - start, each.run, each.body, each.payload, each.property_tag)
        return other

    def part(self, start: int, stop: int) -> MessageColumns:
        """Return the rows `[start, stop)`, as new columns on the same buffers."""
        return self.take(pa.array(range(start, stop), pa.int64()))

    # Reading

    def measure(self, gathering: Gathering) -> GatheredMessage:
        """Measure columns of all rows, or of the first rows if all exceed `Gathering.max_bytes`.

        Raises:
            CorruptEntryError: A column of one row takes more than 2 GiB.
        """
        may_repeat, bad = self._find_properties() if gathering.properties else (False, [])
        values = None if self._values is None else self._values.buffer
        measured = gathering if values is None else gathering.without_values
        size_bytes, notes = measured.measure(self._gatherer)
        max_bytes = gathering.max_bytes - (0 if values is None else values.size)
        if not 0 <= size_bytes <= max_bytes and self.count > 1:
            return self.part(0, self.count // 2).measure(gathering)
        if size_bytes < 0:
            raise self.locate(CorruptEntryError(_TOO_LONG), 0)
        return GatheredMessage(
            self,
            self._gatherer,
            gathering,
            values=values,
            size_bytes=size_bytes,
            notes=notes,
            may_repeat=may_repeat,
            bad=bad,
        )

    def _find_properties(self) -> tuple[bool, list[tuple[int, int]]]:
        """Find the properties of each row.

        Returns:
            Whether a row may repeat a name; and the rows whose properties cannot be decoded, with
            the error codes.
        """
        total = self._gatherer.property_total()
        if total == 0:
            return False, []
        _, numbers = int64_view(2 * total + self.count // 2 + 1)
        self._gatherer.set_properties(numbers, total, 0)
        may_repeat, bad, row = False, [], 0
        while row < self.count:
            row, error, is_many = self._gatherer.read_properties(row)
            may_repeat = may_repeat or is_many
            if error:
                bad.append((row, error))
                row += 1
        return may_repeat, bad

    def ledger_ids(self) -> pa.Int64Array:
        """Return the ledger id of each row."""
        return self._gathered(Gathered(layout.GATHERED_LEDGER_IDS, 0, pa.int64()))

    def row_numbers(self, field: int) -> pa.Int64Array:
        """Return one number of each row (field `ROW_…`)."""
        data = self._buffer.slice(8 * field * self._stride, 8 * self.count)
        return pa.Array.from_buffers(pa.int64(), self.count, [None, data])

    def entry_numbers(self, field: int) -> pa.Int64Array:
        """Return one number of each row's entry."""
        return self._gathered(Gathered(layout.GATHERED_ENTRY_NUMBERS, field, pa.int64()))

    def row_bytes(self, field: int) -> pa.BinaryArray:
        """Return the key, ordering key or value of each row.

        Raises:
            CorruptEntryError: They take more than 2 GiB together.
        """
        return self._gathered(Gathered(layout.GATHERED_ROW_BYTES, field, pa.binary()))

    def _gathered(self, column: Gathered) -> pa.Array:
        """Gather a column whose values cannot be lost."""
        gathering = _single_gathering(column)
        size_bytes, notes = gathering.measure(self._gatherer)
        if size_bytes < 0:
            raise CorruptEntryError(_TOO_LONG)
        message = IpcMessage(gathering.layout, size_bytes)
        gathering.fill(self._gatherer, notes, message)
        return message.read().column(0)

    def key_bytes(self, tally: Tally) -> pa.BinaryArray:
        """Return each row's key as bytes; decode Base64, as which clients store binary keys.

        Raises:
            CorruptEntryError: A key is marked as Base64 and is not (counted instead when
                salvaging), or all keys take more than 2 GiB together.
        """
        keys = self.row_bytes(layout.ROW_KEY)
        flags = self.row_numbers(layout.ROW_FLAGS)
        encoded = pc.not_equal(pc.bit_wise_and(flags, layout.KEY_IS_BASE64), 0)
        if not pc.any(encoded).as_py():
            return keys
        values = keys.to_pylist()
        for row in pc.indices_nonzero(encoded).to_pylist():
            if values[row] is not None:
                try:
                    # Java's decoder also accepts keys without padding.
                    padding = b"=" * (-len(values[row]) % 4)
                    values[row] = base64.b64decode(values[row] + padding, validate=True)
                except ValueError:
                    message = "the key is marked as Base64 and is not"
                    tally.lose(Unit.MESSAGE, self.locate(CorruptEntryError(message), row))
                    values[row] = None
        return pa.array(values, pa.binary())

    def payload_sources(self, field: int) -> list[PayloadSource]:
        """Return the sources of the payloads of all rows, in order.

        `field` is the field of an entry that names the schema: `SCHEMA_VERSION` or `SCHEMA_ID`.
        """
        sources = []
        positions = self._column(layout.ROW_PAYLOAD)
        start = 0
        for part in self._parts:
            while start < part.stop:
                stop = self._gatherer.payload_stop(start, field)
                entry = self._rows[layout.ROW_ENTRY * self._stride + start]
                name = part.run.table[entry * layout.ENTRY_WIDTH + field]
                schema_name = None if name == layout.ABSENT else bytes(part.run.bytes_at(name))
                sources.append(PayloadSource(start, stop, part.payload, positions, schema_name))
                start = stop
        return sources

    def error(self, row: int, code: int) -> CorruptEntryError:
        """Return the typed error for the error code of a row."""
        return self.locate(CorruptEntryError(layout.REASONS[code]), row)

    def locate(self, error: _Error, row: int) -> _Error:
        """Add the location of a row to an error, and return the error."""
        part = self._parts[bisect_right(self._parts, row, key=_start) - 1]
        part.run.locate(error, self._column(layout.ROW_ENTRY)[row])
        batch_index = self._column(layout.ROW_BATCH_INDEX)[row]
        return error.located(batch_index=None if batch_index < 0 else batch_index)

    def _column(self, field: int) -> memoryview:
        start = field * self._stride
        return self._rows[start : start + self.count]


def _start(part: _TablePart) -> int:
    return part.start


@lru_cache(maxsize=64)
def _single_gathering(column: Gathered) -> Gathering:
    return Gathering([("", column)])
