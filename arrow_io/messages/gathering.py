"""Column plans: how each requested column is gathered from rows, as one record batch.

The columns are gathered into one buffer, an IPC message of Arrow's columnar format. One call then
creates the record batch, for any number of columns, without a copy; its columns share the buffer.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import pyarrow as pa

from arrow_io.core import builds
from arrow_io.core.ipc_message import message_prefix
from arrow_io.core.memory import allocate
from arrow_io.errors import CorruptEntryError
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

    Attributes:
        schema: Schema of the record batches.
        properties: Indexes of the property columns.
        max_bytes: Maximum size of a record batch of several rows.
    """

    max_bytes: ClassVar[int] = 256 << 20

    def __init__(self, columns: Iterable[tuple[str, Gathered]]) -> None:
        named = tuple(columns)
        self.schema = pa.schema([pa.field(name, each.type) for name, each in named])
        self._columns: list[Gathered] = []
        self._indexes: list[int] = []  # of the batch's column that holds each gathered column
        self.properties: list[int] = []
        buffers = nodes = 0
        for index, (_, each) in enumerate(named):
            parts = [each]
            if each.kind == layout.GATHERED_PROPERTIES:
                self.properties.append(index)
                parts += _ENTRIES
                # A map is a list of structs, which are an additional node and buffer.
                nodes, buffers = nodes + 1, buffers + 1
            self._columns += parts
            self._indexes += [index] * len(parts)
            nodes += len(parts)
            buffers += sum(2 + (part.kind >= layout.GATHERED_ENTRY_BYTES) for part in parts)
        self._numbers = memoryview(array("q", [n for each in self._columns for n in each[:2]]))
        self._notes_bytes = 8 * layout.NOTE_WIDTH * len(self._columns)
        self._prefix = message_prefix(nodes, buffers)

    def record_batch(
        self,
        gatherer: Any,  # noqa: ANN401 - of a module that has no types
        *,
        is_divisible: bool = False,
    ) -> tuple[pa.RecordBatch, list[tuple[int, Gathered]]] | None:
        """Return the record batch with unvalidated text.

        `is_divisible` says whether the caller can gather the rows in several record batches.

        Returns:
            None if the rows are divisible and take more than `max_bytes`. Else the batch, and its
            *odd* columns: text that is not all ASCII, so it may not be UTF-8, and times with a
            value that a timestamp cannot hold, which is null in the batch. Of each, the index, and
            the source of the column or of its odd child.

        Raises:
            CorruptEntryError: The bytes of one column take more than 2 GiB together.
        """
        count = len(self._columns)
        notes = array("q", bytes(self._notes_bytes))
        body_bytes = gatherer.measure(self._numbers, count, notes)
        if is_divisible and not 0 <= body_bytes <= self.max_bytes:
            return None
        if body_bytes < 0:
            message = "the values of one column take more than 2 GiB in one record batch"
            raise CorruptEntryError(message)
        body = len(self._prefix)
        buffer = allocate(body + body_bytes)
        view = memoryview(buffer).cast("B")
        view[:body] = self._prefix
        odd = gatherer.fill(self._numbers, count, notes, view, body)
        batch = pa.ipc.read_record_batch(buffer, self.schema)
        return batch, self._find_odd(notes) if odd else []

    def _find_odd(self, notes: array[int]) -> list[tuple[int, Gathered]]:
        columns = zip(
            self._indexes, self._columns, notes[layout.NOTE_ODD :: layout.NOTE_WIDTH], strict=True
        )
        return [
            (index, each)
            for index, each, odd in columns
            if odd and (each.kind < layout.GATHERED_ENTRY_BYTES or each.type == _TEXT)
        ]


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
