"""Locations: a URL and storage options as a value that can be sent to other processes.

A location is any fsspec URL of a folder, bucket or prefix. It lists objects, reads their sizes,
user metadata, whole small objects and single ranges of large ones (`ranges` reads longer
stretches), and writes whole objects or, in parts, large ones (`uploads`). Requests that fail with a
transient error are repeated. Every failure becomes an error of this project that names the object
and shows no secret.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from arrow_io.core.option_values import check_whole_number, path_or_url, type_name
from arrow_io.errors import FormatError, MissingObjectError, ObjectChangedError, OptionError
from arrow_io.storage.attempts import RetryPolicy
from arrow_io.storage.index_cache import IndexCache, open_index_cache
from arrow_io.storage.object_store import (
    ObjectContent,
    ObjectHead,
    ObjectInfo,
    RangeContent,
    UnfinishedUpload,
)
from arrow_io.storage.object_version import agree
from arrow_io.storage.obstore_options import check_obstore_writes
from arrow_io.storage.option_aliases import resolve_aliases
from arrow_io.storage.own_options import DEFAULT_MAX_INDEX_READS, max_connections, uses_obstore
from arrow_io.storage.redaction import redacted_urls
from arrow_io.storage.request import DEFAULT_CONTENT_TYPE, ObjectAttributes, Operation, Request
from arrow_io.storage.request_errors import OtherObjectError, changed_error
from arrow_io.storage.request_sender import RequestSender
from arrow_io.storage.served_versions import ServedVersions
from arrow_io.storage.store_kinds import check_url
from arrow_io.storage.trace import RequestTrace
from arrow_io.storage.uploads import ObjectUpload, run_uninterrupted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from arrow_io.storage.attempts import Refusals
    from arrow_io.storage.listing_pages import ListingPage
    from arrow_io.storage.object_version import ObjectVersion
    from arrow_io.storage.range_memory import RangeMemory

FIRST_RANGE_BYTES = 1 << 20
LONGEST_RANGE_BYTES = 3 << 20
MAX_RANGE_BYTES = 1 << 30
"""Limit on a range: positions in a buffer are stored in 31 bits."""


@dataclass(frozen=True, slots=True)
class FolderListing:
    """The objects and the folders directly in a folder."""

    objects: list[ObjectInfo]
    """In the order of their names."""
    folders: list[str]
    """Names of the folders, in order."""
    is_whole: bool = True
    """Whether the listing was not cut after a maximum number of pages."""


@dataclass(frozen=True)
class Location:
    """A folder, bucket or prefix, and how to access it.

    Locations are equal if URL and options are equal; they can be hashed and pickled. Names of
    objects are relative to the location. The file system is connected on first use, once in each
    process. If its library rejects the URL or the options, or is not installed, that is an
    `OptionError`.

    Example:
        >>> Location("s3://bucket/prefix", {"key": "me", "secret": "shhh"})
        Location('s3://bucket/prefix', options: key, secret)
    """

    url: str
    """Local path (made absolute), `memory://`, `s3://bucket/prefix`, or any other fsspec URL. It is
    never percent-decoded, not even that of a `file://` URL."""
    storage_options: Mapping[str, object] | None = field(default=None, hash=False)
    """Options of the fsspec file system, such as `key`, `secret` and `endpoint_url` of s3fs; and
    options of this project: `request_attempts` and `request_deadline_s` (see `retry`),
    `max_connections`, `client`."""
    retry: RetryPolicy = field(default=RetryPolicy(), compare=False)
    """How often a failed request is repeated, and how long it may take."""
    range_bytes: int | None = field(default=None, compare=False)
    """Maximum size of one range request, in bytes. None: 1 MiB at first, and up to 3 MiB in a long
    read, because each request has a fixed cost in time."""
    trace: RequestTrace = field(default_factory=RequestTrace, compare=False, repr=False)
    """Counts the requests; several locations may share one."""
    caches_indexes: bool = field(default=False, compare=False, repr=False)
    """Whether index objects may come from the index cache; not in another process."""
    max_connections: int = field(init=False, compare=False, repr=False)
    """Maximum number of concurrent requests for ranges, which bounds the prefetch."""
    max_index_reads: int = field(init=False, compare=False, repr=False)
    """Maximum number of concurrent requests for small objects, and size of S3's connection pool."""
    index_cache: IndexCache | None = field(init=False, compare=False, repr=False)
    _sender: RequestSender = field(init=False, compare=False)
    _versions: ServedVersions = field(default_factory=ServedVersions, init=False, compare=False)

    def __post_init__(self) -> None:
        """Copy the options, and check what can be checked without a request.

        Raises:
            OptionError: The URL is not text, is empty or fails `check_url`; or an option of this
                project has a value that is not allowed.
        """
        object.__setattr__(self, "url", path_or_url("url", self.url))
        if not isinstance(self.storage_options or {}, Mapping):
            message = f"storage options must be a mapping, not {type_name(self.storage_options)}"
            raise OptionError(message)
        if self.range_bytes is not None:
            check_whole_number("range_bytes", self.range_bytes, 1, MAX_RANGE_BYTES)
        options = resolve_aliases(self.url, self.storage_options or {})
        object.__setattr__(self, "storage_options", options)
        object.__setattr__(self, "retry", self.retry.with_options(options))
        object.__setattr__(self, "max_connections", max_connections(options))
        index_reads = max_connections(options, DEFAULT_MAX_INDEX_READS)
        object.__setattr__(self, "max_index_reads", index_reads)
        uses_obstore(options)
        if "://" not in self.url and "::" not in self.url:
            object.__setattr__(self, "url", Path(self.url).expanduser().absolute().as_posix())
        check_url(self.url, str(self))
        sender = RequestSender(
            self.url,
            str(self),
            options,
            self.retry,
            max_connections=self.max_index_reads,
            trace=self.trace,
        )
        object.__setattr__(self, "_sender", sender)
        cache = open_index_cache(self.url, options) if self.caches_indexes else None
        object.__setattr__(self, "index_cache", cache)

    def __str__(self) -> str:
        """Return the URL without credentials."""
        return redacted_urls(self.url)

    def __repr__(self) -> str:
        """Return the URL without credentials and the names of the options, never their values."""
        names = ", ".join(self.storage_options or {})
        return f"Location({str(self)!r}, options: {names})" if names else f"Location({str(self)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle without the file system: the other process connects anew."""
        return type(self), (
            self.url,
            self.storage_options,
            self.retry,
            self.range_bytes,
            self.trace,
        )

    @property
    def first_range_bytes(self) -> int:
        """Maximum size of the first range request of a read, in bytes."""
        return self.range_bytes or FIRST_RANGE_BYTES

    @property
    def longest_range_bytes(self) -> int:
        """Maximum size of any range request, in bytes."""
        return self.range_bytes or LONGEST_RANGE_BYTES

    def check_writable(self) -> None:
        """Raise if the URL is a chain, such as `dir::s3://bucket`, or the client only reads.

        fsspec does not guarantee that a chain writes an object whole or not at all.

        Raises:
            OptionError: The URL is a chain; or `client` is obstore and the store is not Azure.
        """
        if "::" in self.url:
            raise OptionError(f"{self}: cannot write to a chain of URLs: use only the last URL")
        if uses_obstore(self.storage_options or {}):
            check_obstore_writes(self.url)

    def check_writes_new_objects(self) -> None:
        """Raise unless `write_new_object` is known to be atomic at this location.

        Raises:
            OptionError: See `check_writable`; or the store is not S3, GCS, Azure, a local folder or
                memory.
        """
        self.check_writable()
        if not self._sender.store().can_put_new:
            raise OptionError(
                f"{self}: cannot create an object atomically here: use a bucket or a local folder"
            )

    @property
    def is_async(self) -> bool:
        """Whether several threads can send requests at once, as with object stores."""
        return self._sender.store().is_async

    @property
    def refusals(self) -> Refusals:
        """Counter of the store's answers that it receives too many requests."""
        return self._sender.refusals

    def list_folder(self, max_pages: int | None = None) -> FolderListing:
        """List the objects and the folders directly at the location.

        Always asks the store, never fsspec's cache. Counts as one request, whatever the number of
        pages. Symbolic links are neither objects nor folders.

        Args:
            max_pages: Maximum number of pages of an object store, each with up to 1,000 objects and
                folders. None: all pages.

        Raises:
            MissingObjectError: The folder does not exist, or no object has the prefix.
            StorageError: The store refused a request or kept failing.
        """
        listing: ListingPage[ObjectInfo] = self._sender.listing(
            Operation.LIST_FOLDER, max_pages=max_pages
        )
        self._versions.forget_listings()
        objects, folders = sorted(listing.items, key=_name), sorted(listing.folders)
        return FolderListing(objects, folders, is_whole=listing.next_marker is None)

    def list_objects(self) -> list[ObjectInfo]:
        """List the objects directly at the location, in the order of their names.

        See `list_folder` for the rest.
        """
        return self.list_folder().objects

    def list_folders(self) -> list[str]:
        """List the names of the folders directly at the location, in order.

        See `list_folder` for the rest.
        """
        return self.list_folder().folders

    def list_tree(self, folder: str = "") -> list[ObjectInfo]:
        """List the objects below a folder, at any depth.

        Counts as one request, whatever the number of pages and folders. An object store answers
        with flat pages, of up to 1,000 objects or 5,000 on Azure. A file system is asked for each
        folder; up to `max_index_reads` folders at once if `is_async`. A folder that is deleted
        meanwhile has no objects.

        Args:
            folder: Path of the folder, relative to the location, without a slash at its ends; empty
                for the location.

        Returns:
            The objects in the order of their names, which are relative to the location, as in
            `public/default/persistent/topic/5-uuid/data`. Names that start with a dot are included.
            Empty if the folder does not exist.

        Raises:
            StorageError: The store refused a request or kept failing; there are more than 16 nested
                folders in a file system; or in a file system, `folder` is a file.
        """
        infos = self._sender.tree(folder)
        self._versions.forget_listings()
        return sorted(infos, key=_name)

    def child(self, name: str) -> Location:
        """Return the location of a folder in this one, with the same options."""
        first, chain, inner = self.url.partition("::")
        if chain and "://" not in first:
            first = f"{first}://"
        slash = "" if first.endswith("/") else "/"
        return replace(self, url=f"{first}{slash}{name}{chain}{inner}")

    def with_trace(self, trace: RequestTrace) -> Location:
        """Return the same location, with the same connection and another counter of requests."""
        other = object.__new__(type(self))
        sender = self._sender.with_trace(trace)
        other.__dict__.update(self.__dict__ | {"trace": trace, "_sender": sender})
        return other

    def read_object(
        self,
        name: str,
        *,
        max_bytes: int,
        version: ObjectVersion | None = None,
    ) -> ObjectContent:
        """Read a whole object in one request.

        Args:
            name: Name of the object.
            max_bytes: Maximum length accepted, in bytes; at most one byte more is read.
            version: The required version, as listed or first read, if the request can check it.
                None for any.

        Returns:
            The bytes; on S3 and through obstore also the user metadata, elsewhere None for it.

        Raises:
            FormatError: The object is longer than `max_bytes`.
            MissingObjectError: There is no such object.
            ObjectChangedError: The object has another version.
            StorageError: The store refused the request or kept failing.
        """
        request_version = self._versions.request_version(name, version)
        request = Request(Operation.GET_OBJECT, name, stop=max_bytes + 1, version=request_version)
        try:
            content: ObjectContent = self._sender.send(request)
        except ObjectChangedError:
            served = self._resolve_version(name, version, request_version)
            if served is None:
                raise
            content = self._sender.send(replace(request, version=served))
        if len(content.data) > max_bytes:
            message = f"the object is longer than the {max_bytes} bytes allowed"
            raise FormatError(message, object_key=name)
        return content

    def read_range(
        self,
        name: str,
        start: int,
        stop: int,
        *,
        version: ObjectVersion | None = None,
        memory: RangeMemory | None = None,
    ) -> RangeContent:
        """Read at least the first byte of a range of an object, in one request.

        Args:
            name: Name of the object.
            start: First byte, in bytes from the object's start.
            stop: End of the range (exclusive); greater than `start`.
            version: The required version, as listed or first read, if the request can check it.
                None for any.
            memory: Provides memory for the bytes; None to allocate it.

        Returns:
            The first 1 … `stop - start` bytes of the range, as many as the store sent.

        Raises:
            TruncatedObjectError: The object ends at or before `start`; `offset` is its length.
            MissingObjectError: There is no such object.
            ObjectChangedError: The object has another version.
            StorageError: The store refused the request, kept failing, or sent other bytes.
        """
        request_version = self._versions.request_version(name, version)
        request = Request(Operation.GET_RANGE, name, start, stop, request_version, memory)
        try:
            content: RangeContent = self._sender.send(request)
        except ObjectChangedError:
            served = self._resolve_version(name, version, request_version)
            if served is None:
                raise
            content = self._sender.send(replace(request, version=served))
        return content

    def check_version(self, name: str, version: ObjectVersion) -> None:
        """Check with a HEAD request that an object still has a version.

        Raises:
            MissingObjectError: There is no such object.
            ObjectChangedError: The object has another version.
            StorageError: The store refused the request or kept failing.
        """
        stored = self._head(name).version
        request_version = self._versions.request_version(name, version)
        if not agree(request_version, stored):
            served = self._resolve_version(name, version, request_version)
            if served is None or not agree(served, stored):
                raise changed_error(name)

    def user_metadata(self, name: str) -> dict[str, str] | None:
        """Return the user metadata of an object by a HEAD request, with names in lower case.

        Returns:
            The metadata, possibly empty; None if the store has none (a folder, memory).

        Raises:
            MissingObjectError: There is no such object.
            StorageError: The store refused the request or kept failing.
        """
        return self._head(name).user_metadata

    def find(self, name: str) -> ObjectInfo | None:
        """Look up one object by its name with a HEAD request.

        Returns:
            What a listing would return for it; None if it does not exist or is a folder.

        Raises:
            StorageError: The store refused the request or kept failing.
        """
        try:
            head = self._head(name)
        except MissingObjectError:
            return None
        return ObjectInfo(name, head.size_bytes, head.modified, head.version)

    def exists(self, name: str) -> bool:
        """Return whether an object of this name exists; a folder does not count.

        Raises:
            StorageError: The store refused the request or kept failing.
        """
        return self.find(name) is not None

    def write_object(
        self,
        name: str,
        data: bytes,
        *,
        user_metadata: Mapping[str, str],
        content_type: str = DEFAULT_CONTENT_TYPE,
    ) -> None:
        """Write a whole object in one request, replacing one with the same name.

        The write is atomic. An interrupt waits until the request has ended.

        Args:
            name: Name of the object.
            data: Its bytes.
            user_metadata: Stored with it on S3, GCS and Azure, and nowhere else.
            content_type: Stored with it on S3 and GCS, and on Azure through obstore.

        Raises:
            OptionError: See `check_writable`.
            StorageError: The store refused the request or kept failing; the object may have been
                written.
        """
        self.check_writable()
        attributes = ObjectAttributes(user_metadata, content_type)
        request = Request(Operation.PUT_OBJECT, name, data=data, attributes=attributes)
        run_uninterrupted(partial(self._sender.send, request))

    def write_new_object(
        self, name: str, data: bytes, *, user_metadata: Mapping[str, str] | None = None
    ) -> bool:
        """Write a whole object in one request, unless another one has its name.

        If two callers write different bytes at once, one succeeds. A caller that writes the same
        bytes again succeeds too, because an answer may have been lost. An interrupt waits until the
        request has ended.

        Args:
            name: Name of the object.
            data: Its bytes, at least one.
            user_metadata: Stored with it on S3, GCS and Azure, and nowhere else.

        Returns:
            Whether the object with this name now has these bytes.

        Raises:
            OptionError: See `check_writes_new_objects`.
            StorageError: The store refused the request or kept failing; the object may have been
                written.
        """
        self.check_writes_new_objects()
        attributes = ObjectAttributes(user_metadata or {})
        return self._write_if(
            Request(Operation.PUT_NEW_OBJECT, name, data=data, attributes=attributes)
        )

    def replace_object(
        self, name: str, data: bytes, version: ObjectVersion, *, user_metadata: Mapping[str, str]
    ) -> bool:
        """Write a whole object in one request, replacing a known version of it.

        On S3, and on Azure through obstore, the store compares the version atomically. Elsewhere it
        is compared just before the write. An interrupt waits until the request has ended.

        Args:
            name: Name of the object.
            data: Its bytes, at least one.
            version: The version to replace (`ObjectInfo.version`).
            user_metadata: Stored with it on S3, GCS and Azure, and nowhere else.

        Returns:
            Whether the object now has these bytes; if not, it has another version.

        Raises:
            OptionError: See `check_writable`.
            MissingObjectError: The object does not exist any more.
            StorageError: The store refused the request or kept failing; the object may have been
                written.
        """
        self.check_writable()
        attributes = ObjectAttributes(user_metadata)
        return self._write_if(
            Request(
                Operation.REPLACE_OBJECT, name, version=version, data=data, attributes=attributes
            )
        )

    def _write_if(self, request: Request) -> bool:
        """Send a conditional write, and return whether the object now has these bytes."""
        try:
            run_uninterrupted(partial(self._sender.send, request))
        except OtherObjectError:
            with suppress(FormatError):
                max_bytes = len(request.data)
                return self.read_object(request.name, max_bytes=max_bytes).data == request.data
            return False
        return True

    def upload(
        self,
        name: str,
        *,
        user_metadata: Mapping[str, str],
        content_type: str = DEFAULT_CONTENT_TYPE,
    ) -> ObjectUpload:
        """Write an object in parts, replacing one with the same name.

        On S3 this is a multipart upload, and a part whose request failed is sent again whole;
        elsewhere it cannot be sent again.

        Args:
            name: Name of the object.
            user_metadata: Stored with it on S3, GCS and Azure, and nowhere else.
            content_type: Stored with it on S3 and GCS, and on Azure through obstore.

        Returns:
            A context manager that takes the parts (`ObjectUpload`).

        Raises:
            OptionError: See `check_writable`.
        """
        self.check_writable()
        attributes = ObjectAttributes(user_metadata, content_type)
        return ObjectUpload(name, attributes, self._sender.send)

    def delete_objects(self, names: Iterable[str]) -> None:
        """Delete objects one after the other, in the order of `names`; ignore missing ones.

        Raises:
            StorageError: The store refused a request or kept failing; later objects were not
                deleted.
        """
        for name in names:
            self._sender.send(Request(Operation.DELETE_OBJECT, name))

    def delete_folder(self, name: str) -> None:
        """Delete a folder of a file system if it exists and is empty; object stores have none.

        Args:
            name: Path of the folder, relative to the location.

        Raises:
            StorageError: The store refused the request or kept failing.
        """
        if self._sender.store().has_folders:
            self._sender.send(Request(Operation.DELETE_FOLDER, name))

    def unfinished_uploads(self, prefix: str = "") -> list[UnfinishedUpload]:
        """List incomplete uploads, in progress or abandoned, of names that start with a prefix.

        Returns:
            Multipart uploads on S3, temporary files in a folder. Always empty if the store does not
            show them (GCS, Azure, memory).

        Raises:
            StorageError: The store refused a request or kept failing.
        """
        return self._sender.listing(Operation.LIST_UPLOADS, prefix).items

    def abort_upload(self, name: str, upload_id: str) -> None:
        """Remove the data of an upload found by `unfinished_uploads`; ignore one that is gone.

        Raises:
            StorageError: The store refused the request or kept failing.
        """
        self._sender.send(Request(Operation.ABORT_UPLOAD, name, upload_id=upload_id))

    def _resolve_version(
        self, name: str, version: ObjectVersion | None, tried_version: ObjectVersion | None
    ) -> ObjectVersion | None:
        """See `ServedVersions.resolve`."""
        return self._versions.resolve(name, version, tried_version, self._relist, self._head)

    def _relist(self, name: str) -> list[ObjectInfo]:
        page: ListingPage[ObjectInfo] = self._sender.send(Request(Operation.LIST_OBJECT, name))
        return page.items

    def _head(self, name: str) -> ObjectHead:
        head: ObjectHead = self._sender.send(Request(Operation.HEAD, name))
        return head


def _name(info: ObjectInfo) -> str:
    return info.name


def folder_and_name(path: str) -> tuple[str, str]:
    """Split a path or URL before its last name, which is empty for a bucket or after a slash.

    Example:
        >>> folder_and_name("s3://bucket/prefix/name")
        ('s3://bucket/prefix/', 'name')
    """
    first, chain, inner = path.partition("::")
    scheme, colon, rest = first.rpartition("://")
    if not colon:
        rest = rest.replace(os.sep, "/")
    folder, slash, name = rest.rpartition("/")
    if colon and not slash:
        return path, ""
    return f"{scheme}{colon}{folder}{slash}{chain}{inner}", name
