"""Checks and counts of the answers that botocore receives from S3 during one request.

Only botocore's events show the answers. The checks and counts are needed because:

- Botocore and s3fs repeat many requests themselves, and do not report how many.
- Botocore turns a listing whose XML is incomplete into a server error, which both then repeat, 25
  times in all.
- Botocore takes an empty answer, and any XML that is not a listing, for an empty page, so that keys
  would be missing silently.
- Botocore accepts any answer of status 200 as an object that was read, written or deleted: the page
  of a proxy would become the object's bytes.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final
from xml.parsers import expat

from arrow_io.core.wording import counted
from arrow_io.storage.failures import HTTP_TRY_LATER, BrokenAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from arrow_io.storage.attempts import Attempts

_ATTEMPTS: Final[ContextVar[Attempts | None]] = ContextVar("_ATTEMPTS", default=None)
"""The attempts of the current thread's or task's request; None for a request of others."""
_ROOTS: Final = {
    "ListObjectsV2": "ListBucketResult",
    "ListMultipartUploads": "ListMultipartUploadsResult",
    "CreateMultipartUpload": "InitiateMultipartUploadResult",
    "CompleteMultipartUpload": "CompleteMultipartUploadResult",
}
"""Root element of the answer to each operation with an XML answer."""
_OBJECT_OPERATIONS: Final = ("GetObject", "HeadObject", "PutObject", "UploadPart")
"""Operations whose answers name the ETag of the object or part."""
_DELETE_OPERATIONS: Final = ("AbortMultipartUpload", "DeleteObject")
"""Operations whose answers have no body."""
_ERROR_ROOT: Final = "Error"
_HTTP_REDIRECTION: Final = 300


@contextmanager
def note_answers(attempts: Attempts | None) -> Iterator[None]:
    """Record the number of requests and the last status in `attempts` until the context ends."""
    token = _ATTEMPTS.set(attempts)
    try:
        yield
    finally:
        _ATTEMPTS.reset(token)


def watch(client_events: Any) -> None:  # noqa: ANN401 - botocore carries no types
    """Watch the requests of this project; others of the same client are not affected.

    Args:
        client_events: The event emitter of a botocore client, or of the session that makes clients.
    """
    client_events.register("before-send.s3", _count_request, f"{__name__}.count")
    client_events.register_last("before-parse.s3", _note_status, f"{__name__}.status")
    client_events.register("before-parse.s3.GetObject", _leave_out_time, f"{__name__}.time")
    checks: dict[str, Callable[..., None]] = dict.fromkeys(_OBJECT_OPERATIONS, _check_object)
    checks |= dict.fromkeys(_DELETE_OPERATIONS, _check_deletion)
    checks |= dict.fromkeys(_ROOTS, _check_xml)
    for operation, check in checks.items():
        # Register for any service, so that it runs before botocore's own handler, which is
        # registered for S3 only and turns incomplete XML into a server error.
        client_events.register(f"before-parse.*.{operation}", check, f"{__name__}.{operation}")


def _count_request(**_event: object) -> None:
    attempts = _ATTEMPTS.get()
    if attempts is not None:
        attempts.sent_requests += 1


def _note_status(response_dict: Mapping[str, Any], **_event: object) -> None:
    attempts = _ATTEMPTS.get()
    if attempts is not None:
        attempts.last_status = response_dict["status_code"]
        if attempts.last_status in HTTP_TRY_LATER:
            # Prefetch must slow down at once, not only after botocore's own retries have failed.
            attempts.refusals.note()


def _leave_out_time(response_dict: Mapping[str, Any], **_event: object) -> None:
    # Botocore parses this date as slowly as all other headers together; a version needs no date.
    if _ATTEMPTS.get() is not None:
        response_dict["headers"].pop("last-modified", None)


def _check_object(response_dict: Mapping[str, Any], **_event: object) -> None:
    if _is_success(response_dict) and "etag" not in response_dict["headers"]:
        _note_status(response_dict)
        body = response_dict["body"]
        if hasattr(body, "close"):
            # Release the connection; nothing else would.
            body.close()
        message = "the answer names no ETag, so it is not S3's"
        raise BrokenAnswerError(message)


def _check_deletion(response_dict: Mapping[str, Any], **_event: object) -> None:
    if _is_success(response_dict) and response_dict["body"]:
        _note_status(response_dict)
        message = "the answer to a deletion has a body, so it is not S3's"
        raise BrokenAnswerError(message)


def _check_xml(
    operation_model: Any,  # noqa: ANN401 - botocore carries no types
    response_dict: Mapping[str, Any],
    **_event: object,
) -> None:
    if _is_success(response_dict):
        _note_status(response_dict)
        _check_root(response_dict["body"], _ROOTS[operation_model.name])


def _is_success(response_dict: Mapping[str, Any]) -> bool:
    """Return whether a request of this project was answered without an error."""
    return _ATTEMPTS.get() is not None and response_dict["status_code"] < _HTTP_REDIRECTION


def _check_root(body: bytes, root: str) -> None:
    """Raise `BrokenAnswerError` unless an answer is complete XML with this root, or an S3 error."""
    document = "XML listing" if root.startswith("List") else f"XML {root}"
    tags: list[str] = []
    parser = expat.ParserCreate(namespace_separator=" ")

    def begin(tag: str, _attributes: object) -> None:
        tags.append(tag.rpartition(" ")[2])
        parser.StartElementHandler = None

    parser.StartElementHandler = begin
    reason = None
    try:
        parser.Parse(body, False)  # noqa: FBT003 - takes no name
    except expat.ExpatError as error:
        reason = str(error)
    if tags and tags[0] not in {root, _ERROR_ROOT}:
        reason = f"it begins with the tag {tags[0][:100]!r}"
    if reason is not None:
        message = f"the answer of {counted(len(body), 'byte')} is not an {document}: {reason}"
        raise BrokenAnswerError(message)
    try:
        parser.Parse(b"", True)  # noqa: FBT003 - takes no name
    except expat.ExpatError as error:
        message = f"the {document} is cut after {counted(len(body), 'byte')}: {error}"
        raise BrokenAnswerError(message) from None
