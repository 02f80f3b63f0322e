"""Split-block Bloom filters of the keys of some messages, as Parquet's specification has them.

A filter answers "is this key among them" with "perhaps" or "surely not". It takes 10.5 bits for
each different key: of a hundred keys that are not there, it takes one for one that may be.
"""

from __future__ import annotations

import math
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.core import builds

_BLOCK_BYTES: Final = 32
_BITS_PER_KEY: Final = 10.5
"""By the table in Parquet's specification; a few more in small filters, of whole blocks."""


def key_filter(keys: pa.Array) -> bytes:
    """The filter of some keys, each of which counts once.

    Args:
        keys: Texts or bytes; nulls are left out.

    Returns:
        Whole blocks of 32 bytes, at least one.
    """
    keys = pc.drop_null(pc.unique(keys))
    hashes = _hashes(keys)
    blocks = max(1, math.ceil(_BITS_PER_KEY * len(keys) / (8 * _BLOCK_BYTES)))
    filter_ = bytearray(blocks * _BLOCK_BYTES)
    builds.in_use.keys.insert(hashes, len(keys), memoryview(filter_), blocks)
    return bytes(filter_)


def match_filters(filters: pa.BinaryArray, key: str) -> pa.BooleanArray:
    """For each filter whether its keys may have this one; null filters may have any.

    Args:
        filters: What `key_filter` gave.
        key: The key.
    """
    count = len(filters)
    matches = pa.allocate_buffer(max(1, count))
    hashes = _hashes(pa.array([key]))
    builds.in_use.keys.find(
        *_texts(filters.fill_null(b"")), count, hashes[0], memoryview(matches).cast("B")
    )
    return pa.Array.from_buffers(pa.uint8(), count, [None, matches]).cast(pa.bool_())


def _hashes(keys: pa.Array) -> memoryview:
    """The XXH64 of each key, none of which is null."""
    hashes = memoryview(pa.allocate_buffer(8 * max(1, len(keys)))).cast("B").cast("Q")
    builds.in_use.keys.hash_texts(*_texts(keys.cast(pa.binary())), len(keys), hashes)
    return hashes


def _texts(array: pa.BinaryArray) -> tuple[memoryview, memoryview]:
    """The bytes of all values, at least one, and where each begins and ends."""
    _, offsets, data = array.buffers()
    view = memoryview(offsets if offsets is not None else bytes(4)).cast("B").cast("i")
    held = data is not None and data.size > 0
    return memoryview(data if held else b"\0").cast("B"), view[array.offset :]
