# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True, freethreading_compatible=True
"""Avro payloads, read together in groups, field by field.

`_avro_values_py` reads each payload that is unusual. In pure Python it reads all of them.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from arrow_io.core import _no_cython as cython

if cython.compiled:
    from cython.cimports.arrow_io.core._bits import half_word, is_ascii, is_utf8, lowest, word
    from cython.cimports.arrow_io.core._prefetch import prefetch_next
    from cython.cimports.arrow_io.payloads import _tables as tables
    from cython.cimports.arrow_io.payloads._avro_groups import (
        GROUP_SIZE,
        MAX_BRANCHES,
        MAX_COLUMNS,
        MAX_ROUNDS,
        RUN_PADDING,
        SHORT_LIST_ROOM,
        Column,
        Group,
        Items,
        big_endian,
        copy_block,
        copy_run,
        copy_runs,
        copy_symbols,
        count_items,
        find_equal,
        read_nulls,
        read_numbers,
        split_positions,
    )
    from cython.cimports.arrow_io.payloads._avro_values_c import ValueReader, take_long
else:
    from arrow_io.payloads import tables
    from arrow_io.payloads._avro_values_py import ValueReader

_MASK32 = cython.declare(cython.longlong, 0xFFFFFFFF)
# Fewer payloads are not worth reading together.
_MIN_BATCH = cython.declare(cython.Py_ssize_t, 8)
# Number of batches without another attempt after one that could not be read together.
_PAUSE = cython.declare(cython.Py_ssize_t, 15)
# Readable bytes that are required after a value: a branch and a word, at least.
_PADDING_BYTES = cython.declare(cython.Py_ssize_t, 16)
# Readable bytes from the start of each constant.
_CONSTANT_BYTES = cython.declare(cython.Py_ssize_t, 32)
# Values that are nested more deeply are read one by one.
_MAX_STEP_DEPTH = cython.declare(cython.longlong, 8)
_NOT_NULL = cython.declare(cython.longlong, -1)
# A group with so many bytes takes no more payloads: its bytes should remain in the cache.
_GROUP_BYTES = cython.declare(cython.longlong, 65536)
# The length of a run that is copied as a block of 16 bytes, as encoded.
_MAX_ENCODED_RUN = cython.declare(cython.longlong, 32)
# Rounds pay off if they have at least so many items on average.
_MIN_ROUND = cython.declare(cython.longlong, 8)
# Bytes that each step prefetches.
_STEP_BYTES = cython.declare(cython.longlong, 768)


@cython.final
@cython.cclass
class Shredder(ValueReader):
    """A shredder for Avro data, which the program resolves to the reader's schema.

    Attributes:
        limit: Maximum position of a value in the payloads that are read together.
        pause: Number of batches not to read together, after one for which that failed.
        can_retry: Whether the next batch may be read together although this one was not.
        has_blocks: Whether a list had more than one block, so that others may have, too.
        next_read: Start of the bytes to prefetch next.
        prefetch_stop: End of the bytes to prefetch.
    """

    limit: cython.Py_ssize_t
    pause: cython.longlong
    can_retry: cython.bint
    has_blocks: cython.bint
    next_read: cython.longlong
    prefetch_stop: cython.longlong

    # ------------------------------------------------------------------------
    # Steps: payloads are read together, field by field. Each step does the same work for a group of
    # values: their op is decoded once, a missing value of a nullable field needs no branch, and no
    # value depends on the end of another. Steps only succeed or fail: payloads that are unusual, or
    # for which a node has no room, are rolled back and read one by one.
    #
    # A step's values are counted before they are written. After each value that precedes `limit`,
    # `_PADDING_BYTES` are readable, so one comparison allows to read a branch and a number.

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _append_batch(
        self,
        positions: cython.pointer[cython.const[cython.longlong]],
        count: cython.Py_ssize_t,
    ) -> cython.bint:
        group = cython.declare(Group)
        row: cython.Py_ssize_t = 0
        if count < _MIN_BATCH:
            return False
        if self.pause > 0:
            self.pause -= 1
            return False
        self.empty_items = 0
        self.can_retry = False
        while row < count:
            self._begin_group(positions + row, count - row, cython.address(group))
            if group.count < _MIN_BATCH:
                if not self._append(positions[row]) or self.code != tables.OK:
                    break
                row += 1
                continue
            if not self._take_rows(0, cython.address(group)):
                break
            if not self._read_step(0, cython.address(group), 0) or self.code != tables.OK:
                break
            if not self._is_at_end(positions + row, cython.address(group)):
                break
            row += group.count
        if row == count:
            return True
        if self.code != tables.FULL and not self.can_retry:
            self.pause = _PAUSE
        self._restart()
        return False

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _begin_group(
        self,
        positions: cython.pointer[cython.const[cython.longlong]],
        count: cython.Py_ssize_t,
        group: cython.pointer[Group],
    ) -> cython.void:
        """Set a group to the first payloads, up to one that is missing or near the end."""
        n: cython.Py_ssize_t = min(count, GROUP_SIZE)
        origin: cython.longlong = 0
        limit: cython.longlong = 0
        size: cython.longlong = 0
        split_positions(
            positions, n, group.at, cython.address(origin), cython.address(limit),
            cython.address(size),
        )  # fmt: skip
        if origin < 0 or limit > self.size - _PADDING_BYTES or size > _GROUP_BYTES:
            n = self._group_count(positions, n)
            split_positions(
                positions, n, group.at, cython.address(origin), cython.address(limit),
                cython.address(size),
            )  # fmt: skip
        self.limit = limit
        group.count = n
        # Prefetch the payloads after these.
        self.next_read = limit
        self.prefetch_stop = min(self.size, limit + size)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _group_count(
        self, positions: cython.pointer[cython.const[cython.longlong]], count: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Return the number of payloads up to one that is missing, near the end or too many."""
        last: cython.longlong = self.size - _PADDING_BYTES
        size: cython.longlong = 0
        length: cython.longlong
        n: cython.Py_ssize_t
        for n in range(count):
            length = positions[n] & _MASK32
            if (
                positions[n] == tables.ABSENT
                or (positions[n] >> 32) + length > last
                or (size > _GROUP_BYTES and n >= _MIN_BATCH)
            ):
                return n
            size += length
        return count

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_at_end(
        self,
        positions: cython.pointer[cython.const[cython.longlong]],
        group: cython.pointer[Group],
    ) -> cython.bint:
        """Return whether each value of the group ends where its payload ends."""
        n: cython.Py_ssize_t
        position: cython.ulonglong
        unread: cython.ulonglong = 0
        for n in range(group.count):
            position = positions[n]
            unread |= ((position >> 32) + (position & _MASK32)) ^ group.at[n]
        return unread == 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _take_rows(self, node: cython.Py_ssize_t, group: cython.pointer[Group]) -> cython.bint:
        """Count a group's values in a node and the nodes of its fields; False if one is full."""
        stop: cython.Py_ssize_t = self.nodes[node * tables.NODE_WIDTH + tables.STOP]
        at: cython.Py_ssize_t
        n: cython.Py_ssize_t
        group.first = self.counts[node]
        group.stop = group.first + group.count
        group.is_dense = True
        for n in range(group.count):
            group.rows[n] = group.first + n
        while node < stop:
            at = node * tables.NODE_WIDTH
            if group.stop > self.nodes[at + tables.CAPACITY]:
                self.can_retry = True
                return False
            self.counts[node] = group.stop
            if self.nodes[at + tables.STORAGE] == tables.LIST:
                node = self.nodes[at + tables.STOP]
            else:
                node += 1
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _set_rows(self, node: cython.Py_ssize_t, count: cython.longlong) -> cython.void:
        """Set the number of values of a node and of the nodes of its fields."""
        stop: cython.Py_ssize_t = self.nodes[node * tables.NODE_WIDTH + tables.STOP]
        while node < stop:
            self.counts[node] = count
            if self.nodes[node * tables.NODE_WIDTH + tables.STORAGE] == tables.LIST:
                node = self.nodes[node * tables.NODE_WIDTH + tables.STOP]
            else:
                node += 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_step(
        self, op: cython.longlong, group: cython.pointer[Group], depth: cython.int
    ) -> cython.bint:
        """Read the values of a group, and move its positions to their ends."""
        at: cython.Py_ssize_t = op * tables.OP_WIDTH
        opcode: cython.longlong = self.ops[at + tables.OPCODE]
        null_branch: cython.int = _NOT_NULL
        items = cython.declare(Items)
        if opcode == tables.AVRO_UNION:
            null_branch = self._null_branch(at)
            at = self._value_op(at, null_branch)
            opcode = self.ops[at + tables.OPCODE]
        if opcode == tables.AVRO_STRING or opcode == tables.AVRO_BYTES:
            return self._read_texts(at, null_branch, group)
        if opcode == tables.AVRO_INTEGER:
            if self._is_plain_integer(at):
                return self._read_integers(at, null_branch, group)
        elif opcode == tables.AVRO_DOUBLE:
            return self._read_doubles(at, null_branch, group)
        elif opcode == tables.AVRO_FLOAT:
            if self._storage(at) == tables.INT32:
                return self._read_floats(at, null_branch, group)
        elif opcode == tables.AVRO_BOOLEAN:
            return self._read_booleans(at, null_branch, group)
        elif opcode == tables.AVRO_ENUM:
            return self._read_symbols(at, null_branch, group)
        elif opcode == tables.AVRO_SKIP:
            return self._skip_each(op, group.at, group.count, self.limit, depth)
        elif opcode == tables.AVRO_DECIMAL:
            return self._read_decimals(at, null_branch, group)
        elif depth < _MAX_STEP_DEPTH:
            if opcode == tables.AVRO_RECORD and self._storage(at) == tables.STRUCT:
                if null_branch == _NOT_NULL:
                    return self._read_fields(at, group, depth)
                return self._read_nullable_records(at, null_branch, group, depth)
            if opcode == tables.AVRO_ARRAY or opcode == tables.AVRO_MAP:
                if not self._set_items(at, cython.address(items)):
                    return self._read_lists(at, null_branch, group, depth)
                if items.has_runs or items.null_branch != _NOT_NULL or self.has_blocks:
                    return self._read_plain_lists(
                        self.ops[at + tables.NODE], null_branch, cython.address(items), group
                    )
                return self._read_in_rounds(at, null_branch, cython.address(items), group, depth)
            if opcode == tables.AVRO_UNION and self._has_members(at):
                return self._read_members(at, group, depth)
        return self._read_each(op, group, tables.ABSENT, 0, depth)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _null_branch(self, at: cython.Py_ssize_t) -> cython.int:
        """Return the encoded branch of null in a union of null and another type."""
        link: cython.Py_ssize_t = self.ops[at + tables.A]
        if self.ops[at + tables.OPCODE] != tables.AVRO_UNION or self.ops[at + tables.B] != 2:
            return _NOT_NULL
        if self.ops[self.links[link] * tables.OP_WIDTH] == tables.AVRO_NULL:
            return 0
        if self.ops[self.links[link + 1] * tables.OP_WIDTH] == tables.AVRO_NULL:
            return 2
        return _NOT_NULL

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _value_op(self, at: cython.Py_ssize_t, null_branch: cython.int) -> cython.Py_ssize_t:
        """Return the op of the values that are not null."""
        if null_branch == _NOT_NULL:
            return at
        return self.links[self.ops[at + tables.A] + 1 - (null_branch >> 1)] * tables.OP_WIDTH

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _storage(self, at: cython.Py_ssize_t) -> cython.longlong:
        """Return the storage of an op's node."""
        return self.nodes[self.ops[at + tables.NODE] * tables.NODE_WIDTH + tables.STORAGE]

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_plain_integer(self, at: cython.Py_ssize_t) -> cython.bint:
        """Return whether an op's integers need no division."""
        storage: cython.longlong = self._storage(at)
        return self.links[self.ops[at + tables.A] + tables.DIVISOR] == 1 and (
            storage == tables.INT64 or storage == tables.INT32
        )

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_each(
        self,
        op: cython.longlong,
        group: cython.pointer[Group],
        start: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.bint:
        """Read the values of a group one by one, or all from `start` unless it is `ABSENT`."""
        node: cython.Py_ssize_t = self.ops[op * tables.OP_WIDTH + tables.NODE]
        n: cython.Py_ssize_t
        i: cython.Py_ssize_t = 0
        self._set_rows(node, group.first)
        for n in range(group.count):
            if not self._append_nulls(node, group.rows[n]):
                i = -1
                break
            if start == tables.ABSENT:
                i = group.at[n] = self._read_value(op, group.at[n], self.limit, depth)
            else:
                i = self._read_value(op, start, stop, depth)
            if i < 0:
                break
        if i >= 0 and not self._append_nulls(node, group.stop):
            i = -1
        # Also after a failure, so that all rows are rolled back.
        self._set_rows(node, group.stop)
        return i >= 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _append_nulls(self, node: cython.Py_ssize_t, stop: cython.longlong) -> cython.bint:
        """Append nulls to a node until it has `stop` values."""
        while self.counts[node] < stop:
            if not self._null(node):
                return False
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_fields(
        self, at: cython.Py_ssize_t, group: cython.pointer[Group], depth: cython.int
    ) -> cython.bint:
        """Read the fields of a group's records."""
        link: cython.Py_ssize_t = self.ops[at + tables.A]
        last: cython.Py_ssize_t = link + self.ops[at + tables.B]
        data: cython.pointer[cython.const[cython.uchar]] = self.p
        size: cython.Py_ssize_t = self.size
        position: cython.longlong
        is_read: cython.bint = True
        while link < last:
            prefetch_next(self.p, cython.address(self.next_read), self.prefetch_stop, _STEP_BYTES)
            if not self._read_step(self.links[link], group, depth + 1):
                return False
            link += 1
        link = self.ops[at + tables.C]
        last = link + 2 * self.ops[at + tables.D]
        self.p = self.constants if link < last else data
        while link < last and is_read:
            self.size = 0
            position = self.links[link + 1]
            is_read = self._read_each(
                self.links[link],
                group,
                position >> 32,
                (position >> 32) + (position & _MASK32),
                0,
            )
            link += 2
        self.p = data
        self.size = size
        return is_read

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_nullable_records(
        self,
        at: cython.Py_ssize_t,
        null_branch: cython.int,
        group: cython.pointer[Group],
        depth: cython.int,
    ) -> cython.bint:
        """Read a group's records, of which some are null."""
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        records = cython.declare(Group)
        numbers = cython.declare(cython.uchar[GROUP_SIZE])
        null_rows = cython.declare(cython.longlong[GROUP_SIZE])
        null_count: cython.Py_ssize_t = 0
        count: cython.Py_ssize_t = 0
        is_value: cython.int
        excess: cython.int = 0
        n: cython.Py_ssize_t
        for n in range(group.count):
            if group.at[n] > self.limit:
                return False
            excess |= p[group.at[n]] & 0xFD
            is_value = p[group.at[n]] != null_branch
            group.at[n] += 1
            # Both lists receive the value, and one of them keeps it.
            records.at[count] = group.at[n]
            records.rows[count] = group.rows[n]
            numbers[count] = n
            null_rows[null_count] = group.rows[n]
            count += is_value
            null_count += 1 - is_value
        if excess != 0:
            return False
        if null_count == 0:
            return self._read_fields(at, group, depth)
        self._put_nulls(self.ops[at + tables.NODE], null_rows, null_count)
        records.count = count
        records.first = group.first
        records.stop = group.stop
        records.is_dense = False
        if not self._read_fields(at, cython.address(records), depth):
            return False
        for n in range(count):
            group.at[numbers[n]] = records.at[n]
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _has_members(self, at: cython.Py_ssize_t) -> cython.bint:
        """Return whether each branch of a union is null or has its own field of the op's node.

        All fields of the node must belong to a branch.
        """
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        child: cython.Py_ssize_t = node + 1
        branch: cython.Py_ssize_t
        branches: cython.pointer[cython.const[cython.longlong]] = (
            self.links + self.ops[at + tables.A]
        )
        count: cython.longlong = self.ops[at + tables.B]
        members: cython.longlong = 0
        uses: cython.longlong
        n: cython.Py_ssize_t
        if count > MAX_BRANCHES:
            return False
        for n in range(count):
            branch = branches[n] * tables.OP_WIDTH
            if self.ops[branch + tables.OPCODE] == tables.AVRO_MEMBER:
                members += 1
            elif self.ops[branch + tables.OPCODE] != tables.AVRO_NULL:
                return False
        while child < self.nodes[node * tables.NODE_WIDTH + tables.STOP]:
            uses = 0
            for n in range(count):
                branch = branches[n] * tables.OP_WIDTH
                if self.ops[branch + tables.OPCODE] == tables.AVRO_MEMBER:
                    branch = self.ops[branch + tables.A] * tables.OP_WIDTH
                    uses += self.ops[branch + tables.NODE] == child
            if uses != 1:
                return False
            members -= 1
            child = self.nodes[child * tables.NODE_WIDTH + tables.STOP]
        return members == 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_members(
        self, at: cython.Py_ssize_t, group: cython.pointer[Group], depth: cython.int
    ) -> cython.bint:
        """Read a group's values of a union, branch by branch."""
        branches = cython.declare(cython.uchar[GROUP_SIZE])
        values = cython.declare(Group)
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        branch_count: cython.int = self.ops[at + tables.B]
        branch: cython.int
        child: cython.Py_ssize_t = node + 1
        if not self._find_branches(branch_count, group, branches):
            return False
        # Each row is null in all members but one. Rows of null records have no values, either.
        while child < self.nodes[node * tables.NODE_WIDTH + tables.STOP]:
            self._blank(child, group.first, group.stop)
            if self.nodes[child * tables.NODE_WIDTH + tables.STORAGE] == tables.LIST:
                child = self.nodes[child * tables.NODE_WIDTH + tables.STOP]
            else:
                child += 1
        values.first = group.first
        values.stop = group.stop
        values.is_dense = False
        # Branches without values, too: texts and lists need ends in all rows.
        for branch in range(branch_count):
            if not self._read_branch(
                self.links[self.ops[at + tables.A] + branch] * tables.OP_WIDTH,
                2 * branch,
                branches,
                cython.address(values),
                group,
                depth,
            ):
                return False
        return True

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _find_branches(
        self,
        branch_count: cython.longlong,
        group: cython.pointer[Group],
        branches: cython.pointer[cython.uchar],
    ) -> cython.bint:
        """Read the encoded branch of each value; return whether all are valid, of one byte each."""
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        limit: cython.Py_ssize_t = self.limit
        rest: cython.Py_ssize_t = 0
        bits: cython.uchar = 0
        greatest: cython.uchar = 0
        n: cython.Py_ssize_t
        for n in range(group.count):
            rest |= limit - group.at[n]
        if rest < 0:
            return False
        for n in range(group.count):
            branches[n] = p[group.at[n]]
        for n in range(group.count):
            bits |= branches[n]
            greatest = max(greatest, branches[n])
        return bits & 0x81 == 0 and greatest >> 1 < branch_count

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_branch(
        self,
        op: cython.Py_ssize_t,
        branch: cython.int,
        branches: cython.pointer[cython.uchar],
        values: cython.pointer[Group],
        group: cython.pointer[Group],
        depth: cython.int,
    ) -> cython.bint:
        """Read the values of a group that have a branch, which is encoded; the op is its own."""
        numbers = cython.declare(cython.uchar[GROUP_SIZE])
        node: cython.Py_ssize_t = self.ops[op + tables.NODE]
        count: cython.Py_ssize_t = 0
        n: cython.Py_ssize_t
        found: cython.ulonglong = find_equal(branches, group.count, branch)
        while found != 0:
            n = lowest(found)
            found &= found - 1
            values.at[count] = group.at[n] + 1
            values.rows[count] = group.rows[n]
            numbers[count] = n
            count += 1
        values.count = count
        if self.ops[op + tables.OPCODE] == tables.AVRO_NULL:
            self._set_valid(node, node + 1, values, 0)
        else:
            op = self.ops[op + tables.A]
            node = self.ops[op * tables.OP_WIDTH + tables.NODE]
            self._set_valid(node, self.nodes[node * tables.NODE_WIDTH + tables.STOP], values, 1)
            if not self._read_step(op, values, depth):
                return False
        for n in range(count):
            group.at[numbers[n]] = values.at[n]
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _set_valid(
        self,
        node: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        group: cython.pointer[Group],
        is_valid: cython.int,
    ) -> cython.void:
        """Set whether a group's rows are valid in nodes `[node, stop)`, but not in items."""
        valid: cython.pointer[cython.uchar]
        n: cython.Py_ssize_t
        while node < stop:
            valid = self.a8 + self.nodes[node * tables.NODE_WIDTH + tables.VALID]
            for n in range(group.count):
                valid[group.rows[n]] = is_valid
            if self.nodes[node * tables.NODE_WIDTH + tables.STORAGE] == tables.LIST:
                node = self.nodes[node * tables.NODE_WIDTH + tables.STOP]
            else:
                node += 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_nulls(
        self,
        node: cython.Py_ssize_t,
        rows: cython.pointer[cython.longlong],
        count: cython.Py_ssize_t,
    ) -> cython.void:
        """Set rows of a node and of its fields to null; later steps set the ends of texts."""
        stop: cython.Py_ssize_t = self.nodes[node * tables.NODE_WIDTH + tables.STOP]
        at: cython.Py_ssize_t
        storage: cython.longlong
        n: cython.Py_ssize_t
        while node < stop:
            at = node * tables.NODE_WIDTH
            storage = self.nodes[at + tables.STORAGE]
            for n in range(count):
                self.a8[self.nodes[at + tables.VALID] + rows[n]] = 0
            if storage < tables.VARIABLE:
                for n in range(count):
                    self._zero(node, rows[n])
            node = self.nodes[at + tables.STOP] if storage == tables.LIST else node + 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_lists(
        self,
        at: cython.Py_ssize_t,
        null_branch: cython.int,
        group: cython.pointer[Group],
        depth: cython.int,
    ) -> cython.bint:
        """Read a group's arrays or maps: find their items, and read these in groups."""
        items = cython.declare(Group)
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        item: cython.longlong = self.ops[at + tables.A]
        is_map: cython.bint = self.ops[at + tables.OPCODE] == tables.AVRO_MAP
        valid: cython.pointer[cython.uchar] = (
            self.a8 + self.nodes[node * tables.NODE_WIDTH + tables.VALID]
        )
        ends: cython.pointer[cython.int] = (
            self.a32 + self.nodes[node * tables.NODE_WIDTH + tables.DATA] + 1
        )
        row: cython.longlong = group.first
        total: cython.longlong = self.counts[node + 1]
        remaining: cython.longlong
        is_value: cython.bint = True
        n: cython.Py_ssize_t
        i: cython.Py_ssize_t
        count: cython.Py_ssize_t
        items.count = 0
        for n in range(group.count):
            i = group.at[n]
            if i > self.limit:
                return False
            while row < group.rows[n]:
                ends[row] = total
                row += 1
            if null_branch != _NOT_NULL:
                if self.p[i] & 0xFD != 0:
                    return False
                is_value = self.p[i] != null_branch
                valid[row] = is_value
                i += 1
            while is_value:
                i = self._read_count(node, i)
                if i < 0:
                    return False
                remaining = self.number
                if remaining == 0:
                    break
                if remaining > self.limit - i:
                    return False
                total += remaining
                while remaining > 0:
                    if items.count == GROUP_SIZE:
                        if not self._read_items_of(
                            item, node, is_map, cython.address(items), depth
                        ):
                            return False
                        items.count = 0
                    count = min(remaining, GROUP_SIZE - items.count)
                    i = self._find_items(at, i, self.limit, depth, items.at + items.count, count)
                    if i < 0:
                        return False
                    items.count += count
                    remaining -= count
            ends[row] = total
            row += 1
            group.at[n] = i
        while row < group.stop:
            ends[row] = total
            row += 1
        return items.count == 0 or self._read_items_of(
            item, node, is_map, cython.address(items), depth
        )

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_count(self, node: cython.Py_ssize_t, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read the number of items of a block, without a call if it is in `[0, 64)`."""
        if i < self.limit and self.p[i] & 0x81 == 0:
            self.number = self.p[i] >> 1
            return i + 1
        return self._read_block(node, i, self.limit)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_items_of(
        self,
        item: cython.longlong,
        node: cython.Py_ssize_t,
        is_map: cython.bint,
        items: cython.pointer[Group],
        depth: cython.int,
    ) -> cython.bint:
        """Read a group of items of the lists or maps of a node."""
        if not self._take_rows(node + 1, items):
            return False
        if is_map and not self._put_texts(node + 2, True, _NOT_NULL, items):
            return False
        return self._read_step(item, items, depth + 1)

    # Plain items: if items consist of texts, enums and numbers only, one pass reads all lists of a
    # group, item by item. The processor reads several lists at a time, because the start of each is
    # known. If there are only numbers, rounds read them faster: see `_read_in_rounds`.

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _set_items(self, at: cython.Py_ssize_t, items: cython.pointer[Items]) -> cython.bint:
        """Describe the items of an array or map; return False if they are not plain."""
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        item: cython.Py_ssize_t = self.ops[at + tables.A] * tables.OP_WIDTH
        null_branch: cython.int = self._null_branch(item)
        record: cython.Py_ssize_t = self._value_op(item, null_branch)
        link: cython.Py_ssize_t
        last: cython.Py_ssize_t
        column: cython.pointer[Column]
        items.count = 0
        items.is_map_of_plain = False
        items.has_runs = self.ops[at + tables.OPCODE] == tables.AVRO_MAP
        items.null_branch = _NOT_NULL
        if self.ops[at + tables.OPCODE] == tables.AVRO_MAP:
            self._set_column(tables.AVRO_STRING, node + 2, cython.address(items.columns[0]))
            items.count = 1
        if self.ops[record + tables.OPCODE] != tables.AVRO_RECORD:
            if not self._set_value_column(item, cython.address(items.columns[items.count])):
                return False
            column = cython.address(items.columns[items.count])
            items.has_runs |= column.has_runs
            items.is_map_of_plain = (
                items.count > 0
                and column.null_branch == _NOT_NULL
                and (column.opcode == tables.AVRO_INTEGER or column.has_runs)
                and column.opcode != tables.AVRO_ENUM
            )
            items.count += 1
            return True
        link = self.ops[record + tables.A]
        last = link + self.ops[record + tables.B]
        if (
            self._storage(record) != tables.STRUCT
            or self.ops[record + tables.D] != 0
            or last - link > MAX_COLUMNS - items.count
            or (null_branch != _NOT_NULL and items.count > 0)
        ):
            return False
        items.null_branch = null_branch
        items.valid = self.a8 + self.nodes[(node + 1) * tables.NODE_WIDTH + tables.VALID]
        while link < last:
            if not self._set_value_column(
                self.links[link] * tables.OP_WIDTH, cython.address(items.columns[items.count])
            ):
                return False
            items.has_runs |= items.columns[items.count].has_runs
            items.count += 1
            link += 1
        # An item must have bytes, so that their number is limited.
        return items.count > 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _set_value_column(
        self, at: cython.Py_ssize_t, column: cython.pointer[Column]
    ) -> cython.bint:
        """Describe the values of an op; return False if they are not plain."""
        null_branch: cython.int = self._null_branch(at)
        opcode: cython.longlong
        at = self._value_op(at, null_branch)
        opcode = self.ops[at + tables.OPCODE]
        if opcode == tables.AVRO_INTEGER:
            if not self._is_plain_integer(at):
                return False
        elif opcode == tables.AVRO_FLOAT:
            if self._storage(at) != tables.INT32:
                return False
        elif (
            opcode != tables.AVRO_STRING
            and opcode != tables.AVRO_BYTES
            and opcode != tables.AVRO_ENUM
            and opcode != tables.AVRO_DOUBLE
            and opcode != tables.AVRO_BOOLEAN
            and opcode != tables.AVRO_DECIMAL
        ):
            return False
        self._set_column(opcode, self.ops[at + tables.NODE], column)
        column.null_branch = null_branch
        column.op = at
        if opcode == tables.AVRO_INTEGER or opcode == tables.AVRO_ENUM:
            column.links = self.links + self.ops[at + tables.A]
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _set_column(
        self, opcode: cython.longlong, node: cython.Py_ssize_t, column: cython.pointer[Column]
    ) -> cython.void:
        at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        column.opcode = opcode
        column.node = node
        column.null_branch = _NOT_NULL
        column.has_runs = self.nodes[at + tables.STORAGE] == tables.VARIABLE
        column.is_wide = self.nodes[at + tables.STORAGE] == tables.INT64
        column.valid = self.a8 + self.nodes[at + tables.VALID]
        column.bytes = self.a8 + self.nodes[at + tables.BYTES]
        column.used = self.used[node]
        column.room = self.nodes[at + tables.BYTES_CAPACITY] - RUN_PADDING
        column.flags = self.a8 + self.nodes[at + tables.DATA]
        column.narrow = self.a32 + self.nodes[at + tables.DATA] + column.has_runs
        # A decimal is two numbers.
        column.wide = self.a64 + self.nodes[at + tables.DATA] * (
            1 + (opcode == tables.AVRO_DECIMAL)
        )

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_plain_lists(
        self,
        node: cython.Py_ssize_t,
        null_branch: cython.int,
        items: cython.pointer[Items],
        group: cython.pointer[Group],
    ) -> cython.bint:
        """Read a group's arrays or maps of plain items."""
        masks = cython.declare(cython.longlong[GROUP_SIZE])
        first: cython.longlong = self.counts[node + 1]
        column: cython.pointer[Column]
        total: cython.longlong = first
        is_read: cython.bint
        n: cython.Py_ssize_t
        if not self._begin_values(node, null_branch, group, masks):
            return False
        is_read = (
            group.is_dense
            and not self.has_blocks
            and self._read_short_lists(node, masks, items, group, cython.address(total))
        )
        if not is_read and total == first:
            is_read = self._read_each_list(node, masks, items, group, cython.address(total))
        # Also after a failure, so that all rows are rolled back.
        self._set_rows(node + 1, total)
        if not is_read:
            return False
        for n in range(items.count):
            column = cython.address(items.columns[n])
            if column.has_runs:
                self.used[column.node] = column.used
                if column.opcode == tables.AVRO_STRING and not self._are_texts(
                    column.node, first, total
                ):
                    return False
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_short_lists(
        self,
        node: cython.Py_ssize_t,
        masks: cython.pointer[cython.longlong],
        items: cython.pointer[Items],
        group: cython.pointer[Group],
        total: cython.pointer[cython.longlong],
    ) -> cython.bint:
        """Read a group's arrays or maps as `_read_each_list`, unless one has many items or blocks.

        Leaves `total` if it has. A list's number of items is hard to predict, so one loop reads the
        items of all lists.
        """
        lists = cython.declare(cython.uchar[SHORT_LIST_ROOM])
        starts = cython.declare(cython.Py_ssize_t[GROUP_SIZE])
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        ends: cython.pointer[cython.int] = (
            self.a32 + self.nodes[node * tables.NODE_WIDTH + tables.DATA] + 1 + group.first
        )
        first: cython.longlong = total[0]
        count: cython.longlong = count_items(
            p, group.at, masks, group.count, starts, lists, ends, first
        )
        column: cython.pointer[Column]
        excess: cython.int = 0
        is_value: cython.bint
        k: cython.Py_ssize_t
        n: cython.Py_ssize_t
        if count < 0 or count > self._item_capacity(node + 1) - first:
            return False
        k = 0
        while k < count:
            if items.is_map_of_plain:
                k = self._read_entries(items, lists, starts, k, count, first)
                if k == count:
                    break
            n = lists[k]
            starts[n] = self._read_item(items, first + k, starts[n])
            k += 1
            if starts[n] < 0:
                total[0] = first + k
                return False
        for n in range(group.count):
            # The last block is followed by one without items.
            is_value = ends[n] > first
            first = ends[n]
            excess |= p[starts[n]] & -is_value
            starts[n] += is_value
        if excess != 0:
            self.has_blocks = True
            for n in range(items.count):
                column = cython.address(items.columns[n])
                column.used = self.used[column.node]
                for k in range(count):
                    column.valid[total[0] + k] = 1
            return False
        for n in range(group.count):
            group.at[n] = starts[n]
        total[0] = first
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_each_list(
        self,
        node: cython.Py_ssize_t,
        masks: cython.pointer[cython.longlong],
        items: cython.pointer[Items],
        group: cython.pointer[Group],
        total: cython.pointer[cython.longlong],
    ) -> cython.bint:
        """Read a group's arrays or maps, and add the number of their items to `total`."""
        limit: cython.Py_ssize_t = self.limit
        ends: cython.pointer[cython.int] = (
            self.a32 + self.nodes[node * tables.NODE_WIDTH + tables.DATA] + 1
        )
        row: cython.longlong = group.first
        capacity: cython.longlong = self._item_capacity(node + 1)
        item: cython.longlong = total[0]
        remaining: cython.longlong
        n: cython.Py_ssize_t
        i: cython.Py_ssize_t
        for n in range(group.count):
            i = group.at[n]
            while row < group.rows[n]:
                ends[row] = item
                row += 1
            while masks[n] != 0:
                i = self._read_count(node, i)
                if i < 0:
                    return False
                remaining = self.number
                if remaining == 0:
                    break
                if remaining > capacity - item:
                    self.can_retry = remaining <= limit - i
                    return False
                while remaining > 0:
                    i = self._read_item(items, item, i)
                    item += 1
                    total[0] = item
                    if i < 0:
                        return False
                    remaining -= 1
            ends[row] = item
            row += 1
            group.at[n] = i
        while row < group.stop:
            ends[row] = item
            row += 1
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _item_capacity(self, node: cython.Py_ssize_t) -> cython.longlong:
        """Return the number of values for which a node and the nodes of its fields have room."""
        stop: cython.Py_ssize_t = self.nodes[node * tables.NODE_WIDTH + tables.STOP]
        capacity: cython.longlong = tables.MAX_OFFSET
        while node < stop:
            capacity = min(capacity, self.nodes[node * tables.NODE_WIDTH + tables.CAPACITY])
            node += 1
        return capacity

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_entries(
        self,
        items: cython.pointer[Items],
        lists: cython.pointer[cython.uchar],
        starts: cython.pointer[cython.Py_ssize_t],
        k: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
        first: cython.longlong,
    ) -> cython.Py_ssize_t:
        """Read entries `[k, count)` of maps up to one with a long text; return that one's number.

        Entry number 0 goes to the row `first`.
        """
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        limit: cython.Py_ssize_t = self.limit
        size: cython.Py_ssize_t = self.size
        key: cython.pointer[Column] = cython.address(items.columns[0])
        value: cython.pointer[Column] = cython.address(items.columns[1])
        keys: cython.pointer[cython.uchar] = key.bytes
        key_ends: cython.pointer[cython.int] = key.narrow + first
        key_used: cython.longlong = key.used
        key_room: cython.longlong = key.room
        values: cython.pointer[cython.uchar] = value.bytes
        narrow: cython.pointer[cython.int] = value.narrow + first
        wide: cython.pointer[cython.longlong] = value.wide + first
        value_used: cython.longlong = value.used
        value_room: cython.longlong = value.room
        has_runs: cython.bint = value.has_runs
        is_wide: cython.bint = value.is_wide
        number: cython.longlong = 0
        length: cython.Py_ssize_t
        i: cython.Py_ssize_t
        stop: cython.Py_ssize_t
        while k < count:
            i = starts[lists[k]]
            length = p[i] if i <= limit else 1
            i += 1
            stop = i + (length >> 1)
            if length & 1 != 0 or length > _MAX_ENCODED_RUN or stop > limit or key_used > key_room:
                break
            copy_block(keys + key_used, p + i)
            i = stop
            if has_runs:
                number = p[i]
                i += 1
                stop = i + (number >> 1)
                if number & 1 != 0 or number > _MAX_ENCODED_RUN or stop > limit:
                    break
                if value_used > value_room:
                    break
                copy_block(values + value_used, p + i)
                value_used += number >> 1
                narrow[k] = value_used
            else:
                stop = take_long(p, i, limit, size, cython.address(number))
                if stop < 0 or number < value.links[tables.LOW]:
                    break
                if number > value.links[tables.HIGH]:
                    break
                number *= value.links[tables.MULTIPLIER]
                if is_wide:
                    wide[k] = number
                else:
                    narrow[k] = number
            key_used += length >> 1
            key_ends[k] = key_used
            starts[lists[k]] = stop
            k += 1
        key.used = key_used
        value.used = value_used
        return k

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_item(
        self, items: cython.pointer[Items], row: cython.longlong, i: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Read an item into a row of its columns; return its end, or −1."""
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        limit: cython.Py_ssize_t = self.limit
        column: cython.pointer[Column]
        is_null: cython.bint = False
        n: cython.Py_ssize_t
        if items.null_branch != _NOT_NULL:
            if i > limit or p[i] & 0xFD != 0:
                return -1
            is_null = p[i] == items.null_branch
            items.valid[row] = not is_null
            i += 1
        for n in range(items.count):
            column = cython.address(items.columns[n])
            if not is_null:
                if i > limit:
                    return -1
                if column.null_branch == _NOT_NULL:
                    i = self._read_plain(column, row, i)
                    if i < 0:
                        return -1
                    continue
                if p[i] & 0xFD != 0:
                    return -1
                i += 1
                if p[i - 1] != column.null_branch:
                    i = self._read_plain(column, row, i)
                    if i < 0:
                        return -1
                    continue
            column.valid[row] = 0
            if column.has_runs:
                column.narrow[row] = column.used
            else:
                self._zero(column.node, row)
        return i

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_plain(
        self, column: cython.pointer[Column], row: cython.longlong, i: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Read a text, enum or number into a row, at a position up to `limit` + 1."""
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        number: cython.longlong
        if column.has_runs:
            number = p[i]
            if number & 0x81 == 0:
                number >>= 1
                i += 1
            else:
                i = self._read_number(i)
                number = self.number
                if i < 0 or number < 0:
                    return -1
            if column.opcode == tables.AVRO_ENUM:
                if number >= self.ops[column.op + tables.B]:
                    return -1
                # The position of a symbol that the reader lacks is negative.
                number = column.links[number]
                if number < 0 or not self._copy_run(
                    column, row, self.constants + (number >> 32), number & _MASK32
                ):
                    return -1
                return i
            if number > self.limit - i or not self._copy_run(column, row, p + i, number):
                return -1
            return i + number
        if column.opcode == tables.AVRO_INTEGER:
            i = self._read_number(i)
            number = self.number
            if i < 0 or number < column.links[tables.LOW] or number > column.links[tables.HIGH]:
                return -1
            number *= column.links[tables.MULTIPLIER]
            if column.is_wide:
                column.wide[row] = number
            else:
                column.narrow[row] = number
            return i
        if column.opcode == tables.AVRO_DOUBLE:
            column.wide[row] = word(p + i)
            return i + 8
        if column.opcode == tables.AVRO_FLOAT:
            column.narrow[row] = half_word(p + i)
            return i + 4
        if column.opcode == tables.AVRO_DECIMAL:
            number = self.ops[column.op + tables.A]
            if number == tables.ABSENT:
                i = self._read_number(i)
                number = self.number
            if i < 0 or number > self.limit - i:
                return -1
            if 1 <= number <= 8:
                return self._read_short_decimal(column, row, i, number)
            # The number goes to the row that is next by the count.
            self.counts[column.node] = row
            if not self._put_decimal(column.node, i, number, self.ops[column.op + tables.B]):
                return -1
            return i + number
        column.flags[row] = p[i]
        return i + 1 if p[i] <= 1 else -1

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_short_decimal(
        self,
        column: cython.pointer[Column],
        row: cython.longlong,
        i: cython.Py_ssize_t,
        length: cython.longlong,
    ) -> cython.Py_ssize_t:
        """Read a big-endian number of one to eight bytes into a row; return its end, or −1."""
        bound: cython.longlong = self.ops[column.op + tables.B]
        most: cython.longlong = self.links[bound + 1]
        number: cython.longlong = big_endian(self.p + i)
        number >>= 64 - 8 * length
        column.wide[2 * row] = number
        column.wide[2 * row + 1] = number >> 63
        # No number of eight bytes exceeds a bound of more.
        if self.links[bound] == 0 and most >= 0 and (number >= most or number <= -most):
            return -1
        return i + length

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _copy_run(
        self,
        column: cython.pointer[Column],
        row: cython.longlong,
        run: cython.pointer[cython.const[cython.uchar]],
        length: cython.longlong,
    ) -> cython.bint:
        """Copy a run of bytes into a row; return whether there is room for it."""
        if length > column.room - column.used:
            self.can_retry = True
            return False
        copy_run(column.bytes + column.used, run, length)
        column.used += length
        column.narrow[row] = column.used
        return True

    # Rounds: the first items of all lists of a group are read together, then the second items, and
    # so on. No item waits for the one before it, and vectors read the numbers. The lists are sorted
    # by their number of items, so that each round reads the first of them. Texts must be appended
    # in the order of their rows, so items with texts are not read in rounds.

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_in_rounds(
        self,
        at: cython.Py_ssize_t,
        null_branch: cython.int,
        items: cython.pointer[Items],
        group: cython.pointer[Group],
        depth: cython.int,
    ) -> cython.bint:
        """Read a group's arrays of numbers in rounds, or one by one if few have as many items."""
        unsorted = cython.declare(Group)
        lists = cython.declare(Group)
        numbers = cython.declare(cython.uchar[GROUP_SIZE])
        remaining = cython.declare(cython.longlong[GROUP_SIZE])
        after = cython.declare(cython.Py_ssize_t[GROUP_SIZE])
        masks = cython.declare(cython.longlong[GROUP_SIZE])
        node: cython.Py_ssize_t = self.ops[at + tables.NODE]
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        ends: cython.pointer[cython.int] = (
            self.a32 + self.nodes[node * tables.NODE_WIDTH + tables.DATA] + 1
        )
        row: cython.longlong = group.first
        first: cython.longlong = self.counts[node + 1]
        total: cython.longlong = first
        most: cython.longlong = 0
        count: cython.Py_ssize_t = 0
        number: cython.longlong
        n: cython.Py_ssize_t
        i: cython.Py_ssize_t
        for n in range(group.count):
            after[n] = group.at[n]
        if not self._begin_values(node, null_branch, group, masks):
            return False
        for n in range(group.count):
            i = group.at[n]
            number = p[i] & masks[n]
            if number & 0x81 == 0:
                number >>= 1
                i -= masks[n]
            else:
                i = self._read_block(node, i, self.limit)
                number = self.number
                if i < 0 or number > self.limit - i:
                    return False
            while row < group.rows[n]:
                ends[row] = total
                row += 1
            unsorted.at[count] = i
            unsorted.rows[count] = total
            remaining[count] = number
            numbers[count] = n
            count += number > 0
            most = max(most, number)
            total += number
            ends[row] = total
            row += 1
            group.at[n] = i
        while row < group.stop:
            ends[row] = total
            row += 1
        if total - first < _MIN_ROUND * most:
            for n in range(group.count):
                group.at[n] = after[n]
            return self._read_plain_lists(node, null_branch, items, group)
        if total > self._item_capacity(node + 1):
            self.can_retry = True
            return False
        self._set_rows(node + 1, total)
        lists.first = first
        lists.stop = total
        lists.is_dense = False
        while count > 0:
            unsorted.count = count
            self._sort_lists(
                cython.address(unsorted), numbers, remaining, most, cython.address(lists)
            )
            count = self._read_rounds(at, cython.address(lists), numbers, remaining, group, depth)
            most -= MAX_ROUNDS
            for n in range(count):
                unsorted.at[n] = lists.at[n]
                unsorted.rows[n] = lists.rows[n]
        return count == 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _sort_lists(
        self,
        unsorted: cython.pointer[Group],
        numbers: cython.pointer[cython.uchar],
        remaining: cython.pointer[cython.longlong],
        most: cython.longlong,
        lists: cython.pointer[Group],
    ) -> cython.void:
        """Sort lists by their remaining items, which are at most `most`, in descending order.

        Lists with `MAX_ROUNDS` items or more come first, in any order.
        """
        places = cython.declare(cython.uchar[GROUP_SIZE])
        old_numbers = cython.declare(cython.uchar[GROUP_SIZE])
        old_remaining = cython.declare(cython.longlong[GROUP_SIZE])
        top: cython.Py_ssize_t = min(most, MAX_ROUNDS)
        key: cython.Py_ssize_t
        place: cython.int = 0
        size: cython.int
        n: cython.Py_ssize_t
        for key in range(top + 1):
            places[key] = 0
        for n in range(unsorted.count):
            places[min(remaining[n], top)] += 1
            old_numbers[n] = numbers[n]
            old_remaining[n] = remaining[n]
        for key in range(top, -1, -1):
            size = places[key]
            places[key] = place
            place += size
        for n in range(unsorted.count):
            key = min(old_remaining[n], top)
            place = places[key]
            places[key] = place + 1
            lists.at[place] = unsorted.at[n]
            lists.rows[place] = unsorted.rows[n]
            numbers[place] = old_numbers[n]
            remaining[place] = old_remaining[n]
        lists.count = unsorted.count

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_rounds(
        self,
        at: cython.Py_ssize_t,
        lists: cython.pointer[Group],
        numbers: cython.pointer[cython.uchar],
        remaining: cython.pointer[cython.longlong],
        group: cython.pointer[Group],
        depth: cython.int,
    ) -> cython.Py_ssize_t:
        """Read `MAX_ROUNDS` items of sorted lists, or all; return the number of the other lists.

        `numbers` are the numbers in `group` of the lists. Returns −1 if it cannot read them.
        """
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        count: cython.Py_ssize_t = lists.count
        items: cython.longlong = 0
        excess: cython.int = 0
        n: cython.Py_ssize_t
        while True:
            while count > 0 and remaining[count - 1] == items:
                count -= 1
                # The list ends with a block of no items.
                excess |= p[lists.at[count]]
                group.at[numbers[count]] = lists.at[count] + 1
            if excess != 0:
                self.has_blocks = True
                self.can_retry = True
                return -1
            if count == 0 or items == MAX_ROUNDS:
                break
            lists.count = count
            if not self._read_round(at, lists, depth):
                return -1
            for n in range(count):
                lists.rows[n] += 1
            items += 1
        for n in range(count):
            remaining[n] -= items
        return count

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_round(
        self, at: cython.Py_ssize_t, group: cython.pointer[Group], depth: cython.int
    ) -> cython.bint:
        """Read one item of each list of a group."""
        item: cython.Py_ssize_t = self.ops[at + tables.A] * tables.OP_WIDTH
        link: cython.Py_ssize_t = self.ops[item + tables.A]
        last: cython.Py_ssize_t = link + self.ops[item + tables.B]
        prefetch_next(self.p, cython.address(self.next_read), self.prefetch_stop, _STEP_BYTES)
        if self.ops[item + tables.OPCODE] != tables.AVRO_RECORD:
            return self._read_step(self.ops[at + tables.A], group, depth + 1)
        while link < last:
            if not self._read_step(self.links[link], group, depth + 2):
                return False
            link += 1
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _are_texts(
        self, node: cython.Py_ssize_t, first: cython.longlong, stop: cython.longlong
    ) -> cython.bint:
        """Return whether the texts in rows `[first, stop)`, the last of a node, are UTF-8."""
        at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        starts: cython.pointer[cython.int] = self.a32 + self.nodes[at + tables.DATA]
        texts: cython.pointer[cython.uchar] = self.a8 + self.nodes[at + tables.BYTES]
        start: cython.longlong = starts[first]
        total: cython.longlong = starts[stop] - start
        data: cython.pointer[cython.const[cython.uchar]] = self.p
        size: cython.Py_ssize_t = self.size
        verdict: cython.int
        splits: cython.int = 0
        row: cython.longlong
        if is_ascii(texts + start, total):
            return True
        # All texts together are UTF-8, and none starts within a character.
        verdict = is_utf8(texts + start, total, self.nodes[at + tables.BYTES_CAPACITY] - start)
        if verdict >= 0:
            for row in range(first, stop):
                splits |= texts[starts[row]] & 0xC0 == 0x80 and starts[row] < starts[row + 1]
            return verdict and not splits
        self.p = texts
        self.size = self.nodes[at + tables.BYTES_CAPACITY]
        verdict = 1
        for row in range(first, stop):
            verdict &= self._is_text(starts[row], starts[row + 1])
        self.p = data
        self.size = size
        return verdict

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_texts(
        self, at: cython.Py_ssize_t, null_branch: cython.int, group: cython.pointer[Group]
    ) -> cython.bint:
        is_text: cython.bint = self.ops[at + tables.OPCODE] == tables.AVRO_STRING
        return self._put_texts(self.ops[at + tables.NODE], is_text, null_branch, group)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _begin_values(
        self,
        node: cython.Py_ssize_t,
        null_branch: cython.int,
        group: cython.pointer[Group],
        masks: cython.pointer[cython.longlong],
    ) -> cython.bint:
        """Check the positions of a group's values, and read which are null.

        Sets `masks` of each value to −1, or to 0 if it is null.
        """
        flags = cython.declare(cython.uchar[GROUP_SIZE])
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        valid: cython.pointer[cython.uchar] = (
            self.a8 + self.nodes[node * tables.NODE_WIDTH + tables.VALID]
        )
        limit: cython.Py_ssize_t = self.limit
        rest: cython.Py_ssize_t = 0
        is_read: cython.bint
        n: cython.Py_ssize_t
        for n in range(group.count):
            # A negative number has its highest bit set.
            rest |= limit - group.at[n]
        if rest < 0:
            return False
        if null_branch == _NOT_NULL:
            for n in range(group.count):
                masks[n] = -1
            return True
        if group.is_dense:
            return read_nulls(p, group.at, group.count, null_branch, valid + group.first, masks)
        is_read = read_nulls(p, group.at, group.count, null_branch, flags, masks)
        for n in range(group.count):
            valid[group.rows[n]] = flags[n]
        return is_read

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_texts(
        self,
        node: cython.Py_ssize_t,
        is_text: cython.bint,
        null_branch: cython.int,
        group: cython.pointer[Group],
    ) -> cython.bint:
        """Append a group's texts or bytes to a node."""
        masks = cython.declare(cython.longlong[GROUP_SIZE])
        starts = cython.declare(cython.Py_ssize_t[GROUP_SIZE])
        lengths = cython.declare(cython.longlong[GROUP_SIZE])
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        if not self._begin_values(node, null_branch, group, masks):
            return False
        if not self._find_texts(masks, group, starts, lengths):
            return False
        if not self._put_runs(node, p, self.size - self.limit, starts, lengths, group):
            return False
        return not is_text or self._are_texts(node, group.first, group.stop)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _find_texts(
        self,
        masks: cython.pointer[cython.longlong],
        group: cython.pointer[Group],
        starts: cython.pointer[cython.Py_ssize_t],
        lengths: cython.pointer[cython.longlong],
    ) -> cython.bint:
        """Read the lengths of a group's texts, and skip them; nulls have no bytes."""
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        limit: cython.Py_ssize_t = self.limit
        rest: cython.Py_ssize_t = 0
        length: cython.longlong
        i: cython.Py_ssize_t
        n: cython.Py_ssize_t
        for n in range(group.count):
            i = group.at[n]
            length = p[i] & masks[n]
            if length & 0x81 == 0:
                length >>= 1
                i -= masks[n]
            else:
                i = self._read_number(i)
                length = self.number
                if i < 0 or length < 0 or length > limit - i:
                    return False
            starts[n] = i
            lengths[n] = length
            i += length
            rest |= limit - i
            group.at[n] = i
        return rest >= 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_runs(
        self,
        node: cython.Py_ssize_t,
        source: cython.pointer[cython.const[cython.uchar]],
        readable: cython.Py_ssize_t,
        starts: cython.pointer[cython.Py_ssize_t],
        lengths: cython.pointer[cython.longlong],
        group: cython.pointer[Group],
    ) -> cython.bint:
        """Append a run of bytes to a node for each value; `readable` bytes follow every run."""
        at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        dense_ends = cython.declare(cython.int[GROUP_SIZE])
        row_lengths = cython.declare(cython.longlong[GROUP_SIZE])
        end: cython.longlong
        ends: cython.pointer[cython.int] = self.a32 + self.nodes[at + tables.DATA] + 1
        used: cython.longlong = self.used[node]
        row: cython.longlong = group.first
        total: cython.longlong = 0
        most: cython.longlong = 0
        n: cython.Py_ssize_t
        for n in range(group.count):
            total += lengths[n]
            most |= lengths[n]
        if total > self.nodes[at + tables.BYTES_CAPACITY] - used - RUN_PADDING:
            self.can_retry = True
            return False
        if readable < RUN_PADDING:
            # Without bytes after a run, it is copied exactly.
            most = RUN_PADDING + 1
        if group.is_dense:
            copy_runs(
                self.a8 + self.nodes[at + tables.BYTES], ends + row, source, starts, lengths,
                group.count, used, most,
            )  # fmt: skip
        else:
            copy_runs(
                self.a8 + self.nodes[at + tables.BYTES], dense_ends, source, starts, lengths,
                group.count, used, most,
            )  # fmt: skip
            # Without a branch for each row that has no value.
            for n in range(group.stop - row):
                row_lengths[n] = 0
            for n in range(group.count):
                row_lengths[group.rows[n] - row] = lengths[n]
            end = used
            for n in range(group.stop - row):
                end += row_lengths[n]
                ends[row + n] = end
        self.used[node] = used + total
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_symbols(
        self, op: cython.Py_ssize_t, null_branch: cython.int, group: cython.pointer[Group]
    ) -> cython.bint:
        masks = cython.declare(cython.longlong[GROUP_SIZE])
        starts = cython.declare(cython.Py_ssize_t[GROUP_SIZE])
        lengths = cython.declare(cython.longlong[GROUP_SIZE])
        node: cython.Py_ssize_t = self.ops[op + tables.NODE]
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        symbols: cython.pointer[cython.const[cython.longlong]] = (
            self.links + self.ops[op + tables.A]
        )
        symbol_count: cython.longlong = self.ops[op + tables.B]
        most: cython.longlong = self.ops[op + tables.C]
        at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        room: cython.longlong = self.nodes[at + tables.BYTES_CAPACITY] - self.used[node]
        used: cython.longlong
        number: cython.longlong
        position: cython.longlong
        missing: cython.longlong = 0
        i: cython.Py_ssize_t
        n: cython.Py_ssize_t
        if not self._begin_values(node, null_branch, group, masks):
            return False
        room -= group.count * most + RUN_PADDING
        if null_branch == _NOT_NULL and group.is_dense and most <= RUN_PADDING and room >= 0:
            used = copy_symbols(
                self.a8 + self.nodes[at + tables.BYTES],
                self.a32 + self.nodes[at + tables.DATA] + 1 + group.first,
                p,
                group.at,
                self.constants,
                symbols,
                symbol_count,
                group.count,
                self.used[node],
                most,
            )
            if used < 0:
                return False
            self.used[node] = used
            return True
        for n in range(group.count):
            i = group.at[n]
            number = p[i] & masks[n]
            if number & 0x81 == 0:
                number >>= 1
                i -= masks[n]
            else:
                i = self._read_number(i)
                number = self.number
                if i < 0 or number < 0:
                    return False
            if number >= symbol_count:
                return False
            # A null is the text of no bytes at the start of the constants.
            position = symbols[number] & masks[n]
            missing |= position
            starts[n] = position >> 32
            lengths[n] = position & _MASK32
            group.at[n] = i
        # The position of a symbol that the reader lacks is negative.
        return missing >= 0 and self._put_runs(
            node, self.constants, _CONSTANT_BYTES, starts, lengths, group
        )

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_integers(
        self, op: cython.Py_ssize_t, null_branch: cython.int, group: cython.pointer[Group]
    ) -> cython.bint:
        masks = cython.declare(cython.longlong[GROUP_SIZE])
        numbers = cython.declare(cython.longlong[GROUP_SIZE])
        node: cython.Py_ssize_t = self.ops[op + tables.NODE]
        at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        scale: cython.pointer[cython.const[cython.longlong]] = self.links + self.ops[op + tables.A]
        wide: cython.pointer[cython.longlong] = self.a64 + self.nodes[at + tables.DATA]
        narrow: cython.pointer[cython.int] = self.a32 + self.nodes[at + tables.DATA]
        low: cython.longlong = scale[tables.LOW]
        high: cython.longlong = scale[tables.HIGH]
        multiplier: cython.longlong = scale[tables.MULTIPLIER]
        is_wide: cython.bint = self._storage(op) == tables.INT64
        count: cython.Py_ssize_t = group.count
        bits: cython.ulonglong = 0
        n: cython.Py_ssize_t
        if not self._begin_values(node, null_branch, group, masks):
            return False
        if not self._read_numbers(null_branch, masks, group, numbers, cython.address(bits)):
            return False
        # No number n or -n - 1 exceeds `bits`, so most groups need no comparison of each number.
        if cython.cast(cython.longlong, bits) > min(high, -(low + 1)):
            for n in range(count):
                if numbers[n] < low or numbers[n] > high:
                    return False
        if not is_wide:
            if group.is_dense:
                narrow += group.first
                for n in range(count):
                    narrow[n] = numbers[n] * multiplier
            else:
                for n in range(count):
                    narrow[group.rows[n]] = numbers[n] * multiplier
        elif not group.is_dense:
            for n in range(count):
                wide[group.rows[n]] = numbers[n] * multiplier
        elif multiplier != 1:
            wide += group.first
            for n in range(count):
                wide[n] = numbers[n] * multiplier
        else:
            wide += group.first
            for n in range(count):
                wide[n] = numbers[n]
        return True

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_numbers(
        self,
        null_branch: cython.int,
        masks: cython.pointer[cython.longlong],
        group: cython.pointer[Group],
        numbers: cython.pointer[cython.longlong],
        bits: cython.pointer[cython.ulonglong],
    ) -> cython.bint:
        """Read a number for each value; a null is zero, in no bytes. See `read_numbers`."""
        count: cython.Py_ssize_t = group.count
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        n: cython.Py_ssize_t = 0
        stop: cython.Py_ssize_t
        value: cython.longlong
        if count & 1 != 0:
            # Numbers are read in pairs.
            group.at[count] = group.at[count - 1]
            masks[count] = masks[count - 1]
        while True:
            if null_branch == _NOT_NULL:
                n = read_numbers(p, group.at, cython.NULL, numbers, n, count, bits)
            else:
                n = read_numbers(p, group.at, masks, numbers, n, count, bits)
            if n >= count:
                return True
            stop = min(n + 2, count)
            while n < stop:
                numbers[n] = 0
                if masks[n] != 0:
                    group.at[n] = self._read_number(group.at[n])
                    if group.at[n] < 0:
                        return False
                    value = self.number
                    numbers[n] = value
                    bits[0] |= value ^ (value >> 63)
                n += 1

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_number(self, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Set `number` to the number at `i`, and return its end, or −1."""
        end: cython.Py_ssize_t = take_long(
            self.p, i, self.limit, self.size, cython.address(self.number)
        )
        return end if end >= 0 else self._read_long_slowly(i, self.limit)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_decimals(
        self, op: cython.Py_ssize_t, null_branch: cython.int, group: cython.pointer[Group]
    ) -> cython.bint:
        masks = cython.declare(cython.longlong[GROUP_SIZE])
        starts = cython.declare(cython.Py_ssize_t[GROUP_SIZE])
        lengths = cython.declare(cython.longlong[GROUP_SIZE])
        node: cython.Py_ssize_t = self.ops[op + tables.NODE]
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        limit: cython.Py_ssize_t = self.limit
        fixed_size: cython.longlong = self.ops[op + tables.A]
        excess: cython.longlong = 0
        rest: cython.longlong = 0
        is_short: cython.longlong = 0
        length: cython.longlong
        i: cython.Py_ssize_t
        n: cython.Py_ssize_t
        if not self._begin_values(node, null_branch, group, masks):
            return False
        for n in range(group.count):
            i = group.at[n]
            length = fixed_size & masks[n]
            if fixed_size == tables.ABSENT:
                length = p[i] & masks[n]
                excess |= length & 0x81
                length >>= 1
                i -= masks[n]
            starts[n] = i
            lengths[n] = length
            # A negative number has its highest bit set.
            rest |= limit - i - length
            is_short |= ((length - 1) & masks[n]) | (8 - length)
            group.at[n] = i + length
        if excess != 0 or rest < 0:
            return False
        if is_short >= 0:
            return self._put_short_decimals(op, masks, starts, lengths, group)
        for n in range(group.count):
            # The number goes to the row that is next by the count.
            self.counts[node] = group.rows[n]
            if masks[n] == 0:
                self._zero(node, group.rows[n])
            elif not self._put_decimal(node, starts[n], lengths[n], self.ops[op + tables.B]):
                break
        else:
            excess = 1
        self.counts[node] = group.stop
        return excess != 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_short_decimals(
        self,
        op: cython.Py_ssize_t,
        masks: cython.pointer[cython.longlong],
        starts: cython.pointer[cython.Py_ssize_t],
        lengths: cython.pointer[cython.longlong],
        group: cython.pointer[Group],
    ) -> cython.bint:
        """Write a group's numbers of one to eight bytes; return False if one is out of range."""
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        at: cython.Py_ssize_t = self.ops[op + tables.NODE] * tables.NODE_WIDTH
        values: cython.pointer[cython.longlong] = self.a64 + 2 * self.nodes[at + tables.DATA]
        bound: cython.longlong = self.ops[op + tables.B]
        most: cython.longlong = self.links[bound + 1]
        greatest: cython.longlong = 0
        least: cython.longlong = 0
        number: cython.longlong
        row: cython.longlong
        n: cython.Py_ssize_t
        for n in range(group.count):
            row = 2 * group.rows[n]
            number = big_endian(p + starts[n])
            # A null has no bytes.
            number = (number >> ((64 - 8 * lengths[n]) & 63)) & masks[n]
            greatest = max(greatest, number)
            least = min(least, number)
            values[row] = number
            values[row + 1] = number >> 63
        # No number of eight bytes exceeds a bound of more.
        return self.links[bound] != 0 or most < 0 or (greatest < most and least > -most)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_doubles(
        self, op: cython.Py_ssize_t, null_branch: cython.int, group: cython.pointer[Group]
    ) -> cython.bint:
        masks = cython.declare(cython.longlong[GROUP_SIZE])
        node: cython.Py_ssize_t = self.ops[op + tables.NODE]
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        values: cython.pointer[cython.longlong] = (
            self.a64 + self.nodes[node * tables.NODE_WIDTH + tables.DATA]
        )
        number: cython.longlong
        n: cython.Py_ssize_t
        if not self._begin_values(node, null_branch, group, masks):
            return False
        for n in range(group.count):
            number = word(p + group.at[n])
            values[group.rows[n]] = number & masks[n]
            group.at[n] += 8 & masks[n]
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_floats(
        self, op: cython.Py_ssize_t, null_branch: cython.int, group: cython.pointer[Group]
    ) -> cython.bint:
        masks = cython.declare(cython.longlong[GROUP_SIZE])
        node: cython.Py_ssize_t = self.ops[op + tables.NODE]
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        values: cython.pointer[cython.int] = (
            self.a32 + self.nodes[node * tables.NODE_WIDTH + tables.DATA]
        )
        number: cython.longlong
        n: cython.Py_ssize_t
        if not self._begin_values(node, null_branch, group, masks):
            return False
        for n in range(group.count):
            number = half_word(p + group.at[n])
            values[group.rows[n]] = number & masks[n]
            group.at[n] += 4 & masks[n]
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_booleans(
        self, op: cython.Py_ssize_t, null_branch: cython.int, group: cython.pointer[Group]
    ) -> cython.bint:
        masks = cython.declare(cython.longlong[GROUP_SIZE])
        node: cython.Py_ssize_t = self.ops[op + tables.NODE]
        p: cython.pointer[cython.const[cython.uchar]] = self.p
        values: cython.pointer[cython.uchar] = (
            self.a8 + self.nodes[node * tables.NODE_WIDTH + tables.DATA]
        )
        excess: cython.longlong = 0
        number: cython.longlong
        n: cython.Py_ssize_t
        if not self._begin_values(node, null_branch, group, masks):
            return False
        for n in range(group.count):
            number = p[group.at[n]] & masks[n]
            excess |= number
            values[group.rows[n]] = number
            group.at[n] -= masks[n]
        return excess <= 1
