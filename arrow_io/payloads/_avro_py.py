# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True
"""Avro's binary encoding (1.12), written by one schema and read by another; see `_arena_py`."""

from __future__ import annotations

try:
    import cython
except ImportError:
    from arrow_io.core import _no_cython as cython

if cython.compiled:
    from cython.cimports.arrow_io.payloads import _tables as tables
    from cython.cimports.arrow_io.payloads._arena_c import Arena
else:
    from arrow_io.payloads import tables
    from arrow_io.payloads._arena_py import Arena

_MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_MASK32 = cython.declare(cython.longlong, 0xFFFFFFFF)


@cython.final
@cython.cclass
class Shredder(Arena):
    """Appends Avro data, resolved by the program to the schema they are read by."""

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _payload(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
        self.empty_items = 0
        return self._avro(0, start, stop, 0)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _avro_long(self, i: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """A zigzag number of at most ten bytes, left in `number`."""
        value: cython.ulonglong = 0
        byte: cython.ulonglong
        shift: cython.int = 0
        while i < stop and shift < 70:
            byte = self.p[i]
            i += 1
            if shift == 63 and byte > 1:
                break
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.number = value >> 1
                if value & 1:
                    self.number = -self.number - 1
                return i
            shift += 7
        return self._fail(
            tables.ENDS_EARLY if i >= stop and shift < 63 else tables.BAD_VARINT, tables.ABSENT, i
        )

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _avro_length(self, i: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """A length, left in `number`; so many bytes follow."""
        i = self._avro_long(i, stop)
        if i >= 0 and (self.number < 0 or self.number > stop - i):
            return self._fail(tables.BAD_LENGTH, tables.ABSENT, i)
        return i

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _avro(
        self,
        op: cython.longlong,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.Py_ssize_t:
        """Append the value at `i` and give the position behind it, or −1."""
        at: cython.Py_ssize_t = op * tables.OP_WIDTH
        opcode: cython.longlong = self.ops[at + tables.OPCODE]
        node: cython.longlong = self.ops[at + tables.NODE]
        a: cython.longlong = self.ops[at + tables.A]
        before: cython.Py_ssize_t = i
        k: cython.longlong
        done: cython.bint = True
        if opcode == tables.AVRO_UNION:
            i = self._avro_long(i, stop)
            if i < 0:
                return self._blame(node)
            if self.number < 0 or self.number >= self.ops[at + tables.B]:
                return self._fail(tables.BAD_BRANCH, node, before)
            # A branch may be the null that nothing is written for.
            return self._avro(self.links[a + self.number], i, stop, depth)
        if opcode == tables.AVRO_STRING or opcode == tables.AVRO_BYTES:
            i = self._avro_length(i, stop)
            if i < 0:
                return self._blame(node)
            if node >= 0:
                if opcode == tables.AVRO_STRING:
                    done = self._put_text(node, i, self.number)
                else:
                    done = self._put_bytes(node, self.p, i, self.number)
            return i + self.number if done else -1
        if opcode == tables.AVRO_INTEGER:
            i = self._avro_long(i, stop)
            if i < 0:
                return self._blame(node)
            if node >= 0:
                done = self._put_scaled(node, a, self.number, before)
            return i if done else -1
        if opcode == tables.AVRO_RECORD:
            return self._avro_record(at, i, stop, depth)
        if opcode == tables.AVRO_DOUBLE:
            if stop - i < 8:
                return self._fail(tables.ENDS_EARLY, node, i)
            if node >= 0:
                done = self._put(node, self._little_endian(i, 8))
            return i + 8 if done else -1
        if opcode == tables.AVRO_FLOAT:
            if stop - i < 4:
                return self._fail(tables.ENDS_EARLY, node, i)
            if node >= 0:
                k = self._little_endian(i, 4)
                if self.nodes[node * tables.NODE_WIDTH + tables.STORAGE] == tables.INT32:
                    done = self._put(node, k)
                else:
                    # The first bytes of the arena serve to see four bytes as a number.
                    self.a32[0] = k
                    done = self._put_double(node, self.f32[0], i)
            return i + 4 if done else -1
        if opcode == tables.AVRO_BOOLEAN:
            if i >= stop:
                return self._fail(tables.ENDS_EARLY, node, i)
            if self.p[i] > 1:
                return self._fail(tables.BAD_BOOLEAN, node, i)
            if node >= 0:
                done = self._put(node, self.p[i])
            return i + 1 if done else -1
        if opcode == tables.AVRO_NULL:
            if node >= 0:
                done = self._null(node)
            return i if done else -1
        if opcode == tables.AVRO_ENUM:
            i = self._avro_long(i, stop)
            if i < 0:
                return self._blame(node)
            if self.number < 0 or self.number >= self.ops[at + tables.B]:
                return self._fail(tables.BAD_SYMBOL, node, before)
            if node >= 0:
                k = self.links[a + self.number]
                if k == tables.ABSENT:
                    return self._fail(tables.NO_MATCH, node, before)
                done = self._put_constant(node, k)
            return i if done else -1
        if opcode == tables.AVRO_ARRAY or opcode == tables.AVRO_MAP:
            return self._avro_items(at, i, stop, depth)
        return self._avro_rare(at, i, stop, depth)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _avro_rare(
        self,
        at: cython.Py_ssize_t,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.Py_ssize_t:
        opcode: cython.longlong = self.ops[at + tables.OPCODE]
        node: cython.longlong = self.ops[at + tables.NODE]
        a: cython.longlong = self.ops[at + tables.A]
        before: cython.Py_ssize_t = i
        value: cython.double
        done: cython.bint = True
        if opcode == tables.AVRO_FIXED or opcode == tables.AVRO_UUID:
            if a > stop - i:
                return self._fail(tables.ENDS_EARLY, node, i)
            if node >= 0:
                if opcode == tables.AVRO_FIXED:
                    done = self._put_bytes(node, self.p, i, a)
                else:
                    done = self._put_uuid(node, i)
            return i + a if done else -1
        if opcode == tables.AVRO_DECIMAL:
            if a == tables.ABSENT:
                i = self._avro_length(i, stop)
                if i < 0:
                    return self._blame(node)
                a = self.number
            elif a > stop - i:
                return self._fail(tables.ENDS_EARLY, node, i)
            if node >= 0:
                done = self._put_decimal(node, i, a, self.ops[at + tables.B])
            return i + a if done else -1
        if opcode == tables.AVRO_INTEGER_TO_FLOAT:
            i = self._avro_long(i, stop)
            if i < 0:
                return self._blame(node)
            value = self.number
            return i if self._put_double(node, value, before) else -1
        if opcode == tables.AVRO_MEMBER:
            i = self._avro(a, i, stop, depth)
            return i if i >= 0 and self._close_struct(node) else -1
        if opcode == tables.AVRO_RAW:
            i = self._avro(a, i, stop, depth)
            if i >= 0 and node >= 0:
                done = self._put_bytes(node, self.p, before, i - before)
            return i if done else -1
        return self._fail(a, node, i)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _avro_record(
        self,
        at: cython.Py_ssize_t,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.Py_ssize_t:
        node: cython.longlong = self.ops[at + tables.NODE]
        link: cython.Py_ssize_t = self.ops[at + tables.A]
        last: cython.Py_ssize_t = link + self.ops[at + tables.B]
        if depth >= tables.MAX_DEPTH:
            return self._fail(tables.TOO_DEEP, node, i)
        while link < last:
            i = self._avro(self.links[link], i, stop, depth + 1)
            if i < 0:
                return -1
            link += 1
        if node < 0:
            return i
        link = self.ops[at + tables.C]
        last = link + 2 * self.ops[at + tables.D]
        if link < last and not self._avro_defaults(link, last):
            return -1
        return i if self._close_struct(node) else -1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _avro_defaults(self, link: cython.Py_ssize_t, last: cython.Py_ssize_t) -> cython.bint:
        """Fields that the writer did not have: their defaults stand encoded among the constants."""
        data: cython.pointer[cython.const[cython.uchar]] = self.p
        size: cython.Py_ssize_t = self.size
        position: cython.longlong
        i: cython.Py_ssize_t = 0
        self.p = self.constants
        self.size = 0
        while link < last and i >= 0:
            position = self.links[link + 1]
            i = self._avro(
                self.links[link],
                position >> 32,
                (position >> 32) + (position & _MASK32),
                0,
            )
            link += 2
        self.p = data
        self.size = size
        return i >= 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _avro_items(
        self,
        at: cython.Py_ssize_t,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.Py_ssize_t:
        """An array or map: blocks of items, each behind its count, up to one of none."""
        node: cython.longlong = self.ops[at + tables.NODE]
        is_map: cython.bint = self.ops[at + tables.OPCODE] == tables.AVRO_MAP
        item: cython.longlong = self.ops[at + tables.A]
        left: cython.longlong
        before: cython.Py_ssize_t
        if depth >= tables.MAX_DEPTH:
            return self._fail(tables.TOO_DEEP, node, i)
        while True:
            i = self._avro_long(i, stop)
            if i < 0:
                return self._blame(node)
            left = self.number
            if left == 0:
                break
            if left < 0:
                # The block's length in bytes follows, for those who would leap over it.
                i = self._avro_long(i, stop)
                if i < 0 or left < -_MASK32:
                    return self._fail(
                        tables.BAD_LENGTH if i >= 0 else self.code, node, self.code_offset
                    )
                left = -left
            while left > 0:
                before = i
                if is_map:
                    i = self._avro_length(i, stop)
                    if i < 0:
                        return self._blame(node)
                    if node >= 0 and not self._put_text(node + 2, i, self.number):
                        return -1
                    i += self.number
                i = self._avro(item, i, stop, depth + 1)
                if i < 0:
                    return -1
                if is_map and node >= 0 and self._slot(node + 1) < 0:
                    return -1
                if i == before:
                    self.empty_items += 1
                    if self.empty_items > tables.MAX_EMPTY_ITEMS:
                        return self._fail(tables.TOO_MANY_ITEMS, node, i)
                left -= 1
        if node >= 0 and not self._close_list(node):
            return -1
        return i

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_uuid(self, node: cython.Py_ssize_t, start: cython.Py_ssize_t) -> cython.bint:
        """Sixteen bytes as the text of a UUID."""
        i: cython.Py_ssize_t
        byte: cython.longlong
        for i in range(16):
            if i in (4, 6, 8, 10) and not self._add_byte(node, 0x2D):
                return False
            byte = self.p[start + i]
            if not self._add_byte(node, _hex_digit(byte >> 4)):
                return False
            if not self._add_byte(node, _hex_digit(byte & 15)):
                return False
        return self._close_bytes(node)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_decimal(
        self,
        node: cython.Py_ssize_t,
        start: cython.Py_ssize_t,
        length: cython.longlong,
        bound: cython.Py_ssize_t,
    ) -> cython.bint:
        """A big-endian number of any length, below the two halves of a bound."""
        fill: cython.ulonglong
        high: cython.ulonglong
        low: cython.ulonglong
        high_size: cython.ulonglong
        low_size: cython.ulonglong
        most: cython.ulonglong = _unsigned(self.links[bound])
        i: cython.Py_ssize_t
        if length < 1:
            self._fail(tables.BAD_LENGTH, node, start)
            return False
        fill = _MASK64 if self.p[start] >= 0x80 else 0
        high = low = fill
        for i in range(length):
            if high >> 55 != fill >> 55:
                self._fail(tables.OUT_OF_RANGE, node, start)
                return False
            high = ((high << 8) | (low >> 56)) & _MASK64
            low = ((low << 8) | self.p[start + i]) & _MASK64
        high_size = high
        low_size = low
        if fill != 0:
            low_size = (_MASK64 - low + 1) & _MASK64
            high_size = (_MASK64 - high + (1 if low_size == 0 else 0)) & _MASK64
        if high_size > most or (high_size == most and low_size >= _unsigned(self.links[bound + 1])):
            self._fail(tables.OUT_OF_RANGE, node, start)
            return False
        return self._put_int128(node, high, low)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _unsigned(value: cython.longlong) -> cython.ulonglong:
    rest: cython.longlong
    if value < 0:
        rest = -(value + 1)
        return _MASK64 - rest
    return value


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _hex_digit(value: cython.longlong) -> cython.longlong:
    return 0x30 + value if value < 10 else 0x57 + value
