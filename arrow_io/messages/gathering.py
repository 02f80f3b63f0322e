"""Columns made of rows: how each is gathered, and the Arrow arrays of all that are asked for."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from arrow_io.core import builds
from arrow_io.errors import CorruptEntryError
from arrow_io.memory import allocate
from arrow_io.messages import layout
from arrow_io.messages.entry_run import int64_view

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arrow_io.read_report import ReadReport


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
        columns: The columns.

    Attributes:
        columns: The same.
    """

    def __init__(self, columns: Sequence[Gathered]) -> None:
        self.columns = tuple(columns)
        self._numbers = memoryview(array("q", [n for each in columns for n in each[:2]]))

    def arrays(
        self,
        gatherer: Any,  # noqa: ANN401 - of a module that has no types
        count: int,
        report: ReadReport,
    ) -> tuple[list[pa.Array], list[Gathered]]:
        """The arrays, which share one buffer.

        Args:
            gatherer: The `Gatherer` of the rows.
            count: How many values each column has.
            report: Counts the texts in which something was replaced.

        Returns:
            The arrays; and those columns of times that have one which a timestamp cannot hold, in
            whose place is a null.

        Raises:
            CorruptEntryError: The bytes of one column take more than 2 GiB together.
        """
        columns = self.columns
        _, notes = int64_view(layout.NOTE_WIDTH * len(columns))
        size_bytes = gatherer.measure(self._numbers, len(columns), notes)
        if size_bytes < 0:
            message = "the values of one record batch take more than 2 GiB"
            raise CorruptEntryError(message)
        buffer = allocate(size_bytes)
        view = memoryview(buffer).cast("B")
        gatherer.fill(self._numbers, len(columns), notes, view, view.cast("i"), view.cast("q"))
        noted = zip(*[iter(notes.tolist())] * layout.NOTE_WIDTH, strict=True)
        arrays, beyond = [], []
        for column, (validity, data, start, length, nulls, odd) in zip(columns, noted, strict=True):
            buffers = [buffer.slice(validity, count // 8 + 1) if nulls else None]
            if column.kind < layout.GATHERED_ENTRY_BYTES:
                width = 4 if column.kind == layout.GATHERED_BATCH_INDEXES else 8
                buffers.append(buffer.slice(data, width * count))
            else:
                buffers += buffer.slice(data, 4 * (count + 1)), buffer.slice(start, length)
            values = pa.Array.from_buffers(column.type, count, buffers, nulls)
            if odd and column.kind < layout.GATHERED_ENTRY_BYTES:
                beyond.append(column)
            arrays.append(valid_text(values, report) if odd and column.type == _TEXT else values)
        return arrays, beyond


_TEXT = pa.string()


def as_text(values: pa.BinaryArray, report: ReadReport) -> pa.StringArray:
    """The same bytes as text: what is not UTF-8 becomes U+FFFD, as in Pulsar's Java client.

    Args:
        values: The bytes.
        report: Counts the texts in which something was replaced.
    """
    validity, offsets, data = values.buffers()
    text = pa.Array.from_buffers(_TEXT, len(values), [validity, offsets, data], values.null_count)
    # If all bytes are below 128, any piece of them is UTF-8.
    is_ascii = builds.in_use.columns.is_ascii(memoryview(data).cast("B"))
    return text if is_ascii else valid_text(text, report)


def valid_text(text: pa.StringArray, report: ReadReport) -> pa.StringArray:
    """Text of bytes that may not be UTF-8: what is not becomes U+FFFD.

    Args:
        text: The bytes.
        report: Counts the texts in which something was replaced.
    """
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        texts = []
        for each in text.cast(pa.binary()).to_pylist():
            replaced = each if each is None else each.decode("utf-8", errors="replace")
            report.replaced_texts += replaced is not None and replaced.encode() != each
            texts.append(replaced)
        return pa.array(texts, pa.string())
    return text
