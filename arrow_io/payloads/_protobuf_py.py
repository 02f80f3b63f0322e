# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True
"""Protobuf's wire format, proto2, proto3 and editions; see `_arena_py`.

It takes and refuses what upb does, which is the protobuf library's parser: at most five bytes for
a tag or a length, ten for any other number, whose bits above the 64th do not count; a field of
another wire type than its own is an unknown one; no field is required.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from arrow_io.core import _no_cython as cython

if cython.compiled:
    from cython.cimports.arrow_io.core._bits import copy_blocks, copy_near, half_word, lowest, word
    from cython.cimports.arrow_io.core._prefetch import CACHE_LINE_BYTES, prefetch
    from cython.cimports.arrow_io.payloads import _tables as tables
    from cython.cimports.arrow_io.payloads._arena_c import Arena
    from cython.cimports.arrow_io.payloads._protobuf_blocks import (
        put_numbers,
        skip_fields,
        skip_number,
        take_delimited,
        take_eight,
        take_number,
        take_numbers,
        take_numbers_of_all,
    )
    from cython.cimports.libc.string import memcpy
else:
    from arrow_io.payloads import tables
    from arrow_io.payloads._arena_py import Arena

_MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_MASK32 = cython.declare(cython.longlong, 0xFFFFFFFF)
# As many as `MOST_BITS`.
_EVERY_BIT = cython.declare(cython.longlong, (1 << 62) - 1)
# As columns fewer payloads are not worth it.
_LEAST_TOGETHER = cython.declare(cython.Py_ssize_t, 8)
_PATIENCE = cython.declare(cython.Py_ssize_t, 15)
# If steps do not pay off for payloads, they hardly will for the next.
_LONG_PATIENCE = cython.declare(cython.Py_ssize_t, 127)
# They do if at least one look of so many finds its field; and a step takes as long as so many looks
# before the first.
_LOOKS_A_FIELD = cython.declare(cython.longlong, 3)
_STEP_LOOKS = cython.declare(cython.longlong, 8)
# Cache lines that are fetched ahead by each step.
_LINES_A_STEP = cython.declare(cython.Py_ssize_t, 12)
# Behind where a message ends: as many as a tag and a word have.
_PADDING_BYTES = cython.declare(cython.Py_ssize_t, 16)
# That of the value of an entry.
_VALUE_BIT = cython.declare(cython.longlong, 2)


@cython.final
@cython.cclass
class Shredder(Arena):
    """Appends protobuf messages.

    The fields of a message have their values in one row, the same of each node. So only nodes of
    items are counted as they are filled, and `_settle` counts the others after some payloads. What
    a message leaves out is zero or null before it is read (`blank_fields`).

    Attributes:
        seconds: Seconds of the timestamp that is being read.
        nanoseconds: Its nanoseconds.
        one_by_one: How many runs of payloads are not tried as columns, after one that failed.
        step_pause: How many are not tried in step, after one that failed or that it did not suit.
        lookups: How often a step has looked for its field in a message, in this run.
        hits: How often it was there.
        next_read: From where on bytes will be read next.
        prefetch_stop: Up to where they are fetched until then.
    """

    seconds: cython.longlong
    nanoseconds: cython.longlong
    one_by_one: cython.longlong
    step_pause: cython.longlong
    lookups: cython.longlong
    hits: cython.longlong
    next_read: cython.longlong
    prefetch_stop: cython.longlong

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _payload(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
        k: cython.longlong = self._place(0)
        return self._message(0, k, start, stop, 0) if k >= 0 else -1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _settle(self) -> cython.void:
        """Let what stands in a struct have as many values as the struct."""
        node: cython.Py_ssize_t
        child: cython.Py_ssize_t
        for node in range(self.node_count):
            if self.nodes[node * tables.NODE_WIDTH + tables.STORAGE] == tables.STRUCT:
                child = node + 1
                while child < self.nodes[node * tables.NODE_WIDTH + tables.STOP]:
                    self._settle_field(node, child)
                    child = self.nodes[child * tables.NODE_WIDTH + tables.STOP]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _settle_field(self, node: cython.Py_ssize_t, child: cython.Py_ssize_t) -> cython.void:
        """Let a field be null where its struct is, and begin where the one before it ends."""
        at: cython.Py_ssize_t = child * tables.NODE_WIDTH
        storage: cython.longlong = self.nodes[at + tables.STORAGE]
        first: cython.longlong = self.counts[child]
        stop: cython.longlong = min(self.counts[node], self.nodes[at + tables.CAPACITY])
        valid: cython.Py_ssize_t = self.nodes[at + tables.VALID]
        around: cython.Py_ssize_t = self.nodes[node * tables.NODE_WIDTH + tables.VALID]
        data: cython.Py_ssize_t = self.nodes[at + tables.DATA]
        k: cython.longlong
        last: cython.int
        a8: cython.pointer[cython.uchar] = self.a8
        a32: cython.pointer[cython.int] = self.a32
        self.counts[child] = self.counts[node]
        if self.nodes[node * tables.NODE_WIDTH + tables.IF_MISSING] == tables.NULL:
            for k in range(first, stop):
                a8[valid + k] &= a8[around + k]
        if storage == tables.VARIABLE or storage == tables.LIST:
            last = a32[data + first]
            for k in range(first + 1, stop + 1):
                last = max(last, a32[data + k])
                a32[data + k] = last

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _forget(self) -> cython.void:
        """Let the rows of structs that were taken back be as they were."""
        node: cython.Py_ssize_t
        child: cython.Py_ssize_t
        for node in range(self.node_count):
            if self.nodes[node * tables.NODE_WIDTH + tables.STORAGE] == tables.STRUCT:
                child = node + 1
                while child < self.nodes[node * tables.NODE_WIDTH + tables.STOP]:
                    self._blank(child, self.counts[child], self.saved[child])
                    child = self.nodes[child * tables.NODE_WIDTH + tables.STOP]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _message(
        self,
        at: cython.Py_ssize_t,
        k: cython.longlong,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.Py_ssize_t:
        """Fill row `k` with the message `[i, stop)`, or the group that begins at `i`.

        Returns:
            The position behind it, or −1.
        """
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        ops: cython.pointer[cython.const[cython.longlong]] = self.ops
        links: cython.pointer[cython.const[cython.longlong]] = self.links
        fields: cython.Py_ssize_t = ops[at + tables.A] + tables.TABLE
        end_tag: cython.longlong = ops[at + tables.B]
        # Bits of fields: of those that stood here, and of those that stood here before.
        field_bits: cython.longlong = 0
        again: cython.longlong = 0
        bit: cython.longlong
        tag: cython.longlong
        field: cython.Py_ssize_t
        opcode: cython.longlong
        node: cython.Py_ssize_t
        start: cython.Py_ssize_t
        row: cython.longlong
        self.seconds = 0
        self.nanoseconds = 0
        if links[ops[at + tables.D] + tables.COUNT] > tables.MOST_BITS:
            self._mark_awaited(ops[at + tables.D], k)
        while i < stop:
            tag = p[i]
            if tag < 0x80:
                field = links[fields + tag]
                i += 1
            else:
                i = self._short_number(i, stop)
                if i < 0:
                    return self._broken(at)
                tag = self.number
                field = self._find(fields - tables.TABLE, tag)
            if field < 0:
                start = self._skip(field, i, stop)
                if start >= 0:
                    i = start
                    continue
                if tag == end_tag:
                    end_tag = tables.ABSENT
                    break
                i = self._unknown(at, tag, i, stop, depth)
                if i < 0:
                    return -1
                continue
            bit = ops[field + tables.C]
            again |= field_bits & bit
            field_bits |= bit
            opcode = ops[field + tables.OPCODE]
            node = ops[field + tables.NODE]
            if opcode < tables.PROTO_STRING:
                if tag & 7 == 0:
                    i = self._number(i, stop)
                else:
                    i = self._fixed(tag, i, stop)
                if i < 0:
                    return self._broken(field)
                row = self._row(node, bit, k)
                if row < 0:
                    return -1
                row += self.nodes[node * tables.NODE_WIDTH + tables.DATA]
                self._store(opcode, row, self.number)
            elif tag & 7 == 2:
                start = self._length(i, stop)
                if start < 0:
                    return self._broken(field)
                i = start + self.number
                if opcode == tables.PROTO_PACKED:
                    if not self._packed(field, k, start, i):
                        return -1
                    continue
                if opcode == tables.PROTO_OTHER:
                    if not self._is_first(field, field_bits, k):
                        return -1
                    continue
                row = self._row(node, bit, k)
                if row < 0:
                    return -1
                if opcode < tables.PROTO_MESSAGE:
                    if not self._put_data(opcode, node, row, start, i - start):
                        return -1
                elif opcode == tables.PROTO_TIMESTAMP:
                    if not self._timestamp(field, row, start, i, depth + 1):
                        return -1
                elif self._message(field, row, start, i, depth + 1) < 0:
                    return -1
            elif opcode == tables.PROTO_ENUM:
                i = self._enum_field(at, field, k, i, stop)
                if i < 0:
                    return -1
                if self.number == tables.ABSENT and again & bit == 0:
                    field_bits ^= bit
            else:
                i = self._other_field(field, tag, field_bits, k, i, stop, depth)
                if i < 0:
                    return -1
        if end_tag != tables.ABSENT:
            return self._fail(tables.ENDS_EARLY, ops[at + tables.NODE], i)
        bit = field_bits & links[ops[at + tables.D] + tables.ONEOF]
        if (
            again == 0
            and links[ops[at + tables.D] + tables.NEEDED] & ~field_bits == 0
            and bit & (bit - 1) == 0
        ):
            return i
        return self._close(at, k, i, field_bits, again, depth)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _timestamp(
        self,
        at: cython.Py_ssize_t,
        k: cython.longlong,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.bint:
        """Put a timestamp: at once if it has nothing but seconds and nanoseconds, in order."""
        start: cython.Py_ssize_t = i
        self.seconds = 0
        self.nanoseconds = 0
        if 0 <= i < stop and self.p[i] == 0x08:
            i = self._number(i + 1, stop)
            self.seconds = self.number
        if 0 <= i < stop and self.p[i] == 0x10:
            i = self._number(i + 1, stop)
            self.nanoseconds = _low32(self.number)
        if i == stop:
            return self._close_timestamp(at, k, i)
        return self._message(at, k, start, stop, depth) >= 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _close_timestamp(
        self, at: cython.Py_ssize_t, k: cython.longlong, i: cython.Py_ssize_t
    ) -> cython.bint:
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        units: cython.longlong = self.links[self.ops[at + tables.A] + tables.MORE]
        if not self._instant(node, self.seconds, self.nanoseconds, units, i):
            return False
        self.a64[self.nodes[node * tables.NODE_WIDTH + tables.DATA] + k] = self.number
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _other_field(
        self,
        at: cython.Py_ssize_t,
        tag: cython.longlong,
        field_bits: cython.longlong,
        k: cython.longlong,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.Py_ssize_t:
        """Put a group, keep a part of a timestamp, or read over what is not asked for.

        Args:
            at: Op of the field.
            tag: Its tag.
            field_bits: Bits of the fields of its message that stood there, this one with them.
            k: Row of the message.
            i: Where the field stands, behind its tag.
            stop: Behind the last byte that it may have.
            depth: How many messages are around that message.
        """
        opcode: cython.longlong = self.ops[at + tables.OPCODE]
        start: cython.Py_ssize_t = i
        if opcode == tables.PROTO_PART:
            i = self._number(i, stop)
            if i < 0:
                return self._broken(at)
            if self.ops[at + tables.A] == 0:
                self.seconds = self.number
            else:
                self.nanoseconds = _low32(self.number)
            return i
        if opcode == tables.PROTO_RAW or opcode >= tables.PROTO_MESSAGE:
            k = self._row(self.ops[at + tables.NODE], self.ops[at + tables.C], k)
            if k < 0:
                return -1
        if opcode >= tables.PROTO_MESSAGE:
            return self._message(at, k, i, stop, depth + 1)
        i = self._skip_field(tag, i, stop, depth)
        if i < 0:
            return self._broken(at)
        if opcode == tables.PROTO_OTHER and not self._is_first(at, field_bits, k):
            return -1
        if opcode == tables.PROTO_RAW and not self._put_data(
            opcode, self.ops[at + tables.NODE], k, start, self.number - start
        ):
            return -1
        return i

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _enum_field(
        self,
        around: cython.Py_ssize_t,
        at: cython.Py_ssize_t,
        k: cython.longlong,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Put the name of a number, in row `k` of the message of op `around`.

        `number` becomes `ABSENT` if the enum does not have it, and therefore it does not count.
        """
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        table: cython.Py_ssize_t = self.ops[at + tables.A]
        name: cython.longlong
        is_put: cython.bint
        i = self._number(i, stop)
        if i < 0:
            return self._broken(at)
        name = self._find(table, _low32(self.number))
        if name == tables.ABSENT and self.links[table + tables.MORE] != 0:
            self.number = tables.ABSENT
            return self._ignored(around, i)
        k = self._row(node, self.ops[at + tables.C], k)
        if k < 0:
            return -1
        if name == tables.ABSENT:
            is_put = self._put_decimal_text(node, k, _low32(self.number))
        else:
            is_put = self._put_constant_in(node, k, name)
        self.number = 0
        return i if is_put else -1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _close(
        self,
        at: cython.Py_ssize_t,
        k: cython.longlong,
        i: cython.Py_ssize_t,
        field_bits: cython.longlong,
        again: cython.longlong,
        depth: cython.int,
    ) -> cython.Py_ssize_t:
        """Fill what a message that ends at `i` leaves out of row `k` and is not blank.

        Args:
            at: Op of the message.
            k: The row.
            i: Where it ends.
            field_bits: Bits of the fields that stood there.
            again: Bits of those that stood there more than once.
            depth: How many messages are around it.
        """
        nodes: cython.pointer[cython.const[cython.longlong]] = self.nodes
        links: cython.pointer[cython.const[cython.longlong]] = self.links
        opcode: cython.longlong = self.ops[at + tables.OPCODE]
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        more: cython.longlong = links[self.ops[at + tables.A] + tables.MORE]
        fields: cython.Py_ssize_t = self.ops[at + tables.D]
        left: cython.longlong = links[fields + tables.NEEDED] & ~field_bits & _EVERY_BIT
        first: cython.Py_ssize_t = fields + tables.FIELDS
        link: cython.Py_ssize_t
        if opcode == tables.PROTO_TIMESTAMP:
            return i if self._close_timestamp(at, k, i) else -1
        if opcode == tables.PROTO_MESSAGE:
            if nodes[node * tables.NODE_WIDTH + tables.STORAGE] == tables.BYTE:
                self.a8[nodes[node * tables.NODE_WIDTH + tables.DATA] + k] = 1
                return i
            if more != tables.ABSENT and not self._has_one_of_each(more, field_bits, k):
                return self._fail(tables.NOT_CANONICAL, node, i)
        if again & _EVERY_BIT != 0:
            return self._fail(tables.NOT_CANONICAL, node, i)
        if opcode == tables.PROTO_WRAPPER:
            if field_bits == 0:
                self._zero(node, k)
            return i
        if opcode == tables.PROTO_ENTRY and more != tables.ABSENT and left & _VALUE_BIT != 0:
            # An entry of a map has a value all the same.
            if not self._empty_message(more, k, i, depth):
                return -1
            left ^= _VALUE_BIT
        while left != 0:
            node = links[first + _lowest(left)]
            if not self._put_constant_in(
                node, k, nodes[node * tables.NODE_WIDTH + tables.IF_MISSING]
            ):
                return -1
            left &= left - 1
        for link in range(first + tables.MOST_BITS, first + links[fields + tables.COUNT]):
            if not self._close_awaited(links[link], k, i):
                return -1
        return i

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _mark_awaited(self, fields: cython.Py_ssize_t, k: cython.longlong) -> cython.void:
        """Say of the fields of a message that have no bits that none stood there."""
        first: cython.Py_ssize_t = fields + tables.FIELDS
        link: cython.Py_ssize_t
        for link in range(first + tables.MOST_BITS, first + self.links[fields + tables.COUNT]):
            self.a8[self.nodes[self.links[link] * tables.NODE_WIDTH + tables.VALID] + k] = (
                tables.AWAITED
            )

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _close_awaited(
        self, node: cython.Py_ssize_t, k: cython.longlong, i: cython.Py_ssize_t
    ) -> cython.bint:
        place: cython.Py_ssize_t = self.nodes[node * tables.NODE_WIDTH + tables.VALID] + k
        missing: cython.longlong = self.nodes[node * tables.NODE_WIDTH + tables.IF_MISSING]
        if self.a8[place] == tables.TWICE:
            self._fail(tables.NOT_CANONICAL, node, i)
            return False
        if self.a8[place] == tables.AWAITED:
            self.a8[place] = missing != tables.NULL
            return missing < 0 or self._put_constant_in(node, k, missing)
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _empty_message(
        self,
        at: cython.Py_ssize_t,
        k: cython.longlong,
        i: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.bint:
        """The message that an entry has if it has no value."""
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        self.a8[self.nodes[node * tables.NODE_WIDTH + tables.VALID] + k] = 1
        if self.ops[at + tables.OPCODE] == tables.PROTO_RAW:
            return True
        return self._message(at, k, i, i, depth + 1) >= 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _has_one_of_each(
        self, link: cython.Py_ssize_t, field_bits: cython.longlong, k: cython.longlong
    ) -> cython.bint:
        """Whether no oneof of a message has two members, by the link of the oneofs."""
        n: cython.Py_ssize_t
        count: cython.longlong = self.links[link]
        link += 1
        for n in range(count):
            if self._members(link, field_bits, k) > 1:
                return False
            link += 2 + self.links[link + 1]
        return True

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _members(
        self, link: cython.Py_ssize_t, field_bits: cython.longlong, k: cython.longlong
    ) -> cython.longlong:
        """How many members of a oneof stood in the message of row `k`; 2 may be more."""
        bits: cython.longlong = self.links[link] & field_bits
        count: cython.longlong = 0
        item: cython.Py_ssize_t
        place: cython.Py_ssize_t
        if bits != 0:
            count = 1 if bits & (bits - 1) == 0 else 2
        for item in range(link + 2, link + 2 + self.links[link + 1]):
            place = self.nodes[self.links[item] * tables.NODE_WIDTH + tables.VALID] + k
            if self.a8[place] != tables.AWAITED:
                count += 1
        return count

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_first(
        self, at: cython.Py_ssize_t, field_bits: cython.longlong, k: cython.longlong
    ) -> cython.bint:
        """Whether no other member of a oneof was there before the one that is not asked for."""
        if self._members(self.ops[at + tables.A], field_bits, k) == 0:
            return True
        self._fail(tables.NOT_CANONICAL, self.ops[at + tables.NODE], 0)
        return False

    # ------------------------------------------------------------------------
    # Columns: only in the compiled build, where a branch that is guessed wrong costs more than what
    # it chooses. Which field comes next is anyone's guess, but not what becomes of each column.

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _run_together(
        self,
        positions: cython.pointer[cython.const[cython.longlong]],
        count: cython.Py_ssize_t,
    ) -> cython.bint:
        """Append payloads in step or by columns, unless anything about one of them is unusual.

        In step if their fields stand in order, and most of them are there. For columns first the
        fields of all are found, which takes hardly a branch that could be guessed wrong; then each
        column is filled with what was found for it.
        """
        fields: cython.Py_ssize_t = self.ops[tables.D]
        if count < _LEAST_TOGETHER or not self._may_be_together(positions, count):
            return False
        if self.step_pause > 0:
            self.step_pause -= 1
        elif self.links[fields + tables.STEPS] != tables.ABSENT:
            self.lookups = 0
            self.hits = 0
            if self._payloads_in_step(positions, count) and self.code == tables.OK:
                if self.hits * _LOOKS_A_FIELD < self.lookups:
                    self.step_pause = _LONG_PATIENCE
                return True
            self.step_pause = _PATIENCE
            self._start_again()
        if self.links[fields + tables.COLUMNS] == tables.ABSENT:
            return False
        if self.one_by_one > 0:
            self.one_by_one -= 1
            return False
        if self._payloads(positions, count) and self.code == tables.OK:
            return True
        self.one_by_one = _PATIENCE
        self._start_again()
        return False

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _may_be_together(
        self,
        positions: cython.pointer[cython.const[cython.longlong]],
        count: cython.Py_ssize_t,
    ) -> cython.bint:
        """Whether all payloads are there, and have bytes behind them that may be read."""
        row: cython.Py_ssize_t
        stop: cython.longlong = 0
        for row in range(count):
            if positions[row] == tables.ABSENT:
                return False
            stop = max(stop, (positions[row] >> 32) + (positions[row] & _MASK32))
        return self.size - stop >= _PADDING_BYTES

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _start_again(self) -> cython.void:
        """Take back what was read of payloads that are not read together."""
        self._settle()
        self._take_back()
        self._forget()
        self._begin()
        memcpy(self.saved, self.counts, 2 * self.node_count * 8)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _payloads(
        self,
        positions: cython.pointer[cython.const[cython.longlong]],
        count: cython.Py_ssize_t,
    ) -> cython.bint:
        row: cython.Py_ssize_t
        start: cython.longlong
        k: cython.longlong
        self._begin_columns(0)
        for row in range(count):
            k = self._place(0)
            if k < 0:
                return False
            start = positions[row] >> 32
            if not self._tokens(0, k, start, start + (positions[row] & _MASK32)):
                return False
        return self._columns(0, 0)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _begin_columns(self, at: cython.Py_ssize_t) -> cython.void:
        """There are no tokens yet of the fields of a message."""
        link: cython.Py_ssize_t = (
            self.links[self.ops[at + tables.D] + tables.COLUMNS] + tables.BY_TAG
        )
        last: cython.Py_ssize_t = link + self.links[link]
        while link < last:
            link += 1
            self.hints[self.ops[self.links[link] + tables.E]] = 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _tokens(
        self,
        at: cython.Py_ssize_t,
        k: cython.longlong,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
    ) -> cython.bint:
        """Find the fields of the message `[i, stop)`, which is to fill row `k`.

        A token is `row << 32 | position` of what stands behind a tag.
        """
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        fields: cython.Py_ssize_t = self.ops[at + tables.D]
        columns: cython.Py_ssize_t = self.links[fields + tables.COLUMNS]
        table: cython.pointer[cython.const[cython.longlong]] = self.links + columns
        ops: cython.pointer[cython.const[cython.longlong]] = self.ops
        hints: cython.pointer[cython.longlong] = self.hints
        op: cython.pointer[cython.const[cython.longlong]]
        tokens: cython.pointer[cython.longlong]
        field_bits: cython.longlong = 0
        again: cython.longlong = 0
        length: cython.longlong
        number: cython.longlong = 0
        tag: cython.longlong
        n: cython.longlong
        row: cython.longlong = k << 32
        while i < stop:
            tag = p[i]
            if tag >= 0x80 or table[tag] < 0:
                return False
            op = ops + table[tag]
            tokens = hints + op[tables.E]
            again |= field_bits & op[tables.C]
            field_bits |= op[tables.C]
            n = tokens[0]
            tokens[1 + (n & op[tables.F])] = row | (i + 1)
            tokens[0] = n + 1
            i += 1
            if tag & 7 == 2:
                length = p[i]
                if length < 0x80:
                    i += 1 + length
                    continue
                length = take_number(p + i, cython.address(number))
                if length == 0 or length > 5:
                    return False
                i += length + number
            elif tag & 7 == 0:
                if p[i] < 0x80:
                    i += 1
                    continue
                length = skip_number(p + i)
                if length != 0:
                    i += length
                    continue
                # A negative one has ten bytes.
                i = self._long_number(i, stop)
                if i < 0:
                    return False
            elif tag & 7 == 1:
                i += 8
            else:
                i += 4
        if i != stop or again != 0:
            return False
        again = field_bits & self.links[fields + tables.ONEOF]
        if again & (again - 1) != 0:
            return False
        table += tables.BY_TAG
        table += 1 + table[0]
        for n in range(table[0]):
            op = ops + table[n + 1]
            tokens = hints + op[tables.E]
            tokens[1 + (tokens[0] & op[tables.F])] = row
            tokens[0] += field_bits & op[tables.C] == 0
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _columns(self, at: cython.Py_ssize_t, depth: cython.int) -> cython.bint:
        """Fill the columns of the fields of a message with what was found."""
        link: cython.Py_ssize_t = (
            self.links[self.ops[at + tables.D] + tables.COLUMNS] + tables.BY_TAG
        )
        last: cython.Py_ssize_t = link + self.links[link]
        field: cython.Py_ssize_t
        count: cython.longlong
        opcode: cython.longlong
        while link < last:
            link += 1
            field = self.links[link]
            count = self.hints[self.ops[field + tables.E]]
            opcode = self.ops[field + tables.OPCODE]
            if count == 0 or opcode == tables.PROTO_SKIPPED:
                continue
            if count > self.ops[field + tables.F] + 1:
                return False
            if opcode < tables.PROTO_STRING:
                self._numbers(field, count)
            elif opcode == tables.PROTO_ENUM:
                if not self._names(field, count):
                    return False
            elif not self._delimited(field, count, depth + 1):
                return False
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _numbers(self, at: cython.Py_ssize_t, count: cython.longlong) -> cython.void:
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        tokens: cython.pointer[cython.longlong] = self.hints + self.ops[at + tables.E] + 1
        opcode: cython.longlong = self.ops[at + tables.OPCODE]
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        data: cython.Py_ssize_t = self.nodes[node * tables.NODE_WIDTH + tables.DATA]
        valid: cython.Py_ssize_t = self.nodes[node * tables.NODE_WIDTH + tables.VALID]
        a8: cython.pointer[cython.uchar] = self.a8
        # All of them have one tag.
        kind: cython.int = p[(tokens[0] & _MASK32) - 1] & 7
        number: cython.longlong = 0
        i: cython.longlong
        n: cython.Py_ssize_t
        k: cython.longlong
        for n in range(count):
            i = tokens[n] & _MASK32
            # It has a bit: items of lists are read by columns only if they are packed.
            k = tokens[n] >> 32
            a8[valid + k] = 1
            if kind == 1:
                number = word(p + i)
            elif kind == 5:
                number = half_word(p + i)
            elif p[i] < 0x80:
                number = p[i]
            elif take_number(p + i, cython.address(number)) == 0:
                self._long_number(i, self.size)
                number = self.number
            self._store(opcode, data + k, number)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _names(self, at: cython.Py_ssize_t, count: cython.longlong) -> cython.bint:
        tokens: cython.pointer[cython.longlong] = self.hints + self.ops[at + tables.E] + 1
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        i: cython.Py_ssize_t
        n: cython.Py_ssize_t
        for n in range(count):
            i = tokens[n] & _MASK32
            if i == 0:
                if not self._put_constant_in(
                    node,
                    tokens[n] >> 32,
                    self.nodes[node * tables.NODE_WIDTH + tables.IF_MISSING],
                ):
                    return False
            elif (
                self._enum_field(tables.ABSENT, at, tokens[n] >> 32, i, self.size) < 0
                or self.number == tables.ABSENT
            ):
                return False
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _delimited(
        self, at: cython.Py_ssize_t, count: cython.longlong, depth: cython.int
    ) -> cython.bint:
        tokens: cython.pointer[cython.longlong] = self.hints + self.ops[at + tables.E] + 1
        opcode: cython.longlong = self.ops[at + tables.OPCODE]
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        bit: cython.longlong = self.ops[at + tables.C]
        start: cython.Py_ssize_t
        stop: cython.Py_ssize_t
        n: cython.Py_ssize_t
        k: cython.longlong
        has_columns: cython.bint = opcode == tables.PROTO_MESSAGE or opcode == tables.PROTO_ENTRY
        if has_columns:
            self._begin_columns(at)
        for n in range(count):
            start = self._length(tokens[n] & _MASK32, self.size)
            if start < 0:
                return False
            stop = start + self.number
            k = tokens[n] >> 32
            if opcode == tables.PROTO_PACKED:
                if not self._packed(at, k, start, stop):
                    return False
                continue
            k = self._row(node, bit, k)
            if k < 0:
                return False
            if opcode < tables.PROTO_MESSAGE:
                if not self._put_data(opcode, node, k, start, stop - start):
                    return False
            elif opcode == tables.PROTO_TIMESTAMP:
                if not self._timestamp(at, k, start, stop, depth):
                    return False
            elif not self._tokens(at, k, start, stop):
                return False
        return not has_columns or self._columns(at, depth)

    # ------------------------------------------------------------------------
    # Steps: most writers order the fields of a message by their numbers. So messages are read
    # together, first one field of all of them, then the next. What is to be done is the same for
    # all, but for whether the field is there, which takes no branch; and no message waits for
    # another.

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _payloads_in_step(
        self,
        positions: cython.pointer[cython.const[cython.longlong]],
        count: cython.Py_ssize_t,
    ) -> cython.bint:
        row: cython.Py_ssize_t
        start: cython.longlong
        k: cython.longlong
        group: cython.pointer[cython.longlong] = self._message_group(0)
        for row in range(count):
            k = self._place(0)
            if k < 0:
                return False
            start = positions[row] >> 32
            group[tables.IN_GROUP * row] = start
            group[tables.IN_GROUP * row + 1] = start + (positions[row] & _MASK32)
            group[tables.IN_GROUP * row + 2] = k
        # The payloads behind these will be read next.
        self.next_read = group[tables.IN_GROUP * (count - 1) + 1]
        self.prefetch_stop = min(self.size, 2 * self.next_read - group[0])
        return self._in_step(0, count, 0)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _message_group(self, at: cython.Py_ssize_t) -> cython.pointer[cython.longlong]:
        """The messages of an op that are read in step."""
        return self.hints + self.links[self.links[self.ops[at + tables.D] + tables.STEPS] + 1]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _in_step(
        self, at: cython.Py_ssize_t, count: cython.Py_ssize_t, depth: cython.int
    ) -> cython.bint:
        """Fill the rows of the first messages of a group, unless anything about one is unusual."""
        fields: cython.Py_ssize_t = self.ops[at + tables.D]
        oneof: cython.longlong = self.links[fields + tables.ONEOF]
        link: cython.Py_ssize_t = self.links[fields + tables.STEPS]
        last: cython.Py_ssize_t = link + 2 + tables.STEP_WIDTH * self.links[link]
        group: cython.pointer[cython.longlong] = self._message_group(at)
        left: cython.longlong = 0
        n: cython.Py_ssize_t
        if count == 0:
            return True
        self.lookups += (count + _STEP_LOOKS) * self.links[link]
        if oneof != 0:
            for n in range(count):
                group[tables.IN_GROUP * n + 3] = 0
        link += 2
        while link < last:
            if self.ops[self.links[link] + tables.C] & oneof != 0 and not self._one_member(
                link, group, count
            ):
                return False
            self._prefetch_lines()
            if not self._step(link, group, count, depth):
                return False
            link += tables.STEP_WIDTH
        for n in range(count):
            left |= group[tables.IN_GROUP * n] ^ group[tables.IN_GROUP * n + 1]
        return left == 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _prefetch_lines(self) -> cython.void:
        """Fetch some of the bytes that will be read next; not all at once, which takes as long."""
        stop: cython.longlong = min(
            self.next_read + _LINES_A_STEP * CACHE_LINE_BYTES, self.prefetch_stop
        )
        while self.next_read < stop:
            prefetch(self.p + self.next_read)
            self.next_read += CACHE_LINE_BYTES

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _one_member(
        self,
        link: cython.Py_ssize_t,
        group: cython.pointer[cython.longlong],
        count: cython.Py_ssize_t,
    ) -> cython.bint:
        """Whether this field is the first of its oneof in each message that has it."""
        n: cython.Py_ssize_t
        several: cython.longlong = 0
        for n in range(count):
            group[tables.IN_GROUP * n + 3] += self._is_at(
                link, group[tables.IN_GROUP * n], group[tables.IN_GROUP * n + 1]
            )
            several |= group[tables.IN_GROUP * n + 3]
        return several < 2

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_at(
        self, link: cython.Py_ssize_t, i: cython.longlong, stop: cython.longlong
    ) -> cython.bint:
        """Whether the field of a step stands here."""
        tag: cython.longlong = self.links[link + tables.STEP_TAG]
        return i < stop and word(self.p + i) & self.links[link + tables.STEP_MASK] == tag

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _step(
        self,
        link: cython.Py_ssize_t,
        group: cython.pointer[cython.longlong],
        count: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.bint:
        """Read one field of all messages of a group."""
        at: cython.Py_ssize_t = self.links[link]
        opcode: cython.longlong = self.ops[at + tables.OPCODE]
        node: cython.Py_ssize_t = self.ops[at + tables.NODE] * tables.NODE_WIDTH
        is_item: cython.bint = self.ops[at + tables.C] == 0
        blank: cython.int
        hits: cython.longlong
        below: cython.pointer[cython.longlong]
        valid: cython.pointer[cython.uchar]
        if opcode == tables.PROTO_SKIPPED:
            return self._skip_in_step(link, group, count, depth)
        valid = self.a8 + self.nodes[node + tables.VALID]
        blank = self.nodes[node + tables.IF_MISSING] != tables.NULL
        if opcode < tables.PROTO_STRING:
            hits = self._numbers_in_step(link, group, count, valid, blank)
        elif opcode == tables.PROTO_ENUM:
            hits = take_numbers_of_all(self.p, group, count, self.links + link, self.hints)
            if hits >= 0 and not self._names_in_step(at, count, valid):
                return False
        elif is_item and opcode != tables.PROTO_PACKED:
            return self._items_in_step(link, group, count, depth)
        else:
            below = self._value_group(at)
            if is_item:
                valid = cython.NULL
            hits = take_delimited(self.p, group, count, self.links + link, valid, blank, below)
            if hits >= 0 and not self._read_values(at, below, hits, depth):
                return False
        self.hits += hits
        return hits >= 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _value_group(self, at: cython.Py_ssize_t) -> cython.pointer[cython.longlong]:
        """Where the values of a field are noted until they are read."""
        opcode: cython.longlong = self.ops[at + tables.OPCODE]
        if opcode == tables.PROTO_MESSAGE or opcode == tables.PROTO_ENTRY:
            return self._message_group(at)
        # Of all others at the same place.
        return self.hints

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _numbers_in_step(
        self,
        link: cython.Py_ssize_t,
        group: cython.pointer[cython.longlong],
        count: cython.Py_ssize_t,
        valid: cython.pointer[cython.uchar],
        blank: cython.int,
    ) -> cython.longlong:
        at: cython.Py_ssize_t = self.links[link]
        opcode: cython.longlong = self.ops[at + tables.OPCODE]
        data: cython.Py_ssize_t = self.nodes[
            self.ops[at + tables.NODE] * tables.NODE_WIDTH + tables.DATA
        ]
        to: cython.p_void
        if opcode == tables.PROTO_INT32 or opcode == tables.PROTO_SINT32:
            to = self.a32 + data
        elif opcode == tables.PROTO_BOOL:
            to = self.a8 + data
        elif opcode == tables.PROTO_UINT64:
            to = self.a64 + 2 * data
        else:
            to = self.a64 + data
        return put_numbers(
            self.p, group, count, self.links + link, opcode - tables.PROTO_INT32, valid, blank, to
        )

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _names_in_step(
        self,
        at: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
        valid: cython.pointer[cython.uchar],
    ) -> cython.bint:
        """Put the names of the numbers that were found of all messages."""
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        table: cython.Py_ssize_t = self.ops[at + tables.A]
        missing: cython.longlong = self.nodes[node * tables.NODE_WIDTH + tables.IF_MISSING]
        numbers: cython.pointer[cython.longlong] = self.hints
        name: cython.longlong
        k: cython.longlong
        n: cython.Py_ssize_t
        for n in range(count):
            k = numbers[tables.IN_GROUP * n + 2]
            name = self._find(table, numbers[tables.IN_GROUP * n])
            if numbers[tables.IN_GROUP * n + 1] == 0:
                if missing < 0:
                    continue
                name = missing
            valid[k] = 1
            if name == tables.ABSENT:
                if self.links[table + tables.MORE] != 0:
                    return False
                if not self._put_decimal_text(node, k, numbers[tables.IN_GROUP * n]):
                    return False
            elif not self._put_constant_in(node, k, name):
                return False
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _items_in_step(
        self,
        link: cython.Py_ssize_t,
        group: cython.pointer[cython.longlong],
        count: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.bint:
        """Read the items of lists that are no numbers, those of all lists together."""
        at: cython.Py_ssize_t = self.links[link]
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        size: cython.longlong = self.links[link + tables.STEP_BYTES]
        below: cython.pointer[cython.longlong] = self._value_group(at)
        hits: cython.Py_ssize_t = 0
        i: cython.longlong
        stop: cython.longlong
        k: cython.longlong
        n: cython.Py_ssize_t
        for n in range(count):
            i = group[tables.IN_GROUP * n]
            stop = group[tables.IN_GROUP * n + 1]
            while self._is_at(link, i, stop):
                if hits == tables.GROUP:
                    if not self._read_values(at, below, hits, depth):
                        return False
                    self.hits += hits
                    hits = 0
                i = self._length(i + size, stop)
                k = self._place(node)
                if i < 0 or k < 0:
                    return False
                below[tables.IN_GROUP * hits] = i
                i += self.number
                below[tables.IN_GROUP * hits + 1] = i
                below[tables.IN_GROUP * hits + 2] = k
                hits += 1
            self._end_list(node, group[tables.IN_GROUP * n + 2])
            group[tables.IN_GROUP * n] = i
        self.hits += hits
        return self._read_values(at, below, hits, depth)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_values(
        self,
        at: cython.Py_ssize_t,
        below: cython.pointer[cython.longlong],
        value_count: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.bint:
        """Read what was found of a field: where each value begins and ends, and its row."""
        opcode: cython.longlong = self.ops[at + tables.OPCODE]
        i: cython.Py_ssize_t
        stop: cython.Py_ssize_t
        k: cython.longlong
        n: cython.Py_ssize_t
        if opcode == tables.PROTO_MESSAGE or opcode == tables.PROTO_ENTRY:
            return self._in_step(at, value_count, depth + 1)
        if opcode < tables.PROTO_MESSAGE and opcode != tables.PROTO_PACKED:
            return self._put_values(at, below, value_count)
        for n in range(value_count):
            i = below[tables.IN_GROUP * n]
            stop = below[tables.IN_GROUP * n + 1]
            k = below[tables.IN_GROUP * n + 2]
            if opcode == tables.PROTO_PACKED:
                if not self._packed(at, k, i, stop):
                    return False
            elif not self._timestamp(at, k, i, stop, depth + 1):
                return False
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_values(
        self,
        at: cython.Py_ssize_t,
        below: cython.pointer[cython.longlong],
        value_count: cython.Py_ssize_t,
    ) -> cython.bint:
        """As `_put_data`, of all that was found of a field."""
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        opcode: cython.longlong = self.ops[at + tables.OPCODE]
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        place: cython.Py_ssize_t = node * tables.NODE_WIDTH
        to: cython.pointer[cython.uchar] = self.a8 + self.nodes[place + tables.BYTES]
        room: cython.longlong = self.nodes[place + tables.BYTES_CAPACITY]
        ends: cython.pointer[cython.int] = self.a32 + self.nodes[place + tables.DATA] + 1
        used: cython.longlong = self.used[node]
        size: cython.longlong = self.size
        mask: cython.uint = 0xFFFFFFFF if opcode == tables.PROTO_STRING else 0
        high: cython.uint = 0
        i: cython.longlong
        length: cython.longlong
        n: cython.Py_ssize_t
        for n in range(value_count):
            i = below[tables.IN_GROUP * n]
            length = below[tables.IN_GROUP * n + 1] - i
            if (
                copy_blocks(to + used, room - used, p + i, size - i, length, cython.address(high))
                and high & mask == 0
            ):
                used += length
                ends[below[tables.IN_GROUP * n + 2]] = used
                continue
            self.used[node] = used
            if not self._put_any_data(opcode, node, below[tables.IN_GROUP * n + 2], i, length):
                return False
            used = self.used[node]
        self.used[node] = used
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _skip_in_step(
        self,
        link: cython.Py_ssize_t,
        group: cython.pointer[cython.longlong],
        count: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.bint:
        """Read over a field that nobody asks for."""
        again: cython.bint = self.ops[self.links[link] + tables.A] != 0
        size: cython.longlong = self.links[link + tables.STEP_BYTES]
        hits: cython.longlong = skip_fields(self.p, group, count, self.links + link)
        i: cython.Py_ssize_t
        n: cython.Py_ssize_t
        # As long as many messages have one more, nothing is guessed about any of them.
        while again and hits * 4 > count:
            self.hits += hits
            hits = skip_fields(self.p, group, count, self.links + link)
        self.hits += hits
        if hits <= 0 or not again:
            return hits >= 0
        for n in range(count):
            i = group[tables.IN_GROUP * n]
            while self._is_at(link, i, group[tables.IN_GROUP * n + 1]):
                # Whichever it is, its number is not 0.
                i = self._skip_field(
                    8 | self.links[link + tables.STEP_TAG] & 7,
                    i + size,
                    group[tables.IN_GROUP * n + 1],
                    depth,
                )
                if i < 0:
                    return False
            group[tables.IN_GROUP * n] = i
        return True

    # ------------------------------------------------------------------------
    # Values

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _row(
        self, node: cython.Py_ssize_t, bit: cython.longlong, k: cython.longlong
    ) -> cython.longlong:
        """Where the value of a field with this bit goes in the message of row `k`; −1: nowhere."""
        row: cython.longlong
        if bit > 0:
            self.a8[self.nodes[node * tables.NODE_WIDTH + tables.VALID] + k] = 1
            return k
        if bit == 0:
            row = self._place(node)
            self._end_list(node, k)
            return row
        return self._note_field(node, k)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _end_list(self, node: cython.Py_ssize_t, k: cython.longlong) -> cython.void:
        """Let the list in row `k` end behind the last of its items, which have this node."""
        place: cython.Py_ssize_t = self.nodes[(node - 1) * tables.NODE_WIDTH + tables.DATA] + k
        self.a32[place + 1] = self.counts[node]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _note_field(self, node: cython.Py_ssize_t, k: cython.longlong) -> cython.longlong:
        """Note of a field without a bit that it stands in row `k`, which is given."""
        place: cython.Py_ssize_t = self.nodes[node * tables.NODE_WIDTH + tables.VALID] + k
        self.a8[place] = 1 if self.a8[place] == tables.AWAITED else tables.TWICE
        return k

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _place(self, node: cython.Py_ssize_t) -> cython.longlong:
        """As `_slot`, without a call."""
        k: cython.longlong = self.counts[node]
        if k >= self.nodes[node * tables.NODE_WIDTH + tables.CAPACITY]:
            return self._spare(node, 1)
        self.counts[node] = k + 1
        return k

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _store(
        self, opcode: cython.longlong, k: cython.longlong, value: cython.longlong
    ) -> cython.void:
        """Put a number, as it was on the wire, in its place in the arena."""
        if opcode == tables.PROTO_INT64:
            self.a64[k] = value
        elif opcode == tables.PROTO_INT32:
            self.a32[k] = _low32(value)
        elif opcode == tables.PROTO_SINT32:
            self.a32[k] = _unzigzag(value & _MASK32)
        elif opcode == tables.PROTO_SINT64:
            self.a64[k] = _unzigzag(value & _MASK64)
        elif opcode == tables.PROTO_BOOL:
            self.a8[k] = value != 0
        elif opcode == tables.PROTO_UINT32:
            self.a64[k] = value & _MASK32
        else:
            self.a64[2 * k] = value
            self.a64[2 * k + 1] = 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_data(
        self,
        opcode: cython.longlong,
        node: cython.Py_ssize_t,
        k: cython.longlong,
        start: cython.Py_ssize_t,
        length: cython.longlong,
    ) -> cython.bint:
        """Put bytes of the payload in row `k`; text has the opcode `PROTO_STRING`."""
        if cython.compiled:
            at: cython.Py_ssize_t = node * tables.NODE_WIDTH
            used: cython.longlong = self.used[node]
            high: cython.uint = 0
            if copy_blocks(
                self.a8 + self.nodes[at + tables.BYTES] + used,
                self.nodes[at + tables.BYTES_CAPACITY] - used,
                self.p + start,
                self.size - start,
                length,
                cython.address(high),
            ) and (high == 0 or opcode != tables.PROTO_STRING):
                self.used[node] = used + length
                self.a32[self.nodes[at + tables.DATA] + k + 1] = used + length
                return True
        return self._put_any_data(opcode, node, k, start, length)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_any_data(
        self,
        opcode: cython.longlong,
        node: cython.Py_ssize_t,
        k: cython.longlong,
        start: cython.Py_ssize_t,
        length: cython.longlong,
    ) -> cython.bint:
        if opcode == tables.PROTO_STRING and not self._is_text(start, start + length):
            self._fail(tables.BAD_UTF8, node, start)
            return False
        if not self._add_bytes(node, self.p, start, length):
            return False
        self.a32[self.nodes[node * tables.NODE_WIDTH + tables.DATA] + k + 1] = self.used[node]
        return True

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_constant_in(
        self, node: cython.Py_ssize_t, k: cython.longlong, position: cython.longlong
    ) -> cython.bint:
        """Put a constant in row `k`."""
        at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        length: cython.longlong = position & _MASK32
        used: cython.longlong = self.used[node]
        room: cython.longlong = self.nodes[at + tables.BYTES_CAPACITY] - used
        if not cython.compiled or length > room:
            if not self._add_bytes(node, self.constants, position >> 32, length):
                return False
        else:
            # 16 bytes stand behind the constants.
            copy_near(
                self.a8 + self.nodes[at + tables.BYTES] + used,
                self.constants + (position >> 32),
                length,
                min(room, length + 16),
            )
            self.used[node] = used + length
        self.a32[self.nodes[at + tables.DATA] + k + 1] = self.used[node]
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_decimal_text(
        self, node: cython.Py_ssize_t, k: cython.longlong, value: cython.longlong
    ) -> cython.bint:
        """Put a number of 32 bits in row `k`, as text."""
        power: cython.longlong = 1
        if value < 0:
            value = -value
            if not self._add_byte(node, 0x2D):
                return False
        while value // power >= 10:
            power *= 10
        while power > 0:
            if not self._add_byte(node, 0x30 + value // power % 10):
                return False
            power = power // 10
        self.a32[self.nodes[node * tables.NODE_WIDTH + tables.DATA] + k + 1] = self.used[node]
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _packed(
        self,
        at: cython.Py_ssize_t,
        k: cython.longlong,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
    ) -> cython.bint:
        """Append numbers that stand one behind the other to the list in row `k`."""
        if not self._packed_items(at, k, i, stop):
            return False
        self._end_list(self.ops[at + tables.NODE], k)
        return True

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _packed_items(
        self,
        at: cython.Py_ssize_t,
        row: cython.longlong,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
    ) -> cython.bint:
        """The node's room is looked at once."""
        item: cython.Py_ssize_t = self.ops[at + tables.A]
        width: cython.longlong = self.ops[at + tables.B]
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        opcode: cython.longlong = self.ops[item + tables.OPCODE]
        first: cython.longlong = (
            self.nodes[node * tables.NODE_WIDTH + tables.DATA] + self.counts[node]
        )
        k: cython.longlong = first
        if opcode == tables.PROTO_ENUM:
            return self._packed_enum(item, row, i, stop)
        if width != 0 and (stop - i) & (width - 1) != 0:
            self._fail(tables.BAD_LENGTH, node, i)
            return False
        if not self._has_room(node, i, stop, width):
            return self._packed_spare(node, i, stop, width)
        if opcode == tables.PROTO_INT32 and width == 0:
            # By far the most common.
            return self._packed_int32(node, i, stop)
        while i < stop:
            if width == 0:
                i = self._number(i, stop)
                if i < 0:
                    self.code_node = node
                    return False
            elif width == 8:
                self.number = _eight_bytes(self.p, i)
                i += 8
            else:
                self.number = _four_bytes(self.p, i)
                i += 4
            self._store(opcode, k, self.number)
            k += 1
        self.counts[node] += k - first
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _packed_int32(
        self, node: cython.Py_ssize_t, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.bint:
        """Append packed numbers, of two bytes for the most part, for which there is room."""
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        a32: cython.pointer[cython.int] = self.a32
        first: cython.longlong = (
            self.nodes[node * tables.NODE_WIDTH + tables.DATA] + self.counts[node]
        )
        k: cython.longlong = first
        # From here on there is room for less than eight.
        last: cython.longlong = (
            self.nodes[node * tables.NODE_WIDTH + tables.DATA]
            + self.nodes[node * tables.NODE_WIDTH + tables.CAPACITY]
            - 8
        )
        value: cython.longlong
        number_count: cython.int
        while i < stop:
            if cython.compiled and k <= last and self.size - i >= 8:
                if stop - i >= 16 and take_eight(p + i, a32 + k):
                    i += 16
                    k += 8
                    continue
                number_count = take_numbers(p + i, min(stop - i, 8), a32 + k)
                if number_count > 0:
                    i = min(i + 8, stop)
                    k += number_count
                    continue
            value = p[i]
            i += 1
            if value >= 0x80:
                if i < stop and p[i] < 0x80:
                    value = (value & 0x7F) | p[i] << 7
                    i += 1
                else:
                    i = self._long_number(i - 1, stop)
                    if i < 0:
                        self.code_node = node
                        return False
                    value = _low32(self.number)
            a32[k] = value
            k += 1
        self.counts[node] += k - first
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _packed_enum(
        self,
        at: cython.Py_ssize_t,
        k: cython.longlong,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
    ) -> cython.bint:
        while i < stop:
            i = self._enum_field(tables.ABSENT, at, k, i, stop)
            if i < 0:
                return False
        return True

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _has_room(
        self,
        node: cython.Py_ssize_t,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        width: cython.longlong,
    ) -> cython.bint:
        """Whether a node has room for the packed numbers `[i, stop)`."""
        room: cython.longlong = (
            self.nodes[node * tables.NODE_WIDTH + tables.CAPACITY] - self.counts[node]
        )
        if width != 0:
            return (stop - i) // width <= room
        if stop - i > room:
            # There are as many numbers as bytes that end one.
            while i < stop:
                if self.p[i] < 0x80:
                    room -= 1
                i += 1
        return room >= 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _packed_spare(
        self,
        node: cython.Py_ssize_t,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        width: cython.longlong,
    ) -> cython.bint:
        """Count packed numbers that a node has no room for."""
        values: cython.longlong = 0
        if width != 0:
            values = (stop - i) // width
            i = stop
        while i < stop:
            i = self._number(i, stop)
            if i < 0:
                self.code_node = node
                return False
            values += 1
        return self._spare(node, values) >= 0

    # ------------------------------------------------------------------------
    # The wire

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _broken(self, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Say of what is wrong that it is in the field or message of this op."""
        return self._blame(self.ops[at + tables.NODE])

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _number(self, i: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """A number of at most ten bytes, left in `number` as its lower 64 bits."""
        length: cython.int
        if i < stop and self.p[i] < 0x80:
            self.number = self.p[i]
            return i + 1
        if cython.compiled and self.size - i >= 8:
            length = take_number(self.p + i, cython.address(self.number))
            if 0 < length <= stop - i:
                return i + length
        return self._long_number(i, stop)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _fixed(
        self, tag: cython.longlong, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """A number of the four or eight bytes that a tag says, left in `number`."""
        if tag & 7 == 1 and stop - i >= 8:
            self.number = _eight_bytes(self.p, i)
            return i + 8
        if tag & 7 == 5 and stop - i >= 4:
            self.number = _four_bytes(self.p, i)
            return i + 4
        return self._fail(tables.ENDS_EARLY, tables.ABSENT, i)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _long_number(self, i: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
        value: cython.ulonglong = 0
        byte: cython.ulonglong
        shift: cython.int = 0
        while i < stop and shift < 70:
            byte = self.p[i]
            i += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.number = _signed(value)
                return i
            shift += 7
        return self._fail(tables.ENDS_EARLY if shift < 70 else tables.BAD_VARINT, tables.ABSENT, i)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _length(self, i: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """A length, left in `number`; so many bytes follow."""
        if i < stop and self.p[i] < 0x80:
            self.number = self.p[i]
            i += 1
        else:
            i = self._short_number(i, stop)
        if i >= 0 and self.number > stop - i:
            return self._fail(tables.BAD_LENGTH, tables.ABSENT, i)
        return i

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _short_number(self, i: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """A tag or length of at most five bytes and 32 bits, left in `number`."""
        value: cython.longlong = 0
        byte: cython.longlong
        shift: cython.int = 0
        while i < stop and shift < 35:
            byte = self.p[i]
            i += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > _MASK32:
                    break
                self.number = value
                return i
            shift += 7
        return self._fail(
            tables.ENDS_EARLY if i >= stop and shift < 35 else tables.BAD_VARINT, tables.ABSENT, i
        )

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _unknown(
        self,
        at: cython.Py_ssize_t,
        tag: cython.longlong,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.Py_ssize_t:
        """Read over a field that the message type does not have, or has with another wire type."""
        i = self._skip_field(tag, i, stop, depth)
        if i < 0:
            return self._broken(at)
        return self._ignored(at, i)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _skip(
        self, how: cython.Py_ssize_t, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """As `_unknown`, for what most fields are; −1 for any other, and if anything is wrong."""
        length: cython.Py_ssize_t
        if how == tables.SKIP_BYTES:
            if i < stop:
                length = self.p[i]
                if length < 0x80 and length < stop - i:
                    return i + 1 + length
        elif how == tables.SKIP_NUMBER:
            if cython.compiled and self.size - i >= 8:
                length = skip_number(self.p + i)
                if 0 < length <= stop - i:
                    return i + length
        elif how == tables.SKIP_FOUR_BYTES:
            if stop - i >= 4:
                return i + 4
        elif how == tables.SKIP_EIGHT_BYTES and stop - i >= 8:
            return i + 8
        return -1

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _ignored(self, at: cython.Py_ssize_t, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Pass over a field of a message; upb drops an entry of a map that has such a field."""
        is_entry: cython.bint = at >= 0 and self.ops[at + tables.OPCODE] == tables.PROTO_ENTRY
        if is_entry and not self.is_canonical:
            return self._fail(tables.NOT_CANONICAL, self.ops[at + tables.NODE], i)
        return i

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _skip_field(
        self,
        tag: cython.longlong,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.Py_ssize_t:
        """The position behind a field whose tag was read."""
        kind: cython.longlong = tag & 7
        if tag < 8:
            return self._fail(tables.BAD_TAG, tables.ABSENT, i)
        if kind == 0:
            return self._number(i, stop)
        if kind == 3:
            return self._group(tag + 1, i, stop, depth + 1)
        if kind == 2:
            i = self._length(i, stop)
            return i + self.number if i >= 0 else -1
        if kind != 1 and kind != 5:
            return self._fail(tables.BAD_TAG, tables.ABSENT, i)
        i += 8 if kind == 1 else 4
        return i if i <= stop else self._fail(tables.ENDS_EARLY, tables.ABSENT, stop)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _group(
        self,
        end_tag: cython.longlong,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.Py_ssize_t:
        """Read over a group: the position behind it, and in `number` that of its end tag."""
        before: cython.Py_ssize_t
        if depth > tables.MAX_MESSAGE_DEPTH:
            return self._fail(tables.TOO_DEEP, tables.ABSENT, i)
        while i < stop:
            before = i
            i = self._short_number(i, stop)
            if i < 0:
                return -1
            if self.number == end_tag:
                self.number = before
                return i
            i = self._skip_field(self.number, i, stop, depth)
            if i < 0:
                return -1
        return self._fail(tables.ENDS_EARLY, tables.ABSENT, i)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _find(self, table: cython.Py_ssize_t, key: cython.longlong) -> cython.longlong:
        """The value of a key in a table, or `ABSENT`."""
        low: cython.Py_ssize_t = 0
        high: cython.Py_ssize_t = self.links[table + tables.SPARSE]
        middle: cython.Py_ssize_t
        if 0 <= key < self.links[table + tables.DENSE]:
            return self.links[table + tables.TABLE + key]
        table += tables.TABLE + self.links[table + tables.DENSE]
        while low < high:
            middle = (low + high) // 2
            if self.links[table + 2 * middle] == key:
                return self.links[table + 2 * middle + 1]
            if self.links[table + 2 * middle] < key:
                low = middle + 1
            else:
                high = middle
        return tables.ABSENT


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _lowest(bits: cython.longlong) -> cython.int:
    """The number of the lowest bit that is set; one is."""
    if cython.compiled:
        return lowest(bits)
    return (bits & -bits).bit_length() - 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _four_bytes(
    p: cython.pointer[cython.const[cython.uchar]], i: cython.Py_ssize_t
) -> cython.longlong:
    """An unsigned number, the lowest byte first."""
    if cython.compiled:
        return half_word(p + i)
    return int.from_bytes(p[i : i + 4], "little")


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _eight_bytes(
    p: cython.pointer[cython.const[cython.uchar]], i: cython.Py_ssize_t
) -> cython.longlong:
    """A signed number, the lowest byte first."""
    if cython.compiled:
        return word(p + i)
    return int.from_bytes(p[i : i + 8], "little", signed=True)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _low32(value: cython.longlong) -> cython.int:
    """The signed number that the lower 32 bits of another are."""
    if cython.compiled:
        return value
    return ((value & _MASK32) ^ 1 << 31) - (1 << 31)


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
def _signed(value: cython.ulonglong) -> cython.longlong:
    """The signed number that the lower 64 bits of another are."""
    if cython.compiled:
        return value
    return ((value & _MASK64) ^ 1 << 63) - (1 << 63)
