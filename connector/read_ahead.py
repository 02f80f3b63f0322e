"""Decodes ahead of a consumer, in threads of its own."""

from __future__ import annotations

from collections import deque
from contextvars import copy_context
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import TYPE_CHECKING, Generic, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_T = TypeVar("_T")
_DEPTH = 2
_POLL_SECONDS = 0.1


class _Finished:
    """Stands behind the last item."""


class _Producer(Generic[_T]):
    """Makes items in a thread that starts at once; at most `_DEPTH` wait for the consumer.

    Once it has ended or failed, it may only be closed.
    """

    def __init__(self, items: Iterator[_T]) -> None:
        self._items = items
        self._made: Queue[_T | BaseException | _Finished] = Queue(_DEPTH)
        self._stopped = Event()
        self._thread = Thread(
            # In the caller's context, which says how errors call options.
            target=copy_context().run,
            args=(self._make,),
            name="pulsar-offload-read-ahead",
            daemon=True,
        )
        self._thread.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _T:
        item = self._made.get()
        if isinstance(item, _Finished):
            raise StopIteration
        if isinstance(item, BaseException):
            raise item
        return item

    def stop(self) -> None:
        """Tell the thread to end, at the next item that it has made."""
        self._stopped.set()

    def close(self) -> None:
        """Wait for the end of the thread, which has been asked to end or has made all items."""
        try:
            while True:
                self._made.get_nowait()
        except Empty:
            self._thread.join()

    def _make(self) -> None:
        last: BaseException | _Finished = _Finished()
        try:
            for item in self._items:
                if not self._put(item):
                    break
        except BaseException as error:  # noqa: BLE001 - raised again in the consumer's thread
            last = error
        close = getattr(self._items, "close", None)
        if close is not None:
            close()
        self._put(last)

    def _put(self, item: _T | BaseException | _Finished) -> bool:
        while not self._stopped.is_set():
            try:
                self._made.put(item, timeout=_POLL_SECONDS)
            except Full:
                continue
            return True
        return False


def read_ahead(parts: Sequence[Callable[[], Iterator[_T]]], *, most: int) -> Iterator[_T]:
    """The items of several parts, part after part, while the next parts are already being made.

    The first part is made alone; with every item that the consumer takes, one more part may be
    under way. So a consumer that stops early has had little made in vain.

    Args:
        parts: What makes the items of each part.
        most: Parts under way at once, at the most.
    """
    waiting = deque(parts)
    under_way: deque[_Producer[_T]] = deque()
    window = 1
    try:
        while waiting or under_way:
            if not under_way:
                under_way.append(_Producer(waiting.popleft()()))
            for item in under_way[0]:
                yield item
                window = min(window + 1, most)
                while waiting and len(under_way) < window:
                    under_way.append(_Producer(waiting.popleft()()))
            under_way.popleft().close()
    finally:
        # All hear of it first: the wait for one may be long, and may be interrupted.
        for each in under_way:
            each.stop()
        for each in under_way:
            each.close()
