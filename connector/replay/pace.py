"""How fast messages are sent: at most so many a second, evenly."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

from arrow_io.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

_BATCHES_A_SECOND: Final = 10
"""At a given rate batches are so short that there are as many of them."""


class Pace:
    """Waits until it is time to send.

    Args:
        rate: Most messages a second; None: any number.
        clock: Gives seconds, which only grow.
        sleep: Waits for so many seconds.

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
            message = f"rate is a number of messages a second above 0, not {rate!r}"
            raise OptionError(message)
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._due: float | None = None

    def most_together(self, most: int) -> int:
        """How many messages may be sent at once, of so many."""
        if self._rate is None:
            return most
        return max(1, min(most, int(self._rate / _BATCHES_A_SECOND)))

    def wait(self, messages: int) -> None:
        """Wait until it is time for the next messages; what was late is not made up for."""
        if self._rate is None:
            return
        now = self._clock()
        if self._due is not None and self._due > now:
            self._sleep(self._due - now)
            now = self._due
        self._due = now + messages / self._rate
