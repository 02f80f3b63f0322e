"""Prefetch the results of units of work, in threads that the readers of a process share.

A feed is the units of one consumer, who takes their results in order. A feed whose consumer pauses
keeps no thread. Feeds that share have the workers in common, and what they may hold: one result
waits free of charge, and all others of the process have room for as many as one feed needs.

A consumer that takes nothing for some time loses what waits beyond the first result. Those units
run again when it comes back, so a unit must give the same result each time.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from concurrent.futures import CancelledError
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from arrow_io.core.shared_budget import process_budgets
from arrow_io.core.threads import WorkerPool, run_in_thread, shared_workers

_T = TypeVar("_T")

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from concurrent.futures import Future

_IDLE_S: Final = 10.0
"""After so long without a take a consumer pauses."""
_IDLE_IF_REFUSED_S: Final = 1.0
"""Likewise, if a feed was refused room in the meantime."""
_TICK_S: Final = 1.0

_clock = time.monotonic


def most_units(threads: int) -> int:
    """Return the maximum number of units that are under way or wait for the consumer."""
    return threads + threads // 2 + 1


def prefetch_units(
    units: Iterator[Callable[[], _T]],
    *,
    threads: int,
    shared: bool = False,
    stop: Callable[[], None] | None = None,
    shrink: Callable[[], None] | None = None,
) -> Generator[_T, None, None]:
    """Yield the results of units, in order, while the next units already run.

    The first unit runs alone. With each result that the consumer takes, the number of units that
    are under way or wait may double, so a consumer that stops early has caused little work in vain.
    Closing this does not wait for units that run; nor does the interpreter when it exits.

    Args:
        units: The units. One thread at a time asks for the next one, and closes them.
        threads: Maximum number of units that run at once. Half as many again may wait for the
            consumer.
        shared: Whether these threads, and the room for results, are those of all feeds of the
            process that share: for units that keep a processor busy and can run again.
        stop: Called when the consumer takes no more, so that the source of units stops soon.
            Garbage collection may call it anywhere, so it must not wait.
        shrink: Called when the consumer pauses, while nobody asks for units, to drop what was
            fetched for the next ones.
    """
    feed = _Feed(units, threads, shared=shared, shrink=shrink)
    keeper = _keeper
    keeper.add(feed)
    try:
        while True:
            yield feed.take()
    except _NoMoreUnits:
        return
    finally:
        # Nothing here takes a lock: Python may collect garbage while this thread holds any.
        feed.stop()
        if stop is not None:
            stop()
        keeper.messages.put(feed)


class _NoMoreUnits(Exception):  # noqa: N818 - no error
    """There was no unit after the last one."""


class _Unit(Generic[_T]):
    """A unit, and its result.

    Args:
        call: The unit.
    """

    __slots__ = ("_call", "_result")

    def __init__(self, call: Callable[[], _T]) -> None:
        self._call = call
        self._result: Future[_T] | None = None

    def submit(self, threads: WorkerPool) -> None:
        """Have a thread run it."""
        self._result = threads.submit(self._call)

    def revoke(self) -> bool:
        """Cancel it or drop its result, unless it is under way; returns whether it is not."""
        if self._result is not None and not self._result.cancel() and not self._result.done():
            return False
        self._result = None
        return True

    def result(self) -> _T:
        """Wait for its result; it was submitted."""
        if self._result is None:
            message = "the unit was not submitted"
            raise RuntimeError(message)
        return self._result.result()


class _Worker(threading.local):
    is_this = False
    """Whether this thread runs a unit of feeds that share."""


_worker = _Worker()


class _Feed(Generic[_T]):
    """The units of one consumer.

    Args:
        units: As of `prefetch_units`.
        threads: As of `prefetch_units`.
        shared: As of `prefetch_units`.
        shrink: As of `prefetch_units`.

    Attributes:
        idle_since: When the consumer took a result last, by the clock.
        is_released: Whether there is nothing to give back until the consumer takes the next.
    """

    def __init__(
        self,
        units: Iterator[Callable[[], _T]],
        threads: int,
        *,
        shared: bool,
        shrink: Callable[[], None] | None,
    ) -> None:
        self._units = units
        self._most = most_units(threads)
        # A worker that waited for the other workers might wait for itself.
        self._is_sharing = shared and not _worker.is_this
        self._workers = shared_workers(threads) if self._is_sharing else WorkerPool(threads)
        self._shrink = shrink
        self._context = copy_context()
        self._share = process_budgets().results.share()
        self._changed = threading.Condition(threading.Lock())
        self._waiting: deque[_Unit[_T]] = deque()  # those that the consumer has not taken
        self._submitted = 0  # how many of them, from the first one on
        self._window = 0  # maximum number of them
        self._is_taking = False
        self._awaited = 0  # 1 while the consumer waits for a unit to be submitted, else 0
        self._is_splitting = False  # whether a thread asks for units, or nobody may
        self._reserved = 0  # 1 while a thread asks for a unit, else 0
        self._end: BaseException | None = None  # raised after the last unit
        self._is_stopped = False
        self.idle_since = _clock()
        self.is_released = not self._is_sharing

    def take(self) -> _T:
        """Return the next result.

        Raises:
            _NoMoreUnits: There is none.
            BaseException: The unit raised it, or asking for it did.
        """
        with self._changed:
            was_released, self.is_released = self.is_released, not self._is_sharing
            self._is_taking, self._awaited = True, 1
            self._window = min(max(1, 2 * self._window), self._most)
            self._extend()
            while not self._waiting and self._end is None:
                self._changed.wait()
            if not self._waiting:
                end, self._end = self._end or _NoMoreUnits(), _NoMoreUnits()
                raise end
            unit = self._waiting.popleft()
            self._submitted -= 1
            self._awaited = 0
            self._update_share()
        if was_released and self._is_sharing:
            _keeper.messages.put(None)
        try:
            return unit.result()
        finally:
            self.idle_since = _clock()
            self._is_taking = False

    def stop(self) -> None:
        """Begin no unit any more; waits for nothing and takes no lock."""
        self._is_stopped = True
        if not self._is_sharing:
            self._workers.stop()

    def end(self) -> None:
        """Close the units and give back everything; the feed was stopped."""
        with self._changed:
            if self._is_splitting:
                # That thread does it.
                return
            self._is_splitting = True
        self._close_units(_NoMoreUnits())

    def release(self) -> None:
        """Give back what waits beyond the first result, unless the consumer waits for one."""
        with self._changed:
            if self._is_taking or self._is_splitting or not self._is_sharing:
                return
            self._window = 1
            while self._submitted > 1 and self._waiting[self._submitted - 1].revoke():
                self._submitted -= 1
            self._update_share()
            self.is_released = self._submitted <= 1
            if self._shrink is None or self._end is not None:
                return
            self._is_splitting = True
        failure: BaseException | None = None
        try:
            self._shrink()
        except BaseException as error:  # noqa: BLE001 - raised again in the consumer's thread
            failure = error
        with self._changed:
            self._is_splitting = False
            self._end = failure
            if self._is_taking:
                self._extend()
                self._changed.notify_all()
        if self._is_stopped:
            self.end()

    def _extend(self) -> None:
        """Submit units for which there is room, and have a thread ask for more of them."""
        while self._submitted < len(self._waiting) and self._has_room():
            self._submit_next()
        if (
            self._submitted == len(self._waiting)
            and self._end is None
            and not self._is_splitting
            and self._has_room()
        ):
            self._is_splitting, self._reserved = True, 1
            run_in_thread(partial(self._context.copy().run, self._split))

    def _has_room(self) -> bool:
        """Return whether one more unit may be under way, and hold room for it."""
        count = self._submitted + self._reserved
        if count >= self._window - 1 + self._awaited:
            return False
        return not self._is_sharing or self._share.grow(max(0, count - self._awaited), self._most)

    def _update_share(self) -> None:
        if self._is_sharing:
            count = self._submitted + self._reserved - 1 - self._awaited
            self._share.hold(max(0, count))

    def _submit_next(self) -> None:
        self._waiting[self._submitted].submit(self._workers)
        self._submitted += 1

    def _split(self) -> None:
        """Ask for units as long as there is room for them."""
        end: BaseException = _NoMoreUnits()
        try:
            while not self._is_stopped:
                call = next(self._units, None)
                if call is None:
                    break
                if not self._add(call):
                    return
                del call
        except BaseException as error:  # noqa: BLE001 - raised again in the consumer's thread
            end = error
        self._close_units(end)

    def _add(self, call: Callable[[], _T]) -> bool:
        """Add a unit; returns whether to ask for another one."""
        with self._changed:
            self._reserved = 0
            self._waiting.append(_Unit(partial(self._run, call)))
            self._submit_next()
            self._changed.notify_all()
            if not self._is_stopped and not self._has_room():
                self._is_splitting = False
                return False
            self._reserved = 1
            return True

    def _run(self, call: Callable[[], _T]) -> _T:
        if self._is_stopped:
            raise CancelledError
        if not self._is_sharing:
            return self._context.copy().run(call)
        _worker.is_this = True
        try:
            return self._context.copy().run(call)
        finally:
            _worker.is_this = False

    def _close_units(self, end: BaseException) -> None:
        """Close the units, unless that was done; after them the feed raises an error."""
        close = getattr(self._units, "close", None) if self._end is None else None
        try:
            if close is not None:
                close()
        except BaseException as error:  # noqa: BLE001 - raised again in the consumer's thread
            end = error
        with self._changed:
            self._end = end
            self._is_splitting, self._reserved = False, 0
            if self._is_stopped:
                self._waiting.clear()
                self._submitted = 0
            self._update_share()
            self._changed.notify_all()


class _Keeper:
    """Ends feeds that were closed, and has those release results whose consumers pause.

    It needs one thread of the process, as long as there are feeds.

    Attributes:
        messages: Takes feeds that were closed; and None, if one that was released is used again.
    """

    def __init__(self) -> None:
        self._feeds: set[_Feed[Any]] = set()
        self._lock = threading.Lock()
        self._is_running = False
        self.messages: SimpleQueue[_Feed[Any] | None] = SimpleQueue()

    def add(self, feed: _Feed[Any]) -> None:
        """Look after a feed until it is closed."""
        with self._lock:
            if not self._is_running:
                threading.Thread(target=self._work, name="pulsar-offload", daemon=True).start()
                self._is_running = True
            self._feeds.add(feed)
        # It may wait for as long as all others are released.
        self.messages.put(None)

    def release_idle(self, now: float) -> None:
        """Have feeds release results, if their consumers pause.

        Args:
            now: The time, by the clock.
        """
        budgets = process_budgets()
        was_refused = budgets.results.was_refused or budgets.ranges.was_refused
        budgets.results.was_refused = budgets.ranges.was_refused = False
        idle_s = _IDLE_IF_REFUSED_S if was_refused else _IDLE_S
        for feed in self._all():
            if not feed.is_released and now - feed.idle_since >= idle_s:
                feed.release()

    def _all(self) -> tuple[_Feed[Any], ...]:
        with self._lock:
            return tuple(self._feeds)

    def _work(self) -> None:
        checked_s = _clock()
        while True:
            feeds = self._all()
            is_any_left = not feeds or any(not each.is_released for each in feeds)
            del feeds
            try:
                feed = self.messages.get(timeout=_TICK_S if is_any_left else None)
            except Empty:
                feed = None
                with self._lock:
                    if not self._feeds and self.messages.empty():
                        self._is_running = False
                        return
            if feed is not None:
                with self._lock:
                    self._feeds.discard(feed)
                feed.end()
                del feed
            now = _clock()
            if now - checked_s >= _TICK_S:
                checked_s = now
                self.release_idle(now)


_keeper = _Keeper()


def _forget_keeper() -> None:
    global _keeper  # noqa: PLW0603 - there is one of it in a process
    _keeper = _Keeper()


# Its thread did not follow into the child.
os.register_at_fork(after_in_child=_forget_keeper)
