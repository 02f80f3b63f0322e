"""Stores: one method for each operation of a request, without retries, raising library errors.

Every fsspec file system can list, report sizes and read ranges. Some have their own class, because
they make an object visible atomically in a special way (`store_uploads`), or because their answers
name the object's version. Local folders and memory are here, S3 in `s3_object_store`, Google Cloud
Storage and Azure in `cloud_object_stores`.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fsspec.implementations.memory import MemoryFile

from arrow_io.errors import StorageError
from arrow_io.storage.failures import storage_errors
from arrow_io.storage.listing_pages import ListingPage
from arrow_io.storage.object_version import WriteTime, agree, modified_in, version_in
from arrow_io.storage.request import Operation, Request
from arrow_io.storage.store_kinds import OBJECT_STORE_SCHEMES
from arrow_io.storage.store_uploads import (
    LocalUpload,
    MemoryUpload,
    StoreUpload,
    TemporaryFileUpload,
    parse_temporary_name,
    remove,
    temporary_path,
)

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from fsspec.spec import AbstractFileSystem

    from arrow_io.storage.attempts import Attempt
    from arrow_io.storage.object_version import ObjectVersion
    from arrow_io.storage.request_threads import SendInThread


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object in a listing."""

    name: str
    """Name relative to the location."""
    size_bytes: int
    modified: datetime | None
    """Time of writing, with time zone; None if the store does not report it."""
    version: ObjectVersion | None = field(default=None, compare=False)
    """None if the store reports nothing that identifies the version."""


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """An upload of an object that is not complete."""

    name: str
    """Name, relative to the location, of the object once complete."""
    upload_id: str
    """The store's id of the upload."""
    initiated: datetime | None
    """When it was started or, for a file, last written to; None if the store does not report it."""


@dataclass(frozen=True, slots=True)
class ObjectHead:
    """What a store reports about an object without its bytes."""

    size_bytes: int
    user_metadata: dict[str, str] | None
    """Names in lower case; None if the store has no user metadata."""
    version: ObjectVersion | None = None
    """See `ObjectInfo.version`."""
    modified: datetime | None = None
    """See `ObjectInfo.modified`."""


@dataclass(frozen=True, slots=True)
class RangeContent:
    """A range of an object."""

    data: bytes | memoryview
    user_metadata: dict[str, str] | None
    """Names in lower case; None if the store does not return it with the bytes."""
    version: ObjectVersion | None = field(default=None, compare=False)
    """See `ObjectInfo.version`; None if the store does not return it with the bytes."""


@dataclass(frozen=True, slots=True)
class ObjectContent(RangeContent):
    """A whole object, or its first bytes."""

    data: bytes


class ObjectStore:
    """A folder of a file system.

    Args:
        file_system: Any fsspec file system, used through its blocking methods.
        root: The folder's path in the file system, without protocol.
    """

    can_put_new: ClassVar[bool] = False
    """Whether `put_new_object` is known to be atomic."""
    _LIST_OPTIONS: ClassVar[dict[str, object]] = {}

    def __init__(self, file_system: AbstractFileSystem | None, root: str) -> None:
        self._file_system: Any = file_system
        self._root = root
        self._reader: ObjectStore | None = None
        # The root of an archive has an empty name, and names in it do not start with a slash.
        self._folder = root.rstrip("/") + "/" if root else self._root_marker()

    def _root_marker(self) -> str:
        return "" if self._file_system is None else str(self._file_system.root_marker)

    @property
    def is_async(self) -> bool:
        """Whether the file system sends requests from its own event loop."""
        return bool(self._file_system.async_impl)

    def turn(
        self, patience_s: float, upload: StoreUpload | None
    ) -> AbstractContextManager[SendInThread | None]:
        """Return a context that waits for the turn of a request; most stores need no turns.

        Args:
            patience_s: Maximum wait for a request that was cancelled and still runs, in seconds.
            upload: The upload that sends the request; None for this store.

        Returns:
            The context of a function that sends the request in a thread that can be abandoned;
            None to use the calling thread.
        """
        return contextlib.nullcontext()

    @property
    def lister(self) -> ObjectStore:
        """The store for listings: this one, unless another library's listings are more reliable."""
        return self

    @property
    def reader(self) -> ObjectStore:
        """The store for GETs: this one, unless another library takes less time."""
        return self if self._reader is None else self._reader

    def read_through(self, reader: ObjectStore) -> None:
        """Send GETs through another store."""
        self._reader = reader

    @property
    def has_folders(self) -> bool:
        """Whether a folder can be empty, as in a file system."""
        return not OBJECT_STORE_SCHEMES.keys() & protocols(self._file_system)

    def _path(self, name: str) -> str:
        return self._folder + name

    def _folder_path(self, name: str) -> str:
        """Return the path of a folder, with a slash at its end unless it is a root without name."""
        return f"{self._folder}{name}/" if name else self._folder

    def list_folder(self, request: Request, attempt: Attempt) -> ListingPage[ObjectInfo]:
        """List the objects and folders directly in a folder, in the store's order."""
        entries = self._entries(request.name)
        objects = [self._object_info(each, attempt) for each in entries if self._is_object(each)]
        paths = (self._relative(each["name"]) for each in entries if each["type"] == "directory")
        return ListingPage(objects, names_in_folder(request.name, paths), len(entries))

    def list_tree(self, request: Request, attempt: Attempt) -> ListingPage[ObjectInfo]:
        """List the objects below a folder, in the store's order: one page.

        This lists one folder or a page of it, and each folder in it has pages of its own. A store
        whose listings are flat returns no folders.
        """
        folder, *marker = request.marker or (request.name,)
        page = self.list_folder(
            replace(request, name=folder, marker=tuple(marker) or None), attempt
        )
        return replace(
            page,
            folders=[_join(folder, name) for name in page.folders],
            next_marker=page.next_marker and (folder, *page.next_marker),
        )

    def _entries(self, folder: str) -> list[Mapping[str, Any]]:
        path = self._path(folder) if folder else self._root
        # Bypass the cache, and leave nothing in it: a listing may have a million objects.
        self._file_system.invalidate_cache(path)
        entries: list[Mapping[str, Any]] = self._file_system.ls(
            path, detail=True, **self._LIST_OPTIONS
        )
        self._file_system.invalidate_cache(path)
        if any(entry["name"] == path and entry["type"] == "file" for entry in entries):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return entries

    def _relative(self, path: str) -> str:
        name = path.removeprefix(self._folder)
        # In the home folder of SFTP, whose name is empty too, listed names start with a slash.
        return name if self._folder else name.removeprefix("/")

    def _is_object(self, entry: Mapping[str, Any]) -> bool:
        # On S3 a key that ends in a slash stands for an empty folder.
        name = entry["name"]
        return entry["type"] == "file" and name.startswith(self._folder) and not name.endswith("/")

    def _object_info(self, entry: Mapping[str, Any], attempt: Attempt) -> ObjectInfo:
        name = self._relative(entry["name"])
        size_bytes = entry["size"]
        version = version_in(entry, size_bytes)
        if size_bytes is None:
            head = self.head(Request(Operation.HEAD, name), attempt)
            size_bytes, version = head.size_bytes, version or head.version
        return ObjectInfo(name, size_bytes, modified_in(entry), version)

    def list_object(self, request: Request, attempt: Attempt) -> ListingPage[ObjectInfo]:
        """Return a listing that contains an object if it exists, and perhaps others."""
        folder, _, _ = request.name.rpartition("/")
        return self.list_folder(replace(request, name=folder), attempt)

    def head(self, request: Request, attempt: Attempt) -> ObjectHead:
        """Return size, user metadata and version of an object.

        Raises:
            FileNotFoundError: There is no such object, or it is a folder.
        """
        path = self._path(request.name)
        self._file_system.invalidate_cache(path.rpartition("/")[0] or self._root)
        info = self._file_system.info(path)
        if info["type"] == "directory":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if info["size"] is None:
            message = "the server does not report the length of the object"
            raise StorageError(message, object_key=request.name)
        size_bytes = int(info["size"])
        version = version_in(info, size_bytes)
        metadata = lower_names(info.get("metadata"))
        return ObjectHead(size_bytes, metadata, version, modified_in(info))

    def get_object(self, request: Request, attempt: Attempt) -> ObjectContent:
        """Return the first `stop` bytes of an object, or all of it if it is shorter.

        A store that can request a version raises if that version is gone.
        """
        content = self.get_range(request, attempt)
        return ObjectContent(bytes(content.data), content.user_metadata, content.version)

    def get_range(self, request: Request, attempt: Attempt) -> RangeContent:
        """Return the bytes `[start, stop)` of an object, or fewer or more, as the store answers."""
        # Do not copy: a range may have tens of megabytes.
        data = self._file_system.cat_file(
            self._path(request.name), start=request.start, end=request.stop
        )
        return RangeContent(data, None)

    def put_object(self, request: Request, attempt: Attempt) -> None:
        """Write a whole object, replacing one with the same name."""
        upload = self.begin_upload(request, attempt)
        try:
            upload.write_part(request, attempt)
            upload.complete(request, attempt)
        except BaseException as error:
            try:
                upload.discard(request, attempt)
            except storage_errors() as failure:
                error.add_note(f"its temporary file was not removed ({type(failure).__name__})")
            raise

    def put_new_object(self, request: Request, attempt: Attempt) -> None:
        """Write a whole object atomically, unless one has its name.

        Raises:
            FileExistsError: The name is taken.
        """
        raise NotImplementedError(request, attempt)

    def replace_object(self, request: Request, attempt: Attempt) -> None:
        """Write a whole object in place of a version of it, atomically if the store supports it.

        Raises:
            FileExistsError: The object has another version.
            FileNotFoundError: The object does not exist any more.
        """
        if not agree(request.version, self.head(request, attempt).version):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        self.put_object(request, attempt)

    def begin_upload(self, request: Request, attempt: Attempt) -> StoreUpload:
        """Start an object that is written in parts."""
        self._file_system.makedirs(self._root, exist_ok=True)
        return TemporaryFileUpload(self._file_system, self._path(request.name))

    def delete_object(self, request: Request, attempt: Attempt) -> None:
        """Delete an object if it exists."""
        remove(self._file_system, self._path(request.name))

    def delete_folder(self, request: Request, attempt: Attempt) -> None:
        """Delete a folder if it exists and is empty."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            # Some stores list the folder itself too.
            names = (self._relative(entry["name"]) for entry in self._entries(request.name))
            if all(name.rstrip("/") == request.name for name in names):
                self._file_system.rmdir(self._path(request.name))

    def list_uploads(self, request: Request, attempt: Attempt) -> ListingPage[UnfinishedUpload]:
        """List incomplete uploads directly in the folder, by the prefix in the request."""
        try:
            page = self.list_folder(replace(request, name=""), attempt)
        except FileNotFoundError:
            return ListingPage([])
        parsed = ((info, parse_temporary_name(info.name)) for info in page.items)
        uploads = [
            UnfinishedUpload(*parts, info.modified)
            for info, parts in parsed
            if parts is not None and parts[0].startswith(request.name)
        ]
        return ListingPage(uploads, key_count=page.key_count, next_marker=page.next_marker)

    def abort_upload(self, request: Request, attempt: Attempt) -> None:
        """Remove the data of an incomplete upload if it exists."""
        remove(self._file_system, temporary_path(self._path(request.name), request.upload_id))


class LocalObjectStore(ObjectStore):
    """A local folder, created by the first write."""

    can_put_new: ClassVar[bool] = True

    def get_range(self, request: Request, attempt: Attempt) -> RangeContent:
        """Return the bytes `[start, stop)` of a file, or those up to its end."""
        with Path(self._path(request.name)).open("rb") as file:
            file.seek(request.start)
            data = file.read(request.stop - request.start)
            # After the read, so that it shows whether the file was written meanwhile.
            status = os.fstat(file.fileno())
        modified = datetime.fromtimestamp(status.st_mtime, tz=UTC)
        return RangeContent(data, None, WriteTime(status.st_size, modified))

    def delete_folder(self, request: Request, attempt: Attempt) -> None:
        """Delete a folder if it exists and is empty."""
        try:
            Path(self._path(request.name)).rmdir()
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise

    def list_uploads(self, request: Request, attempt: Attempt) -> ListingPage[UnfinishedUpload]:
        """List temporary files by the prefix in the request; stat no other file."""
        uploads, prefix = [], request.name
        with contextlib.suppress(FileNotFoundError), os.scandir(self._root) as entries:
            for entry in entries:
                parts = parse_temporary_name(entry.name) if entry.name.startswith(prefix) else None
                if parts is None or not parts[0].startswith(prefix):
                    continue
                # It may have been completed or aborted meanwhile.
                with contextlib.suppress(FileNotFoundError):
                    modified = datetime.fromtimestamp(entry.stat().st_mtime, tz=UTC)
                    uploads.append(UnfinishedUpload(*parts, modified))
        return ListingPage(uploads)

    def begin_upload(self, request: Request, attempt: Attempt) -> LocalUpload:
        """Start an object that is written in parts."""
        self._file_system.makedirs(self._root, exist_ok=True)
        return LocalUpload(self._file_system, self._path(request.name))

    def put_new_object(self, request: Request, attempt: Attempt) -> None:
        """Write a temporary file and link it to its name, which fails if the name is taken."""
        upload = self.begin_upload(request, attempt)
        try:
            upload.write_part(request, attempt)
            upload.link()
        finally:
            upload.discard(request, attempt)


class StoreWithoutUploads(ObjectStore):
    """A store that does not show incomplete uploads."""

    def list_uploads(self, request: Request, attempt: Attempt) -> ListingPage[UnfinishedUpload]:
        """Return an empty page."""
        return ListingPage([])

    def abort_upload(self, request: Request, attempt: Attempt) -> None:
        """Do nothing: there is nothing to remove."""


class MemoryObjectStore(StoreWithoutUploads):
    """A folder of fsspec's in-memory file system."""

    can_put_new: ClassVar[bool] = True

    def get_range(self, request: Request, attempt: Attempt) -> RangeContent:
        """Return the bytes `[start, stop)` of an object, or those up to its end."""
        path = self._path(request.name)
        file = self._file_system.store.get(path)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        data = bytes(file.getbuffer()[request.start : request.stop])
        return RangeContent(data, None, version_in({"created": file.created}, file.size))

    def list_tree(self, request: Request, attempt: Attempt) -> ListingPage[ObjectInfo]:
        """List the objects below a folder: one pass over all names, and the only page."""
        folder = self._folder_path(request.name)
        entries = self._file_system.find(folder, detail=True).items()
        # If the folder is an object, it is found too.
        objects = [
            self._object_info(entry, attempt) for path, entry in entries if path.startswith(folder)
        ]
        return ListingPage(objects, key_count=len(objects))

    def begin_upload(self, request: Request, attempt: Attempt) -> StoreUpload:
        """Start an object that is written in parts."""
        return MemoryUpload(MemoryFile(self._file_system, self._path(request.name)))

    def put_new_object(self, request: Request, attempt: Attempt) -> None:
        """Take the name atomically: only the first caller succeeds."""
        path = self._path(request.name)
        file = MemoryFile(self._file_system, path, request.data)
        if self._file_system.store.setdefault(path, file) is not file:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)


def protocols(file_system: AbstractFileSystem) -> tuple[str, ...]:
    """Return the names of a file system in URLs."""
    protocol = file_system.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def names_in_folder(folder: str, paths: Iterable[str]) -> list[str]:
    """Return the names of the folders directly in a folder; leave out the folder itself.

    Args:
        folder: Path of the folder; empty for the root of all paths.
        paths: Paths of folders, with or without a slash at the end.

    Example:
        >>> names_in_folder("a", ["a/", "a/b/", "a/b/c", "ab"])
        ['b']
    """
    start = f"{folder}/" if folder else ""
    names = (path.removeprefix(start).rstrip("/") for path in paths if path.startswith(start))
    return [name for name in names if name and "/" not in name]


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def lower_names(metadata: object) -> dict[str, str] | None:
    """Return user metadata with names in lower case; None if it is not a mapping."""
    if not isinstance(metadata, Mapping):
        return None
    return {str(name).lower(): str(value) for name, value in metadata.items()}
