"""The rate limit of a replay."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

from arrow_io.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

_BATCHES_A_SECOND: Final = 10
"""With a rate limit, batches are so small that this many are sent per second."""


class Pace:
    """A rate limit: spreads messages evenly over time.

    Args:
        rate: Maximum number of messages per second. None: unlimited.

    Raises:
        OptionError: The rate is not a number above 0.
    """

    def __init__(
        self,
        rate: float | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        is_number = isinstance(rate, int | float) and not isinstance(rate, bool)
        if rate is not None and not (is_number and 0 < rate < math.inf):
            message = f"rate must be a number of messages per second above 0, not {rate!r}"
            raise OptionError(message)
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._due: float | None = None

    def max_batch_messages(self, most: int) -> int:
        """Return how many messages may be sent at once, up to a maximum."""
        if self._rate is None:
            return most
        return max(1, min(most, int(self._rate / _BATCHES_A_SECOND)))

    def wait(self, messages: int) -> None:
        """Wait until the next messages may be sent. Time lost earlier is not made up for."""
        if self._rate is None:
            return
        now = self._clock()
        if self._due is not None and self._due > now:
            self._sleep(self._due - now)
            now = self._due
        self._due = now + messages / self._rate
