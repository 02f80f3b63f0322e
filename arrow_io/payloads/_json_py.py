# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True, freethreading_compatible=True
"""JSON payloads, read together in groups, field by field.

`_json_values_py` reads each payload that is unusual, and each unusual value. In pure Python it
reads all of them.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from arrow_io.core import _no_cython as cython

if cython.compiled:
    from cython.cimports.arrow_io.core._prefetch import prefetch_next
    from cython.cimports.arrow_io.payloads import _tables as tables
    from cython.cimports.arrow_io.payloads._json_blocks import (
        begins,
        find_name,
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
    from cython.cimports.arrow_io.payloads._json_values_c import Group, Texts, ValueReader
    from cython.cimports.libc.string import memcpy
else:
    from arrow_io.payloads import tables
    from arrow_io.payloads._json_values_py import ValueReader

_MASK32 = cython.declare(cython.longlong, 0xFFFFFFFF)
# Fewer payloads are not worth reading together; more do not fit into a group.
_MIN_GROUP = cython.declare(cython.Py_ssize_t, 4)
_MAX_GROUP = cython.declare(cython.Py_ssize_t, 64)
# A group with so many bytes takes no more payloads: its bytes should remain in the cache.
_GROUP_BYTES = cython.declare(cython.longlong, 49152)
# Readable bytes that are required after a payload: `find_name` and others read that much.
_PADDING_BYTES = cython.declare(cython.Py_ssize_t, 64)
# Most batches without another attempt after some that could not be read together.
_MAX_PAUSE = cython.declare(cython.longlong, 255)
# If a payload takes so many searches for a name, reading together does not pay.
_MAX_LOOKUPS = cython.declare(cython.longlong, 8)
# Bytes that are prefetched with each field.
_STEP_BYTES = cython.declare(cython.longlong, 2048)
_NOT_THERE = cython.declare(cython.Py_ssize_t, -1)
_UNUSUAL = cython.declare(cython.Py_ssize_t, -2)
# Number of batches until it is known again whether the names are in random order.
_SORTED_BATCHES = cython.declare(cython.longlong, 64)


@cython.final
@cython.cclass
class Shredder(ValueReader):
    """A shredder for JSON values.

    A group is up to 64 objects at a time. Of each, a *cursor* is at its opening brace, then at the
    comma or brace after the field that was read last. All objects of a group are asked for one
    field, then for the next. So each of them takes the same steps for a field, and their values do
    not wait for one another. A field that an object lacks is null.

    Attributes:
        sorted_batches: Number of batches to read in the order of the schema, from now on.
        pause: Number of batches not to read together, from now on.
        failures: Most of `pause` after the next batch that cannot be read together.
        lookups: Number of names that were searched in this batch.
        next_read: Start of the bytes to prefetch next.
        prefetch_stop: End of the bytes to prefetch.
    """

    sorted_batches: cython.longlong
    pause: cython.longlong
    failures: cython.longlong
    lookups: cython.longlong
    next_read: cython.longlong
    prefetch_stop: cython.longlong

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _append_batch(
        self, positions: cython.pointer[cython.const[cython.longlong]], count: cython.Py_ssize_t
    ) -> cython.bint:
        """Append payloads together, unless one of them is unusual.

        If one cannot be appended, all are read again, each alone, which determines the error.
        """
        misses: cython.Py_ssize_t
        row: cython.Py_ssize_t
        if self.ops[tables.OPCODE] != tables.JSON_RECORD:
            return False
        misses = self.ops[tables.C]
        if self.sorted_batches == 0 and self.hints[misses] * 2 >= tables.MAX_MISSES:
            self.hints[misses] = 0
            self.sorted_batches = _SORTED_BATCHES
        if self.sorted_batches == 0 or self.ops[tables.B] > tables.MAX_SORTED:
            return self._append_group(positions, count)
        self.sorted_batches -= 1
        for row in range(count):
            if not self._append_sorted(positions[row]) or self.code != tables.OK:
                self._restart()
                return False
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _append_group(
        self, positions: cython.pointer[cython.const[cython.longlong]], count: cython.Py_ssize_t
    ) -> cython.bint:
        """Append payloads field by field; those that are no plain objects, each alone."""
        cursors = cython.declare(cython.longlong[64])
        stops = cython.declare(cython.longlong[64])
        group = cython.declare(Group)
        row: cython.Py_ssize_t = 0
        if self.pause > 0:
            self.pause -= 1
            return False
        self.lookups = 0
        group.cursors = cursors
        group.stops = stops
        while row < count:
            self._begin_group(positions + row, count - row, cython.address(group))
            if group.count < _MIN_GROUP:
                group.count = 1
                if not self._append(positions[row]):
                    break
            elif not self._record_group(0, cython.address(group)):
                break
            elif not self._is_at_end(cython.address(group)):
                break
            if self.code != tables.OK:
                break
            row += group.count
        if row == count:
            if self.lookups > count * _MAX_LOOKUPS:
                self._wait()
            else:
                self.failures >>= 1
            return True
        if self.code != tables.FULL:
            self._wait()
        self._restart()
        return False

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_at_end(self, group: cython.pointer[Group]) -> cython.bint:
        k: cython.Py_ssize_t
        for k in range(group.count):
            if skip_space(self.p, group.cursors[k], group.stops[k]) != group.stops[k]:
                return False
        return True

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _wait(self) -> cython.void:
        """Read no batches together for a while; longer, the more often that fails."""
        self.pause = self.failures
        self.failures = min(2 * self.failures + 1, _MAX_PAUSE)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _begin_group(
        self,
        positions: cython.pointer[cython.const[cython.longlong]],
        count: cython.Py_ssize_t,
        group: cython.pointer[Group],
    ) -> cython.void:
        """Put the payloads into a group that precede one which is no object, or too many."""
        start: cython.longlong
        stop: cython.longlong
        size_bytes: cython.longlong = 0
        row: cython.Py_ssize_t
        group.count = 0
        for row in range(min(count, _MAX_GROUP)):
            start = positions[row] >> 32
            stop = start + (positions[row] & _MASK32)
            size_bytes += stop - start
            if (
                (size_bytes > _GROUP_BYTES and row >= _MIN_GROUP)
                or positions[row] == tables.ABSENT
                or self.size - stop < _PADDING_BYTES
                or start == stop
                or self.p[start] != 0x7B
            ):
                break
            group.cursors[row] = start
            group.stops[row] = stop
            group.count += 1
            self.next_read = stop
        self.prefetch_stop = min(self.size, self.next_read + size_bytes)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _record_group(self, at: cython.Py_ssize_t, group: cython.pointer[Group]) -> cython.bint:
        """Append objects, and move the cursors past their closing braces.

        False if one of them is unusual, or if there is no room.
        """
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        rows: cython.longlong = self.counts[node]
        starts = cython.declare(cython.longlong[64])
        link: cython.Py_ssize_t
        k: cython.Py_ssize_t
        if rows + group.count > self.nodes[node * tables.NODE_WIDTH + tables.CAPACITY]:
            self._note_full(node)
            return False
        memcpy(starts, group.cursors, group.count * 8)
        for k in range(self.ops[at + tables.B]):
            link = self.ops[at + tables.A] + 2 * (k + self.hints[self.ops[at + tables.E] + k])
            if not self._field_group(at, link, rows, group):
                return False
        for k in range(group.count):
            group.next = k
            if self.p[group.cursors[k]] != 0x7D and (
                self._find_value(at, tables.ABSENT, group) != _NOT_THERE
                or self.p[group.cursors[k]] != 0x7D
            ):
                self._learn_order(at, starts[k], group.stops[k])
                return False
            group.cursors[k] += 1
        if self.nodes[node * tables.NODE_WIDTH + tables.STORAGE] == tables.STRUCT:
            self.counts[node] += group.count
            return True
        for k in range(group.count):
            self._end_record(node)
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _learn_order(
        self, at: cython.Py_ssize_t, i: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.void:
        """Ask for the fields of the object at `i` in its own order from now on."""
        link: cython.Py_ssize_t = self.ops[at + tables.D]
        count: cython.Py_ssize_t = self.ops[at + tables.B]
        order: cython.pointer[cython.longlong] = self.hints + self.ops[at + tables.E]
        fields = cython.declare(cython.longlong[64])
        known: cython.Py_ssize_t = 0
        placed: cython.Py_ssize_t = 0
        k: cython.Py_ssize_t
        field: cython.longlong
        found: cython.longlong
        while known < _MAX_GROUP:
            i = skip_space(self.p, i + 1, stop)
            found = find_name(self.p, i, self.size, self.constants, self.links + link)
            if found < 0 or found & _MASK32 > stop - i:
                break
            field = self.links[link + (found >> 32) + tables.SLOT_FIELD] >> 1
            i = self._json_colon(0, i + (found & _MASK32), stop)
            if i >= 0:
                i = self._json_skip(i, stop)
            if i < 0:
                return
            if field < count:
                if _index(fields, known, field) < known:
                    return
                fields[known] = field
                known += 1
            i = skip_space(self.p, i, stop)
            if i >= stop or self.p[i] != 0x2C:
                break
        for k in range(count):
            if placed < known and _index(fields, known, order[k] + k) < known:
                order[k] = fields[placed] - k
                placed += 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _field_group(
        self,
        at: cython.Py_ssize_t,
        link: cython.Py_ssize_t,
        rows: cython.longlong,
        group: cython.pointer[Group],
    ) -> cython.bint:
        """Append one field of all objects of a group, or skip it if it is not projected.

        Args:
            at: The op of the objects.
            link: The link of the field.
            rows: Number of objects before these.
            group: The objects.
        """
        op: cython.longlong = self.links[link + 1]
        prefetch_next(self.p, cython.address(self.next_read), self.prefetch_stop, _STEP_BYTES)
        if op >= 0 and not self._catch_up(op, rows):
            return False
        group.next = 0
        while True:
            if not self._take_values(op, self.links[link], group):
                return False
            if group.next == group.count:
                return True
            if not self._take_value(at, link, group):
                return False
            group.next += 1

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _catch_up(self, op: cython.longlong, rows: cython.longlong) -> cython.bint:
        """Append nulls for objects before a group that lack a field; False if it has too many."""
        child: cython.Py_ssize_t = self.ops[op * tables.OP_WIDTH + tables.NODE]
        if self.counts[child] < rows:
            self._fill_nulls(child, rows)
        return self.counts[child] == rows

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _take_value(
        self, at: cython.Py_ssize_t, link: cython.Py_ssize_t, group: cython.pointer[Group]
    ) -> cython.bint:
        """Append one value that may be missing, or of any form."""
        op: cython.longlong = self.links[link + 1]
        stop: cython.Py_ssize_t = group.stops[group.next]
        i: cython.Py_ssize_t = self._find_near(self.links[link], group)
        child: cython.Py_ssize_t
        if i < 0:
            i = self._find_value(at, link, group)
        if i >= 0:
            i = self._json(op, i, stop) if op >= 0 else self._json_other_field(i, stop, True)
            return i >= 0 and self._move_cursor(i, group)
        if i == _NOT_THERE and op >= 0:
            child = self.ops[op * tables.OP_WIDTH + tables.NODE]
            self._fill_nulls(child, self.counts[child] + 1)
        return i == _NOT_THERE

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _find_value(
        self, at: cython.Py_ssize_t, link: cython.Py_ssize_t, group: cython.pointer[Group]
    ) -> cython.Py_ssize_t:
        """Return where the value of a field starts, if that is the next field of the schema.

        Fields that the schema lacks are skipped, also in the objects after this one. Returns
        `_NOT_THERE` if another field of the schema is next, or none is, and `_UNUSUAL` if the
        payload must be read alone.
        """
        fields: cython.Py_ssize_t = self.ops[at + tables.A]
        table: cython.Py_ssize_t = self.ops[at + tables.D]
        k: cython.Py_ssize_t = group.next
        cursors: cython.pointer[cython.longlong] = group.cursors
        stop: cython.Py_ssize_t = group.stops[k]
        i: cython.Py_ssize_t
        start: cython.Py_ssize_t
        field: cython.Py_ssize_t
        found: cython.longlong
        while self.p[cursors[k]] != 0x7D:
            if self.p[cursors[k]] != 0x2C and self.p[cursors[k]] != 0x7B:
                return _UNUSUAL
            start = skip_space(self.p, cursors[k] + 1, stop)
            if start < stop and self.p[start] == 0x7D and self.p[cursors[k]] == 0x7B:
                cursors[k] = start
                break
            self.lookups += 1
            found = find_name(self.p, start, self.size, self.constants, self.links + table)
            if found < 0 or found & _MASK32 > stop - start:
                return _UNUSUAL
            field = fields + self.links[table + (found >> 32) + tables.SLOT_FIELD]
            if field != link and field < fields + 2 * self.ops[at + tables.B]:
                break
            i = self._json_colon(0, start + (found & _MASK32), stop)
            if i < 0:
                return _UNUSUAL
            if field == link:
                return i
            i = self._json_other_field(i, stop, False)
            if i < 0 or not self._move_cursor(i, group):
                return _UNUSUAL
            # The objects after it have most likely the same field here.
            group.next = k + 1
            if not self._skip_values(self.p + start, (found & _MASK32) + 1, False, group):
                return _UNUSUAL
            group.next = k
        return _NOT_THERE

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _move_cursor(self, i: cython.Py_ssize_t, group: cython.pointer[Group]) -> cython.bint:
        """Move a cursor past a value, which ends at `i`; False if no comma or brace follows."""
        i = _find_end(self.p, i, group.stops[group.next])
        if i >= 0:
            group.cursors[group.next] = i
        return i >= 0

    # ------------------------------------------------------------------------
    # Values of a field, whose name is at `position` of the constants: each function appends those
    # of the next objects of a group up to one that is unusual; False if all must be read alone

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _take_values(
        self,
        op: cython.longlong,
        position: cython.longlong,
        group: cython.pointer[Group],
    ) -> cython.bint:
        at: cython.Py_ssize_t = op * tables.OP_WIDTH
        opcode: cython.longlong
        storage: cython.longlong
        item: cython.longlong
        if op < 0:
            return self._skip_values(
                self.constants + (position >> 32), position & _MASK32, True, group
            )
        opcode = self.ops[at + tables.OPCODE]
        storage = self.nodes[self.ops[at + tables.NODE] * tables.NODE_WIDTH + tables.STORAGE]
        if opcode == tables.JSON_STRING:
            return self._take_strings(at, position, group)
        if opcode == tables.JSON_INTEGER and (storage == tables.INT64 or storage == tables.INT32):
            return self._take_integers(at, position, group)
        if opcode == tables.JSON_FLOAT:
            return self._take_floats(at, position, group)
        if opcode == tables.JSON_BOOLEAN:
            return self._take_booleans(at, position, group)
        if opcode == tables.JSON_RECORD:
            return self._take_records(at, position, group)
        if opcode == tables.JSON_ENUM or opcode == tables.JSON_BASE64:
            return self._take_symbols_or_base64(at, position, group)
        if opcode == tables.JSON_DECIMAL:
            return self._take_decimals(at, position, group)
        if opcode == tables.JSON_ARRAY or opcode == tables.JSON_MAP:
            item = self.ops[self.ops[at + tables.A] * tables.OP_WIDTH + tables.OPCODE]
            if item == tables.JSON_STRING:
                return self._take_texts(at, position, group)
            if opcode == tables.JSON_ARRAY and item == tables.JSON_RECORD:
                return self._take_lists(at, position, group)
        return self._take_others(op, position, group)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _skip_values(
        self,
        name: cython.pointer[cython.const[cython.uchar]],
        length: cython.Py_ssize_t,
        is_field: cython.bint,
        group: cython.pointer[Group],
    ) -> cython.bint:
        i: cython.Py_ssize_t
        stop: cython.Py_ssize_t
        while group.next < group.count:
            stop = group.stops[group.next]
            i = _find_near(self.p, group.cursors[group.next], stop, self.size, name, length)
            if i < 0:
                break
            i = self._json_other_field(i, stop, is_field)
            if i < 0 or not self._move_cursor(i, group):
                return False
            group.next += 1
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _take_others(
        self, op: cython.longlong, position: cython.longlong, group: cython.pointer[Group]
    ) -> cython.bint:
        i: cython.Py_ssize_t
        while group.next < group.count:
            i = self._find_near(position, group)
            if i < 0:
                break
            i = self._json(op, i, group.stops[group.next])
            if i < 0 or not self._move_cursor(i, group):
                return False
            group.next += 1
        return True

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _find_near(
        self, position: cython.longlong, group: cython.pointer[Group]
    ) -> cython.Py_ssize_t:
        """Return where the value of a field starts whose name follows a cursor; else −1."""
        return _find_near(
            self.p,
            group.cursors[group.next],
            group.stops[group.next],
            self.size,
            self.constants + (position >> 32),
            position & _MASK32,
        )

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _take_strings(
        self, at: cython.Py_ssize_t, position: cython.longlong, group: cython.pointer[Group]
    ) -> cython.bint:
        k: cython.Py_ssize_t = group.next
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        node_at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        cursors: cython.pointer[cython.longlong] = group.cursors
        stops: cython.pointer[cython.longlong] = group.stops
        # Local copies: the C compiler cannot know that writes to the arena leave them unchanged.
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        size: cython.Py_ssize_t = self.size
        name: cython.pointer[cython.const[cython.uchar]] = self.constants + (position >> 32)
        length: cython.Py_ssize_t = position & _MASK32
        ends: cython.pointer[cython.int] = (
            self.a32 + self.nodes[node_at + tables.DATA] + self.counts[node] + 1 - k
        )
        bytes_: cython.pointer[cython.uchar] = self.a8 + self.nodes[node_at + tables.BYTES]
        room: cython.longlong = self.nodes[node_at + tables.BYTES_CAPACITY]
        used: cython.longlong = self.used[node]
        copied: cython.longlong = 0
        high: cython.uint = 0
        i: cython.Py_ssize_t
        end: cython.Py_ssize_t
        while k < group.count:
            i = _find_near(p, cursors[k], stops[k], size, name, length)
            if i < 0 or p[i] != 0x22:
                break
            i += 1
            high = 0
            end = take_text(p, i, stops[k], size, bytes_ + used, room - used, cython.address(high))
            copied = end - i
            if end < 0:
                end = unescape(
                    p,
                    i,
                    stops[k],
                    size,
                    bytes_ + used,
                    room - used,
                    cython.address(copied),
                    cython.address(high),
                )
            if end < 0 or (high != 0 and not self._is_text(i, end)):
                break
            end = _find_end(p, end + 1, stops[k])
            if end < 0:
                break
            used += copied
            ends[k] = used
            cursors[k] = end
            k += 1
        self.counts[node] += k - group.next
        group.next = k
        self.used[node] = used
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _take_symbols_or_base64(
        self, at: cython.Py_ssize_t, position: cython.longlong, group: cython.pointer[Group]
    ) -> cython.bint:
        """Append symbols, or bytes that are Base64."""
        k: cython.Py_ssize_t = group.next
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        node_at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        cursors: cython.pointer[cython.longlong] = group.cursors
        stops: cython.pointer[cython.longlong] = group.stops
        # Local copies, as in `_take_strings`.
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        size: cython.Py_ssize_t = self.size
        constants: cython.pointer[cython.const[cython.uchar]] = self.constants
        symbols: cython.pointer[cython.const[cython.longlong]] = (
            self.links + self.ops[at + tables.A]
        )
        length: cython.Py_ssize_t = position & _MASK32
        ends: cython.pointer[cython.int] = (
            self.a32 + self.nodes[node_at + tables.DATA] + self.counts[node] + 1 - k
        )
        bytes_: cython.pointer[cython.uchar] = self.a8 + self.nodes[node_at + tables.BYTES]
        room: cython.longlong = self.nodes[node_at + tables.BYTES_CAPACITY]
        used: cython.longlong = self.used[node]
        copied: cython.longlong = 0
        is_base64: cython.bint = self.ops[at + tables.OPCODE] == tables.JSON_BASE64
        size_bytes: cython.longlong = self.ops[at + tables.A]
        i: cython.Py_ssize_t
        end: cython.Py_ssize_t
        while k < group.count:
            i = _find_near(p, cursors[k], stops[k], size, constants + (position >> 32), length)
            if i < 0 or p[i] != 0x22:
                break
            i += 1
            if is_base64:
                end = take_base64(
                    p, i, stops[k], size, bytes_ + used, room - used, cython.address(copied)
                )
                # The same room as `_json_base64` requires.
                if end - i > room - used or (size_bytes != tables.ABSENT and size_bytes != copied):
                    break
            else:
                end = take_symbol(
                    p,
                    i,
                    stops[k],
                    size,
                    constants,
                    symbols,
                    self.ops[at + tables.B],
                    bytes_ + used,
                    room - used,
                )
                copied = end - i
            if end >= 0:
                end = _find_end(p, end + 1, stops[k])
            if end < 0:
                break
            used += copied
            ends[k] = used
            cursors[k] = end
            k += 1
        self.counts[node] += k - group.next
        group.next = k
        self.used[node] = used
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _take_integers(
        self, at: cython.Py_ssize_t, position: cython.longlong, group: cython.pointer[Group]
    ) -> cython.bint:
        k: cython.Py_ssize_t = group.next
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        node_at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        scale: cython.pointer[cython.const[cython.longlong]] = self.links + self.ops[at + tables.A]
        low: cython.longlong = scale[tables.LOW]
        high: cython.longlong = scale[tables.HIGH]
        multiplier: cython.longlong = scale[tables.MULTIPLIER]
        cursors: cython.pointer[cython.longlong] = group.cursors
        stops: cython.pointer[cython.longlong] = group.stops
        # Local copies, as in `_take_strings`.
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        size: cython.Py_ssize_t = self.size
        name: cython.pointer[cython.const[cython.uchar]] = self.constants + (position >> 32)
        length: cython.Py_ssize_t = position & _MASK32
        is_wide: cython.bint = self.nodes[node_at + tables.STORAGE] == tables.INT64
        place: cython.Py_ssize_t = self.nodes[node_at + tables.DATA] + self.counts[node] - k
        a64: cython.pointer[cython.longlong] = self.a64 + place
        a32: cython.pointer[cython.int] = self.a32 + place
        number: cython.longlong = 0
        i: cython.Py_ssize_t
        end: cython.Py_ssize_t
        while k < group.count and scale[tables.DIVISOR] == 1:
            i = _find_near(p, cursors[k], stops[k], size, name, length)
            if i < 0:
                break
            end = take_whole(p, i, stops[k], size, cython.address(number))
            if end < 0:
                end = take_long(p, i, stops[k], size, cython.address(number))
            if end >= 0:
                end = _find_end(p, end, stops[k])
            if end < 0 or number < low or number > high:
                break
            if is_wide:
                a64[k] = number * multiplier
            else:
                a32[k] = number * multiplier
            cursors[k] = end
            k += 1
        self.counts[node] += k - group.next
        group.next = k
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _take_floats(
        self, at: cython.Py_ssize_t, position: cython.longlong, group: cython.pointer[Group]
    ) -> cython.bint:
        k: cython.Py_ssize_t = group.next
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        cursors: cython.pointer[cython.longlong] = group.cursors
        stops: cython.pointer[cython.longlong] = group.stops
        # Local copies, as in `_take_strings`.
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        size: cython.Py_ssize_t = self.size
        powers: cython.pointer[cython.const[cython.double]] = self.powers
        name: cython.pointer[cython.const[cython.uchar]] = self.constants + (position >> 32)
        length: cython.Py_ssize_t = position & _MASK32
        is_wide: cython.bint = self.nodes[node * tables.NODE_WIDTH + tables.STORAGE] == tables.INT64
        place: cython.Py_ssize_t = (
            self.nodes[node * tables.NODE_WIDTH + tables.DATA] + self.counts[node] - k
        )
        f64: cython.pointer[cython.double] = self.f64 + place
        f32: cython.pointer[cython.float] = self.f32 + place
        number: cython.double = 0
        i: cython.Py_ssize_t
        while k < group.count:
            i = _find_near(p, cursors[k], stops[k], size, name, length)
            if i < 0:
                break
            i = take_fraction(p, i, stops[k], size, powers, cython.address(number))
            if i >= 0:
                i = _find_end(p, i, stops[k])
            if i < 0:
                break
            if is_wide:
                f64[k] = number
            else:
                f32[k] = number
                if _is_tie(number, f32[k]):
                    break
            cursors[k] = i
            k += 1
        self.counts[node] += k - group.next
        group.next = k
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _take_decimals(
        self, at: cython.Py_ssize_t, position: cython.longlong, group: cython.pointer[Group]
    ) -> cython.bint:
        k: cython.Py_ssize_t = group.next
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        cursors: cython.pointer[cython.longlong] = group.cursors
        stops: cython.pointer[cython.longlong] = group.stops
        # Local copies, as in `_take_strings`.
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        size: cython.Py_ssize_t = self.size
        name: cython.pointer[cython.const[cython.uchar]] = self.constants + (position >> 32)
        length: cython.Py_ssize_t = position & _MASK32
        precision: cython.longlong = self.ops[at + tables.A]
        scale: cython.longlong = self.ops[at + tables.B]
        a64: cython.pointer[cython.longlong] = self.a64 + 2 * (
            self.nodes[node * tables.NODE_WIDTH + tables.DATA] + self.counts[node] - k
        )
        number: cython.longlong = 0
        i: cython.Py_ssize_t
        while k < group.count:
            i = _find_near(p, cursors[k], stops[k], size, name, length)
            if i < 0:
                break
            i = take_decimal(p, i, stops[k], size, precision, scale, cython.address(number))
            if i >= 0:
                i = _find_end(p, i, stops[k])
            if i < 0:
                break
            a64[2 * k] = number
            a64[2 * k + 1] = -1 if number < 0 else 0
            cursors[k] = i
            k += 1
        self.counts[node] += k - group.next
        group.next = k
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _take_booleans(
        self, at: cython.Py_ssize_t, position: cython.longlong, group: cython.pointer[Group]
    ) -> cython.bint:
        k: cython.Py_ssize_t = group.next
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        cursors: cython.pointer[cython.longlong] = group.cursors
        stops: cython.pointer[cython.longlong] = group.stops
        # Local copies, as in `_take_strings`.
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        size: cython.Py_ssize_t = self.size
        name: cython.pointer[cython.const[cython.uchar]] = self.constants + (position >> 32)
        length: cython.Py_ssize_t = position & _MASK32
        a8: cython.pointer[cython.uchar] = (
            self.a8 + self.nodes[node * tables.NODE_WIDTH + tables.DATA] + self.counts[node] - k
        )
        is_true: cython.int
        i: cython.Py_ssize_t
        while k < group.count:
            i = _find_near(p, cursors[k], stops[k], size, name, length)
            if i < 0:
                break
            is_true = take_boolean(p + i)
            i = _find_end(p, i + 5 - is_true, stops[k])
            if is_true < 0 or i < 0:
                break
            a8[k] = is_true
            cursors[k] = i
            k += 1
        self.counts[node] += k - group.next
        group.next = k
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _take_records(
        self, at: cython.Py_ssize_t, position: cython.longlong, group: cython.pointer[Group]
    ) -> cython.bint:
        inner = cython.declare(Group)
        first: cython.Py_ssize_t = group.next
        i: cython.Py_ssize_t
        while group.next < group.count:
            i = self._find_near(position, group)
            if i < 0 or self.p[i] != 0x7B:
                break
            group.cursors[group.next] = i
            group.next += 1
        inner.cursors = group.cursors + first
        inner.stops = group.stops + first
        inner.count = group.next - first
        if inner.count > 0 and not self._record_group(at, cython.address(inner)):
            return False
        group.next = first
        for i in range(inner.count):
            if not self._move_cursor(inner.cursors[i], group):
                return False
            group.next += 1
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _take_lists(
        self, at: cython.Py_ssize_t, position: cython.longlong, group: cython.pointer[Group]
    ) -> cython.bint:
        """Append arrays of objects, whose items are groups of their own."""
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        item_at: cython.Py_ssize_t = self.ops[at + tables.A] * tables.OP_WIDTH
        ends: cython.pointer[cython.int] = (
            self.a32 + self.nodes[node * tables.NODE_WIDTH + tables.DATA] + 1
        )
        starts = cython.declare(cython.longlong[64])
        stops = cython.declare(cython.longlong[64])
        items = cython.declare(Group)
        k: cython.longlong = self.counts[node]
        i: cython.Py_ssize_t
        items.cursors = starts
        items.stops = stops
        items.count = 0
        while group.next < group.count:
            i = self._find_near(position, group)
            if i < 0 or self.p[i] != 0x5B:
                break
            items.next = items.count
            i = self._find_items(item_at, i, group.stops[group.next], cython.address(items))
            if i < 0 or not self._move_cursor(i, group):
                if items.next < 0:
                    return False
                items.count = items.next
                break
            ends[k] = self.counts[node + 1] + items.count
            k += 1
            group.next += 1
        self.counts[node] = k
        return self._take_items(item_at, cython.address(items))

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _take_texts(
        self, at: cython.Py_ssize_t, position: cython.longlong, group: cython.pointer[Group]
    ) -> cython.bint:
        """Append arrays of texts, or maps whose values are texts."""
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        item_at: cython.Py_ssize_t = self.ops[at + tables.A] * tables.OP_WIDTH
        is_map: cython.bint = self.ops[at + tables.OPCODE] == tables.JSON_MAP
        close: cython.int = 0x7D if is_map else 0x5D
        ends: cython.pointer[cython.int] = (
            self.a32 + self.nodes[node * tables.NODE_WIDTH + tables.DATA] + 1
        )
        keys = cython.declare(Texts)
        values = cython.declare(Texts)
        i: cython.Py_ssize_t
        self._open_texts(self.ops[item_at + tables.NODE], cython.address(values))
        self._open_texts(node + 2 if is_map else values.node, cython.address(keys))
        while group.next < group.count:
            i = self._find_near(position, group)
            if i < 0 or self.p[i] != close - 2:
                break
            i = self._take_entries(
                i, group.stops[group.next], close, cython.address(keys), cython.address(values)
            )
            if i < 0 or not self._move_cursor(i, group):
                break
            if is_map:
                self.counts[node + 1] = values.count
                self._keep_texts(cython.address(keys))
            self._keep_texts(cython.address(values))
            ends[self.counts[node]] = values.count
            self.counts[node] += 1
            group.next += 1
        return True

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _take_entries(
        self,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        close: cython.int,
        keys: cython.pointer[Texts],
        values: cython.pointer[Texts],
    ) -> cython.Py_ssize_t:
        """Add the texts of the array or map at `i`; return the position after it, or −1.

        `close` is its closing bracket.
        """
        i = skip_space(self.p, i + 1, stop)
        if self.p[i] == close:
            return i + 1
        while values.count < values.capacity:
            if close == 0x7D:
                i = self._take_key(i, stop, keys)
            if i >= 0:
                i = self._take_text(i, stop, values)
            if i < 0:
                break
            i = skip_space(self.p, i, stop)
            if self.p[i] != 0x2C:
                return i + 1 if self.p[i] == close else -1
            i = skip_space(self.p, i + 1, stop)
        return -1

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _take_key(
        self, i: cython.Py_ssize_t, stop: cython.Py_ssize_t, keys: cython.pointer[Texts]
    ) -> cython.Py_ssize_t:
        """Add the key at `i`; return the position of its value, or −1."""
        i = self._take_text(i, stop, keys)
        if i >= 0:
            i = skip_space(self.p, i, stop)
        if i < 0 or self.p[i] != 0x3A:
            return -1
        return skip_space(self.p, i + 1, stop)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _take_text(
        self, i: cython.Py_ssize_t, stop: cython.Py_ssize_t, texts: cython.pointer[Texts]
    ) -> cython.Py_ssize_t:
        """Add the text at `i`; return the position after it, or −1."""
        end: cython.Py_ssize_t
        high: cython.uint = 0
        if self.p[i] != 0x22:
            return -1
        i += 1
        end = take_text(
            self.p,
            i,
            stop,
            self.size,
            texts.bytes + texts.used,
            texts.room - texts.used,
            cython.address(high),
        )
        if end < 0 or (high != 0 and not self._is_text(i, end)):
            return -1
        texts.used += end - i
        texts.ends[texts.count] = texts.used
        texts.count += 1
        return end + 1

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _open_texts(self, node: cython.Py_ssize_t, texts: cython.pointer[Texts]) -> cython.void:
        at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        texts.node = node
        texts.ends = self.a32 + self.nodes[at + tables.DATA] + 1
        texts.bytes = self.a8 + self.nodes[at + tables.BYTES]
        texts.capacity = self.nodes[at + tables.CAPACITY]
        texts.room = self.nodes[at + tables.BYTES_CAPACITY]
        texts.count = self.counts[node]
        texts.used = self.used[node]

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _keep_texts(self, texts: cython.pointer[Texts]) -> cython.void:
        self.counts[texts.node] = texts.count
        self.used[texts.node] = texts.used

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _find_items(
        self,
        at: cython.Py_ssize_t,
        i: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        items: cython.pointer[Group],
    ) -> cython.Py_ssize_t:
        """Add the objects of the array at `i` to a group; return the position after it, or −1.

        If the group was full, its objects are appended, and `next` is negative: the array can be
        read in no other way.
        """
        is_room: cython.bint
        i = skip_space(self.p, i + 1, stop)
        if self.p[i] == 0x5D:
            return i + 1
        while self.p[i] == 0x7B:
            if items.count == _MAX_GROUP:
                is_room = self._take_items(at, items)
                items.count = 0
                items.next = -1
                if not is_room:
                    break
            items.cursors[items.count] = i
            i = self._skip_object(i, stop)
            if i < 0:
                break
            items.stops[items.count] = i
            items.count += 1
            i = skip_space(self.p, i, stop)
            if self.p[i] == 0x5D:
                return i + 1
            if self.p[i] != 0x2C:
                break
            i = skip_space(self.p, i + 1, stop)
        return -1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _take_items(self, at: cython.Py_ssize_t, items: cython.pointer[Group]) -> cython.bint:
        """Append objects, each of which must end at its stop."""
        k: cython.Py_ssize_t
        if items.count == 0:
            return True
        if not self._record_group(at, items):
            return False
        for k in range(items.count):
            if items.cursors[k] != items.stops[k]:
                return False
        return True


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _find_end(
    p: cython.pointer[cython.const[cython.uchar]], i: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Return where the comma or brace after a value is; −1 if anything else follows."""
    if i < stop and (p[i] == 0x2C or p[i] == 0x7D):
        return i
    i = skip_space(p, i, stop)
    return i if i < stop and (p[i] == 0x2C or p[i] == 0x7D) else -1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _find_near(
    p: cython.pointer[cython.const[cython.uchar]],
    i: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    name: cython.pointer[cython.const[cython.uchar]],
    length: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """See the method of this name."""
    if p[i] != 0x2C and p[i] != 0x7B:
        return -1
    i = skip_space(p, i + 1, stop)
    if length > stop - i or not begins(p, i, size, name, length):
        return -1
    return skip_space(p, i + length, stop)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_tie(value: cython.double, rounded: cython.float) -> cython.bint:
    """Return whether a value is halfway between two floats, of which `rounded` is one.

    It is the check of the method of this name, without a call in a loop.
    """
    error: cython.double = value - rounded
    other: cython.float = value + error
    return error != 0 and other == value + error


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _index(
    numbers: cython.pointer[cython.longlong], count: cython.Py_ssize_t, number: cython.longlong
) -> cython.Py_ssize_t:
    """Return the index of a number, or `count` if it is not among the numbers."""
    k: cython.Py_ssize_t = 0
    while k < count and numbers[k] != number:
        k += 1
    return k
