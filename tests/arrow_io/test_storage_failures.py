"""Which errors of storage libraries are caught, which are retried, and until when."""

from __future__ import annotations

import asyncio
import errno
import math
import selectors
import ssl
import sys
from http.client import IncompleteRead
from typing import TYPE_CHECKING, Any

import aiohttp
import botocore.exceptions
import pytest
from botocore.parsers import ResponseParserError
from fsspec.exceptions import FSTimeoutError

from arrow_io.errors import MissingObjectError, StorageError
from arrow_io.storage.attempts import Attempt, Attempts, RetryPolicy
from arrow_io.storage.failures import http_status, is_transient, s3_error_code, storage_errors
from tests.support.faulty_storage import s3_error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator


class _GcsError(Exception):
    """An error with its status where gcsfs has it."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code


PASSING = [
    s3_error(503, "SlowDown"),
    s3_error(500, "InternalError"),
    s3_error(503, "ServiceUnavailable"),
    s3_error(502, "502"),
    s3_error(504, "504"),
    s3_error(429, "TooManyRequests"),
    s3_error(400, "RequestTimeout"),
    FSTimeoutError(),
    TimeoutError(),
    ConnectionResetError(errno.ECONNRESET, "reset"),
    BrokenPipeError(),
    OSError(errno.EIO, "input/output error"),
    OSError(errno.ETIMEDOUT, "timed out"),
    botocore.exceptions.ReadTimeoutError(endpoint_url="http://host"),
    botocore.exceptions.ConnectTimeoutError(endpoint_url="http://host"),
    botocore.exceptions.ConnectionClosedError(endpoint_url="http://host"),
    botocore.exceptions.ResponseStreamingError(error="cut"),
    botocore.exceptions.IncompleteReadError(actual_bytes=1, expected_bytes=2),
    ResponseParserError(),
    aiohttp.ClientPayloadError(),
    aiohttp.ServerDisconnectedError(),
    IncompleteRead(b""),
]
LASTING = [
    s3_error(403, "AccessDenied"),
    s3_error(403, "SignatureDoesNotMatch"),
    s3_error(404, "NoSuchKey"),
    s3_error(404, "NoSuchBucket"),
    s3_error(416, "InvalidRange"),
    s3_error(400, "SomethingNew"),
    FileNotFoundError(errno.ENOENT, "no such file"),
    PermissionError(errno.EACCES, "permission denied"),
    NotADirectoryError(errno.ENOTDIR, "not a directory"),
    OSError("a library that gives no reason"),
    ssl.SSLCertVerificationError(),
    botocore.exceptions.NoCredentialsError(),
    botocore.exceptions.EndpointConnectionError(endpoint_url="http://host"),
    botocore.exceptions.ParamValidationError(report="bad bucket"),
    aiohttp.ClientError(),
]


def _id(error: Exception) -> str:
    number = error.errno if isinstance(error, OSError) else None
    return f"{type(error).__name__}-{s3_error_code(error) or number or ''}"


@pytest.mark.parametrize("error", PASSING, ids=_id)
def test_what_may_pass_is_transient(error: Exception) -> None:
    """Timeouts, resets, cut bodies and 5xx are storage errors worth another attempt."""
    assert isinstance(error, storage_errors())
    assert is_transient(error)


@pytest.mark.parametrize("error", LASTING, ids=_id)
def test_what_lasts_is_not_transient(error: Exception) -> None:
    """What the same request would bring again is a storage error, asked for once."""
    assert isinstance(error, storage_errors())
    assert not is_transient(error)


def test_our_own_errors_are_never_retried() -> None:
    """A typed error is a decision that was made already, though some are OSErrors."""
    assert not is_transient(StorageError("no"))
    assert not is_transient(MissingObjectError("no"))


def test_bugs_are_not_storage_errors() -> None:
    """A TypeError or KeyError is no failure of the store and goes through."""
    for error in (TypeError(), KeyError(), ValueError(), AssertionError()):
        assert not isinstance(error, storage_errors())


def test_a_library_that_is_not_imported_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without botocore and aiohttp the classes of the standard library are still known."""
    for name in ("aiohttp", "botocore.exceptions", "botocore.parsers"):
        monkeypatch.delitem(sys.modules, name)

    assert OSError in storage_errors()
    assert botocore.exceptions.BotoCoreError not in storage_errors()
    assert is_transient(TimeoutError())


@pytest.mark.parametrize(("code", "passes"), [(503, True), (429, True), (401, False)])
def test_the_status_decides_where_there_is_one(code: int, passes: bool) -> None:
    """An error that is no OSError is judged by the HTTP status that it carries."""
    assert http_status(_GcsError(code)) == code
    assert is_transient(_GcsError(code)) is passes


def test_s3_tells_status_and_code_through_the_cause() -> None:
    """What s3fs made an OSError of is recognised by the botocore error behind it."""
    error = s3_error(404, "NoSuchBucket")

    assert isinstance(error, FileNotFoundError)
    assert (http_status(error), s3_error_code(error)) == (404, "NoSuchBucket")
    assert (http_status(OSError()), s3_error_code(OSError())) == (None, None)


class _Flaky:
    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def test_a_request_is_sent_until_it_succeeds() -> None:
    """Pauses double from the first and are bounded by the longest."""
    pauses_s: list[float] = []
    policy = RetryPolicy(attempts=6, first_delay_s=1, max_delay_s=3, sleep=pauses_s.append)
    request = _Flaky(*(TimeoutError() for _ in range(4)))

    assert policy.call(request) == "done"
    assert request.calls == 5
    assert pauses_s == [1, 2, 3, 3]


# Time


class _Clock(selectors.DefaultSelector):
    """Stands still, but for waits of the event loop, which end at once."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "the event loop would wait for ever"
            self.now_s += timeout
        return ready


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    """The clock of attempts."""
    clock = _Clock()
    monkeypatch.setattr("arrow_io.storage.attempts.time", clock)
    return clock


@pytest.fixture
def run(clock: _Clock) -> Iterator[Callable[[Awaitable[bool]], bool]]:
    """Runs something in an event loop of the same clock; nothing of it may be left there."""
    loop = asyncio.SelectorEventLoop(clock)
    loop.time = clock.monotonic  # type: ignore[method-assign]
    errors: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _loop, error: errors.append(error))
    yield loop.run_until_complete
    left = [each for each in loop._scheduled if not each.cancelled()]  # type: ignore[attr-defined]
    loop.close()
    assert (left, errors) == ([], [])


def _attempt(seconds: float, least_bytes_per_s: float) -> Attempt:
    retry = RetryPolicy(deadline_s=seconds, least_bytes_per_s=least_bytes_per_s)
    attempt = Attempts(retry).begin()
    attempt.start()
    return attempt


async def _is_given_up(attempt: Attempt, parts: list[tuple[float, int]]) -> bool:
    """Receive parts, each after a wait in seconds and of so many bytes."""
    try:
        async with attempt.timeout() as limit:
            for wait_s, size_bytes in parts:
                await asyncio.sleep(wait_s)
                attempt.extend(size_bytes)
    except TimeoutError:
        assert limit.expired()
        return True
    assert not limit.expired()
    return False


@pytest.mark.parametrize(
    ("parts", "given_up_s"),
    [
        ([(9.9, 0)], None),
        ([(10.1, 0)], 10),
        ([(9, 100), (10.9, 0)], None),
        ([(9, 100), (11.1, 0)], 20),
        ([(1, 100)] * 100, None),
        ([(1, 100)] * 3 + [(50, 0)], 40),
        ([(9, 10)] * 3, 11),
        ([(0, 100_000), (10_009, 0)], None),
        ([(0, 100_000), (10_011, 0)], 10_010),
    ],
)
def test_bytes_put_off_the_end(
    clock: _Clock,
    run: Callable[[Awaitable[bool]], bool],
    parts: list[tuple[float, int]],
    given_up_s: float | None,
) -> None:
    """Ten bytes by one second: exactly then what waits longer is cancelled, and never sooner."""
    given_up = run(_is_given_up(_attempt(10, least_bytes_per_s=10), parts))

    passed_s = clock.now_s - 1000
    if given_up_s is None:
        assert not given_up
        assert passed_s == pytest.approx(sum(wait_s for wait_s, _ in parts))
    else:
        assert given_up
        assert passed_s == pytest.approx(given_up_s)


def test_timers_of_a_loop_may_be_coarse(
    clock: _Clock, run: Callable[[Awaitable[bool]], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As uvloop's, which fall on milliseconds, in the order in which they were set."""
    call_at = asyncio.SelectorEventLoop.call_at

    def rounded(
        loop: asyncio.SelectorEventLoop,
        when: float,
        *what: Any,  # noqa: ANN401 - as of `call_at`
        **context: Any,  # noqa: ANN401
    ) -> asyncio.TimerHandle:
        return call_at(loop, math.ceil(when * 1000) / 1000, *what, **context)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "call_at", rounded)

    assert not run(_is_given_up(_attempt(10.0004, least_bytes_per_s=10), [(9, 100), (10.9, 0)]))
    assert run(_is_given_up(_attempt(10.0004, least_bytes_per_s=10), [(9, 100), (11.1, 0)]))
    assert clock.now_s == pytest.approx(1000 + 19.9 + 20, abs=0.002)


def test_a_cancellation_of_somebody_else_stays_one(run: Callable[[Awaitable[bool]], bool]) -> None:
    """It is not taken for the end of the time."""

    async def cancelled() -> bool:
        task = asyncio.ensure_future(_is_given_up(_attempt(10, least_bytes_per_s=1), [(5, 0)]))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert run(cancelled())
