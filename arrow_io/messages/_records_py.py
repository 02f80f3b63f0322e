# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True, freethreading_compatible=True
"""Records of MapFiles → entries in the frames of PIP-17's data blocks; see `_entries_py`.

An entry then looks the same to its readers, whatever kind of object holds it: i32 length, i64 entry
id, data. The layout of records is in `arrow_io.format.sequence_file`.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from arrow_io.core import _no_cython as cython

if cython.compiled:
    from cython.cimports.arrow_io.messages import _wire as wire
    from cython.cimports.arrow_io.messages._wire import uint32_be
    from cython.cimports.libc.string import memcmp, memcpy
else:
    from arrow_io.messages import wire
    from arrow_io.messages.wire import uint32_be

COMPLETE, CUT, WRONG_RECORD, WRONG_KEY, WRONG_LENGTH = range(5)
"""Why a call stopped, in its result."""

_COMPLETE = cython.declare(cython.longlong, 0)
_CUT = cython.declare(cython.longlong, 1)
_WRONG_RECORD = cython.declare(cython.longlong, 2)
_WRONG_KEY = cython.declare(cython.longlong, 3)
_WRONG_LENGTH = cython.declare(cython.longlong, 4)
_RECORD_HEADER = cython.declare(cython.Py_ssize_t, 16)
_VALUE_HEADER = cython.declare(cython.Py_ssize_t, 4)
_FRAME_HEADER = cython.declare(cython.Py_ssize_t, 12)
_ESCAPE = cython.declare(cython.Py_ssize_t, 20)
# First bytes of VInts, unsigned: up to 127 and from 144 on, they are a number, or a negative one.
# From 128 to 135 they precede the bytes of a negative number, and between, of a positive one.
_MAX_ONE_BYTE = cython.declare(cython.longlong, 127)
_PRECEDE_NEGATIVE = cython.declare(cython.longlong, 135)
_NEGATIVE = cython.declare(cython.longlong, 144)


def frame_records(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    key: cython.longlong,
    last_key: cython.longlong,
    escape: cython.const[cython.uchar][::1],
    target: cython.uchar[::1],
    result: cython.longlong[::1],
) -> None:
    """Copy the entries of records that are not compressed.

    Args:
        data: Bytes of the file.
        start: Position in `data` of a record, or of the escape before it.
        stop: End (exclusive) of the bytes that may be read; at most `len(data)`.
        key: Key that the first record must have, below 2**62; each later record must have the next
            key.
        last_key: Last key to copy (inclusive).
        escape: The 20 bytes of an escape with this file's sync marker.
        target: Receives the frames; at least `stop - start` long.
        result: Receives `[count, position, status, needed, end, escapes]`: number of copied
            entries; end of the last record in `data`; why the copy stopped; for `CUT`, the number
            of bytes from there that the next record needs, as far as they are known, and for
            `WRONG_KEY`, its length; end of the frames in `target`; number of escapes before the
            copied records.
    """
    count: cython.longlong = 0
    i: cython.Py_ssize_t = start
    at: cython.Py_ssize_t = start
    o: cython.Py_ssize_t = 0
    length: cython.longlong
    size: cython.longlong
    high: cython.longlong
    status: cython.longlong = _COMPLETE
    needed: cython.longlong = 0
    escapes: cython.longlong = 0
    is_escaped: cython.bint = False
    if cython.compiled:
        p: cython.pointer[cython.const[cython.uchar]] = cython.address(data[0])
        e: cython.pointer[cython.const[cython.uchar]] = cython.address(escape[0])
        q: cython.pointer[cython.uchar] = cython.address(target[0])
    else:
        p = data
        q = target
    with cython.nogil:
        while key <= last_key:
            at = i
            is_escaped = False
            needed = _RECORD_HEADER + _VALUE_HEADER
            if stop - at < 4:
                status = _CUT
                break
            length = uint32_be(p, at)
            if length == wire.MASK32:
                needed += _ESCAPE
                if stop - at < _ESCAPE:
                    status = _CUT
                    break
                if cython.compiled:
                    if memcmp(p + at, e, _ESCAPE) != 0:
                        status = _WRONG_RECORD
                        break
                elif data[at : at + _ESCAPE] != escape:
                    status = _WRONG_RECORD
                    break
                at += _ESCAPE
                is_escaped = True
            if stop - at < _RECORD_HEADER + _VALUE_HEADER:
                status = _CUT
                break
            length = uint32_be(p, at)
            size = uint32_be(p, at + _RECORD_HEADER)
            if uint32_be(p, at + 4) != 8 or length != size + 12:
                status = _WRONG_RECORD
                break
            # Both halves of a key are below 2**32; a key of 2**63 and more becomes negative.
            high = uint32_be(p, at + 8)
            if high >= wire.TWO31:
                high -= wire.TWO32
            if high * wire.TWO32 + uint32_be(p, at + 12) != key:
                status = _WRONG_KEY
                needed = at + _RECORD_HEADER + _VALUE_HEADER - i + size
                break
            at += _RECORD_HEADER + _VALUE_HEADER
            if size > stop - at:
                status = _CUT
                needed = at - i + size
                break
            if cython.compiled:
                # The value's length, the key and the data are adjacent in a frame.
                memcpy(q + o, p + at - 4, 4)
                memcpy(q + o + 4, p + at - 12, 8)
                memcpy(q + o + _FRAME_HEADER, p + at, size)
            else:
                q[o : o + 4] = p[at - 4 : at]
                q[o + 4 : o + 12] = p[at - 12 : at - 4]
                q[o + 12 : o + 12 + size] = p[at : at + size]
            o += _FRAME_HEADER + size
            i = at + size
            escapes += is_escaped
            count += 1
            key += 1
    result[0] = count
    result[1] = i
    result[2] = status
    result[3] = needed
    result[4] = o
    result[5] = escapes


def read_lengths(
    data: cython.const[cython.uchar][::1],
    stop: cython.Py_ssize_t,
    lengths: cython.longlong[::1],
    count: cython.Py_ssize_t,
    longest: cython.longlong,
    result: cython.longlong[::1],
) -> None:
    """Decode VInts, which are lengths of values.

    Args:
        data: The encoded numbers.
        stop: Their end (exclusive) in it; at most `len(data)`.
        lengths: Receives the numbers; at least `count` long.
        count: Number of them.
        longest: Maximum of a number, below 2**32.
        result: Receives `[count, position, status, longest, sum]`: number of decoded numbers; end
            of the last one in `data`; why the loop stopped, `CUT` if the numbers are not complete,
            `WRONG_LENGTH` if one is negative or exceeds the maximum; the greatest; their sum.
    """
    index: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    number: cython.longlong
    total: cython.longlong = 0
    greatest: cython.longlong = 0
    status: cython.longlong = _COMPLETE
    if cython.compiled:
        p: cython.pointer[cython.const[cython.uchar]] = cython.address(data[0])
        n: cython.pointer[cython.longlong] = cython.address(lengths[0])
    else:
        p = data
        n = lengths
    with cython.nogil:
        while index < count:
            if i >= stop:
                status = _CUT
                break
            number = p[i]
            i += 1
            if number > _MAX_ONE_BYTE:
                # A first byte of -112 … -1 is the number itself, -128 … -121 precede negative ones.
                if number >= _NEGATIVE or number <= _PRECEDE_NEGATIVE:
                    status = _WRONG_LENGTH
                    break
                size = _NEGATIVE - number
                if size > stop - i:
                    status = _CUT
                    break
                number = 0
                while size > 0 and number <= longest:
                    number = number * 256 + p[i]
                    i += 1
                    size -= 1
            if number > longest:
                status = _WRONG_LENGTH
                break
            n[index] = number
            total += number
            greatest = max(greatest, number)
            index += 1
    result[0] = index
    result[1] = i
    result[2] = status
    result[3] = greatest
    result[4] = total


def frame_values(
    values: cython.const[cython.uchar][::1],
    stop: cython.Py_ssize_t,
    lengths: cython.const[cython.longlong][::1],
    keys: cython.const[cython.uchar][::1],
    first: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    key: cython.longlong,
    target: cython.uchar[::1],
    result: cython.longlong[::1],
) -> None:
    """Copy the entries of decompressed values.

    Args:
        values: Serialized values (i32 length, data) from the value `first` on.
        stop: End (exclusive) of the values in it; at most `len(values)`.
        lengths: Lengths of all serialized values of the block.
        keys: Serialized keys of all records of the block.
        first: Index of the first value.
        count: Number of records of the block.
        key: Key that it must have, below 2**62; each later record must have the next key.
        target: Receives the frames; at least `stop` and 8 bytes for each value in it long.
        result: Receives `[count, position, status, 0, end]`: number of copied entries; end of the
            last one in `values`; why the copy stopped, `CUT` if a value is not complete; end of the
            frames in `target`.
    """
    index: cython.Py_ssize_t = first
    i: cython.Py_ssize_t = 0
    o: cython.Py_ssize_t = 0
    length: cython.longlong
    high: cython.longlong
    status: cython.longlong = _COMPLETE
    if cython.compiled:
        p: cython.pointer[cython.const[cython.uchar]] = cython.address(values[0])
        k: cython.pointer[cython.const[cython.uchar]] = cython.address(keys[0])
        n: cython.pointer[cython.const[cython.longlong]] = cython.address(lengths[0])
        q: cython.pointer[cython.uchar] = cython.address(target[0])
    else:
        p = values
        k = keys
        n = lengths
        q = target
    with cython.nogil:
        while index < count:
            length = n[index]
            if length < _VALUE_HEADER:
                status = _WRONG_LENGTH
                break
            if length > stop - i:
                status = _CUT
                break
            if uint32_be(p, i) != length - _VALUE_HEADER:
                status = _WRONG_LENGTH
                break
            high = uint32_be(k, index * 8)
            if high >= wire.TWO31:
                high -= wire.TWO32
            if high * wire.TWO32 + uint32_be(k, index * 8 + 4) != key:
                status = _WRONG_KEY
                break
            if cython.compiled:
                memcpy(q + o, p + i, 4)
                memcpy(q + o + 4, k + index * 8, 8)
                memcpy(q + o + _FRAME_HEADER, p + i + 4, length - 4)
            else:
                q[o : o + 4] = p[i : i + 4]
                q[o + 4 : o + 12] = k[index * 8 : index * 8 + 8]
                q[o + 12 : o + 8 + length] = p[i + 4 : i + length]
            o += length + 8
            i += length
            index += 1
            key += 1
    result[0] = index - first
    result[1] = i
    result[2] = status
    result[3] = 0
    result[4] = o
