# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True, freethreading_compatible=True
"""Pulsar's primitive types, big-endian, as its `*Schema.java` write them; see `_arena_py`."""

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

_DAY_SECONDS = cython.declare(cython.longlong, 86400)
_DAY_MILLISECONDS = cython.declare(cython.longlong, 86400 * 10**3)
_DAY_NANOSECONDS = cython.declare(cython.longlong, 86400 * 10**9)
_SECOND_NANOSECONDS = cython.declare(cython.longlong, 10**9)
_MAX_SECONDS = cython.declare(cython.longlong, 10**13)


@cython.final
@cython.cclass
class Shredder(Arena):
    """A shredder for payloads that are one value."""

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_payload(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
        opcode: cython.longlong = self.ops[tables.OPCODE]
        node: cython.Py_ssize_t = self.ops[tables.NODE]
        a: cython.longlong = self.ops[tables.A]
        size: cython.longlong = stop - start
        first: cython.longlong
        second: cython.longlong
        is_put: cython.bint
        if opcode == tables.VALUE_BYTES:
            return stop if self._put_bytes(node, self.p, start, size) else -1
        if opcode == tables.VALUE_BOOLEAN:
            if size != 1:
                return self._fail(tables.WRONG_SIZE, node, start)
            return stop if self._put(node, self.p[start] != 0) else -1
        if opcode == tables.VALUE_INTEGER:
            if size != a:
                return self._fail(tables.WRONG_SIZE, node, start)
            first = self._big_endian(start, a)
            is_put = self._put_scaled(node, self.ops[tables.B], first, start)
        elif opcode == tables.VALUE_FLOAT:
            if size != a:
                return self._fail(tables.WRONG_SIZE, node, start)
            is_put = self._put(node, self._big_endian(start, a))
        elif opcode == tables.VALUE_TIME:
            if size != 8:
                return self._fail(tables.WRONG_SIZE, node, start)
            first = self._big_endian(start, 8) % _DAY_MILLISECONDS
            if first < 0:
                # C's remainder has the sign of the dividend.
                first += _DAY_MILLISECONDS
            is_put = self._put(node, first * a)
        elif opcode == tables.VALUE_INSTANT:
            if size != 12:
                return self._fail(tables.WRONG_SIZE, node, start)
            first = self._big_endian(start, 8)
            second = self._big_endian(start + 8, 4)
            is_put = self._convert_instant(node, first, second, a, start) and self._put(
                node, self.number
            )
        else:
            if size != 16:
                return self._fail(tables.WRONG_SIZE, node, start)
            first = self._big_endian(start, 8)
            second = self._big_endian(start + 8, 8)
            if second < 0 or second >= _DAY_NANOSECONDS:
                return self._fail(tables.OUT_OF_RANGE, node, start + 8)
            if first > _MAX_SECONDS or first < -_MAX_SECONDS:
                return self._fail(tables.OUT_OF_RANGE, node, start)
            first = first * _DAY_SECONDS + second // _SECOND_NANOSECONDS
            second = second % _SECOND_NANOSECONDS
            is_put = self._convert_instant(node, first, second, a, start) and self._put(
                node, self.number
            )
        return stop if is_put else -1
