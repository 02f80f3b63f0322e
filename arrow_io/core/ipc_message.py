"""Arrow IPC messages: the metadata of a record batch whose columns share one buffer.

Code that fills a buffer with columns records their offsets in this message. One call of Arrow then
makes the record batch without a copy, whatever the number of columns.

Source: Message.fbs and "Encapsulated message format" of Arrow's columnar format, version V5.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from arrow_io.core.memory import allocate

if TYPE_CHECKING:
    from collections.abc import Sequence

# Positions of numbers in the message, in 64-bit words.
BODY_BYTES: Final = 4
ROWS: Final = 8
NODES: Final = 10
"""Length and null count of each array; an array precedes its children.

After them and one more word: offset in the body and length of each buffer, in bytes."""

_ALIGNMENT: Final = 64
_MESSAGE: Final = struct.Struct("<iiI6HiIqhBx5H2xiIqII")
_COUNT: Final = struct.Struct("<I")
_STRUCT_BYTES: Final = 16
"""Size of a `FieldNode` (describes an array) and of a `Buffer`."""
_METADATA_V5: Final = 4
_IS_RECORD_BATCH: Final = 3


class ColumnGroup(NamedTuple):
    """Neighbouring columns of a message that the same code fills.

    Attributes:
        fields: Names and types of the columns.
        arrays: Number of their arrays, nested ones included.
        buffers: Number of buffers of these arrays.
    """

    fields: tuple[pa.Field, ...]
    arrays: int
    buffers: int


class MessageLayout:
    """The columns of a message, for any number of record batches.

    Args:
        groups: All columns, in order.

    Attributes:
        groups: The groups.
        schema: Schema of the record batch.
        prefix: The message up to its body; numbers that differ per batch are 0.
        positions: For each group, the positions of its first array and of its first buffer in the
            message, in 64-bit words.
    """

    def __init__(self, groups: Sequence[ColumnGroup]) -> None:
        self.groups = tuple(groups)
        self.schema = pa.schema([field for group in groups for field in group.fields])
        arrays = sum(group.arrays for group in groups)
        self.prefix = _message_prefix(arrays, sum(group.buffers for group in groups))
        self.positions: list[tuple[int, int]] = []
        array, buffer = NODES, NODES + 2 * arrays + 1
        for group in groups:
            self.positions.append((array, buffer))
            array, buffer = array + 2 * group.arrays, buffer + 2 * group.buffers


class IpcMessage:
    """The message of one record batch, which the code of each column group fills.

    The body ends with columns whose size is known in advance. The columns before them may need
    several attempts: whatever fills them allocates the buffer, again if they outgrow it.

    Args:
        layout: The columns.
        tail_bytes: Size of the columns at the end of the body, in bytes, a multiple of 64.

    Attributes:
        buffer: The buffer; None before `allocate`.
        view: The bytes of the buffer; None before `allocate`.
    """

    def __init__(self, layout: MessageLayout, tail_bytes: int = 0) -> None:
        self.layout = layout
        self.tail_bytes = tail_bytes
        self.buffer: pa.Buffer | None = None
        self.view: memoryview | None = None

    def allocate(self, size_bytes: int) -> memoryview:
        """Allocate the buffer, and return it with uninitialized bytes.

        `size_bytes` is the size of the prefix and of the columns before the tail, a multiple of 64.
        """
        self.buffer = allocate(size_bytes + self.tail_bytes)
        self.view = memoryview(self.buffer).cast("B")
        return self.view

    def read(self) -> pa.RecordBatch:
        """Return the record batch, which shares the buffer; all columns must be complete."""
        return pa.ipc.read_record_batch(self.buffer, self.layout.schema)


def _message_prefix(arrays: int, buffers: int) -> bytes:
    """Return the message of a record batch up to its body; numbers that differ per batch are 0.

    Args:
        arrays: Number of arrays in the batch, nested ones included.
        buffers: Number of buffers of all arrays.
    """
    buffers_start = _MESSAGE.size + _STRUCT_BYTES * arrays + 8
    size = buffers_start + _STRUCT_BYTES * buffers
    size = -(-size // _ALIGNMENT) * _ALIGNMENT
    prefix = bytearray(size)
    # In a flatbuffer, a table is an offset back to its vtable (the offsets of its fields), then the
    # fields; variable-length fields are offsets.
    message = (12, 20, 16, 18, 4, 8, 12, 28, 0, _METADATA_V5, _IS_RECORD_BATCH)
    record_batch = (10, 20, 8, 4, 16, 12, 16, 0, buffers_start - _MESSAGE.size + 4, arrays)
    _MESSAGE.pack_into(prefix, 0, -1, size - 8, 16, *message, *record_batch)
    _COUNT.pack_into(prefix, buffers_start - _COUNT.size, buffers)
    return bytes(prefix)
