"""Threads that keep no program from ending, and are used again.

A thread that waits for a store cannot be stopped. So nobody waits for it who need not: it ends by
itself, and the interpreter ends without it.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")

_NAME: Final = "pulsar-offload"
_MOST_IDLE_S: float = 10.0
"""After so long without a call a thread ends."""


def shared_workers(most: int) -> WorkerPool:
    """Return what all of the process use for calls that keep a processor busy.

    Args:
        most: How many of them are under way at a time.
    """
    with _lock:
        return _workers.setdefault(most, WorkerPool(most))


def run_in_thread(
    call: Callable[[], _Result], result: Future[_Result] | None = None
) -> Future[_Result]:
    """Have a thread call something, at once, in a copy of the context.

    Args:
        call: What is called, unless the result is cancelled before.
        result: Takes the result; None: a new one.
    """
    return _threads.run(partial(copy_context().run, call), result)


class WorkerPool:
    """Calls in threads, in order, of which so many are under way at a time.

    The same threads do them all: what each keeps of the memory it allocates adds up.

    Args:
        most: So many.
        idle_s: How long a thread waits for the next call before it does something else, in seconds.

    Attributes:
        is_stopped: Whether no call begins any more.
    """

    def __init__(self, most: int, *, idle_s: float = _MOST_IDLE_S) -> None:
        self._most = most
        self._idle_s = idle_s
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self.is_stopped = False

    def submit(self, call: Callable[[], _Result]) -> Future[_Result]:
        """Have a thread call something when it is its turn, in a copy of the context.

        The result may be cancelled until then.
        """
        result: Future[_Result] = Future()
        self._calls.put((partial(copy_context().run, call), result))
        if self.is_stopped:
            # Perhaps no thread comes to it.
            result.cancel()
            return result
        with self._lock:
            is_one_more = self._threads < self._most
            self._threads += is_one_more
        if is_one_more:
            try:
                run_in_thread(self._work)
            except BaseException:
                with self._lock:
                    self._threads -= 1
                raise
        return result

    def stop(self) -> None:
        """Begin no call any more; those that did not begin are cancelled.

        Waits for nothing, so it may be called wherever Python collects garbage.
        """
        self.is_stopped = True
        for _ in range(self._most):
            self._calls.put(None)

    def _work(self) -> None:
        while True:
            try:
                item = self._calls.get(timeout=self._idle_s)
            except Empty:
                with self._lock:
                    if self._calls.empty():
                        self._threads -= 1
                        return
                continue
            if item is None:
                return
            call, result = item
            if self.is_stopped:
                result.cancel()
            _answer(call, result)
            # What was read is not kept until the next call.
            del item, call, result


def _answer(call: Callable[[], _Result], result: Future[_Result]) -> None:
    if not result.set_running_or_notify_cancel():
        return
    try:
        result.set_result(call())
    except BaseException as error:  # noqa: BLE001 - whoever waits raises it
        result.set_exception(error)
    finally:
        # The error keeps this frame, which would keep the error and all that the call is about.
        del call, result


class _Threads:
    """Threads that each take the next call when they are done with one."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        self._idle = threading.Semaphore(0)

    def run(
        self, call: Callable[[], _Result], result: Future[_Result] | None = None
    ) -> Future[_Result]:
        """Have a thread call something."""
        result = Future() if result is None else result
        self._calls.put((call, result))
        if not self._idle.acquire(blocking=False):
            threading.Thread(target=self._work, name=_NAME, daemon=True).start()
        return result

    def _work(self) -> None:
        while True:
            try:
                call, result = self._calls.get(timeout=_MOST_IDLE_S)
            except Empty:
                # Unless somebody counts on this thread by now.
                if self._idle.acquire(blocking=False):
                    return
                continue
            _answer(call, result)
            del call, result
            self._idle.release()


_threads = _Threads()
_workers: dict[int, WorkerPool] = {}
_lock = threading.Lock()  # of the workers


def _forget_threads() -> None:
    global _threads, _workers, _lock
    _threads, _workers, _lock = _Threads(), {}, threading.Lock()


# None of them followed into the child.
os.register_at_fork(after_in_child=_forget_threads)
