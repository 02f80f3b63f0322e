"""The message of a record batch, of which some columns are gathered from rows.

Gathered text may not be UTF-8, and gathered times may not fit: both are rare, so they are only
noted while columns are filled, and resolved in the finished record batch.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa

from arrow_io.core.ipc_message import IpcMessage
from arrow_io.errors import CorruptEntryError
from arrow_io.messages import layout
from arrow_io.messages.gathering import Gathered, valid_text
from arrow_io.read_metrics import Unit

if TYPE_CHECKING:
    from array import array
    from typing import Any

    from arrow_io.messages.gathering import Gathering
    from arrow_io.messages.message_columns import MessageColumns
    from arrow_io.read_metrics import ReadMetrics, Tally


class GatheredMessage(IpcMessage):
    """The message of some rows, whose columns were measured, so that they can be gathered.

    Args:
        rows: The rows.
        gatherer: The gatherer of the rows.
        gathering: The columns.
        values: The values of all rows, back to back, which columns of values share; None: they are
            copied.
        size_bytes: Size of the gathered columns, in bytes, a multiple of 64.
        notes: What `Gathering.measure` noted.
        may_repeat: Whether a row may repeat the name of a property.
        bad: The rows whose properties cannot be decoded, with the error codes.

    Attributes:
        rows: The rows.
    """

    def __init__(
        self,
        rows: MessageColumns,
        gatherer: Any,  # noqa: ANN401 - of a module that has no types
        gathering: Gathering,
        *,
        values: pa.Buffer | None,
        size_bytes: int,
        notes: array[int],
        may_repeat: bool,
        bad: list[tuple[int, int]],
    ) -> None:
        super().__init__(gathering.layout, size_bytes)
        self.rows = rows
        self._gatherer = gatherer
        self._gathering = gathering
        self._values = values
        self._notes = notes
        self._may_repeat = may_repeat
        self._bad = bad

    def first(self, count: int) -> GatheredMessage:
        """Return the message of the first `count` rows, in the buffer of this one."""
        message = self.rows.part(0, count).measure(self._gathering)
        assert message.tail_bytes <= self.tail_bytes  # noqa: S101 - there are fewer rows
        message.tail_bytes, message.buffer, message.view = self.tail_bytes, self.buffer, self.view
        return message

    def record_batch(self, tally: Tally) -> pa.RecordBatch:
        """Gather the columns, and return the record batch; all other columns must be complete.

        If a row repeats a property name, the last value wins.

        Args:
            tally: Decides whether undecodable values are raised, or counted in its metrics, which
                also count replaced texts.

        Raises:
            CorruptEntryError: A timestamp cannot hold a time, or a property cannot be decoded. When
                salvaging, both are counted, and the message lacks the time or its properties.
        """
        for row, code in self._bad:
            tally.lose(Unit.MESSAGE, self.rows.error(row, code))
        gathering, values = self._gathering, self._values
        if values is None:
            odd = gathering.fill(self._gatherer, self._notes, self)
            batch = self.read()
        else:
            odd = gathering.without_values.fill(self._gatherer, self._notes, self)
            batch = gathering.attach_values(self.read(), values)
        return self._resolve(batch, odd, tally) if odd or self._may_repeat else batch

    def _resolve(
        self, batch: pa.RecordBatch, odd: list[tuple[int, Gathered]], tally: Tally
    ) -> pa.RecordBatch:
        """Return a batch whose text is valid, and whose properties have distinct names."""
        property_indexes = self._gathering.properties
        invalid = set(property_indexes if self._may_repeat else ())
        for index, column in odd:
            if column.kind < layout.GATHERED_ENTRY_BYTES:
                self._lose_times(column, tally)
            elif index in property_indexes:
                invalid.add(index)
            else:
                batch = _replace_column(
                    batch, index, valid_text(batch.column(index), tally.metrics)
                )
        for index in invalid:
            properties = batch.column(index)
            cleaned = _clean_properties(properties, tally.metrics, may_repeat=self._may_repeat)
            batch = _replace_column(batch, index, cleaned)
        return batch

    def _lose_times(self, column: Gathered, tally: Tally) -> None:
        rows = self.rows
        is_row_field = column.kind == layout.GATHERED_ROW_TIMES
        absent = 0 if is_row_field else layout.NO_TIME
        times = rows.row_numbers(column.field) if is_row_field else rows.entry_numbers(column.field)
        for row, time in enumerate(times.to_pylist()):
            if time != absent and abs(time) > layout.MAX_MILLISECONDS:
                message = f"time {time} ms is out of the range of a timestamp in µs"
                tally.lose(Unit.MESSAGE, rows.locate(CorruptEntryError(message), row))


def _replace_column(batch: pa.RecordBatch, index: int, values: pa.Array) -> pa.RecordBatch:
    return batch.set_column(index, batch.schema.field(index), values)


def _clean_properties(
    properties: pa.MapArray, metrics: ReadMetrics, *, may_repeat: bool
) -> pa.MapArray:
    """Return properties with valid text, and without duplicate names."""
    offsets, columns = properties.offsets, [properties.keys, properties.items]
    texts = [valid_text(each, metrics) for each in columns]
    # Different bytes may have become the same text.
    if may_repeat or texts[0] is not columns[0]:
        offsets, selection = keep_last_of_equal(offsets, texts[0])
        texts = [each.take(selection) for each in texts]
    return pa.MapArray.from_arrays(offsets, *texts)


def keep_last_of_equal(
    offsets: pa.Int32Array, names: pa.Array
) -> tuple[pa.Int32Array, pa.Int64Array]:
    """Keep only the last entry of each name in each list; `offsets` are those of the lists.

    Returns:
        Offsets of the reduced lists, and the numbers of the remaining entries.
    """
    texts = names.to_pylist()
    selection: list[int] = []
    new_offsets = [0]
    for start, stop in pairwise(offsets.to_pylist()):
        selection.extend({texts[i]: i for i in range(start, stop)}.values())
        new_offsets.append(len(selection))
    return pa.array(new_offsets, pa.int32()), pa.array(selection, pa.int64())
