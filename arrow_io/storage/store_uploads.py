"""An object on its way to a store, part by part: one request at a time, the library's errors.

Whatever the store, the object is there whole or not at all:

============== =========================================================================
Store          How the object comes to be there
============== =========================================================================
S3             a multipart upload, completed
a local folder a file of another name in the same folder, flushed to the disk and renamed
memory         a buffer, put in its place
GCS, Azure     a file of fsspec, which the library publishes when it is closed; blocks of obstore
any other      a file of another name in the same folder, moved
============== =========================================================================
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from arrow_io.storage.failures import s3_error_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from fsspec.implementations.memory import MemoryFile
    from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

    from arrow_io.storage.attempts import Attempt
    from arrow_io.storage.request import Request

    CallS3 = Callable[..., Mapping[str, Any]]

NO_SUCH_UPLOAD = "NoSuchUpload"
"""S3's code for a multipart upload that was completed, aborted, or never begun."""

# Not a name that `format.object_names` takes for an object of a ledger.
_ASIDE = re.compile(r"(?P<name>.+)\.(?P<upload_id>[0-9a-f]{16})\.unfinished", re.DOTALL)


class StoreUpload(Protocol):
    """An object that a store is being given. Nothing is seen of it before `complete`."""

    is_repeatable: ClassVar[bool]
    """Whether a request that failed can be sent again."""

    def write_part(self, request: Request, attempt: Attempt) -> None:
        """Write the next part, numbered from 1, or write it again."""

    def complete(self, request: Request, attempt: Attempt) -> None:
        """Publish the object, in place of one that has its name."""

    def discard(self, request: Request, attempt: Attempt) -> None:
        """Remove what was written; a second call, or one after `complete`, does nothing."""


class S3Upload:
    """A multipart upload.

    Args:
        call: Sends a request: its name in botocore, the attempt, then its parameters.
        address: `Bucket` and `Key`.
        upload_id: The upload's id.
    """

    is_repeatable: ClassVar[bool] = True

    def __init__(self, call: CallS3, address: Mapping[str, str], upload_id: str) -> None:
        self._call = call
        self._upload = {**address, "UploadId": upload_id}
        self._etags: dict[int, str] = {}

    def write_part(self, request: Request, attempt: Attempt) -> None:
        """Upload one part."""
        number = request.part_number
        answer = self._call(
            "upload_part", attempt, **self._upload, PartNumber=number, Body=request.data
        )
        self._etags[number] = answer["ETag"]

    def complete(self, request: Request, attempt: Attempt) -> None:
        """Complete the upload."""
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in self._etags.items()]
        parameters = {**self._upload, "MultipartUpload": {"Parts": parts}}
        self._call("complete_multipart_upload", attempt, **parameters)

    def discard(self, request: Request, attempt: Attempt) -> None:
        """Abort the upload."""
        try:
            self._call("abort_multipart_upload", attempt, **self._upload)
        except FileNotFoundError as error:
            if s3_error_code(error) != NO_SUCH_UPLOAD:
                raise


class AsideUpload:
    """A file of another name, moved when it is complete.

    Args:
        file_system: The file system.
        path: Path that the object gets.
    """

    is_repeatable: ClassVar[bool] = False

    def __init__(self, file_system: AbstractFileSystem, path: str) -> None:
        self._file_system: Any = file_system
        self._path = path
        self._aside = aside_path(path, secrets.token_hex(8))
        self._file = self._file_system.open(self._aside, "wb")

    def write_part(self, request: Request, attempt: Attempt) -> None:
        """Write on."""
        self._file.write(request.data)

    def complete(self, request: Request, attempt: Attempt) -> None:
        """Move the file."""
        self._file.close()
        self._file_system.mv(self._aside, self._path)

    def discard(self, request: Request, attempt: Attempt) -> None:
        """Remove the file."""
        try:
            self._file.close()
        finally:
            remove(self._file_system, self._aside)


class LocalUpload(AsideUpload):
    """A local file of another name, renamed when the disk has it whole."""

    def complete(self, request: Request, attempt: Attempt) -> None:
        """Rename the file."""
        self._keep_bytes()
        super().complete(request, attempt)
        self._keep_name()

    def link(self) -> None:
        """Give the file its name too, unless another has it: `discard` removes the first one.

        Raises:
            FileExistsError: Another has it.
        """
        self._keep_bytes()
        self._file.close()
        os.link(self._aside, self._path)
        self._keep_name()

    def _keep_bytes(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def _keep_name(self) -> None:
        folder = os.open(os.path.dirname(self._path), os.O_RDONLY)  # noqa: PTH120 - fsspec's path
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class MemoryUpload:
    """A buffer that fsspec's file system in memory does not know of yet."""

    is_repeatable: ClassVar[bool] = False

    def __init__(self, file: MemoryFile) -> None:
        self._file: Any = file

    def write_part(self, request: Request, attempt: Attempt) -> None:
        """Write on."""
        self._file.write(request.data)

    def complete(self, request: Request, attempt: Attempt) -> None:
        """Put the buffer in its place."""
        self._file.commit()

    def discard(self, request: Request, attempt: Attempt) -> None:
        """Nothing is left of a buffer that nobody holds."""


class ClosingUpload:
    """A file of an object store, which is published when it is closed."""

    is_repeatable: ClassVar[bool] = False

    def __init__(self, file: AbstractBufferedFile) -> None:
        self._file: Any = file

    def write_part(self, request: Request, attempt: Attempt) -> None:
        """Write on."""
        with _translate_adlfs_errors():
            self._file.write(request.data)

    def complete(self, request: Request, attempt: Attempt) -> None:
        """Close the file."""
        with _translate_adlfs_errors():
            self._file.close()

    def discard(self, request: Request, attempt: Attempt) -> None:
        """Discard the file."""
        if not self._file.closed:
            # When it is collected, a file closes itself, and so publishes itself.
            self._file.closed = True
            self._file.discard()


@contextlib.contextmanager
def _translate_adlfs_errors() -> Iterator[None]:
    """Make an error of the storage of what adlfs raises, whatever goes wrong with a block."""
    try:
        yield
    except RuntimeError as error:
        raise OSError(errno.EINVAL, str(error)) from error


def aside_path(path: str, upload_id: str) -> str:
    """Where a file lies whose path will be `path` when it is complete."""
    return f"{path}.{upload_id}.unfinished"


def parse_aside_name(aside: str) -> tuple[str, str] | None:
    """The name and the upload id that stand in the name of a file written aside.

    Example:
        >>> parse_aside_name("orders.0123456789abcdef.unfinished")
        ('orders', '0123456789abcdef')
        >>> parse_aside_name("orders") is None
        True
    """
    match = _ASIDE.fullmatch(aside)
    return None if match is None else (match["name"], match["upload_id"])


def remove(file_system: AbstractFileSystem, path: str) -> None:
    """Remove a file, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        file_system.rm_file(path)
