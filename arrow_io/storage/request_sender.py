"""Sends the requests of one location: each again if that may help, each failure a typed error."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from arrow_io.errors import OptionError
from arrow_io.storage.attempts import Attempts, Refusals
from arrow_io.storage.connection import open_store
from arrow_io.storage.failures import RequestGivenUpError, says_try_later, storage_errors
from arrow_io.storage.listing_pages import ListingPages
from arrow_io.storage.request_errors import RequestErrors
from arrow_io.storage.s3_object_store import S3ObjectStore
from arrow_io.storage.time_limit import TimeLimit
from arrow_io.storage.trace import RequestKind
from arrow_io.storage.turns import LISTING_DEADLINES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from arrow_io.storage.failures import RetryPolicy
    from arrow_io.storage.object_store import ObjectStore
    from arrow_io.storage.trace import RequestTrace

_Result = TypeVar("_Result")


class RequestSender:
    """Sends the requests of one location; connects at the first, once in each process.

    Args:
        url: The location, as the user gave it.
        shown_url: As it may be shown.
        storage_options: Options of the file system, and ours.
        retry: How often a request is sent again, and how long it may take.
        max_connections: Most requests at a time.

    Attributes:
        refusals: How often the store answered that it is asked for too much now.
    """

    def __init__(
        self,
        url: str,
        shown_url: str,
        storage_options: Mapping[str, object],
        retry: RetryPolicy,
        max_connections: int,
    ) -> None:
        self._url = url
        self._shown_url = shown_url
        self._storage_options = storage_options
        self._retry = retry
        self._max_connections = max_connections
        self._errors = RequestErrors(url, shown_url, storage_options)
        self._opened: tuple[int, ObjectStore] | None = None
        self.refusals = Refusals()

    def send(
        self,
        name: str | None,
        send: Callable[[ObjectStore], _Result],
        offset: int | None = None,
        *,
        repeat: bool = True,
        sent_bytes: int = 0,
    ) -> _Result:
        """Send a request, and send it again as long as it fails in a way that may pass.

        Args:
            name: Name of the object; None for a listing.
            send: Sends the request once.
            offset: First byte asked for, in bytes, if it is for a range.
            repeat: Whether it may be sent again.
            sent_bytes: Length of the body that each attempt sends, in bytes.

        Raises:
            PulsarOffloadError: The request failed, or the options do not fit the store. Its class
                says what is wrong.
        """
        store = self.store()
        attempts = Attempts(self._retry, can_repeat=repeat, refusals=self.refusals)

        def attempt(seconds: float) -> _Result:
            attempts.count += 1
            least = self._retry.least_bytes_per_s
            limit = TimeLimit(seconds * (LISTING_DEADLINES if name is None else 1), least)
            try:
                return send_in_turn(
                    partial(send, store.within(seconds, least, attempts)),
                    partial(limit.begin, sent_bytes),
                )
            except storage_errors() as error:
                attempts.is_late = isinstance(error, RequestGivenUpError)
                attempts.failure_count += self._retry.counts(error)
                if says_try_later(error):
                    self.refusals.note()
                raise

        try:
            retry = self._retry if repeat else replace(self._retry, attempts=1)
            with store.turn(self._retry.deadline_s) as send_in_turn:
                return retry.call_within(attempt, sent_bytes)
        except NotImplementedError:
            message = f"{self._shown_url}: its file system is only read, not written to"
            raise OptionError(message) from None
        except storage_errors() as error:
            # Not chained: a traceback would print the library's own text, which may hold secrets.
            raise self._errors.typed(error, name, offset, attempts) from None

    def listing(self, listed: Callable[[ObjectStore], _Result], trace: RequestTrace) -> _Result:
        """Send the requests of a listing: each page has attempts and time of its own.

        Raises:
            PulsarOffloadError: See `send`.
        """
        pages = ListingPages(self._retry, partial(self.send, None))

        def send(store: ObjectStore) -> _Result:
            trace.sent(RequestKind.LIST, "")
            return listed(store.in_pages(pages))

        return self.send(None, send)

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
            raise self._errors.typed(error, None, None, once) from None
        return store
