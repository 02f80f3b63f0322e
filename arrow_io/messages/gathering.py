"""Column plans: how each requested column is gathered from rows, as one record batch.

The columns are gathered into one buffer, an IPC message of Arrow's columnar format. One call then
creates the record batch, for any number of columns, without a copy; its columns share the buffer.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import pyarrow as pa

from arrow_io.core import builds
from arrow_io.core.ipc_message import ColumnGroup, IpcMessage, MessageLayout
from arrow_io.core.lazy import cached_property
from arrow_io.messages import layout

if TYPE_CHECKING:
    from collections.abc import Iterable

    from arrow_io.read_metrics import ReadMetrics

_TEXT: Final = pa.string()
PROPERTIES: Final = pa.map_(pa.string(), pa.string())


class Gathered(NamedTuple):
    """The source of a column.

    Attributes:
        kind: `layout.GATHERED_…`.
        field: The field of the entry table or of the row table, by the kind.
        type: Arrow type of the values; text is checked for bytes that are not ASCII.
    """

    kind: int
    field: int
    type: pa.DataType


class Gathering:
    """Columns that are gathered at once, which takes hardly longer than gathering one.

    Args:
        columns: Name and source of each column.
        following: The columns after them, which other code fills; None for no columns.

    Attributes:
        layout: Layout of the message that all these columns share.
        properties: Indexes of the property columns.
        max_bytes: Maximum size of the gathered columns of several rows.
    """

    max_bytes: ClassVar[int] = 256 << 20

    def __init__(
        self, columns: Iterable[tuple[str, Gathered]], following: ColumnGroup | None = None
    ) -> None:
        named = tuple(columns)
        self._columns: list[Gathered] = []
        self._indexes: list[int] = []  # of the batch's column that holds each gathered column
        self.properties: list[int] = []
        self._values: list[int] = []  # columns of values
        buffers = nodes = 0
        for index, (_, each) in enumerate(named):
            parts = [each]
            if each[:2] == _VALUE:
                self._values.append(index)
            if each.kind == layout.GATHERED_PROPERTIES:
                self.properties.append(index)
                parts += _ENTRIES
                # A map is a list of structs, which are an additional node and buffer.
                nodes, buffers = nodes + 1, buffers + 1
            self._columns += parts
            self._indexes += [index] * len(parts)
            nodes += len(parts)
            buffers += sum(2 + (part.kind >= layout.GATHERED_ENTRY_BYTES) for part in parts)
        self._named, self._following = named, following
        self._numbers = memoryview(array("q", [n for each in self._columns for n in each[:2]]))
        self._count = len(self._columns)
        self._notes_bytes = 8 * layout.NOTE_WIDTH * self._count
        fields = tuple(pa.field(name, each.type) for name, each in named)
        own = ColumnGroup(fields, nodes, buffers)
        self._has_only_following = not named and following is not None
        self.layout = MessageLayout((own,) if following is None else (own, following))
        self._body = len(self.layout.prefix)
        _, self._buffer = self.layout.positions[0]

    def measure(
        self,
        gatherer: Any,  # noqa: ANN401 - of a module that has no types
    ) -> tuple[int, array[int]]:
        """Return the size of the columns in bytes, a multiple of 64, and notes about each.

        The size is −1 if the bytes of one column take more than 2 GiB together.
        """
        notes = array("q", bytes(self._notes_bytes))
        if self._has_only_following:
            return 0, notes
        return gatherer.measure(self._numbers, self._count, notes), notes

    def fill(
        self,
        gatherer: Any,  # noqa: ANN401 - of a module that has no types
        notes: array[int],
        message: IpcMessage,
    ) -> list[tuple[int, Gathered]]:
        """Fill the columns at the end of a message, with unvalidated text.

        Args:
            gatherer: The rows.
            notes: The notes of `measure` about these rows.
            message: The message, whose tail has at least the measured size. If there are following
                columns, it has their buffer and the prefix of `layout`.

        Returns:
            The *odd* columns: text that is not all ASCII, so it may not be UTF-8, and times with a
            value that a timestamp cannot hold, which is null in the batch. Of each, the index, and
            the source of the column or of its odd child.
        """
        if self._has_only_following:
            return []
        body = self._body
        view = message.view
        if view is None:
            view = message.allocate(body)
            view[:body] = self.layout.prefix
        start = len(view) - message.tail_bytes - body
        odd = gatherer.fill(self._numbers, self._count, notes, view, body, start, self._buffer)
        return self._find_odd(notes) if odd else []

    @cached_property
    def without_values(self) -> Gathering:
        """The same columns, for rows whose values are stored back to back: values are not copied.

        Until `attach_values`, the columns of values have offsets and no bytes.
        """
        kind = layout.GATHERED_ROW_OFFSETS
        columns = (
            (name, each._replace(kind=kind) if each[:2] == _VALUE else each)
            for name, each in self._named
        )
        return Gathering(columns, self._following)

    def attach_values(self, batch: pa.RecordBatch, values: pa.Buffer) -> pa.RecordBatch:
        """Return a batch of `without_values` with the bytes of its columns of values."""
        for index in self._values:
            column = batch.column(index)
            validity, offsets, _ = column.buffers()
            column = pa.Array.from_buffers(
                column.type, len(column), [validity, offsets, values], column.null_count
            )
            batch = batch.set_column(index, batch.schema.field(index), column)
        return batch

    def _find_odd(self, notes: array[int]) -> list[tuple[int, Gathered]]:
        columns = zip(
            self._indexes, self._columns, notes[layout.NOTE_ODD :: layout.NOTE_WIDTH], strict=True
        )
        return [
            (index, each)
            for index, each, odd in columns
            if odd and (each.kind < layout.GATHERED_ENTRY_BYTES or each.type == _TEXT)
        ]


_VALUE: Final = (layout.GATHERED_ROW_BYTES, layout.ROW_PAYLOAD)
"""Kind and field of a column of values."""
_ENTRIES: Final = (
    Gathered(layout.GATHERED_NAMES, 0, _TEXT),
    Gathered(layout.GATHERED_VALUES, 0, _TEXT),
)


def as_text(values: pa.BinaryArray, metrics: ReadMetrics) -> pa.StringArray:
    """Convert bytes to text: invalid UTF-8 becomes U+FFFD, as in Pulsar's Java client.

    Replaced texts are counted in `metrics`.
    """
    validity, offsets, data = values.buffers()
    text = pa.Array.from_buffers(_TEXT, len(values), [validity, offsets, data], values.null_count)
    # If all bytes are below 128, any slice of them is UTF-8.
    is_ascii = builds.in_use.columns.is_ascii(memoryview(data).cast("B"))
    return text if is_ascii else valid_text(text, metrics)


def valid_text(text: pa.StringArray, metrics: ReadMetrics) -> pa.StringArray:
    """Replace invalid UTF-8 in an unvalidated string array by U+FFFD; count the replaced texts."""
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        texts = []
        for each in text.cast(pa.binary()).to_pylist():
            replaced = each if each is None else each.decode("utf-8", errors="replace")
            metrics.replaced_texts += replaced is not None and replaced.encode() != each
            texts.append(replaced)
        return pa.array(texts, pa.string())
    return text
