"""IPC messages of Arrow's columnar format: a record batch whose columns are all in one buffer.

What fills a buffer with columns says in the message before them where they stand. Then one call of
Arrow's makes the record batch, however many columns it has, and copies nothing.

Source: Message.fbs and "Encapsulated message format" of Arrow's columnar format, version V5.
"""

from __future__ import annotations

import struct
from typing import Final

BODY_BYTES: Final = 4
"""Length of the body. These are places in a message, in words of 64 bits from its begin."""
ROWS: Final = 8
NODES: Final = 10
"""Length and nulls of each array; one word behind them, place and length of each buffer.

Arrays stand before those inside them. Places are in bytes from the begin of the body.
"""

_ALIGNMENT: Final = 64
_MESSAGE: Final = struct.Struct("<iiI6HiIqhBx5H2xiIqII")
_COUNT: Final = struct.Struct("<I")
_STRUCT_BYTES: Final = 16
"""Length of what is told of an array (`FieldNode`), and of a buffer (`Buffer`)."""
_METADATA_V5: Final = 4
_IS_RECORD_BATCH: Final = 3


def message_prefix(arrays: int, buffers: int) -> bytes:
    """What stands before the body of a record batch.

    The numbers that differ from batch to batch are 0. In a flatbuffer, a table is the way back to a
    list of where its fields stand, then the fields; what has no fixed length is the way to it.

    Args:
        arrays: How many arrays the batch has, those inside others included.
        buffers: How many buffers they have together.

    Returns:
        As many bytes as are a multiple of 64.
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
