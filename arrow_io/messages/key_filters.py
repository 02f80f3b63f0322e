"""Which keys a stretch of messages cannot have: by Bloom filters, and by ranges of hashes.

A split-block Bloom filter, as in Parquet's specification, answers whether a set contains a key with
"perhaps" or "surely not". It takes 10.5 bits per distinct key, and about one in a hundred absent
keys is a false positive.

Producers of Pulsar 5.0 stamp each entry with a range of hashes of its keys (PIP-486, fields 33 and
34 of `MessageMetadata`). The hash is Murmur3 of 32 bits (x86) with seed 0; the range is of its
lower 16 bits (`ScalableTopicHashing`). The upper bits choose the segment; drafts of other proposals
differ. In the golden set `pulsar-5.0.1`, the lower bits of all 817 keys are within the stamps of
their entries, and the upper bits of 333. That shows how the set was made, not what a producer of
5.0.1 does: none was available. So a stamp counts only if the keys were found to agree with it.
"""

from __future__ import annotations

import math
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.core import builds

_BLOCK_BYTES: Final = 32
_MAX_HASH: Final = 0xFFFF
_BITS_PER_KEY: Final = 10.5
"""From the table in Parquet's specification. Small filters have more, because blocks are whole."""


def key_filter(keys: pa.Array) -> bytes:
    """Return the filter of some texts or bytes: whole blocks of 32 bytes, at least one.

    Keys may repeat; nulls are left out.
    """
    keys = pc.drop_null(pc.unique(keys))
    hashes = _hashes(keys)
    blocks = max(1, math.ceil(_BITS_PER_KEY * len(keys) / (8 * _BLOCK_BYTES)))
    filter_ = bytearray(blocks * _BLOCK_BYTES)
    builds.in_use.keys.insert(hashes, len(keys), memoryview(filter_), blocks)
    return bytes(filter_)


def match_filters(filters: pa.BinaryArray, key: str) -> pa.BooleanArray:
    """Return for each filter whether it may contain a key; a null filter may contain any."""
    count = len(filters)
    matches = pa.allocate_buffer(max(1, count))
    hashes = _hashes(pa.array([key]))
    builds.in_use.keys.find(
        *_texts(filters.fill_null(b"")), count, hashes[0], memoryview(matches).cast("B")
    )
    return pa.Array.from_buffers(pa.uint8(), count, [None, matches]).cast(pa.bool_())


def hash_range(keys: pa.Array) -> tuple[int, int]:
    """Return minimum and maximum of some texts' hashes, as producers of Pulsar 5.0 stamp them.

    Both are in 0 … 65535; without a text that is not null, the minimum is greater.
    """
    keys = pc.drop_null(pc.unique(keys)).cast(pa.binary())
    ends = memoryview(bytearray(16)).cast("q")
    ends[0], ends[1] = _MAX_HASH + 1, -1
    builds.in_use.keys.pulsar_hashes(*_texts(keys), len(keys), ends)
    return ends[0], ends[1]


def _hashes(keys: pa.Array) -> memoryview:
    """Return the XXH64 hash of each key; no key is null."""
    hashes = memoryview(pa.allocate_buffer(8 * max(1, len(keys)))).cast("B").cast("Q")
    builds.in_use.keys.hash_texts(*_texts(keys.cast(pa.binary())), len(keys), hashes)
    return hashes


def _texts(array: pa.BinaryArray) -> tuple[memoryview, memoryview]:
    """Return the bytes of all values, at least one byte, and their Arrow offsets."""
    _, offsets, data = array.buffers()
    view = memoryview(offsets if offsets is not None else bytes(4)).cast("B").cast("i")
    has_data = data is not None and data.size > 0
    return memoryview(data if has_data else b"\0").cast("B"), view[array.offset :]
