"""Whether the ratios of paired runs show that a benchmark takes longer than before."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from statistics import median
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT: Final = 1.05
"""Greatest ratio of the new CPU time to the old one that passes."""
CONFIDENCE: Final = 0.99
"""Probability that an interval contains the median."""


class Verdict(Enum):
    """What ratios show."""

    OK = "ok"
    SLOWER = "slower"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The median of the ratios of one benchmark.

    Attributes:
        median: Median of the ratios.
        low: Lower end of its confidence interval; 0 for too few ratios.
        high: Upper end; infinity for too few ratios.
        verdict: SLOWER if the whole interval is above the limit, OK if none of it is, or else
            UNDECIDED.
    """

    median: float
    low: float
    high: float
    verdict: Verdict


def compare(
    ratios: Sequence[float], *, limit: float = LIMIT, confidence: float = CONFIDENCE
) -> Comparison:
    """Compare the median of independent ratios with a limit.

    The interval needs no assumption about the distribution: its ends are two of the ratios.

    Args:
        ratios: New CPU time divided by the old one, one or more.
        limit: Greatest ratio that passes.
        confidence: Probability that the interval contains the median, at least 0 and below 1.
    """
    ordered = sorted(ratios)
    left_out = _left_out(len(ordered), 1 - confidence)
    if left_out is None:
        low, high = 0.0, math.inf
    else:
        low, high = ordered[left_out], ordered[-1 - left_out]
    if low > limit:
        verdict = Verdict.SLOWER
    elif high <= limit:
        verdict = Verdict.OK
    else:
        verdict = Verdict.UNDECIDED
    return Comparison(median(ordered), low, high, verdict)


def _left_out(count: int, error: float) -> int | None:
    """Return how many ratios at each end may be outside the interval; None if all are too few.

    A ratio is below the median with probability 1/2, so the number of those below is binomial.
    """
    left_out = None
    below = 0  # how many of 2 ** count outcomes have at most so many ratios below the median
    for number in range((count + 1) // 2):
        below += math.comb(count, number)
        if 2 * below > error * 2**count:
            break
        left_out = number
    return left_out
