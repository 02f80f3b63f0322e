"""Which errors of storage libraries are caught, which are retried, and how."""

from __future__ import annotations

import errno
import ssl
import sys
from http.client import IncompleteRead

import aiohttp
import botocore.exceptions
import pytest
from botocore.parsers import ResponseParserError
from fsspec.exceptions import FSTimeoutError

from arrow_io.errors import MissingObjectError, StorageError
from arrow_io.storage.attempts import RetryPolicy
from arrow_io.storage.failures import http_status, is_transient, s3_error_code, storage_errors
from tests.support.faulty_storage import s3_error


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


def test_attempts_are_bounded() -> None:
    """The last error is raised as it is, after exactly as many attempts as allowed."""
    pauses_s: list[float] = []
    policy = RetryPolicy(attempts=3, sleep=pauses_s.append)
    request = _Flaky(TimeoutError("1"), TimeoutError("2"), TimeoutError("3"))

    with pytest.raises(TimeoutError, match="3"):
        policy.call(request)
    assert request.calls == 3
    assert len(pauses_s) == 2


def test_what_lasts_is_raised_at_once() -> None:
    """There is no pause before an error that would only come again."""
    pauses_s: list[float] = []
    request = _Flaky(PermissionError("no"))

    with pytest.raises(PermissionError):
        RetryPolicy(sleep=pauses_s.append).call(request)
    assert request.calls == 1
    assert pauses_s == []
