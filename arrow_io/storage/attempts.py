"""Retries of a request: how often it is sent, how long it may take, and how its attempts ended."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar

from arrow_io.core.wording import counted
from arrow_io.storage.failures import (
    RequestGivenUpError,
    is_transient,
    says_try_later,
    storage_errors,
)
from arrow_io.storage.own_options import ATTEMPTS_OPTION, DEADLINE_OPTION, retry_options

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

_Result = TypeVar("_Result")

DEFAULT_ATTEMPTS: Final = 5


def _any_share(longest_s: float) -> float:
    """A time between nothing and so many seconds."""
    return random.uniform(0, longest_s)  # noqa: S311 - it is no secret


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and after which pauses a request that failed is sent again, and for how long.

    An answer that says to try later is no failure of the store: it is waited for until the
    deadline, unless `attempts` is given. Pauses after such an answer are random, so that requests
    that were refused together do not come back together.

    Libraries send some requests again by themselves (botocore up to five times, s3fs each of those
    up to five times): `attempts` counts none of that, `deadline_s` bounds it all.
    """

    attempts: int | None = None
    """Greatest number of times that a request is sent, the first time included; at least 1. None:
    5, without those that were answered by "try later"."""
    first_delay_s: float = 0.1
    """Pause before the second attempt, in seconds; doubled before each further one."""
    max_delay_s: float = 5.0
    """Longest pause, in seconds."""
    deadline_s: float = 60.0
    """Time for a request with all its attempts, in seconds; after it no attempt begins. On S3 an
    attempt that is under way is then given up, unless bytes have come."""
    least_bytes_per_s: float = 8 << 10
    """So many bytes of a body, received or to be sent, extend the deadline by one second."""
    sleep: Callable[[float], object] = time.sleep
    """What waits for a number of seconds."""
    clock: Callable[[], float] = time.monotonic
    """A clock, in seconds from any beginning."""
    jitter: Callable[[float], float] = _any_share
    """Makes, of the longest pause after "try later", the one that is kept; both in seconds."""

    def with_options(self, storage_options: Mapping[str, object]) -> RetryPolicy:
        """The policy that storage options ask for; this one unless they say otherwise.

        Raises:
            OptionError: An option is not a number, or out of bounds.
        """
        fields = retry_options(storage_options)
        return replace(self, **fields) if fields else self

    @property
    def most_failures(self) -> int:
        """How many failures that count end a request."""
        return DEFAULT_ATTEMPTS if self.attempts is None else self.attempts

    def counts(self, error: BaseException) -> bool:
        """Whether a failure is one of those whose number is bounded."""
        return self.attempts is not None or not says_try_later(error)

    def call(self, request: Callable[[], _Result]) -> _Result:
        """Send a request, and send it again as long as it fails in a way that may pass.

        Args:
            request: Sends the request once.

        Returns:
            What `request` returned.

        Raises:
            Exception: What the last attempt raised, as the library raised it.
        """
        attempts = Attempts(self)
        while True:
            attempts.begin()
            try:
                return request()
            except storage_errors() as error:
                if not attempts.pause_after(error):
                    attempts.raise_earlier()
                    raise

    def is_too_late(self, start_s: float, received_bytes: int) -> bool:
        """Whether what began at a time of `clock` has brought too few bytes until now."""
        allowed_s = self.deadline_s + received_bytes / self.least_bytes_per_s
        return self.clock() - start_s > allowed_s


class Refusals:
    """How often a store answered that it is asked for too much now.

    Any thread may note one. Of two that do so at once, one may be lost: that there are more than
    before can be relied on, and nothing else.

    Attributes:
        count: The number.
    """

    def __init__(self) -> None:
        self.count = 0

    def note(self) -> None:
        """Count an answer."""
        self.count += 1


@dataclass(slots=True)
class Attempts:
    """The attempts at one request: their number, their time and the last answer."""

    retry: RetryPolicy
    """What bounds them."""
    can_repeat: bool = True
    """Whether there may be more than one."""
    sent_bytes: int = 0
    """Length of the body that each of them sends, in bytes."""
    count: int = 0
    """How many there were."""
    failure_count: int = 0
    """How many of them failed in a way whose number the policy bounds."""
    sent_requests: int = 0
    """How many requests that were, with all that libraries sent again; 0 if it is not known."""
    last_status: int | None = None
    """HTTP status of the last answer; None if there was none, or it is not known."""
    is_late: bool = False
    """Whether the last one was given up because its time was over."""
    refusals: Refusals = field(default_factory=Refusals)
    """Counts the answers by which the store refused one."""
    _stop: float | None = None
    """Time of the policy's clock at which the last one must have begun."""
    _delay_s: float = 0.0
    _failure: Exception | None = None

    def begin(self) -> Attempt:
        """Begin an attempt; the first starts the time of all of them."""
        now, retry = self.retry.clock(), self.retry
        if self._stop is None:
            self._stop = now + retry.deadline_s + self.sent_bytes / retry.least_bytes_per_s
            self._delay_s = retry.first_delay_s
        self.count += 1
        return Attempt(self, self._stop - now)

    def pause_after(self, error: Exception) -> bool:
        """Wait between an attempt that failed and the next one.

        Returns:
            Whether there is a next one.
        """
        assert self._stop is not None, "begun"  # noqa: S101 - for mypy
        retry = self.retry
        self.is_late = isinstance(error, RequestGivenUpError)
        if not is_transient(error):
            return False
        self.failure_count += retry.counts(error)
        pause_s = min(self._delay_s, retry.max_delay_s)
        if says_try_later(error):
            self.refusals.note()
            pause_s = retry.jitter(pause_s)
        is_last = not self.can_repeat or self.failure_count >= retry.most_failures
        if is_last or retry.clock() + pause_s >= self._stop:
            return False
        if self._failure is None or not self.is_late:
            # Without the frames, which hold this.
            self._failure = error.with_traceback(None)
        retry.sleep(pause_s)
        self._delay_s *= 2
        return True

    def raise_earlier(self) -> None:
        """Raise the error of an earlier attempt if the last one was given up, which says less."""
        if self.is_late and self._failure is not None:
            raise self._failure

    def description(self) -> str:
        """How many there were, and what the last answer was.

        Example:
            >>> Attempts(RetryPolicy(), count=1, sent_requests=7, last_status=503).description()
            '1 attempt with 7 requests, the last answer of status 503'
        """
        text = counted(self.count, "attempt")
        if self.sent_requests > self.count:
            text = f"{text} with {counted(self.sent_requests, 'request')}"
        if self.last_status is not None:
            text = f"{text}, the last answer of status {self.last_status}"
        return text

    def advice(self) -> str:
        """The storage option that allows more; empty if none does.

        Example:
            >>> Attempts(RetryPolicy(), count=5, failure_count=5).advice()
            '; the storage option request_attempts, now 5, allows more attempts'
        """
        if self.is_late or (self.can_repeat and self.failure_count < self.retry.most_failures):
            return (
                f"; the storage option {DEADLINE_OPTION}, now {self.retry.deadline_s:g},"
                " allows more time"
            )
        if self.can_repeat:
            return (
                f"; the storage option {ATTEMPTS_OPTION}, now {self.retry.most_failures},"
                " allows more attempts"
            )
        return ""


class Attempt:
    """One attempt at a request, and its time, which the bytes of its answer extend.

    Args:
        attempts: All attempts at the request.
        seconds: Time for it, with that for the body that it sends, in seconds.

    Attributes:
        attempts: All attempts at the request.
        seconds: Its time at the start; what is received does not add to it.
        is_over: Set when nobody waits for the answer any more.
    """

    __slots__ = ("_end", "attempts", "is_over", "seconds")

    def __init__(self, attempts: Attempts, seconds: float) -> None:
        self.attempts = attempts
        self.seconds = seconds
        self.is_over = False

    def start(self, times: int = 1) -> None:
        """Start its time when it can be sent: a wait for others is not the store's time.

        Args:
            times: How many times as long it may take.
        """
        self.seconds *= times
        self.is_over = False
        self._end = time.monotonic() + self.seconds

    def extend(self, size_bytes: int) -> None:
        """Put off the end of the time for bytes that came."""
        self._end += size_bytes / self.attempts.retry.least_bytes_per_s

    def remaining_s(self) -> float:
        """What is left of the time, in seconds; at least 0."""
        return max(0, self._end - time.monotonic())

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
            remaining_s = self.remaining_s()
            looking = loop.call_later(remaining_s, look) if remaining_s else None
            if looking is None:
                limit.reschedule(loop.time())

        async with asyncio.timeout(None) as limit:
            look()
            try:
                yield limit
            finally:
                if looking is not None:
                    looking.cancel()

    @asynccontextmanager
    async def limiting(self, library: str) -> AsyncIterator[None]:
        """Start the time, and give up what the context does when it is over.

        Args:
            library: Sends the request, and sends it again by itself; the error names it.

        Raises:
            RequestGivenUpError: The time was over.
        """
        self.start()
        try:
            async with self.bounding() as limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            message = (
                f"no sound and whole answer within {self.seconds:.3g} s, with all that {library}"
                " sent again"
            )
            raise RequestGivenUpError(message) from None
