"""Errors of file-system libraries: which ones are storage failures, and which are transient.

Measured with s3fs 2026.9 (aiobotocore 3.10) against a misbehaving server. The table shows what
remains after the retries of s3fs and botocore (`s3_answers` handles incomplete listings):

=========================================== ===================================================
Behaviour of the server                     What the caller of s3fs gets
=========================================== ===================================================
500 InternalError, 503 SlowDown             `OSError` EREMOTEIO, EBUSY (cause: `ClientError`)
502, 504, 429, any code s3fs does not know  `OSError` EIO (cause: `ClientError`)
400 RequestTimeout, silence in the body     `FSTimeoutError`, which is `TimeoutError`
silence before the body, reset              botocore `ReadTimeoutError` (`HTTPClientError`)
connection closed before the answer         botocore `ConnectionClosedError` (`HTTPClientError`)
body ends before its Content-Length         aiohttp `ClientPayloadError`; **not** an `OSError`
fewer bytes than asked, correct length      no error: short data
answer is the whole object, no range        no error: too much data
closed port, unknown host                   botocore `EndpointConnectionError`; **not** an `OSError`
403; 404 NoSuchKey, NoSuchBucket            `PermissionError`; `FileNotFoundError`
416 InvalidRange                            `OSError` EINVAL (cause: `ClientError`)
no credentials, unusable bucket name        botocore `BotoCoreError`; **not** an `OSError`
=========================================== ===================================================
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Mapping
from typing import Final

from arrow_io.errors import PulsarOffloadError

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

# EndpointConnectionError is not here: botocore has tried five times by then, and a mistyped
# endpoint should be reported soon.
_TRANSIENT_LIBRARY_ERRORS = {
    "aiohttp": ("ClientPayloadError", "ServerDisconnectedError"),
    "azure.core.exceptions": ("ServiceRequestError", "ServiceResponseError"),
    "botocore.exceptions": ("HTTPClientError", "ConnectTimeoutError", "IncompleteReadError"),
    "botocore.parsers": ("ResponseParserError",),
    "gcsfs.retry": ("ChecksumError",),
    "http.client": ("IncompleteRead",),
    "requests.exceptions": ("ChunkedEncodingError", "ConnectionError", "Timeout"),
}
"""Errors that a repeated request may not meet again, by module."""

# By name, because not every platform defines all of them.
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
"""HTTP status if an object ends before the requested range."""
PRECONDITION_FAILED: Final = 412
"""HTTP status if an object does not have the version that a request demands."""
_HTTP_SERVER_ERRORS = 500
_HTTP_REQUEST_TIMEOUT = 408
HTTP_TRY_LATER: Final = frozenset({429, 503})
"""HTTP statuses of a store that receives too many requests."""
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
"""S3 error codes with the same meaning, some of them with another status."""


def storage_errors() -> tuple[type[Exception], ...]:
    """Return the error classes that a file-system library may raise, for an `except` clause.

    A library that is not imported cannot have raised anything, so this imports none.
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
    """Return whether the same request may succeed when it is repeated."""
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
    """Return whether the store answered only that it receives too many requests."""
    return http_status(error) in HTTP_TRY_LATER or s3_error_code(error) in _TRY_LATER_CODES


def http_status(error: BaseException) -> int | None:
    """Return the HTTP status of the store's answer, or None if the error does not have it."""
    candidates = [_s3_response(error).get("ResponseMetadata", {}).get("HTTPStatusCode")]
    # The attribute's name in aiohttp, in azure, and in gcsfs.
    candidates += [getattr(error, name, None) for name in ("status", "status_code", "code")]
    return next((number for number in candidates if isinstance(number, int)), None)


def s3_error_code(error: BaseException) -> str | None:
    """Return the S3 error code, such as `NoSuchBucket`, or None if there is none."""
    code = _s3_response(error).get("Error", {}).get("Code")
    return code if isinstance(code, str) else None


def _s3_response(error: BaseException) -> Mapping[str, Mapping[str, object]]:
    """Return the parsed S3 answer of a `ClientError`, which is the cause of s3fs's errors."""
    for candidate in (error, error.__cause__):
        response = getattr(candidate, "response", None)
        if isinstance(response, Mapping):
            return response
    return {}


class RequestGivenUpError(ConnectionAbortedError):
    """A request that was cancelled because its time was over."""


class BrokenAnswerError(ConnectionError):
    """An answer that is incomplete or not the store's, such as the page of a proxy."""


class OtherBytesError(OSError):
    """An answer that is not the requested range."""
