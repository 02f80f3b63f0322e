"""What a request that failed becomes: a typed error that names the object and shows no secret."""

from __future__ import annotations

import re
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
from arrow_io.storage.request import CONDITIONAL_PUTS, Operation, Request
from arrow_io.storage.store_kinds import StoreKind, store_kind
from arrow_io.storage.store_uploads import NO_SUCH_UPLOAD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arrow_io.storage.attempts import Attempts
    from arrow_io.storage.object_store import ObjectHead
    from arrow_io.storage.object_version import ObjectVersion

_UNEXPECTED: Final = re.compile(r"unexpected keyword argument '(?P<name>\w+)'")
_GETS: Final = frozenset({Operation.GET_OBJECT, Operation.GET_RANGE})
_PACKAGES: Final[Mapping[StoreKind | None, tuple[str, str]]] = {
    StoreKind.S3: ("s3fs", "s3"),
    StoreKind.GCS: ("gcsfs", "gcs"),
    StoreKind.AZURE: ("adlfs", "azure"),
}
"""Package of a store's file system, and our extra that brings it."""


class UploadGoneError(StorageError):
    """A multipart upload that cannot be completed, because it or its bucket is gone.

    Attributes:
        code: S3's code.
    """

    code: str | None = None


class OtherObjectError(StorageError):
    """An object that was not written, because its name has another one."""


class RequestErrors:
    """Makes the errors of one location, of a request and what a library raised.

    Args:
        url: The location, as the user gave it.
        shown_url: As it may be shown.
        storage_options: What must not be shown.
    """

    def __init__(self, url: str, shown_url: str, storage_options: Mapping[str, object]) -> None:
        self._url = url
        self._shown_url = shown_url
        self._options = storage_options

    def typed(self, error: Exception, request: Request, attempts: Attempts) -> PulsarOffloadError:
        """The error for what a library raised.

        Args:
            error: What it raised, at last.
            request: What was requested.
            attempts: The attempts at the request.
        """
        if isinstance(error, PulsarOffloadError):
            return error
        name, status = request.object_key, http_status(error)
        if status == PRECONDITION_FAILED and request.operation in _GETS:
            return changed_error(request.name)
        if isinstance(error, OtherBytesError):
            return ignored_range_error(request)
        if isinstance(error, FileNotFoundError) and not _is_container(error, request):
            kind = "object" if name else "folder or prefix"
            message = f"no such {kind} at {self._shown_url}"
            return MissingObjectError(message, object_key=name)
        return self._failed(error, request, attempts)

    def _failed(self, error: Exception, request: Request, attempts: Attempts) -> StorageError:
        again = advice = ""
        if is_transient(error):
            again, advice = f", after {attempts.description()}", attempts.advice()
        message = f"request to {self._shown_url} failed{again}: {self.shown(error)}{advice}"
        offset = request.start if request.operation is Operation.GET_RANGE else None
        typed = _error_class(error, request)(message, object_key=request.object_key, offset=offset)
        if isinstance(typed, UploadGoneError):
            typed.code = s3_error_code(error)
        for note in getattr(error, "__notes__", ()):
            typed.add_note(redacted(note, self._options))
        return typed

    def read_only_error(self) -> OptionError:
        """The error for a file system that is only read."""
        return OptionError(f"{self._shown_url}: its file system is only read, not written to")

    def unusable(self, error: Exception) -> OptionError:
        """The error for options or a URL that a library refuses."""
        unknown = _UNEXPECTED.search(str(error)) if isinstance(error, TypeError) else None
        if unknown is not None and unknown["name"] in self._options:
            name = unknown["name"]
            similar = similar_name(self._url, name)
            hint = f"; is it {similar}?" if similar else ""
            message = f"{self._shown_url}: its file system has no storage option {name}{hint}"
        elif not isinstance(error, ImportError):
            message = (
                f"storage options or URL not usable for {self._shown_url}: {self.shown(error)}"
            )
        elif uses_obstore(self._options):
            message = f"{self._shown_url} needs obstore: {install_command('obstore')}"
        elif (kind := store_kind(self._url)) in _PACKAGES:
            package, extra = _PACKAGES[kind]
            message = f"{self._shown_url} needs {package}: {install_command(extra)}"
        else:
            message = (
                f"{self._shown_url} needs a package that is not installed: {self.shown(error)}"
            )
        return OptionError(message)

    def shown(self, error: BaseException) -> str:
        """Class and text of an error, without secrets."""
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return redacted(text, self._options)


def _is_container(error: FileNotFoundError, request: Request) -> bool:
    """Return whether the bucket or the upload is missing, and not the object."""
    code = s3_error_code(error)
    is_complete = request.operation is Operation.COMPLETE_UPLOAD
    return code == "NoSuchBucket" or (is_complete and code == NO_SUCH_UPLOAD)


def _error_class(error: Exception, request: Request) -> type[StorageError]:
    if request.operation is Operation.COMPLETE_UPLOAD and isinstance(error, FileNotFoundError):
        return UploadGoneError
    is_other = isinstance(error, FileExistsError) or http_status(error) == PRECONDITION_FAILED
    return OtherObjectError if is_other and request.operation in CONDITIONAL_PUTS else StorageError


def check_version(name: str, expected: ObjectVersion | None, actual: ObjectVersion | None) -> None:
    """Compare two versions of an object; of one that is not known, nothing can be said.

    Raises:
        ObjectChangedError: They differ.
    """
    if not agree(expected, actual):
        raise changed_error(name)


def changed_error(name: str) -> ObjectChangedError:
    """The error for an object that is of another version."""
    message = "the object was replaced since it was listed or first read: open the topic anew"
    return ObjectChangedError(message, object_key=name)


def ignored_range_error(request: Request) -> StorageError:
    """The error for a server that sends something else than the range asked for.

    The bytes are dropped even if the right ones could be cut out of them: such a server would
    send the whole object for each range of it.
    """
    start, stop = request.start, request.stop
    message = f"the server does not answer with the bytes [{start}, {stop}) that it was asked for"
    return StorageError(message, object_key=request.name, offset=start)


def no_bytes_error(request: Request, head: ObjectHead) -> Exception:
    """The error for an empty answer: the object's end, or a failure that may pass."""
    size_bytes = head.size_bytes
    if size_bytes <= request.start:
        message = (
            f"the object ends after {counted(size_bytes, 'byte')}, before byte {request.start}"
        )
        return TruncatedObjectError(message, object_key=request.name, offset=size_bytes)
    return ConnectionError(f"no bytes were sent of an object of {counted(size_bytes, 'byte')}")
