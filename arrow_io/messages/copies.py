"""The copies in a block of LZ4 or Snappy: literals, and matches of earlier output.

For the pure build of the core; the compiled build has the same functions in `_copies.pxd`, where C
can inline them. Callers have checked every length. `readable` and `writable` are the ends of the
whole buffers, up to which a copy may read or write more than requested.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableSequence, Sequence


WORD = 16
"""Number of bytes copied at a time if the buffers have room."""


def copy_word(q: MutableSequence[int], o: int, p: Sequence[int], i: int) -> None:
    """Copy a word from `p[i:]` to `q[o:]`; both must have room for it."""
    q[o : o + WORD] = p[i : i + WORD]


def copy_words_back(q: MutableSequence[int], o: int, offset: int) -> None:
    """Copy three words from `q[o - offset:]` to `q[o:]`, in order; `offset` is at least a word."""
    for at in range(o, o + 3 * WORD, WORD):
        q[at : at + WORD] = q[at - offset : at - offset + WORD]


def copy_literals(  # noqa: PLR0917 - as C declares it
    q: MutableSequence[int],
    o: int,
    writable: int,
    p: Sequence[int],
    i: int,
    readable: int,
    length: int,
) -> None:
    """Copy `length` bytes from `p[i:]` to `q[o:]`."""
    del writable, readable
    q[o : o + length] = p[i : i + length]


def copy_match(q: MutableSequence[int], o: int, writable: int, offset: int, length: int) -> None:
    """Copy `length` bytes from `q[o - offset:]` to `q[o:]`, in order.

    `offset` is 1 … `o`. The source repeats if `offset` is below `length`.
    """
    del writable
    while length > 0:
        part = min(length, offset)
        q[o : o + part] = q[o - offset : o - offset + part]
        o += part
        length -= part
        offset += part
