"""Sends the requests of one location: each again if that may help, each failure a typed error."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from arrow_io.errors import OptionError
from arrow_io.storage.attempts import Attempts, Refusals
from arrow_io.storage.connection import open_store
from arrow_io.storage.failures import RANGE_NOT_SATISFIABLE, http_status, storage_errors
from arrow_io.storage.listing_pages import ListingPages
from arrow_io.storage.object_store import RangeContent
from arrow_io.storage.request import LISTER_OPERATIONS, Operation, Request
from arrow_io.storage.request_errors import (
    RequestErrors,
    check_version,
    ignored_range_error,
    no_bytes_error,
)
from arrow_io.storage.s3_object_store import S3ObjectStore
from arrow_io.storage.trace import RequestKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arrow_io.storage.attempts import Attempt, RetryPolicy
    from arrow_io.storage.object_store import ObjectStore
    from arrow_io.storage.request_threads import SendInThread
    from arrow_io.storage.store_uploads import StoreUpload
    from arrow_io.storage.trace import RequestTrace


class RequestSender:
    """Sends the requests of one location; connects at the first, once in each process.

    Args:
        url: The location, as the user gave it.
        shown_url: As it may be shown.
        storage_options: Options of the file system, and ours.
        retry: How often a request is sent again, and how long it may take.
        max_connections: Most requests at a time.
        trace: Counts the requests.

    Attributes:
        refusals: How often the store answered that it is asked for too much now.
    """

    def __init__(
        self,
        url: str,
        shown_url: str,
        storage_options: Mapping[str, object],
        retry: RetryPolicy,
        *,
        max_connections: int,
        trace: RequestTrace,
    ) -> None:
        self._url = url
        self._storage_options = storage_options
        self._retry = retry
        self._max_connections = max_connections
        self._trace = trace
        self._errors = RequestErrors(url, shown_url, storage_options)
        self._opened: tuple[int, ObjectStore] | None = None
        self.refusals = Refusals()

    def send(self, request: Request, upload: StoreUpload | None = None) -> Any:  # noqa: ANN401 - of the operation
        """Send a request, and send it again as long as it fails in a way that may pass.

        Args:
            request: The request.
            upload: The upload that it is about; None: the store.

        Returns:
            What the method of the store returns that the operation names.

        Raises:
            PulsarOffloadError: The request failed, or the options do not fit the store. Its class
                says what is wrong.
        """
        attempts = Attempts(
            self._retry, request.can_repeat, len(request.data), refusals=self.refusals
        )
        try:
            store = self._store_for(request)
            method = getattr(upload or store, request.operation)
            with store.turn(self._retry.deadline_s, upload) as send_in_thread:
                while True:
                    attempt = attempts.begin()
                    self._count(request)
                    try:
                        try:
                            # Nothing lies between here and the method that sends the request, so a
                            # stack shows what happens.
                            if send_in_thread is None:
                                answer = method(request, attempt)
                            else:
                                answer = send_in_thread(method, request, attempt)
                        except storage_errors() as error:
                            if not _is_past_end(request, error):
                                raise
                            answer = RangeContent(b"", None)
                        self._check(request, answer)
                        if request.operation is not Operation.GET_RANGE or answer.data:
                            return answer
                        raise self._explain_no_bytes(store, request, attempt, send_in_thread)
                    except storage_errors() as error:
                        if not attempts.pause_after(error):
                            attempts.raise_earlier()
                            raise
        except NotImplementedError:
            raise self._errors.read_only_error() from None
        except storage_errors() as error:
            # Not chained: a traceback would print the library's own text, which may hold secrets.
            raise self._errors.typed(error, request, attempts) from None

    def listing(self, operation: Operation, name: str = "") -> list[Any]:
        """Send the requests of a listing: each page has attempts and time of its own.

        Args:
            operation: One of `LISTINGS`.
            name: See `Request.name`.

        Returns:
            The items of all pages.

        Raises:
            PulsarOffloadError: See `send`; or the pages have no end.
        """
        # To connect, which the first page may wait for, is not the store's time.
        self.store()
        pages, items = ListingPages(self._retry), []
        request = Request(operation, name)
        while True:
            pages.check_time()
            page = self.send(request)
            pages.count(page)
            items += page.items
            if page.next_marker is None:
                return items
            request = replace(request, marker=page.next_marker, listed_keys=pages.key_count)

    def _count(self, request: Request) -> None:
        kind = request.kind
        if kind in {RequestKind.RANGE_GET, RequestKind.PART}:
            self._trace.note_request(kind, request.name, request.start, request.stop)
        elif kind is not RequestKind.LIST:
            self._trace.note_request(kind, request.name)
        elif request.marker is None:
            # A listing counts as one, whatever pages it takes.
            self._trace.note_request(kind, "")

    def _check(self, request: Request, answer: object) -> None:
        """Check an answer, and count its bytes or those that were sent.

        Raises:
            ObjectChangedError: It is of another version than the one that was requested.
            StorageError: It is longer than what was requested.
        """
        if isinstance(answer, RangeContent):
            is_range = request.operation is Operation.GET_RANGE
            if is_range and len(answer.data) > request.stop - request.start:
                raise ignored_range_error(request)
            check_version(request.name, request.version, answer.version)
            self._trace.note_received_bytes(request.kind, len(answer.data))
        elif request.data:
            self._trace.note_written_bytes(request.kind, len(request.data))

    def _explain_no_bytes(
        self,
        store: ObjectStore,
        request: Request,
        attempt: Attempt,
        send_in_thread: SendInThread | None,
    ) -> Exception:
        """Ask by a HEAD why an answer has no byte of a range."""
        head = Request(Operation.HEAD, request.name)
        self._count(head)
        try:
            if send_in_thread is None:
                object_head = store.head(head, attempt)
            else:
                object_head = send_in_thread(store.head, head, attempt)
            check_version(request.name, request.version, object_head.version)
        except storage_errors() as error:
            return error
        return no_bytes_error(request, object_head)

    def _store_for(self, request: Request) -> ObjectStore:
        store = self.store()
        return store.lister if request.operation in LISTER_OPERATIONS else store

    def store(self) -> ObjectStore:
        """The store, connected in this process.

        Raises:
            PulsarOffloadError: It cannot be connected.
        """
        # A file system of the parent process does not work in a forked child.
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = (os.getpid(), self._connect())
        return self._opened[1]

    def _connect(self) -> ObjectStore:
        try:
            store = open_store(self._url, self._storage_options, self._max_connections, self._retry)
            if isinstance(store, S3ObjectStore):
                store.connect()
        except OptionError:
            raise
        except (ImportError, TypeError, ValueError, KeyError) as error:
            raise self._errors.unusable(error) from None
        except storage_errors() as error:
            once = Attempts(self._retry, can_repeat=False, count=1)
            raise self._errors.typed(error, Request(Operation.LIST_OBJECTS), once) from None
        return store


def _is_past_end(request: Request, error: Exception) -> bool:
    """Return whether the store says that an object ends before a range."""
    return request.operation is Operation.GET_RANGE and http_status(error) == RANGE_NOT_SATISFIABLE
