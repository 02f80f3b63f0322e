"""Errors of file-system libraries: which are failures of the storage, and which may pass.

Found by sending s3fs 2026.9 (aiobotocore 3.10) to a server that misbehaves. The table shows what is
left after s3fs and botocore have made their own attempts (`s3_answers` sees to cut listings):

=========================================== ===================================================
The server                                  What reaches the caller of s3fs
=========================================== ===================================================
500 InternalError, 503 SlowDown             `OSError` EREMOTEIO, EBUSY (cause: `ClientError`)
502, 504, 429, any code s3fs does not know  `OSError` EIO (cause: `ClientError`)
400 RequestTimeout, silence in the body     `FSTimeoutError`, which is `TimeoutError`
silence before the body, reset              botocore `ReadTimeoutError` (`HTTPClientError`)
connection closed before the answer         botocore `ConnectionClosedError` (`HTTPClientError`)
body ends before its Content-Length         aiohttp `ClientPayloadError`; **not** an `OSError`
fewer bytes than asked, honestly announced  no error: short data
answer is the whole object, no range        no error: too much data
nobody listens, unknown host                botocore `EndpointConnectionError`; **not** an `OSError`
403; 404 NoSuchKey, NoSuchBucket            `PermissionError`; `FileNotFoundError`
416 InvalidRange                            `OSError` EINVAL (cause: `ClientError`)
no credentials, unusable bucket name        botocore `BotoCoreError`; **not** an `OSError`
=========================================== ===================================================
"""

from __future__ import annotations

import errno
import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from arrow_io.errors import PulsarOffloadError

_Result = TypeVar("_Result")

_LIBRARY_ERRORS = {
    "aiohttp": ("ClientError",),
    "azure.core.exceptions": ("AzureError",),
    "botocore.exceptions": ("BotoCoreError", "ClientError"),
    "botocore.parsers": ("ResponseParserError",),
    "builtins": ("EOFError",),
    "ftplib": ("Error",),
    "gcsfs.retry": ("HttpError", "ChecksumError"),
    "google.auth.exceptions": ("GoogleAuthError",),
    "http.client": ("HTTPException",),
    "lzma": ("LZMAError",),
    "obstore.exceptions": ("BaseError",),
    "paramiko.ssh_exception": ("SSHException",),
    "tarfile": ("TarError",),
    "zipfile": ("BadZipFile",),
    "zlib": ("error",),
}
"""Base classes of the errors of each storage library that are not an `OSError`, by module."""

# EndpointConnectionError is not here: botocore has asked five times by then, and if the endpoint is
# mistyped, the user should hear it soon.
_TRANSIENT_LIBRARY_ERRORS = {
    "aiohttp": ("ClientPayloadError", "ServerDisconnectedError"),
    "azure.core.exceptions": ("ServiceRequestError", "ServiceResponseError"),
    "botocore.exceptions": ("HTTPClientError", "ConnectTimeoutError", "IncompleteReadError"),
    "botocore.parsers": ("ResponseParserError",),
    "gcsfs.retry": ("ChecksumError",),
    "http.client": ("IncompleteRead",),
    "requests.exceptions": ("ChunkedEncodingError", "ConnectionError", "Timeout"),
}
"""Errors that may not come back when the request is sent once more, by module."""

# By name, because not every platform has every one.
_TRANSIENT_ERRNOS = frozenset(
    getattr(errno, name)
    for name in (
        "EAGAIN",
        "EBUSY",
        "ECONNABORTED",
        "ECONNRESET",
        "EHOSTUNREACH",
        "EIO",
        "ENETDOWN",
        "ENETUNREACH",
        "EPIPE",
        "EREMOTEIO",
        "ETIMEDOUT",
    )
    if hasattr(errno, name)
)

RANGE_NOT_SATISFIABLE: Final = 416
"""HTTP status of an object that ends before the range that was asked for."""
PRECONDITION_FAILED: Final = 412
"""HTTP status of an object that is not of the version that a request is for."""
DEFAULT_ATTEMPTS: Final = 5
_HTTP_SERVER_ERRORS = 500
_HTTP_REQUEST_TIMEOUT = 408
HTTP_TRY_LATER: Final = frozenset({429, 503})
"""HTTP statuses of a store that is asked for too much now."""
_TRY_LATER_CODES = frozenset(
    {
        "BandwidthLimitExceeded",
        "RequestLimitExceeded",
        "RequestThrottled",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
        "TooManyRequestsException",
    }
)
"""Codes with which stores that speak S3 say it, some of them with another status."""


def storage_errors() -> tuple[type[Exception], ...]:
    """Classes of the errors that a file-system library may raise, for an `except` clause.

    A library that is not imported cannot have raised anything, so none is imported here.
    """
    return (OSError, *_loaded_classes(_LIBRARY_ERRORS))


def _loaded_classes(names: Mapping[str, tuple[str, ...]]) -> list[type[Exception]]:
    return [
        getattr(sys.modules[module], name)
        for module, classes in names.items()
        if module in sys.modules
        for name in classes
        if hasattr(sys.modules[module], name)
    ]


def is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed when it is sent once more."""
    if isinstance(error, PulsarOffloadError):
        return False
    if isinstance(error, TimeoutError | ConnectionError):
        return True
    if isinstance(error, tuple(_loaded_classes(_TRANSIENT_LIBRARY_ERRORS))):
        return True
    if says_try_later(error):
        return True
    status = http_status(error)
    if status is not None:
        return status >= _HTTP_SERVER_ERRORS or status == _HTTP_REQUEST_TIMEOUT
    return isinstance(error, OSError) and error.errno in _TRANSIENT_ERRNOS


def says_try_later(error: BaseException) -> bool:
    """Whether the store answered that it is asked for too much now, and nothing is wrong."""
    return http_status(error) in HTTP_TRY_LATER or s3_error_code(error) in _TRY_LATER_CODES


def http_status(error: BaseException) -> int | None:
    """HTTP status that the store answered with, or None if the error does not say."""
    candidates = [_s3_response(error).get("ResponseMetadata", {}).get("HTTPStatusCode")]
    # The attribute's name in aiohttp, in azure, and in gcsfs.
    candidates += [getattr(error, name, None) for name in ("status", "status_code", "code")]
    return next((number for number in candidates if isinstance(number, int)), None)


def s3_error_code(error: BaseException) -> str | None:
    """S3's code of an error, such as `NoSuchBucket`, or None if it is not S3's."""
    code = _s3_response(error).get("Error", {}).get("Code")
    return code if isinstance(code, str) else None


def _s3_response(error: BaseException) -> Mapping[str, Mapping[str, object]]:
    """The parsed answer of S3 that a `ClientError` holds; s3fs makes that the cause of its own."""
    for candidate in (error, error.__cause__):
        response = getattr(candidate, "response", None)
        if isinstance(response, Mapping):
            return response
    return {}


def _any_share(longest_s: float) -> float:
    """A time between nothing and so many seconds."""
    return random.uniform(0, longest_s)  # noqa: S311 - it is no secret


class RequestGivenUpError(ConnectionAbortedError):
    """A request whose time was over before it was answered."""


class BrokenAnswerError(ConnectionError):
    """An answer that is cut, or is not the store's: the page of a proxy, for instance."""


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
        return self.call_within(lambda _seconds: request())

    def call_within(self, request: Callable[[float], _Result], sent_bytes: int = 0) -> _Result:
        """Send a request as `call` does, and give it up when its time is over.

        Args:
            request: Sends the request once, and gives it up after so many seconds and the time for
                its body.
            sent_bytes: Length of the body that each attempt sends, in bytes.

        Returns:
            What `request` returned.

        Raises:
            Exception: What the last attempt raised, as the library raised it; or what the one
                before it did, if the last was given up.
        """
        body_s = sent_bytes / self.least_bytes_per_s
        stop = self.clock() + self.deadline_s + body_s
        delay_s = self.first_delay_s
        failure: Exception | None = None
        failure_count = 0
        while True:
            try:
                return request(stop - self.clock() - body_s)
            except storage_errors() as error:
                if not is_transient(error):
                    raise
                if failure is None or not isinstance(error, RequestGivenUpError):
                    failure = error
                failure_count += self.counts(error)
                pause_s = min(delay_s, self.max_delay_s)
                if says_try_later(error):
                    pause_s = self.jitter(pause_s)
            if failure_count >= self.most_failures or self.clock() + pause_s >= stop:
                raise failure
            self.sleep(pause_s)
            delay_s *= 2

    def is_too_late(self, begun: float, received_bytes: int) -> bool:
        """Whether what began at a time of `clock` has brought too few bytes until now."""
        allowed_s = self.deadline_s + received_bytes / self.least_bytes_per_s
        return self.clock() - begun > allowed_s
