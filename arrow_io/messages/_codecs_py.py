# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True, freethreading_compatible=True
"""The decompressor: compressed payloads of a run of entries → one buffer; see `_entries_py`.

Raw blocks of LZ4 and Snappy are decompressed here, ZLIB streams by `_inflate_py`. A *body*, the
decompressed payload of an entry, must have exactly the length in the entry's metadata; any other
result is an error. Bodies are written in the order of their positions, so the next body
overwrites bytes that a copy writes past the end of one.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from arrow_io.core import _no_cython as cython

if cython.compiled:
    from cython.cimports.arrow_io.messages import _layout as layout
    from cython.cimports.arrow_io.messages import _wire as wire
    from cython.cimports.arrow_io.messages._copies import (
        WORD,
        copy_literals,
        copy_match,
        copy_word,
        copy_words_back,
    )
    from cython.cimports.arrow_io.messages._inflate_c import inflate
    from cython.cimports.arrow_io.messages._wire import pack_position, varint
    from cython.cimports.libc.string import memcpy
else:
    from arrow_io.messages import layout, wire
    from arrow_io.messages._inflate_py import inflate
    from arrow_io.messages.copies import WORD, copy_literals, copy_match, copy_word, copy_words_back
    from arrow_io.messages.wire import pack_position, varint


def total_length(
    table: cython.const[cython.longlong][::1],
    field: cython.Py_ssize_t,
    first: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
) -> int:
    """Return the total length at a position field of the entries in `[first, stop)`."""
    i: cython.Py_ssize_t
    where: cython.longlong
    total: cython.longlong = 0
    with cython.nogil:
        for i in range(first, stop):
            where = table[i * layout.ENTRY_WIDTH + field]
            if where >= 0:
                total += where & wire.MASK32
    return total


def place_bodies(
    data: cython.const[cython.uchar][::1],
    table: cython.longlong[::1],
    first: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    max_ratio: cython.longlong,
    max_bytes: cython.longlong,
    room: cython.longlong,
    result: cython.longlong[::1],
) -> None:
    """Assign the bodies of the entries in `[first, stop)` consecutive positions in a new buffer.

    All entries, at least one, are compressed by one codec, and one compressed byte becomes at most
    `max_ratio` bytes. An entry whose announced size is not plausible, or above `max_bytes`, is
    flagged as `ALONE` and gets no position; neither does a null value. Stops after the entry that
    uses up `room`, the bytes of entries and bodies together.

    `result` receives `[stop, body_bytes, payload_bytes, alone]`: the end of the entries
    (exclusive), the total lengths of their bodies and payloads, and the number of flagged entries.
    """
    i: cython.Py_ssize_t = first
    base: cython.Py_ssize_t
    where: cython.longlong
    length: cython.longlong
    size: cython.longlong
    used: cython.longlong = 0
    body_bytes: cython.longlong = 0
    payload_bytes: cython.longlong = 0
    alone: cython.longlong = 0
    if cython.compiled:
        p: cython.pointer[cython.const[cython.uchar]] = cython.address(data[0])
    else:
        p = data
    with cython.nogil:
        while i < stop and (used + body_bytes < room or i == first):
            base = i * layout.ENTRY_WIDTH
            i += 1
            used += table[base + layout.FRAME] & wire.MASK32
            table[base + layout.BODY] = -1
            if table[base + layout.FLAGS] & (layout.BATCHED | layout.NULL_VALUE) == (
                layout.NULL_VALUE
            ):
                continue
            where = table[base + layout.PAYLOAD]
            length = where & wire.MASK32
            size = table[base + layout.UNCOMPRESSED_SIZE]
            if (
                size == 0
                or size > max_bytes
                or size > max_ratio * (length + 16)
                or (
                    table[base + layout.COMPRESSION] == layout.ZSTD
                    and not _is_zstd_frame(p, where >> 32, (where >> 32) + length, size)
                )
            ):
                table[base + layout.FLAGS] |= layout.ALONE
                alone += 1
                continue
            if size > wire.MAX31 - body_bytes:
                i -= 1
                break
            table[base + layout.BODY] = pack_position(body_bytes, size)
            body_bytes += size
            payload_bytes += length
    result[0] = i
    result[1] = body_bytes
    result[2] = payload_bytes
    result[3] = alone


def join_payloads(
    data: cython.const[cython.uchar][::1],
    table: cython.const[cython.longlong][::1],
    first: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    out: cython.uchar[::1],
) -> None:
    """Copy the payloads of entries in `[first, stop)` that have a body position, back to back."""
    i: cython.Py_ssize_t
    o: cython.Py_ssize_t = 0
    begin: cython.Py_ssize_t
    length: cython.Py_ssize_t
    with cython.nogil:
        for i in range(first, stop):
            if table[i * layout.ENTRY_WIDTH + layout.BODY] < 0:
                continue
            begin = table[i * layout.ENTRY_WIDTH + layout.PAYLOAD] >> 32
            length = table[i * layout.ENTRY_WIDTH + layout.PAYLOAD] & wire.MASK32
            if cython.compiled:
                memcpy(cython.address(out[o]), cython.address(data[begin]), length)
            else:
                out[o : o + length] = data[begin : begin + length]
            o += length


def decompress_blocks(
    data: cython.const[cython.uchar][::1],
    table: cython.longlong[::1],
    first: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    out: cython.uchar[::1],
    scratch: cython.int[::1],
) -> int:
    """Decompress the LZ4, Snappy or ZLIB payloads of entries in `[first, stop)` to their positions.

    Flags each entry as `ALONE` whose payload does not surely decompress to its body; returns their
    number. `out` receives the bodies; the bytes after them are undefined. `scratch` is room for the
    tables of ZLIB, `SCRATCH_WIDTH` numbers.
    """
    i: cython.Py_ssize_t
    base: cython.Py_ssize_t
    where: cython.longlong
    body: cython.longlong
    begin: cython.Py_ssize_t
    end: cython.Py_ssize_t
    place: cython.Py_ssize_t
    body_stop: cython.Py_ssize_t
    readable: cython.Py_ssize_t = data.shape[0] if cython.compiled else len(data)
    writable: cython.Py_ssize_t = out.shape[0] if cython.compiled else len(out)
    sound: cython.bint
    alone: cython.Py_ssize_t = 0
    if cython.compiled:
        p: cython.pointer[cython.const[cython.uchar]] = cython.address(data[0])
        q: cython.pointer[cython.uchar] = cython.address(out[0])
        s: cython.pointer[cython.int] = cython.address(scratch[0])
    else:
        p = data
        q = out
        s = scratch
    with cython.nogil:
        for i in range(first, stop):
            base = i * layout.ENTRY_WIDTH
            body = table[base + layout.BODY]
            if body < 0:
                continue
            where = table[base + layout.PAYLOAD]
            begin = where >> 32
            end = begin + (where & wire.MASK32)
            place = body >> 32
            body_stop = place + (body & wire.MASK32)
            if table[base + layout.COMPRESSION] == layout.ZLIB:
                sound = inflate(p, begin, end, readable, q, place, body_stop, writable, s)
            else:
                sound = _decompress_block(
                    table[base + layout.COMPRESSION],
                    p,
                    begin,
                    end,
                    readable,
                    q,
                    place,
                    body_stop,
                    writable,
                )
            if not sound:
                table[base + layout.FLAGS] |= layout.ALONE
                alone += 1
    return alone


def decompress_block(
    compression: cython.longlong,
    data: cython.const[cython.uchar][::1],
    out: cython.uchar[::1],
) -> bool:
    """Decompress one raw block of LZ4 or Snappy; return whether it fills `out` exactly.

    If it does not, the content of `out` is undefined.
    """
    readable: cython.Py_ssize_t = data.shape[0] if cython.compiled else len(data)
    writable: cython.Py_ssize_t = out.shape[0] if cython.compiled else len(out)
    sound: cython.bint
    if readable == 0:
        return False
    if cython.compiled:
        p: cython.pointer[cython.const[cython.uchar]] = cython.address(data[0])
        q: cython.pointer[cython.uchar] = cython.address(out[0])
    else:
        p = data
        q = out
    with cython.nogil:
        sound = _decompress_block(compression, p, 0, readable, readable, q, 0, writable, writable)
    return sound


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.bint)
def _decompress_block(
    compression: cython.longlong,
    p: cython.pointer[cython.const[cython.uchar]],
    i: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    readable: cython.Py_ssize_t,
    q: cython.pointer[cython.uchar],
    o: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    writable: cython.Py_ssize_t,
):
    """Decompress `p[i:stop]` to `q[o:end]`; return whether it fills that exactly."""
    if compression == layout.LZ4:
        return _decompress_lz4(p, i, stop, readable, q, o, end, writable)
    return _decompress_snappy(p, i, stop, readable, q, o, end, writable)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.bint)
def _decompress_lz4(
    p: cython.pointer[cython.const[cython.uchar]],
    i: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    readable: cython.Py_ssize_t,
    q: cython.pointer[cython.uchar],
    o: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    writable: cython.Py_ssize_t,
):
    """Decompress a series of sequences: token (literal length, match length), literals, u16 offset.

    The last sequence ends after its literals. A length of 15 continues in the next bytes, up to the
    first one below 255.
    """
    begin: cython.Py_ssize_t = o
    token: cython.Py_ssize_t
    length: cython.Py_ssize_t
    offset: cython.Py_ssize_t
    byte: cython.Py_ssize_t
    is_continued: cython.Py_ssize_t
    while i < stop:
        token = p[i]
        i += 1
        length = token >> 4
        if length < 15 and stop - i >= WORD + 4 and end - o >= 5 * WORD:
            copy_word(q, o, p, i)
            i += length
            o += length
            offset = p[i] | (p[i + 1] << 8)
            # A branch on whether the length continues would be mispredicted: compute it instead.
            length = token & 15
            is_continued = (length + 1) >> 4
            byte = p[i + 2] & -is_continued
            i += 2 + is_continued
            length += 4 + byte
            if length <= 4 * WORD and WORD <= offset <= o - begin:
                copy_words_back(q, o, offset)
                if length > 3 * WORD:
                    copy_word(q, o + 3 * WORD, q, o + 3 * WORD - offset)
                o += length
                continue
        else:
            byte = 255 if length == 15 else 0
            while byte == 255:
                if i >= stop:
                    return False
                byte = p[i]
                i += 1
                length += byte
            if length > stop - i or length > end - o:
                return False
            copy_literals(q, o, writable, p, i, readable, length)
            i += length
            o += length
            if i == stop:
                return o == end
            if stop - i < 2:
                return False
            offset = p[i] | (p[i + 1] << 8)
            i += 2
            length = (token & 15) + 4
            byte = 255 if length == 19 else 0
        while byte == 255:
            if i >= stop:
                return False
            byte = p[i]
            i += 1
            length += byte
        if offset == 0 or offset > o - begin or length > end - o:
            return False
        copy_match(q, o, writable, offset, length)
        o += length
    return False


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.bint)
def _decompress_snappy(
    p: cython.pointer[cython.const[cython.uchar]],
    i: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    readable: cython.Py_ssize_t,
    q: cython.pointer[cython.uchar],
    o: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    writable: cython.Py_ssize_t,
):
    """Decompress the length as a varint, then elements: literals, or copies of earlier output.

    The low two bits of an element's first byte are its kind: literals, or a copy whose offset takes
    eleven bits, two bytes or four bytes.
    """
    begin: cython.Py_ssize_t = o
    value: cython.ulonglong
    tag: cython.Py_ssize_t
    length: cython.Py_ssize_t
    offset: cython.Py_ssize_t
    extra: cython.Py_ssize_t
    byte: cython.Py_ssize_t
    value, i = varint(p, i, stop)
    if i < 0 or value > wire.MAX31:
        return False
    length = value
    if length != end - o:
        return False
    while i < stop:
        tag = p[i]
        i += 1
        length = (tag >> 2) + 1
        if tag & 3 == 0:
            if length > 60:
                extra = length - 60
                if extra > stop - i:
                    return False
                length = p[i]
                if extra > 1:
                    length |= p[i + 1] << 8
                if extra > 2:
                    length |= p[i + 2] << 16
                if extra > 3:
                    byte = p[i + 3]
                    length |= byte << 24
                length += 1
                i += extra
            if length > stop - i or length > end - o:
                return False
            copy_literals(q, o, writable, p, i, readable, length)
            i += length
            o += length
            continue
        if tag & 3 == 1:
            if i >= stop:
                return False
            length = ((tag >> 2) & 7) + 4
            offset = ((tag >> 5) << 8) | p[i]
            i += 1
        elif tag & 3 == 2:
            if stop - i < 2:
                return False
            offset = p[i] | (p[i + 1] << 8)
            i += 2
        else:
            if stop - i < 4:
                return False
            byte = p[i + 3]
            offset = p[i] | (p[i + 1] << 8) | (p[i + 2] << 16) | (byte << 24)
            i += 4
        if offset == 0 or offset > o - begin or length > end - o:
            return False
        copy_match(q, o, writable, offset, length)
        o += length
    return o == end


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.bint)
def _is_zstd_frame(
    p: cython.pointer[cython.const[cython.uchar]],
    i: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    size: cython.longlong,
):
    """Return whether the bytes are exactly one ZSTD frame that announces `size` bytes.

    Such a frame needs no dictionary, and the library neither allocates a window nor reads past it.
    """
    descriptor: cython.int
    width: cython.Py_ssize_t
    header: cython.longlong
    byte: cython.longlong
    stored_size: cython.longlong = 0
    k: cython.Py_ssize_t
    if stop - i < 6 or p[i] != 0x28 or p[i + 1] != 0xB5 or p[i + 2] != 0x2F or p[i + 3] != 0xFD:
        return False
    descriptor = p[i + 4]
    i += 5
    if descriptor & 3 != 0 or descriptor & 0xE0 == 0:
        return False
    width = 1 << (descriptor >> 6)
    if descriptor & 0x20 == 0:
        i += 1
    if width > stop - i:
        return False
    if width == 8:
        if p[i + 4] != 0 or p[i + 5] != 0 or p[i + 6] != 0 or p[i + 7] != 0:
            return False
    for k in range(min(width, 4)):
        byte = p[i + k]
        stored_size |= byte << (8 * k)
    if width == 2:
        stored_size += 256
    if stored_size != size:
        return False
    i += width
    header = 0
    while header & 1 == 0:
        if stop - i < 3:
            return False
        header = p[i] | (p[i + 1] << 8) | (p[i + 2] << 16)
        i += 3
        if header & 6 == 6:
            return False
        # A block of kind 1 (RLE) stores one byte, repeated.
        k = 1 if header & 6 == 2 else header >> 3
        if k > stop - i:
            return False
        i += k
    if descriptor & 4 != 0:
        i += 4
    return i == stop
