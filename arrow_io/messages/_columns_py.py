# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True, freethreading_compatible=True
"""Operations on the row table and on the bytes that its rows refer to; see `_entries_py`."""

from __future__ import annotations

try:
    import cython
except ImportError:
    from arrow_io.core import _no_cython as cython

if cython.compiled:
    from cython.cimports.arrow_io.core._bits import same
    from cython.cimports.arrow_io.core._prefetch import PREFETCH_AHEAD, prefetch
    from cython.cimports.arrow_io.messages import _layout as layout
    from cython.cimports.arrow_io.messages import _wire as wire
    from cython.cimports.arrow_io.messages._wire import pack_position, skip, uint32_be, varint
else:
    from arrow_io.messages import layout, wire
    from arrow_io.messages.wire import pack_position, skip, uint32_be, varint


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


def same_bytes_stop(
    data: cython.const[cython.uchar][::1],
    table: cython.const[cython.longlong][::1],
    field: cython.Py_ssize_t,
    entries: cython.const[cython.longlong][::1],
    first: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
) -> int:
    """Return the end of the rows from `first` whose entries have the same bytes; at most `stop`.

    `field` is the field of `table` with the position of the bytes: `SCHEMA_VERSION` or `SCHEMA_ID`.
    `entries` holds the index of each row's entry in `table`.
    """
    row: cython.Py_ssize_t = first
    entry: cython.longlong = entries[first]
    first_where: cython.longlong = table[entry * layout.ENTRY_WIDTH + field]
    where: cython.longlong
    if cython.compiled:
        p: cython.pointer[cython.const[cython.uchar]] = cython.address(data[0])
    else:
        p = data
    with cython.nogil:
        while row < stop:
            if entries[row] != entry:
                entry = entries[row]
                where = table[entry * layout.ENTRY_WIDTH + field]
                if (where < 0) != (first_where < 0):
                    break
                if first_where >= 0 and not _same_bytes(p, where, first_where):
                    break
            row += 1
    return row


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


def total(numbers: cython.const[cython.longlong][::1], count: cython.Py_ssize_t) -> int:
    """Return the sum of the first `count` numbers."""
    i: cython.Py_ssize_t
    result: cython.longlong = 0
    with cython.nogil:
        for i in range(count):
            result += numbers[i]
    return result


def read_properties(
    data: cython.const[cython.uchar][::1],
    tag: cython.ulonglong,
    metadata: cython.const[cython.longlong][::1],
    counts: cython.const[cython.longlong][::1],
    first: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    property_count: cython.Py_ssize_t,
    keys: cython.longlong[::1],
    values: cython.longlong[::1],
    list_offsets: cython.int[::1],
    result: cython.longlong[::1],
) -> None:
    """Find names and values of the properties of rows `[first, stop)`, all stored in `data`.

    If a message repeats a name, the last value wins, as in Pulsar's client. A message with more
    than `MAX_COMPARED_PROPERTIES` properties keeps duplicates, which the caller must remove.

    Args:
        data: The buffer.
        tag: Protobuf tag of the field that holds a property: 34 in MessageMetadata, 10 in
            SingleMessageMetadata.
        metadata: Position of each row's metadata.
        counts: Number of properties in each row's metadata; reading stops after the last of them.
        first: First row.
        stop: End of the rows (exclusive).
        property_count: Number of properties already in `keys` and `values`; new ones are appended.
        keys: Receives the positions of the names.
        values: Receives the positions of the values.
        list_offsets: Receives, at `row + 1`, the number of properties up to and including that row.
        result: Receives `[row, found, error, many]`: `row` is `stop`, or the row with the error;
            `many` is 1 if a row has more properties than are compared.
    """
    row: cython.Py_ssize_t = first
    i: cython.Py_ssize_t
    end: cython.Py_ssize_t
    field_end: cython.Py_ssize_t
    begin: cython.Py_ssize_t = property_count
    k: cython.Py_ssize_t
    inner: cython.ulonglong
    field: cython.ulonglong
    value: cython.ulonglong
    room: cython.ulonglong
    left: cython.longlong
    key: cython.longlong
    text: cython.longlong
    error: cython.longlong = 0
    many: cython.longlong = 0
    if cython.compiled:
        p: cython.pointer[cython.const[cython.uchar]] = cython.address(data[0])
    else:
        p = data
    with cython.nogil:
        while row < stop:
            if cython.compiled and row + PREFETCH_AHEAD < stop:
                prefetch(p + (metadata[row + PREFETCH_AHEAD] >> 32))
            i = metadata[row] >> 32
            end = i + (metadata[row] & wire.MASK32)
            begin = property_count
            left = counts[row]
            while left > 0 and i < end and error == 0:
                field, i = varint(p, i, end)
                if i < 0:
                    error = layout.BAD_PROPERTY
                    break
                if field & 7 == 0:
                    value, i = varint(p, i, end)
                    if i < 0:
                        error = layout.BAD_PROPERTY
                    continue
                if field != tag:
                    i = skip(p, i, end, field)
                    if i < 0:
                        error = layout.BAD_PROPERTY
                    continue
                value, i = varint(p, i, end)
                room = end - i
                if i < 0 or value > room:
                    error = layout.BAD_PROPERTY
                    break
                field_end = i + value
                key = -1
                text = -1
                while i < field_end:
                    inner, i = varint(p, i, field_end)
                    if i < 0 or inner < 8:
                        error = layout.BAD_PROPERTY
                        break
                    if inner & 7 == 0:
                        value, i = varint(p, i, field_end)
                        if i < 0:
                            error = layout.BAD_PROPERTY
                            break
                    elif inner == 10 or inner == 18:
                        value, i = varint(p, i, field_end)
                        room = field_end - i
                        if i < 0 or value > room:
                            error = layout.BAD_PROPERTY
                            break
                        if inner == 10:
                            key = pack_position(i, value)
                        else:
                            text = pack_position(i, value)
                        i += value
                    else:
                        i = skip(p, i, field_end, inner)
                        if i < 0:
                            error = layout.BAD_PROPERTY
                            break
                if error != 0:
                    break
                if key < 0 or text < 0:
                    error = layout.BAD_PROPERTY
                    break
                k = begin
                if property_count - begin < layout.MAX_COMPARED_PROPERTIES:
                    while k < property_count and not _same_bytes(p, keys[k], key):
                        k += 1
                else:
                    many = 1
                    k = property_count
                keys[k] = key
                values[k] = text
                if k == property_count:
                    property_count += 1
                left -= 1
            if error != 0:
                break
            list_offsets[row + 1] = property_count
            row += 1
    result[0] = row
    result[1] = begin if error != 0 else property_count
    result[2] = error
    result[3] = many


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.bint)
def _same_bytes(
    p: cython.pointer[cython.const[cython.uchar]], a: cython.longlong, b: cython.longlong
):
    length: cython.Py_ssize_t = a & wire.MASK32
    i: cython.Py_ssize_t = a >> 32
    k: cython.Py_ssize_t = b >> 32
    if length != (b & wire.MASK32):
        return False
    if cython.compiled:
        return same(p + i, p + k, length)
    return p[i : i + length] == p[k : k + length]
