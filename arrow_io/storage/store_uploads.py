"""Uploads of an object part by part: one request at a time, raising the library's errors.

In every store the object becomes visible atomically:

============== =========================================================================
Store          How the object becomes visible
============== =========================================================================
S3             a multipart upload is completed
a local folder a temporary file in the same folder is flushed to the disk and renamed
memory         a buffer is added to the file system
GCS, Azure     fsspec publishes a file when it is closed; obstore commits blocks
any other      a temporary file in the same folder is moved
============== =========================================================================
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import sys
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
"""S3's code for a multipart upload that was completed, aborted, or never started."""

# `format.object_names` must not recognize such a name as a ledger's object.
_TEMPORARY_NAME = re.compile(r"(?P<name>.+)\.(?P<upload_id>[0-9a-f]{16})\.unfinished", re.DOTALL)


class StoreUpload(Protocol):
    """An object that is being uploaded to a store; it is not visible before `complete`."""

    is_repeatable: ClassVar[bool]
    """Whether a failed request can be sent again."""

    def write_part(self, request: Request, attempt: Attempt) -> None:
        """Write or rewrite a part, numbered from 1."""

    def complete(self, request: Request, attempt: Attempt) -> None:
        """Publish the object, replacing one with the same name."""

    def discard(self, request: Request, attempt: Attempt) -> None:
        """Remove the data; a second call, or one after `complete`, does nothing."""


class S3Upload:
    """A multipart upload.

    Args:
        call: Sends a request: botocore's method name, the attempt, then the parameters.
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


class TemporaryFileUpload:
    """A temporary file that is moved when it is complete.

    Args:
        file_system: The file system.
        path: Path of the complete object.
    """

    is_repeatable: ClassVar[bool] = False

    def __init__(self, file_system: AbstractFileSystem, path: str) -> None:
        self._file_system: Any = file_system
        self._path = path
        self._temporary_path = temporary_path(path, secrets.token_hex(8))
        self._file = self._file_system.open(self._temporary_path, "wb")

    def write_part(self, request: Request, attempt: Attempt) -> None:
        """Append a part."""
        self._file.write(request.data)

    def complete(self, request: Request, attempt: Attempt) -> None:
        """Move the file."""
        self._file.close()
        self._file_system.mv(self._temporary_path, self._path)

    def discard(self, request: Request, attempt: Attempt) -> None:
        """Remove the file."""
        try:
            self._file.close()
        finally:
            remove(self._file_system, self._temporary_path)


class LocalUpload(TemporaryFileUpload):
    """A local temporary file, renamed when the disk has all of it."""

    def complete(self, request: Request, attempt: Attempt) -> None:
        """Rename the file."""
        self._keep_bytes()
        self._file.close()
        # Unlike a move, it replaces a file on Windows too.
        os.replace(self._temporary_path, self._path)  # noqa: PTH105 - fsspec's paths
        self._keep_name()

    def link(self) -> None:
        """Link the file to its final name, unless the name is taken; `discard` removes the other.

        Raises:
            FileExistsError: The name is taken.
        """
        self._keep_bytes()
        self._file.close()
        os.link(self._temporary_path, self._path)
        self._keep_name()

    def _keep_bytes(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def _keep_name(self) -> None:
        if sys.platform == "win32":
            return  # it opens no folders, and NTFS logs names itself
        folder = os.open(os.path.dirname(self._path), os.O_RDONLY)  # noqa: PTH120 - fsspec's path
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class MemoryUpload:
    """A buffer that is not part of fsspec's in-memory file system yet."""

    is_repeatable: ClassVar[bool] = False

    def __init__(self, file: MemoryFile) -> None:
        self._file: Any = file

    def write_part(self, request: Request, attempt: Attempt) -> None:
        """Append a part."""
        self._file.write(request.data)

    def complete(self, request: Request, attempt: Attempt) -> None:
        """Add the buffer to the file system."""
        self._file.commit()

    def discard(self, request: Request, attempt: Attempt) -> None:
        """Do nothing: the buffer is freed with this object."""


class ClosingUpload:
    """A file of an object store that is published when it is closed."""

    is_repeatable: ClassVar[bool] = False

    def __init__(self, file: AbstractBufferedFile) -> None:
        self._file: Any = file

    def write_part(self, request: Request, attempt: Attempt) -> None:
        """Append a part."""
        with _translate_adlfs_errors():
            self._file.write(request.data)

    def complete(self, request: Request, attempt: Attempt) -> None:
        """Close the file."""
        with _translate_adlfs_errors():
            self._file.close()

    def discard(self, request: Request, attempt: Attempt) -> None:
        """Discard the file."""
        if not self._file.closed:
            # Mark it closed: garbage collection would close it, and so publish it.
            self._file.closed = True
            self._file.discard()


@contextlib.contextmanager
def _translate_adlfs_errors() -> Iterator[None]:
    """Turn adlfs's `RuntimeError`, which it raises for any failed block, into an `OSError`."""
    try:
        yield
    except RuntimeError as error:
        raise OSError(errno.EINVAL, str(error)) from error


def temporary_path(path: str, upload_id: str) -> str:
    """Return the path of the temporary file for a path."""
    return f"{path}.{upload_id}.unfinished"


def parse_temporary_name(name: str) -> tuple[str, str] | None:
    """Return the object name and upload id in the name of a temporary file, or None.

    Example:
        >>> parse_temporary_name("orders.0123456789abcdef.unfinished")
        ('orders', '0123456789abcdef')
        >>> parse_temporary_name("orders") is None
        True
    """
    match = _TEMPORARY_NAME.fullmatch(name)
    return None if match is None else (match["name"], match["upload_id"])


def remove(file_system: AbstractFileSystem, path: str) -> None:
    """Remove a file if it exists."""
    with contextlib.suppress(FileNotFoundError):
        file_system.rm_file(path)
