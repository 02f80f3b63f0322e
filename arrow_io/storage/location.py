"""A URL and storage options: where objects lie, as a value that goes to other processes.

What comes in is any fsspec URL of a folder, bucket or prefix; what goes out is listings, sizes,
user metadata, whole small objects and single ranges of large ones (`ranges.py` reads on from
there); what goes in is whole objects, large ones in parts (`uploads.py`). Requests that fail in a
way that may pass are sent again; every failure leaves as an error of this project that names the
object and shows no secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from arrow_io.core.option_values import check_whole_number, path_or_url, type_name
from arrow_io.errors import FormatError, MissingObjectError, ObjectChangedError, OptionError
from arrow_io.storage.attempts import RetryPolicy
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
from arrow_io.storage.own_options import max_connections, uses_obstore
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
"""Positions in a buffer are kept in 31 bits."""


@dataclass(frozen=True)
class Location:
    """A folder, bucket or prefix, and how to get at it.

    Equal if URL and options are equal; can be hashed and pickled. The file system is connected when
    it is first needed, once in each process; if its library refuses the URL or the options, or is
    not installed, that is an `OptionError`. Names of objects are relative to the location.

    Example:
        >>> Location("s3://bucket/prefix", {"key": "me", "secret": "shhh"})
        Location('s3://bucket/prefix', options: key, secret)
    """

    url: str
    """Local path (made absolute), `memory://`, `s3://bucket/prefix`, or any other fsspec URL."""
    storage_options: Mapping[str, object] | None = field(default=None, hash=False)
    """Options of the fsspec file system, such as `key`, `secret` and `endpoint_url` of s3fs; and
    ours: `request_attempts` and `request_deadline_s` of `retry`, `max_connections`, `client`."""
    retry: RetryPolicy = field(default=RetryPolicy(), compare=False)
    """How often a request that failed is sent again, and how long it may take."""
    range_bytes: int | None = field(default=None, compare=False)
    """Most bytes that one request for a range asks for. None: 1 MiB at first, and up to
    3 MiB in a long read, because each request costs time whatever it brings."""
    trace: RequestTrace = field(default_factory=RequestTrace, compare=False, repr=False)
    """Counts the requests; any number of locations may share one."""
    max_connections: int = field(init=False, compare=False, repr=False)
    """Most requests that are sent at a time: whoever reads ahead goes by it, and S3's pool of
    connections has so many."""
    _sender: RequestSender = field(init=False, compare=False)
    _versions: ServedVersions = field(default_factory=ServedVersions, init=False, compare=False)

    def __post_init__(self) -> None:
        """Copy the options, and check what can be checked without a request.

        Raises:
            OptionError: The URL is not text, is empty, names no bucket, holds credentials that
                belong in the options, has a `?` on S3, from which on s3fs would cut it off, or
                leads through a cache or references; or one of our options has a value that it
                cannot have.
        """
        object.__setattr__(self, "url", path_or_url("url", self.url))
        if not isinstance(self.storage_options or {}, Mapping):
            message = f"storage options are a mapping, not {type_name(self.storage_options)}"
            raise OptionError(message)
        if self.range_bytes is not None:
            check_whole_number("range_bytes", self.range_bytes, 1, MAX_RANGE_BYTES)
        options = resolve_aliases(self.url, self.storage_options or {})
        object.__setattr__(self, "storage_options", options)
        object.__setattr__(self, "retry", self.retry.with_options(options))
        object.__setattr__(self, "max_connections", max_connections(options))
        uses_obstore(options)
        if "://" not in self.url and "::" not in self.url:
            object.__setattr__(self, "url", str(Path(self.url).expanduser().absolute()))
        check_url(self.url, str(self))
        sender = RequestSender(
            self.url,
            str(self),
            options,
            self.retry,
            max_connections=self.max_connections,
            trace=self.trace,
        )
        object.__setattr__(self, "_sender", sender)

    def __str__(self) -> str:
        """The URL without credentials."""
        return redacted_urls(self.url)

    def __repr__(self) -> str:
        """The URL without credentials and the names of the options, never their values."""
        names = ", ".join(self.storage_options or {})
        return f"Location({str(self)!r}, options: {names})" if names else f"Location({str(self)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle without the file system, which the other process connects anew."""
        return type(self), (
            self.url,
            self.storage_options,
            self.retry,
            self.range_bytes,
            self.trace,
        )

    @property
    def first_range_bytes(self) -> int:
        """Most bytes that the first request of a read asks for."""
        return self.range_bytes or FIRST_RANGE_BYTES

    @property
    def longest_range_bytes(self) -> int:
        """Most bytes that any request for a range asks for."""
        return self.range_bytes or LONGEST_RANGE_BYTES

    def check_writable(self) -> None:
        """Refuse a chain of URLs, such as `dir::s3://bucket`, and a client that only reads.

        It is not known whether a chain writes an object whole or not at all.

        Raises:
            OptionError: The URL is a chain; or it is not of Azure, and `client` is obstore.
        """
        if "::" in self.url:
            raise OptionError(f"{self}: a chain of URLs cannot be written to: give the last alone")
        if uses_obstore(self.storage_options or {}):
            check_obstore_writes(self.url)

    def check_writes_new_objects(self) -> None:
        """Refuse a place where `write_new_object` is not known to be one step.

        Raises:
            OptionError: It is known of S3, GCS, Azure, folders and memory alone.
        """
        self.check_writable()
        if not self._sender.store().puts_new:
            raise OptionError(
                f"{self}: in buckets and folders alone is a name taken only if it is free"
            )

    @property
    def is_async(self) -> bool:
        """Whether several threads can send requests at once, as to object stores."""
        return self._sender.store().is_async

    @property
    def refusals(self) -> Refusals:
        """How often the store answered that it is asked for too much now."""
        return self._sender.refusals

    def list_objects(self) -> list[ObjectInfo]:
        """List the objects directly at the location, not those in folders below it.

        Always asks the store, never fsspec's cache. Counts as one request, whatever pages it takes.

        Returns:
            The objects in the order of their names.

        Raises:
            MissingObjectError: There is no such folder, or no object below the prefix.
            StorageError: The store refused, or went on failing.
        """
        infos: list[ObjectInfo] = self._sender.listing(Operation.LIST_OBJECTS)
        self._versions.forget_listings()
        return sorted(infos, key=lambda info: info.name)

    def list_folders(self) -> list[str]:
        """List the folders directly at the location: their names, in order.

        As `list_objects`, which leaves them out.

        Raises:
            MissingObjectError: There is no such folder, or no object below the prefix.
            StorageError: The store refused, or went on failing.
        """
        return sorted(self._sender.listing(Operation.LIST_FOLDERS))

    def child(self, name: str) -> Location:
        """The folder of this name in this one, reached in the same way."""
        first, chain, inner = self.url.partition("::")
        if chain and "://" not in first:
            first = f"{first}://"
        slash = "" if first.endswith("/") else "/"
        return replace(self, url=f"{first}{slash}{name}{chain}{inner}")

    def read_object(
        self,
        name: str,
        *,
        max_bytes: int,
        version: ObjectVersion | None = None,
    ) -> ObjectContent:
        """Read a whole object in one request: on S3 its user metadata comes with it.

        Args:
            name: Name of the object.
            max_bytes: Greatest length accepted, in bytes; no more than one byte beyond it is read.
            version: The version that it must have, if the request can tell: as it was listed or
                first read. None for any.

        Returns:
            The bytes; and the user metadata if the request brings it (S3), else None.

        Raises:
            FormatError: The object is longer than `max_bytes`.
            MissingObjectError: There is no such object.
            ObjectChangedError: It is of another version.
            StorageError: The store refused, or went on failing.
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
            stop: Byte behind the last one wanted (half-open); greater than `start`.
            version: The version that it must have, if the request can tell: as it was listed or
                first read. None for any.
            memory: May have memory for the bytes; None: they have their own.

        Returns:
            The first 1 … `stop - start` bytes of the range, as many as the store sent.

        Raises:
            TruncatedObjectError: The object ends at or before `start`; `offset` says where.
            MissingObjectError: There is no such object.
            ObjectChangedError: It is of another version.
            StorageError: The store refused, went on failing, or sent something else than the range.
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
        """Ask whether an object is still of a version, by a HEAD request.

        Raises:
            MissingObjectError: There is no such object.
            ObjectChangedError: It is of another version.
            StorageError: The store refused, or went on failing.
        """
        stored = self._head(name).version
        request_version = self._versions.request_version(name, version)
        if not agree(request_version, stored):
            served = self._resolve_version(name, version, request_version)
            if served is None or not agree(served, stored):
                raise changed_error(name)

    def user_metadata(self, name: str) -> dict[str, str] | None:
        """User metadata of an object by a HEAD request, names in lower case.

        Returns:
            The metadata, perhaps empty; None if the store has none (a folder, memory).

        Raises:
            MissingObjectError: There is no such object.
            StorageError: The store refused, or went on failing.
        """
        return self._head(name).user_metadata

    def find(self, name: str) -> ObjectInfo | None:
        """Ask for one object by its name, as it is now, by a HEAD request.

        Returns:
            What a listing would say of it; None if there is no such object, or it is a folder.

        Raises:
            StorageError: The store refused, or went on failing.
        """
        try:
            head = self._head(name)
        except MissingObjectError:
            return None
        return ObjectInfo(name, head.size_bytes, head.modified, head.version)

    def exists(self, name: str) -> bool:
        """Whether there is an object of this name; a folder is not one.

        Raises:
            StorageError: The store refused, or went on failing.
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
        """Write a whole object in one request, in place of one that has its name.

        It is there whole or not at all. An interrupt waits until the request has ended.

        Args:
            name: Name of the object.
            data: Its bytes.
            user_metadata: What is kept with it on S3, GCS and Azure, and nowhere else.
            content_type: Kept with it on S3 and GCS.

        Raises:
            OptionError: The location is a chain of URLs.
            StorageError: The store refused, or went on failing; it may have the object then.
        """
        self.check_writable()
        attributes = ObjectAttributes(user_metadata, content_type)
        request = Request(Operation.PUT_OBJECT, name, data=data, attributes=attributes)
        run_uninterrupted(partial(self._sender.send, request))

    def write_new_object(
        self, name: str, data: bytes, *, user_metadata: Mapping[str, str] | None = None
    ) -> bool:
        """Write a whole object in one request, unless there is another of its name.

        Of two that write different bytes at once, one succeeds. Who writes the same bytes again
        succeeds too, as an answer may be lost. An interrupt waits for the end of the request.

        Args:
            name: Name of the object.
            data: Its bytes, at least one.
            user_metadata: What is kept with it on S3, GCS and Azure, and nowhere else.

        Returns:
            Whether the object that has the name now has these bytes.

        Raises:
            OptionError: See `check_writes_new_objects`.
            StorageError: The store refused, or went on failing; it may have the object then.
        """
        self.check_writes_new_objects()
        attributes = ObjectAttributes(user_metadata or {})
        return self._write_if(
            Request(Operation.PUT_NEW_OBJECT, name, data=data, attributes=attributes)
        )

    def replace_object(
        self, name: str, data: bytes, version: ObjectVersion, *, user_metadata: Mapping[str, str]
    ) -> bool:
        """Write a whole object in one request, in place of a version of it that was seen.

        On S3, and on Azure through obstore, the store compares the version as it writes. Elsewhere
        it is compared just before. An interrupt waits for the end of the request.

        Args:
            name: Name of the object.
            data: Its bytes, at least one.
            version: The version that was seen (`ObjectInfo.version`).
            user_metadata: What is kept with it on S3, GCS and Azure, and nowhere else.

        Returns:
            Whether the object has these bytes now; if not, it is of another version.

        Raises:
            OptionError: The location cannot be written to.
            MissingObjectError: There is no such object any more.
            StorageError: The store refused, or went on failing; it may have the object then.
        """
        self.check_writable()
        attributes = ObjectAttributes(user_metadata)
        return self._write_if(
            Request(
                Operation.REPLACE_OBJECT, name, version=version, data=data, attributes=attributes
            )
        )

    def _write_if(self, request: Request) -> bool:
        """Write on a condition; whether the object has these bytes now."""
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
        """Write an object in parts, in place of one that has its name.

        On S3 that is a multipart upload. A part whose request failed is sent again whole; elsewhere
        it cannot be.

        Args:
            name: Name of the object.
            user_metadata: What is kept with it on S3, GCS and Azure, and nowhere else.
            content_type: Kept with it on S3 and GCS.

        Returns:
            A context manager that takes the parts; see there.

        Raises:
            OptionError: The location is a chain of URLs.
        """
        self.check_writable()
        attributes = ObjectAttributes(user_metadata, content_type)
        return ObjectUpload(name, attributes, self._sender.send)

    def delete_objects(self, names: Iterable[str]) -> None:
        """Delete objects, one after the other in the order given; one may be gone already.

        Args:
            names: Names of the objects.

        Raises:
            StorageError: The store refused, or went on failing; later objects were not deleted.
        """
        for name in names:
            self._sender.send(Request(Operation.DELETE_OBJECT, name))

    def unfinished_uploads(self, prefix: str = "") -> list[UnfinishedUpload]:
        """What was written of objects that are not complete: under way, or left by a process.

        Args:
            prefix: Only objects directly at the location whose names begin so.

        Returns:
            Multipart uploads on S3, files written aside in a folder. Always empty if the store
            shows nothing of the kind (GCS, Azure, memory).

        Raises:
            StorageError: The store refused, or went on failing.
        """
        return self._sender.listing(Operation.LIST_UPLOADS, prefix)

    def abort_upload(self, name: str, upload_id: str) -> None:
        """Remove what was written of an object that is not complete; it may be gone already.

        Args:
            name: Name of the object, as `unfinished_uploads` gives it.
            upload_id: Id of the upload, likewise.

        Raises:
            StorageError: The store refused, or went on failing.
        """
        self._sender.send(Request(Operation.ABORT_UPLOAD, name, upload_id=upload_id))

    def _resolve_version(
        self, name: str, version: ObjectVersion | None, tried: ObjectVersion | None
    ) -> ObjectVersion | None:
        """Return the version as which the store serves a listed one, if not as `tried`."""
        return self._versions.resolve(name, version, tried, self._relist, self._head)

    def _relist(self, name: str) -> list[ObjectInfo]:
        page: ListingPage[ObjectInfo] = self._sender.send(Request(Operation.LIST_OBJECT, name))
        return page.items

    def _head(self, name: str) -> ObjectHead:
        head: ObjectHead = self._sender.send(Request(Operation.HEAD, name))
        return head


def folder_and_name(path: str) -> tuple[str, str]:
    """Cut a path or URL before its last name, which is empty for a bucket and after a slash.

    Example:
        >>> folder_and_name("s3://bucket/prefix/name")
        ('s3://bucket/prefix/', 'name')
    """
    first, chain, inner = path.partition("::")
    scheme, colon, rest = first.rpartition("://")
    folder, slash, name = rest.rpartition("/")
    if colon and not slash:
        return path, ""
    return f"{scheme}{colon}{folder}{slash}{chain}{inner}", name
