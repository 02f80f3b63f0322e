"""Translation of obstore's errors to errors that `failures` can classify.

obstore reports most failures only in the text of a `GenericError`. Measured with obstore 0.12
against a misbehaving server:

======================================= =======================================================
Behaviour of the server                 What obstore raises
======================================= =======================================================
any other status than 2xx               `GenericError`, with the status and the answer in its text
404; 401; 403, for one object           `FileNotFoundError`; `UnauthenticatedError`;
                                        `PermissionDeniedError`, with the same text
412                                     `PreconditionError`; `AlreadyExistsError` in a `create`
no answer, incomplete answer or listing `GenericError`
the whole object instead of a range     `GenericError`
======================================= =======================================================
"""

from __future__ import annotations

import errno
import re
from typing import Final

from obstore.exceptions import AlreadyExistsError, BaseError, GenericError

from arrow_io.storage.failures import BrokenAnswerError, OtherBytesError

OBSTORE_ERRORS: Final = (BaseError, FileNotFoundError, ValueError, RuntimeError)
"""What its functions raise; a `ValueError` for a name that it does not accept as a path."""

_HTTP_NOT_FOUND: Final = 404
_MAX_SHOWN: Final = 600
"""Maximum length of an error's text: the server's answer in it may be long."""
_STATUS: Final = re.compile(r"non-2xx status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>(\w{1,100})</Code>")
_NO_LISTING: Final = "Got invalid list response"
_OTHER_BYTES: Final = re.compile(r"non-partial response when range|Requested \d+\.\.\d+, got ")
_UNDER_WAY: Final = frozenset({"ConditionalRequestConflict", "OperationAborted"})
"""S3 error codes for a name that another request is writing."""
# Errors about options, credentials and regions: another attempt does not help.
_PERMANENT: Final = re.compile(
    r"redirect without LOCATION|Header missing|token request|credential|missing field"
)


class AnsweredError(OSError):
    """A request that was answered with an error.

    Attributes:
        response: The form of botocore's `ClientError.response`, which `failures` reads.
    """

    def __init__(self, text: str, status: int, code: str | None) -> None:
        super().__init__(text)
        self.response = {
            "ResponseMetadata": {"HTTPStatusCode": status},
            "Error": {"Code": code},
        }


class ObjectNotFoundError(AnsweredError, FileNotFoundError):
    """There is no such object, or no such bucket."""


def translate_error(error: Exception) -> OSError:
    """Return the error for what obstore raised: a `ConnectionError` if it is transient."""
    text = str(error).partition("\n\nDebug source:")[0]
    status, code = _STATUS.search(text), _CODE.search(text)
    text = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]} …"
    if isinstance(error, AlreadyExistsError):
        # Another request is writing the name; only a repeated request shows how that one ended.
        is_under_way = code is not None and code[1] in _UNDER_WAY
        return ConnectionAbortedError(text) if is_under_way else FileExistsError(text)
    if status is not None:
        kind = ObjectNotFoundError if int(status[1]) == _HTTP_NOT_FOUND else AnsweredError
        return kind(text, int(status[1]), None if code is None else code[1])
    return _error_without_answer(error, text)


def _error_without_answer(error: Exception, text: str) -> OSError:
    """Return the error for a request without an answer from a store."""
    if _OTHER_BYTES.search(text):
        return OtherBytesError(text)
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, text)
    if _NO_LISTING in text:
        return BrokenAnswerError(text)
    if isinstance(error, GenericError) and not _PERMANENT.search(text):
        return ConnectionError(text)
    return OSError(errno.EINVAL, text)
