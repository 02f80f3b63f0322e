# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True, freethreading_compatible=True
"""The filter that finds in the entry table what a Pulsar consumer would receive; see `delivery`."""

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
    """Flag entries of transactions that were not committed as `LEFT_OUT`; stop at an undecided one.

    Args:
        table: Entry table.
        first: First entry.
        stop: End of the entries (exclusive).
        undecided: Flags of entries, other than markers, that need a decision: `CHUNKED`, and also
            `TRANSACTION` if transactions are decided.
        outcomes: Four numbers per decided transaction: the most and least significant bits of its
            id; the flag for its entries, or 0; and a counter, to which the number of their messages
            is added.

    Returns:
        The first undecided entry: a chunk, or of a transaction that is not in `outcomes`; else
        `stop`.
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
    """Move the entries without any flag of `mask` to the front, in their order.

    Returns:
        Number of entries moved; the table after them must not be read.
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
