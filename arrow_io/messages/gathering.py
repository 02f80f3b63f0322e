"""Columns made of rows: how each is gathered, and the record batch of all that are asked for.

The columns are gathered into one buffer that is an IPC message of Arrow's columnar format, so that
one call makes the batch, however many columns it has: nothing is copied, and its columns share the
buffer.
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
    """How a column is gathered.

    Attributes:
        kind: `layout.GATHERED_…`.
        field: The field of the entry table or of the row table, as the kind says.
        type: Arrow type of its values; bytes that become text are looked at.
    """

    kind: int
    field: int
    type: pa.DataType


class Gathering:
    """Some columns, which are gathered at once: for many, that takes hardly more than for one.

    Args:
        columns: The name of each column, and how it is gathered.

    Attributes:
        schema: The schema of the record batches.
        properties: The numbers of the columns that are the properties.
        max_bytes: Maximum size of a record batch of several rows.
    """

    max_bytes: ClassVar[int] = 256 << 20

    def __init__(self, columns: Iterable[tuple[str, Gathered]]) -> None:
        named = tuple(columns)
        self.schema = pa.schema([pa.field(name, each.type) for name, each in named])
        self._columns: list[Gathered] = []
        self._places: list[int] = []  # of the columns in the batch, or of the one they are part of
        self.properties: list[int] = []
        buffers = nodes = 0
        for place, (_, each) in enumerate(named):
            parts = [each]
            if each.kind == layout.GATHERED_PROPERTIES:
                self.properties.append(place)
                parts += _ENTRIES
                # A map is a list of structs, which are a node with a buffer of their own.
                nodes, buffers = nodes + 1, buffers + 1
            self._columns += parts
            self._places += [place] * len(parts)
            nodes += len(parts)
            buffers += sum(2 + (part.kind >= layout.GATHERED_ENTRY_BYTES) for part in parts)
        self._numbers = memoryview(array("q", [n for each in self._columns for n in each[:2]]))
        self._notes_bytes = 8 * layout.NOTE_WIDTH * len(self._columns)
        self._begin = message_prefix(nodes, buffers)

    def record_batch(
        self,
        gatherer: Any,  # noqa: ANN401 - of a module that has no types
        *,
        is_divisible: bool = False,
    ) -> tuple[pa.RecordBatch, list[tuple[int, Gathered]]] | None:
        """Return the record batch, as its bytes came.

        Args:
            gatherer: The `Gatherer` of the rows.
            is_divisible: Whether the rows may also be gathered in several record batches.

        Returns:
            None if the rows are divisible and take more than `max_bytes`. Else the batch; and what
            is odd in it, as the number of a column and how that, or a part of it, is gathered: text
            that is not all ASCII, which may not be UTF-8, and times of which a timestamp cannot
            hold one, in whose place is a null.

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
        begin = len(self._begin)
        buffer = allocate(begin + body_bytes)
        view = memoryview(buffer).cast("B")
        view[:begin] = self._begin
        odd = gatherer.fill(self._numbers, count, notes, view, begin)
        batch = pa.ipc.read_record_batch(buffer, self.schema)
        return batch, self._find_odd(notes) if odd else []

    def _find_odd(self, notes: array[int]) -> list[tuple[int, Gathered]]:
        columns = zip(
            self._places, self._columns, notes[layout.NOTE_ODD :: layout.NOTE_WIDTH], strict=True
        )
        return [
            (place, each)
            for place, each, odd in columns
            if odd and (each.kind < layout.GATHERED_ENTRY_BYTES or each.type == _TEXT)
        ]


_ENTRIES: Final = (
    Gathered(layout.GATHERED_NAMES, 0, _TEXT),
    Gathered(layout.GATHERED_VALUES, 0, _TEXT),
)


def as_text(values: pa.BinaryArray, metrics: ReadMetrics) -> pa.StringArray:
    """The same bytes as text: what is not UTF-8 becomes U+FFFD, as in Pulsar's Java client.

    Args:
        values: The bytes.
        metrics: Counts the texts in which something was replaced.
    """
    validity, offsets, data = values.buffers()
    text = pa.Array.from_buffers(_TEXT, len(values), [validity, offsets, data], values.null_count)
    # If all bytes are below 128, any piece of them is UTF-8.
    is_ascii = builds.in_use.columns.is_ascii(memoryview(data).cast("B"))
    return text if is_ascii else valid_text(text, metrics)


def valid_text(text: pa.StringArray, metrics: ReadMetrics) -> pa.StringArray:
    """Text of bytes that may not be UTF-8: what is not becomes U+FFFD.

    Args:
        text: The bytes.
        metrics: Counts the texts in which something was replaced.
    """
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
