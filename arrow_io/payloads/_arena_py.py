# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True
"""The arena: one buffer that holds the buffers of all Arrow arrays which payloads are read into.

Cython in pure-Python mode, as are its subclasses, one for each encoding. Each of these files is
also compiled, under a name that ends in `_c` instead of `_py`; `core.builds` chooses. Both builds
fill the same buffers for every input, hostile input included. The C declarations of this file stand
in `_arena_c.pxd`, where the compiled subclasses find them.

Rules of these files:

* One walk over a payload appends each value where it belongs. Nothing is allocated here. What a
  node has no room for is counted and written to a spare place, which each node has behind its
  others; the walk goes on. At its end the payload's values are taken back. The caller gets `FULL`
  and what all nodes need, and comes again with an arena that is large enough.
* Bounds checks are off in the compiled build, so every length read from the bytes is compared with
  what remains *before* it is used, and every count with its node's capacity *before* it is raised.
  Nesting is as deep as the schema, or `MAX_DEPTH` if values are only read over.
* No Python object is made and no error is raised for bad bytes: a position of −1 says that the
  payload does not fit, `result` says why, and the caller raises the typed error.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from arrow_io.core import _no_cython as cython

if cython.compiled:
    from cython.cimports.arrow_io.core import _ipc_message as ipc_message
    from cython.cimports.arrow_io.core._bits import copy, is_utf8, same, word
    from cython.cimports.arrow_io.payloads import _tables as tables
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
# So many of them are in range as nanoseconds.
_PLAIN_SECONDS = cython.declare(cython.longlong, 1 << 33)
_MAX_FLOAT = cython.declare(cython.double, (2 - 2**-24) * 2.0**127)
_ALIGNMENT = cython.declare(cython.longlong, 64)
_MAX_COMPARED = cython.declare(cython.Py_ssize_t, 64)
# Payloads between two copies of the counts.
_TOGETHER = cython.declare(cython.Py_ssize_t, 64)


@cython.cclass
class Arena:
    """A program and the arena that it fills; a subclass knows the encoding of the payloads.

    Args:
        ops: The program, `OP_WIDTH` numbers an op; the first is that of the whole payload.
        links: Numbers that ops point to.
        constants: Names, symbols and default values that ops point to; the first 256 bytes give
            the value of each Base64 digit, 255 for all else.
        nodes: The nodes, `NODE_WIDTH` numbers each; the first is that of the whole payload.
        counts: How many values each node has, then how many bytes each node has; then both once
            more, as they were before a payload that is not far back, or, once one was taken back,
            as it would have left them.
        hints: Which field of a JSON record followed which, as far as seen.
        powers: 10⁰ … 10²².
    """

    def __init__(
        self,
        ops: cython.const[cython.longlong][::1],
        links: cython.const[cython.longlong][::1],
        constants: cython.const[cython.uchar][::1],
        nodes: cython.longlong[::1],
        counts: cython.longlong[::1],
        hints: cython.longlong[::1],
        powers: cython.const[cython.double][::1],
    ) -> None:
        self.node_count = (nodes.shape[0] if cython.compiled else len(nodes)) // tables.NODE_WIDTH
        if cython.compiled:
            self.ops = cython.address(ops[0])
            self.links = cython.address(links[0])
            self.constants = cython.address(constants[0])
            self.nodes = cython.address(nodes[0])
            self.counts = cython.address(counts[0])
            self.used = cython.address(counts[self.node_count])
            self.saved = cython.address(counts[2 * self.node_count])
            self.hints = cython.address(hints[0])
            self.powers = cython.address(powers[0])
            self.held_buffers = [ops, links, constants, nodes, counts, hints, powers, None]
        else:
            self.ops = ops
            self.links = links
            self.constants = constants
            self.nodes = nodes
            self.counts = counts
            self.used = counts[self.node_count :]
            self.saved = counts[2 * self.node_count :]
            self.hints = hints
            self.powers = powers

    def attach(
        self,
        bytes_: cython.uchar[::1],
        int16s: cython.short[::1],
        int32s: cython.int[::1],
        int64s: cython.longlong[::1],
        floats: cython.float[::1],
        doubles: cython.double[::1],
    ) -> None:
        """Fill this arena from now on: six views of one buffer, whose first 64 bytes are scratch.

        It was given to `clear`.
        """
        if cython.compiled:
            self.a8 = cython.address(bytes_[0])
            self.a16 = cython.address(int16s[0])
            self.a32 = cython.address(int32s[0])
            self.a64 = cython.address(int64s[0])
            self.f32 = cython.address(floats[0])
            self.f64 = cython.address(doubles[0])
            self.held_buffers[7] = bytes_
        else:
            self.a8 = bytes_
            self.a16 = int16s
            self.a32 = int32s
            self.a64 = int64s
            self.f32 = floats
            self.f64 = doubles

    def shred(
        self,
        data: cython.const[cython.uchar][::1],
        positions: cython.const[cython.longlong][::1],
        first: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        result: cython.longlong[::1],
        is_canonical: cython.bint = False,
    ) -> None:
        """Append the values of the payloads at positions `[first, stop)`, all in `data`.

        Args:
            data: The bytes.
            positions: Where each payload stands in them; `ABSENT`: its value is null.
            first: Number of the first payload.
            stop: Number behind the last payload.
            result: Receives `[row, code, node, offset]`: the payload that was not appended, `stop`
                if all were; why it was not; the node that did not take its value, or `ABSENT`;
                and where in `data` that was noticed.
            is_canonical: Whether the payloads were already written anew, because they were
                `NOT_CANONICAL`.
        """
        row: cython.Py_ssize_t = first
        begin: cython.Py_ssize_t
        until: cython.Py_ssize_t
        together: cython.Py_ssize_t = _TOGETHER
        state: cython.Py_ssize_t = 2 * self.node_count
        self.is_canonical = is_canonical
        self._begin()
        if cython.compiled:
            self.p = cython.address(data[0])
            self.size = data.shape[0]
        else:
            self.p = data
            self.size = len(data)
        with cython.nogil:
            while row < stop:
                if cython.compiled:
                    memcpy(self.saved, self.counts, state * 8)
                else:
                    self.saved[:state] = self.counts[:state]
                begin = row
                until = min(row + together, stop)
                if cython.compiled:
                    if self._run_together(cython.address(positions[row]), until - row):
                        self._settle()
                        row = until
                        continue
                while row < until and self._append(positions[row]) and self.code == tables.OK:
                    row += 1
                self._settle()
                if row < until:
                    self._take_back()
                    self._forget()
                    if row == begin:
                        break
                    # Those before it come again, and then it, so that it is taken back alone.
                    together = row - begin
                    row = begin
                    self._begin()
        result[tables.RESULT_ROW] = row
        result[tables.RESULT_CODE] = self.code
        result[tables.RESULT_NODE] = self.code_node
        result[tables.RESULT_OFFSET] = self.code_offset

    def append_null(self) -> bool:
        """Append a null for a payload that cannot be decoded; false if it finds no room."""
        self.code = tables.OK
        return self._null(0) and self.code == tables.OK

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _begin(self) -> cython.void:
        """Nothing is wrong yet."""
        self.code = tables.OK
        self.code_node = tables.ABSENT
        self.code_offset = 0

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _take_back(self) -> cython.void:
        """Forget the values since the counts were saved, but not how many there were."""
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
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _append(self, position: cython.longlong) -> cython.bint:
        """Append the payload at a position, if it fits."""
        start: cython.longlong = position >> 32
        stop: cython.longlong = start + (position & _MASK32)
        i: cython.Py_ssize_t
        if position == tables.ABSENT:
            self._settle()
            return self._null(0)
        i = self._payload(start, stop)
        if i >= 0 and i != stop:
            i = self._fail(tables.TRAILING, tables.ABSENT, i)
        return i >= 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _payload(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Append the values of one payload, `[start, stop)`; the position behind them, or −1."""
        return self._fail(tables.NO_MATCH, tables.ABSENT, min(start, stop))

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _run_together(
        self,
        positions: cython.pointer[cython.const[cython.longlong]],  # noqa: ARG002 - a subclass's
        count: cython.Py_ssize_t,  # noqa: ARG002
    ) -> cython.bint:
        """Append some payloads together; false if none was, so that they come one by one."""
        return False

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _settle(self) -> cython.void:
        """Let the counts be right, if `_payload` leaves that for later."""

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _forget(self) -> cython.void:
        """Let places of values that were taken back be blank, if `_payload` asks for that."""

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _blank(
        self, node: cython.Py_ssize_t, first: cython.longlong, stop: cython.longlong
    ) -> cython.void:
        """Blank those places `[first, stop)` of a node for which there is room."""
        stop = min(stop, self.nodes[node * tables.NODE_WIDTH + tables.CAPACITY])
        if first < stop:
            _blank(self.a8, self.nodes, node, first, stop)

    # ------------------------------------------------------------------------
    # Nodes: each `_put…` appends one value to a node, and says whether the payload fits until here

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
    def _blame(self, node: cython.longlong) -> cython.Py_ssize_t:
        """Say of what is wrong that it is in this node."""
        self.code_node = node
        return -1

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _slot(self, node: cython.Py_ssize_t) -> cython.longlong:
        """Take the place of one more value that is not null; −1 if that is one too many."""
        k: cython.longlong = self.counts[node]
        if k >= self.nodes[node * tables.NODE_WIDTH + tables.CAPACITY]:
            return self._spare(node, 1)
        self.counts[node] = k + 1
        return k

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _spare(self, node: cython.Py_ssize_t, values: cython.longlong) -> cython.longlong:
        """Count values that a node has no room for; the place for all such, −1 if too many."""
        if values > tables.MAX_OFFSET - self.counts[node]:
            return self._fail(tables.TOO_LARGE, node, 0)
        self._note_full(node)
        self.counts[node] += values
        return self.nodes[node * tables.NODE_WIDTH + tables.CAPACITY]

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _spare_bytes(self, node: cython.Py_ssize_t, length: cython.longlong) -> cython.bint:
        """Count bytes that a node has no room for; false if there are too many."""
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
        """A null, and for a struct nulls in all that is below it."""
        stop: cython.Py_ssize_t = self.nodes[node * tables.NODE_WIDTH + tables.STOP]
        at: cython.Py_ssize_t
        k: cython.longlong
        storage: cython.longlong
        while node < stop:
            k = self._slot(node)
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
        """Let value `k` of a node be zero or empty."""
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
        """A whole number, which fits the width of the node."""
        at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        k: cython.longlong = self._slot(node)
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
        """A floating-point number; one of four bytes takes only what is in its range."""
        at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        k: cython.longlong
        narrow: cython.bint = self.nodes[at + tables.STORAGE] == tables.INT32
        # An infinity or NaN differs from itself minus itself.
        if narrow and (value >= _MAX_FLOAT or value <= -_MAX_FLOAT) and value - value == 0:
            self._fail(tables.OUT_OF_RANGE, node, offset)
            return False
        k = self._slot(node)
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
        """Whether a node has floats of four bytes, and this is the middle of two of them.

        If the number was rounded to it, to round it once more may give the wrong one of the two.
        """
        error: cython.double
        if self.nodes[node * tables.NODE_WIDTH + tables.STORAGE] != tables.INT32:
            return False
        # The first bytes of the arena serve to see the nearest float.
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
        k: cython.longlong = self._slot(node)
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
        """Bytes of the value that `_close_bytes` will append."""
        at: cython.Py_ssize_t = node * tables.NODE_WIDTH
        used: cython.longlong = self.used[node]
        target: cython.longlong = self.nodes[at + tables.BYTES] + used
        if length > self.nodes[at + tables.BYTES_CAPACITY] - used:
            return self._spare_bytes(node, length)
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
            return self._spare_bytes(node, 1)
        self.a8[self.nodes[at + tables.BYTES] + used] = byte
        self.used[node] = used + 1
        return True

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _close_bytes(self, node: cython.Py_ssize_t) -> cython.bint:
        k: cython.longlong = self._slot(node)
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
        """One whole value."""
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
        """Text of the payload; false if it is not UTF-8."""
        if not self._is_text(start, start + length):
            self._fail(tables.BAD_UTF8, node, start)
            return False
        return self._put_bytes(node, self.p, start, length)

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _close_struct(self, node: cython.Py_ssize_t) -> cython.bint:
        """A struct of the values since the last; those left out are null.

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
        return self._slot(node) >= 0

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
        """A whole number in the unit of its column."""
        divisor: cython.longlong = self.links[scale + tables.DIVISOR]
        if value < self.links[scale + tables.LOW] or value > self.links[scale + tables.HIGH]:
            self._fail(tables.OUT_OF_RANGE, node, offset)
            return False
        if divisor != 1:
            if value % divisor != 0:
                self._fail(tables.TOO_PRECISE, node, offset)
                return False
            # Exact, so that C and Python divide alike.
            value = value // divisor
        return self._put(node, value * self.links[scale + tables.MULTIPLIER])

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _instant(
        self,
        node: cython.Py_ssize_t,
        seconds: cython.longlong,
        nanoseconds: cython.longlong,
        units: cython.longlong,
        offset: cython.Py_ssize_t,
    ) -> cython.bint:
        """Seconds and nanoseconds `[0, 10⁹)` in `units` a second, 10⁶ or 10⁹; left in `number`.

        Args:
            node: The node that it is for.
            seconds: The seconds.
            nanoseconds: The nanoseconds.
            units: The unit.
            offset: Where they stand, for errors.
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
            # By far the most common.
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
            # Towards zero first: the product alone may be out of range.
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
        """A signed number of 1 to 8 bytes."""
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
        """A signed number of 4 or 8 bytes."""
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
        """Whether these bytes are UTF-8."""
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
            # The second byte of the shortest and the last sequences has a range of its own.
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


def lay_out(
    nodes: cython.longlong[::1],
    count: cython.Py_ssize_t,
    first: cython.Py_ssize_t,
    guard_bytes: cython.Py_ssize_t,
) -> int:
    """Give the regions of each node their places in an arena, by its capacities.

    Args:
        nodes: The nodes; receive the places.
        count: How many there are.
        first: Where the first region may begin, a multiple of 64.
        guard_bytes: How many bytes are to stand before and behind each region, a multiple of 64.

    Returns:
        How many bytes the arena takes.
    """
    node: cython.Py_ssize_t
    at: cython.Py_ssize_t
    storage: cython.longlong
    width: cython.longlong
    places: cython.longlong
    place: cython.longlong = first + guard_bytes
    with cython.nogil:
        for node in range(count):
            at = node * tables.NODE_WIDTH
            storage = nodes[at + tables.STORAGE]
            # With the place for values that find no room.
            places = nodes[at + tables.CAPACITY] + 1
            width = _width(storage)
            nodes[at + tables.VALID] = place
            place += _aligned(places) + guard_bytes
            nodes[at + tables.DATA] = place // max(width, 1)
            if storage == tables.VARIABLE or storage == tables.LIST:
                places += 1
            place += _aligned(width * places) + guard_bytes
            nodes[at + tables.BYTES] = place
            place += _aligned(nodes[at + tables.BYTES_CAPACITY]) + guard_bytes
    return place + _ALIGNMENT


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
    """Bytes that a value, or its offset, takes."""
    if storage == tables.STRUCT:
        return 0
    if storage == tables.VARIABLE or storage == tables.LIST:
        return 4
    return cython.cast(cython.longlong, 1) << storage if cython.compiled else 1 << storage


def clear(
    bytes_: cython.uchar[::1], nodes: cython.const[cython.longlong][::1], count: cython.Py_ssize_t
) -> None:
    """Let all values in an arena be not null, and all offsets begin at 0.

    Args:
        bytes_: The arena.
        nodes: Its nodes.
        count: How many there are.
    """
    node: cython.Py_ssize_t
    at: cython.Py_ssize_t
    place: cython.Py_ssize_t
    length: cython.Py_ssize_t
    storage: cython.longlong
    data: cython.Py_ssize_t
    with cython.nogil:
        for node in range(count):
            at = node * tables.NODE_WIDTH
            place = nodes[at + tables.VALID]
            # With the place for values that find no room.
            length = nodes[at + tables.CAPACITY] + 1
            storage = nodes[at + tables.STORAGE]
            data = 4 * nodes[at + tables.DATA]
            if cython.compiled:
                memset(cython.address(bytes_[place]), 1, length)
            else:
                bytes_[place : place + length] = b"\1" * length
            if storage == tables.VARIABLE or storage == tables.LIST:
                if cython.compiled:
                    memset(cython.address(bytes_[data]), 0, 4)
                else:
                    bytes_[data : data + 4] = bytes(4)


def blank_fields(
    bytes_: cython.uchar[::1], nodes: cython.const[cython.longlong][::1], count: cython.Py_ssize_t
) -> None:
    """Let all places of what stands in structs be null, or zero, as `IF_MISSING` says.

    Args:
        bytes_: The arena, after `clear`.
        nodes: Its nodes.
        count: How many there are.
    """
    node: cython.Py_ssize_t
    child: cython.Py_ssize_t
    if cython.compiled:
        p: cython.pointer[cython.uchar] = cython.address(bytes_[0])
        q: cython.pointer[cython.const[cython.longlong]] = cython.address(nodes[0])
    else:
        p = bytes_
        q = nodes
    with cython.nogil:
        for node in range(count):
            if q[node * tables.NODE_WIDTH + tables.STORAGE] == tables.STRUCT:
                child = node + 1
                while child < q[node * tables.NODE_WIDTH + tables.STOP]:
                    _blank(p, q, child, 0, q[child * tables.NODE_WIDTH + tables.CAPACITY])
                    child = q[child * tables.NODE_WIDTH + tables.STOP]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.void)
def _blank(
    p: cython.pointer[cython.uchar],
    nodes: cython.pointer[cython.const[cython.longlong]],
    node: cython.Py_ssize_t,
    first: cython.longlong,
    stop: cython.longlong,
):
    """Let the places `[first, stop)` of a node be null, or zero, as `IF_MISSING` says."""
    at: cython.Py_ssize_t = node * tables.NODE_WIDTH
    storage: cython.longlong = nodes[at + tables.STORAGE]
    is_valid: cython.int = nodes[at + tables.IF_MISSING] != tables.NULL
    valid: cython.Py_ssize_t = nodes[at + tables.VALID] + first
    width: cython.Py_ssize_t = 4
    place: cython.Py_ssize_t = nodes[at + tables.DATA] + first
    count: cython.Py_ssize_t = stop - first
    if storage == tables.VARIABLE or storage == tables.LIST:
        # Of the two offsets of a value the second is its own.
        place += 1
    elif storage == tables.STRUCT:
        width = 0
    else:
        width = 1 << storage
    if cython.compiled:
        memset(p + valid, is_valid, count)
        memset(p + place * width, 0, count * width)
    else:
        p[valid : valid + count] = bytes([is_valid]) * count
        p[place * width : (place + count) * width] = bytes(count * width)


def make_message(
    bytes_: cython.uchar[::1],
    words: cython.longlong[::1],
    nodes: cython.const[cython.longlong][::1],
    counts: cython.const[cython.longlong][::1],
    booleans: cython.const[cython.uchar][::1],
    message: cython.Py_ssize_t,
    body: cython.Py_ssize_t,
) -> None:
    """Make of a filled arena the message that its columns are the body of; it takes no more values.

    Args:
        bytes_: The arena, in which the message's begin is set but for the numbers.
        words: The same as 64-bit numbers.
        nodes: Its nodes, numbered as the arrays of a message are: before those inside them.
        counts: How many values each has, then how many bytes each has.
        booleans: Of each node, whether its values are flags, which become bits.
        message: Where the message begins, in bytes, a multiple of 8.
        body: Where its body begins.
    """
    node: cython.Py_ssize_t
    count: cython.Py_ssize_t = booleans.shape[0] if cython.compiled else len(booleans)
    length: cython.Py_ssize_t = bytes_.shape[0] if cython.compiled else len(bytes_)
    begin: cython.Py_ssize_t = message // 8
    array: cython.Py_ssize_t = begin + ipc_message.NODES
    buffer: cython.Py_ssize_t = array + 2 * count + 1
    at: cython.Py_ssize_t
    place: cython.Py_ssize_t
    values: cython.Py_ssize_t
    storage: cython.longlong
    width: cython.longlong
    if cython.compiled:
        p: cython.pointer[cython.uchar] = cython.address(bytes_[0])
        w: cython.pointer[cython.longlong] = cython.address(words[0])
    else:
        p, w = bytes_, words
    with cython.nogil:
        w[begin + ipc_message.BODY_BYTES] = length - body
        w[begin + ipc_message.ROWS] = counts[0]
        for node in range(count):
            at = node * tables.NODE_WIDTH
            storage = nodes[at + tables.STORAGE]
            values = counts[node]
            place = nodes[at + tables.VALID]
            w[array] = values
            w[array + 1] = values - _pack_flags(p, place, values)
            w[buffer] = place - body
            w[buffer + 1] = (values + 7) // 8
            array += 2
            buffer += 2
            if storage == tables.STRUCT:
                continue
            width = _width(storage)
            place = nodes[at + tables.DATA] * width
            w[buffer] = place - body
            if booleans[node] != 0:
                _pack_flags(p, place, values)
                w[buffer + 1] = (values + 7) // 8
            elif storage == tables.VARIABLE or storage == tables.LIST:
                w[buffer + 1] = width * (values + 1)
            else:
                w[buffer + 1] = width * values
            buffer += 2
            if storage == tables.VARIABLE:
                w[buffer] = nodes[at + tables.BYTES] - body
                w[buffer + 1] = counts[count + node]
                buffer += 2


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.Py_ssize_t)
def _pack_flags(
    p: cython.pointer[cython.uchar], place: cython.Py_ssize_t, count: cython.Py_ssize_t
):
    """Make bits of `count` flags, a byte each, in place; gives how many are set."""
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
        # The highest byte of a product is the sum of the flags, or each flag in its place.
        flag_count += ((eight * _EIGHT_ONES) & _MASK64) >> 56
        p[place + i] = ((eight * _EIGHT_PLACES) & _MASK64) >> 56
    if rest > 0:
        eight = 0
        for k in range(rest):
            flag_count += p[place + 8 * whole + k]
            eight |= p[place + 8 * whole + k] << k
        p[place + whole] = eight
    return flag_count


def has_equal_keys(
    bytes_: cython.const[cython.uchar][::1],
    ints: cython.const[cython.int][::1],
    nodes: cython.const[cython.longlong][::1],
    counts: cython.const[cython.longlong][::1],
    node: cython.Py_ssize_t,
) -> bool:
    """Whether any map of a node of a filled arena has a key twice, or is too long to be looked at.

    Args:
        bytes_: The arena, of which no message was made yet.
        ints: The same as 32-bit numbers.
        nodes: Its nodes.
        counts: How many values each has.
        node: Number of the node, whose values are maps. The second node behind it is that of their
            keys.
    """
    at: cython.Py_ssize_t = nodes[node * tables.NODE_WIDTH + tables.DATA]
    key: cython.Py_ssize_t = (node + 2) * tables.NODE_WIDTH
    row: cython.Py_ssize_t
    is_equal: cython.bint = False
    if cython.compiled:
        p: cython.pointer[cython.const[cython.uchar]] = cython.address(bytes_[0])
        w: cython.pointer[cython.const[cython.int]] = cython.address(ints[0])
        numbers: cython.pointer[cython.const[cython.longlong]] = cython.address(nodes[0])
    else:
        p, w, numbers = bytes_, ints, nodes
    with cython.nogil:
        for row in range(counts[node]):
            if w[at + row + 1] - w[at + row] > 1:
                is_equal = _is_any_equal(p, w, numbers, key, w[at + row], w[at + row + 1])
                if is_equal:
                    break
    return is_equal


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_any_equal(
    p: cython.pointer[cython.const[cython.uchar]],
    w: cython.pointer[cython.const[cython.int]],
    nodes: cython.pointer[cython.const[cython.longlong]],
    at: cython.Py_ssize_t,
    first: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
) -> cython.bint:
    """Whether two of the values `[first, stop)` are equal, of the node that begins at `at`."""
    i: cython.Py_ssize_t
    k: cython.Py_ssize_t
    start: cython.longlong
    other: cython.longlong
    storage: cython.longlong = nodes[at + tables.STORAGE]
    length: cython.longlong = _width(storage)
    data: cython.longlong = nodes[at + tables.DATA]
    base: cython.longlong = nodes[at + tables.BYTES]
    if stop - first > _MAX_COMPARED:
        return True
    if storage != tables.VARIABLE:
        base = data * length
    for i in range(first + 1, stop):
        start = i * length
        if storage == tables.VARIABLE:
            start = w[data + i]
            length = w[data + i + 1] - start
        for k in range(first, i):
            other = k * length
            if storage == tables.VARIABLE:
                other = w[data + k]
                if w[data + k + 1] - other != length:
                    continue
            if cython.compiled:
                if same(p + base + start, p + base + other, length):
                    return True
            elif p[base + start : base + start + length] == p[base + other : base + other + length]:
                return True
    return False


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _signed(value: cython.ulonglong) -> cython.longlong:
    """The 64-bit two's complement of an unsigned value, spelled so that both builds agree."""
    rest: cython.longlong
    if value > _MAX63:
        rest = _MASK64 - value
        return -rest - 1
    return value
