"""Requests to blocking file systems: one at a time on each connection, each with a deadline.

The file systems of FTP, SFTP and many other protocols have one connection, on which the bytes of
two requests would mix. An abandoned request may still occupy the connection, so the next one waits
until the library has ended it.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractFileSystem

from arrow_io.storage.failures import RequestGivenUpError
from arrow_io.storage.request_threads import send_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from arrow_io.storage.request_threads import SendInThread

_ANY_NUMBER_OF_THREADS: Final = (AsyncFileSystem, LocalFileSystem, MemoryFileSystem)
"""File systems that several threads may use at once."""


class Turns:
    """The queue of requests to one file system, which sends one at a time."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._current: _Turn | None = None

    @contextmanager
    def turn(self, patience_s: float) -> Iterator[SendInThread]:
        """Wait until no other request is in flight, and block others during the context.

        A request that its caller waits for has its own time limit, so this wait has none.

        Args:
            patience_s: Maximum wait for an abandoned request that still runs, in seconds.

        Yields:
            A function that sends the requests of this turn.

        Raises:
            RequestGivenUpError: An abandoned request still runs.
        """
        turn = self._begin(patience_s)
        try:
            yield partial(send_in_thread, hold_until=turn.hold_until)
        finally:
            turn.leave()

    def _begin(self, patience_s: float) -> _Turn:
        stop: float | None = None
        with self._changed:
            while self._current is not None:
                remaining_s = None
                if self._current.is_left:
                    stop = time.monotonic() + patience_s if stop is None else stop
                    remaining_s = stop - time.monotonic()
                    if remaining_s <= 0:
                        message = "an earlier request on the same connection is not answered yet"
                        raise RequestGivenUpError(message)
                self._changed.wait(remaining_s)
            self._current = turn = _Turn(self._changed, self._end)
            return turn

    def _end(self) -> None:
        self._current = None
        self._changed.notify_all()


class _Turn:
    """The exclusive use of a file system by one request and its repeats."""

    def __init__(self, changed: threading.Condition, end: Callable[[], None]) -> None:
        self._changed = changed
        self._end = end
        self._pending: set[Future[Any]] = set()
        self.is_left = False

    def hold_until(self, answer: Future[Any]) -> None:
        """Keep the file system until a request, even an abandoned one, is answered or cancelled."""
        answer.add_done_callback(self._release)
        with self._changed:
            self._pending.add(answer)

    def leave(self) -> None:
        """End the turn now, or when an abandoned request that still runs has ended."""
        with self._changed:
            self.is_left = True
            self._changed.notify_all()
            if not self._pending:
                self._end()

    def _release(self, answer: Future[Any]) -> None:
        with self._changed:
            self._pending.discard(answer)
            if self.is_left and not self._pending:
                self._end()


_TURNS: Final = "_pulsar_offload_turns"
"""Attribute of a file system that stores its turns.

Instances of one URL compare equal even if each has its own connection, so they cannot be keys."""


def shared_turns(file_system: AbstractFileSystem) -> Turns | None:
    """Return the turns of a file system, or None if several threads may use it at once.

    An archive or folder inside another blocking file system shares its turns.
    """
    blocking = [
        link for link in _links(file_system) if not isinstance(link, _ANY_NUMBER_OF_THREADS)
    ]
    if not blocking:
        return None
    turns: Turns = vars(blocking[-1]).setdefault(_TURNS, Turns())
    return turns


def _links(file_system: object) -> Iterator[AbstractFileSystem]:
    """Yield the file system and those that contain its files."""
    while isinstance(file_system, AbstractFileSystem):
        yield file_system
        # An archive has an open file, which has its own file system.
        archive = getattr(file_system, "fo", None)  # codespell:ignore
        file_system = getattr(file_system, "fs", None) or getattr(archive, "fs", None)
