# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True, freethreading_compatible=True
"""Avro's binary encoding (1.12), resolved from a writer's to a reader's schema; see `_arena_py`.

This module reads one payload, with all cases and errors. `_avro_py` reads most payloads in groups,
and calls it for the others, and for values that only need to be skipped. Such a call goes through a
table of functions, so `_skip_each` and `_find_items` skip several values. The C declarations of
this file are in `_avro_values_c.pxd`.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from arrow_io.core import _no_cython as cython

if cython.compiled:
    from cython.cimports.arrow_io.core._bits import copy_blocks, word
    from cython.cimports.arrow_io.payloads import _tables as tables
    from cython.cimports.arrow_io.payloads._arena_c import Arena
    from cython.cimports.arrow_io.payloads._avro_values_c import take_long
else:
    from arrow_io.payloads import tables
    from arrow_io.payloads._arena_py import Arena

_MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_MASK32 = cython.declare(cython.longlong, 0xFFFFFFFF)
_MAX_EXACT = cython.declare(cython.longlong, 1 << 53)


@cython.cclass
class ValueReader(Arena):
    """A reader of single payloads, which the program resolves to the reader's schema."""

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_payload(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
        self.empty_items = 0
        return self._read_value(0, start, stop, 0)

    # ------------------------------------------------------------------------
    # Numbers: each function sets `number` and returns the position after it

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_long(self, i: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
        if cython.compiled:
            end: cython.Py_ssize_t = take_long(
                self.p, i, stop, self.size, cython.address(self.number)
            )
            if end >= 0:
                return end
        return self._read_long_slowly(i, stop)

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_long_slowly(self, i: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
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
                self.number = _unzigzag(value)
                return i
            shift += 7
        return self._fail(
            tables.ENDS_EARLY if i >= stop and shift < 63 else tables.BAD_VARINT, tables.ABSENT, i
        )

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_small(self, i: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read a number, fastest if it is in `[0, 64)`, as most counts are."""
        if i < stop and self.p[i] & 0x81 == 0:
            self.number = self.p[i] >> 1
            return i + 1
        return self._read_long(i, stop)

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_length(self, i: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read a length, and check that so many bytes follow."""
        i = self._read_small(i, stop)
        if i >= 0 and (self.number < 0 or self.number > stop - i):
            return self._fail(tables.BAD_LENGTH, tables.ABSENT, i)
        return i

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_choice(
        self,
        at: cython.Py_ssize_t,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        code: cython.longlong,
    ) -> cython.Py_ssize_t:
        """Read the number of a branch or symbol of an op; `code` is the error if it is invalid."""
        node: cython.longlong = self.ops[at + tables.NODE]
        start: cython.Py_ssize_t = i
        i = self._read_small(i, stop)
        if i < 0:
            return self._set_error_node(node)
        if self.number < 0 or self.number >= self.ops[at + tables.B]:
            return self._fail(code, node, start)
        return i

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_block(
        self, node: cython.longlong, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Read the number of items of a block of an array or map; 0 after the last block."""
        count: cython.longlong
        i = self._read_small(i, stop)
        if i < 0:
            return self._set_error_node(node)
        count = self.number
        if count < 0:
            # The block's length in bytes follows, for readers that skip blocks.
            i = self._read_long(i, stop)
            if i < 0 or count < -_MASK32:
                return self._fail(
                    tables.BAD_LENGTH if i >= 0 else self.code, node, self.code_offset
                )
            self.number = -count
        return i

    # ------------------------------------------------------------------------
    # Values that are appended to a node

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_value(
        self,
        op: cython.longlong,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.Py_ssize_t:
        """Append the value at `i`; return the position after it, or −1."""
        at: cython.Py_ssize_t = op * tables.OP_WIDTH
        opcode: cython.longlong = self.ops[at + tables.OPCODE]
        node: cython.longlong
        start: cython.Py_ssize_t
        while opcode == tables.AVRO_UNION:
            i = self._read_choice(at, i, stop, tables.BAD_BRANCH)
            if i < 0:
                return -1
            # Continue with the op of the branch, which may be AVRO_NULL: it reads no bytes.
            at = self.links[self.ops[at + tables.A] + self.number] * tables.OP_WIDTH
            opcode = self.ops[at + tables.OPCODE]
        node = self.ops[at + tables.NODE]
        if opcode == tables.AVRO_STRING or opcode == tables.AVRO_BYTES:
            i = self._read_length(i, stop)
            if i < 0:
                return self._set_error_node(node)
            return self._put_run(node, i, self.number, opcode == tables.AVRO_STRING)
        if opcode == tables.AVRO_NULL:
            return i if self._null(node) else -1
        if opcode == tables.AVRO_INTEGER:
            start = i
            i = self._read_long(i, stop)
            if i < 0:
                return self._set_error_node(node)
            return i if self._put_integer(node, self.ops[at + tables.A], start) else -1
        if opcode == tables.AVRO_RECORD:
            return self._read_record(at, i, stop, depth)
        if opcode == tables.AVRO_DOUBLE:
            if stop - i < 8:
                return self._fail(tables.ENDS_EARLY, node, i)
            return i + 8 if self._put_eight(node, i) else -1
        if opcode == tables.AVRO_ARRAY or opcode == tables.AVRO_MAP:
            return self._read_items(at, i, stop, depth)
        if opcode == tables.AVRO_SKIP:
            return self._skip_fields(at, i, stop, depth)
        return self._read_rare_value(at, i, stop, depth)

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_rare_value(
        self,
        at: cython.Py_ssize_t,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.Py_ssize_t:
        opcode: cython.longlong = self.ops[at + tables.OPCODE]
        node: cython.longlong = self.ops[at + tables.NODE]
        a: cython.longlong = self.ops[at + tables.A]
        start: cython.Py_ssize_t = i
        k: cython.longlong
        value: cython.double
        is_put: cython.bint
        if opcode == tables.AVRO_BOOLEAN:
            if i >= stop:
                return self._fail(tables.ENDS_EARLY, node, i)
            if self.p[i] > 1:
                return self._fail(tables.BAD_BOOLEAN, node, i)
            return i + 1 if self._put(node, self.p[i]) else -1
        if opcode == tables.AVRO_ENUM:
            i = self._read_choice(at, i, stop, tables.BAD_SYMBOL)
            if i < 0:
                return -1
            k = self.links[a + self.number]
            if k == tables.ABSENT:
                return self._fail(tables.NO_MATCH, node, start)
            return i if self._put_constant(node, k) else -1
        if opcode == tables.AVRO_FLOAT:
            if stop - i < 4:
                return self._fail(tables.ENDS_EARLY, node, i)
            k = self._little_endian(i, 4)
            if self.nodes[node * tables.NODE_WIDTH + tables.STORAGE] == tables.INT32:
                is_put = self._put(node, k)
            else:
                # The scratch bytes reinterpret the four bytes as a float.
                self.a32[0] = k
                is_put = self._put_double(node, self.f32[0], i)
            return i + 4 if is_put else -1
        if opcode == tables.AVRO_FIXED or opcode == tables.AVRO_UUID:
            if a > stop - i:
                return self._fail(tables.ENDS_EARLY, node, i)
            if opcode == tables.AVRO_FIXED:
                is_put = self._put_bytes(node, self.p, i, a)
            else:
                is_put = self._put_uuid(node, i)
            return i + a if is_put else -1
        if opcode == tables.AVRO_DECIMAL:
            if a == tables.ABSENT:
                i = self._read_length(i, stop)
                if i < 0:
                    return self._set_error_node(node)
                a = self.number
            elif a > stop - i:
                return self._fail(tables.ENDS_EARLY, node, i)
            return i + a if self._put_decimal(node, i, a, self.ops[at + tables.B]) else -1
        if opcode == tables.AVRO_INTEGER_TO_FLOAT:
            i = self._read_long(i, stop)
            if i < 0:
                return self._set_error_node(node)
            k = self.number
            if (k > _MAX_EXACT or k < -_MAX_EXACT) and (
                self.nodes[node * tables.NODE_WIDTH + tables.STORAGE] == tables.INT32
            ):
                # Round to odd: an inexact double is then never halfway between two floats, so the
                # value is rounded only once, to the float.
                k = ((k >> 11) | ((k & 0x7FF) != 0)) * 2048
            value = k
            return i if self._put_double(node, value, start) else -1
        if opcode == tables.AVRO_MEMBER:
            i = self._read_value(a, i, stop, depth)
            return i if i >= 0 and self._close_struct(node) else -1
        if opcode == tables.AVRO_RAW:
            i = self._skip(a, i, stop, depth)
            return i if i >= 0 and self._put_bytes(node, self.p, start, i - start) else -1
        return self._fail(a, node, i)

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_record(
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
            i = self._read_value(self.links[link], i, stop, depth + 1)
            if i < 0:
                return -1
            link += 1
        link = self.ops[at + tables.C]
        last = link + 2 * self.ops[at + tables.D]
        if link < last and not self._put_defaults(link, last):
            return -1
        if self.nodes[node * tables.NODE_WIDTH + tables.STORAGE] == tables.BYTE:
            return i if self._put(node, 1) else -1
        # Every field was written or has a default.
        return i if self._take_slot_inline(node) >= 0 else -1

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_defaults(self, link: cython.Py_ssize_t, last: cython.Py_ssize_t) -> cython.bint:
        """Append the fields that the writer lacks: their encoded defaults are constants."""
        data: cython.pointer[cython.const[cython.uchar]] = self.p
        size: cython.Py_ssize_t = self.size
        position: cython.longlong
        i: cython.Py_ssize_t = 0
        self.p = self.constants
        self.size = 0
        while link < last and i >= 0:
            position = self.links[link + 1]
            i = self._read_value(
                self.links[link],
                position >> 32,
                (position >> 32) + (position & _MASK32),
                0,
            )
            link += 2
        self.p = data
        self.size = size
        return i >= 0

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_items(
        self,
        at: cython.Py_ssize_t,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.Py_ssize_t:
        """Read an array or map: blocks, each a count and its items, up to an empty block."""
        node: cython.longlong = self.ops[at + tables.NODE]
        is_map: cython.bint = self.ops[at + tables.OPCODE] == tables.AVRO_MAP
        item: cython.longlong = self.ops[at + tables.A]
        remaining: cython.longlong
        start: cython.Py_ssize_t
        if depth >= tables.MAX_DEPTH:
            return self._fail(tables.TOO_DEEP, node, i)
        while True:
            i = self._read_block(node, i, stop)
            if i < 0:
                return -1
            remaining = self.number
            if remaining == 0:
                return i if self._put_list(node) else -1
            while remaining > 0:
                start = i
                if is_map:
                    i = self._read_length(i, stop)
                    if i < 0:
                        return self._set_error_node(node)
                    i = self._put_run(node + 2, i, self.number, True)
                    if i < 0:
                        return -1
                i = self._read_value(item, i, stop, depth + 1)
                if i < 0:
                    return -1
                if is_map and self._take_slot_inline(node + 1) < 0:
                    return -1
                if i == start and not self._count_empty_item(node, i):
                    return -1
                remaining -= 1

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _count_empty_item(self, node: cython.longlong, i: cython.Py_ssize_t) -> cython.bint:
        """Count an item without bytes; return False if there are too many."""
        self.empty_items += 1
        if self.empty_items > tables.MAX_EMPTY_ITEMS:
            self._fail(tables.TOO_MANY_ITEMS, node, i)
            return False
        return True

    # ------------------------------------------------------------------------
    # Values outside the projection

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _skip(
        self,
        op: cython.longlong,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.Py_ssize_t:
        at: cython.Py_ssize_t = op * tables.OP_WIDTH
        opcode: cython.longlong = self.ops[at + tables.OPCODE]
        while opcode == tables.AVRO_UNION:
            i = self._read_choice(at, i, stop, tables.BAD_BRANCH)
            if i < 0:
                return -1
            at = self.links[self.ops[at + tables.A] + self.number] * tables.OP_WIDTH
            opcode = self.ops[at + tables.OPCODE]
        if opcode == tables.AVRO_BYTES or opcode == tables.AVRO_STRING:
            i = self._read_length(i, stop)
            return i + self.number if i >= 0 else -1
        if opcode == tables.AVRO_INTEGER:
            return i + 1 if i < stop and self.p[i] < 0x80 else self._read_long(i, stop)
        if opcode == tables.AVRO_FIXED:
            return self._skip_bytes(self.ops[at + tables.A], i, stop)
        if opcode == tables.AVRO_DOUBLE:
            return self._skip_bytes(8, i, stop)
        if opcode == tables.AVRO_RECORD:
            if depth >= tables.MAX_DEPTH:
                return self._fail(tables.TOO_DEEP, tables.ABSENT, i)
            return self._skip_fields(at, i, stop, depth + 1)
        if opcode == tables.AVRO_ARRAY or opcode == tables.AVRO_MAP:
            return self._skip_items(at, i, stop, depth)
        if opcode == tables.AVRO_BOOLEAN:
            if i >= stop:
                return self._fail(tables.ENDS_EARLY, tables.ABSENT, i)
            return i + 1 if self.p[i] <= 1 else self._fail(tables.BAD_BOOLEAN, tables.ABSENT, i)
        if opcode == tables.AVRO_ENUM:
            return self._read_choice(at, i, stop, tables.BAD_SYMBOL)
        if opcode == tables.AVRO_NULL:
            return i
        return self._skip_rare_value(at, i, stop, depth)

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _skip_bytes(
        self, size: cython.longlong, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        if size > stop - i:
            return self._fail(tables.ENDS_EARLY, tables.ABSENT, i)
        return i + size

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _skip_rare_value(
        self,
        at: cython.Py_ssize_t,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.Py_ssize_t:
        """Skip a value that only ops of values have, to find what follows it."""
        opcode: cython.longlong = self.ops[at + tables.OPCODE]
        a: cython.longlong = self.ops[at + tables.A]
        if opcode == tables.AVRO_FLOAT:
            return self._skip_bytes(4, i, stop)
        if opcode == tables.AVRO_UUID or (opcode == tables.AVRO_DECIMAL and a != tables.ABSENT):
            return self._skip_bytes(a, i, stop)
        if opcode == tables.AVRO_DECIMAL:
            i = self._read_length(i, stop)
            return i + self.number if i >= 0 else -1
        if opcode == tables.AVRO_INTEGER_TO_FLOAT:
            return self._read_long(i, stop)
        if opcode == tables.AVRO_MEMBER or opcode == tables.AVRO_RAW:
            return self._skip(a, i, stop, depth)
        if opcode == tables.AVRO_SKIP:
            return self._skip_fields(at, i, stop, depth)
        return self._fail(a, tables.ABSENT, i)

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _skip_fields(
        self,
        at: cython.Py_ssize_t,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.Py_ssize_t:
        link: cython.Py_ssize_t = self.ops[at + tables.A]
        last: cython.Py_ssize_t = link + self.ops[at + tables.B]
        while link < last and i >= 0:
            i = self._skip(self.links[link], i, stop, depth)
            link += 1
        return i

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _skip_items(
        self,
        at: cython.Py_ssize_t,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.Py_ssize_t:
        """Skip an array or map; its blocks are checked as if they were read."""
        is_map: cython.bint = self.ops[at + tables.OPCODE] == tables.AVRO_MAP
        item: cython.longlong = self.ops[at + tables.A]
        remaining: cython.longlong
        start: cython.Py_ssize_t
        if depth >= tables.MAX_DEPTH:
            return self._fail(tables.TOO_DEEP, tables.ABSENT, i)
        while True:
            i = self._read_block(tables.ABSENT, i, stop)
            if i < 0:
                return -1
            remaining = self.number
            if remaining == 0:
                return i
            while remaining > 0:
                start = i
                if is_map:
                    i = self._read_length(i, stop)
                    if i < 0:
                        return -1
                    i += self.number
                i = self._skip(item, i, stop, depth + 1)
                if i < 0:
                    return -1
                if i == start and not self._count_empty_item(tables.ABSENT, i):
                    return -1
                remaining -= 1

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _skip_each(
        self,
        op: cython.longlong,
        positions: cython.pointer[cython.Py_ssize_t],
        count: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.bint:
        """Move each position to the end of its value; return False if one is invalid."""
        at: cython.Py_ssize_t = op * tables.OP_WIDTH
        is_fields: cython.bint = self.ops[at + tables.OPCODE] == tables.AVRO_SKIP
        n: cython.Py_ssize_t
        for n in range(count):
            if is_fields:
                positions[n] = self._skip_fields(at, positions[n], stop, depth)
            else:
                positions[n] = self._skip(op, positions[n], stop, depth)
            if positions[n] < 0:
                return False
        return True

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _find_items(
        self,
        at: cython.Py_ssize_t,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        depth: cython.int,
        positions: cython.pointer[cython.Py_ssize_t],
        count: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Store the positions of the next items of an array or map, and skip them.

        Returns −1 also if an item has no bytes.
        """
        is_map: cython.bint = self.ops[at + tables.OPCODE] == tables.AVRO_MAP
        item: cython.longlong = self.ops[at + tables.A]
        n: cython.Py_ssize_t
        for n in range(count):
            positions[n] = i
            if is_map:
                i = self._read_length(i, stop)
                if i < 0:
                    return -1
                i += self.number
            i = self._skip(item, i, stop, depth + 1)
            if i <= positions[n]:
                return -1
        return i

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
    def _put_eight(self, node: cython.Py_ssize_t, i: cython.Py_ssize_t) -> cython.bint:
        """Append the eight bytes at `i` unchanged."""
        k: cython.longlong = self._take_slot_inline(node)
        if k < 0:
            return False
        k += self.nodes[node * tables.NODE_WIDTH + tables.DATA]
        if cython.compiled:
            self.a64[k] = word(self.p + i)
        else:
            self.a64[k] = self._little_endian(i, 8)
        return True

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_run(
        self,
        node: cython.Py_ssize_t,
        i: cython.Py_ssize_t,
        length: cython.longlong,
        is_text: cython.bint,
    ) -> cython.Py_ssize_t:
        """Append bytes as `_put_text` or `_put_bytes` does; return their end, or −1."""
        is_put: cython.bint
        if cython.compiled:
            at: cython.Py_ssize_t = node * tables.NODE_WIDTH
            k: cython.longlong = self.counts[node]
            used: cython.longlong = self.used[node]
            high: cython.uint = 0
            if (
                k < self.nodes[at + tables.CAPACITY]
                and copy_blocks(
                    self.a8 + self.nodes[at + tables.BYTES] + used,
                    self.nodes[at + tables.BYTES_CAPACITY] - used,
                    self.p + i,
                    self.size - i,
                    length,
                    cython.address(high),
                )
                and (high == 0 or not is_text or self._is_text(i, i + length))
            ):
                used += length
                self.counts[node] = k + 1
                self.used[node] = used
                self.a32[self.nodes[at + tables.DATA] + k + 1] = used
                return i + length
        if is_text:
            is_put = self._put_text(node, i, length)
        else:
            is_put = self._put_bytes(node, self.p, i, length)
        return i + length if is_put else -1

    # ------------------------------------------------------------------------
    # Rare values

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_uuid(self, node: cython.Py_ssize_t, start: cython.Py_ssize_t) -> cython.bint:
        """Append sixteen bytes as the text of a UUID."""
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

    @cython.final
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
        """Append a big-endian number of any length, whose magnitude is below the bound."""
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
def _unzigzag(value: cython.ulonglong) -> cython.longlong:
    half: cython.longlong = value >> 1
    return half ^ -(value & 1)


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
