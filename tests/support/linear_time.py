"""How the work of a call grows with the length of its text.

Times are those of this process's CPU. They are compared with each other alone: with the same call
on a shorter text, and with a plain loop over the letters of the text.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

LENGTHS: Final = (1_000, 4_000, 40_000)
"""Lengths of texts, in characters; the first shows a growth that would take minutes at the last."""

_SLACK: Final = 4
"""So many times a growth in proportion is no fault: tables grow by doubling, caches are small."""
_LOOPS: Final = 40
"""What takes less than so many loops over the letters of a text is no fault either."""
_RUNS: Final = 5
"""How often a growth that seems to be too great is measured again; the least counts."""


def first_excess(call: Callable[[str], object], text: Callable[[int], str]) -> str | None:
    """Return how the work of a call grows out of proportion, or None if it does not.

    Args:
        call: What is called.
        text: Makes a text of about so many characters.
    """
    for shorter, longer in pairwise(LENGTHS):
        texts = text(shorter), text(longer)
        if _exceeds(call, *texts, runs=1) and _exceeds(call, *texts, runs=_RUNS):
            return f"from {shorter} to {longer} characters"
    return None


def _exceeds(call: Callable[[str], object], shorter: str, longer: str, *, runs: int) -> bool:
    in_proportion = _cpu_s(call, shorter, runs) * len(longer) / len(shorter)
    allowed = _SLACK * in_proportion + _LOOPS * _cpu_s(_loop, longer, runs)
    return _cpu_s(call, longer, runs) > allowed


def _loop(text: str) -> int:
    return sum(letter == "a" for letter in text)


def _cpu_s(call: Callable[[str], object], text: str, runs: int) -> float:
    least = float("inf")
    for _ in range(runs):
        begun = time.process_time()
        call(text)
        least = min(least, time.process_time() - begun)
    return least
