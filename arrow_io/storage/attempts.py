"""Retries of a request: the policy, the deadline, and the record of its attempts."""

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


def _random_pause(longest_s: float) -> float:
    return random.uniform(0, longest_s)  # noqa: S311 - it is no secret


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, after which pauses and for how long a failed request is sent again.

    An answer that says to try later (429, 503) is not counted as a failure: the request is repeated
    until the deadline, unless `attempts` is set. Pauses after such an answer are random, so that
    requests that were refused together do not return together.

    Libraries repeat some requests themselves (botocore up to five times, s3fs each of those up to
    five times). `attempts` does not count those; `deadline_s` bounds them all.
    """

    attempts: int | None = None
    """Maximum number of times a request is sent, including the first; at least 1. None: 5, not
    counting attempts that were answered by "try later"."""
    first_delay_s: float = 0.1
    """Pause before the second attempt, in seconds; doubled before each later attempt."""
    max_delay_s: float = 5.0
    """Maximum pause, in seconds."""
    deadline_s: float = 60.0
    """Time for a request with all its attempts, in seconds; after it no attempt starts. S3, obstore
    and file systems with one connection also cancel the attempt in flight; bytes that it received
    extend its time on S3 and obstore."""
    least_bytes_per_s: float = 8 << 10
    """Minimum transfer rate. Each time this number of bytes of a body is received or is to be sent,
    the deadline is extended by one second."""
    sleep: Callable[[float], object] = time.sleep
    """Waits for a number of seconds."""
    clock: Callable[[], float] = time.monotonic
    """A monotonic clock, in seconds."""
    jitter: Callable[[float], float] = _random_pause
    """Returns the pause after "try later" for the maximum pause; both in seconds."""

    def with_options(self, storage_options: Mapping[str, object]) -> RetryPolicy:
        """Return the policy with the fields that storage options set.

        Raises:
            OptionError: An option is not a number, or out of bounds.
        """
        fields = retry_options(storage_options)
        return replace(self, **fields) if fields else self

    @property
    def most_failures(self) -> int:
        """Number of counted failures after which a request fails."""
        return DEFAULT_ATTEMPTS if self.attempts is None else self.attempts

    def counts(self, error: BaseException) -> bool:
        """Return whether a failure counts towards `most_failures`."""
        return self.attempts is not None or not says_try_later(error)

    def call(self, request: Callable[[], _Result]) -> _Result:
        """Call `request`, and repeat the call while it fails with a transient error.

        Raises:
            Exception: The library's error of the last attempt.
        """
        attempts = Attempts(self)
        while True:
            attempts.begin()
            try:
                return request()
            except storage_errors() as error:
                if not attempts.pause_after(error):
                    attempts.raise_earlier_error()
                    raise

    def is_too_late(self, start_s: float, received_bytes: int) -> bool:
        """Return whether a transfer since `start_s`, a time of `clock`, has received too little."""
        allowed_s = self.deadline_s + received_bytes / self.least_bytes_per_s
        return self.clock() - start_s > allowed_s


class Refusals:
    """A counter of a store's answers that it receives too many requests.

    Any thread may increment it without a lock. Of two simultaneous increments one may be lost, so
    rely only on the fact that the count has risen.
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
    can_repeat: bool = True
    """Whether more than one attempt is allowed."""
    sent_bytes: int = 0
    """Length of the body that each attempt sends, in bytes."""
    count: int = 0
    failure_count: int = 0
    """Number of failures that the policy bounds."""
    sent_requests: int = 0
    """Number of requests sent, including repeats by libraries; 0 if not known."""
    last_status: int | None = None
    """HTTP status of the last answer; None if there was none, or it is not known."""
    is_late: bool = False
    """Whether the last attempt was cancelled because its time was over."""
    refusals: Refusals = field(default_factory=Refusals)
    """Counts the answers that refused an attempt."""
    _stop: float | None = None
    """Time of the policy's clock after which no attempt may start."""
    _delay_s: float = 0.0
    _failure: Exception | None = None

    def begin(self) -> Attempt:
        """Start an attempt; the first one starts the time of all of them."""
        now, retry = self.retry.clock(), self.retry
        if self._stop is None:
            self._stop = now + retry.deadline_s + self.sent_bytes / retry.least_bytes_per_s
            self._delay_s = retry.first_delay_s
        self.count += 1
        return Attempt(self, self._stop - now)

    def pause_after(self, error: Exception) -> bool:
        """Wait after a failed attempt, and return True; or return False if it was the last one."""
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
            # Drop the traceback: its frames refer to this object.
            self._failure = error.with_traceback(None)
        retry.sleep(pause_s)
        self._delay_s *= 2
        return True

    def raise_earlier_error(self) -> None:
        """Raise an earlier attempt's error if the last attempt was cancelled, as it says more."""
        if self.is_late and self._failure is not None:
            raise self._failure

    def description(self) -> str:
        """Return the number of attempts and the last answer, for messages.

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
        """Return advice on the storage option that allows more; empty if none does.

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
    """One attempt at a request, and its time, which received bytes extend.

    Attributes:
        attempts: All attempts at the request.
        seconds: Time for the attempt, including that for the body it sends; without the extensions
            for received bytes.
        is_over: Set when no caller waits for the answer any more.
    """

    __slots__ = ("_end", "attempts", "is_over", "seconds")

    def __init__(self, attempts: Attempts, seconds: float) -> None:
        self.attempts = attempts
        self.seconds = seconds
        self.is_over = False

    def start(self, times: int = 1) -> None:
        """Start the time, multiplied by `times`; call this when the request can be sent."""
        self.seconds *= times
        self.is_over = False
        self._end = time.monotonic() + self.seconds

    def extend(self, size_bytes: int) -> None:
        """Extend the time for received bytes."""
        self._end += size_bytes / self.attempts.retry.least_bytes_per_s

    def remaining_s(self) -> float:
        """Return the remaining time, in seconds; at least 0."""
        return max(0, self._end - time.monotonic())

    @asynccontextmanager
    async def timeout(self) -> AsyncIterator[asyncio.Timeout]:
        """Cancel the context with a `TimeoutError` when the time is over; yield the timeout."""
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle | None = None

        def check_time() -> None:
            # Moving a timer for each part of a body would cost as much as processing the part. So
            # the timer checks when it fires whether bytes have extended the time.
            nonlocal timer
            remaining_s = self.remaining_s()
            timer = loop.call_later(remaining_s, check_time) if remaining_s else None
            if timer is None:
                limit.reschedule(loop.time())

        async with asyncio.timeout(None) as limit:
            check_time()
            try:
                yield limit
            finally:
                if timer is not None:
                    timer.cancel()

    @asynccontextmanager
    async def time_limit(self, library: str) -> AsyncIterator[None]:
        """Start the time, and cancel the work in the context when it is over.

        Args:
            library: The library that sends and repeats the request, for the error.

        Raises:
            RequestGivenUpError: The time was over.
        """
        self.start()
        try:
            async with self.timeout() as limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            message = (
                f"no complete, valid answer within {self.seconds:.3g} s, including the retries of"
                f" {library}"
            )
            raise RequestGivenUpError(message) from None
