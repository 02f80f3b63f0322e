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
    from cython.cimports.arrow_io.core._bits import (
        copy_near,
        half_word,
        is_ascii_near,
        lowest,
        word,
    )
    from cython.cimports.arrow_io.payloads import _tables as tables
    from cython.cimports.arrow_io.payloads._arena_c import Arena
    from cython.cimports.arrow_io.payloads._protobuf_blocks import (
        over_number,
        take_number,
        take_numbers,
    )
else:
    from arrow_io.payloads import tables
    from arrow_io.payloads._arena_py import Arena

_MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_MASK32 = cython.declare(cython.longlong, 0xFFFFFFFF)
# As many as `MOST_BITS`.
_EVERY_BIT = cython.declare(cython.longlong, (1 << 62) - 1)


@cython.final
@cython.cclass
class Shredder(Arena):
    """Appends protobuf messages.

    Attributes:
        seconds: Seconds of the timestamp that is being read.
        nanoseconds: Its nanoseconds.
    """

    seconds: cython.longlong
    nanoseconds: cython.longlong

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _payload(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
        return self._message(0, start, stop, 0)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _message(
        self,
        at: cython.Py_ssize_t,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.Py_ssize_t:
        """Append the message `[i, stop)`, or the group that begins at `i`: the position behind it.

        Items of a list need not stand together: until the message ends, nothing else is appended to
        their node.
        """
        fields: cython.Py_ssize_t = self.ops[at + tables.A] + tables.TABLE
        end_tag: cython.longlong = self.ops[at + tables.B]
        count: cython.longlong = self.counts[self.ops[at + tables.NODE]]
        # Bits of fields: of those that stood here, and of those that stood here before.
        seen: cython.longlong = 0
        again: cython.longlong = 0
        bit: cython.longlong
        tag: cython.longlong
        field: cython.Py_ssize_t
        opcode: cython.longlong
        node: cython.Py_ssize_t
        start: cython.Py_ssize_t
        k: cython.longlong
        self.seconds = 0
        self.nanoseconds = 0
        while i < stop:
            tag = self.p[i]
            if tag < 0x80:
                field = self.links[fields + tag]
                i += 1
            else:
                i = self._short_number(i, stop)
                if i < 0:
                    return self._broken(at)
                tag = self.number
                field = self._find(fields - tables.TABLE, tag)
            if field < 0:
                if tag == end_tag:
                    end_tag = tables.ABSENT
                    break
                i = self._unknown(at, tag, i, stop, depth)
                if i < 0:
                    return -1
                continue
            bit = self.ops[field + tables.C]
            again |= seen & bit
            seen |= bit
            opcode = self.ops[field + tables.OPCODE]
            node = self.ops[field + tables.NODE]
            if opcode < tables.PROTO_STRING:
                if tag & 7 == 0:
                    i = self._number(i, stop)
                else:
                    i = self._fixed(tag, i, stop)
                if i < 0:
                    return self._broken(field)
                k = self._place(node)
                if k < 0:
                    return -1
                k += self.nodes[node * tables.NODE_WIDTH + tables.DATA]
                self._store(opcode, k, self.number)
            elif tag & 7 == 2:
                start = self._length(i, stop)
                if start < 0:
                    return self._broken(field)
                i = start + self.number
                if opcode == tables.PROTO_TIMESTAMP:
                    if not self._timestamp(field, start, i, depth + 1):
                        return -1
                elif opcode >= tables.PROTO_MESSAGE:
                    if self._message(field, start, i, depth + 1) < 0:
                        return -1
                elif opcode == tables.PROTO_PACKED:
                    if not self._packed(field, start, i):
                        return -1
                elif opcode == tables.PROTO_OTHER:
                    if not self._is_first(field):
                        return -1
                elif opcode == tables.PROTO_STRING and not self._is_plain_text(start, i):
                    return self._fail(tables.BAD_UTF8, node, start)
                elif not self._put_data(node, self.p, start, i - start, self.size - start):
                    return -1
            elif opcode == tables.PROTO_ENUM:
                i = self._field_of_enum(at, field, i, stop)
                if i < 0:
                    return -1
            else:
                i = self._field_of_other(field, tag, i, stop, depth)
                if i < 0:
                    return -1
        if end_tag != tables.ABSENT:
            return self._fail(tables.ENDS_EARLY, self.ops[at + tables.NODE], i)
        if seen ^ again == self.links[self.ops[at + tables.D] + tables.ALL]:
            return i if self._place(self.ops[at + tables.NODE]) >= 0 else -1
        return self._close(at, i, count, seen ^ again, depth)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _timestamp(
        self,
        at: cython.Py_ssize_t,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.bint:
        """Append a timestamp: at once if it has nothing but seconds and nanoseconds, in order."""
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
            return self._close(at, i, 0, 0, depth) >= 0
        return self._message(at, start, stop, depth) >= 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _field_of_other(
        self,
        at: cython.Py_ssize_t,
        tag: cython.longlong,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.Py_ssize_t:
        """Append a group, keep a part of a timestamp, or read over what is not asked for.

        Args:
            at: Op of the field.
            tag: Its tag.
            i: Where it stands, behind its tag.
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
        if opcode >= tables.PROTO_MESSAGE:
            return self._message(at, i, stop, depth + 1)
        i = self._read_over(tag, i, stop, depth)
        if i < 0:
            return self._broken(at)
        if opcode == tables.PROTO_OTHER and not self._is_first(at):
            return -1
        if opcode == tables.PROTO_RAW and not self._put_bytes(
            self.ops[at + tables.NODE], self.p, start, self.number - start
        ):
            return -1
        return i

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _field_of_enum(
        self,
        around: cython.Py_ssize_t,
        at: cython.Py_ssize_t,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Append the name of a number, to the message of op `around`."""
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        table: cython.Py_ssize_t = self.ops[at + tables.A]
        name: cython.longlong
        done: cython.bint
        i = self._number(i, stop)
        if i < 0:
            return self._broken(at)
        name = self._find(table, _low32(self.number))
        if name == tables.ABSENT and self.links[table + tables.MORE] != 0:
            return self._ignored(around, i)
        if name == tables.ABSENT:
            done = self._put_decimal_text(node, _low32(self.number))
        else:
            done = self._put_constant_here(node, name)
        return i if done else -1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _close(
        self,
        at: cython.Py_ssize_t,
        i: cython.Py_ssize_t,
        count: cython.longlong,
        once: cython.longlong,
        depth: cython.int,
    ) -> cython.Py_ssize_t:
        """Append what becomes of a message that ends at `i`, once all of its fields were appended.

        Fields left out become what `IF_MISSING` says. Only now it shows whether one stood twice:
        its node then has more than `count + 1` values, if `count` messages stood before this one.
        Those whose bits are in `once` need no look: they stood once.
        """
        opcode: cython.longlong = self.ops[at + tables.OPCODE]
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        more: cython.longlong = self.links[self.ops[at + tables.A] + tables.MORE]
        storage: cython.longlong = self.nodes[node * tables.NODE_WIDTH + tables.STORAGE]
        fields: cython.Py_ssize_t = self.ops[at + tables.D]
        left: cython.longlong = self.links[fields + tables.ALL] & ~once & _EVERY_BIT
        first: cython.Py_ssize_t = fields + tables.FIELDS
        lists: cython.Py_ssize_t = first + self.links[fields + tables.COUNT]
        link: cython.Py_ssize_t
        k: cython.longlong
        if opcode != tables.PROTO_MESSAGE or storage == tables.BYTE:
            if opcode == tables.PROTO_TIMESTAMP:
                return i if self._put_instant(node, self.seconds, self.nanoseconds, more, i) else -1
            if opcode == tables.PROTO_WRAPPER:
                return self._close_wrapper(node, i, count)
            if opcode == tables.PROTO_MESSAGE:
                return i if self._put(node, 1) else -1
            # An entry of a map has a value all the same.
            if (
                more != tables.ABSENT
                and self.counts[self.ops[more + tables.NODE]] == count
                and not self._empty_message(more, i, depth)
            ):
                return -1
        elif more != tables.ABSENT and not self._has_one_of_each(more, count):
            return self._fail(tables.NOT_CANONICAL, node, i)
        while left != 0:
            if not self._close_field(self.links[first + _lowest(left)], i, count):
                return -1
            left &= left - 1
        for link in range(first + tables.MOST_BITS, lists):
            if not self._close_field(self.links[link], i, count):
                return -1
        for link in range(lists, lists + self.links[fields + tables.LISTS]):
            node = self.links[link]
            k = self._place(node)
            if k < 0:
                return -1
            k += self.nodes[node * tables.NODE_WIDTH + tables.DATA]
            self.a32[k + 1] = self.counts[node + 1]
        return i if self._place(self.ops[at + tables.NODE]) >= 0 else -1

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _close_field(
        self, node: cython.Py_ssize_t, i: cython.Py_ssize_t, count: cython.longlong
    ) -> cython.bint:
        k: cython.longlong = self.counts[node]
        if k == count:
            return self._put_missing(node, node * tables.NODE_WIDTH)
        if k != count + 1:
            self._fail(tables.NOT_CANONICAL, node, i)
            return False
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _close_wrapper(
        self, node: cython.Py_ssize_t, i: cython.Py_ssize_t, count: cython.longlong
    ) -> cython.Py_ssize_t:
        """The value of a wrapper was appended with its field, if it has that."""
        if self.counts[node] == count:
            return i if self._put_zero(node) else -1
        if self.counts[node] != count + 1:
            return self._fail(tables.NOT_CANONICAL, node, i)
        return i

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_missing(self, node: cython.Py_ssize_t, at: cython.Py_ssize_t) -> cython.bint:
        """Append what a field becomes if its message does not have it."""
        missing: cython.longlong = self.nodes[at + tables.IF_MISSING]
        storage: cython.longlong = self.nodes[at + tables.STORAGE]
        k: cython.longlong
        place: cython.longlong
        if missing >= 0:
            return self._put_constant(node, missing)
        if storage == tables.STRUCT:
            return self._null(node)
        k = self._place(node)
        if k < 0:
            return False
        place = self.nodes[at + tables.DATA] + k
        if storage == tables.INT64:
            self.a64[place] = 0
        elif storage == tables.INT32:
            self.a32[place] = 0
        elif storage == tables.VARIABLE:
            self.a32[place + 1] = self.used[node]
        elif storage == tables.BYTE:
            self.a8[place] = 0
        else:
            self.a64[2 * place] = 0
            self.a64[2 * place + 1] = 0
        if missing != tables.ZERO:
            self.a8[self.nodes[at + tables.VALID] + k] = 0
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _empty_message(
        self, at: cython.Py_ssize_t, i: cython.Py_ssize_t, depth: cython.int
    ) -> cython.bint:
        """The message that an entry has if it has no value."""
        if self.ops[at + tables.OPCODE] == tables.PROTO_RAW:
            return self._put_zero(self.ops[at + tables.NODE])
        return self._message(at, i, i, depth + 1) >= 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _has_one_of_each(self, link: cython.Py_ssize_t, count: cython.longlong) -> cython.bint:
        """Whether no oneof of a message has two members, by the lists of their nodes."""
        last: cython.Py_ssize_t
        found: cython.longlong
        while self.links[link] > 0:
            last = link + self.links[link]
            found = 0
            while link < last:
                link += 1
                if self.counts[self.links[link]] != count:
                    found += 1
            if found > 1:
                return False
            link += 1
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_first(self, at: cython.Py_ssize_t) -> cython.bint:
        """Whether no other member of a oneof was there before the one that is not asked for."""
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        link: cython.Py_ssize_t = self.ops[at + tables.A]
        last: cython.Py_ssize_t = link + self.links[link]
        while link < last:
            link += 1
            if self.counts[self.links[link]] != self.counts[node]:
                self._fail(tables.NOT_CANONICAL, node, 0)
                return False
        return True

    # ------------------------------------------------------------------------
    # Values

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
        if opcode == tables.PROTO_INT32:
            self.a32[k] = _low32(value)
        elif opcode == tables.PROTO_INT64:
            self.a64[k] = value
        elif opcode == tables.PROTO_SINT32:
            self.a32[k] = _unzigzag(value & _MASK32)
        elif opcode == tables.PROTO_SINT64:
            self.a64[k] = _unzigzag(value & _MASK64)
        elif opcode == tables.PROTO_BOOL:
            self.a8[k] = value != 0
        elif opcode == tables.PROTO_UINT32:
            self.a64[k] = value & _MASK32
        elif opcode == tables.PROTO_UINT64:
            self.a64[2 * k] = value
            self.a64[2 * k + 1] = 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_data(
        self,
        node: cython.Py_ssize_t,
        source: cython.pointer[cython.const[cython.uchar]],
        start: cython.Py_ssize_t,
        length: cython.longlong,
        room: cython.longlong,
    ) -> cython.bint:
        """As `_put_bytes`, without a call; `room`: how many bytes may be read."""
        at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        k: cython.longlong = self.counts[node]
        used: cython.longlong = self.used[node]
        target: cython.longlong = self.nodes[at + tables.BYTES] + used
        if (
            k >= self.nodes[at + tables.CAPACITY]
            or length > self.nodes[at + tables.BYTES_CAPACITY] - used
        ):
            return self._put_bytes(node, source, start, length)
        self.counts[node] = k + 1
        self.used[node] = used + length
        self.a32[self.nodes[at + tables.DATA] + k + 1] = used + length
        if cython.compiled:
            room = min(room, self.nodes[at + tables.BYTES_CAPACITY] - used)
            copy_near(self.a8 + target, source + start, length, room)
        else:
            self.a8[target : target + length] = source[start : start + length]
        return True

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_constant_here(self, node: cython.Py_ssize_t, position: cython.longlong) -> cython.bint:
        """As `_put_constant`, without a call. 16 bytes stand behind the constants."""
        length: cython.longlong = position & _MASK32
        return self._put_data(node, self.constants, position >> 32, length, length + 16)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_plain_text(self, i: cython.Py_ssize_t, last: cython.Py_ssize_t) -> cython.bint:
        """Whether the bytes `[i, last)` are UTF-8, found out at once if they are ASCII."""
        if cython.compiled and is_ascii_near(self.p + i, last - i, self.size - i):
            return True
        return self._is_text(i, last)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_decimal_text(self, node: cython.Py_ssize_t, value: cython.longlong) -> cython.bint:
        """A number of 32 bits as text."""
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
        return self._close_bytes(node)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_zero(self, node: cython.Py_ssize_t) -> cython.bint:
        k: cython.longlong = self._slot(node)
        if k < 0:
            return False
        self._zero(node, k)
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _packed(
        self, at: cython.Py_ssize_t, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.bint:
        """Append numbers that stand one behind the other; the node's room is looked at once."""
        item: cython.Py_ssize_t = self.ops[at + tables.A]
        width: cython.longlong = self.ops[at + tables.B]
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        opcode: cython.longlong = self.ops[item + tables.OPCODE]
        first: cython.longlong = (
            self.nodes[node * tables.NODE_WIDTH + tables.DATA] + self.counts[node]
        )
        k: cython.longlong = first
        if opcode == tables.PROTO_ENUM:
            return self._packed_enum(item, i, stop)
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
        taken: cython.int
        while i < stop:
            if cython.compiled and k <= last and self.size - i >= 8:
                taken = take_numbers(p + i, min(stop - i, 8), a32 + k)
                if taken > 0:
                    i = min(i + 8, stop)
                    k += taken
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
        self, at: cython.Py_ssize_t, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.bint:
        while i < stop:
            i = self._field_of_enum(tables.ABSENT, at, i, stop)
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
        value: cython.longlong
        if stop - i >= 2:
            value = self.p[i]
            if value < 0x80:
                self.number = value
                return i + 1
            if self.p[i + 1] < 0x80:
                self.number = (value & 0x7F) | self.p[i + 1] << 7
                return i + 2
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
        if cython.compiled and self.size - i >= 8:
            shift = take_number(self.p + i, cython.address(self.number))
            if 0 < shift <= stop - i:
                return i + shift
            shift = 0
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
    @cython.inline
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
        behind: cython.Py_ssize_t = self._over_plain(tag, i, stop)
        if behind < 0:
            behind = self._read_over(tag, i, stop, depth)
            if behind < 0:
                return self._broken(at)
        return self._ignored(at, behind)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _over_plain(
        self, tag: cython.longlong, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """As `_read_over`, for what most fields are; −1 for any other, and if anything is wrong."""
        length: cython.Py_ssize_t
        if tag < 8 or i >= stop:
            return -1
        if tag & 7 == 2:
            length = self.p[i]
            return i + 1 + length if length < 0x80 and length < stop - i else -1
        if cython.compiled and tag & 7 == 0 and self.size - i >= 8:
            length = over_number(self.p + i)
            return i + length if 0 < length <= stop - i else -1
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
    def _read_over(
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
            i = self._read_over(self.number, i, stop, depth)
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
