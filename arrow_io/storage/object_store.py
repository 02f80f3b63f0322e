"""One request at a time to a store, as its library gives it: no retries, the library's errors.

Every fsspec file system can list, tell a size, and read a range. S3 has a class of its own, because
s3fs can do more than fsspec's interface says: body and user metadata come with one GET, the bytes
of a body that was cut are kept, and an answer that is not the range asked for is known by its
`Content-Range`. Other stores have one for the way in which an object gets there whole or not at all
(`store_uploads`).
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from fsspec.asyn import AsyncFileSystem, sync
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from arrow_io.errors import StorageError
from arrow_io.storage.failures import s3_error_code, storage_errors
from arrow_io.storage.hidden import shown_to_library
from arrow_io.storage.store_uploads import (
    AsideUpload,
    ClosingUpload,
    LocalUpload,
    MemoryUpload,
    ObjectAttributes,
    S3Upload,
    StoreUpload,
    aside_path,
    parse_aside_name,
    remove,
)

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
class UnfinishedUpload:
    """What was written of an object that is not complete."""

    name: str
    """Name, relative to the location, that the object gets when it is complete."""
    upload_id: str
    """The store's id of the upload."""
    initiated: datetime | None
    """When it was begun or, of a file, last written to; None where the store does not tell."""


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
    # fsspec keeps file systems by the text of their options, which hidden ones would share.
    file_system, root = url_to_fs(str(url), **shown_to_library(storage_options))
    if isinstance(file_system, AsyncFileSystem) and hasattr(file_system, "_call_s3"):
        return S3ObjectStore(file_system, root)
    if isinstance(file_system, MemoryFileSystem):
        return MemoryObjectStore(file_system, root)
    if isinstance(file_system, LocalFileSystem):
        return LocalObjectStore(file_system, root)
    if ClosingObjectStore.PROTOCOLS.intersection(_protocols(file_system)):
        return ClosingObjectStore(file_system, root)
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
        return [self._object_info(entry) for entry in self._entries() if self._is_object(entry)]

    def list_folders(self) -> list[str]:
        """Names of the folders directly in the folder, in the store's order."""
        names = (entry["name"] for entry in self._entries() if entry["type"] == "directory")
        relative = (name.removeprefix(self._folder).rstrip("/") for name in names)
        # Some stores list the folder itself too.
        return [name for name in relative if name and "/" not in name]

    def _entries(self) -> list[Mapping[str, Any]]:
        # A listing is never taken from the cache, nor left in it: it may be of a million objects.
        self._file_system.invalidate_cache(self._root)
        entries: list[Mapping[str, Any]] = self._file_system.ls(
            self._root, detail=True, **self._LIST_OPTIONS
        )
        self._file_system.invalidate_cache(self._root)
        if any(entry["name"] == self._root and entry["type"] == "file" for entry in entries):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return entries

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

    def put_object(self, name: str, data: bytes, attributes: ObjectAttributes) -> None:
        """Write a whole object, in place of one that has its name."""
        upload = self.begin_upload(name, attributes)
        try:
            upload.write_part(1, data)
            upload.complete()
        except BaseException as error:
            try:
                upload.abort()
            except storage_errors() as failure:
                error.add_note(f"a file of it is left ({type(failure).__name__})")
            raise

    def begin_upload(self, name: str, attributes: ObjectAttributes) -> StoreUpload:
        """Begin an object that is written in parts."""
        del attributes
        self._file_system.makedirs(self._root, exist_ok=True)
        return AsideUpload(self._file_system, self._path(name))

    def delete_object(self, name: str) -> None:
        """Delete an object, if it is there."""
        remove(self._file_system, self._path(name))

    def list_uploads(self, prefix: str) -> list[UnfinishedUpload]:
        """What is not complete of the objects directly in the folder whose names begin so."""
        try:
            infos = self.list_objects()
        except FileNotFoundError:
            return []
        parsed = ((info, parse_aside_name(info.name)) for info in infos)
        return [
            UnfinishedUpload(*aside, info.modified)
            for info, aside in parsed
            if aside is not None and aside[0].startswith(prefix)
        ]

    def abort_upload(self, name: str, upload_id: str) -> None:
        """Remove what was written of an object that is not complete, if it is there."""
        remove(self._file_system, aside_path(self._path(name), upload_id))


class LocalObjectStore(ObjectStore):
    """A local folder, made when something is written to it."""

    def list_uploads(self, prefix: str) -> list[UnfinishedUpload]:
        """Files written aside whose names begin so; no other file is looked at closely."""
        found = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self._root) as entries:
            for entry in entries:
                aside = parse_aside_name(entry.name) if entry.name.startswith(prefix) else None
                if aside is None or not aside[0].startswith(prefix):
                    continue
                # It may be complete, or aborted, by now.
                with contextlib.suppress(FileNotFoundError):
                    modified = datetime.fromtimestamp(entry.stat().st_mtime, tz=UTC)
                    found.append(UnfinishedUpload(*aside, modified))
        return found

    def begin_upload(self, name: str, attributes: ObjectAttributes) -> StoreUpload:
        """Begin an object that is written in parts."""
        del attributes
        self._file_system.makedirs(self._root, exist_ok=True)
        return LocalUpload(self._file_system, self._path(name))


class _WithoutLeftovers(ObjectStore):
    """A store in which nothing is seen of what is not complete."""

    def list_uploads(self, prefix: str) -> list[UnfinishedUpload]:
        """There are none."""
        del prefix
        return []

    def abort_upload(self, name: str, upload_id: str) -> None:
        """There is nothing to remove."""


class MemoryObjectStore(_WithoutLeftovers):
    """A folder of fsspec's file system in memory."""

    def begin_upload(self, name: str, attributes: ObjectAttributes) -> StoreUpload:
        """Begin an object that is written in parts."""
        del attributes
        return MemoryUpload(MemoryFile(self._file_system, self._path(name)))


class ClosingObjectStore(_WithoutLeftovers):
    """A bucket of Google Cloud Storage or a container of Azure, which expire what is unfinished."""

    PROTOCOLS: ClassVar = frozenset({"abfs", "abfss", "az", "gcs", "gs"})

    def begin_upload(self, name: str, attributes: ObjectAttributes) -> StoreUpload:
        """Begin an object that is written in parts."""
        options: dict[str, object] = {"metadata": dict(attributes.user_metadata)}
        if "gs" in _protocols(self._file_system):
            options["content_type"] = attributes.content_type
        return ClosingUpload(self._file_system.open(self._path(name), "wb", **options))


class S3ObjectStore(ObjectStore):
    """A bucket, or a prefix in it, through s3fs."""

    # Without it two threads that list at once could take away each other's cache entry.
    _LIST_OPTIONS: ClassVar[dict[str, object]] = {"refresh": True}

    def connect(self) -> None:
        """Make s3fs build its client, which checks its options; sends nothing to the bucket."""
        _ = self._file_system.s3

    def head(self, name: str) -> ObjectHead:
        """Size and user metadata of an object: one HEAD, where s3fs's `info` may also list."""
        response = self._call("head_object", **self._bucket_and_key(name))
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

    def put_object(self, name: str, data: bytes, attributes: ObjectAttributes) -> None:
        """Write a whole object, in place of one that has its name: one PUT."""
        self._call("put_object", **self._bucket_and_key(name), Body=data, **_sent(attributes))

    def begin_upload(self, name: str, attributes: ObjectAttributes) -> StoreUpload:
        """Begin a multipart upload."""
        address = self._bucket_and_key(name)
        answer = self._call("create_multipart_upload", **address, **_sent(attributes))
        return S3Upload(self._call, address, answer["UploadId"])

    def delete_object(self, name: str) -> None:
        """Delete an object, if it is there."""
        try:
            self._call("delete_object", **self._bucket_and_key(name))
        except FileNotFoundError as error:
            # Some servers are not as forgiving as S3 itself.
            if s3_error_code(error) == "NoSuchBucket":
                raise

    def list_uploads(self, prefix: str) -> list[UnfinishedUpload]:
        """The multipart uploads, neither completed nor aborted, of names that begin so.

        Raises:
            StorageError: The server's pages do not go on from one to the next.
        """
        address = self._bucket_and_key("")
        folder, bucket = address["Key"], address["Bucket"]
        found: list[UnfinishedUpload] = []
        pages = _UploadPages()
        while True:
            page = self._call(
                "list_multipart_uploads", Bucket=bucket, Prefix=folder + prefix, **pages.marker
            )
            for upload in page.get("Uploads", ()):
                name = upload["Key"].removeprefix(folder)
                if "/" not in name and name.startswith(prefix):
                    found.append(
                        UnfinishedUpload(name, upload["UploadId"], upload.get("Initiated"))
                    )
            if not page.get("IsTruncated"):
                return found
            pages.turn(page)

    def abort_upload(self, name: str, upload_id: str) -> None:
        """Abort a multipart upload, if there is such a one."""
        S3Upload(self._call, self._bucket_and_key(name), upload_id).abort()

    def _call(self, method: str, **parameters: object) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = self._file_system.call_s3(method, **parameters)
        return answer

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
        # Not the whole path: from a `?versionId=` in a name on, s3fs would cut it off.
        bucket, folder, _ = self._file_system.split_path(self._folder)
        return {"Bucket": bucket, "Key": folder + name}


class _UploadPages:
    """Where the next page of a listing of multipart uploads begins: always behind the last one."""

    def __init__(self) -> None:
        self.marker: dict[str, str] = {}
        self._seen_ids: set[str] = set()

    def turn(self, page: Mapping[str, Any]) -> None:
        """Go on to the next page.

        Raises:
            StorageError: It does not begin behind this one: keys ascend in the order of their
                UTF-8 bytes, and no upload of one key comes twice.
        """
        key, upload_id = page.get("NextKeyMarker"), page.get("NextUploadIdMarker") or ""
        before = self.marker.get("KeyMarker", "")
        if not key:
            message = "the server lists multipart uploads in pages, and does not tell the next one"
            raise StorageError(message)
        if key != before:
            self._seen_ids.clear()
        if key.encode() < before.encode() or upload_id in self._seen_ids:
            message = "the server lists the same multipart uploads over and over"
            raise StorageError(message)
        self._seen_ids.add(upload_id)
        self.marker = {"KeyMarker": key} | ({"UploadIdMarker": upload_id} if upload_id else {})


def _sent(attributes: ObjectAttributes) -> dict[str, object]:
    return {
        "Metadata": dict(attributes.user_metadata),
        "ContentType": attributes.content_type,
    }


def _protocols(file_system: AbstractFileSystem) -> tuple[str, ...]:
    protocol = file_system.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


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
