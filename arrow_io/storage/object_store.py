"""One request at a time to a store, as its library gives it: no retries, the library's errors.

Every fsspec file system can list, tell a size, and read a range. S3 has a class of its own, because
s3fs can do more than fsspec's interface says: body and user metadata come with one GET, the bytes
of a body that was cut are kept, and an answer that is not the range asked for is known by its
`Content-Range`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from fsspec.asyn import AsyncFileSystem, sync
from fsspec.core import url_to_fs

from arrow_io.errors import StorageError
from arrow_io.storage.failures import storage_errors

if TYPE_CHECKING:
    from fsspec.spec import AbstractFileSystem


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One line of a listing."""

    name: str
    """Name relative to the location."""
    size_bytes: int
    modified: datetime | None
    """When it was written, with time zone; None where the store does not tell."""


@dataclass(frozen=True, slots=True)
class ObjectHead:
    """What a store tells of an object without its bytes."""

    size_bytes: int
    user_metadata: dict[str, str] | None
    """Names in lower case; None where the store has no user metadata."""


@dataclass(frozen=True, slots=True)
class ObjectContent:
    """A whole object."""

    data: bytes
    user_metadata: dict[str, str] | None
    """Names in lower case; None where the store does not give it together with the bytes."""


def open_store(url: str, storage_options: Mapping[str, object]) -> ObjectStore:
    """Connect to the store of a URL.

    fsspec keeps one file system for each set of options and process, and drops them all in a forked
    child, so this is cheap and must be called again after a fork.

    Args:
        url: Any fsspec URL of a folder, bucket or prefix.
        storage_options: Options of the file system.

    Raises:
        Exception: What fsspec or the file system's library raises.
    """
    file_system, root = url_to_fs(url, **storage_options)
    if isinstance(file_system, AsyncFileSystem) and hasattr(file_system, "_call_s3"):
        return S3ObjectStore(file_system, root)
    return ObjectStore(file_system, root)


class ObjectStore:
    """A folder of a file system.

    Args:
        file_system: Any fsspec file system, used by its blocking methods.
        root: The folder's path in the file system, without protocol.
    """

    _LIST_OPTIONS: ClassVar[dict[str, object]] = {}

    def __init__(self, file_system: AbstractFileSystem, root: str) -> None:
        self._file_system: Any = file_system
        self._root = root
        self._folder = root.rstrip("/") + "/"

    @property
    def is_async(self) -> bool:
        """Whether the file system sends requests from an event loop of its own."""
        return bool(self._file_system.async_impl)

    def _path(self, name: str) -> str:
        return self._folder + name

    def list_objects(self) -> list[ObjectInfo]:
        """List the objects directly in the folder, in the store's order."""
        # A listing is never taken from the cache, nor left in it: it may be of a million objects.
        self._file_system.invalidate_cache(self._root)
        entries = self._file_system.ls(self._root, detail=True, **self._LIST_OPTIONS)
        self._file_system.invalidate_cache(self._root)
        if any(entry["name"] == self._root and entry["type"] == "file" for entry in entries):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return [self._object_info(entry) for entry in entries if self._is_object(entry)]

    def _is_object(self, entry: Mapping[str, Any]) -> bool:
        # On S3 a key that ends in a slash stands for an empty folder.
        name = entry["name"]
        return entry["type"] == "file" and name.startswith(self._folder) and not name.endswith("/")

    def _object_info(self, entry: Mapping[str, Any]) -> ObjectInfo:
        name = entry["name"].removeprefix(self._folder)
        size_bytes = entry["size"]
        if size_bytes is None:
            size_bytes = self.head(name).size_bytes
        return ObjectInfo(name, size_bytes, _modified(entry))

    def head(self, name: str) -> ObjectHead:
        """Size and user metadata of an object.

        Raises:
            FileNotFoundError: There is no such object, or it is a folder.
        """
        path = self._path(name)
        self._file_system.invalidate_cache(self._root)
        info = self._file_system.info(path)
        if info["type"] == "directory":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return ObjectHead(int(info["size"]), _lower_names(info.get("metadata")))

    def get_object(self, name: str, limit_bytes: int) -> ObjectContent:
        """The first `limit_bytes` bytes of an object, or all of it if it is shorter."""
        data = self._file_system.cat_file(self._path(name), start=0, end=limit_bytes)
        return ObjectContent(bytes(data), None)

    def get_range(self, name: str, start: int, stop: int) -> bytes | memoryview:
        """The bytes `[start, stop)` of an object, or fewer, as the store answers.

        Raises:
            StorageError: The answer is longer than what was asked for.
        """
        data: bytes | memoryview = self._file_system.cat_file(
            self._path(name), start=start, end=stop
        )
        if len(data) > stop - start:
            raise range_ignored(name, start, stop)
        return data


class S3ObjectStore(ObjectStore):
    """A bucket, or a prefix in it, through s3fs."""

    # Without it two threads that list at once could take away each other's cache entry.
    _LIST_OPTIONS: ClassVar[dict[str, object]] = {"refresh": True}

    def connect(self) -> None:
        """Make s3fs build its client, which checks its options; sends nothing to the bucket."""
        _ = self._file_system.s3

    def head(self, name: str) -> ObjectHead:
        """Size and user metadata of an object: one HEAD, where s3fs's `info` may also list."""
        response = self._file_system.call_s3("head_object", **self._bucket_and_key(name))
        return ObjectHead(response["ContentLength"], _lower_names(response.get("Metadata", {})))

    def get_object(self, name: str, limit_bytes: int) -> ObjectContent:
        """The first `limit_bytes` bytes of an object and its user metadata, by one GET."""
        received: list[bytes] = []
        response = self._get(name, None, limit_bytes, received)
        return ObjectContent(b"".join(received), _lower_names(response.get("Metadata", {})))

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        """The bytes `[start, stop)` of an object, or those that came before the body was cut.

        Raises:
            StorageError: The answer is another part of the object, or longer than asked for.
        """
        received: list[bytes] = []
        try:
            self._get(name, (start, stop), stop - start + 1, received)
        except storage_errors():
            # What came is right as far as it goes, so the next request goes on behind it.
            if not received:
                raise
        data = b"".join(received)
        if len(data) > stop - start:
            raise range_ignored(name, start, stop)
        return data

    def _get(
        self,
        name: str,
        byte_range: tuple[int, int] | None,
        limit_bytes: int,
        received: list[bytes],
    ) -> Mapping[str, Any]:
        """Send one GET, put up to `limit_bytes` of its body into `received`, return its headers."""

        async def get() -> Mapping[str, Any]:
            options = {} if byte_range is None else {"Range": _http_range(*byte_range)}
            response: Mapping[str, Any] = await self._file_system._call_s3(  # noqa: SLF001
                "get_object", **self._bucket_and_key(name), **options
            )
            async with response["Body"] as body:
                if byte_range is not None and not _answers_range(response, byte_range[0]):
                    raise range_ignored(name, *byte_range)
                room = limit_bytes
                while room and (part := await body.read(room)):
                    received.append(part)
                    room -= len(part)
            return response

        answer: Mapping[str, Any] = sync(self._file_system.loop, get)
        return answer

    def _bucket_and_key(self, name: str) -> dict[str, str]:
        bucket, key, _ = self._file_system.split_path(self._path(name))
        return {"Bucket": bucket, "Key": key}


def range_ignored(name: str, start: int, stop: int) -> StorageError:
    """The error for a server that sends something else than the range asked for.

    The bytes are dropped even where the right ones could be cut out of them: such a server would
    send the whole object for each range of it.
    """
    message = f"the server does not answer with the bytes [{start}, {stop}) that it was asked for"
    return StorageError(message, object_key=name, offset=start)


def _http_range(start: int, stop: int) -> str:
    return f"bytes={start}-{stop - 1}"


def _answers_range(response: Mapping[str, Any], start: int) -> bool:
    content_range = response.get("ContentRange")
    # Without Content-Range the body begins at the object's first byte.
    return start == 0 if content_range is None else content_range.startswith(f"bytes {start}-")


def _lower_names(metadata: object) -> dict[str, str] | None:
    if not isinstance(metadata, Mapping):
        return None
    return {str(name).lower(): str(value) for name, value in metadata.items()}


def _modified(entry: Mapping[str, Any]) -> datetime | None:
    # The field's name in s3fs, adlfs, local and sftp, gcsfs, memory.
    for field in ("LastModified", "last_modified", "mtime", "updated", "created"):
        value = entry.get(field)
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value, tz=UTC)
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            return value if value.tzinfo else value.replace(tzinfo=UTC)
    return None
