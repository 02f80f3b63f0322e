# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True, freethreading_compatible=True
"""Operations on the row table and on the bytes that its rows refer to; see `_entries_py`."""

from __future__ import annotations

try:
    import cython
except ImportError:
    from arrow_io.core import _no_cython as cython

if cython.compiled:
    from cython.cimports.arrow_io.messages import _layout as layout
    from cython.cimports.arrow_io.messages import _wire as wire
    from cython.cimports.arrow_io.messages._wire import pack_position, uint32_be
else:
    from arrow_io.messages import layout, wire
    from arrow_io.messages.wire import pack_position, uint32_be


def take_rows(
    rows: cython.const[cython.longlong][::1],
    stride: cython.Py_ssize_t,
    selection: cython.const[cython.longlong][::1],
    count: cython.Py_ssize_t,
    out: cython.longlong[::1],
    out_stride: cython.Py_ssize_t,
) -> None:
    """Copy the `count` rows that `selection` names (ascending) to the start of another row table.

    `stride` and `out_stride` are the distances between the starts of two columns, in numbers.
    """
    column: cython.Py_ssize_t
    i: cython.Py_ssize_t
    with cython.nogil:
        for column in range(layout.ROW_WIDTH):
            for i in range(count):
                out[column * out_stride + i] = rows[column * stride + selection[i]]


def split_key_values(
    data: cython.const[cython.uchar][::1],
    payloads: cython.const[cython.longlong][::1],
    first: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    keys: cython.longlong[::1],
    values: cython.longlong[::1],
) -> int:
    """Find key and value in the payloads `[first, stop)`: `KeyValue`s of Pulsar, encoded INLINE.

    `payloads` holds positions in `data`, and `keys` and `values` receive positions; −1 for null.
    Returns the index of the first payload that is not a `KeyValue`, or `stop`.
    """
    row: cython.Py_ssize_t
    i: cython.Py_ssize_t
    end: cython.Py_ssize_t
    part: cython.int
    length: cython.longlong
    if cython.compiled:
        p: cython.pointer[cython.const[cython.uchar]] = cython.address(data[0])
    else:
        p = data
    for row in range(first, stop):
        keys[row] = -1
        values[row] = -1
        if payloads[row] < 0:
            continue
        i = payloads[row] >> 32
        end = i + (payloads[row] & wire.MASK32)
        for part in range(2):
            if end - i < 4:
                return row
            length = uint32_be(p, i)
            i += 4
            if length >= wire.TWO31:
                if length != wire.MASK32:
                    return row
                continue
            if length > end - i:
                return row
            if part == 0:
                keys[row] = pack_position(i, length)
            else:
                values[row] = pack_position(i, length)
            i += length
        if i != end:
            return row
    return stop


def strip_prefix(
    data: cython.const[cython.uchar][::1],
    payloads: cython.const[cython.longlong][::1],
    first: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    prefix: cython.const[cython.uchar][::1],
    is_present: cython.bint,
    values: cython.longlong[::1],
) -> int:
    """Find what follows a prefix in the payloads `[first, stop)` that all have it, or all lack it.

    `payloads` holds positions in `data`, and `values` receives positions; −1 for null. Returns the
    index of the first payload for which `is_present` is wrong, or `stop`.
    """
    row: cython.Py_ssize_t = first
    i: cython.Py_ssize_t
    k: cython.Py_ssize_t
    length: cython.longlong
    size: cython.Py_ssize_t = prefix.shape[0] if cython.compiled else len(prefix)
    with cython.nogil:
        while row < stop:
            values[row] = payloads[row]
            if payloads[row] >= 0:
                i = payloads[row] >> 32
                length = payloads[row] & wire.MASK32
                k = 0
                while k < size and k < length and data[i + k] == prefix[k]:
                    k += 1
                if (k == size) != is_present:
                    break
                if is_present:
                    values[row] = pack_position(i + size, length - size)
            row += 1
    return row


def is_ascii(data: cython.const[cython.uchar][::1]) -> bool:
    """Return whether all bytes are below 128, so that any slice of them is valid UTF-8."""
    i: cython.Py_ssize_t
    stop: cython.Py_ssize_t = data.shape[0] if cython.compiled else len(data)
    bits: cython.int = 0
    with cython.nogil:
        for i in range(stop):
            bits |= data[i]
    return bits < 0x80
