"""Arrow IPC messages: the metadata of a record batch whose columns share one buffer.

Code that fills a buffer with columns records their offsets in this message. One call of Arrow then
makes the record batch without a copy, whatever the number of columns.

Source: Message.fbs and "Encapsulated message format" of Arrow's columnar format, version V5.
"""

from __future__ import annotations

import struct
from typing import Final

BODY_BYTES: Final = 4
"""Position of the body's length. These positions count 64-bit words from the message's start."""
ROWS: Final = 8
NODES: Final = 10
"""Position of the length and null count of each array.

One word after them follow the offset and length of each buffer, in bytes from the body's start. An
array precedes its children."""

_ALIGNMENT: Final = 64
_MESSAGE: Final = struct.Struct("<iiI6HiIqhBx5H2xiIqII")
_COUNT: Final = struct.Struct("<I")
_STRUCT_BYTES: Final = 16
"""Size of a `FieldNode` (describes an array) and of a `Buffer`."""
_METADATA_V5: Final = 4
_IS_RECORD_BATCH: Final = 3


def message_prefix(arrays: int, buffers: int) -> bytes:
    """Return the bytes that precede the body of a record batch.

    Numbers that differ from batch to batch are 0. In a flatbuffer, a table is an offset back to its
    vtable (the offsets of its fields), then the fields; variable-length fields are offsets.

    Args:
        arrays: Number of arrays in the batch, nested ones included.
        buffers: Number of buffers of all arrays.

    Returns:
        The bytes; their length is a multiple of 64.
    """
    buffers_start = _MESSAGE.size + _STRUCT_BYTES * arrays + 8
    size = buffers_start + _STRUCT_BYTES * buffers
    size = -(-size // _ALIGNMENT) * _ALIGNMENT
    prefix = bytearray(size)
    message = (12, 20, 16, 18, 4, 8, 12, 28, 0, _METADATA_V5, _IS_RECORD_BATCH)
    record_batch = (10, 20, 8, 4, 16, 12, 16, 0, buffers_start - _MESSAGE.size + 4, arrays)
    _MESSAGE.pack_into(prefix, 0, -1, size - 8, 16, *message, *record_batch)
    _COUNT.pack_into(prefix, buffers_start - _COUNT.size, buffers)
    return bytes(prefix)
