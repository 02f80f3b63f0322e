"""The copies that make up a block of LZ4 or Snappy: literals, and matches of what stands before.

For the sources of the core. The compiled build has the same from `_copies.pxd`, whose functions C
can inline. Callers have compared every length with what remains; `readable` and `writable` are the
ends of the whole buffers, up to which a copy may read or write more than it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableSequence, Sequence


WORD = 16
"""How many bytes are copied at a time where there is room."""


def copy_word(q: MutableSequence[int], o: int, p: Sequence[int], i: int) -> None:
    """Copy a word from `p[i]` on to `q[o]` and behind; there must be room in both."""
    q[o : o + WORD] = p[i : i + WORD]


def copy_words_back(q: MutableSequence[int], o: int, offset: int) -> None:
    """Copy three words from `q[o - offset]` on, one after the other; `offset`: at least a word."""
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
    """Copy `length` bytes from `p[i]` on to `q[o]` and behind.

    Args:
        q: The output.
        o: Where in it to begin.
        writable: Length of the output.
        p: The input.
        i: Where in it to begin.
        readable: Length of the input.
        length: How many bytes.
    """
    del writable, readable
    q[o : o + length] = p[i : i + length]


def copy_match(q: MutableSequence[int], o: int, writable: int, offset: int, length: int) -> None:
    """Copy `length` bytes from `q[o - offset]` on to `q[o]` and behind, one after the other.

    Args:
        q: The output.
        o: Where in it to begin.
        writable: Length of the output.
        offset: How far back to read, 1 to `o`; less than `length` repeats what stands there.
        length: How many bytes.
    """
    del writable
    while length > 0:
        part = min(length, offset)
        q[o : o + part] = q[o - offset : o - offset + part]
        o += part
        length -= part
        offset += part
