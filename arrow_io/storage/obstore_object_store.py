"""S3, Google Cloud Storage and Azure through obstore, which is written in Rust.

A request is one request of obstore, sent once, in a thread that can be abandoned. A listing or an
upload consists of several requests, which obstore repeats itself, as the storage options say.

obstore takes any XML that is not a listing page for the last page, and does not expose the answer.
So the store of another library, the *witness*, replaces or checks its listings: s3fs lists S3; one
request of gcsfs confirms a listing of Google Cloud Storage (gcsfs lists other ETags than obstore
reads with). On Azure, obstore rejects such an answer.
"""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final

import obstore
from obstore.store import AzureStore, GCSStore, S3Store

from arrow_io.core.lazy import cached_property
from arrow_io.errors import StorageError
from arrow_io.storage.cloud_object_stores import GcsObjectStore
from arrow_io.storage.failures import BrokenAnswerError, OtherBytesError, http_status, s3_error_code
from arrow_io.storage.listing_pages import KEY_BYTES, MAX_KEYS, ListingPage
from arrow_io.storage.object_store import (
    ObjectContent,
    ObjectHead,
    ObjectInfo,
    ObjectStore,
    RangeContent,
    UnfinishedUpload,
    names_in_folder,
)
from arrow_io.storage.object_version import ETag, modified_in, version_in
from arrow_io.storage.obstore_errors import OBSTORE_ERRORS, translate_error
from arrow_io.storage.obstore_options import NO_UPLOADS_LISTED
from arrow_io.storage.obstore_runtime import runtime
from arrow_io.storage.obstore_upload import PART_BYTES, ObstoreUpload
from arrow_io.storage.range_memory import RangeMemory
from arrow_io.storage.received_range import ReceivedRange
from arrow_io.storage.request_threads import send_in_thread
from arrow_io.storage.store_kinds import StoreKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from obstore import GetOptions, GetResult, ObjectMeta, PutMode

    from arrow_io.storage.attempts import Attempt, RetryPolicy
    from arrow_io.storage.object_version import ObjectVersion
    from arrow_io.storage.obstore_options import ObstorePlace
    from arrow_io.storage.request import ObjectAttributes, Request
    from arrow_io.storage.request_threads import SendInThread
    from arrow_io.storage.store_uploads import StoreUpload

_CLASSES: Final[Mapping[StoreKind, Callable[..., Any]]] = {
    StoreKind.S3: S3Store,
    StoreKind.GCS: GCSStore,
    StoreKind.AZURE: AzureStore,
}
_MAX_TIME: Final = timedelta(hours=1)
"""Maximum time of a request for obstore, which requires one; this project cancels it sooner."""
_MAX_WHOLE_BYTES: Final = 8 << 20
"""Maximum size of a range that is received in one call, which nothing can cancel."""
_MANY_ATTEMPTS: Final = 10_000
_LAST_CHARACTER: Final = "\U0010ffff"
"""The last character in the order of keys."""
_SYSTEM_ATTRIBUTES: Final = frozenset(
    {
        "Cache-Control",
        "Content-Disposition",
        "Content-Encoding",
        "Content-Language",
        "Content-Type",
        "Storage-Class",
    }
)
"""Attributes of obstore that are not user metadata, whose names it returns in lower case."""


class _Clients:
    """obstore's clients of one bucket, with the timeouts and retries of each kind of request.

    See `ObstoreObjectStore` for the arguments.
    """

    def __init__(
        self,
        place: ObstorePlace,
        max_connections: int,
        retry: RetryPolicy,
        connect_witness: Callable[[], ObjectStore] | None,
    ) -> None:
        runtime.use()
        self._place = place
        self._max_connections = max_connections
        self._retry = retry
        self._connect_witness = connect_witness
        # The read timeout ends an abandoned request once no bytes have arrived for that time.
        self.reads = self._client({"timeout": _MAX_TIME, "read_timeout": self._deadline})
        """Sends a request once; this project decides when to cancel it."""

    @property
    def _deadline(self) -> timedelta:
        return timedelta(seconds=self._retry.deadline_s)

    @cached_property
    def witness(self) -> ObjectStore | None:
        """The witness; None if obstore lists alone."""
        return None if self._connect_witness is None else self._connect_witness()

    @cached_property
    def writes(self) -> Any:  # noqa: ANN401 - one of three classes
        """Like `reads`, without a read timeout: a large body takes long to send."""
        return self._client({"timeout": _MAX_TIME})

    @cached_property
    def pages(self) -> Any:  # noqa: ANN401 - one of three classes
        """Repeats and cancels each page of a listing itself.

        Without a number of attempts from the user, it retries until the deadline: a store may be
        busy for that long, and repeating a whole listing would start it over.
        """
        attempts = self._retry.attempts or _MANY_ATTEMPTS
        return self._client({"timeout": self._deadline}, attempts - 1)

    @cached_property
    def parts(self) -> Any:  # noqa: ANN401 - one of three classes
        """Repeats and cancels each part of an upload itself."""
        body = timedelta(seconds=PART_BYTES / self._retry.least_bytes_per_s)
        return self._client({"timeout": self._deadline + body}, self._retry.most_failures - 1)

    def _client(self, limits: Mapping[str, timedelta], retries: int = 0) -> Any:  # noqa: ANN401 - as above
        options = {
            **self._place.client_options,
            **limits,
            "pool_max_idle_per_host": str(self._max_connections),
            "allow_http": self._place.allows_http,
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
            credential_provider=self._place.credentials,
        )


class ObstoreObjectStore(ObjectStore):
    """A bucket, or a prefix in it.

    Args:
        place: The bucket and prefix.
        max_connections: Number of connections that are kept open.
        retry: How often a request is sent, and how long it may take.
        connect_witness: Connects the witness; None if obstore lists alone.

    Raises:
        ValueError: obstore rejects the prefix or an option.
    """

    can_put_new: ClassVar[bool] = True

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
        # A single attempt must keep the bytes before a cut.
        self._reads_whole_bodies = retry.most_failures > 1

    @property
    def is_async(self) -> bool:
        """True: several threads can send requests at once."""
        return True

    def turn(
        self, patience_s: float, upload: StoreUpload | None
    ) -> AbstractContextManager[SendInThread | None]:
        """Send requests in a thread; an upload sends its parts in its own threads."""
        return nullcontext(send_in_thread if upload is None else None)

    @property
    def lister(self) -> ObjectStore:
        """The store for listings: for S3, that of s3fs."""
        witness = self._clients.witness
        return self if witness is None or self._kind is StoreKind.GCS else witness

    @property
    def has_folders(self) -> bool:
        """False: a folder is a prefix of objects."""
        return False

    def list_folder(self, request: Request, attempt: Attempt) -> ListingPage[ObjectInfo]:
        """List the objects and folders directly in a folder, in the store's order.

        Raises:
            StorageError: The server does not answer like a store.
        """
        folder = self._folder_path(request.name)
        path = folder.removesuffix("/")
        with _translate_errors(attempt):
            listing = obstore.list_with_delimiter(self._clients.pages, path or None)
        prefixes = listing["common_prefixes"]
        last_keys = [f"{prefix}/{_LAST_CHARACTER}" for prefix in prefixes]
        keys = [entry["path"] for entry in listing["objects"]]
        self._confirm(request.name, [*keys, *last_keys], attempt)
        if not keys and not prefixes:
            self._check_empty(path, attempt)
        objects = self._objects(listing["objects"], folder)
        return ListingPage(objects, names_in_folder(path, prefixes), len(keys) + len(prefixes))

    def list_tree(self, request: Request, attempt: Attempt) -> ListingPage[ObjectInfo]:
        """List the objects below a folder, in the store's order: one page.

        Raises:
            StorageError: There are more objects than a listing may have.
        """
        folder = self._folder_path(request.name)
        entries: list[ObjectMeta] = []
        with _translate_errors(attempt):
            for chunk in obstore.list(self._clients.pages, folder.removesuffix("/") or None):
                entries += chunk
                attempt.extend(len(chunk) * KEY_BYTES)
                if attempt.is_over or len(entries) > MAX_KEYS:
                    break
        if len(entries) <= MAX_KEYS:
            self._confirm(request.name, [entry["path"] for entry in entries], attempt)
        return ListingPage(self._objects(entries, folder), key_count=len(entries))

    def _objects(self, entries: Iterable[ObjectMeta], folder: str) -> list[ObjectInfo]:
        return [
            ObjectInfo(
                entry["path"].removeprefix(self._folder),
                entry["size"],
                modified_in(entry),
                version_in(entry, entry["size"]),
            )
            for entry in entries
            if entry["path"].startswith(folder) and not entry["path"].endswith("/")
        ]

    def _confirm(self, folder: str, last_keys: Iterable[str], attempt: Attempt) -> None:
        """Raise `BrokenAnswerError` if the witness finds objects after those of a listing.

        Then obstore took a broken page for the last one.
        """
        witness = self._clients.witness
        if witness is None:
            return
        assert isinstance(witness, GcsObjectStore)  # noqa: S101 - for mypy
        # Keys are in the order of their UTF-8 bytes, which is the order of code points.
        last = max(last_keys, default=self._folder_path(folder))
        if witness.has_objects_from(folder, last, attempt):
            message = f"the server listed the names up to {last!r}, but the bucket has more"
            raise BrokenAnswerError(message)

    def _check_empty(self, path: str, attempt: Attempt) -> None:
        """Check that a folder without listed objects exists; `path` is empty for the bucket."""
        try:
            self._head(path or secrets.token_hex(16), attempt)
        except (FileNotFoundError, PermissionError):
            pass
        except OSError as error:
            if http_status(error) not in {401, 403, 404}:
                raise
        else:
            if not path:
                message = "the server reports an object for any name, so it is not a store"
                raise StorageError(message)
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if path:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    def head(self, request: Request, attempt: Attempt) -> ObjectHead:
        """Return what the store reports about an object: one HEAD."""
        return self._head(self._path(request.name), attempt)

    def _head(self, path: str, attempt: Attempt) -> ObjectHead:
        with _translate_errors(attempt):
            answer = obstore.get(self._clients.reads, path, options={"head": True})
        _check_answer(answer)
        size_bytes, modified = answer.meta["size"], modified_in(answer.meta)
        return ObjectHead(size_bytes, _user_metadata(answer), _version(answer), modified)

    def get_object(self, request: Request, attempt: Attempt) -> ObjectContent:
        """Return the first `stop` bytes of an object and its user metadata, by one GET."""
        path, options = self._path(request.name), _get_options(request)
        received: list[bytes] = []
        with _translate_errors(attempt):
            answer = obstore.get(self._clients.reads, path, options=options)
            _check_answer(answer)
            _receive(answer, request.stop, received.append, attempt)
        data = b"".join(received)[: request.stop]
        return ObjectContent(data, _user_metadata(answer), _version(answer))

    def get_range(self, request: Request, attempt: Attempt) -> RangeContent:
        """Return the bytes `[start, stop)` of an object, or those before the connection ended.

        Raises:
            OtherBytesError: The answer is not the requested range.
        """
        path, options = self._path(request.name), _get_options(request)
        options["range"] = (request.start, request.stop)
        size_bytes = request.stop - request.start
        with _translate_errors(attempt):
            answer = obstore.get(self._clients.reads, path, options=options)
            _check_answer(answer)
            if self._reads_whole_bodies and size_bytes <= _MAX_WHOLE_BYTES:
                data = self._receive_whole(answer, size_bytes, attempt)
            else:
                data = _receive_parts(answer, request, attempt)
        if len(data) > size_bytes:
            raise OtherBytesError
        return RangeContent(data, _user_metadata(answer), _version(answer))

    def _receive_whole(self, answer: GetResult, size_bytes: int, attempt: Attempt) -> memoryview:
        """Receive a body in one call, outside Python's lock and without a copy in Python.

        A body that is cut is lost. So all later bodies are received in parts, of which those before
        a cut are kept.
        """
        # The arrival of parts cannot be observed: allow the slowest transfer.
        attempt.extend(size_bytes)
        try:
            return memoryview(answer.bytes())
        except OBSTORE_ERRORS:
            self._reads_whole_bodies = False
            raise

    def put_object(self, request: Request, attempt: Attempt) -> None:
        """Write a whole object, replacing one with the same name: one PUT."""
        self._put(request, attempt, "overwrite")

    def put_new_object(self, request: Request, attempt: Attempt) -> None:
        """Write a whole object unless the name is taken: one conditional PUT."""
        self._put(request, attempt, "create")

    def replace_object(self, request: Request, attempt: Attempt) -> None:
        """Write a whole object in place of a version of it: one conditional PUT."""
        if isinstance(request.version, ETag):
            self._put(request, attempt, {"e_tag": f'"{request.version.text}"'})
        else:
            super().replace_object(request, attempt)

    def _put(self, request: Request, attempt: Attempt, mode: PutMode) -> None:
        with _translate_errors(attempt):
            obstore.put(
                self._clients.writes,
                self._path(request.name),
                request.data,
                attributes=_put_attributes(request.attributes),
                mode=mode,
                use_multipart=False,
            )

    def begin_upload(self, request: Request, attempt: Attempt) -> StoreUpload:
        """Start an object that is written in parts."""
        path, attributes = self._path(request.name), _put_attributes(request.attributes)
        return ObstoreUpload(self._clients.parts, path, attributes)

    def delete_object(self, request: Request, attempt: Attempt) -> None:
        """Delete an object if it exists."""
        try:
            with _translate_errors(attempt):
                obstore.delete(self._clients.reads, self._path(request.name))
        except FileNotFoundError as error:
            if s3_error_code(error) == "NoSuchBucket":
                raise

    def list_uploads(self, request: Request, attempt: Attempt) -> ListingPage[UnfinishedUpload]:
        """Return an empty page: Azure does not show incomplete blobs, and drops them in a week.

        Raises:
            StorageError: On S3 and Google Cloud Storage, whose uploads obstore cannot list.
        """
        self.abort_upload(request, attempt)
        return ListingPage([])

    def abort_upload(self, request: Request, attempt: Attempt) -> None:
        """Do nothing, as there are none (`list_uploads`).

        Raises:
            StorageError: See `list_uploads`.
        """
        if self._kind is not StoreKind.AZURE:
            raise StorageError(NO_UPLOADS_LISTED)


@contextmanager
def _translate_errors(attempt: Attempt) -> Iterator[None]:
    try:
        yield
    except OBSTORE_ERRORS as error:
        typed_error = translate_error(error)
        attempt.attempts.last_status = http_status(typed_error)
        # Do not chain: the original text is long and may contain secrets.
        raise typed_error from None


def _check_answer(answer: GetResult) -> None:
    """Raise `BrokenAnswerError` if an answer has no ETag: it is a proxy's, not the store's."""
    if answer.meta["e_tag"] is None:
        message = "the answer names no ETag, so it is not the store's"
        raise BrokenAnswerError(message)


def _get_options(request: Request) -> GetOptions:
    version = request.version
    return {"if_match": f'"{version.text}"'} if isinstance(version, ETag) else {}


def _receive(
    answer: GetResult, limit_bytes: int, add: Callable[[bytes], None], attempt: Attempt
) -> None:
    """Read about `limit_bytes` bytes of a body; received bytes extend the attempt's time."""
    room = limit_bytes
    for part in answer.stream(min_chunk_size=0):
        add(part)
        attempt.extend(len(part))
        room -= len(part)
        if room <= 0 or attempt.is_over:
            return


def _receive_parts(answer: GetResult, request: Request, attempt: Attempt) -> memoryview:
    """Receive the body of a range in parts, or those before the connection ended.

    Raises:
        OtherBytesError: The body is longer than the range.
    """
    size_bytes = request.stop - request.start
    received = ReceivedRange(size_bytes, request.memory or RangeMemory())
    try:
        _receive(answer, size_bytes, received.add, attempt)
    except OBSTORE_ERRORS:
        # The received bytes are valid; the next request continues after them.
        if not received.received_bytes:
            raise
    if received.is_too_long:
        raise OtherBytesError
    return received.data()


def _user_metadata(answer: GetResult) -> dict[str, str]:
    attributes = answer.attributes.items()
    return {name.lower(): value for name, value in attributes if name not in _SYSTEM_ATTRIBUTES}


def _version(answer: GetResult) -> ObjectVersion | None:
    return version_in(answer.meta, answer.meta["size"])


def _put_attributes(attributes: ObjectAttributes) -> dict[str, str]:
    return {**attributes.user_metadata, "Content-Type": attributes.content_type}
