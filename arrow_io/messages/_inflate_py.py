# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True, freethreading_compatible=True
"""The ZLIB decompressor (RFC 1950 and 1951): ZLIB streams → their bytes; see `_entries_py`.

A library takes longer to initialise a stream than to decompress the payload of one message. Only
streams that are surely valid are accepted here. The caller passes the others to the library, which
says what is wrong with them.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from arrow_io.core import _no_cython as cython

if cython.compiled:
    from cython.cimports.arrow_io.core._bits import word
    from cython.cimports.arrow_io.messages._copies import copy_literals, copy_match
    from cython.cimports.libc.string import memcpy
else:
    from arrow_io.messages.copies import copy_literals, copy_match

# Layout of the scratch space. For literals and for distances: a table by the next bits; for longer
# codes, their number by length and their symbols in order. Then code lengths, and which are not 0.
_LITERAL_BITS = cython.declare(cython.Py_ssize_t, 10)
_DISTANCE_BITS = cython.declare(cython.Py_ssize_t, 8)
_LITERALS = cython.declare(cython.Py_ssize_t, 0)
_LITERAL_COUNTS = cython.declare(cython.Py_ssize_t, 1024)
_LITERAL_SYMBOLS = cython.declare(cython.Py_ssize_t, 1040)
_DISTANCES = cython.declare(cython.Py_ssize_t, 1328)
_DISTANCE_COUNTS = cython.declare(cython.Py_ssize_t, 1584)
_DISTANCE_SYMBOLS = cython.declare(cython.Py_ssize_t, 1600)
_LENGTHS = cython.declare(cython.Py_ssize_t, 1632)
_STARTS = cython.declare(cython.Py_ssize_t, 1952)
_CODED = cython.declare(cython.Py_ssize_t, 1968)
SCRATCH_WIDTH = 2288
# A table entry has the code length in its 6 lowest bits, because processors shift by the low 6 bits
# without masking, and the symbol above them.


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.bint)
def inflate(
    p: cython.pointer[cython.const[cython.uchar]],
    i: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    readable: cython.Py_ssize_t,
    q: cython.pointer[cython.uchar],
    o: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    writable: cython.Py_ssize_t,
    s: cython.pointer[cython.int],
):
    """Decompress the stream `p[i:stop]` to `q[o:end]`; return whether it surely fills that.

    The stream is finished, with its checksum, or ends after a whole block, as Java flushes it.
    """
    begin: cython.Py_ssize_t = o
    hold: cython.ulonglong = 0
    bits: cython.int = 0
    last: cython.int = 0
    kind: cython.int
    entry: cython.int
    symbol: cython.int
    extra: cython.int
    length: cython.Py_ssize_t
    offset: cython.Py_ssize_t
    byte: cython.ulonglong
    if stop - i < 2 or p[i] != 0x78 or p[i + 1] & 0x20 != 0 or (0x7800 + p[i + 1]) % 31 != 0:
        return False
    i += 2
    while last == 0:
        while bits <= 56 and i < stop:
            byte = p[i]
            hold |= byte << bits
            bits += 8
            i += 1
        if bits < 3:
            return bits == 0 and o == end
        last = hold & 1
        kind = (hold >> 1) & 3
        hold >>= 3
        bits -= 3
        if kind == 0:
            i -= bits >> 3
            hold = 0
            bits = 0
            if stop - i < 4:
                return False
            length = p[i] | (p[i + 1] << 8)
            if length != (p[i + 2] | (p[i + 3] << 8)) ^ 0xFFFF:
                return False
            i += 4
            if length > stop - i or length > end - o:
                return False
            copy_literals(q, o, writable, p, i, readable, length)
            i += length
            o += length
            continue
        if kind == 1:
            if not _fixed(s):
                return False
        elif kind == 2:
            i = _dynamic(p, i, stop, hold, bits, s)
            if i < 0:
                return False
            # The header ends within a byte: `_dynamic` stores how many of its bits are unused.
            hold = 0
            bits = s[_STARTS]
            if bits > 0:
                byte = p[i - 1]
                hold = byte >> (8 - bits)
        else:
            return False
        while True:
            if cython.compiled and stop - i >= 8:
                # Refill every time: a branch on whether bits are missing would be mispredicted.
                hold |= word(p + i) << bits
                i += (63 - bits) >> 3
                bits |= 56
            elif bits < 48:
                while bits <= 56 and i < stop:
                    byte = p[i]
                    hold |= byte << bits
                    bits += 8
                    i += 1
            entry = s[_LITERALS + (hold & 1023)]
            if entry == 0:
                entry = _long_code(s, _LITERAL_COUNTS, _LITERAL_SYMBOLS, hold)
            hold >>= entry & 63
            extra = entry & 63
            if extra == 0 or extra > bits:
                return False
            bits -= extra
            symbol = entry >> 6
            if symbol < 256:
                if o >= end:
                    return False
                q[o] = symbol
                o += 1
                continue
            if symbol == 256:
                break
            symbol -= 257
            if symbol < 8:
                length = 3 + symbol
            elif symbol == 28:
                length = 258
            elif symbol > 28:
                return False
            else:
                extra = (symbol >> 2) - 1
                if extra > bits:
                    return False
                length = 3 + ((4 + (symbol & 3)) << extra) + (hold & ((1 << extra) - 1))
                hold >>= extra
                bits -= extra
            entry = s[_DISTANCES + (hold & 255)]
            if entry == 0:
                entry = _long_code(s, _DISTANCE_COUNTS, _DISTANCE_SYMBOLS, hold)
            hold >>= entry & 63
            extra = entry & 63
            if extra == 0 or extra > bits:
                return False
            bits -= extra
            symbol = entry >> 6
            if symbol < 4:
                offset = symbol + 1
            elif symbol > 29:
                return False
            else:
                extra = (symbol >> 1) - 1
                if extra > bits:
                    return False
                offset = 1 + ((2 + (symbol & 1)) << extra) + (hold & ((1 << extra) - 1))
                hold >>= extra
                bits -= extra
            if offset > o - begin or length > end - o:
                return False
            copy_match(q, o, writable, offset, length)
            o += length
    i -= bits >> 3
    if o != end or stop - i != 4:
        return False
    byte = p[i]
    return _adler32(q, begin, end) == ((byte << 24) | (p[i + 1] << 16) | (p[i + 2] << 8) | p[i + 3])


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.bint)
def _fixed(s: cython.pointer[cython.int]):
    """Build the tables of a block with fixed codes."""
    k: cython.int
    for k in range(288):
        s[_LENGTHS + k] = 8 if k < 144 else 9 if k < 256 else 7 if k < 280 else 8
    k = _note_coded(s, 288)
    if _construct(s, 0, k, 0, _LITERAL_BITS, _LITERALS, _LITERAL_COUNTS, _LITERAL_SYMBOLS) != 0:
        return False
    # Two of the 32 codes are never used. The first 30 symbols are already listed: all 288 are.
    for k in range(30):
        s[_LENGTHS + k] = 5
    return (
        _construct(s, 0, 30, 0, _DISTANCE_BITS, _DISTANCES, _DISTANCE_COUNTS, _DISTANCE_SYMBOLS)
        >= 0
    )


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.Py_ssize_t)
def _note_coded(s: cython.pointer[cython.int], n: cython.int):
    """List the symbols below `n` whose code length is not 0; return their number."""
    k: cython.int
    coded: cython.int = 0
    for k in range(n):
        s[_CODED + coded] = k
        coded += s[_LENGTHS + k] != 0
    return coded


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.Py_ssize_t)
def _dynamic(
    p: cython.pointer[cython.const[cython.uchar]],
    i: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    hold: cython.ulonglong,
    bits: cython.int,
    s: cython.pointer[cython.int],
):
    """Build the tables of a block with dynamic codes; return the end of its header, or −1.

    The number of unused bits in the byte before that position is stored at `_STARTS`.
    """
    byte: cython.ulonglong
    literals: cython.int
    distances: cython.int
    codes: cython.int
    entry: cython.int
    symbol: cython.int
    repeated: cython.int
    coded: cython.int = 0
    split: cython.int
    k: cython.int
    n: cython.int
    if bits < 14:
        return -1
    literals = 257 + (hold & 31)
    distances = 1 + ((hold >> 5) & 31)
    codes = 4 + ((hold >> 10) & 15)
    hold >>= 14
    bits -= 14
    if literals > 286 or distances > 30:
        return -1
    for k in range(19):
        s[_LENGTHS + k] = 0
    for k in range(codes):
        if bits < 3:
            while bits <= 56 and i < stop:
                byte = p[i]
                hold |= byte << bits
                bits += 8
                i += 1
            if bits < 3:
                return -1
        if k < 3:
            n = 16 + k
        elif k == 3:
            n = 0
        elif k & 1 == 0:
            n = 6 + (k >> 1)
        else:
            n = 7 - ((k - 5) >> 1)
        s[_LENGTHS + n] = hold & 7
        hold >>= 3
        bits -= 3
    n = _note_coded(s, 19)
    if _construct(s, 0, n, 0, 7, _LITERALS, _LITERAL_COUNTS, _LITERAL_SYMBOLS) != 0:
        return -1
    k = 0
    while k < literals + distances:
        if bits < 16:
            while bits <= 56 and i < stop:
                byte = p[i]
                hold |= byte << bits
                bits += 8
                i += 1
        entry = s[_LITERALS + (hold & 127)]
        hold >>= entry & 63
        n = entry & 63
        if n == 0 or n > bits:
            return -1
        bits -= n
        symbol = entry >> 6
        if symbol < 16:
            s[_LENGTHS + k] = symbol
            s[_CODED + coded] = k
            coded += symbol != 0
            k += 1
            continue
        repeated = 0
        if symbol == 16:
            if k == 0 or bits < 2:
                return -1
            repeated = s[_LENGTHS + k - 1]
            n = 3 + (hold & 3)
            hold >>= 2
            bits -= 2
        elif symbol == 17:
            if bits < 3:
                return -1
            n = 3 + (hold & 7)
            hold >>= 3
            bits -= 3
        else:
            if bits < 7:
                return -1
            n = 11 + (hold & 127)
            hold >>= 7
            bits -= 7
        if n > literals + distances - k:
            return -1
        while n > 0:
            s[_LENGTHS + k] = repeated
            s[_CODED + coded] = k
            coded += repeated != 0
            k += 1
            n -= 1
    if s[_LENGTHS + 256] == 0:
        return -1
    split = coded
    while split > 0 and s[_CODED + split - 1] >= literals:
        split -= 1
    if (
        _construct(s, 0, split, 0, _LITERAL_BITS, _LITERALS, _LITERAL_COUNTS, _LITERAL_SYMBOLS) != 0
        or _construct(
            s,
            split,
            coded,
            literals,
            _DISTANCE_BITS,
            _DISTANCES,
            _DISTANCE_COUNTS,
            _DISTANCE_SYMBOLS,
        )
        != 0
    ):
        return -1
    i -= bits >> 3
    s[_STARTS] = bits & 7
    return i


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.longlong)
def _construct(
    s: cython.pointer[cython.int],
    begin: cython.int,
    end: cython.int,
    first: cython.int,
    root: cython.int,
    table: cython.int,
    counts: cython.int,
    symbols: cython.int,
):
    """Build the tables for the symbols listed from `_CODED + begin` to `_CODED + end` (exclusive).

    The symbols are the listed numbers minus `first`. Returns the number of unused 15-bit codes,
    negative if there are too many codes.
    """
    k: cython.int
    m: cython.int
    length: cython.int
    left: cython.int = 1
    index: cython.int = 0
    code: cython.int = 0
    step: cython.int
    size: cython.int
    for k in range(16):
        s[counts + k] = 0
    for m in range(begin, end):
        s[counts + s[_LENGTHS + s[_CODED + m]]] += 1
    s[_STARTS + 1] = 0
    for length in range(1, 16):
        left = 2 * left - s[counts + length]
        if left < 0:
            return left
        if length < 15:
            s[_STARTS + length + 1] = s[_STARTS + length] + s[counts + length]
    for m in range(begin, end):
        k = s[_CODED + m]
        length = s[_LENGTHS + k]
        s[symbols + s[_STARTS + length]] = k - first
        s[_STARTS + length] += 1
    # Codes are stored highest bit first, so they are counted in reversed bit order. The entry of a
    # short code is copied to every index that ends in its bits.
    s[table] = 0
    for length in range(1, root + 1):
        size = 1 << (length - 1)
        if cython.compiled:
            memcpy(s + table + size, s + table, size * 4)
        else:
            s[table + size : table + 2 * size] = s[table : table + size]
        for _ in range(s[counts + length]):
            s[table + code] = s[symbols + index] << 6 | length
            index += 1
            step = size
            while code & step != 0:
                step >>= 1
            code = (code & (step - 1)) + step if step != 0 else 0
    return left


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.longlong)
def _long_code(
    s: cython.pointer[cython.int],
    counts: cython.int,
    symbols: cython.int,
    hold: cython.ulonglong,
):
    """Decode the code at the start of the next bits; return its table entry, 0 if none."""
    code: cython.int = 0
    first: cython.int = 0
    index: cython.int = 0
    length: cython.int
    for length in range(1, 16):
        code |= hold & 1
        hold >>= 1
        if code - s[counts + length] < first:
            return s[symbols + index + code - first] << 6 | length
        index += s[counts + length]
        first = (first + s[counts + length]) << 1
        code <<= 1
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.ulonglong)
def _adler32(q: cython.pointer[cython.uchar], i: cython.Py_ssize_t, stop: cython.Py_ssize_t):
    """Return the checksum that ends a finished stream."""
    a: cython.ulonglong = 1
    b: cython.ulonglong = 0
    end: cython.Py_ssize_t
    while i < stop:
        # The sums of 5552 bytes fit in 32 bits.
        end = min(stop, i + 5552)
        while i < end:
            a += q[i]
            b += a
            i += 1
        a %= 65521
        b %= 65521
    return b << 16 | a
