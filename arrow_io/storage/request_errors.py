"""Typed errors for failed requests; they name the object and show no secret."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from arrow_io.core.extras import install_command
from arrow_io.core.wording import counted
from arrow_io.errors import (
    MissingObjectError,
    ObjectChangedError,
    OptionError,
    PulsarOffloadError,
    StorageError,
    TruncatedObjectError,
)
from arrow_io.storage.failures import (
    PRECONDITION_FAILED,
    OtherBytesError,
    http_status,
    is_transient,
    s3_error_code,
)
from arrow_io.storage.object_version import agree
from arrow_io.storage.option_aliases import similar_name
from arrow_io.storage.own_options import uses_obstore
from arrow_io.storage.redaction import redacted
from arrow_io.storage.request import CONDITIONAL_PUTS, READER_OPERATIONS, Operation, Request
from arrow_io.storage.store_kinds import StoreKind, store_kind
from arrow_io.storage.store_uploads import NO_SUCH_UPLOAD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arrow_io.storage.attempts import Attempts
    from arrow_io.storage.object_store import ObjectHead
    from arrow_io.storage.object_version import ObjectVersion

_UNEXPECTED: Final = re.compile(r"unexpected keyword argument '(?P<name>\w+)'")
_PACKAGES: Final[Mapping[StoreKind | str, tuple[str, str]]] = {
    StoreKind.S3: ("s3fs", "s3"),
    StoreKind.GCS: ("gcsfs", "gcs"),
    StoreKind.AZURE: ("adlfs", "azure"),
    "hdfs": ("hdfs-native", "hdfs"),
    "viewfs": ("hdfs-native", "hdfs"),
    "webhdfs": ("requests", "hdfs"),
}
"""Package of each store's or scheme's file system, and the extra that installs it."""


class UploadGoneError(StorageError):
    """A multipart upload that cannot be completed, because it or its bucket does not exist.

    Attributes:
        code: The S3 error code.
    """

    code: str | None = None


class AccessDeniedError(StorageError):
    """A listing that the store refuses for lack of a permission."""


class OtherObjectError(StorageError):
    """An object that was not written, because another one has its name."""


class RequestErrors:
    """The errors of one location's requests, made from the errors of a library.

    Args:
        url: The location, as the user passed it.
        shown_url: The URL without secrets.
        storage_options: The options, whose values must not be shown.
    """

    def __init__(self, url: str, shown_url: str, storage_options: Mapping[str, object]) -> None:
        self._url = url
        self._shown_url = shown_url
        self._options = storage_options

    @property
    def _scheme(self) -> StoreKind | str:
        """The store, or the scheme of the URL if it is a file system's."""
        return store_kind(self._url) or self._url.partition("://")[0].lower()

    def typed_error(
        self, error: Exception, request: Request, attempts: Attempts
    ) -> PulsarOffloadError:
        """Return the typed error for the library's error of the last attempt."""
        if isinstance(error, PulsarOffloadError):
            return error
        name, status = request.object_key, http_status(error)
        if status == PRECONDITION_FAILED and request.operation in READER_OPERATIONS:
            return changed_error(request.name)
        if isinstance(error, OtherBytesError):
            return ignored_range_error(request)
        if isinstance(error, FileNotFoundError) and not _is_container_missing(error, request):
            kind = "object" if name else "folder or prefix"
            message = f"no such {kind} at {self._shown_url}"
            return MissingObjectError(message, object_key=name)
        return self._failure(error, request, attempts)

    def _failure(self, error: Exception, request: Request, attempts: Attempts) -> StorageError:
        again = advice = ""
        if is_transient(error):
            again, advice = f", after {attempts.description()}", attempts.advice()
        message = f"request to {self._shown_url} failed{again}: {self.error_text(error)}{advice}"
        offset = request.start if request.operation is Operation.GET_RANGE else None
        failure = _error_class(error, request)(
            message, object_key=request.object_key, offset=offset
        )
        if isinstance(failure, UploadGoneError):
            failure.code = s3_error_code(error)
        for note in getattr(error, "__notes__", ()):
            failure.add_note(redacted(note, self._options))
        return failure

    def read_only_error(self) -> OptionError:
        """Return the error for a write to a read-only file system."""
        return OptionError(f"{self._shown_url}: its file system is read-only")

    def unusable_error(self, error: Exception) -> OptionError:
        """Return the error for options or a URL that a library rejects."""
        unknown = _UNEXPECTED.search(str(error)) if isinstance(error, TypeError) else None
        if unknown is not None and unknown["name"] in self._options:
            name = unknown["name"]
            similar = similar_name(self._url, name)
            hint = f"; is it {similar}?" if similar else ""
            message = f"{self._shown_url}: its file system has no storage option {name}{hint}"
        elif not isinstance(error, ImportError):
            message = (
                f"storage options or URL not usable for {self._shown_url}: {self.error_text(error)}"
            )
        elif uses_obstore(self._options):
            message = f"{self._shown_url} needs obstore: {install_command('obstore')}"
        elif self._scheme in _PACKAGES:
            package, extra = _PACKAGES[self._scheme]
            message = f"{self._shown_url} needs {package}: {install_command(extra)}"
        else:
            message = (
                f"{self._shown_url} needs a package that is not installed: {self.error_text(error)}"
            )
        return OptionError(message)

    def error_text(self, error: BaseException) -> str:
        """Return class and text of an error, without secrets."""
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return redacted(text, self._options)


def _is_container_missing(error: FileNotFoundError, request: Request) -> bool:
    """Return whether the bucket or the upload is missing, not the object."""
    code = s3_error_code(error)
    is_complete = request.operation is Operation.COMPLETE_UPLOAD
    return code == "NoSuchBucket" or (is_complete and code == NO_SUCH_UPLOAD)


def _error_class(error: Exception, request: Request) -> type[StorageError]:
    if request.operation is Operation.COMPLETE_UPLOAD and isinstance(error, FileNotFoundError):
        return UploadGoneError
    is_denied = isinstance(error, PermissionError) or http_status(error) == HTTPStatus.FORBIDDEN
    if request.is_listing and is_denied:
        return AccessDeniedError
    is_other = isinstance(error, FileExistsError) or http_status(error) == PRECONDITION_FAILED
    return OtherObjectError if is_other and request.operation in CONDITIONAL_PUTS else StorageError


def check_version(name: str, expected: ObjectVersion | None, actual: ObjectVersion | None) -> None:
    """Raise `ObjectChangedError` if two versions of an object differ; None matches any."""
    if not agree(expected, actual):
        raise changed_error(name)


def changed_error(name: str) -> ObjectChangedError:
    """Return the error for an object that has another version."""
    message = "the object was replaced since it was listed or first read: open the topic again"
    return ObjectChangedError(message, object_key=name)


def ignored_range_error(request: Request) -> StorageError:
    """Return the error for a server that does not send the requested range.

    The bytes are dropped even if they contain the range: such a server would send the whole object
    for each of its ranges.
    """
    start, stop = request.start, request.stop
    message = f"the server did not answer with the requested bytes [{start}, {stop})"
    return StorageError(message, object_key=request.name, offset=start)


def no_bytes_error(request: Request, head: ObjectHead) -> Exception:
    """Return the error for an empty answer: the end of the object, or a transient failure."""
    size_bytes = head.size_bytes
    if size_bytes <= request.start:
        message = (
            f"the object ends after {counted(size_bytes, 'byte')}, before byte {request.start}"
        )
        return TruncatedObjectError(message, object_key=request.name, offset=size_bytes)
    return ConnectionError(f"no bytes were sent of an object of {counted(size_bytes, 'byte')}")
