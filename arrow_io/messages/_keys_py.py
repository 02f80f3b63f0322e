# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True, freethreading_compatible=True
"""Hashes of keys: Bloom filters as Parquet defines them, and the hashes of Pulsar 5.0.

See `key_filters`. A split-block Bloom filter uses XXH64 with seed 0 and consists of 32-byte blocks.
The upper half of a hash chooses the block, the lower half one bit in each of the block's eight
words. Producers of Pulsar 5.0 stamp entries with Murmur3 hashes (`pulsar_hashes`).
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from arrow_io.core import _no_cython as cython

if cython.compiled:
    from cython.cimports.arrow_io.core._bits import word

_MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_LOW32 = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_PRIME1 = cython.declare(cython.ulonglong, 0x9E3779B185EBCA87)
_PRIME2 = cython.declare(cython.ulonglong, 0xC2B2AE3D27D4EB4F)
_PRIME3 = cython.declare(cython.ulonglong, 0x165667B19E3779F9)
_PRIME4 = cython.declare(cython.ulonglong, 0x85EBCA77C2B2AE63)
_PRIME5 = cython.declare(cython.ulonglong, 0x27D4EB2F165667C5)
_MURMUR1 = cython.declare(cython.ulonglong, 0xCC9E2D51)
_MURMUR2 = cython.declare(cython.ulonglong, 0x1B873593)
_MURMUR3 = cython.declare(cython.ulonglong, 0xE6546B64)
_MURMUR4 = cython.declare(cython.ulonglong, 0x85EBCA6B)
_MURMUR5 = cython.declare(cython.ulonglong, 0xC2B2AE35)


def hash_texts(
    data: cython.const[cython.uchar][::1],
    offsets: cython.const[cython.int][::1],
    count: cython.Py_ssize_t,
    hashes: cython.ulonglong[::1],
) -> None:
    """Hash `count` texts; `data` has at least one byte, `offsets` are their Arrow offsets."""
    i: cython.Py_ssize_t
    if cython.compiled:
        p: cython.pointer[cython.const[cython.uchar]] = cython.address(data[0])
    else:
        p = data
    with cython.nogil:
        for i in range(count):
            hashes[i] = _xxh64(p, offsets[i], offsets[i + 1])


def pulsar_hashes(
    data: cython.const[cython.uchar][::1],
    offsets: cython.const[cython.int][::1],
    count: cython.Py_ssize_t,
    ends: cython.longlong[::1],
) -> None:
    """Widen a range of hashes, `ends`, by the lower 16 bits of the Murmur3 hashes of some texts.

    `data` has at least one byte, `offsets` are the Arrow offsets of the `count` texts. The hash is
    that of 32 bits (x86) with seed 0.
    """
    i: cython.Py_ssize_t
    low: cython.longlong
    if cython.compiled:
        p: cython.pointer[cython.const[cython.uchar]] = cython.address(data[0])
    else:
        p = data
    with cython.nogil:
        for i in range(count):
            low = _murmur3(p, offsets[i], offsets[i + 1]) & 0xFFFF
            ends[0] = min(ends[0], low)
            ends[1] = max(ends[1], low)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _murmur3(
    p: cython.pointer[cython.const[cython.uchar]], i: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> cython.ulonglong:
    length: cython.ulonglong = stop - i
    h: cython.ulonglong = 0
    k: cython.ulonglong
    j: cython.Py_ssize_t
    while i < stop:
        k = 0
        j = min(i + 4, stop)
        while j > i:
            j -= 1
            k = (k << 8) | p[j]
        k = (k * _MURMUR1) & _LOW32
        k = ((k << 15) | (k >> 17)) & _LOW32
        h ^= (k * _MURMUR2) & _LOW32
        if i + 4 <= stop:
            h = ((h << 13) | (h >> 19)) & _LOW32
            h = (h * 5 + _MURMUR3) & _LOW32
        i += 4
    h ^= length & _LOW32
    h = ((h ^ (h >> 16)) * _MURMUR4) & _LOW32
    h = ((h ^ (h >> 13)) * _MURMUR5) & _LOW32
    return h ^ (h >> 16)


def insert(
    hashes: cython.const[cython.ulonglong][::1],
    count: cython.Py_ssize_t,
    filter_: cython.uchar[::1],
    block_count: cython.ulonglong,
) -> None:
    """Insert `count` hashes into a filter of `block_count` blocks."""
    i: cython.Py_ssize_t
    block: cython.Py_ssize_t
    bit: cython.int
    k: cython.int
    with cython.nogil:
        for i in range(count):
            block = ((hashes[i] >> 32) * block_count) >> 32
            for k in range(8):
                bit = _bit(hashes[i] & _LOW32, k)
                filter_[block * 32 + 4 * k + (bit >> 3)] |= 1 << (bit & 7)


def find(
    data: cython.const[cython.uchar][::1],
    offsets: cython.const[cython.int][::1],
    count: cython.Py_ssize_t,
    hash_: cython.ulonglong,
    matches: cython.uchar[::1],
) -> None:
    """Test a hash against `count` filters; a filter of less than one block matches every hash.

    `data` has at least one byte, `offsets` are the Arrow offsets of the filters. `matches` receives
    1 for each filter that may contain the hash, else 0.
    """
    i: cython.Py_ssize_t
    start: cython.Py_ssize_t
    bit: cython.int
    k: cython.int
    blocks: cython.ulonglong
    with cython.nogil:
        for i in range(count):
            matches[i] = 1
            blocks = (offsets[i + 1] - offsets[i]) // 32
            if blocks == 0:
                continue
            start = offsets[i] + ((((hash_ >> 32) * blocks) >> 32) << 5)
            for k in range(8):
                bit = _bit(hash_ & _LOW32, k)
                if data[start + 4 * k + (bit >> 3)] >> (bit & 7) & 1 == 0:
                    matches[i] = 0
                    break


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _bit(low: cython.ulonglong, k: cython.int) -> cython.int:
    """Return the bit that the lower half of a hash sets in word `k` of its block."""
    salt: cython.ulonglong
    if k == 0:
        salt = 0x47B6137B
    elif k == 1:
        salt = 0x44974D91
    elif k == 2:
        salt = 0x8824AD5B
    elif k == 3:
        salt = 0xA2B7289D
    elif k == 4:
        salt = 0x705495C7
    elif k == 5:
        salt = 0x2DF1424B
    elif k == 6:
        salt = 0x9EFC4947
    else:
        salt = 0x5C6BFB31
    return ((low * salt) & _LOW32) >> 27


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _word(p: cython.pointer[cython.const[cython.uchar]], i: cython.Py_ssize_t) -> cython.ulonglong:
    """Return the eight bytes from `i`, little-endian."""
    if cython.compiled:
        return word(p + i)
    return int.from_bytes(p[i : i + 8], "little")


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _rotate_left(value: cython.ulonglong, bits: cython.int) -> cython.ulonglong:
    return ((value << bits) & _MASK64) | (value >> (64 - bits))


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _round(lane: cython.ulonglong, value: cython.ulonglong) -> cython.ulonglong:
    lane = (lane + value * _PRIME2) & _MASK64
    return (_rotate_left(lane, 31) * _PRIME1) & _MASK64


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _xxh64(
    p: cython.pointer[cython.const[cython.uchar]], i: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> cython.ulonglong:
    length: cython.ulonglong = stop - i
    h: cython.ulonglong = _PRIME5
    value: cython.ulonglong
    lane1: cython.ulonglong
    lane2: cython.ulonglong
    lane3: cython.ulonglong
    lane4: cython.ulonglong
    if stop - i >= 32:
        lane1 = (_PRIME1 + _PRIME2) & _MASK64
        lane2 = _PRIME2
        lane3 = 0
        lane4 = (0 - _PRIME1) & _MASK64
        while stop - i >= 32:
            lane1 = _round(lane1, _word(p, i))
            lane2 = _round(lane2, _word(p, i + 8))
            lane3 = _round(lane3, _word(p, i + 16))
            lane4 = _round(lane4, _word(p, i + 24))
            i += 32
        h = (
            _rotate_left(lane1, 1)
            + _rotate_left(lane2, 7)
            + _rotate_left(lane3, 12)
            + _rotate_left(lane4, 18)
        ) & _MASK64
        h = ((h ^ _round(0, lane1)) * _PRIME1 + _PRIME4) & _MASK64
        h = ((h ^ _round(0, lane2)) * _PRIME1 + _PRIME4) & _MASK64
        h = ((h ^ _round(0, lane3)) * _PRIME1 + _PRIME4) & _MASK64
        h = ((h ^ _round(0, lane4)) * _PRIME1 + _PRIME4) & _MASK64
    h = (h + length) & _MASK64
    while stop - i >= 8:
        h ^= _round(0, _word(p, i))
        h = (_rotate_left(h, 27) * _PRIME1 + _PRIME4) & _MASK64
        i += 8
    if stop - i >= 4:
        value = p[i + 3]
        value = (value << 8) | p[i + 2]
        value = (value << 8) | p[i + 1]
        value = (value << 8) | p[i]
        h ^= (value * _PRIME1) & _MASK64
        h = (_rotate_left(h, 23) * _PRIME2 + _PRIME3) & _MASK64
        i += 4
    while i < stop:
        h ^= (p[i] * _PRIME5) & _MASK64
        h = (_rotate_left(h, 11) * _PRIME1) & _MASK64
        i += 1
    h ^= h >> 33
    h = (h * _PRIME2) & _MASK64
    h ^= h >> 29
    h = (h * _PRIME3) & _MASK64
    return h ^ (h >> 32)
