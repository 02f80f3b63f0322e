"""Requests to file systems that block: one at a time on each connection, each within its time.

The file system of FTP, of SFTP and of many other protocols has one connection, on which the bytes
of two requests would mix. A request that is given up may still hold that connection, so the next
one waits until the library has ended the first.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractFileSystem

from arrow_io.storage.failures import RequestGivenUpError
from arrow_io.storage.request_threads import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from arrow_io.storage.time_limit import BodyTime

_Result = TypeVar("_Result")

LISTING_DEADLINES: Final = 10
"""How many times the time of a request a listing may take, whose pages a library fetches itself."""

_ANY_NUMBER_OF_THREADS: Final = (AsyncFileSystem, LocalFileSystem, MemoryFileSystem)
"""File systems that several threads may use at once."""


class SendRequest(Protocol):
    """Sends a request within a time."""

    def __call__(self, send: Callable[[], _Result], body_time: Callable[[], BodyTime]) -> _Result:
        """Send it; `body_time` starts the time. Raises what `send` raises."""


class Turns:
    """The requests to one file system, of which one is sent at a time."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._current: _Turn | None = None

    @contextmanager
    def turn(self, patience_s: float) -> Iterator[SendRequest]:
        """Wait until no other request is under way, and keep others out in the context.

        A request that is within its time is waited for without a limit, because it has its own.

        Args:
            patience_s: Longest wait for a request that was given up and still runs, in seconds.

        Yields:
            Sends the requests of this turn.

        Raises:
            RequestGivenUpError: A request that was given up still runs.
        """
        turn = self._begin(patience_s)
        try:
            yield turn.send
        finally:
            turn.leave()

    def _begin(self, patience_s: float) -> _Turn:
        stop: float | None = None
        with self._changed:
            while self._current is not None:
                left_s = None
                if self._current.is_left:
                    stop = time.monotonic() + patience_s if stop is None else stop
                    left_s = stop - time.monotonic()
                    if left_s <= 0:
                        message = "an earlier request on the same connection is not answered yet"
                        raise RequestGivenUpError(message)
                self._changed.wait(left_s)
            self._current = turn = _Turn(self._changed, self._end)
            return turn

    def _end(self) -> None:
        self._current = None
        self._changed.notify_all()


class _Turn:
    """The time that a file system belongs to one request and its further attempts.

    Args:
        changed: Guards the turns of the file system, and wakes those who wait for one.
        end: Ends the turn.
    """

    def __init__(self, changed: threading.Condition, end: Callable[[], None]) -> None:
        self._changed = changed
        self._end = end
        self._is_running = False
        self.is_left = False

    def send(self, send: Callable[[], _Result], body_time: Callable[[], BodyTime]) -> _Result:
        """Send a request in another thread, and wait until its time is over."""

        def run(_time: BodyTime) -> _Result:
            self._start()
            try:
                return send()
            finally:
                self._stop()

        return wait_for(run, body_time())

    def leave(self) -> None:
        """End the turn, or have the request end it that was given up and still runs."""
        with self._changed:
            self.is_left = True
            self._changed.notify_all()
            if not self._is_running:
                self._end()

    def _start(self) -> None:
        with self._changed:
            if self.is_left:
                message = "the request was given up before it was sent"
                raise RequestGivenUpError(message)
            self._is_running = True

    def _stop(self) -> None:
        with self._changed:
            self._is_running = False
            if self.is_left:
                self._end()


def send_at_once(send: Callable[[], _Result], body_time: Callable[[], BodyTime]) -> _Result:
    """Send a request to a store that limits its time itself, or cannot."""
    del body_time
    return send()


_TURNS: Final = "_pulsar_offload_turns"
"""Attribute of a file system that has its turns.

Instances of one URL are equal even if each has a connection of its own, so they cannot be keys.
"""


def turns_of(file_system: AbstractFileSystem) -> Turns | None:
    """Return the turns of a file system, or None if several threads may use it at once.

    An archive or a folder in another file system that blocks shares the turns of that one.
    """
    blocking = [
        link for link in _links(file_system) if not isinstance(link, _ANY_NUMBER_OF_THREADS)
    ]
    if not blocking:
        return None
    turns: Turns = vars(blocking[-1]).setdefault(_TURNS, Turns())
    return turns


def _links(file_system: object) -> Iterator[AbstractFileSystem]:
    """The file system, and those in which it finds its files."""
    while isinstance(file_system, AbstractFileSystem):
        yield file_system
        # An archive has the open file that it lies in, which has its file system.
        archive = getattr(file_system, "fo", None)  # codespell:ignore
        file_system = getattr(file_system, "fs", None) or getattr(archive, "fs", None)
