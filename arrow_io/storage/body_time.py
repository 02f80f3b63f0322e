"""The time of one request, which the bytes of its body extend."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class BodyTime:
    """The time of one request, which the bytes of its answer extend.

    Args:
        seconds: Time from now, in seconds; None: as long as it likes.
        least_bytes_per_s: So many bytes add one second.

    Attributes:
        is_over: Set when nobody waits for the request any more.
    """

    def __init__(self, seconds: float | None, least_bytes_per_s: float) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds
        self._least_bytes_per_s = least_bytes_per_s
        self.is_over = False

    def received(self, size_bytes: int) -> None:
        """Put off the end of the time for bytes that came."""
        if self._end is not None:
            self._end += size_bytes / self._least_bytes_per_s

    def left_s(self) -> float | None:
        """What is left of the time, in seconds; at least 0; None: it has no end."""
        return None if self._end is None else max(0, self._end - time.monotonic())

    @asynccontextmanager
    async def bounding(self) -> AsyncIterator[asyncio.Timeout]:
        """Cancel what a task of an event loop does in the context when the time is over.

        Yields:
            Tells whether that was so; the context then ends with a `TimeoutError`.
        """
        loop = asyncio.get_running_loop()
        looking: asyncio.TimerHandle | None = None

        def look() -> None:
            # To move the end for each part of a body would take as long as all else that is done
            # with that part. So it is moved when it would come, by who looks just before.
            nonlocal looking
            left_s = self.left_s() or 0
            end = loop.time() + left_s
            limit.reschedule(math.nextafter(end, math.inf))
            looking = loop.call_at(end, look) if left_s else None

        async with asyncio.timeout(None) as limit:
            if self._end is not None:
                look()
            try:
                yield limit
            finally:
                if looking is not None:
                    looking.cancel()
