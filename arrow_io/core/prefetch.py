"""Prefetch of the results of units of work, in threads that all readers of a process share.

A *unit* is a call; a *feed* is the sequence of units whose results one consumer takes, in order. A
feed whose consumer pauses occupies no thread. Shared feeds use the same workers, and one budget for
waiting results: each feed may hold one, and all feeds together as many more as one feed needs.

A consumer that takes nothing for some time loses its waiting results, except the first. Those units
run again when it continues, so a unit must return the same result each time.
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
"""A consumer that has taken no result for so long counts as paused."""
_IDLE_IF_REFUSED_S: Final = 1.0
"""The same, if a budget refused a reader in the meantime."""
_TICK_S: Final = 1.0

_clock = time.monotonic


def most_units(threads: int) -> int:
    """Return the maximum number of units that run or wait for the consumer."""
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
    run or wait may double, so a consumer that stops early has caused little wasted work. Closing
    the generator does not wait for running units; nor does the interpreter at exit.

    Args:
        units: The units. Only one thread at a time pulls the next unit or closes the iterator.
        threads: Maximum number of units that run at once. Half as many again may wait for the
            consumer.
        shared: Whether to share threads and budget with the other shared feeds of the process: for
            units that keep a processor busy and can run again.
        stop: Called when the generator ends or is closed, so that the source of units stops soon.
            Garbage collection may call it anywhere, so it must not wait.
        shrink: Called when the consumer pauses, while no thread pulls units, to drop data that was
            fetched for the next units.
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
        # Take no lock here: garbage collection may run this while the thread holds one.
        feed.stop()
        if stop is not None:
            stop()
        keeper.messages.put(feed)


class _NoMoreUnits(Exception):  # noqa: N818 - no error
    """The iterator of units is exhausted."""


class _Unit(Generic[_T]):
    """A unit and its result."""

    __slots__ = ("_call", "_result")

    def __init__(self, call: Callable[[], _T]) -> None:
        self._call = call
        self._result: Future[_T] | None = None

    def submit(self, threads: WorkerPool) -> None:
        self._result = threads.submit(self._call)

    def revoke(self) -> bool:
        """Cancel the unit or drop its result; return False if it is running."""
        if self._result is not None and not self._result.cancel() and not self._result.done():
            return False
        self._result = None
        return True

    def result(self) -> _T:
        if self._result is None:
            message = "the unit was not submitted"
            raise RuntimeError(message)
        return self._result.result()


class _Worker(threading.local):
    is_this = False
    """Whether this thread runs a unit of a shared feed."""


_worker = _Worker()


class _Feed(Generic[_T]):
    """The units of one consumer; see `prefetch_units` for the arguments.

    Attributes:
        idle_since: When the consumer last took a result, by `_clock`.
        is_released: Whether there is nothing to release until the consumer takes the next result.
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
        self._max_units = most_units(threads)
        # Do not share within a worker: a worker that waited for the others might wait for itself.
        self._is_sharing = shared and not _worker.is_this
        self._workers = shared_workers(threads) if self._is_sharing else WorkerPool(threads)
        self._shrink = shrink
        self._context = copy_context()
        self._share = process_budgets().results.share()
        self._changed = threading.Condition(threading.Lock())
        self._queue: deque[_Unit[_T]] = deque()  # units that the consumer has not taken
        self._submitted_count = 0  # number of its first units that were submitted
        self._window = 0  # maximum number of submitted units
        self._is_taking = False
        self._wait_count = 0  # 1 while the consumer waits for a unit to be submitted, else 0
        self._is_pulling = False  # whether a thread pulls units, or must not start to
        self._reserved_count = 0  # 1 while a thread pulls a unit, else 0
        self._final_error: BaseException | None = None  # raised after the last unit
        self._is_stopped = False
        self.idle_since = _clock()
        self.is_released = not self._is_sharing

    def take(self) -> _T:
        """Return the next result, or raise `_NoMoreUnits` or the error of the unit or iterator."""
        with self._changed:
            was_released, self.is_released = self.is_released, not self._is_sharing
            self._is_taking, self._wait_count = True, 1
            self._window = min(max(1, 2 * self._window), self._max_units)
            self._extend()
            while not self._queue and self._final_error is None:
                self._changed.wait()
            if not self._queue:
                end, self._final_error = self._final_error or _NoMoreUnits(), _NoMoreUnits()
                raise end
            unit = self._queue.popleft()
            self._submitted_count -= 1
            self._wait_count = 0
            self._update_share()
        if was_released and self._is_sharing:
            _keeper.messages.put(None)
        try:
            return unit.result()
        finally:
            self.idle_since = _clock()
            self._is_taking = False

    def stop(self) -> None:
        """Start no further unit; waits for nothing and takes no lock."""
        self._is_stopped = True
        if not self._is_sharing:
            self._workers.stop()

    def end(self) -> None:
        """After `stop`, close the iterator of units and release everything."""
        with self._changed:
            if self._is_pulling:
                # The thread that pulls units closes them.
                return
            self._is_pulling = True
        self._close_units(_NoMoreUnits())

    def release(self) -> None:
        """Drop the waiting results except the first, unless the consumer waits for one."""
        with self._changed:
            if self._is_taking or self._is_pulling or not self._is_sharing:
                return
            self._window = 1
            while self._submitted_count > 1 and self._queue[self._submitted_count - 1].revoke():
                self._submitted_count -= 1
            self._update_share()
            self.is_released = self._submitted_count <= 1
            if self._shrink is None or self._final_error is not None:
                return
            self._is_pulling = True
        failure: BaseException | None = None
        try:
            self._shrink()
        except BaseException as error:  # noqa: BLE001 - raised again in the consumer's thread
            failure = error
        with self._changed:
            self._is_pulling = False
            self._final_error = failure
            if self._is_taking:
                self._extend()
                self._changed.notify_all()
        if self._is_stopped:
            self.end()

    def _extend(self) -> None:
        """Submit units while there is room, and start a thread that pulls more."""
        while self._submitted_count < len(self._queue) and self._has_room():
            self._submit_next()
        if (
            self._submitted_count == len(self._queue)
            and self._final_error is None
            and not self._is_pulling
            and self._has_room()
        ):
            self._is_pulling, self._reserved_count = True, 1
            run_in_thread(partial(self._context.copy().run, self._pull_units))

    def _has_room(self) -> bool:
        """Return whether one more unit may run, and reserve room for it."""
        count = self._submitted_count + self._reserved_count
        if count >= self._window - 1 + self._wait_count:
            return False
        return not self._is_sharing or self._share.grow(
            max(0, count - self._wait_count), self._max_units
        )

    def _update_share(self) -> None:
        if self._is_sharing:
            count = self._submitted_count + self._reserved_count - 1 - self._wait_count
            self._share.hold(max(0, count))

    def _submit_next(self) -> None:
        self._queue[self._submitted_count].submit(self._workers)
        self._submitted_count += 1

    def _pull_units(self) -> None:
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
        """Add a unit, and return whether to pull another one."""
        with self._changed:
            self._reserved_count = 0
            self._queue.append(_Unit(partial(self._run, call)))
            self._submit_next()
            self._changed.notify_all()
            if not self._is_stopped and not self._has_room():
                self._is_pulling = False
                return False
            self._reserved_count = 1
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
        """Close the iterator of units once; after the last result, `take` raises `end`."""
        close = getattr(self._units, "close", None) if self._final_error is None else None
        try:
            if close is not None:
                close()
        except BaseException as error:  # noqa: BLE001 - raised again in the consumer's thread
            end = error
        with self._changed:
            self._final_error = end
            self._is_pulling, self._reserved_count = False, 0
            if self._is_stopped:
                self._queue.clear()
                self._submitted_count = 0
            self._update_share()
            self._changed.notify_all()


class _Keeper:
    """A background thread that ends closed feeds and releases results of paused consumers.

    The thread runs while there are feeds; there is one in a process.

    Attributes:
        messages: Receives closed feeds, and None when a released feed is used again.
    """

    def __init__(self) -> None:
        self._feeds: set[_Feed[Any]] = set()
        self._lock = threading.Lock()
        self._is_running = False
        self.messages: SimpleQueue[_Feed[Any] | None] = SimpleQueue()

    def add(self, feed: _Feed[Any]) -> None:
        with self._lock:
            if not self._is_running:
                threading.Thread(target=self._work, name="pulsar-offload", daemon=True).start()
                self._is_running = True
            self._feeds.add(feed)
        # Wake the thread: it waits without a limit while all other feeds are released.
        self.messages.put(None)

    def release_idle(self, now: float) -> None:
        """Release results of feeds whose consumers pause; `now` is a time of `_clock`."""
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


# A forked child does not have the thread. Windows does not fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_keeper)
