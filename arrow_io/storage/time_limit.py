"""How long requests may take: each has a time, which the bytes of its body extend."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from arrow_io.storage.failures import RequestGivenUpError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """How long requests may take, each by itself."""

    seconds: float | None = None
    """None: as long as they like."""
    least_bytes_per_s: float = 1.0
    """So many bytes of a body, received or to be sent, add one second."""

    def begin(self, sent_bytes: int = 0) -> BodyTime:
        """The time, from now on, of a request that sends a body of so many bytes."""
        seconds = self.seconds
        if seconds is not None:
            seconds += sent_bytes / self.least_bytes_per_s
        return BodyTime(seconds, self.least_bytes_per_s)


class BodyTime:
    """The time of one request, which the bytes of its answer extend.

    Args:
        seconds: Time from now, in seconds; None: as long as it likes.
        least_bytes_per_s: So many bytes add one second.

    Attributes:
        seconds: The time that it began with; what is received does not add to it.
        is_over: Set when nobody waits for the request any more.
    """

    def __init__(self, seconds: float | None, least_bytes_per_s: float) -> None:
        self.seconds = seconds
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
            # To move a timer for each part of a body would take as long as all else that is done
            # with that part. So it looks for what has come when it would have ended.
            nonlocal looking
            left_s = self.left_s()
            looking = loop.call_later(left_s, look) if left_s else None
            if looking is None:
                limit.reschedule(loop.time())

        async with asyncio.timeout(None) as limit:
            if self._end is not None:
                look()
            try:
                yield limit
            finally:
                if looking is not None:
                    looking.cancel()


async def bounded(
    time: BodyTime, send: Callable[[BodyTime], Awaitable[_Result]], sender: str
) -> _Result:
    """Send a request from an event loop, and give it up when its time is over.

    Args:
        time: The time of the request, which has begun.
        send: Sends the request.
        sender: What sends it, and sends it again; the error names it.

    Raises:
        RequestGivenUpError: The time was over.
    """
    try:
        async with time.bounding() as limit:
            return await send(time)
    except TimeoutError:
        if not limit.expired():
            raise
        message = (
            f"no sound and whole answer within {time.seconds:.3g} s, with all that {sender} sent"
            " again"
        )
        raise RequestGivenUpError(message) from None
