# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True
"""Which entries of a run hold messages for a client, in the entry table; see `delivery`."""

from __future__ import annotations

try:
    import cython
except ImportError:
    from arrow_io.core import _no_cython as cython

if cython.compiled:
    from cython.cimports.arrow_io.messages import _layout as layout
else:
    from arrow_io.messages import layout


def leave_out(
    table: cython.longlong[::1],
    first: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    undecided: cython.longlong,
    outcomes: cython.longlong[::1],
) -> int:
    """Mark entries of transactions that were not committed as `LEFT_OUT`, as far as that is known.

    Args:
        table: Entry table.
        first: First entry.
        stop: Behind the last entry.
        undecided: Flags of entries, other than markers, of which something has to be known:
            `CHUNKED`, or `TRANSACTION` too.
        outcomes: Of each transaction that is known the bits of its id, most significant and least;
            the flag that its entries get, or 0; and a number that their messages are added to.

    Returns:
        The first entry in `[first, stop)` that is of no such transaction, or in chunks; `stop` if
        there is none.
    """
    i: cython.Py_ssize_t = first
    k: cython.Py_ssize_t
    base: cython.Py_ssize_t
    numbers: cython.Py_ssize_t = len(outcomes)
    flags: cython.longlong
    size: cython.longlong
    with cython.nogil:
        while i < stop:
            base = i * layout.ENTRY_WIDTH
            flags = table[base + layout.FLAGS]
            if flags & undecided and flags & layout.MARKER == 0:
                if flags & layout.CHUNKED:
                    break
                k = numbers - 4
                while k >= 0 and (
                    outcomes[k] != table[base + layout.TXN_MOST]
                    or outcomes[k + 1] != table[base + layout.TXN_LEAST]
                ):
                    k -= 4
                if k < 0:
                    break
                table[base + layout.FLAGS] |= outcomes[k + 2]
                size = table[base + layout.BATCH_SIZE]
                outcomes[k + 3] += 1 if size < 0 else size
            i += 1
    return i


def move_unflagged(
    table: cython.longlong[::1], count: cython.Py_ssize_t, mask: cython.longlong
) -> int:
    """Move the entries that have no flag of `mask` to the front, in their order.

    Args:
        table: Entry table.
        count: How many entries it has.
        mask: The flags.

    Returns:
        How many entries are left; what stands behind them is not to be read.
    """
    i: cython.Py_ssize_t = 0
    k: cython.Py_ssize_t
    target: cython.Py_ssize_t = 0
    with cython.nogil:
        while i < count:
            if table[i * layout.ENTRY_WIDTH + layout.FLAGS] & mask == 0:
                if target < i:
                    k = 0
                    while k < layout.ENTRY_WIDTH:
                        table[target * layout.ENTRY_WIDTH + k] = table[i * layout.ENTRY_WIDTH + k]
                        k += 1
                target += 1
            i += 1
    return target
