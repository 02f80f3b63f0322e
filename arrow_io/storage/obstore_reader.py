"""GETs of a bucket through obstore, or through the package of its file system.

obstore takes less processor time for a GET. The package repeats a GET that fails through obstore,
unless the answer is the store's final one. Until obstore has received an object, a refusal is not
final, because the package may have other credentials, proxies or certificates. If the package then
receives the object, it sends all later GETs too.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import replace
from threading import Semaphore
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary, ref

from arrow_io.core import telemetry
from arrow_io.core.lazy import cached_property
from arrow_io.storage.failures import (
    PRECONDITION_FAILED,
    RANGE_NOT_SATISFIABLE,
    http_status,
    is_transient,
    says_try_later,
    storage_errors,
)
from arrow_io.storage.object_store import ObjectStore
from arrow_io.storage.obstore_runtime import runtime
from arrow_io.storage.request_threads import send_in_thread
from arrow_io.storage.resolved_places import FsspecOnlyError, resolved_place
from arrow_io.storage.store_kinds import StoreKind, prefix_in_store, store_kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fsspec.spec import AbstractFileSystem

    from arrow_io.storage.attempts import Attempt, RetryPolicy
    from arrow_io.storage.object_store import ObjectContent, ObjectHead, RangeContent
    from arrow_io.storage.obstore_object_store import ObstoreObjectStore
    from arrow_io.storage.request import Request
    from arrow_io.storage.request_threads import SendInThread
    from arrow_io.storage.store_uploads import StoreUpload

_CLIENT_ERRORS: Final = range(400, 500)
_OF_VERSION_OR_LENGTH: Final = frozenset({PRECONDITION_FAILED, RANGE_NOT_SATISFIABLE})


class _SharedClient:
    """obstore's client of one bucket, which all locations in it share.

    Attributes:
        slots: Bounds the requests that are sent at once.
        has_received: Whether obstore has received an object.
        is_unfit: Whether the package of the file system sends all later GETs.
    """

    def __init__(
        self, url: str, file_system: AbstractFileSystem, max_connections: int, retry: RetryPolicy
    ) -> None:
        self._url = url
        # A strong reference would keep the key of `_clients` alive.
        self._file_system = ref(file_system)
        self._max_connections = max_connections
        self._retry = retry
        self.slots = Semaphore(max_connections)
        self.has_received = False
        self.is_unfit = False

    @cached_property
    def store(self) -> ObstoreObjectStore | None:
        """The bucket; None if the package sends all GETs."""
        from arrow_io.storage.obstore_object_store import (  # noqa: PLC0415 - an extra
            ObstoreObjectStore,
        )

        reason = "this process was forked from one that used obstore"
        if not runtime.is_in_parent:
            try:
                place = resolved_place(self._url, self._file_system())
                return ObstoreObjectStore(place, self._max_connections, self._retry)
            except FsspecOnlyError as error:
                reason = str(error)
            except Exception as error:  # noqa: BLE001 - the package reports it, or does not mind
                reason = f"obstore or the package rejects the options: {type(error).__name__}"
        self.give_up(reason)
        return None

    def give_up(self, reason: str) -> None:
        """Let the package send all later GETs."""
        self.is_unfit = True
        telemetry.log(logging.DEBUG, "client", client="fsspec", reason=reason)

    def may_succeed_elsewhere(self, error: Exception) -> bool:
        """Return whether the package may succeed where obstore failed."""
        status = http_status(error)
        if says_try_later(error) or status in _OF_VERSION_OR_LENGTH:
            return False
        is_final = status in _CLIENT_ERRORS and not is_transient(error)
        return not (is_final and self.has_received)


_clients: WeakKeyDictionary[AbstractFileSystem, dict[object, _SharedClient]] = WeakKeyDictionary()


class ObstoreReader(ObjectStore):
    """The store for GETs of a bucket whose file system is fsspec's.

    Args:
        url: URL of S3, Google Cloud Storage or Azure.
        store: The store of the file system.
        file_system: The connected file system of s3fs, gcsfs or adlfs.
        max_connections: Maximum number of concurrent requests.
        retry: How often a request is sent, and how long it may take.
    """

    def __init__(
        self,
        url: str,
        store: ObjectStore,
        file_system: AbstractFileSystem,
        max_connections: int,
        retry: RetryPolicy,
    ) -> None:
        super().__init__(file_system, "")
        prefix = prefix_in_store(url)
        self._prefix = f"{prefix}/" if prefix else ""
        self._store = store
        # gcsfs lists other ETags of Google Cloud Storage than obstore reads with. So a stream
        # compares versions with a HEAD of gcsfs, as it does without obstore.
        self._knows_versions = store_kind(url) is not StoreKind.GCS
        bucket = url.removesuffix("/").removesuffix(prefix)
        key = bucket, max_connections, retry
        client = _SharedClient(bucket, file_system, max_connections, retry)
        self._client = _clients.setdefault(file_system, {}).setdefault(key, client)

    @property
    def is_async(self) -> bool:
        """True: several threads can send requests at once."""
        return True

    @contextmanager
    def turn(self, patience_s: float, upload: StoreUpload | None) -> Iterator[SendInThread | None]:
        """Wait for a connection, and send requests in a thread, unless the package sends them."""
        if self._client.is_unfit:
            with self._store.turn(patience_s, upload) as send:
                yield send
        else:
            with self._client.slots:
                yield send_in_thread

    def head(self, request: Request, attempt: Attempt) -> ObjectHead:
        """Return what the store reports to the package about an object."""
        return self._store.head(request, attempt)

    def get_object(self, request: Request, attempt: Attempt) -> ObjectContent:
        """Return the first `stop` bytes of an object and its user metadata, by one GET."""
        content: ObjectContent = self._get(request, attempt)
        return content

    def get_range(self, request: Request, attempt: Attempt) -> RangeContent:
        """Return the bytes `[start, stop)` of an object, or those before the connection ended.

        Raises:
            OtherBytesError: The answer is not the requested range.
        """
        content: RangeContent = self._get(request, attempt)
        return content

    def _get(self, request: Request, attempt: Attempt) -> Any:  # noqa: ANN401 - of the operation
        client = self._client
        store = None if client.is_unfit else client.store
        if store is None:
            return getattr(self._store, request.operation)(request, attempt)
        try:
            content = self._ask(store, request, attempt)
        except storage_errors() as error:
            attempt.attempts.sent_requests += 1
            attempt.seconds = attempt.remaining_s()
            if not attempt.seconds or not client.may_succeed_elsewhere(error):
                raise
            content = getattr(self._store, request.operation)(request, attempt)
            if not client.has_received:
                client.give_up(f"the first GET through obstore failed: {type(error).__name__}")
            return content
        client.has_received = True
        return content

    def _ask(self, store: ObstoreObjectStore, request: Request, attempt: Attempt) -> Any:  # noqa: ANN401 - as `_get`
        get, name = getattr(store, request.operation), f"{self._prefix}{request.name}"
        if self._knows_versions:
            return get(replace(request, name=name), attempt)
        return replace(get(replace(request, name=name, version=None), attempt), version=None)
