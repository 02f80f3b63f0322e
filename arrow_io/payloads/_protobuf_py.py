# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True, freethreading_compatible=True
"""Protobuf's wire format, for proto2, proto3 and editions; see `_arena_py`.

It accepts and refuses what upb, the protobuf library's parser, does:

- A tag or a length has at most five bytes. Other numbers have at most ten, and bits above the 64th
  are ignored.
- A field with another wire type than the schema's is an unknown field.
- No field is required.
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
        skip_number,
        take_eight,
        take_number,
        take_numbers,
    )
    from cython.cimports.arrow_io.payloads._protobuf_steps import (
        choose_lanes,
        furthest_stop,
        most_lanes,
        put_bytes,
        put_instants,
        put_names,
        put_numbers,
        skip_fields,
        start_group,
        take_delimited,
        take_items,
        take_numbers_of_all,
    )
else:
    from arrow_io.payloads import tables
    from arrow_io.payloads._arena_py import Arena

_MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_MASK32 = cython.declare(cython.longlong, 0xFFFFFFFF)
# All `MAX_FIELD_BITS` bits.
_EVERY_BIT = cython.declare(cython.longlong, (1 << 62) - 1)
# Fewer payloads are not worth reading together, as a batch.
_MIN_BATCH = cython.declare(cython.Py_ssize_t, 8)
# Number of batches without another attempt after a failed one.
_PAUSE = cython.declare(cython.Py_ssize_t, 15)
# The same after steps that were slow: the next payloads are probably similar.
_LONG_PAUSE = cython.declare(cython.Py_ssize_t, 127)
# Steps pay off if at least one of so many lookups finds its field. A step has a fixed cost that
# equals that of `_STEP_LOOKUPS` lookups.
_LOOKUPS_PER_FIELD = cython.declare(cython.longlong, 3)
_STEP_LOOKUPS = cython.declare(cython.longlong, 8)
# Maximum number of messages that a processor reads at once.
_LANES = cython.declare(cython.Py_ssize_t, 8)
# Cache lines that each step prefetches.
_LINES_PER_STEP = cython.declare(cython.Py_ssize_t, 12)
# Readable bytes that are required after a message: a tag and a word.
_PADDING_BYTES = cython.declare(cython.Py_ssize_t, 16)
# The bit of a map entry's value.
_VALUE_BIT = cython.declare(cython.longlong, 2)

if cython.compiled:
    choose_lanes(most_lanes())


def choose_steps(most: cython.int) -> int:
    """Choose how many messages steps read at once, at most `most`; return the number.

    If `most` is 1, steps use only instructions that every processor supports.
    """
    return choose_lanes(most) if cython.compiled else 1


@cython.final
@cython.cclass
class Shredder(Arena):
    """A shredder for protobuf messages.

    All fields of a message store their values in the same row of their nodes. So only nodes of
    items are counted while they are filled; `_settle_counts` sets the other counts after some
    payloads. Fields that a message omits are zero or null in advance (`blank_fields`).

    Attributes:
        column_pause: Number of batches not to try by columns, after one that failed.
        step_pause: Number of batches not to try in steps, after one that failed or was slow.
        lookups: Number of lookups of a step's field in a message, in this batch.
        hits: Number of these lookups that found the field.
        next_read: Start of the bytes to prefetch next.
        prefetch_stop: End of the bytes to prefetch.
    """

    seconds: cython.longlong
    nanoseconds: cython.longlong
    column_pause: cython.longlong
    step_pause: cython.longlong
    lookups: cython.longlong
    hits: cython.longlong
    next_read: cython.longlong
    prefetch_stop: cython.longlong

    def reset(self) -> None:
        """Forget all payloads, so that the arena can be used for other ones."""
        Arena.reset(self)
        self.column_pause = 0
        self.step_pause = 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_payload(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
        k: cython.longlong = self._take_slot_inline(0)
        return self._read_message(0, k, start, stop, 0) if k >= 0 else -1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _settle_counts(self) -> cython.void:
        """Set the counts of fields in structs to that of the struct."""
        node: cython.Py_ssize_t
        child: cython.Py_ssize_t
        has_null: cython.bint
        for node in range(self.node_count):
            if self.nodes[node * tables.NODE_WIDTH + tables.STORAGE] == tables.STRUCT:
                child = node + 1
                has_null = self._has_new_null(node)
                while child < self.nodes[node * tables.NODE_WIDTH + tables.STOP]:
                    self._settle_field_count(node, child, has_null)
                    child = self.nodes[child * tables.NODE_WIDTH + tables.STOP]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _has_new_null(self, node: cython.Py_ssize_t) -> cython.bint:
        """Return whether a struct that may be null is so in a row that its fields lack yet."""
        at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        valid: cython.Py_ssize_t = self.nodes[at + tables.VALID]
        a8: cython.pointer[cython.uchar] = self.a8
        nulls: cython.int = 0
        k: cython.longlong
        if self.nodes[at + tables.IF_MISSING] == tables.NULL:
            for k in range(
                self.counts[node + 1], min(self.counts[node], self.nodes[at + tables.CAPACITY])
            ):
                nulls |= a8[valid + k] ^ 1
        return nulls != 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _settle_field_count(
        self, node: cython.Py_ssize_t, child: cython.Py_ssize_t, has_null: cython.bint
    ) -> cython.void:
        """Set a field's count; make it null where its struct is, and fill gaps in its offsets."""
        at: cython.Py_ssize_t = child * tables.NODE_WIDTH
        storage: cython.longlong = self.nodes[at + tables.STORAGE]
        first: cython.longlong = self.counts[child]
        stop: cython.longlong = min(self.counts[node], self.nodes[at + tables.CAPACITY])
        valid: cython.Py_ssize_t = self.nodes[at + tables.VALID]
        struct_valid: cython.Py_ssize_t = self.nodes[node * tables.NODE_WIDTH + tables.VALID]
        data: cython.Py_ssize_t = self.nodes[at + tables.DATA]
        k: cython.longlong
        last: cython.int
        gaps: cython.int = 0
        a8: cython.pointer[cython.uchar] = self.a8
        a32: cython.pointer[cython.int] = self.a32
        self.counts[child] = self.counts[node]
        if has_null:
            for k in range(first, stop):
                a8[valid + k] &= a8[struct_valid + k]
        if storage == tables.VARIABLE or storage == tables.LIST:
            for k in range(first, stop):
                gaps |= a32[data + k + 1] < a32[data + k]
            if gaps == 0:
                return
            last = a32[data + first]
            for k in range(first + 1, stop + 1):
                last = max(last, a32[data + k])
                a32[data + k] = last

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _blank_rolled_back(self) -> cython.void:
        """Blank the rows of structs that were rolled back."""
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
    def _read_message(
        self,
        at: cython.Py_ssize_t,
        k: cython.longlong,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.Py_ssize_t:
        """Fill row `k` with the message `[i, stop)`, or with the group that starts at `i`.

        Returns the position after it, or −1.
        """
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        ops: cython.pointer[cython.const[cython.longlong]] = self.ops
        links: cython.pointer[cython.const[cython.longlong]] = self.links
        fields: cython.Py_ssize_t = ops[at + tables.A] + tables.TABLE
        end_tag: cython.longlong = ops[at + tables.B]
        # Bits of the fields that were seen, and of those that were seen more than once.
        field_bits: cython.longlong = 0
        repeated_bits: cython.longlong = 0
        bit: cython.longlong
        tag: cython.longlong
        field: cython.Py_ssize_t
        opcode: cython.longlong
        node: cython.Py_ssize_t
        start: cython.Py_ssize_t
        row: cython.longlong
        self.seconds = 0
        self.nanoseconds = 0
        if links[ops[at + tables.D] + tables.MARKS] != tables.ABSENT:
            self._clear_marks(ops[at + tables.D])
        while i < stop:
            tag = p[i]
            if tag < 0x80:
                field = links[fields + tag]
                i += 1
            elif i + 1 < stop and p[i + 1] < 0x80:
                tag = tag & 0x7F | p[i + 1] << 7
                field = self._find(fields - tables.TABLE, tag)
                i += 2
            else:
                i = self._read_short_number(i, stop)
                if i < 0:
                    return self._fail_in(at)
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
                i = self._skip_unknown(at, tag, i, stop, depth)
                if i < 0:
                    return -1
                continue
            bit = ops[field + tables.C]
            # Marks are no bits.
            repeated_bits |= field_bits & bit & ~(bit >> 63)
            field_bits |= bit & ~(bit >> 63)
            opcode = ops[field + tables.OPCODE]
            node = ops[field + tables.NODE]
            if opcode < tables.PROTO_STRING:
                if tag & 7 == 0:
                    i = self._read_number(i, stop)
                else:
                    i = self._read_fixed(tag, i, stop)
                if i < 0:
                    return self._fail_in(field)
                row = self._take_row(node, bit, k)
                if row < 0:
                    return -1
                row += self.nodes[node * tables.NODE_WIDTH + tables.DATA]
                self._store(opcode, row, self.number)
            elif tag & 7 == 2:
                start = self._read_length(i, stop)
                if start < 0:
                    return self._fail_in(field)
                i = start + self.number
                if opcode == tables.PROTO_PACKED:
                    if not self._put_packed(field, k, start, i):
                        return -1
                    continue
                if opcode == tables.PROTO_OTHER:
                    if not self._is_first(field, field_bits):
                        return -1
                    continue
                row = self._take_row(node, bit, k)
                if row < 0:
                    return -1
                if opcode < tables.PROTO_MESSAGE:
                    if not self._put_data(opcode, node, row, start, i - start):
                        return -1
                elif opcode == tables.PROTO_TIMESTAMP:
                    if not self._put_timestamp(field, row, start, i, depth + 1):
                        return -1
                elif self._read_message(field, row, start, i, depth + 1) < 0:
                    return -1
            elif opcode == tables.PROTO_ENUM:
                i = self._read_enum_field(at, field, k, i, stop)
                if i < 0:
                    return -1
                if self.number == tables.ABSENT and bit > 0 and repeated_bits & bit == 0:
                    field_bits ^= bit
            else:
                i = self._read_other_field(field, tag, field_bits, k, i, stop, depth)
                if i < 0:
                    return -1
        if end_tag != tables.ABSENT:
            return self._fail(tables.ENDS_EARLY, ops[at + tables.NODE], i)
        bit = field_bits & links[ops[at + tables.D] + tables.ONEOF]
        if (
            repeated_bits == 0
            and links[ops[at + tables.D] + tables.NEEDED] & ~field_bits == 0
            and bit & (bit - 1) == 0
        ):
            return i
        return self._close(at, k, i, field_bits, repeated_bits, depth)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_timestamp(
        self,
        at: cython.Py_ssize_t,
        k: cython.longlong,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.bint:
        """Put a timestamp, fastest if it has only seconds and nanoseconds, in this order."""
        start: cython.Py_ssize_t = i
        self.seconds = 0
        self.nanoseconds = 0
        if 0 <= i < stop and self.p[i] == 0x08:
            i = self._read_number(i + 1, stop)
            self.seconds = self.number
        if 0 <= i < stop and self.p[i] == 0x10:
            i = self._read_number(i + 1, stop)
            self.nanoseconds = _low32(self.number)
        if i == stop:
            return self._close_timestamp(at, k, i)
        return self._read_message(at, k, start, stop, depth) >= 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _close_timestamp(
        self, at: cython.Py_ssize_t, k: cython.longlong, i: cython.Py_ssize_t
    ) -> cython.bint:
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        units: cython.longlong = self.links[self.ops[at + tables.A] + tables.MORE]
        if not self._convert_instant(node, self.seconds, self.nanoseconds, units, i):
            return False
        self.a64[self.nodes[node * tables.NODE_WIDTH + tables.DATA] + k] = self.number
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_other_field(
        self,
        at: cython.Py_ssize_t,
        tag: cython.longlong,
        field_bits: cython.longlong,
        k: cython.longlong,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.Py_ssize_t:
        """Put a group, set a part of a timestamp, or skip a field outside the projection.

        `i` is the position after the tag, and `k` the row of the message. `field_bits` are the bits
        of the fields that were seen in it, including this one; `depth` is the number of messages
        around it.
        """
        opcode: cython.longlong = self.ops[at + tables.OPCODE]
        start: cython.Py_ssize_t = i
        if opcode == tables.PROTO_PART:
            i = self._read_number(i, stop)
            if i < 0:
                return self._fail_in(at)
            if self.ops[at + tables.A] == 0:
                self.seconds = self.number
            else:
                self.nanoseconds = _low32(self.number)
            return i
        if opcode == tables.PROTO_RAW or opcode >= tables.PROTO_MESSAGE:
            k = self._take_row(self.ops[at + tables.NODE], self.ops[at + tables.C], k)
            if k < 0:
                return -1
        if opcode >= tables.PROTO_MESSAGE:
            return self._read_message(at, k, i, stop, depth + 1)
        i = self._skip_field(tag, i, stop, depth)
        if i < 0:
            return self._fail_in(at)
        if opcode == tables.PROTO_OTHER and not self._is_first(at, field_bits):
            return -1
        if opcode == tables.PROTO_RAW and not self._put_data(
            opcode, self.ops[at + tables.NODE], k, start, self.number - start
        ):
            return -1
        return i

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_enum_field(
        self,
        message_at: cython.Py_ssize_t,
        at: cython.Py_ssize_t,
        k: cython.longlong,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Put the name of a number in row `k` of the message of op `message_at`.

        Sets `number` to `ABSENT` if a closed enum lacks the number: the field then counts as
        unknown.
        """
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        table: cython.Py_ssize_t = self.ops[at + tables.A]
        name: cython.longlong
        is_put: cython.bint
        i = self._read_number(i, stop)
        if i < 0:
            return self._fail_in(at)
        name = self._find(table, _low32(self.number))
        if name == tables.ABSENT and self.links[table + tables.MORE] != 0:
            self.number = tables.ABSENT
            return self._ignore_field(message_at, i)
        k = self._take_row(node, self.ops[at + tables.C], k)
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
        repeated_bits: cython.longlong,
        depth: cython.int,
    ) -> cython.Py_ssize_t:
        """Finish row `k` of a message that ends at `i`: fill omitted fields that are not blank.

        `field_bits` are the bits of the fields that were seen, `repeated_bits` of those that were
        seen more than once. `depth` is the number of messages around it.
        """
        nodes: cython.pointer[cython.const[cython.longlong]] = self.nodes
        links: cython.pointer[cython.const[cython.longlong]] = self.links
        opcode: cython.longlong = self.ops[at + tables.OPCODE]
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        more: cython.longlong = links[self.ops[at + tables.A] + tables.MORE]
        fields: cython.Py_ssize_t = self.ops[at + tables.D]
        missing_bits: cython.longlong = links[fields + tables.NEEDED] & ~field_bits & _EVERY_BIT
        first: cython.Py_ssize_t = fields + tables.FIELDS
        if opcode == tables.PROTO_TIMESTAMP:
            return i if self._close_timestamp(at, k, i) else -1
        if opcode == tables.PROTO_MESSAGE:
            if nodes[node * tables.NODE_WIDTH + tables.STORAGE] == tables.BYTE:
                self.a8[nodes[node * tables.NODE_WIDTH + tables.DATA] + k] = 1
                return i
            if more != tables.ABSENT and not self._has_one_of_each(more, field_bits):
                return self._fail(tables.NOT_CANONICAL, node, i)
        if repeated_bits & _EVERY_BIT != 0:
            return self._fail(tables.NOT_CANONICAL, node, i)
        if opcode == tables.PROTO_WRAPPER:
            if field_bits == 0:
                self._zero(node, k)
            return i
        if (
            opcode == tables.PROTO_ENTRY
            and more != tables.ABSENT
            and missing_bits & _VALUE_BIT != 0
        ):
            # A map entry without a value has an empty message.
            if not self._empty_message(more, k, i, depth):
                return -1
            missing_bits ^= _VALUE_BIT
        if links[fields + tables.MARKS] != tables.ABSENT:
            return i if self._put_unmarked(fields, k) else -1
        return i if self._put_missing(first, missing_bits, k) else -1

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_missing(
        self, first: cython.Py_ssize_t, missing_bits: cython.longlong, k: cython.longlong
    ) -> cython.bint:
        """Put the constants of missing fields; the link of the node of the first bit is `first`."""
        node: cython.Py_ssize_t
        while missing_bits != 0:
            node = self.links[first + _lowest_bit(missing_bits)]
            if not self._put_constant_in(
                node, k, self.nodes[node * tables.NODE_WIDTH + tables.IF_MISSING]
            ):
                return False
            missing_bits &= missing_bits - 1
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _clear_marks(self, fields: cython.Py_ssize_t) -> cython.void:
        first: cython.Py_ssize_t = self.links[fields + tables.MARKS]
        n: cython.Py_ssize_t
        for n in range(_mark_hints(self.links[fields + tables.COUNT])):
            self.hints[first + n] = 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_unmarked(self, fields: cython.Py_ssize_t, k: cython.longlong) -> cython.bint:
        """Put the constants of missing fields that have marks."""
        marks: cython.Py_ssize_t = self.links[fields + tables.MARKS]
        count: cython.Py_ssize_t = self.links[fields + tables.COUNT]
        needed: cython.Py_ssize_t = fields + tables.FIELDS + count
        first: cython.Py_ssize_t = fields + tables.FIELDS
        n: cython.Py_ssize_t
        for n in range(_mark_hints(count)):
            if not self._put_missing(
                first + n * tables.MARKS_PER_HINT,
                self.links[needed + n] & ~self.hints[marks + n],
                k,
            ):
                return False
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
        """Put the empty message of a map entry without a value."""
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        self.a8[self.nodes[node * tables.NODE_WIDTH + tables.VALID] + k] = 1
        if self.ops[at + tables.OPCODE] == tables.PROTO_RAW:
            return True
        return self._read_message(at, k, i, i, depth + 1) >= 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _has_one_of_each(self, link: cython.Py_ssize_t, field_bits: cython.longlong) -> cython.bint:
        """Return whether no oneof of a message has two members that were seen."""
        n: cython.Py_ssize_t
        count: cython.longlong = self.links[link]
        link += 1
        for n in range(count):
            if self._count_members(link, field_bits) > 1:
                return False
            link += 2 + self.links[link + 1]
        return True

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _count_members(
        self, link: cython.Py_ssize_t, field_bits: cython.longlong
    ) -> cython.longlong:
        """Count the members of a oneof that were seen in the message; 2 may mean more."""
        bits: cython.longlong = self.links[link] & field_bits
        count: cython.longlong = 0
        item: cython.Py_ssize_t
        if bits != 0:
            count = 1 if bits & (bits - 1) == 0 else 2
        for item in range(link + 2, link + 2 + self.links[link + 1]):
            count += self._is_marked(self.links[item])
        return count

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_marked(self, mark: cython.longlong) -> cython.bint:
        return self.hints[mark // tables.MARKS_PER_HINT] >> mark % tables.MARKS_PER_HINT & 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_first(self, at: cython.Py_ssize_t, field_bits: cython.longlong) -> cython.bint:
        """Return whether no other member of the oneof was seen before this skipped one."""
        if self._count_members(self.ops[at + tables.A], field_bits) == 0:
            return True
        self._fail(tables.NOT_CANONICAL, self.ops[at + tables.NODE], 0)
        return False

    # ------------------------------------------------------------------------
    # Columns: only in the compiled build, where a mispredicted branch costs more than the work that
    # it selects. The next field of a message is unpredictable, but all values of one column are
    # handled alike.

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _append_batch(
        self,
        positions: cython.pointer[cython.const[cython.longlong]],
        count: cython.Py_ssize_t,
    ) -> cython.bint:
        """Append payloads in steps or by columns, unless one of them is unusual.

        Steps are used if most fields are present and in order. Columns need two passes: the first
        finds the fields of all messages with almost no unpredictable branches, the second fills
        each column.
        """
        fields: cython.Py_ssize_t = self.ops[tables.D]
        if count < _MIN_BATCH or not self._can_be_batched(positions, count):
            return False
        if self.step_pause > 0:
            self.step_pause -= 1
        elif self.links[fields + tables.STEPS] != tables.ABSENT:
            self.lookups = 0
            self.hits = 0
            if self._append_in_steps(positions, count) and self.code == tables.OK:
                if self.hits * _LOOKUPS_PER_FIELD < self.lookups:
                    self.step_pause = _LONG_PAUSE
                return True
            self.step_pause = _PAUSE
            self._restart()
        if self.links[fields + tables.COLUMNS] == tables.ABSENT:
            return False
        if self.column_pause > 0:
            self.column_pause -= 1
            return False
        if self._append_by_columns(positions, count) and self.code == tables.OK:
            return True
        self.column_pause = _PAUSE
        self._restart()
        return False

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _can_be_batched(
        self,
        positions: cython.pointer[cython.const[cython.longlong]],
        count: cython.Py_ssize_t,
    ) -> cython.bint:
        """Return whether no payload is missing, and enough readable bytes follow each."""
        stop: cython.longlong = furthest_stop(positions, count)
        return stop != tables.ABSENT and self.size - stop >= _PADDING_BYTES

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _append_by_columns(
        self,
        positions: cython.pointer[cython.const[cython.longlong]],
        count: cython.Py_ssize_t,
    ) -> cython.bint:
        row: cython.Py_ssize_t
        start: cython.longlong
        k: cython.longlong
        self._reset_tokens(0)
        for row in range(count):
            k = self._take_slot_inline(0)
            if k < 0:
                return False
            start = positions[row] >> 32
            if not self._find_tokens(0, k, start, start + (positions[row] & _MASK32)):
                return False
        return self._fill_columns(0, 0)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _reset_tokens(self, at: cython.Py_ssize_t) -> cython.void:
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
    def _find_tokens(
        self,
        at: cython.Py_ssize_t,
        k: cython.longlong,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
    ) -> cython.bint:
        """Find the fields of the message `[i, stop)`, which fills row `k`.

        A token is `row << 32 | position`, the position of the value after a tag.
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
        repeated_bits: cython.longlong = 0
        member_bits: cython.longlong
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
            repeated_bits |= field_bits & op[tables.C]
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
                # Negative numbers have ten bytes.
                i = self._read_long_number(i, stop)
                if i < 0:
                    return False
            elif tag & 7 == 1:
                i += 8
            else:
                i += 4
        if i != stop or repeated_bits != 0:
            return False
        member_bits = field_bits & self.links[fields + tables.ONEOF]
        if member_bits & (member_bits - 1) != 0:
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
    def _fill_columns(self, at: cython.Py_ssize_t, depth: cython.int) -> cython.bint:
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
                self._fill_numbers(field, count)
            elif opcode == tables.PROTO_ENUM:
                if not self._fill_names(field, count):
                    return False
            elif not self._fill_delimited(field, count, depth + 1):
                return False
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _fill_numbers(self, at: cython.Py_ssize_t, count: cython.longlong) -> cython.void:
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        tokens: cython.pointer[cython.longlong] = self.hints + self.ops[at + tables.E] + 1
        opcode: cython.longlong = self.ops[at + tables.OPCODE]
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        data: cython.Py_ssize_t = self.nodes[node * tables.NODE_WIDTH + tables.DATA]
        valid: cython.Py_ssize_t = self.nodes[node * tables.NODE_WIDTH + tables.VALID]
        a8: cython.pointer[cython.uchar] = self.a8
        # All tokens have the same tag.
        kind: cython.int = p[(tokens[0] & _MASK32) - 1] & 7
        number: cython.longlong = 0
        i: cython.longlong
        n: cython.Py_ssize_t
        k: cython.longlong
        for n in range(count):
            i = tokens[n] & _MASK32
            # The field has a bit: lists are read by columns only if they are packed.
            k = tokens[n] >> 32
            a8[valid + k] = 1
            if kind == 1:
                number = word(p + i)
            elif kind == 5:
                number = half_word(p + i)
            elif p[i] < 0x80:
                number = p[i]
            elif take_number(p + i, cython.address(number)) == 0:
                self._read_long_number(i, self.size)
                number = self.number
            self._store(opcode, data + k, number)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _fill_names(self, at: cython.Py_ssize_t, count: cython.longlong) -> cython.bint:
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
                self._read_enum_field(tables.ABSENT, at, tokens[n] >> 32, i, self.size) < 0
                or self.number == tables.ABSENT
            ):
                return False
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _fill_delimited(
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
            self._reset_tokens(at)
        for n in range(count):
            start = self._read_length(tokens[n] & _MASK32, self.size)
            if start < 0:
                return False
            stop = start + self.number
            k = tokens[n] >> 32
            if opcode == tables.PROTO_PACKED:
                if not self._put_packed(at, k, start, stop):
                    return False
                continue
            k = self._take_row(node, bit, k)
            if k < 0:
                return False
            if opcode < tables.PROTO_MESSAGE:
                if not self._put_data(opcode, node, k, start, stop - start):
                    return False
            elif opcode == tables.PROTO_TIMESTAMP:
                if not self._put_timestamp(at, k, start, stop, depth):
                    return False
            elif not self._find_tokens(at, k, start, stop):
                return False
        return not has_columns or self._fill_columns(at, depth)

    # ------------------------------------------------------------------------
    # Steps: most writers order the fields of a message by their numbers. So messages are read
    # together, field by field. Each step does the same work for all messages; whether a message has
    # the field needs no branch; and no message depends on another.

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _append_in_steps(
        self,
        positions: cython.pointer[cython.const[cython.longlong]],
        count: cython.Py_ssize_t,
    ) -> cython.bint:
        group: cython.pointer[cython.longlong] = self._message_group(0)
        if self.nodes[tables.CAPACITY] - self.counts[0] < count:
            return False
        start_group(positions, count, self.counts[0], group)
        self.counts[0] += count
        # Prefetch the payloads after these.
        self.next_read = group[tables.STOPS + count - 1]
        self.prefetch_stop = min(self.size, 2 * self.next_read - group[0])
        return self._read_in_steps(0, count, 0)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _message_group(self, at: cython.Py_ssize_t) -> cython.pointer[cython.longlong]:
        return self.hints + self.links[self.links[self.ops[at + tables.D] + tables.STEPS] + 1]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_in_steps(
        self, at: cython.Py_ssize_t, count: cython.Py_ssize_t, depth: cython.int
    ) -> cython.bint:
        """Fill the rows of a group's first messages, unless one of them is unusual."""
        fields: cython.Py_ssize_t = self.ops[at + tables.D]
        oneof: cython.longlong = self.links[fields + tables.ONEOF]
        link: cython.Py_ssize_t = self.links[fields + tables.STEPS]
        last: cython.Py_ssize_t = link + 2 + tables.STEP_WIDTH * self.links[link]
        group: cython.pointer[cython.longlong] = self._message_group(at)
        unread: cython.longlong = 0
        n: cython.Py_ssize_t
        if count == 0:
            return True
        self.lookups += (count + _STEP_LOOKUPS) * self.links[link]
        if oneof != 0:
            for n in range(count):
                group[tables.MEMBERS + n] = 0
        link += 2
        while link < last:
            if self.ops[self.links[link] + tables.C] & oneof != 0 and not self._is_one_member(
                link, group, count
            ):
                return False
            self._prefetch_lines()
            if not self._read_step(link, group, count, depth):
                return False
            link += tables.STEP_WIDTH
        for n in range(count):
            unread |= group[n] ^ group[tables.STOPS + n]
        return unread == 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _prefetch_lines(self) -> cython.void:
        """Prefetch some of the next bytes; all at once would take as long as reading them."""
        stop: cython.longlong = min(
            self.next_read + _LINES_PER_STEP * CACHE_LINE_BYTES, self.prefetch_stop
        )
        while self.next_read < stop:
            prefetch(self.p + self.next_read)
            self.next_read += CACHE_LINE_BYTES

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_one_member(
        self,
        link: cython.Py_ssize_t,
        group: cython.pointer[cython.longlong],
        count: cython.Py_ssize_t,
    ) -> cython.bint:
        """Return whether this field is the first seen of its oneof in each message that has it."""
        n: cython.Py_ssize_t
        several: cython.longlong = 0
        for n in range(count):
            group[tables.MEMBERS + n] += self._has_field_at(link, group[n], group[tables.STOPS + n])
            several |= group[tables.MEMBERS + n]
        return several < 2

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _has_field_at(
        self, link: cython.Py_ssize_t, i: cython.longlong, stop: cython.longlong
    ) -> cython.bint:
        """Return whether the field of a step is at `i`."""
        tag: cython.longlong = self.links[link + tables.STEP_TAG]
        return i < stop and word(self.p + i) & self.links[link + tables.STEP_MASK] == tag

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_step(
        self,
        link: cython.Py_ssize_t,
        group: cython.pointer[cython.longlong],
        count: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.bint:
        at: cython.Py_ssize_t = self.links[link]
        opcode: cython.longlong = self.ops[at + tables.OPCODE]
        node: cython.Py_ssize_t = self.ops[at + tables.NODE] * tables.NODE_WIDTH
        is_item: cython.bint = self.ops[at + tables.C] == 0
        blank: cython.int
        hits: cython.longlong
        value_group: cython.pointer[cython.longlong]
        valid: cython.pointer[cython.uchar]
        if opcode == tables.PROTO_SKIPPED:
            return self._skip_in_step(link, group, count, depth)
        valid = self.a8 + self.nodes[node + tables.VALID]
        blank = self.nodes[node + tables.IF_MISSING] != tables.NULL
        if opcode < tables.PROTO_STRING:
            hits = self._put_numbers_in_step(link, group, count, valid, blank)
        elif opcode == tables.PROTO_ENUM:
            hits = take_numbers_of_all(self.p, group, count, self.links + link, self.hints)
            if hits >= 0 and not self._put_names_in_step(at, group + tables.ROWS, count, valid):
                return False
        elif is_item and opcode != tables.PROTO_PACKED:
            return self._read_items_in_step(link, group, count, depth)
        else:
            value_group = self._value_group(at)
            if is_item:
                valid = cython.NULL
            hits = take_delimited(
                self.p, group, count, self.links + link, valid, blank, value_group
            )
            if hits >= 0 and not self._read_values(at, value_group, hits, depth):
                return False
        self.hits += hits
        return hits >= 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _value_group(self, at: cython.Py_ssize_t) -> cython.pointer[cython.longlong]:
        """Return where the values of a field are recorded until they are read."""
        opcode: cython.longlong = self.ops[at + tables.OPCODE]
        if opcode == tables.PROTO_MESSAGE or opcode == tables.PROTO_ENTRY:
            return self._message_group(at)
        # All other fields share the first hints.
        return self.hints

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_numbers_in_step(
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
    def _put_names_in_step(
        self,
        at: cython.Py_ssize_t,
        rows: cython.pointer[cython.const[cython.longlong]],
        count: cython.Py_ssize_t,
        valid: cython.pointer[cython.uchar],
    ) -> cython.bint:
        """Put the names of the numbers in the first hints, in these rows."""
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        table: cython.Py_ssize_t = self.ops[at + tables.B]
        place: cython.Py_ssize_t = node * tables.NODE_WIDTH
        missing: cython.longlong = self.nodes[place + tables.IF_MISSING]
        n: cython.Py_ssize_t = 0
        while n < count:
            n = put_names(
                self.hints,
                rows,
                n,
                count,
                self.links + table,
                self.constants,
                missing,
                valid,
                self.a8 + self.nodes[place + tables.BYTES],
                self.nodes[place + tables.BYTES_CAPACITY],
                self.used + node,
                self.a32 + self.nodes[place + tables.DATA] + 1,
            )
            if n < count:
                if self.hints[tables.STOPS + n] == 0:
                    if missing >= 0 and not self._put_constant_in(node, rows[n], missing):
                        return False
                elif not self._put_name(at, rows[n], self.hints[n]):
                    return False
                else:
                    valid[rows[n]] = 1
                n += 1
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_name(
        self, at: cython.Py_ssize_t, k: cython.longlong, number: cython.longlong
    ) -> cython.bint:
        """Put the name of a number, or its digits, unless a closed enum lacks it."""
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        table: cython.Py_ssize_t = self.ops[at + tables.A]
        name: cython.longlong = self._find(table, number)
        if name != tables.ABSENT:
            return self._put_constant_in(node, k, name)
        return self.links[table + tables.MORE] == 0 and self._put_decimal_text(node, k, number)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_items_in_step(
        self,
        link: cython.Py_ssize_t,
        group: cython.pointer[cython.longlong],
        count: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.bint:
        """Read the items of unpacked lists, those of all messages together."""
        at: cython.Py_ssize_t = self.links[link]
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        size: cython.longlong = self.links[link + tables.STEP_BYTES]
        value_group: cython.pointer[cython.longlong] = self._value_group(at)
        hits: cython.longlong = 0
        i: cython.longlong
        stop: cython.longlong
        k: cython.longlong
        n: cython.Py_ssize_t = 0
        last: cython.Py_ssize_t
        while n < count:
            n = take_items(
                self.p,
                group,
                n,
                count,
                self.links + link,
                value_group,
                cython.address(hits),
                self.counts + node,
                self.nodes[node * tables.NODE_WIDTH + tables.CAPACITY],
                self.a32 + self.nodes[(node - 1) * tables.NODE_WIDTH + tables.DATA] + 1,
            )
            last = min(n + _LANES, count)
            while n < last:
                i = group[n]
                stop = group[tables.STOPS + n]
                while self._has_field_at(link, i, stop):
                    if hits == tables.GROUP:
                        if not self._read_values(at, value_group, hits, depth):
                            return False
                        self.hits += hits
                        hits = 0
                    i = self._read_length(i + size, stop)
                    k = self._take_slot_inline(node)
                    if i < 0 or k < 0:
                        return False
                    value_group[hits] = i
                    i += self.number
                    value_group[tables.STOPS + hits] = i
                    value_group[tables.ROWS + hits] = k
                    hits += 1
                self._end_list(node, group[tables.ROWS + n])
                group[n] = i
                n += 1
        self.hits += hits
        return self._read_values(at, value_group, hits, depth)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_values(
        self,
        at: cython.Py_ssize_t,
        value_group: cython.pointer[cython.longlong],
        value_count: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.bint:
        """Read the recorded values of a field, each with its start, end and row."""
        opcode: cython.longlong = self.ops[at + tables.OPCODE]
        i: cython.Py_ssize_t
        stop: cython.Py_ssize_t
        k: cython.longlong
        n: cython.Py_ssize_t
        if opcode == tables.PROTO_MESSAGE or opcode == tables.PROTO_ENTRY:
            return self._read_in_steps(at, value_count, depth + 1)
        if opcode < tables.PROTO_MESSAGE and opcode != tables.PROTO_PACKED:
            return self._put_values(at, value_group, value_count)
        if opcode == tables.PROTO_TIMESTAMP:
            return self._put_timestamps(at, value_group, value_count, depth + 1)
        for n in range(value_count):
            i = value_group[n]
            stop = value_group[tables.STOPS + n]
            k = value_group[tables.ROWS + n]
            if not self._put_packed(at, k, i, stop):
                return False
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_timestamps(
        self,
        at: cython.Py_ssize_t,
        value_group: cython.pointer[cython.longlong],
        value_count: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.bint:
        """Put all recorded timestamps as `_put_timestamp` does."""
        place: cython.Py_ssize_t = self.ops[at + tables.NODE] * tables.NODE_WIDTH
        units: cython.longlong = self.links[self.ops[at + tables.A] + tables.MORE]
        n: cython.Py_ssize_t = 0
        last: cython.Py_ssize_t
        while n < value_count:
            n = put_instants(
                self.p,
                value_group,
                n,
                value_count,
                units,
                self.a64 + self.nodes[place + tables.DATA],
            )
            last = min(n + _LANES, value_count)
            while n < last:
                if not self._put_timestamp(
                    at,
                    value_group[tables.ROWS + n],
                    value_group[n],
                    value_group[tables.STOPS + n],
                    depth,
                ):
                    return False
                n += 1
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_values(
        self,
        at: cython.Py_ssize_t,
        value_group: cython.pointer[cython.longlong],
        value_count: cython.Py_ssize_t,
    ) -> cython.bint:
        """Put all recorded values of a field as `_put_data` does."""
        opcode: cython.longlong = self.ops[at + tables.OPCODE]
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        place: cython.Py_ssize_t = node * tables.NODE_WIDTH
        i: cython.longlong
        n: cython.Py_ssize_t = 0
        while n < value_count:
            n = put_bytes(
                self.p,
                self.size,
                value_group,
                n,
                value_count,
                opcode == tables.PROTO_STRING,
                self.a8 + self.nodes[place + tables.BYTES],
                self.nodes[place + tables.BYTES_CAPACITY],
                self.used + node,
                self.a32 + self.nodes[place + tables.DATA] + 1,
            )
            if n < value_count:
                i = value_group[n]
                if not self._put_any_data(
                    opcode, node, value_group[tables.ROWS + n], i, value_group[tables.STOPS + n] - i
                ):
                    return False
                n += 1
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
        is_repeated: cython.bint = self.ops[self.links[link] + tables.A] != 0
        size: cython.longlong = self.links[link + tables.STEP_BYTES]
        hits: cython.longlong = skip_fields(self.p, group, count, self.links + link)
        i: cython.Py_ssize_t
        n: cython.Py_ssize_t
        # Without unpredictable branches, as long as many messages repeat the field.
        while is_repeated and hits * 4 > count:
            self.hits += hits
            hits = skip_fields(self.p, group, count, self.links + link)
        self.hits += hits
        if hits <= 0 or not is_repeated:
            return hits >= 0
        for n in range(count):
            i = group[n]
            while self._has_field_at(link, i, group[tables.STOPS + n]):
                # Only the wire type matters; the 8 is a field number other than 0.
                i = self._skip_field(
                    8 | self.links[link + tables.STEP_TAG] & 7,
                    i + size,
                    group[tables.STOPS + n],
                    depth,
                )
                if i < 0:
                    return False
            group[n] = i
        return True

    # ------------------------------------------------------------------------
    # Values

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _take_row(
        self, node: cython.Py_ssize_t, bit: cython.longlong, k: cython.longlong
    ) -> cython.longlong:
        """Return the row for a field with this bit or mark in the message of row `k`, or −1."""
        row: cython.longlong
        if bit > 0:
            self.a8[self.nodes[node * tables.NODE_WIDTH + tables.VALID] + k] = 1
            return k
        if bit == 0:
            row = self._take_slot_inline(node)
            self._end_list(node, k)
            return row
        return self._mark(~bit, node, k)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _end_list(self, node: cython.Py_ssize_t, k: cython.longlong) -> cython.void:
        """End the list in row `k` after the last of its items, whose node is `node`."""
        place: cython.Py_ssize_t = self.nodes[(node - 1) * tables.NODE_WIDTH + tables.DATA] + k
        self.a32[place + 1] = self.counts[node]

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _mark(
        self, mark: cython.longlong, node: cython.Py_ssize_t, k: cython.longlong
    ) -> cython.longlong:
        """Mark a field as seen in row `k`, and return the row; −1: it was seen before."""
        if self._is_marked(mark):
            return self._fail(tables.NOT_CANONICAL, node, 0)
        self.hints[mark // tables.MARKS_PER_HINT] |= _bit(mark % tables.MARKS_PER_HINT)
        self.a8[self.nodes[node * tables.NODE_WIDTH + tables.VALID] + k] = 1
        return k

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

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _store(
        self, opcode: cython.longlong, k: cython.longlong, value: cython.longlong
    ) -> cython.void:
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
        """Put bytes of the payload in row `k`; opcode `PROTO_STRING` requires UTF-8."""
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
        at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        length: cython.longlong = position & _MASK32
        used: cython.longlong = self.used[node]
        room: cython.longlong = self.nodes[at + tables.BYTES_CAPACITY] - used
        if not cython.compiled or length > room:
            if not self._add_bytes(node, self.constants, position >> 32, length):
                return False
        else:
            # The constants have 16 bytes of padding.
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
    def _put_packed(
        self,
        at: cython.Py_ssize_t,
        k: cython.longlong,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
    ) -> cython.bint:
        """Append packed numbers to the list in row `k`."""
        if not self._put_packed_items(at, k, i, stop):
            return False
        self._end_list(self.ops[at + tables.NODE], k)
        return True

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_packed_items(
        self,
        at: cython.Py_ssize_t,
        row: cython.longlong,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
    ) -> cython.bint:
        """Append packed numbers, after a single check of the node's room."""
        item: cython.Py_ssize_t = self.ops[at + tables.A]
        width: cython.longlong = self.ops[at + tables.B]
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        opcode: cython.longlong = self.ops[item + tables.OPCODE]
        first: cython.longlong = (
            self.nodes[node * tables.NODE_WIDTH + tables.DATA] + self.counts[node]
        )
        k: cython.longlong = first
        if opcode == tables.PROTO_ENUM:
            return self._put_packed_enum(item, row, i, stop)
        if width != 0 and (stop - i) & (width - 1) != 0:
            self._fail(tables.BAD_LENGTH, node, i)
            return False
        if not self._has_room(node, i, stop, width):
            return self._count_packed_overflow(node, i, stop, width)
        if opcode == tables.PROTO_INT32 and width == 0:
            # The most common case.
            return self._put_packed_int32(node, i, stop)
        while i < stop:
            if width == 0:
                i = self._read_number(i, stop)
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
    def _put_packed_int32(
        self, node: cython.Py_ssize_t, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.bint:
        """Append packed numbers, most of them of two bytes, for which there is room."""
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        a32: cython.pointer[cython.int] = self.a32
        first: cython.longlong = (
            self.nodes[node * tables.NODE_WIDTH + tables.DATA] + self.counts[node]
        )
        k: cython.longlong = first
        # After this slot there is room for fewer than eight values.
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
                    i = self._read_long_number(i - 1, stop)
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
    def _put_packed_enum(
        self,
        at: cython.Py_ssize_t,
        k: cython.longlong,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
    ) -> cython.bint:
        while i < stop:
            i = self._read_enum_field(tables.ABSENT, at, k, i, stop)
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
        room: cython.longlong = (
            self.nodes[node * tables.NODE_WIDTH + tables.CAPACITY] - self.counts[node]
        )
        if width != 0:
            return (stop - i) // width <= room
        if stop - i > room:
            # Each number ends with a byte below 0x80.
            while i < stop:
                if self.p[i] < 0x80:
                    room -= 1
                i += 1
        return room >= 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _count_packed_overflow(
        self,
        node: cython.Py_ssize_t,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        width: cython.longlong,
    ) -> cython.bint:
        values: cython.longlong = 0
        if width != 0:
            values = (stop - i) // width
            i = stop
        while i < stop:
            i = self._read_number(i, stop)
            if i < 0:
                self.code_node = node
                return False
            values += 1
        return self._count_overflow(node, values) >= 0

    # ------------------------------------------------------------------------
    # Wire format: each function sets `number` and returns the position after it

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _fail_in(self, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Set the node of an error to that of this op."""
        return self._set_error_node(self.ops[at + tables.NODE])

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_number(self, i: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read a number of at most ten bytes, truncated to 64 bits."""
        length: cython.int
        if i < stop and self.p[i] < 0x80:
            self.number = self.p[i]
            return i + 1
        if cython.compiled and self.size - i >= 8:
            length = take_number(self.p + i, cython.address(self.number))
            if 0 < length <= stop - i:
                return i + length
        return self._read_long_number(i, stop)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_fixed(
        self, tag: cython.longlong, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Read a number of four or eight bytes, according to the tag."""
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
    def _read_long_number(self, i: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
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
    def _read_length(self, i: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read a length, and check that so many bytes follow."""
        if i < stop and self.p[i] < 0x80:
            self.number = self.p[i]
            i += 1
        else:
            i = self._read_short_number(i, stop)
        if i >= 0 and self.number > stop - i:
            return self._fail(tables.BAD_LENGTH, tables.ABSENT, i)
        return i

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_short_number(
        self, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Read a tag or length of at most five bytes and 32 bits."""
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
    def _skip_unknown(
        self,
        at: cython.Py_ssize_t,
        tag: cython.longlong,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.Py_ssize_t:
        """Skip a field that the message type lacks, or has with another wire type."""
        i = self._skip_field(tag, i, stop, depth)
        if i < 0:
            return self._fail_in(at)
        return self._ignore_field(at, i)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _skip(
        self, how: cython.Py_ssize_t, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Skip a common kind of field; return −1 for others and for errors."""
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
    def _ignore_field(self, at: cython.Py_ssize_t, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Ignore a field of a message; upb drops a map entry that has such a field."""
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
        """Skip a field whose tag was read."""
        kind: cython.longlong = tag & 7
        if tag < 8:
            return self._fail(tables.BAD_TAG, tables.ABSENT, i)
        if kind == 0:
            return self._read_number(i, stop)
        if kind == 3:
            return self._skip_group(tag + 1, i, stop, depth + 1)
        if kind == 2:
            i = self._read_length(i, stop)
            return i + self.number if i >= 0 else -1
        if kind != 1 and kind != 5:
            return self._fail(tables.BAD_TAG, tables.ABSENT, i)
        i += 8 if kind == 1 else 4
        return i if i <= stop else self._fail(tables.ENDS_EARLY, tables.ABSENT, stop)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _skip_group(
        self,
        end_tag: cython.longlong,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.Py_ssize_t:
        """Skip a group; set `number` to the position of its end tag."""
        tag_start: cython.Py_ssize_t
        if depth > tables.MAX_MESSAGE_DEPTH:
            return self._fail(tables.TOO_DEEP, tables.ABSENT, i)
        while i < stop:
            tag_start = i
            i = self._read_short_number(i, stop)
            if i < 0:
                return -1
            if self.number == end_tag:
                self.number = tag_start
                return i
            i = self._skip_field(self.number, i, stop, depth)
            if i < 0:
                return -1
        return self._fail(tables.ENDS_EARLY, tables.ABSENT, i)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _find(self, table: cython.Py_ssize_t, key: cython.longlong) -> cython.longlong:
        """Return the value of a key in a table, or `ABSENT`."""
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
def _mark_hints(count: cython.longlong) -> cython.longlong:
    """Return the number of hints for so many marks."""
    return (count + tables.MARKS_PER_HINT - 1) // tables.MARKS_PER_HINT


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _bit(number: cython.longlong) -> cython.longlong:
    one: cython.longlong = 1
    return one << number


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _lowest_bit(bits: cython.longlong) -> cython.int:
    """Return the number of the lowest bit that is set; at least one must be."""
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
    """Read an unsigned little-endian number."""
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
    """Read a signed little-endian number."""
    if cython.compiled:
        return word(p + i)
    return int.from_bytes(p[i : i + 8], "little", signed=True)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _low32(value: cython.longlong) -> cython.int:
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
    """Return the lower 64 bits of a number as a signed number."""
    if cython.compiled:
        return value
    return ((value & _MASK64) ^ 1 << 63) - (1 << 63)
