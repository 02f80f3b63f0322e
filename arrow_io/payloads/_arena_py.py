# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True, freethreading_compatible=True
"""The arena: one buffer that contains the buffers of all Arrow arrays that payloads are read into.

This module is written in Cython's pure-Python mode, as are its subclasses, one for each encoding.
Each of these files is also compiled, under a name that ends in `_c` instead of `_py`; `core.builds`
chooses one. Both builds fill the same buffers for every input, including hostile input. The C
declarations of this file are in `_arena_c.pxd`, for the compiled subclasses.

Rules of these files:

* One pass over a payload appends each value to its node. Nothing is allocated here. A value that
  does not fit into its node is counted and written to the node's spare slot, which follows its
  other slots; the pass continues. At its end the payload's values are rolled back. The caller gets
  `FULL` and what all nodes need, and retries with a larger arena.
* Bounds checks are off in the compiled build. So every length from the bytes is compared with the
  remaining bytes *before* it is used, and every count with its node's capacity *before* it is
  raised. Nesting is limited by the schema, or by `MAX_DEPTH` for values that are skipped.
* Invalid bytes create no Python object and raise no error: a position of −1 means that the payload
  does not fit, `result` holds the reason, and the caller raises the typed error.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from arrow_io.core import _no_cython as cython

if cython.compiled:
    from cython.cimports.arrow_io.core import _ipc_message as ipc_message
    from cython.cimports.arrow_io.core._bits import copy, is_utf8, word
    from cython.cimports.arrow_io.payloads import _tables as tables
    from cython.cimports.arrow_io.payloads._arena_keys import has_equal_keys
    from cython.cimports.libc.string import memcpy, memset
else:
    from arrow_io.core import ipc_message
    from arrow_io.payloads import tables

_MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_MAX63 = cython.declare(cython.ulonglong, 0x7FFFFFFFFFFFFFFF)
_MASK32 = cython.declare(cython.longlong, 0xFFFFFFFF)
_EIGHT_PLACES = cython.declare(cython.ulonglong, 0x0102040810204080)
_EIGHT_ONES = cython.declare(cython.ulonglong, 0x0101010101010101)
_SECOND_NANOSECONDS = cython.declare(cython.longlong, 10**9)
# Up to this number, seconds fit into 64 bits as nanoseconds.
_PLAIN_SECONDS = cython.declare(cython.longlong, 1 << 33)
_MAX_FLOAT = cython.declare(cython.double, (2 - 2**-24) * 2.0**127)
_ALIGNMENT = cython.declare(cython.longlong, 64)
_MAX_COMPARED = cython.declare(cython.Py_ssize_t, 64)
_MIN_BYTES = cython.declare(cython.longlong, 256)
# Number of payloads between two copies of the counts.
_BATCH_ROWS = cython.declare(cython.Py_ssize_t, 64)


@cython.cclass
class Arena:
    """A program and the arena that it fills; a subclass implements the encoding of the payloads.

    It is used for one record batch after another: `start` it, `attach` a buffer of the size that
    `start` returns, append payloads, `finish`, and `detach` the buffer.

    Attributes:
        views: The nodes; the counts (number of values of each node, then number of bytes of each
            node, then a second copy of both: saved before a recent payload or, after a rollback,
            what the payload needed); and the result of `shred`.

    Args:
        ops: The program, `OP_WIDTH` numbers per op; the first op reads the whole payload.
        links: Numbers that ops refer to.
        constants: Names, symbols and default values that ops refer to. The first 256 bytes map each
            character to its Base64 value, 255 for others.
        powers: 10⁰ … 10²².
        layout: The nodes, `NODE_WIDTH` numbers each; the first is that of the whole payload.
        items: For each node, the node with the same number of values; see `Program.item_nodes`.
        kinds: For each node, `PLAIN`, or whether its values are booleans or maps.
        observed: For each node, values and bytes per payload in an earlier batch; −1: unknown.
        hint_count: Number of hints, which outlive the payloads; no value depends on them. For JSON,
            the order of fields, and which followed which; for protobuf, tokens and groups.
        is_blank: Whether `_read_payload` requires that slots of omitted fields are blank.
    """

    def __init__(
        self,
        ops: cython.const[cython.longlong][::1],
        links: cython.const[cython.longlong][::1],
        constants: cython.const[cython.uchar][::1],
        powers: cython.const[cython.double][::1],
        layout: cython.const[cython.longlong][::1],
        items: cython.const[cython.longlong][::1],
        kinds: cython.const[cython.uchar][::1],
        observed: cython.double[::1],
        hint_count: cython.Py_ssize_t,
        is_blank: cython.bint,
    ) -> None:
        width: cython.Py_ssize_t = layout.shape[0] if cython.compiled else len(layout)
        self.node_count = width // tables.NODE_WIDTH
        self.hint_count = hint_count + 1
        self.is_blank = is_blank
        hints: cython.Py_ssize_t = width + 4 * self.node_count + tables.RESULT_WIDTH
        numbers = memoryview(bytearray(8 * (hints + self.hint_count))).cast("q")
        counts: cython.Py_ssize_t = width + 4 * self.node_count
        self.views = (numbers[:width], numbers[width:counts], numbers[counts:hints])
        if cython.compiled:
            n: cython.longlong[::1] = numbers
            self.ops = cython.address(ops[0])
            self.links = cython.address(links[0])
            self.constants = cython.address(constants[0])
            self.powers = cython.address(powers[0])
            self.layout = cython.address(layout[0])
            self.items = cython.address(items[0])
            self.kinds = cython.address(kinds[0])
            self.observed = cython.address(observed[0])
            self.numbers = cython.address(n[0])
            self.hints = cython.address(n[hints])
            self.held_buffers = (
                ops, links, constants, powers, layout, items, kinds, observed, n,
            )  # fmt: skip
        else:
            self.ops = ops
            self.links = links
            self.constants = constants
            self.powers = powers
            self.layout = layout
            self.items = items
            self.kinds = kinds
            self.observed = observed
            self.numbers = numbers
            self.hints = numbers[hints:]

    def reset(self) -> None:
        """Forget all payloads, so that the arena can be used for other ones; hints are kept."""
        k: cython.Py_ssize_t
        self._use(self.numbers)
        for k in range(self.node_count * tables.NODE_WIDTH):
            self.nodes[k] = self.layout[k]
        for k in range(4 * self.node_count):
            self.counts[k] = 0

    @cython.final
    @cython.cfunc
    @cython.exceptval(check=False)
    def _use(self, numbers: cython.pointer[cython.longlong]) -> cython.void:
        """Use the nodes, counts and result of an arena."""
        width: cython.Py_ssize_t = self.node_count * tables.NODE_WIDTH
        if cython.compiled:
            self.nodes = numbers
            self.counts = numbers + width
            self.used = self.counts + self.node_count
            self.saved = self.used + self.node_count
            self.result = self.saved + 2 * self.node_count
        else:
            self.nodes = numbers[:width]
            self.counts = numbers[width:]
            self.used = self.counts[self.node_count :]
            self.saved = self.used[self.node_count :]
            self.result = self.saved[2 * self.node_count :]

    def join(self, other: Arena) -> None:
        """Fill the arena of another program with the same shape, until the next `reset`."""
        other._prepare()
        self._use(other.numbers)
        self.a8 = other.a8
        self.a16 = other.a16
        self.a32 = other.a32
        self.a64 = other.a64
        self.f32 = other.f32
        self.f64 = other.f64
        self.is_prepared = True
        self.held_arena = other.held_arena

    def start(
        self,
        rows: cython.longlong,
        payload_bytes: cython.longlong,
        is_expecting: cython.bint,
        prefix_bytes: cython.Py_ssize_t,
        guard_bytes: cython.Py_ssize_t,
    ) -> int:
        """Prepare for other payloads: forget all, set capacities, and lay out the regions.

        Args:
            rows: Number of payloads.
            payload_bytes: Approximate total size of the payloads.
            is_expecting: Whether payloads are expected to be like earlier ones, whose observed
                sizes determine the capacities. Otherwise, capacities are guesses.
            prefix_bytes: See `lay_out`.
            guard_bytes: See `lay_out`.

        Returns:
            See `lay_out`.
        """
        self.reset()
        with cython.nogil:
            self._set_capacities(rows, payload_bytes, is_expecting)
        return self.lay_out(prefix_bytes, guard_bytes)

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _set_capacities(
        self, rows: cython.longlong, payload_bytes: cython.longlong, is_expecting: cython.bint
    ) -> cython.void:
        node: cython.Py_ssize_t
        at: cython.Py_ssize_t
        item: cython.Py_ssize_t
        values: cython.double
        size: cython.double
        most_values: cython.double = rows + payload_bytes
        most_bytes: cython.double = 4 * payload_bytes
        variable_count: cython.longlong = 0
        for node in range(self.node_count):
            at = node * tables.NODE_WIDTH
            variable_count += self.nodes[at + tables.STORAGE] == tables.VARIABLE
        for node in range(self.node_count):
            at = node * tables.NODE_WIDTH
            item = self.items[node]
            self.nodes[at + tables.CAPACITY] = 1 + rows
            # Cap the estimates: earlier payloads may have been different, or hostile.
            if item > 0:
                values = self.observed[2 * item] if is_expecting else -1
                if values < 0:
                    values = 2
                self.nodes[at + tables.CAPACITY] = 1 + _whole(min(rows * values * 1.1, most_values))
            if self.nodes[at + tables.STORAGE] == tables.VARIABLE:
                size = self.observed[2 * node + 1] if is_expecting else -1
                if size < 0:
                    size = most_bytes / 4 / variable_count / max(1, rows)
                self.nodes[at + tables.BYTES_CAPACITY] = _MIN_BYTES + _whole(
                    min(rows * size * 1.1, most_bytes)
                )

    def lay_out(self, prefix_bytes: cython.Py_ssize_t, guard_bytes: cython.Py_ssize_t) -> int:
        """Assign a location in the arena to the regions of each node, by its capacities.

        The first `prefix_bytes` are for the header of the message, and `guard_bytes` before and
        after each region are unused; both are multiples of 64. Returns the size of the arena in
        bytes, a multiple of 64.
        """
        node: cython.Py_ssize_t
        at: cython.Py_ssize_t
        storage: cython.longlong
        width: cython.longlong
        places: cython.longlong
        place: cython.longlong = prefix_bytes + guard_bytes
        for node in range(self.node_count):
            at = node * tables.NODE_WIDTH
            storage = self.nodes[at + tables.STORAGE]
            # Including the spare slot.
            places = self.nodes[at + tables.CAPACITY] + 1
            width = _width(storage)
            self.nodes[at + tables.VALID] = place
            place += _aligned(places) + guard_bytes
            self.nodes[at + tables.DATA] = place // max(width, 1)
            if storage == tables.VARIABLE or storage == tables.LIST:
                places += 1
            place += _aligned(width * places) + guard_bytes
            self.nodes[at + tables.BYTES] = place
            place += _aligned(self.nodes[at + tables.BYTES_CAPACITY]) + guard_bytes
        return place + _ALIGNMENT

    def attach(self, bytes_: cython.uchar[::1]) -> None:
        """Fill this buffer from now on; it starts at a multiple of 64 bytes.

        Its first 64 bytes are scratch until `finish` writes the header of the message. The bytes
        after the arena are left to other columns of the message.
        """
        if cython.compiled:
            self.a8 = cython.address(bytes_[0])
            self.a16 = cython.cast(cython.pointer[cython.short], self.a8)
            self.a32 = cython.cast(cython.pointer[cython.int], self.a8)
            self.a64 = cython.cast(cython.pointer[cython.longlong], self.a8)
            self.f32 = cython.cast(cython.pointer[cython.float], self.a8)
            self.f64 = cython.cast(cython.pointer[cython.double], self.a8)
            self.size_bytes = bytes_.shape[0]
        else:
            self.a8 = bytes_
            self.a16 = bytes_.cast("h")
            self.a32 = bytes_.cast("i")
            self.a64 = bytes_.cast("q")
            self.f32 = bytes_.cast("f")
            self.f64 = bytes_.cast("d")
            self.size_bytes = len(bytes_)
        self.is_prepared = False
        self.held_arena = bytes_

    def detach(self) -> None:
        """Release the buffer."""
        self.held_arena = None
        if not cython.compiled:
            self.a8 = self.a16 = self.a32 = self.a64 = self.f32 = self.f64 = None

    def prepare(self) -> None:
        """Initialize the buffer; other methods do so if it is necessary."""
        with cython.nogil:
            self._prepare()

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _prepare(self) -> cython.void:
        """Mark all values as valid, and start all offsets at 0, if that was not done yet.

        If `is_blank`, set all slots of fields in structs to null or zero, as `IF_MISSING` says.
        """
        node: cython.Py_ssize_t
        at: cython.Py_ssize_t
        child: cython.Py_ssize_t
        place: cython.Py_ssize_t
        length: cython.Py_ssize_t
        storage: cython.longlong
        if self.is_prepared:
            return
        self.is_prepared = True
        for node in range(self.node_count):
            at = node * tables.NODE_WIDTH
            place = self.nodes[at + tables.VALID]
            # Including the spare slot.
            length = self.nodes[at + tables.CAPACITY] + 1
            storage = self.nodes[at + tables.STORAGE]
            if cython.compiled:
                memset(self.a8 + place, 1, length)
            else:
                self.a8[place : place + length] = b"\1" * length
            if storage == tables.VARIABLE or storage == tables.LIST:
                self.a32[self.nodes[at + tables.DATA]] = 0
        for node in range(self.node_count if self.is_blank else 0):
            at = node * tables.NODE_WIDTH
            if self.nodes[at + tables.STORAGE] == tables.STRUCT:
                child = node + 1
                while child < self.nodes[at + tables.STOP]:
                    self._blank(child, 0, self.nodes[child * tables.NODE_WIDTH + tables.CAPACITY])
                    child = self.nodes[child * tables.NODE_WIDTH + tables.STOP]

    def shred(
        self,
        data: cython.const[cython.uchar][::1],
        positions: cython.const[cython.longlong][::1],
        first: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        is_canonical: cython.bint = False,
    ) -> int:
        """Append the values of the payloads at positions `[first, stop)` of `data`.

        The result is `[row, code, node, offset]`: the payload that was not appended, or `stop` if
        all were; the reason; the node that refused its value, or `ABSENT`; and where in `data` the
        problem was found. The code is also returned.

        Args:
            data: The bytes.
            positions: Position of each payload in `data`; `ABSENT`: its value is null.
            first: Number of the first payload.
            stop: End of the payload numbers, exclusive.
            is_canonical: Whether the payloads were rewritten because they were `NOT_CANONICAL`.
        """
        row: cython.Py_ssize_t = first
        batch_start: cython.Py_ssize_t
        batch_stop: cython.Py_ssize_t
        batch_rows: cython.Py_ssize_t = _BATCH_ROWS
        state: cython.Py_ssize_t = 2 * self.node_count
        self.is_canonical = is_canonical
        self._reset_code()
        if cython.compiled:
            self.p = cython.address(data[0])
            self.size = data.shape[0]
        else:
            self.p = data
            self.size = len(data)
        with cython.nogil:
            self._prepare()
            while row < stop:
                if cython.compiled:
                    memcpy(self.saved, self.counts, state * 8)
                else:
                    self.saved[:state] = self.counts[:state]
                batch_start = row
                batch_stop = min(row + batch_rows, stop)
                if cython.compiled:
                    if self._append_batch(cython.address(positions[row]), batch_stop - row):
                        self._settle_counts()
                        row = batch_stop
                        continue
                while row < batch_stop and self._append(positions[row]) and self.code == tables.OK:
                    row += 1
                self._settle_counts()
                if row < batch_stop:
                    self._roll_back()
                    self._blank_rolled_back()
                    if row == batch_start:
                        break
                    # Retry the payloads before it, then this one alone, so that only its own
                    # values are rolled back.
                    batch_rows = row - batch_start
                    row = batch_start
                    self._reset_code()
        self.result[tables.RESULT_ROW] = row
        self.result[tables.RESULT_CODE] = self.code
        self.result[tables.RESULT_NODE] = self.code_node
        self.result[tables.RESULT_OFFSET] = self.code_offset
        return self.code

    def append_null(self) -> bool:
        """Append a null for a payload that cannot be decoded; return False if there is no room."""
        self._prepare()
        self.code = tables.OK
        return self._null(0) and self.code == tables.OK

    def finish(
        self,
        prefix: cython.const[cython.uchar][::1],
        first_node: cython.Py_ssize_t,
        array: cython.Py_ssize_t,
        buffer: cython.Py_ssize_t,
    ) -> list[int]:
        """Turn the buffer into an IPC message, and record the regions of the nodes in its header.

        Args:
            prefix: The header; its numbers are 0. As long as `lay_out` was called with.
            first_node: First node that is an array of the message: 0, or 1 if the fields of the
                payloads are its columns.
            array: Position in the header of that node's array, in 64-bit words.
            buffer: Position in the header of that node's first buffer, in 64-bit words.

        Returns:
            The nodes of maps that may have duplicate keys, or are too long to tell.
        """
        node: cython.Py_ssize_t
        rows: cython.double = max(1, self.counts[0])
        for node in range(self.node_count):
            if (
                self.items[node] > 0
                or self.nodes[node * tables.NODE_WIDTH + tables.STORAGE] == tables.VARIABLE
            ):
                self.observed[2 * node] = self.counts[node] / rows
                self.observed[2 * node + 1] = self.used[node] / rows
        is_any_equal: cython.bint = False
        with cython.nogil:
            self._prepare()
            for node in range(self.node_count):
                if self.kinds[node] == tables.IS_MAP:
                    self.saved[node] = self._has_equal_keys(node)
                    is_any_equal |= self.saved[node] != 0
            if cython.compiled:
                memcpy(self.a8, cython.address(prefix[0]), prefix.shape[0])
                self._make_message(prefix.shape[0], first_node, array, buffer)
            else:
                self.a8[: len(prefix)] = prefix
                self._make_message(len(prefix), first_node, array, buffer)
        if not is_any_equal:
            return []
        return [
            node
            for node in range(self.node_count)
            if self.kinds[node] == tables.IS_MAP and self.saved[node] != 0
        ]

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _reset_code(self) -> cython.void:
        self.code = tables.OK
        self.code_node = tables.ABSENT
        self.code_offset = 0

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _roll_back(self) -> cython.void:
        """Remove the values since the counts were saved, and save the counts that they reached."""
        node: cython.Py_ssize_t
        at: cython.Py_ssize_t
        k: cython.longlong
        reached: cython.longlong
        for node in range(self.node_count):
            at = node * tables.NODE_WIDTH
            reached = self.counts[node]
            for k in range(self.saved[node], min(reached, self.nodes[at + tables.CAPACITY])):
                self.a8[self.nodes[at + tables.VALID] + k] = 1
            self.counts[node] = self.saved[node]
            self.saved[node] = reached
            reached = self.used[node]
            self.used[node] = self.saved[self.node_count + node]
            self.saved[self.node_count + node] = reached

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _restart(self) -> cython.void:
        """Roll back the values of payloads that cannot be appended together."""
        self._settle_counts()
        self._roll_back()
        self._blank_rolled_back()
        self._reset_code()
        if cython.compiled:
            memcpy(self.saved, self.counts, 2 * self.node_count * 8)

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _append(self, position: cython.longlong) -> cython.bint:
        start: cython.longlong = position >> 32
        stop: cython.longlong = start + (position & _MASK32)
        i: cython.Py_ssize_t
        if position == tables.ABSENT:
            self._settle_counts()
            return self._null(0)
        i = self._read_payload(start, stop)
        if i >= 0 and i != stop:
            i = self._fail(tables.TRAILING, tables.ABSENT, i)
        return i >= 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_payload(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Append the values of one payload, `[start, stop)`; return its end, or −1."""
        return self._fail(tables.NO_MATCH, tables.ABSENT, min(start, stop))

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _append_batch(
        self,
        positions: cython.pointer[cython.const[cython.longlong]],  # noqa: ARG002 - for subclasses
        count: cython.Py_ssize_t,  # noqa: ARG002
    ) -> cython.bint:
        """Append payloads together; return False if none was, so that each must be read alone."""
        return False

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _settle_counts(self) -> cython.void:
        """Update the counts, if `_read_payload` defers that."""

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _blank_rolled_back(self) -> cython.void:
        """Blank the slots of values that were rolled back, if `_read_payload` requires that."""

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _blank(
        self, node: cython.Py_ssize_t, first: cython.longlong, stop: cython.longlong
    ) -> cython.void:
        """Set slots `[first, stop)` of a node that exist to null or zero, as `IF_MISSING` says."""
        at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        storage: cython.longlong = self.nodes[at + tables.STORAGE]
        is_valid: cython.int = self.nodes[at + tables.IF_MISSING] != tables.NULL
        valid: cython.Py_ssize_t = self.nodes[at + tables.VALID] + first
        width: cython.Py_ssize_t = 4
        place: cython.Py_ssize_t = self.nodes[at + tables.DATA] + first
        count: cython.Py_ssize_t = min(stop, self.nodes[at + tables.CAPACITY]) - first
        if count <= 0:
            return
        if storage == tables.VARIABLE or storage == tables.LIST:
            # A value owns the second of its two offsets: its end.
            place += 1
        elif storage == tables.STRUCT:
            width = 0
        else:
            width = 1 << storage
        if cython.compiled:
            memset(self.a8 + valid, is_valid, count)
            memset(self.a8 + place * width, 0, count * width)
        else:
            self.a8[valid : valid + count] = bytes([is_valid]) * count
            self.a8[place * width : (place + count) * width] = bytes(count * width)

    # ------------------------------------------------------------------------
    # Nodes: each `_put…` appends one value to a node, and returns whether the payload still fits

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _fail(
        self, code: cython.longlong, node: cython.longlong, offset: cython.longlong
    ) -> cython.Py_ssize_t:
        self.code = code
        self.code_node = node
        self.code_offset = offset
        return -1

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _set_error_node(self, node: cython.longlong) -> cython.Py_ssize_t:
        """Set the node of an error that was already recorded."""
        self.code_node = node
        return -1

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _take_slot(self, node: cython.Py_ssize_t) -> cython.longlong:
        """Return the slot for one more value, valid by default; −1 if there are too many."""
        k: cython.longlong = self.counts[node]
        if k >= self.nodes[node * tables.NODE_WIDTH + tables.CAPACITY]:
            return self._count_overflow(node, 1)
        self.counts[node] = k + 1
        return k

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _count_overflow(self, node: cython.Py_ssize_t, values: cython.longlong) -> cython.longlong:
        """Count values that do not fit; return the spare slot, or −1 if there are too many."""
        if values > tables.MAX_OFFSET - self.counts[node]:
            return self._fail(tables.TOO_LARGE, node, 0)
        self._note_full(node)
        self.counts[node] += values
        return self.nodes[node * tables.NODE_WIDTH + tables.CAPACITY]

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _count_overflow_bytes(
        self, node: cython.Py_ssize_t, length: cython.longlong
    ) -> cython.bint:
        """Count bytes that do not fit; return False if there are too many."""
        if length > tables.MAX_OFFSET - self.used[node]:
            self._fail(tables.TOO_LARGE, node, 0)
            return False
        self._note_full(node)
        self.used[node] += length
        return True

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _note_full(self, node: cython.Py_ssize_t) -> cython.void:
        if self.code == tables.OK:
            self.code = tables.FULL
            self.code_node = node

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _null(self, node: cython.Py_ssize_t) -> cython.bint:
        """Append a null; for a struct, also to all nodes below it."""
        stop: cython.Py_ssize_t = self.nodes[node * tables.NODE_WIDTH + tables.STOP]
        at: cython.Py_ssize_t
        k: cython.longlong
        storage: cython.longlong
        while node < stop:
            k = self._take_slot(node)
            if k < 0:
                return False
            at = node * tables.NODE_WIDTH
            self.a8[self.nodes[at + tables.VALID] + k] = 0
            storage = self.nodes[at + tables.STORAGE]
            self._zero(node, k)
            node = self.nodes[at + tables.STOP] if storage == tables.LIST else node + 1
        return True

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _zero(self, node: cython.Py_ssize_t, k: cython.longlong) -> cython.void:
        """Set value `k` of a node to zero or empty."""
        at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        storage: cython.longlong = self.nodes[at + tables.STORAGE]
        place: cython.longlong = self.nodes[at + tables.DATA] + k
        if storage == tables.INT64:
            self.a64[place] = 0
        elif storage == tables.VARIABLE:
            self.a32[place + 1] = self.used[node]
        elif storage == tables.INT32:
            self.a32[place] = 0
        elif storage == tables.BYTE:
            self.a8[place] = 0
        elif storage == tables.LIST:
            self.a32[place + 1] = self.counts[node + 1]
        elif storage == tables.INT128:
            self.a64[2 * place] = 0
            self.a64[2 * place + 1] = 0
        elif storage == tables.INT16:
            self.a16[place] = 0

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _put(self, node: cython.Py_ssize_t, value: cython.longlong) -> cython.bint:
        """Append an integer, which must fit the node's width."""
        at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        k: cython.longlong = self._take_slot(node)
        storage: cython.longlong = self.nodes[at + tables.STORAGE]
        if k < 0:
            return False
        k += self.nodes[at + tables.DATA]
        if storage == tables.INT64:
            self.a64[k] = value
        elif storage == tables.INT32:
            self.a32[k] = value
        elif storage == tables.BYTE:
            if value < 0:
                value += 256
            self.a8[k] = value
        else:
            self.a16[k] = value
        return True

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_double(
        self, node: cython.Py_ssize_t, value: cython.double, offset: cython.Py_ssize_t
    ) -> cython.bint:
        """Append a floating-point number; a 32-bit node refuses finite numbers out of its range."""
        at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        k: cython.longlong
        narrow: cython.bint = self.nodes[at + tables.STORAGE] == tables.INT32
        # For infinities and NaN, the difference is NaN.
        if narrow and (value >= _MAX_FLOAT or value <= -_MAX_FLOAT) and value - value == 0:
            self._fail(tables.OUT_OF_RANGE, node, offset)
            return False
        k = self._take_slot(node)
        if k < 0:
            return False
        k += self.nodes[at + tables.DATA]
        if narrow:
            self.f32[k] = value
        else:
            self.f64[k] = value
        return True

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_tie(self, node: cython.Py_ssize_t, value: cython.double) -> cython.bint:
        """Return whether a node has 32-bit floats, and the value is halfway between two of them.

        If the value is itself rounded, rounding it again may choose the wrong float.
        """
        error: cython.double
        if self.nodes[node * tables.NODE_WIDTH + tables.STORAGE] != tables.INT32:
            return False
        # The scratch bytes convert to the nearest float.
        self.f32[0] = value
        error = value - self.f32[0]
        value += error
        self.f32[0] = value
        return error != 0 and self.f32[0] == value

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_int128(
        self, node: cython.Py_ssize_t, high: cython.ulonglong, low: cython.ulonglong
    ) -> cython.bint:
        k: cython.longlong = self._take_slot(node)
        if k < 0:
            return False
        k = 2 * (self.nodes[node * tables.NODE_WIDTH + tables.DATA] + k)
        self.a64[k] = _signed(low)
        self.a64[k + 1] = _signed(high)
        return True

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _add_bytes(
        self,
        node: cython.Py_ssize_t,
        source: cython.pointer[cython.const[cython.uchar]],
        start: cython.Py_ssize_t,
        length: cython.longlong,
    ) -> cython.bint:
        """Add bytes of the value that `_close_bytes` will append."""
        at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        used: cython.longlong = self.used[node]
        target: cython.longlong = self.nodes[at + tables.BYTES] + used
        if length > self.nodes[at + tables.BYTES_CAPACITY] - used:
            return self._count_overflow_bytes(node, length)
        if cython.compiled:
            copy(self.a8 + target, source + start, length)
        else:
            self.a8[target : target + length] = source[start : start + length]
        self.used[node] = used + length
        return True

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _add_byte(self, node: cython.Py_ssize_t, byte: cython.longlong) -> cython.bint:
        at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        used: cython.longlong = self.used[node]
        if used >= self.nodes[at + tables.BYTES_CAPACITY]:
            return self._count_overflow_bytes(node, 1)
        self.a8[self.nodes[at + tables.BYTES] + used] = byte
        self.used[node] = used + 1
        return True

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _close_bytes(self, node: cython.Py_ssize_t) -> cython.bint:
        k: cython.longlong = self._take_slot(node)
        if k < 0:
            return False
        self.a32[self.nodes[node * tables.NODE_WIDTH + tables.DATA] + k + 1] = self.used[node]
        return True

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_bytes(
        self,
        node: cython.Py_ssize_t,
        source: cython.pointer[cython.const[cython.uchar]],
        start: cython.Py_ssize_t,
        length: cython.longlong,
    ) -> cython.bint:
        at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        k: cython.longlong = self.counts[node]
        used: cython.longlong = self.used[node]
        target: cython.longlong = self.nodes[at + tables.BYTES] + used
        if (
            k >= self.nodes[at + tables.CAPACITY]
            or length > self.nodes[at + tables.BYTES_CAPACITY] - used
        ):
            return self._add_bytes(node, source, start, length) and self._close_bytes(node)
        if cython.compiled:
            copy(self.a8 + target, source + start, length)
        else:
            self.a8[target : target + length] = source[start : start + length]
        self.counts[node] = k + 1
        self.used[node] = used + length
        self.a32[self.nodes[at + tables.DATA] + k + 1] = used + length
        return True

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_constant(self, node: cython.Py_ssize_t, position: cython.longlong) -> cython.bint:
        return self._put_bytes(node, self.constants, position >> 32, position & _MASK32)

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_text(
        self, node: cython.Py_ssize_t, start: cython.Py_ssize_t, length: cython.longlong
    ) -> cython.bint:
        """Append text of the payload; return False if it is not UTF-8."""
        if not self._is_text(start, start + length):
            self._fail(tables.BAD_UTF8, node, start)
            return False
        return self._put_bytes(node, self.p, start, length)

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _close_struct(self, node: cython.Py_ssize_t) -> cython.bint:
        """Append a struct of its children's last values; missing children are null.

        A record without fields is a boolean.
        """
        at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        count: cython.longlong = self.counts[node]
        child: cython.Py_ssize_t = node + 1
        stop: cython.Py_ssize_t = self.nodes[at + tables.STOP]
        if self.nodes[at + tables.STORAGE] == tables.BYTE:
            return self._put(node, 1)
        while child < stop:
            if self.counts[child] == count and not self._null(child):
                return False
            child = self.nodes[child * tables.NODE_WIDTH + tables.STOP]
        return self._take_slot(node) >= 0

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_scaled(
        self,
        node: cython.Py_ssize_t,
        scale: cython.Py_ssize_t,
        value: cython.longlong,
        offset: cython.Py_ssize_t,
    ) -> cython.bint:
        """Append an integer in the unit of its column."""
        divisor: cython.longlong = self.links[scale + tables.DIVISOR]
        if value < self.links[scale + tables.LOW] or value > self.links[scale + tables.HIGH]:
            self._fail(tables.OUT_OF_RANGE, node, offset)
            return False
        if divisor != 1:
            if value % divisor != 0:
                self._fail(tables.TOO_PRECISE, node, offset)
                return False
            # There is no remainder, so C and Python divide alike.
            value = value // divisor
        return self._put(node, value * self.links[scale + tables.MULTIPLIER])

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _convert_instant(
        self,
        node: cython.Py_ssize_t,
        seconds: cython.longlong,
        nanoseconds: cython.longlong,
        units: cython.longlong,
        offset: cython.Py_ssize_t,
    ) -> cython.bint:
        """Convert seconds and nanoseconds to `units` per second, 10⁶ or 10⁹; set `number`.

        Nanoseconds out of `[0, 10⁹)` are an error, at `node` and `offset`.
        """
        unit: cython.longlong
        most: cython.longlong = _MAX63
        limit: cython.longlong
        fraction: cython.longlong
        if (
            units == _SECOND_NANOSECONDS
            and 0 <= seconds < _PLAIN_SECONDS
            and 0 <= nanoseconds < _SECOND_NANOSECONDS
        ):
            # The most common case.
            self.number = seconds * _SECOND_NANOSECONDS + nanoseconds
            return True
        unit = _SECOND_NANOSECONDS // units
        limit = most // units
        fraction = nanoseconds // unit
        if nanoseconds < 0 or nanoseconds >= _SECOND_NANOSECONDS:
            self._fail(tables.OUT_OF_RANGE, node, offset)
            return False
        if nanoseconds % unit != 0:
            self._fail(tables.TOO_PRECISE, node, offset)
            return False
        if (
            seconds > limit
            or seconds < -limit - 1
            or (seconds == limit and fraction > most % units)
            or (seconds == -limit - 1 and units - fraction > most % units + 1)
        ):
            self._fail(tables.OUT_OF_RANGE, node, offset)
            return False
        if seconds < 0:
            # Round towards zero first: the product alone may be out of range.
            self.number = (seconds + 1) * units - (units - fraction)
        else:
            self.number = seconds * units + fraction
        return True

    # ------------------------------------------------------------------------
    # Bytes of the payload

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _big_endian(self, i: cython.Py_ssize_t, size: cython.longlong) -> cython.longlong:
        value: cython.ulonglong = 0
        byte: cython.ulonglong
        k: cython.Py_ssize_t
        if self.p[i] >= 0x80:
            value = _MASK64
        for k in range(size):
            byte = self.p[i + k]
            value = ((value << 8) | byte) & _MASK64
        return _signed(value)

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _little_endian(self, i: cython.Py_ssize_t, size: cython.longlong) -> cython.longlong:
        value: cython.ulonglong = 0
        byte: cython.ulonglong
        k: cython.Py_ssize_t
        if self.p[i + size - 1] >= 0x80:
            value = _MASK64
        for k in range(size - 1, -1, -1):
            byte = self.p[i + k]
            value = ((value << 8) | byte) & _MASK64
        return _signed(value)

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_text(self, i: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.bint:
        c: cython.int
        low: cython.int
        high: cython.int
        verdict: cython.int
        if cython.compiled:
            verdict = is_utf8(self.p + i, stop - i, self.size - i)
            if verdict >= 0:
                return verdict
        while i < stop:
            c = self.p[i]
            i += 1
            if c < 0x80:
                continue
            # After some first bytes, the second byte has a smaller range.
            low = 0x80
            high = 0xBF
            if c < 0xC2 or c > 0xF4:
                return False
            if c >= 0xE0:
                if c == 0xE0:
                    low = 0xA0
                elif c == 0xED:
                    high = 0x9F
                elif c == 0xF0:
                    low = 0x90
                elif c == 0xF4:
                    high = 0x8F
            if i >= stop or self.p[i] < low or self.p[i] > high:
                return False
            i += 1
            if c >= 0xE0:
                if i >= stop or self.p[i] & 0xC0 != 0x80:
                    return False
                i += 1
            if c >= 0xF0:
                if i >= stop or self.p[i] & 0xC0 != 0x80:
                    return False
                i += 1
        return True

    # ------------------------------------------------------------------------
    # The record batch

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _make_message(
        self,
        body: cython.Py_ssize_t,
        first_node: cython.Py_ssize_t,
        array: cython.Py_ssize_t,
        buffer: cython.Py_ssize_t,
    ) -> cython.void:
        """Write the numbers of the header, and pack booleans into bits; see `finish`."""
        node: cython.Py_ssize_t
        at: cython.Py_ssize_t
        place: cython.Py_ssize_t
        values: cython.Py_ssize_t
        storage: cython.longlong
        width: cython.longlong
        w: cython.pointer[cython.longlong] = self.a64
        w[ipc_message.BODY_BYTES] = self.size_bytes - body
        w[ipc_message.ROWS] = self.counts[0]
        for node in range(first_node, self.node_count):
            at = node * tables.NODE_WIDTH
            storage = self.nodes[at + tables.STORAGE]
            values = self.counts[node]
            place = self.nodes[at + tables.VALID]
            w[array] = values
            w[array + 1] = values - _pack_flags(self.a8, place, values)
            w[buffer] = place - body
            w[buffer + 1] = (values + 7) // 8
            array += 2
            buffer += 2
            if storage == tables.STRUCT:
                continue
            width = _width(storage)
            place = self.nodes[at + tables.DATA] * width
            w[buffer] = place - body
            if self.kinds[node] == tables.IS_BOOLEAN:
                _pack_flags(self.a8, place, values)
                w[buffer + 1] = (values + 7) // 8
            elif storage == tables.VARIABLE or storage == tables.LIST:
                w[buffer + 1] = width * (values + 1)
            else:
                w[buffer + 1] = width * values
            buffer += 2
            if storage == tables.VARIABLE:
                w[buffer] = self.nodes[at + tables.BYTES] - body
                w[buffer + 1] = self.used[node]
                buffer += 2

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _has_equal_keys(self, node: cython.Py_ssize_t) -> cython.bint:
        """Return whether a map of a node may have duplicate keys; True if a map is too long.

        The values of `node` are maps; `node + 2` is the node of their keys.
        """
        maps: cython.longlong = self.nodes[node * tables.NODE_WIDTH + tables.DATA]
        at: cython.Py_ssize_t = (node + 2) * tables.NODE_WIDTH
        data: cython.longlong = self.nodes[at + tables.DATA]
        width: cython.longlong = _width(self.nodes[at + tables.STORAGE])
        base: cython.longlong = data * width
        count: cython.longlong = self.counts[node]
        is_variable: cython.bint = self.nodes[at + tables.STORAGE] == tables.VARIABLE
        if is_variable:
            base = self.nodes[at + tables.BYTES]
        if cython.compiled:
            return has_equal_keys(
                self.a8 + base, self.a32 + data, is_variable, width, self.a32 + maps, count,
                _MAX_COMPARED,
            )  # fmt: skip
        else:  # noqa: RET505 - the compiler drops it
            ends = self.a32[data:] if is_variable else range(0, 1 << 62, width)
            for row in range(maps, maps + count):
                keys = [
                    bytes(self.a8[base + ends[k] : base + ends[k + 1]])
                    for k in range(self.a32[row], self.a32[row + 1])
                ]
                if len(keys) > _MAX_COMPARED or len(set(keys)) < len(keys):
                    return True
            return False


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.longlong)
def _aligned(length: cython.longlong):
    return (length + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.longlong)
def _width(storage: cython.longlong):
    if storage == tables.STRUCT:
        return 0
    if storage == tables.VARIABLE or storage == tables.LIST:
        return 4
    return cython.cast(cython.longlong, 1) << storage if cython.compiled else 1 << storage


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.longlong)
def _whole(value: cython.double):
    """Return a number that is not negative without its fraction."""
    return cython.cast(cython.longlong, value) if cython.compiled else int(value)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.Py_ssize_t)
def _pack_flags(
    p: cython.pointer[cython.uchar], place: cython.Py_ssize_t, count: cython.Py_ssize_t
):
    """Pack `count` flags, one byte each, into bits in place; return the number of set flags."""
    i: cython.Py_ssize_t
    k: cython.Py_ssize_t
    eight: cython.ulonglong
    flag_count: cython.Py_ssize_t = 0
    whole: cython.Py_ssize_t = count // 8
    rest: cython.int = count % 8
    for i in range(whole):
        if cython.compiled:
            eight = word(p + place + 8 * i)
        else:
            eight = int.from_bytes(p[place + 8 * i : place + 8 * i + 8], "little")
        # The highest byte of the first product is the sum of the flags; that of the second has each
        # flag in its bit.
        flag_count += ((eight * _EIGHT_ONES) & _MASK64) >> 56
        p[place + i] = ((eight * _EIGHT_PLACES) & _MASK64) >> 56
    if rest > 0:
        eight = 0
        for k in range(rest):
            flag_count += p[place + 8 * whole + k]
            eight |= p[place + 8 * whole + k] << k
        p[place + whole] = eight
    return flag_count


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _signed(value: cython.ulonglong) -> cython.longlong:
    """Return the 64-bit two's complement of an unsigned value, identically in both builds."""
    rest: cython.longlong
    if value > _MAX63:
        rest = _MASK64 - value
        return -rest - 1
    return value
