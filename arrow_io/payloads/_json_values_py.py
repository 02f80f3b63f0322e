# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True, freethreading_compatible=True
"""JSON text (RFC 8259), one payload at a time; see `_arena_py`.

This module has all cases and errors. `_json_py` reads most payloads in groups, and calls it for the
others, and for unusual values. The C declarations of this file are in `_json_values_c.pxd`.
"""

from __future__ import annotations

from decimal import Decimal
from math import inf, nextafter

try:
    import cython
except ImportError:
    from arrow_io.core import _no_cython as cython

if cython.compiled:
    from cython.cimports.arrow_io.core._bits import lowest, plain, same
    from cython.cimports.arrow_io.payloads import _tables as tables
    from cython.cimports.arrow_io.payloads._arena_c import Arena
    from cython.cimports.arrow_io.payloads._json_blocks import (
        begins,
        choose_blocks,
        find_delimiters,
        find_name,
        find_near_name,
        first_slot,
        is_word,
        leap,
        skip_number,
        skip_space,
        take_base64,
        take_boolean,
        take_decimal,
        take_fraction,
        take_long,
        take_symbol,
        take_text,
        take_whole,
        unescape,
    )
    from cython.cimports.libc.string import memset
else:
    from arrow_io.payloads import tables
    from arrow_io.payloads._arena_py import Arena
    from arrow_io.payloads.json_names import first_slot

_MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_MAX63 = cython.declare(cython.ulonglong, 0x7FFFFFFFFFFFFFFF)
_MASK32 = cython.declare(cython.longlong, 0xFFFFFFFF)
_TEN18 = cython.declare(cython.ulonglong, 10**18)
_MAX_EXACT = cython.declare(cython.ulonglong, 1 << 53)
_NAN = cython.declare(cython.ulonglong, 0x4E614E)
_INFINITY = cython.declare(cython.ulonglong, 0x496E66696E697479)
_NULL_WORD = cython.declare(cython.ulonglong, 0x6E756C6C)
_TRUE_WORD = cython.declare(cython.ulonglong, 0x74727565)
_FALSE_WORD = cython.declare(cython.ulonglong, 0x66616C7365)
# A wrong hint counts as much as this number of records.
_MISS = cython.declare(cython.longlong, 4)
_LOW32 = cython.declare(cython.ulonglong, 0xFFFFFFFF)

if cython.compiled:
    choose_blocks(64)


def choose_vectors(width: cython.int) -> int:
    """Choose the width of vectors of bytes, 16, 32 or 64; return the width in use.

    It is less if the processor lacks wider ones, and 0 in Python.
    """
    return choose_blocks(width) if cython.compiled else 0


@cython.cclass
class ValueReader(Arena):
    """A reader of single payloads."""

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_payload(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
        start = _skip_space(self.p, start, stop)
        if start < stop and not _starts_value(self.p[start]):
            return self._fail(tables.BAD_JSON, tables.ABSENT, start)
        start = self._json(0, start, stop)
        return start if start < 0 else _skip_space(self.p, start, stop)

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _json(
        self, op: cython.longlong, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Append the value whose first character is at `i`; return the position after it."""
        at: cython.Py_ssize_t = op * tables.OP_WIDTH
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        opcode: cython.longlong = self.ops[at + tables.OPCODE]
        end: cython.Py_ssize_t
        if i >= stop:
            return self._fail(tables.ENDS_EARLY, node, i)
        if opcode == tables.JSON_STRING:
            if self.p[i] == 0x22:
                return self._json_string(node, i + 1, stop)
        elif opcode == tables.JSON_INTEGER:
            end = self._json_digits(i, stop)
            if end >= 0:
                return end if self._put_integer(node, self.ops[at + tables.A], i) else -1
        elif opcode == tables.JSON_FLOAT:
            end = self._json_point(i, stop)
            if end >= 0:
                return end if self._put_number(node, self.value, i, end) else -1
        elif opcode == tables.JSON_RECORD and self.p[i] == 0x7B:
            return self._json_record(at, i + 1, stop)
        elif opcode == tables.JSON_BOOLEAN:
            end = self._json_boolean(node, i, stop)
            if end >= 0:
                return end
        return self._json_other(at, i, stop)

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_boolean(
        self, node: cython.Py_ssize_t, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Append a boolean without branches on its value, which are hard to predict; else −1."""
        at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        k: cython.longlong = self.counts[node]
        is_true: cython.int
        if cython.compiled and stop - i >= 5 and k < self.nodes[at + tables.CAPACITY]:
            is_true = take_boolean(self.p + i)
            if is_true >= 0:
                self.counts[node] = k + 1
                self.a8[self.nodes[at + tables.DATA] + k] = is_true
                return i + 5 - is_true
        return -1

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_other(
        self, at: cython.Py_ssize_t, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Append a value that `_json` does not handle, or fail if it has the wrong type."""
        opcode: cython.longlong = self.ops[at + tables.OPCODE]
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        c: cython.int = self.p[i]
        value_start: cython.Py_ssize_t = i
        if c == 0x6E:
            if not _is_word(self.p, i, stop, _NULL_WORD, 4):
                return self._fail(tables.BAD_JSON, node, i)
            return i + 4 if self._null(node) else -1
        if opcode == tables.JSON_STRING:
            return self._fail(tables.WRONG_TOKEN, node, i)
        if opcode == tables.JSON_INTEGER:
            if c != 0x2D and not (0x30 <= c <= 0x39):
                return self._fail(tables.WRONG_TOKEN, node, i)
            i = self._json_number(node, value_start, stop)
            if i < 0 or not self._json_whole(node, value_start):
                return -1
            return (
                i
                if self._put_scaled(node, self.ops[at + tables.A], self.number, value_start)
                else -1
            )
        if opcode == tables.JSON_RECORD:
            if c != 0x7B:
                return self._fail(tables.WRONG_TOKEN, node, i)
            return self._json_record(at, i + 1, stop)
        if opcode == tables.JSON_FLOAT:
            return self._json_double(node, i, stop)
        if opcode == tables.JSON_BOOLEAN:
            if _is_word(self.p, i, stop, _TRUE_WORD, 4):
                return i + 4 if self._put(node, 1) else -1
            if _is_word(self.p, i, stop, _FALSE_WORD, 5):
                return i + 5 if self._put(node, 0) else -1
            return self._fail(tables.WRONG_TOKEN, node, i)
        if opcode == tables.JSON_ARRAY:
            if c != 0x5B:
                return self._fail(tables.WRONG_TOKEN, node, i)
            return self._json_array(at, i + 1, stop)
        if opcode == tables.JSON_MAP:
            if c != 0x7B:
                return self._fail(tables.WRONG_TOKEN, node, i)
            return self._json_map(at, i + 1, stop)
        if opcode == tables.JSON_UNION:
            return self._json_union(at, i, stop)
        if opcode == tables.JSON_DECIMAL:
            return self._json_decimal(at, i, stop)
        if opcode == tables.JSON_RAW:
            i = self._json_skip(i, stop)
            return i if i >= 0 and self._put_text(node, value_start, i - value_start) else -1
        if c != 0x22:
            return self._fail(tables.WRONG_TOKEN, node, i)
        if opcode == tables.JSON_BASE64:
            return self._json_base64(at, i + 1, stop)
        return self._json_enum(at, i + 1, stop)

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_string(
        self, node: cython.Py_ssize_t, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Append the string that starts at `i`, after its quote."""
        at: cython.Py_ssize_t
        k: cython.longlong
        used: cython.longlong
        end: cython.Py_ssize_t
        high: cython.uint = 0
        if cython.compiled:
            at = node * tables.NODE_WIDTH
            k = self.counts[node]
            used = self.used[node]
            if k < self.nodes[at + tables.CAPACITY]:
                end = take_text(
                    self.p,
                    i,
                    stop,
                    self.size,
                    self.a8 + self.nodes[at + tables.BYTES] + used,
                    self.nodes[at + tables.BYTES_CAPACITY] - used,
                    cython.address(high),
                )
                if end >= 0 and (high == 0 or self._is_text(i, end)):
                    self._put_copied(node, k, used + end - i)
                    return end + 1
        return self._json_string_slowly(node, i, stop)

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_string_slowly(
        self, node: cython.Py_ssize_t, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        start: cython.Py_ssize_t = i
        at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        k: cython.longlong = self.counts[node]
        used: cython.longlong = self.used[node]
        length: cython.longlong = 0
        high: cython.uint = 0
        if cython.compiled and k < self.nodes[at + tables.CAPACITY]:
            i = unescape(
                self.p,
                start,
                stop,
                self.size,
                self.a8 + self.nodes[at + tables.BYTES] + used,
                self.nodes[at + tables.BYTES_CAPACITY] - used,
                cython.address(length),
                cython.address(high),
            )
            if i >= 0 and (high == 0 or self._is_text(start, i)):
                self._put_copied(node, k, used + length)
                return i + 1
        i = _json_plain(self.p, start, stop)
        if i < stop and self.p[i] == 0x22:
            return i + 1 if self._put_text(node, start, i - start) else -1
        i = self._json_text(node, start, stop)
        return i if i >= 0 and self._close_bytes(node) else -1

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_text(
        self, node: cython.Py_ssize_t, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Add the string that starts at `i`, after its quote, to the bytes of a node."""
        start: cython.Py_ssize_t = i
        while True:
            i = _json_plain(self.p, i, stop)
            if i >= stop:
                return self._fail(tables.ENDS_EARLY, node, i)
            if self.p[i] < 0x20:
                return self._fail(tables.BAD_JSON, node, i)
            if not self._is_text(start, i):
                return self._fail(tables.BAD_UTF8, node, start)
            if not self._add_bytes(node, self.p, start, i - start):
                return -1
            if self.p[i] == 0x22:
                return i + 1
            i = self._json_escape(node, i + 1, stop)
            if i < 0:
                return -1
            start = i

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_escape(
        self, node: cython.Py_ssize_t, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Add the character of an escape, whose backslash precedes `i`."""
        c: cython.longlong
        low: cython.longlong
        is_put: cython.bint
        if i >= stop:
            return self._fail(tables.ENDS_EARLY, node, i)
        c = _unescape(self.p[i])
        if c < 0:
            return self._fail(tables.BAD_ESCAPE, node, i)
        if c > 0:
            return i + 1 if self._add_byte(node, c) else -1
        c = _utf16_unit(self.p, i + 1, stop)
        if c < 0:
            return self._fail(tables.BAD_ESCAPE, node, i)
        i += 5
        if 0xD800 <= c < 0xDC00 and stop - i >= 6 and self.p[i] == 0x5C and self.p[i + 1] == 0x75:
            low = _utf16_unit(self.p, i + 2, stop)
            if 0xDC00 <= low < 0xE000:
                c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00)
                i += 6
        if 0xD800 <= c < 0xE000:
            return self._fail(tables.BAD_ESCAPE, node, i)
        if c < 0x80:
            return i if self._add_byte(node, c) else -1
        if c < 0x800:
            is_put = self._add_byte(node, 0xC0 | (c >> 6))
        else:
            if c < 0x10000:
                is_put = self._add_byte(node, 0xE0 | (c >> 12))
            else:
                is_put = self._add_byte(node, 0xF0 | (c >> 18)) and self._add_byte(
                    node, 0x80 | ((c >> 12) & 0x3F)
                )
            is_put = is_put and self._add_byte(node, 0x80 | ((c >> 6) & 0x3F))
        is_put = is_put and self._add_byte(node, 0x80 | (c & 0x3F))
        return i if is_put else -1

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_digits(self, i: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read an integer of up to 18 digits into `number`, or of 19; −1 for other numbers."""
        if cython.compiled:
            end: cython.Py_ssize_t = take_whole(
                self.p, i, stop, self.size, cython.address(self.number)
            )
            if end >= 0:
                return end
        return self._json_digits_slowly(i, stop)

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_digits_slowly(
        self, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        value: cython.longlong = 0
        negative: cython.bint = p[i] == 0x2D
        first: cython.Py_ssize_t = i + 1 if negative else i
        safe: cython.Py_ssize_t = first + 18 if stop - first > 18 else stop
        end: cython.Py_ssize_t
        if cython.compiled:
            end = take_long(p, i, stop, self.size, cython.address(self.number))
            if end >= 0:
                return end
        i = first
        while i < safe and 0x30 <= p[i] <= 0x39:
            value = value * 10 + (p[i] - 0x30)
            i += 1
        if i == first or i >= stop or (p[first] == 0x30 and i > first + 1):
            return -1
        if p[i] != 0x2C and p[i] != 0x7D and p[i] != 0x5D:
            return -1
        self.number = -value if negative else value
        return i

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_point(self, i: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read a number of up to 15 digits and a point into `value`; −1 for other numbers."""
        if cython.compiled:
            end: cython.Py_ssize_t = take_fraction(
                self.p, i, stop, self.size, self.powers, cython.address(self.value)
            )
            if end >= 0:
                return end
        return self._json_point_slowly(i, stop)

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_point_slowly(
        self, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        value: cython.longlong = 0
        negative: cython.bint = p[i] == 0x2D
        first: cython.Py_ssize_t = i + 1 if negative else i
        safe: cython.Py_ssize_t = first + 16 if stop - first > 16 else stop
        point: cython.Py_ssize_t
        i = first
        while i < safe and 0x30 <= p[i] <= 0x39:
            value = value * 10 + (p[i] - 0x30)
            i += 1
        if i == first or (p[first] == 0x30 and i > first + 1):
            return -1
        point = i
        if i < safe and p[i] == 0x2E:
            i += 1
            while i < safe and 0x30 <= p[i] <= 0x39:
                value = value * 10 + (p[i] - 0x30)
                i += 1
            point = i - point - 1
            if point == 0:
                return -1
        else:
            point = 0
        if i >= stop or (p[i] != 0x2C and p[i] != 0x7D and p[i] != 0x5D):
            return -1
        # Both operands are exact, so the only rounding gives the nearest number.
        self.value = value
        self.value /= self.powers[point]
        if negative:
            self.value = -self.value
        return i

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_number(
        self, node: cython.longlong, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Read a number: `mantissa` × 10^`exponent`, and its sign in `negative`.

        `is_cut` is set if digits after the 19th were dropped that are not 0. `number` is 1 if there
        is a point or an exponent, otherwise 0.
        """
        c: cython.int
        value: cython.ulonglong = 0
        exponent: cython.longlong = 0
        power: cython.longlong = 0
        is_small: cython.bint
        first: cython.Py_ssize_t
        self.is_cut = False
        self.number = 0
        self.negative = self.p[i] == 0x2D
        if self.negative:
            i += 1
        first = i
        while i < stop:
            c = self.p[i]
            if not (0x30 <= c <= 0x39):
                break
            if value < _TEN18:
                value = value * 10 + (c - 0x30)
            else:
                exponent += 1
                if c != 0x30:
                    self.is_cut = True
            i += 1
        if i == first or (self.p[first] == 0x30 and i > first + 1):
            return self._fail(tables.BAD_JSON, node, i)
        if i < stop and self.p[i] == 0x2E:
            self.number = 1
            i += 1
            first = i
            while i < stop:
                c = self.p[i]
                if not (0x30 <= c <= 0x39):
                    break
                if value < _TEN18:
                    value = value * 10 + (c - 0x30)
                    exponent -= 1
                elif c != 0x30:
                    self.is_cut = True
                i += 1
            if i == first:
                return self._fail(tables.BAD_JSON, node, i)
        if i < stop and (self.p[i] == 0x65 or self.p[i] == 0x45):
            self.number = 1
            i += 1
            is_small = i < stop and self.p[i] == 0x2D
            if i < stop and (self.p[i] == 0x2D or self.p[i] == 0x2B):
                i += 1
            first = i
            while i < stop:
                c = self.p[i]
                if not (0x30 <= c <= 0x39):
                    break
                if power < 1_000_000_000:
                    power = power * 10 + (c - 0x30)
                i += 1
            if i == first:
                return self._fail(tables.BAD_JSON, node, i)
            exponent += -power if is_small else power
        self.mantissa = value
        self.exponent = exponent
        return i

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_whole(self, node: cython.longlong, offset: cython.Py_ssize_t) -> cython.bint:
        """Set `number` to the number that was read, if it is an integer of 64 bits."""
        value: cython.ulonglong = self.mantissa
        exponent: cython.longlong = self.exponent
        if value == 0 and not self.is_cut:
            exponent = 0
        while exponent < 0 and value % 10 == 0 and not self.is_cut:
            value //= 10
            exponent += 1
        if exponent < 0 or (exponent == 0 and self.is_cut):
            self._fail(tables.TOO_PRECISE, node, offset)
            return False
        while exponent > 0 and value <= _TEN18:
            value *= 10
            exponent -= 1
        if exponent > 0 or self.is_cut or value > _MAX63 + (1 if self.negative else 0):
            self._fail(tables.OUT_OF_RANGE, node, offset)
            return False
        if self.negative and value > 0:
            # Negate the number minus one, which fits into 63 bits.
            value -= 1
            self.number = value
            self.number = -self.number - 1
        else:
            self.number = value
        return True

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_double(
        self, node: cython.Py_ssize_t, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Append a number, NaN or an infinity; the latter may be quoted, as some writers do."""
        start: cython.Py_ssize_t = i
        value: cython.double
        c: cython.int = self.p[i]
        if c != 0x2D and not (0x30 <= c <= 0x39):
            return self._json_not_a_number(node, i, stop)
        if c == 0x2D and i + 1 < stop and self.p[i + 1] == 0x49:
            return self._json_not_a_number(node, i, stop)
        i = self._json_number(node, i, stop)
        if i < 0:
            return -1
        if not self.is_cut and self.mantissa <= _MAX_EXACT and -22 <= self.exponent <= 22:
            # Both operands are exact, so the only rounding gives the nearest number.
            value = self.mantissa
            if self.exponent < 0:
                value /= self.powers[-self.exponent]
            else:
                value *= self.powers[self.exponent]
            if self.negative:
                value = -value
        else:
            with cython.gil:
                value = float(bytes(self.p[start:i]))
            if value - value != 0:
                return self._fail(tables.OUT_OF_RANGE, node, start)
        return i if self._put_rounded(node, value, start, i) else -1

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_rounded(
        self,
        node: cython.Py_ssize_t,
        value: cython.double,
        start: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
    ) -> cython.bint:
        """Append the double nearest to the number at `[start, stop)`, as `_put_double` does."""
        if self._is_tie(node, value) and not self._is_number(node, value, start, stop):
            with cython.gil:
                value = _nudge_tie(value, bytes(self.p[start:stop]))
        return self._put_double(node, value, start)

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_number(
        self,
        node: cython.Py_ssize_t,
        tie: cython.double,
        start: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
    ) -> cython.bint:
        """Return whether the number at `[start, stop)` is a tie of floats; False if unclear."""
        mantissa: cython.double
        self._json_number(node, start, stop)
        if self.is_cut or self.mantissa > _MAX_EXACT or not (-12 <= self.exponent <= 0):
            return False
        # A tie has 25 bits and 5¹² has 28 bits, so the product is exact.
        mantissa = self.mantissa
        return tie * self.powers[-self.exponent] == (-mantissa if self.negative else mantissa)

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_not_a_number(
        self, node: cython.Py_ssize_t, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        start: cython.Py_ssize_t = i
        quoted: cython.bint = self.p[i] == 0x22
        value: cython.double
        if quoted:
            i += 1
        value = 1
        if i < stop and self.p[i] == 0x2D:
            value = -1
            i += 1
        if value > 0 and _is_word(self.p, i, stop, _NAN, 3):
            value = (self.powers[22] * 1e300) * 0
            i += 3
        elif _is_word(self.p, i, stop, _INFINITY, 8):
            value *= self.powers[22] * 1e300
            i += 8
        else:
            return self._fail(tables.WRONG_TOKEN, node, start)
        if quoted:
            if i >= stop or self.p[i] != 0x22:
                return self._fail(tables.WRONG_TOKEN, node, start)
            i += 1
        return i if self._put_double(node, value, start) else -1

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_decimal(
        self, at: cython.Py_ssize_t, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Append a decimal, if it has at most the column's digits before and after the point."""
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        start: cython.Py_ssize_t = i
        end: cython.Py_ssize_t
        zeros: cython.longlong
        total: cython.longlong
        digits: cython.longlong = 0
        high: cython.ulonglong = 0
        low: cython.ulonglong = 0
        c: cython.int = self.p[i]
        if cython.compiled:
            end = take_decimal(
                self.p,
                i,
                stop,
                self.size,
                self.ops[at + tables.A],
                self.ops[at + tables.B],
                cython.address(self.number),
            )
            if end >= 0:
                high = _MASK64 if self.number < 0 else 0
                low = self.number
                return end if self._put_int128(node, high, low) else -1
        if c == 0x22 and self.ops[at + tables.C] == 1:
            return self._json_base64_decimal(at, i + 1, stop)
        if c != 0x2D and not (0x30 <= c <= 0x39):
            return self._fail(tables.WRONG_TOKEN, node, i)
        end = self._json_number(node, i, stop)
        if end < 0:
            return -1
        total = self._json_significant(i, end)
        # Number of zeros to append to reach the column's scale; `exponent` is that of the first 19
        # digits.
        zeros = self.exponent + self.ops[at + tables.B] - (total - 19 if total > 19 else 0)
        if total == 0:
            zeros = 0
        if total + zeros > self.ops[at + tables.A]:
            return self._fail(tables.OUT_OF_RANGE, node, i)
        while digits < total:
            c = self.p[i]
            i += 1
            if c == 0x2D or c == 0x2E or (digits == 0 and c == 0x30):
                continue
            digits += 1
            if digits <= total + zeros:
                high, low = _times_ten(high, low, c - 0x30)
            elif c != 0x30:
                return self._fail(tables.TOO_PRECISE, node, start)
        while zeros > 0:
            high, low = _times_ten(high, low, 0)
            zeros -= 1
        if self.negative:
            low = (_MASK64 - low + 1) & _MASK64
            high = (_MASK64 - high + (1 if low == 0 else 0)) & _MASK64
        return end if self._put_int128(node, high, low) else -1

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_base64_decimal(
        self, at: cython.Py_ssize_t, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Append a decimal from the Base64 string that starts at `i`, after its quote.

        Its bytes are a big-endian number in two's complement. An escape is an error here, so that
        the payload is retried without escapes.
        """
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        start: cython.Py_ssize_t = i
        end: cython.Py_ssize_t
        digits: cython.longlong = self.ops[at + tables.A]
        bits: cython.longlong = 0
        pending: cython.longlong = 0
        digit: cython.longlong
        fill: cython.ulonglong = 0
        byte: cython.ulonglong
        high: cython.ulonglong = 0
        low: cython.ulonglong = 0
        size_high: cython.ulonglong
        size_low: cython.ulonglong
        bound_high: cython.ulonglong = 0
        bound_low: cython.ulonglong = 1
        is_empty: cython.bint = True
        while i < stop and self.p[i] != 0x22 and self.p[i] != 0x3D:
            digit = self.constants[self.p[i]]
            if digit > 63:
                return self._fail(tables.BAD_BASE64, node, start)
            pending = (pending << 6 | digit) & 0xFFF
            bits += 6
            i += 1
            if bits < 8:
                continue
            bits -= 8
            byte = (pending >> bits) & 0xFF
            if is_empty:
                is_empty = False
                fill = _MASK64 if byte >= 0x80 else 0
                high = low = fill
            if high >> 55 != fill >> 55:
                return self._fail(tables.OUT_OF_RANGE, node, start)
            high = ((high << 8) | (low >> 56)) & _MASK64
            low = ((low << 8) | byte) & _MASK64
        end = i
        while i < stop and self.p[i] == 0x3D:
            i += 1
        if (
            i >= stop
            or self.p[i] != 0x22
            or is_empty
            or bits == 6
            or i - end > 2
            or (i > end and (i - start) % 4 != 0)
        ):
            return self._fail(tables.BAD_BASE64, node, start)
        size_high = high
        size_low = low
        if fill != 0:
            size_low = (_MASK64 - low + 1) & _MASK64
            size_high = (_MASK64 - high + (1 if size_low == 0 else 0)) & _MASK64
        while digits > 0:
            bound_high, bound_low = _times_ten(bound_high, bound_low, 0)
            digits -= 1
        if size_high > bound_high or (size_high == bound_high and size_low >= bound_low):
            return self._fail(tables.OUT_OF_RANGE, node, start)
        return i + 1 if self._put_int128(node, high, low) else -1

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_significant(self, i: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.longlong:
        """Return the number of digits from the first one that is not 0 to the last."""
        total: cython.longlong = 0
        c: cython.int
        while i < stop and self.p[i] != 0x65 and self.p[i] != 0x45:
            c = self.p[i]
            if 0x30 <= c <= 0x39 and (total > 0 or c != 0x30):
                total += 1
            i += 1
        return total

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_base64(
        self, at: cython.Py_ssize_t, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Append bytes from the Base64 string that starts at `i`, after its quote."""
        node: cython.Py_ssize_t
        node_at: cython.Py_ssize_t
        end: cython.Py_ssize_t
        k: cython.longlong
        used: cython.longlong
        length: cython.longlong = 0
        if cython.compiled:
            node = self.ops[at + tables.NODE]
            node_at = node * tables.NODE_WIDTH
            k = self.counts[node]
            used = self.used[node]
            if k < self.nodes[node_at + tables.CAPACITY]:
                end = take_base64(
                    self.p,
                    i,
                    stop,
                    self.size,
                    self.a8 + self.nodes[node_at + tables.BYTES] + used,
                    self.nodes[node_at + tables.BYTES_CAPACITY] - used,
                    cython.address(length),
                )
                # Require the room that the slow way requires, so that both report `FULL` for the
                # same string.
                if (
                    end >= 0
                    and end - i <= self.nodes[node_at + tables.BYTES_CAPACITY] - used
                    and self.ops[at + tables.A] in (tables.ABSENT, length)
                ):
                    self._put_copied(node, k, used + length)
                    return end + 1
        return self._json_base64_slowly(at, i, stop)

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_base64_slowly(
        self, at: cython.Py_ssize_t, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Append bytes from any Base64 string; with escapes, add it as text and decode in place."""
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        node_at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        base: cython.Py_ssize_t = self.nodes[node_at + tables.BYTES]
        first: cython.Py_ssize_t = base + self.used[node]
        value_start: cython.Py_ssize_t = i
        target: cython.Py_ssize_t = first
        last: cython.Py_ssize_t = _json_plain(self.p, i, stop)
        source: cython.pointer[cython.const[cython.uchar]] = self.p
        digits: cython.longlong = 0
        k: cython.Py_ssize_t
        is_plain: cython.bint = (
            last < stop
            and self.p[last] == 0x22
            and last - i <= self.nodes[node_at + tables.BYTES_CAPACITY] - self.used[node]
        )
        if is_plain:
            i = last + 1
            k = value_start
        else:
            i = self._json_text(node, i, stop)
            if i < 0:
                return -1
            if self._is_overfull(node):
                # Stop here: an error after the text must not be reported before one in it.
                return self._fail(tables.FULL, node, value_start)
            source = self.a8
            k = first
            last = base + self.used[node]
        if (last - k) % 4 == 0 and last > k:
            # Remove padding without branches, which would be unpredictable.
            last -= source[last - 1] == 0x3D
            last -= (source[last - 1] == 0x3D) & ((last - k) % 4 == 3)
        if (last - k) % 4 == 1:
            digits = -1
        while digits >= 0 and last - k >= 4:
            digits = self._base64_digits(source, k, 4)
            self.a8[target] = (digits >> 16) & 0xFF
            self.a8[target + 1] = (digits >> 8) & 0xFF
            self.a8[target + 2] = digits & 0xFF
            target += 3
            k += 4
        if digits >= 0 and last > k:
            digits = self._base64_digits(source, k, last - k)
            self.a8[target] = (digits >> 16) & 0xFF
            self.a8[target + 1] = (digits >> 8) & 0xFF
            target += last - k - 1
        if digits < 0:
            if is_plain and not self._is_text(value_start, i - 1):
                return self._fail(tables.BAD_UTF8, node, value_start)
            return self._fail(tables.BAD_BASE64, node, value_start)
        self.used[node] = target - base
        if self.ops[at + tables.A] != tables.ABSENT and self.ops[at + tables.A] != target - first:
            return self._fail(tables.BAD_LENGTH, node, value_start)
        return i if self._close_bytes(node) else -1

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _base64_digits(
        self,
        source: cython.pointer[cython.const[cython.uchar]],
        k: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
    ) -> cython.longlong:
        """Return the 24 bits of up to four digits, missing ones as 0; −1 if a digit is invalid."""
        first: cython.longlong = self.constants[source[k]]
        second: cython.longlong = self.constants[source[k + 1]]
        third: cython.longlong = self.constants[source[k + 2]] if count > 2 else 0
        fourth: cython.longlong = self.constants[source[k + 3]] if count > 3 else 0
        if first | second | third | fourth > 63:
            return -1
        return first << 18 | second << 12 | third << 6 | fourth

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_enum(
        self, at: cython.Py_ssize_t, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        link: cython.Py_ssize_t = self.ops[at + tables.A]
        last: cython.Py_ssize_t = link + self.ops[at + tables.B]
        start: cython.Py_ssize_t = (
            self.nodes[node * tables.NODE_WIDTH + tables.BYTES] + self.used[node]
        )
        used: cython.longlong = self.used[node]
        value_start: cython.Py_ssize_t = i
        k: cython.Py_ssize_t
        if cython.compiled:
            k = self._json_symbol(node, link, last, i, stop)
            if k >= 0:
                return k
        k = _json_plain(self.p, i, stop)
        if k < stop and self.p[k] == 0x22:
            while link < last:
                if self._is_constant(self.p, i, k - i, self.links[link]):
                    return k + 1 if self._put_constant(node, self.links[link]) else -1
                link += 1
            link = self.ops[at + tables.A]
        i = self._json_text(node, i, stop)
        if i < 0:
            return -1
        if self._is_overfull(node):
            return self._fail(tables.FULL, node, value_start)
        while link < last:
            if self._is_constant(self.a8, start, self.used[node] - used, self.links[link]):
                return i if self._close_bytes(node) else -1
            link += 1
        if self.ops[at + tables.C] == tables.ABSENT:
            return self._fail(tables.BAD_SYMBOL, node, value_start)
        self.used[node] = used
        return i if self._put_constant(node, self.ops[at + tables.C]) else -1

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_symbol(
        self,
        node: cython.Py_ssize_t,
        link: cython.Py_ssize_t,
        last: cython.Py_ssize_t,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Append one of up to 16 symbols of up to 15 bytes without escapes; −1 for others."""
        at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        k: cython.longlong = self.counts[node]
        used: cython.longlong = self.used[node]
        end: cython.Py_ssize_t
        if k >= self.nodes[at + tables.CAPACITY]:
            return -1
        end = take_symbol(
            self.p,
            i,
            stop,
            self.size,
            self.constants,
            self.links + link,
            last - link,
            self.a8 + self.nodes[at + tables.BYTES] + used,
            self.nodes[at + tables.BYTES_CAPACITY] - used,
        )
        if end < 0:
            return -1
        self._put_copied(node, k, used + end - i)
        return end + 1

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_overfull(self, node: cython.Py_ssize_t) -> cython.bint:
        """Return whether some of a node's bytes did not fit."""
        return self.used[node] > self.nodes[node * tables.NODE_WIDTH + tables.BYTES_CAPACITY]

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_constant(
        self,
        source: cython.pointer[cython.const[cython.uchar]],
        start: cython.Py_ssize_t,
        length: cython.longlong,
        position: cython.longlong,
    ) -> cython.bint:
        at: cython.Py_ssize_t = position >> 32
        if position & _MASK32 != length:
            return False
        return _is_same(source, start, self.constants, at, length)

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_record(
        self, at: cython.Py_ssize_t, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Append the fields of an object, after its brace; skip those outside the projection.

        Two hints remember which fields followed a field; a correct hint saves a search. If many are
        wrong, as with names in random order, the next records are read without hints.
        """
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        fields: cython.Py_ssize_t = self.ops[at + tables.A]
        fields_stop: cython.Py_ssize_t = fields + 2 * self.ops[at + tables.B]
        table: cython.Py_ssize_t = self.ops[at + tables.D]
        slot: cython.Py_ssize_t
        misses: cython.Py_ssize_t = self.ops[at + tables.C]
        hints: cython.Py_ssize_t = misses + 3
        hint: cython.Py_ssize_t = misses + 1
        is_guessed: cython.bint = self.hints[misses] < tables.MAX_MISSES
        rows: cython.longlong = self.counts[node]
        # Local copies: the C compiler cannot know that writes to the arena leave them unchanged.
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        links: cython.pointer[cython.const[cython.longlong]] = self.links
        ops: cython.pointer[cython.const[cython.longlong]] = self.ops
        start: cython.Py_ssize_t
        field: cython.Py_ssize_t
        child: cython.Py_ssize_t
        found: cython.longlong
        op: cython.longlong
        if self.hints[misses] > 0:
            self.hints[misses] -= 1
        i = _skip_space(p, i, stop)
        if i < stop and p[i] == 0x7D:
            return i + 1 if self._end_record(node) else -1
        while True:
            start = i
            i = -1
            if is_guessed:
                field = fields + self.hints[hint]
                i = self._skip_name(field, fields_stop, start, stop)
                if i < 0 and field < fields_stop:
                    field = fields + self.hints[hint + 1]
                    i = self._skip_name(field, fields_stop, start, stop)
            if i >= 0:
                op = links[field + 1]
                i = _skip_space(p, i, stop)
            else:
                found = -1
                if cython.compiled:
                    found = find_name(p, start, self.size, self.constants, links + table)
                if found >= 0 and found & _MASK32 <= stop - start:
                    slot = table + (found >> 32)
                    i = start + (found & _MASK32)
                else:
                    i = self._json_name(node, start, stop)
                    if i < 0:
                        return -1
                    slot = table + self._json_slot(table, start, i)
                field = fields + links[slot + tables.SLOT_FIELD]
                op = links[slot + tables.SLOT_OP]
                if (
                    is_guessed
                    and field - fields != self.hints[hint]
                    and field - fields != self.hints[hint + 1]
                ):
                    self.hints[misses] += _MISS
                    self.hints[hint + 1] = self.hints[hint]
                    self.hints[hint] = field - fields
                i = self._json_colon(node, i, stop)
                if i < 0:
                    return -1
            hint = hints + field - fields
            if op >= 0:
                child = ops[op * tables.OP_WIDTH + tables.NODE]
                if self.counts[child] != rows:
                    if self.counts[child] > rows:
                        return self._fail(tables.NOT_CANONICAL, node, start + 1)
                    self._fill_nulls(child, rows)
                i = self._json(op, i, stop)
            else:
                i = self._json_other_field(i, stop, field < fields_stop)
            if i < 0:
                return -1
            if i >= stop or p[i] != 0x2C:
                i = self._json_next(i, stop, 0x7D)
                if i < 0:
                    return -1
                if p[i - 1] == 0x7D:
                    return i if self._end_record(node) else -1
                i -= 1
            i = _skip_space(p, i + 1, stop)

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _end_record(self, node: cython.Py_ssize_t) -> cython.bint:
        """Append a record; its fields that are missing become null later."""
        k: cython.longlong = self._take_slot_inline(node)
        if k >= 0 and self.nodes[node * tables.NODE_WIDTH + tables.STORAGE] == tables.BYTE:
            # A record without fields is a boolean.
            self.a8[self.nodes[node * tables.NODE_WIDTH + tables.DATA] + k] = 1
        return k >= 0

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _fill_nulls(self, node: cython.Py_ssize_t, stop: cython.longlong) -> cython.void:
        """Append nulls to a node until it has `stop` values; nodes below a struct follow later."""
        at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        storage: cython.longlong = self.nodes[at + tables.STORAGE]
        data: cython.Py_ssize_t = self.nodes[at + tables.DATA]
        first: cython.longlong = self.counts[node]
        count: cython.longlong
        k: cython.longlong
        end: cython.longlong = 0
        # A local copy, as in `_json_record`.
        a32: cython.pointer[cython.int] = self.a32
        self.counts[node] = stop
        if stop > self.nodes[at + tables.CAPACITY]:
            self._note_full(node)
            stop = self.nodes[at + tables.CAPACITY]
        if storage == tables.VARIABLE:
            end = self.used[node]
        elif storage == tables.LIST:
            end = self.counts[node + 1]
        count = stop - first
        if count > 0:
            self._clear_bytes(self.nodes[at + tables.VALID] + first, count)
            if storage == tables.VARIABLE or storage == tables.LIST:
                for k in range(data + first + 1, data + stop + 1):
                    a32[k] = end
            elif storage != tables.STRUCT:
                self._clear_bytes((data + first) << storage, count << storage)

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _clear_bytes(self, start: cython.Py_ssize_t, count: cython.Py_ssize_t) -> cython.void:
        if cython.compiled:
            memset(self.a8 + start, 0, count)
        else:
            self.a8[start : start + count] = bytes(count)

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _settle_counts(self) -> cython.void:
        """Append nulls for all missing fields of records, and for all branches not chosen."""
        node: cython.Py_ssize_t
        child: cython.Py_ssize_t
        for node in range(self.node_count):
            if self.nodes[node * tables.NODE_WIDTH + tables.STORAGE] == tables.STRUCT:
                child = node + 1
                while child < self.nodes[node * tables.NODE_WIDTH + tables.STOP]:
                    if self.counts[child] < self.counts[node]:
                        self._fill_nulls(child, self.counts[node])
                    child = self.nodes[child * tables.NODE_WIDTH + tables.STOP]

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _skip_name(
        self,
        field: cython.Py_ssize_t,
        fields_stop: cython.Py_ssize_t,
        start: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Return the position after a field's name and colon if these are at `start`; else −1.

        `field` is the link of the field, `fields_stop` the link after the last field.
        """
        position: cython.longlong
        length: cython.Py_ssize_t
        if field >= fields_stop:
            return -1
        position = self.links[field]
        length = position & _MASK32
        if length > stop - start:
            return -1
        if cython.compiled:
            if not begins(self.p, start, self.size, self.constants + (position >> 32), length):
                return -1
        elif not _is_same(self.p, start, self.constants, position >> 32, length):
            return -1
        return start + length

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_slot(
        self, table: cython.Py_ssize_t, start: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Return the place in a table of the quoted name `[start, stop)`, or of an empty slot."""
        slot: cython.Py_ssize_t
        position: cython.longlong
        if cython.compiled:
            slot = first_slot(self.links + table, self.p + start + 1, stop - start - 2)
        else:
            slot = first_slot(
                self.links[table : table + tables.SLOT_WIDTH], bytes(self.p[start + 1 : stop])
            )
        while True:
            position = self.links[table + slot]
            # The constant includes the colon.
            if position < 0 or (
                position & _MASK32 == stop - start + 1
                and _is_same(self.p, start, self.constants, position >> 32, stop - start)
            ):
                return slot
            slot += tables.SLOT_WIDTH

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_other_field(
        self, i: cython.Py_ssize_t, stop: cython.Py_ssize_t, is_field: cython.bint
    ) -> cython.Py_ssize_t:
        """Skip the value of a field outside the projection."""
        end: cython.Py_ssize_t
        c: cython.int
        if i >= stop:
            return self._json_skip(i, stop)
        c = self.p[i]
        if c == 0x22:
            end = _skip_text(self.p, i + 1, stop)
        elif is_field and (c == 0x7B or c == 0x5B):
            end = _skip_brackets(self.p, i, stop, self.size)
        else:
            if cython.compiled:
                end = skip_number(self.p, i, stop, self.size)
                if end >= 0:
                    return end
            return self._json_skip(i, stop)
        return end if end >= 0 else self._fail(-end, tables.ABSENT, i)

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_name(
        self, node: cython.longlong, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Return the position after a name without escapes, whose quote must be at `i`."""
        if i >= stop or self.p[i] != 0x22:
            return self._fail(tables.BAD_JSON, node, i)
        i = _json_plain(self.p, i + 1, stop)
        if i >= stop:
            return self._fail(tables.ENDS_EARLY, node, i)
        if self.p[i] == 0x5C and not self.is_canonical:
            return self._fail(tables.NOT_CANONICAL, node, i)
        while self.p[i] == 0x5C:
            i = _json_plain(self.p, i + 2, stop)
            if i >= stop:
                return self._fail(tables.ENDS_EARLY, node, i)
        if self.p[i] != 0x22:
            return self._fail(tables.BAD_JSON, node, i)
        return i + 1

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_colon(
        self, node: cython.longlong, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        if i >= stop or self.p[i] != 0x3A:
            i = _skip_space(self.p, i, stop)
            if i >= stop or self.p[i] != 0x3A:
                return self._fail(tables.BAD_JSON, node, i)
        return _skip_space(self.p, i + 1, stop)

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_next(
        self, i: cython.Py_ssize_t, stop: cython.Py_ssize_t, close: cython.int
    ) -> cython.Py_ssize_t:
        """Return the position after a comma or the closing bracket."""
        if i >= stop or (self.p[i] != 0x2C and self.p[i] != close):
            i = _skip_space(self.p, i, stop)
            if i >= stop:
                return self._fail(tables.ENDS_EARLY, tables.ABSENT, i)
            if self.p[i] != 0x2C and self.p[i] != close:
                return self._fail(tables.BAD_JSON, tables.ABSENT, i)
        return i + 1

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_array(
        self, at: cython.Py_ssize_t, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        i = _skip_space(self.p, i, stop)
        if i < stop and self.p[i] == 0x5D:
            return i + 1 if self._put_list(node) else -1
        while True:
            i = self._json(self.ops[at + tables.A], i, stop)
            if i >= 0:
                i = self._json_next(i, stop, 0x5D)
            if i < 0:
                return -1
            if self.p[i - 1] == 0x5D:
                return i if self._put_list(node) else -1
            i = _skip_space(self.p, i, stop)

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_map(
        self, at: cython.Py_ssize_t, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        i = _skip_space(self.p, i, stop)
        if i < stop and self.p[i] == 0x7D:
            return i + 1 if self._put_list(node) else -1
        while True:
            if i >= stop or self.p[i] != 0x22:
                return self._fail(tables.BAD_JSON, node, i)
            i = self._json_string(node + 2, i + 1, stop)
            if i >= 0:
                i = self._json_colon(node, i, stop)
            if i >= 0:
                i = self._json(self.ops[at + tables.A], i, stop)
            if i < 0 or self._take_slot_inline(node + 1) < 0:
                return -1
            i = self._json_next(i, stop, 0x7D)
            if i < 0:
                return -1
            if self.p[i - 1] == 0x7D:
                return i if self._put_list(node) else -1
            i = _skip_space(self.p, i, stop)

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_union(
        self, at: cython.Py_ssize_t, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Append to the first branch that accepts this kind of token."""
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        c: cython.int = self.p[i]
        kind: cython.longlong = tables.TOKEN_FRACTION
        op: cython.longlong
        child: cython.Py_ssize_t
        if c == 0x22:
            kind = tables.TOKEN_STRING
        elif c == 0x7B:
            kind = tables.TOKEN_OBJECT
        elif c == 0x5B:
            kind = tables.TOKEN_ARRAY
        elif c == 0x74 or c == 0x66:
            kind = tables.TOKEN_BOOLEAN
        elif 0x30 <= c <= 0x39 or (c == 0x2D and not (i + 1 < stop and self.p[i + 1] == 0x49)):
            if self._json_number(node, i, stop) < 0:
                return -1
            if self.number == 0:
                kind = tables.TOKEN_INTEGER
        op = self.links[self.ops[at + tables.A] + kind]
        if op == tables.ABSENT:
            return self._fail(tables.WRONG_TOKEN, node, i)
        child = self.ops[op * tables.OP_WIDTH + tables.NODE]
        if self.counts[child] < self.counts[node]:
            self._fill_nulls(child, self.counts[node])
        i = self._json(op, i, stop)
        return i if i >= 0 and self._take_slot_inline(node) >= 0 else -1

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _skip_object(self, i: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the position after the object at `i`; −1 if it has escapes, or for want of bytes.

        Only quotes and brackets are examined.
        """
        depth: cython.longlong = 1
        inside: cython.longlong = 0
        if cython.compiled:
            i = leap(self.p, i + 1, stop, self.size, cython.address(depth), cython.address(inside))
        return i if depth == 0 else -1

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_skip(self, i: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Skip a value, which must still be valid JSON."""
        end: cython.Py_ssize_t = _skip_value(self.p, i, stop, self.size)
        return end if end >= 0 else self._fail(-end, tables.ABSENT, i)

    # ------------------------------------------------------------------------
    # Objects whose names are in random order: each is read in the order of the schema. Which field
    # is next is then predictable, for the processor too

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _append_sorted(self, position: cython.longlong) -> cython.bint:
        """Append a payload; its records in the order of the schema, if delimiters are found."""
        start: cython.Py_ssize_t = position >> 32
        stop: cython.Py_ssize_t = start + (position & _MASK32)
        places: cython.pointer[cython.longlong] = self.hints
        if position != tables.ABSENT:
            start = _skip_space(self.p, start, stop)
            if (
                start < stop
                and self.p[start] == 0x7B
                and find_delimiters(
                    self.p,
                    start,
                    stop,
                    self.size,
                    places,
                    places + tables.DELIMITERS,
                    tables.DELIMITERS,
                )
            ):
                start = self._sorted_record(0, 0, stop)
                return start >= 0 and _skip_space(self.p, start, stop) == stop
        return self._append(position)

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _sorted_record(
        self, at: cython.Py_ssize_t, delimiter: cython.longlong, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Append the object whose brace is this delimiter; return the position after it, or −1.

        First all names are looked up, and values without a node skipped; then the other values are
        appended. Each value must end at the next delimiter of its depth: this is what makes the
        fields those that `_json_record` would find.
        """
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        fields: cython.Py_ssize_t = self.ops[at + tables.A]
        fields_stop: cython.Py_ssize_t = fields + 2 * self.ops[at + tables.B]
        table: cython.Py_ssize_t = self.ops[at + tables.D]
        rows: cython.longlong = self.counts[node]
        # Local copies, as in `_json_record`.
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        links: cython.pointer[cython.const[cython.longlong]] = self.links
        places: cython.pointer[cython.longlong] = self.hints
        nexts: cython.pointer[cython.longlong] = places + tables.DELIMITERS
        # By field: where its value starts, and the delimiter before its name.
        starts = cython.declare(cython.longlong[64])
        delimiters = cython.declare(cython.longlong[64])
        seen: cython.ulonglong = 0
        field: cython.Py_ssize_t
        slot: cython.Py_ssize_t
        child: cython.Py_ssize_t
        found: cython.longlong
        op: cython.longlong
        i: cython.Py_ssize_t = _skip_space(p, places[delimiter] + 1, stop)
        if i < stop and p[i] == 0x7D:
            return i + 1 if self._end_record(node) else -1
        while True:
            slot = find_near_name(p, i, self.constants, links + table)
            if slot >= 0:
                slot += table
                i = _skip_space(p, i + (links[slot] & _MASK32), stop)
            else:
                found = find_name(p, i, self.size, self.constants, links + table)
                if found < 0:
                    return -1
                slot = table + (found >> 32)
                i = self._json_colon(node, i + (found & _MASK32), stop)
                if i < 0:
                    return -1
            field = links[slot + tables.SLOT_FIELD] >> 1
            if links[slot + tables.SLOT_OP] >= 0:
                if seen >> field & 1:
                    return -1
                seen |= cython.cast(cython.ulonglong, 1) << field
                starts[field] = i
                delimiters[field] = delimiter
                delimiter = nexts[delimiter]
            else:
                i = self._json_other_field(i, stop, fields + 2 * field < fields_stop)
                delimiter = nexts[delimiter]
                if i < 0 or _skip_space(p, i, stop) != places[delimiter]:
                    return -1
            i = places[delimiter]
            if p[i] != 0x2C:
                break
            i = _skip_space(p, i + 1, stop)
        if p[i] != 0x7D:
            return -1
        while seen != 0:
            field = lowest(seen)
            seen &= seen - 1
            op = links[fields + 2 * field + 1]
            child = self.ops[op * tables.OP_WIDTH + tables.NODE]
            if self.counts[child] != rows:
                if self.counts[child] > rows:
                    return -1
                self._fill_nulls(child, rows)
            if not self._sorted_value(op, delimiters[field], starts[field], stop):
                return -1
        return i + 1 if self._end_record(node) else -1

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _sorted_value(
        self,
        op: cython.longlong,
        delimiter: cython.longlong,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
    ) -> cython.bint:
        """Append the value at `i`, which must end at the next delimiter of its depth.

        `delimiter` is the one before the value, or before its name.
        """
        at: cython.Py_ssize_t = op * tables.OP_WIDTH
        opcode: cython.longlong = self.ops[at + tables.OPCODE]
        places: cython.pointer[cython.longlong] = self.hints
        end: cython.longlong = places[places[tables.DELIMITERS + delimiter]]
        if (
            opcode == tables.JSON_RECORD
            and places[delimiter + 1] == i
            and self.p[i] == 0x7B
            and self.ops[at + tables.B] <= tables.MAX_SORTED
        ):
            i = self._sorted_record(at, delimiter + 1, stop)
        elif opcode == tables.JSON_ARRAY and places[delimiter + 1] == i and self.p[i] == 0x5B:
            i = self._sorted_array(at, delimiter + 1, stop)
        else:
            i = self._json(op, i, stop)
        return i == end or (i >= 0 and _skip_space(self.p, i, stop) == end)

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _sorted_array(
        self, at: cython.Py_ssize_t, delimiter: cython.longlong, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Append the array whose bracket is this delimiter; return the position after it, or −1."""
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        places: cython.pointer[cython.longlong] = self.hints
        i: cython.Py_ssize_t = _skip_space(self.p, places[delimiter] + 1, stop)
        if i < stop and self.p[i] == 0x5D:
            return i + 1 if self._put_list(node) else -1
        while True:
            if not self._sorted_value(self.ops[at + tables.A], delimiter, i, stop):
                return -1
            delimiter = places[tables.DELIMITERS + delimiter]
            i = places[delimiter]
            if self.p[i] != 0x2C:
                break
            i = _skip_space(self.p, i + 1, stop)
        return i + 1 if self.p[i] == 0x5D and self._put_list(node) else -1

    # ------------------------------------------------------------------------
    # Nodes, without a call of the arena's methods

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _take_slot_inline(self, node: cython.Py_ssize_t) -> cython.longlong:
        k: cython.longlong = self.counts[node]
        if k >= self.nodes[node * tables.NODE_WIDTH + tables.CAPACITY]:
            return self._count_overflow(node, 1)
        self.counts[node] = k + 1
        return k

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    @cython.returns(cython.void)
    def _put_copied(
        self, node: cython.Py_ssize_t, k: cython.longlong, used: cython.longlong
    ) -> None:
        """Count value `k` of a node, whose bytes were already copied and end at `used`."""
        self.counts[node] = k + 1
        self.used[node] = used
        self.a32[self.nodes[node * tables.NODE_WIDTH + tables.DATA] + k + 1] = used

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_list(self, node: cython.Py_ssize_t) -> cython.bint:
        """Append a list or map of all items since the last one."""
        k: cython.longlong = self._take_slot_inline(node)
        if k < 0:
            return False
        self.a32[self.nodes[node * tables.NODE_WIDTH + tables.DATA] + k + 1] = self.counts[node + 1]
        return True

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_integer(
        self, node: cython.Py_ssize_t, scale: cython.Py_ssize_t, offset: cython.Py_ssize_t
    ) -> cython.bint:
        """Append `number` as `_put_scaled` does."""
        at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        storage: cython.longlong = self.nodes[at + tables.STORAGE]
        value: cython.longlong = self.number
        k: cython.longlong
        if (
            value < self.links[scale + tables.LOW]
            or value > self.links[scale + tables.HIGH]
            or self.links[scale + tables.DIVISOR] != 1
            or (storage != tables.INT64 and storage != tables.INT32)
        ):
            return self._put_scaled(node, scale, value, offset)
        k = self._take_slot_inline(node)
        if k < 0:
            return False
        k += self.nodes[at + tables.DATA]
        value *= self.links[scale + tables.MULTIPLIER]
        if storage == tables.INT64:
            self.a64[k] = value
        else:
            self.a32[k] = value
        return True

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_number(
        self,
        node: cython.Py_ssize_t,
        value: cython.double,
        start: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
    ) -> cython.bint:
        """Append a double as `_put_rounded` does."""
        at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        k: cython.longlong
        if self.nodes[at + tables.STORAGE] != tables.INT64:
            return self._put_rounded(node, value, start, stop)
        k = self._take_slot_inline(node)
        if k < 0:
            return False
        self.f64[self.nodes[at + tables.DATA] + k] = value
        return True


def _nudge_tie(tie: float, text: bytes) -> float:
    """Move a tie between floats to the next double towards the number, unless it is exact."""
    number = Decimal(text.decode())
    exact = Decimal.from_float(tie)  # noqa: FURB164 - a context may forbid `Decimal(tie)`
    if number == exact:
        return tie
    return nextafter(tie, inf if number > exact else -inf)


# ----------------------------------------------------------------------------
# Skipping: each function returns the position after what it skips, or a negated code


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _skip_value(
    p: cython.pointer[cython.const[cython.uchar]],
    i: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    c: cython.int
    end: cython.Py_ssize_t
    depth: cython.int = 0
    # One bit per enclosing array or object: whether it is an object.
    objects: cython.ulonglong = 0
    while True:
        if i >= stop:
            return -tables.ENDS_EARLY
        c = p[i]
        if c == 0x22:
            i = _skip_text(p, i + 1, stop)
        elif c == 0x7B or c == 0x5B:
            if depth >= tables.MAX_DEPTH:
                return -tables.TOO_DEEP
            i = _skip_space(p, i + 1, stop)
            if i < stop and p[i] == c + 2:
                i += 1
            else:
                depth += 1
                objects = (objects << 1) & _MASK64
                if c == 0x7B:
                    objects |= 1
                    i = _skip_key(p, i, stop)
                    if i < 0:
                        return i
                continue
        elif 0x30 <= c <= 0x39 or c == 0x2D:
            end = skip_number(p, i, stop, size) if cython.compiled else -1
            i = end if end >= 0 else _skip_number(p, i, stop)
        else:
            i = _skip_word(p, i, stop)
        if i < 0:
            return i
        while depth > 0:
            if i < stop and p[i] <= 0x20:
                i = _skip_space(p, i, stop)
            if i >= stop:
                return -tables.ENDS_EARLY
            c = p[i]
            i += 1
            if c == 0x2C:
                i = _skip_space(p, i, stop)
                if objects & 1:
                    i = _skip_key(p, i, stop)
                    if i < 0:
                        return i
                break
            if c != (0x7D if objects & 1 else 0x5D):
                return -tables.BAD_JSON
            objects >>= 1
            depth -= 1
        else:
            return i


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _skip_brackets(
    p: cython.pointer[cython.const[cython.uchar]],
    i: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Skip the array or object at `i`, the value of a field outside the projection.

    Only quotes, backslashes and brackets are examined, which is enough to find the end.
    """
    c: cython.int
    depth: cython.longlong = 1
    inside: cython.longlong = 0
    end: cython.Py_ssize_t
    i += 1
    while i < stop:
        if cython.compiled:
            i = leap(p, i, stop, size, cython.address(depth), cython.address(inside))
            if depth == 0:
                return i
        end = i + 16 if stop - i > 16 else stop
        while i < end:
            c = p[i]
            i += 1
            if c == 0x22:
                inside ^= 1
            elif inside:
                i += c == 0x5C
            elif c | 0x20 == 0x7B:
                depth += 1
            elif c | 0x20 == 0x7D:
                depth -= 1
                if depth == 0:
                    return i
    return -tables.ENDS_EARLY


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _skip_space(
    p: cython.pointer[cython.const[cython.uchar]], i: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    c: cython.int
    if cython.compiled:
        return skip_space(p, i, stop)
    while i < stop:
        c = p[i]
        if c > 0x20 or (c != 0x20 and c != 0x0A and c != 0x0D and c != 0x09):
            break
        i += 1
    return i


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _skip_key(
    p: cython.pointer[cython.const[cython.uchar]], i: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Skip a name, its colon and the space around the colon."""
    if i >= stop or p[i] != 0x22:
        return -tables.BAD_JSON
    i = _skip_text(p, i + 1, stop)
    if i < 0:
        return i
    i = _skip_space(p, i, stop)
    if i >= stop or p[i] != 0x3A:
        return -tables.BAD_JSON
    return _skip_space(p, i + 1, stop)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _skip_text(
    p: cython.pointer[cython.const[cython.uchar]], i: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Skip a string whose opening quote precedes `i`."""
    c: cython.longlong
    while True:
        i = _json_plain(p, i, stop)
        if i >= stop:
            return -tables.ENDS_EARLY
        if p[i] == 0x22:
            return i + 1
        if p[i] != 0x5C:
            return -tables.BAD_JSON
        i += 1
        c = _unescape(p[i]) if i < stop else -1
        if c < 0 or (c == 0 and _utf16_unit(p, i + 1, stop) < 0):
            return -tables.BAD_ESCAPE
        i += 1 if c > 0 else 5


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _skip_digits(
    p: cython.pointer[cython.const[cython.uchar]], i: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    while i < stop and 0x30 <= p[i] <= 0x39:
        i += 1
    return i


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _skip_number(
    p: cython.pointer[cython.const[cython.uchar]], i: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Skip a number, or a negative infinity."""
    first: cython.Py_ssize_t
    if p[i] == 0x2D:
        i += 1
        if _is_word(p, i, stop, _INFINITY, 8):
            return i + 8
    first = i
    i = _skip_digits(p, i, stop)
    if i == first or (p[first] == 0x30 and i > first + 1):
        return -tables.BAD_JSON
    if i < stop and p[i] == 0x2E:
        first = i + 1
        i = _skip_digits(p, first, stop)
        if i == first:
            return -tables.BAD_JSON
    if i < stop and (p[i] == 0x65 or p[i] == 0x45):
        i += 1
        if i < stop and (p[i] == 0x2D or p[i] == 0x2B):
            i += 1
        first = i
        i = _skip_digits(p, first, stop)
        if i == first:
            return -tables.BAD_JSON
    return i


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _skip_word(
    p: cython.pointer[cython.const[cython.uchar]], i: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    if _is_word(p, i, stop, _NULL_WORD, 4) or _is_word(p, i, stop, _TRUE_WORD, 4):
        return i + 4
    if _is_word(p, i, stop, _FALSE_WORD, 5):
        return i + 5
    if _is_word(p, i, stop, _NAN, 3):
        return i + 3
    if _is_word(p, i, stop, _INFINITY, 8):
        return i + 8
    return -tables.BAD_JSON


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_word(
    p: cython.pointer[cython.const[cython.uchar]],
    i: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    letters: cython.ulonglong,
    length: cython.int,
) -> cython.bint:
    """Return whether these letters are at `i`; `letters` is their big-endian number."""
    value: cython.ulonglong = 0
    k: cython.Py_ssize_t
    if cython.compiled:
        return is_word(p, i, stop, letters, length)
    if length > stop - i:
        return False
    for k in range(length):
        value = ((value << 8) | p[i + k]) & _MASK64
    return value == letters


# ----------------------------------------------------------------------------
# Characters


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_same(
    p: cython.pointer[cython.const[cython.uchar]],
    i: cython.Py_ssize_t,
    q: cython.pointer[cython.const[cython.uchar]],
    k: cython.Py_ssize_t,
    length: cython.Py_ssize_t,
) -> cython.bint:
    if cython.compiled:
        return same(p + i, q + k, length)
    return p[i : i + length] == q[k : k + length]


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _starts_value(c: cython.int) -> cython.bint:
    """Return whether a character can start a value: quote, bracket, sign, digit, or tfnNI."""
    if c == 0x7B or c == 0x22 or c == 0x5B or c == 0x2D or 0x30 <= c <= 0x39:
        return True
    return c == 0x74 or c == 0x66 or c == 0x6E or c == 0x4E or c == 0x49


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _utf16_unit(
    p: cython.pointer[cython.const[cython.uchar]], i: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> cython.longlong:
    """Return the UTF-16 unit of four hexadecimal digits; −1 if they are not hexadecimal digits."""
    value: cython.longlong = 0
    k: cython.Py_ssize_t
    digit: cython.longlong
    if stop - i < 4:
        return -1
    for k in range(4):
        digit = _hex_value(p[i + k])
        if digit < 0:
            return -1
        value = (value << 4) | digit
    return value


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _json_plain(
    p: cython.pointer[cython.const[cython.uchar]], i: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Return the position of the first quote, backslash or control character, or `stop`."""
    if cython.compiled:
        return plain(p, i, stop)
    while i < stop and p[i] != 0x22 and p[i] != 0x5C and p[i] >= 0x20:
        i += 1
    return i


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _unescape(c: cython.longlong) -> cython.longlong:
    r"""Return the character that a letter after a backslash encodes; 0 for `u`, −1 if invalid."""
    if c == 0x22 or c == 0x5C or c == 0x2F:
        return c
    if c == 0x6E:
        return 0x0A
    if c == 0x75:
        return 0
    if c == 0x74:
        return 0x09
    if c == 0x72:
        return 0x0D
    if c == 0x62:
        return 0x08
    if c == 0x66:
        return 0x0C
    return -1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _hex_value(c: cython.longlong) -> cython.longlong:
    if 0x30 <= c <= 0x39:
        return c - 0x30
    if 0x41 <= c <= 0x46:
        return c - 0x37
    if 0x61 <= c <= 0x66:
        return c - 0x57
    return -1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.ulonglong, cython.ulonglong))
def _times_ten(high: cython.ulonglong, low: cython.ulonglong, digit: cython.ulonglong):
    """Append a decimal digit to a number of 128 bits."""
    right: cython.ulonglong = (low & _LOW32) * 10 + digit
    left: cython.ulonglong = (low >> 32) * 10 + (right >> 32)
    high = (high * 10 + (left >> 32)) & _MASK64
    return high, ((left << 32) | (right & _LOW32)) & _MASK64
