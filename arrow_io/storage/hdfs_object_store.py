"""HDFS through hdfs-native, a client of Hadoop's own protocol that needs no Java.

fsspec's file system of hdfs-native reads the configuration and connects. This module calls its
client, because fsspec's methods would cut a path at a `;`, `?` or `#`, and because the client
streams listings and ranges.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from arrow_io.storage.listing_pages import KEY_BYTES, MAX_KEYS, ListingPage
from arrow_io.storage.object_store import (
    ObjectContent,
    ObjectHead,
    ObjectInfo,
    RangeContent,
)
from arrow_io.storage.object_version import WriteTime
from arrow_io.storage.range_memory import RangeMemory
from arrow_io.storage.received_range import ReceivedRange
from arrow_io.storage.server_object_stores import ConcurrentObjectStore
from arrow_io.storage.store_uploads import temporary_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fsspec.spec import AbstractFileSystem
    from hdfs_native import FileReader, FileStatus, FileWriter

    from arrow_io.storage.attempts import Attempt
    from arrow_io.storage.request import Request

_RPC_ERROR: Final = re.compile(
    r'RPCError\("(?:[\w$]+\.)*(?P<name>[\w$]+)", "(?P<message>(?:[^\\"]|\\[^n])*)'
)
"""Text of the error for an exception of the NameNode, up to its stack."""
_ERRORS: Final = {
    "AccessControlException": errno.EACCES,
    "PathIsNotEmptyDirectoryException": errno.ENOTEMPTY,
    "ParentNotDirectoryException": errno.ENOTDIR,
}
"""Numbers of errors by the name of the NameNode's exception."""


class HdfsObjectStore(ConcurrentObjectStore):
    """A folder of HDFS.

    Args:
        file_system: fsspec's file system of hdfs-native.
        root: Path of the folder.
    """

    PROTOCOLS: ClassVar = frozenset({"hdfs", "viewfs"})
    can_put_new: ClassVar[bool] = True

    def __init__(self, file_system: AbstractFileSystem, root: str) -> None:
        super().__init__(file_system, root)
        self._client = self._file_system.client

    def list_folder(self, request: Request, attempt: Attempt) -> ListingPage[ObjectInfo]:
        """List the objects and folders directly in a folder, in the server's order."""
        folder = self._folder_path(request.name)
        page: ListingPage[ObjectInfo] = ListingPage([])
        count = 0
        with _translate_errors():
            for status in self._client.list_status(folder.rstrip("/") or "/", recursive=False):
                name = status.path.removeprefix(folder)
                if not status.path.startswith(folder):
                    # The listing of a file has the file itself.
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
                if status.isdir:
                    page.folders.append(name)
                else:
                    page.items.append(_info(f"{folder.removeprefix(self._folder)}{name}", status))
                count += 1
                attempt.extend(KEY_BYTES)
                if attempt.is_over or count > MAX_KEYS:
                    break
        return ListingPage(page.items, page.folders, count)

    def list_object(self, request: Request, attempt: Attempt) -> ListingPage[ObjectInfo]:
        """Return a listing that contains an object if it exists."""
        with suppress(FileNotFoundError):
            return ListingPage([self._info(request.name)])
        return ListingPage([])

    def head(self, request: Request, attempt: Attempt) -> ObjectHead:
        """Return length and version of an object.

        Raises:
            FileNotFoundError: There is no such object, or it is a folder.
        """
        info = self._info(request.name)
        return ObjectHead(info.size_bytes, None, info.version, info.modified)

    def _info(self, name: str) -> ObjectInfo:
        with _translate_errors():
            status = self._client.get_file_info(self._path(name))
        if status.isdir:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return _info(name, status)

    def get_object(self, request: Request, attempt: Attempt) -> ObjectContent:
        """Return the first `stop` bytes of an object, or all of it if it is shorter."""
        parts: list[bytes] = []
        with _translate_errors():
            reader = self._client.read(self._path(request.name))
            _receive(reader, 0, request.stop, parts.append, attempt)
        return ObjectContent(b"".join(parts), None)

    def get_range(self, request: Request, attempt: Attempt) -> RangeContent:
        """Return the bytes `[start, stop)` of an object, or those up to its end."""
        received = ReceivedRange(request.stop - request.start, request.memory or RangeMemory())
        with _translate_errors():
            reader = self._client.read(self._path(request.name))
            _receive(reader, request.start, request.stop, received.add, attempt)
        return RangeContent(received.data(), None)

    def put_new_object(self, request: Request, attempt: Attempt) -> None:
        """Write a temporary file and rename it, which fails if the name is taken."""
        upload = self.begin_upload(request, attempt)
        try:
            upload.write_part(request, attempt)
            upload.rename(is_replacing=False)
        finally:
            upload.discard(request, attempt)

    def begin_upload(self, request: Request, attempt: Attempt) -> HdfsUpload:
        """Start an object that is written in parts."""
        with _translate_errors():
            return HdfsUpload(self._client, self._path(request.name))

    def delete_object(self, request: Request, attempt: Attempt) -> None:
        """Delete an object if it exists."""
        self._delete(self._path(request.name))

    def delete_folder(self, request: Request, attempt: Attempt) -> None:
        """Delete a folder if it exists and is empty."""
        path = self._path(request.name)
        try:
            with _translate_errors():
                is_folder = self._client.get_file_info(path).isdir
            if is_folder:
                self._delete(path)
        except OSError as error:
            if not isinstance(error, FileNotFoundError) and error.errno not in {
                errno.ENOTDIR,
                errno.ENOTEMPTY,
            }:
                raise

    def abort_upload(self, request: Request, attempt: Attempt) -> None:
        """Delete the temporary file of an incomplete upload if it exists."""
        self._delete(temporary_path(self._path(request.name), request.upload_id))

    def _delete(self, path: str) -> None:
        with _translate_errors():
            self._client.delete(path, recursive=False)


class HdfsUpload:
    """A temporary file that is renamed when it is complete.

    Args:
        client: The client of hdfs-native.
        path: Path of the complete object.
    """

    is_repeatable: ClassVar[bool] = False

    def __init__(self, client: Any, path: str) -> None:  # noqa: ANN401 - of an extra
        from hdfs_native import WriteOptions  # noqa: PLC0415 - an extra

        self._client = client
        self._path = path
        self._temporary_path: str | None = temporary_path(path, secrets.token_hex(8))
        self._file: FileWriter = client.create(self._temporary_path, WriteOptions())

    def write_part(self, request: Request, attempt: Attempt) -> None:
        """Append a part."""
        with _translate_errors():
            self._file.write(request.data)

    def complete(self, request: Request, attempt: Attempt) -> None:
        """Rename the file, replacing one with the object's name."""
        self.rename(is_replacing=True)

    def rename(self, *, is_replacing: bool) -> None:
        """Close and rename the file.

        Raises:
            FileExistsError: There is an object with the name, and `is_replacing` is false.
        """
        with _translate_errors():
            self._file.close()
            self._client.rename(self._temporary_path, self._path, is_replacing)
        self._temporary_path = None

    def discard(self, request: Request, attempt: Attempt) -> None:
        """Delete the file, unless it was renamed."""
        if self._temporary_path is not None:
            with _translate_errors():
                self._client.delete(self._temporary_path, recursive=False)
            self._temporary_path = None


def _info(name: str, status: FileStatus) -> ObjectInfo:
    modified = datetime.fromtimestamp(status.modification_time / 1000, tz=UTC)
    return ObjectInfo(name, status.length, modified, WriteTime(status.length, modified))


def _receive(
    reader: FileReader, start: int, stop: int, add: Callable[[bytes], None], attempt: Attempt
) -> None:
    """Read the bytes `[start, stop)`, or those up to the end; they extend the attempt's time."""
    # The client panics at a range that does not end in the file.
    stop = min(stop, len(reader))
    if start >= stop:
        return
    for part in reader.read_range_stream(start, stop - start):
        add(part)
        attempt.extend(len(part))
        if attempt.is_over:
            return


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Turn an error or panic of the client into an `OSError`; drop the stack of the NameNode."""
    try:
        yield
    except RuntimeError as error:
        text = str(error).partition("\n")[0]
        rpc_error = _RPC_ERROR.match(text)
        if rpc_error is None:
            raise OSError(errno.EIO, text) from None
        name = rpc_error["name"]
        message = f"{name}: {rpc_error['message']}".replace('\\"', '"')
        raise OSError(_ERRORS.get(name, errno.EINVAL), message) from None
    except (FileNotFoundError, FileExistsError) as error:
        raise type(error)(str(error).partition("\n")[0]) from None
    except BaseException as error:
        # Rust's panic has a class of its own, which is not an `Exception`.
        if type(error).__name__ != "PanicException":
            raise
        raise OSError(errno.EIO, f"the client panicked: {error}") from None
