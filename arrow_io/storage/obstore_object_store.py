"""One request at a time to S3, Google Cloud Storage or Azure through obstore, which is in Rust.

A request of ours is one request of obstore's, sent once. A listing and an upload are several, and
obstore sends each of them again as the storage options say.

obstore takes any XML that is no page of a listing for the last page, and gives nobody the answer to
look at. So listings of S3 are left to s3fs, and those of Google Cloud Storage are confirmed by one
request of gcsfs, whose ETags are others than those that obstore reads by. Of Azure, obstore refuses
such an answer.
"""

from __future__ import annotations

import copy
import errno
import os
import secrets
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar

import obstore
from obstore.store import AzureStore, GCSStore, S3Store

from arrow_io.errors import StorageError
from arrow_io.lazy import cached_property
from arrow_io.storage.cloud_object_stores import GcsObjectStore
from arrow_io.storage.failures import (
    PRECONDITION_FAILED,
    BrokenAnswerError,
    RetryPolicy,
    http_status,
)
from arrow_io.storage.object_store import (
    ObjectContent,
    ObjectHead,
    ObjectInfo,
    ObjectStore,
    RangeContent,
    UnfinishedUpload,
    range_ignored,
)
from arrow_io.storage.object_version import ETag, modified_in, version_in
from arrow_io.storage.obstore_errors import (
    OBSTORE_ERRORS,
    AnsweredError,
    OtherBytesError,
    translated,
)
from arrow_io.storage.obstore_options import NO_UPLOADS_LISTED
from arrow_io.storage.obstore_upload import PART_BYTES, ObstoreUpload
from arrow_io.storage.range_memory import RangeMemory
from arrow_io.storage.received_range import ReceivedRange
from arrow_io.storage.request_threads import wait_for
from arrow_io.storage.store_kinds import StoreKind
from arrow_io.storage.time_limit import BodyTime, TimeLimit
from arrow_io.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from obstore import GetOptions, GetResult, ListResult, PutMode

    from arrow_io.storage.attempts import Attempts
    from arrow_io.storage.listing_pages import ListingPages
    from arrow_io.storage.object_version import ObjectVersion
    from arrow_io.storage.obstore_options import ObstorePlace
    from arrow_io.storage.store_uploads import ObjectAttributes, StoreUpload

_Result = TypeVar("_Result")

_CLASSES: Final[Mapping[StoreKind, Callable[..., Any]]] = {
    StoreKind.S3: S3Store,
    StoreKind.GCS: GCSStore,
    StoreKind.AZURE: AzureStore,
}
_LONGEST: Final = timedelta(hours=1)
"""obstore knows no request without a limit of time: ours gives it up sooner."""
_LISTING_DEADLINES: Final = 10
"""Deadlines that all pages of a listing may take together: obstore shows none of them."""
_MANY_ATTEMPTS: Final = 10_000
_GREATEST: Final = "\U0010ffff"
"""No character of a key comes behind it."""
_NOT_METADATA: Final = frozenset(
    {
        "Cache-Control",
        "Content-Disposition",
        "Content-Encoding",
        "Content-Language",
        "Content-Type",
        "Storage-Class",
    }
)
"""Attributes of obstore's; it gives the names of user metadata in lower case."""


class _Runtime:
    """The threads of obstore, of which there is one set in a process.

    Attributes:
        is_lost: Whether they stayed behind in the parent of this process.
    """

    def __init__(self) -> None:
        self.is_lost = False
        self._is_used = False
        os.register_at_fork(after_in_child=self._fork)

    def use(self) -> None:
        """Check that there are, or can be, threads.

        Raises:
            StorageError: There are none: a request would wait for ever.
        """
        if self.is_lost:
            message = (
                "obstore does not work in a process that was forked from one that used it: start"
                " processes by 'spawn' or 'forkserver', or leave out the storage option client"
            )
            raise StorageError(message)
        self._is_used = True

    def _fork(self) -> None:
        self.is_lost = self._is_used


_runtime: Final = _Runtime()


class _Clients:
    """obstore's clients of one bucket: what may take how long, and how often it is sent.

    Args:
        place: Where the bucket is.
        max_connections: Connections that are kept open.
        retry: How often a request is sent, and how long it may take.
        connect_witness: See `ObstoreObjectStore`.
    """

    def __init__(
        self,
        place: ObstorePlace,
        max_connections: int,
        retry: RetryPolicy,
        connect_witness: Callable[[], ObjectStore] | None,
    ) -> None:
        _runtime.use()
        self._place = place
        self._max_connections = max_connections
        self._retry = retry
        self._connect_witness = connect_witness
        # What nobody waits for any more ends when nothing comes for as long as that.
        self.reads = self._client({"timeout": _LONGEST, "read_timeout": self._deadline})
        """Sends a request once, and leaves to us when to give it up."""

    @property
    def _deadline(self) -> timedelta:
        return timedelta(seconds=self._retry.deadline_s)

    @cached_property
    def witness(self) -> ObjectStore | None:
        """The store of another library, whose listings are checked; None: obstore lists alone."""
        return None if self._connect_witness is None else self._connect_witness()

    @cached_property
    def writes(self) -> Any:  # noqa: ANN401 - one of three classes
        """As `reads`, for bodies that take long to be sent."""
        return self._client({"timeout": _LONGEST})

    @cached_property
    def pages(self) -> Any:  # noqa: ANN401 - one of three classes
        """Sends each page of a listing again, and gives it up, by itself.

        Unless the user names a number of attempts, up to the deadline: a store may be busy for as
        long, and a listing that is sent again begins anew.
        """
        attempts = self._retry.attempts or _MANY_ATTEMPTS
        return self._client({"timeout": self._deadline}, attempts - 1)

    @cached_property
    def parts(self) -> Any:  # noqa: ANN401 - one of three classes
        """Sends each part of an upload again, and gives it up, by itself."""
        body = timedelta(seconds=PART_BYTES / self._retry.least_bytes_per_s)
        return self._client({"timeout": self._deadline + body}, self._retry.most_failures - 1)

    def _client(self, limits: Mapping[str, timedelta], retries: int = 0) -> Any:  # noqa: ANN401 - as above
        options = {
            **self._place.client_options,
            **limits,
            "pool_max_idle_per_host": str(self._max_connections),
        }
        backoff = {
            "init_backoff": timedelta(seconds=self._retry.first_delay_s),
            "max_backoff": timedelta(seconds=self._retry.max_delay_s),
        }
        retry = {
            "max_retries": retries,
            "retry_timeout": self._deadline,
            "backoff": backoff,
        }
        return _CLASSES[self._place.kind](
            self._place.bucket,
            config=self._place.config,
            client_options=options,
            retry_config=retry,
        )


class ObstoreObjectStore(ObjectStore):
    """A bucket, or a prefix in it.

    Args:
        place: Where it is.
        max_connections: Connections that are kept open.
        retry: How often a request is sent, and how long it may take.
        connect_witness: Connects to the bucket through the library that lists it, or that confirms
            its listings; None: obstore lists alone.

    Raises:
        ValueError: The prefix, or an option, is none for obstore.
    """

    puts_new: ClassVar[bool] = True

    def __init__(
        self,
        place: ObstorePlace,
        max_connections: int,
        retry: RetryPolicy,
        connect_witness: Callable[[], ObjectStore] | None = None,
    ) -> None:
        super().__init__(None, place.prefix)
        self._folder = f"{place.prefix}/" if place.prefix else ""
        self._kind = place.kind
        self._clients = _Clients(place, max_connections, retry, connect_witness)
        self._attempts: Attempts | None = None
        self._limit = TimeLimit()

    @property
    def is_async(self) -> bool:
        """Whether several threads can send requests at once: they can."""
        return True

    def within(self, seconds: float, least_bytes_per_s: float, attempts: Attempts) -> Self:
        """The same bucket, for requests that are given up when their time is over.

        Args:
            seconds: Time for a request, in seconds.
            least_bytes_per_s: So many bytes of a body, received or to be sent, add one second.
            attempts: Takes the status of the last answer.
        """
        limited = copy.copy(self)
        limited._attempts = attempts  # noqa: SLF001
        limited._limit = TimeLimit(seconds, least_bytes_per_s)  # noqa: SLF001
        return limited

    @property
    def lister(self) -> ObjectStore:
        """The store that lists: that of s3fs if the bucket is of S3."""
        witness = self._witness
        return self if witness is None or self._kind is StoreKind.GCS else witness

    @property
    def _witness(self) -> ObjectStore | None:
        witness, limit = self._clients.witness, self._limit
        if witness is None or self._attempts is None or limit.seconds is None:
            return witness
        return witness.within(limit.seconds, limit.least_bytes_per_s, self._attempts)

    def in_pages(self, pages: ListingPages) -> ObjectStore:
        """The store that lists, for one listing."""
        lister = self.lister
        return self if lister is self else lister.in_pages(pages)

    def listed_with(self, name: str) -> list[ObjectInfo]:
        """A listing that has an object, if it is there; and perhaps others."""
        lister = self.lister
        return self.list_objects() if lister is self else lister.listed_with(name)

    def list_objects(self) -> list[ObjectInfo]:
        """List the objects directly in the folder, in the store's order.

        Raises:
            StorageError: The server does not answer as a store does.
        """
        infos = []
        for entry in self._listed()["objects"]:
            name = entry["path"].removeprefix(self._folder)
            if entry["path"].startswith(self._folder) and name and "/" not in name:
                version = version_in(entry, entry["size"])
                infos.append(ObjectInfo(name, entry["size"], modified_in(entry), version))
        return infos

    def list_folders(self) -> list[str]:
        """Names of the folders directly in the folder, in the store's order.

        Raises:
            StorageError: The server does not answer as a store does.
        """
        paths = self._listed()["common_prefixes"]
        names = (path.removeprefix(self._folder).rstrip("/") for path in paths)
        return [name for name in names if name and "/" not in name]

    def _listed(self) -> ListResult[Any]:
        def listed(_time: BodyTime) -> ListResult[Any]:
            client = self._clients.pages
            return obstore.list_with_delimiter(client, self._root or None)

        seconds = self._limit.seconds
        limit = TimeLimit(None if seconds is None else seconds * _LISTING_DEADLINES)
        found = self._wait_for(listed, limit=limit)
        self._confirm(found)
        if not found["objects"] and not found["common_prefixes"]:
            self._check_empty()
        return found

    def _confirm(self, listing: ListResult[Any]) -> None:
        """Ask the witness, if there is one, whether objects follow those of a listing.

        Raises:
            ConnectionError: Some do: obstore took a page that was none for the last one.
        """
        witness = self._witness
        if witness is None:
            return
        assert isinstance(witness, GcsObjectStore)  # noqa: S101 - for mypy
        keys = [entry["path"] for entry in listing["objects"]]
        paths = [*keys, *(f"{path}/{_GREATEST}" for path in listing["common_prefixes"])]
        # The order is that of the bytes of UTF-8, which is that of code points.
        if witness.has_objects_from(max(paths, default=self._folder)):
            message = f"the server listed {counted(len(paths), 'name')}, and there are more"
            raise BrokenAnswerError(message)

    def _check_empty(self) -> None:
        """Ask whether a folder in which nothing was listed is one at all."""
        try:
            self._head(self._root or secrets.token_hex(16))
        except (FileNotFoundError, PermissionError):
            pass
        except OSError as error:
            if http_status(error) not in {401, 403, 404}:
                raise
        else:
            if not self._root:
                message = "the server says of any name that there is an object"
                raise StorageError(message)
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if self._root:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    def head(self, name: str) -> ObjectHead:
        """What the store says of an object: one HEAD."""
        return self._head(self._path(name))

    def _head(self, path: str) -> ObjectHead:
        def head(_time: BodyTime) -> GetResult:
            return obstore.get(self._clients.reads, path, options={"head": True})

        answer = _checked(self._wait_for(head))
        size_bytes, modified = answer.meta["size"], modified_in(answer.meta)
        return ObjectHead(size_bytes, _user_metadata(answer), _version(answer), modified)

    def get_object(
        self, name: str, limit_bytes: int, version: ObjectVersion | None = None
    ) -> ObjectContent:
        """The first `limit_bytes` bytes of an object and its user metadata, by one GET."""

        def get(time: BodyTime) -> ObjectContent:
            answer = self._get(name, version, {})
            received: list[bytes] = []
            self._receive(answer, limit_bytes, received.append, time)
            data = b"".join(received)[:limit_bytes]
            return ObjectContent(data, _user_metadata(answer), _version(answer))

        return self._wait_for(get)

    def get_range(
        self,
        name: str,
        start: int,
        stop: int,
        version: ObjectVersion | None = None,
        memory: RangeMemory | None = None,
    ) -> RangeContent:
        """The bytes `[start, stop)` of an object, or those that came before the body was cut.

        Raises:
            StorageError: The answer is something else.
        """

        def get(time: BodyTime) -> RangeContent:
            answer = self._get(name, version, {"range": (start, stop)})
            try:
                self._receive(answer, stop - start, received.add, time)
            except OBSTORE_ERRORS:
                # What came is right as far as it goes, so the next request goes on behind it.
                if not received.received_bytes:
                    raise
            return RangeContent(received.data(), _user_metadata(answer), _version(answer))

        received = ReceivedRange(stop - start, memory or RangeMemory())
        try:
            content = self._wait_for(get)
        except OtherBytesError:
            raise range_ignored(name, start, stop) from None
        if received.is_too_long:
            raise range_ignored(name, start, stop)
        return content

    def _get(self, name: str, version: ObjectVersion | None, options: GetOptions) -> GetResult:
        """The headers of an object, and its body, of which nothing is read yet."""
        if isinstance(version, ETag):
            options["if_match"] = f'"{version.text}"'
        return _checked(obstore.get(self._clients.reads, self._path(name), options=options))

    def _receive(
        self, answer: GetResult, limit_bytes: int, add: Callable[[bytes], None], time: BodyTime
    ) -> None:
        """Read about `limit_bytes` bytes of a body; what comes puts off the end of the time."""
        room = limit_bytes
        for part in answer.stream(min_chunk_size=0):
            add(part)
            time.received(len(part))
            room -= len(part)
            if room <= 0 or time.is_over:
                return

    def put_object(self, name: str, data: bytes, attributes: ObjectAttributes) -> None:
        """Write a whole object, in place of one that has its name: one PUT."""
        self._put(name, data, attributes, "overwrite")

    def put_new_object(self, name: str, data: bytes, attributes: ObjectAttributes) -> None:
        """Write a whole object unless there is one of its name: one conditional PUT."""
        self._put(name, data, attributes, "create")

    def put_object_over(
        self, name: str, data: bytes, attributes: ObjectAttributes, version: ObjectVersion
    ) -> None:
        """Write a whole object in place of a version of it: one conditional PUT."""
        if not isinstance(version, ETag):
            super().put_object_over(name, data, attributes, version)
            return
        try:
            self._put(name, data, attributes, {"e_tag": f'"{version.text}"'})
        except AnsweredError as error:
            if http_status(error) != PRECONDITION_FAILED:
                raise
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None

    def _put(self, name: str, data: bytes, attributes: ObjectAttributes, mode: PutMode) -> None:
        def put(_time: BodyTime) -> object:
            return obstore.put(
                self._clients.writes,
                self._path(name),
                data,
                attributes=_sent(attributes),
                mode=mode,
                use_multipart=False,
            )

        self._wait_for(put, len(data))

    def begin_upload(self, name: str, attributes: ObjectAttributes) -> StoreUpload:
        """Begin an object that is written in parts."""
        return ObstoreUpload(self._clients.parts, self._path(name), _sent(attributes))

    def delete_object(self, name: str) -> None:
        """Delete an object, if it is there."""

        def delete(_time: BodyTime) -> None:
            obstore.delete(self._clients.reads, self._path(name))

        try:
            self._wait_for(delete)
        except FileNotFoundError as error:
            if getattr(error, "response", {}).get("Error", {}).get("Code") == "NoSuchBucket":
                raise

    def list_uploads(self, prefix: str) -> list[UnfinishedUpload]:
        """None: Azure shows no blocks of a blob that is not complete, and drops them in a week.

        Raises:
            StorageError: On Google Cloud Storage, of which obstore cannot tell.
        """
        del prefix
        self._check_no_uploads()
        return []

    def abort_upload(self, name: str, upload_id: str) -> None:
        """Abort a multipart upload of S3, if it is there.

        Raises:
            StorageError: See `list_uploads`.
        """
        lister = self.lister
        if lister is self:
            self._check_no_uploads()
        else:
            lister.abort_upload(name, upload_id)

    def _check_no_uploads(self) -> None:
        if self._kind is not StoreKind.AZURE:
            raise StorageError(NO_UPLOADS_LISTED)

    def _wait_for(
        self,
        send: Callable[[BodyTime], _Result],
        sent_bytes: int = 0,
        limit: TimeLimit | None = None,
    ) -> _Result:
        """Send a request, and give it up when its time is over."""

        def told(time: BodyTime) -> _Result:
            try:
                return send(time)
            except OBSTORE_ERRORS as error:
                known = translated(error)
                if self._attempts is not None:
                    self._attempts.last_status = http_status(known)
                # Its own text is long, and may hold what must not be shown.
                raise known from None

        return wait_for(told, (limit or self._limit).begin(sent_bytes))


def _checked(answer: GetResult) -> GetResult:
    """Return the answer for an object.

    Raises:
        BrokenAnswerError: It is no store's, but perhaps the page of some proxy.
    """
    if answer.meta["e_tag"] is None:
        message = "the answer names no ETag, so it is not the store's"
        raise BrokenAnswerError(message)
    return answer


def _user_metadata(answer: GetResult) -> dict[str, str]:
    attributes = answer.attributes.items()
    return {name.lower(): value for name, value in attributes if name not in _NOT_METADATA}


def _version(answer: GetResult) -> ObjectVersion | None:
    return version_in(answer.meta, answer.meta["size"])


def _sent(attributes: ObjectAttributes) -> dict[str, str]:
    return {**attributes.user_metadata, "Content-Type": attributes.content_type}
