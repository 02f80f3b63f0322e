"""What a request that failed becomes: a typed error that names the object and shows no secret."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeVar

from arrow_io.errors import (
    MissingObjectError,
    ObjectChangedError,
    OptionError,
    PulsarOffloadError,
    StorageError,
    TruncatedObjectError,
)
from arrow_io.extras import install_command
from arrow_io.storage.failures import (
    PRECONDITION_FAILED,
    http_status,
    is_transient,
    s3_error_code,
    storage_errors,
)
from arrow_io.storage.object_version import agree
from arrow_io.storage.option_aliases import similar_name
from arrow_io.storage.own_options import uses_obstore
from arrow_io.storage.redaction import redacted
from arrow_io.storage.store_kinds import StoreKind, store_kind
from arrow_io.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from arrow_io.storage.attempts import Attempts
    from arrow_io.storage.object_store import ObjectHead, RangeContent
    from arrow_io.storage.object_version import ObjectVersion

_UNEXPECTED: Final = re.compile(r"unexpected keyword argument '(?P<name>\w+)'")
_Content = TypeVar("_Content", bound="RangeContent")
_PACKAGES: Final[Mapping[StoreKind | None, tuple[str, str]]] = {
    StoreKind.S3: ("s3fs", "s3"),
    StoreKind.GCS: ("gcsfs", "gcs"),
    StoreKind.AZURE: ("adlfs", "azure"),
}
"""Package of a store's file system, and our extra that brings it."""


class RequestErrors:
    """Makes the errors of one location.

    Args:
        url: The location, as the user gave it.
        shown_url: As it may be shown.
        storage_options: What must not be shown.
    """

    def __init__(self, url: str, shown_url: str, storage_options: Mapping[str, object]) -> None:
        self._url = url
        self._shown_url = shown_url
        self._options = storage_options

    def typed(
        self, error: Exception, name: str | None, offset: int | None, attempts: Attempts
    ) -> PulsarOffloadError:
        """The error for what a library raised.

        Args:
            error: What it raised, at last.
            name: Name of the object; None for a listing.
            offset: First byte that is missing, in bytes, if the request was for a range.
            attempts: The attempts at the request.
        """
        if isinstance(error, PulsarOffloadError):
            return error
        if isinstance(error, FileNotFoundError) and s3_error_code(error) != "NoSuchBucket":
            what = "object" if name else "folder or prefix"
            message = f"no such {what} at {self._shown_url}"
            return MissingObjectError(message, object_key=name)
        again = advice = ""
        if is_transient(error):
            again, advice = f", after {attempts.described()}", attempts.advice()
        message = f"request to {self._shown_url} failed{again}: {self.shown(error)}{advice}"
        typed = StorageError(message, object_key=name, offset=offset)
        for note in getattr(error, "__notes__", ()):
            typed.add_note(redacted(note, self._options))
        return typed

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


def check_version(name: str, wanted: ObjectVersion | None, found: ObjectVersion | None) -> None:
    """Compare two versions of an object; of one that is not known, nothing can be said.

    Raises:
        ObjectChangedError: They differ.
    """
    if not agree(wanted, found):
        raise _changed(name)


def of_version(name: str, wanted: ObjectVersion | None, get: Callable[[], _Content]) -> _Content:
    """What a request gives, if its version is the one wanted, or one of the two is not known.

    Raises:
        ObjectChangedError: Its version is another, or the store says that the one wanted is gone.
    """
    try:
        content = get()
    except storage_errors() as error:
        if http_status(error) == PRECONDITION_FAILED:
            raise _changed(name) from None
        raise
    check_version(name, wanted, content.version)
    return content


def _changed(name: str) -> ObjectChangedError:
    message = "the object was replaced since it was listed or first read: open the topic anew"
    return ObjectChangedError(message, object_key=name)


def no_bytes(name: str, start: int, head: ObjectHead) -> Exception:
    """The error for an empty answer: the object's end, or a failure that may pass."""
    if head.size_bytes <= start:
        message = f"the object ends after {counted(head.size_bytes, 'byte')}, before byte {start}"
        return TruncatedObjectError(message, object_key=name, offset=head.size_bytes)
    return ConnectionError(f"no bytes were sent of an object of {counted(head.size_bytes, 'byte')}")
