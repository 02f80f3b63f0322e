"""Sending of one location's requests, with retries and typed errors."""

from __future__ import annotations

import logging
import os
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from arrow_io.core import telemetry
from arrow_io.errors import OptionError
from arrow_io.storage.attempts import Attempts, Refusals
from arrow_io.storage.connection import open_store
from arrow_io.storage.failures import RANGE_NOT_SATISFIABLE, http_status, storage_errors
from arrow_io.storage.listing_pages import ListingPage, ListingPages
from arrow_io.storage.object_store import RangeContent
from arrow_io.storage.request import LISTER_OPERATIONS, READER_OPERATIONS, Operation, Request
from arrow_io.storage.request_errors import (
    RequestErrors,
    check_version,
    ignored_range_error,
    no_bytes_error,
)
from arrow_io.storage.s3_object_store import S3ObjectStore
from arrow_io.storage.trace import RequestKind
from arrow_io.storage.tree_listing import list_tree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arrow_io.storage.attempts import Attempt, RetryPolicy
    from arrow_io.storage.object_store import ObjectInfo, ObjectStore
    from arrow_io.storage.request_threads import SendInThread
    from arrow_io.storage.store_uploads import StoreUpload
    from arrow_io.storage.trace import RequestTrace

_OF_RANGES: Final = frozenset({RequestKind.RANGE_GET, RequestKind.PART})
"""Requests for a part of an object."""


class RequestSender:
    """The sender of one location's requests; connects on first use, once in each process.

    Args:
        url: The location, as the user passed it.
        shown_url: The URL without secrets.
        storage_options: Options of the file system and of this project.
        retry: How often a request is repeated, and how long it may take.
        max_connections: Maximum number of concurrent requests.
        trace: Counts the requests.

    Attributes:
        refusals: Counter of the store's answers that it receives too many requests.
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
        self._shown_url = shown_url
        self._storage_options = storage_options
        self._retry = retry
        self._max_connections = max_connections
        self._trace = trace
        self._errors = RequestErrors(url, shown_url, storage_options)
        self._opened: tuple[int, ObjectStore] | None = None
        self.refusals = Refusals()

    def with_trace(self, trace: RequestTrace) -> RequestSender:
        """Return a sender over the same connection that counts its requests elsewhere."""
        self.store()
        other = copy(self)
        other._trace = trace  # noqa: SLF001 - of its own class
        return other

    def send(self, request: Request, upload: StoreUpload | None = None) -> Any:  # noqa: ANN401 - of the operation
        """Send a request to the store or an upload; repeat it after each transient error.

        Returns:
            The result of the method for the operation.

        Raises:
            PulsarOffloadError: The request failed, or the options do not fit the store.
        """
        attempts = Attempts(
            self._retry, request.can_repeat, len(request.data), refusals=self.refusals
        )
        with telemetry.operation(
            "request",
            logging.DEBUG,
            kind=request.kind,
            url=self._shown_url,
            object=request.object_key,
            start=request.start if request.kind in _OF_RANGES else None,
            stop=request.stop if request.kind in _OF_RANGES else None,
        ) as operation:
            try:
                answer = self._send(request, upload, attempts)
            finally:
                operation.note(attempts=attempts.count)
            operation.note(**_sizes(request, answer))
        return answer

    def _send(self, request: Request, upload: StoreUpload | None, attempts: Attempts) -> Any:  # noqa: ANN401 - as `send`
        try:
            store = self._store_for(request)
            method = getattr(upload or store, request.operation)
            with store.turn(self._retry.deadline_s, upload) as send_in_thread:
                while True:
                    attempt = attempts.begin()
                    self._count(request)
                    try:
                        try:
                            # Call the method directly, so that a stack trace shows the operation.
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
                            attempts.raise_earlier_error()
                            raise
                        _report_retry(request, error)
        except NotImplementedError:
            raise self._errors.read_only_error() from None
        except storage_errors() as error:
            # Do not chain: a traceback would print the library's text, which may contain secrets.
            raise self._errors.typed_error(error, request, attempts) from None

    def listing(
        self, operation: Operation, name: str = "", *, max_pages: int | None = None
    ) -> ListingPage[Any]:
        """Return all pages of a listing as one; each page has its own attempts and time.

        Args:
            operation: One of `LISTINGS`, except that of a tree.
            name: See `Request.name`.
            max_pages: Maximum number of pages. If there are more, the result has a `next_marker`.

        Raises:
            PulsarOffloadError: See `send`; or the pages do not end.
        """
        # Connect first: the time that it takes does not count as the store's.
        self.store()
        pages = ListingPages(self._retry)
        whole: ListingPage[Any] = ListingPage([])
        request = Request(operation, name)
        while True:
            pages.check_time()
            page = self.send(request)
            pages.count(page)
            whole.items.extend(page.items)
            whole.folders.extend(page.folders)
            if page.next_marker is None or pages.page_count == max_pages:
                return replace(whole, next_marker=page.next_marker)
            request = replace(request, marker=page.next_marker, listed_keys=pages.key_count)

    def tree(self, folder: str) -> list[ObjectInfo]:
        """Return the objects below a folder, in no order; see `list_tree`.

        Raises:
            PulsarOffloadError: See `send`; or the folders do not end.
        """
        threads = self._max_connections if self.store().is_async else 1
        return list_tree(self.send, folder, self._retry, threads)

    def _count(self, request: Request) -> None:
        kind = request.kind
        if kind in _OF_RANGES:
            self._trace.note_request(kind, request.name, request.start, request.stop)
        elif kind is not RequestKind.LIST:
            self._trace.note_request(kind, request.name)
        elif request.marker is None:
            # A listing counts as one request, whatever its number of pages and folders.
            self._trace.note_request(kind, "")

    def _check(self, request: Request, answer: object) -> None:
        """Check length and version of an answer, and count the received or sent bytes."""
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
        """Find out with a HEAD why an answer has no byte of a range, and return the error."""
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
        if request.operation in READER_OPERATIONS:
            return store.reader
        return store.lister if request.operation in LISTER_OPERATIONS else store

    def store(self) -> ObjectStore:
        """Return the store, connected in this process.

        Raises:
            PulsarOffloadError: The connection failed.
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
            raise self._errors.unusable_error(error) from None
        except storage_errors() as error:
            once = Attempts(self._retry, can_repeat=False, count=1)
            raise self._errors.typed_error(error, Request(Operation.LIST_FOLDER), once) from None
        return store


def _is_past_end(request: Request, error: Exception) -> bool:
    """Return whether the store reports that an object ends before a range."""
    return request.operation is Operation.GET_RANGE and http_status(error) == RANGE_NOT_SATISFIABLE


def _sizes(request: Request, answer: object) -> dict[str, int]:
    """Return the bytes of objects that a request received or sent."""
    if isinstance(answer, RangeContent):
        return {"received_bytes": len(answer.data)}
    return {"sent_bytes": len(request.data)} if request.data else {}


def _report_retry(request: Request, error: Exception) -> None:
    kind, status = request.kind, http_status(error)
    telemetry.count("retries", kind=kind, status=status)
    # Not the error's text: a library may have put a secret into it.
    reason = type(error).__name__
    name = request.object_key
    telemetry.log(logging.WARNING, "retry", kind=kind, object=name, status=status, reason=reason)
