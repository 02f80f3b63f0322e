"""Reusable threads that do not keep the process alive.

A thread that waits for a store cannot be interrupted. So callers that no longer need the result
stop waiting, the thread ends when its call returns, and the interpreter exits without it.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor  # noqa: TID251 - the base class
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_P = ParamSpec("_P")
_Result = TypeVar("_Result")

_NAME: Final = "pulsar-offload"
_MAX_IDLE_S: float = 10.0
"""Idle time after which a thread ends, in seconds."""


class ContextThreadPool(ThreadPoolExecutor):
    """A `ThreadPoolExecutor` that runs each call in a copy of the caller's context.

    The context holds the running operation (`arrow_io.core.telemetry`), and the spelling of options
    in error messages.
    """

    def submit(
        self, fn: Callable[_P, _Result], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> Future[_Result]:
        """Queue a call, and return its result; `map` uses this method too."""
        return super().submit(partial(copy_context().run, fn, *args, **kwargs))


def shared_workers(max_calls: int) -> WorkerPool:
    """Return the process's pool for calls that keep a processor busy, `max_calls` at a time."""
    with _lock:
        return _workers.setdefault(max_calls, WorkerPool(max_calls))


def run_in_thread(
    call: Callable[[], _Result], result: Future[_Result] | None = None
) -> Future[_Result]:
    """Run a call in a thread at once, in a copy of the context.

    Args:
        call: The call. It does not run if the result is cancelled first.
        result: Receives the result; None for a new future.
    """
    return _threads.run(partial(copy_context().run, call), result)


class WorkerPool:
    """A queue of calls with a limit on how many run at once.

    The same few threads run all calls, because an allocator keeps memory for each thread.

    Args:
        max_calls: Maximum number of concurrent calls.
        idle_s: How long a thread waits for the next call before it leaves the pool, in seconds;
            None for `_MAX_IDLE_S`.

    Attributes:
        is_stopped: Whether no further call starts.
    """

    def __init__(self, max_calls: int, *, idle_s: float | None = None) -> None:
        self._max_calls = max_calls
        self._idle_s = _MAX_IDLE_S if idle_s is None else idle_s
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self.is_stopped = False

    def submit(self, call: Callable[[], _Result]) -> Future[_Result]:
        """Queue a call, to run in a copy of the context, and return its result.

        The result can be cancelled until the call starts.
        """
        result: Future[_Result] = Future()
        self._calls.put((partial(copy_context().run, call), result))
        if self.is_stopped:
            # No thread may be left to take the call.
            result.cancel()
            return result
        with self._lock:
            needs_thread = self._threads < self._max_calls
            self._threads += needs_thread
        if needs_thread:
            try:
                run_in_thread(self._work)
            except BaseException:
                with self._lock:
                    self._threads -= 1
                raise
        return result

    def stop(self) -> None:
        """Start no further call, and cancel those that have not started.

        It waits for nothing, so garbage collection may call it anywhere.
        """
        self.is_stopped = True
        for _ in range(self._max_calls):
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
            _run_call(call, result)
            # Drop the references: this thread may wait long for the next call.
            del item, call, result


def _run_call(call: Callable[[], _Result], result: Future[_Result]) -> None:
    if not result.set_running_or_notify_cancel():
        return
    try:
        result.set_result(call())
    except BaseException as error:  # noqa: BLE001 - raised in the waiting thread
        result.set_exception(error)
    finally:
        # Break the cycle: the error's traceback refers to this frame.
        del call, result


class _Threads:
    """Threads that each take the next call when they have finished one."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        self._idle = threading.Semaphore(0)

    def run(
        self, call: Callable[[], _Result], result: Future[_Result] | None = None
    ) -> Future[_Result]:
        result = Future() if result is None else result
        self._calls.put((call, result))
        if not self._idle.acquire(blocking=False):
            threading.Thread(target=self._work, name=_NAME, daemon=True).start()
        return result

    def _work(self) -> None:
        while True:
            try:
                call, result = self._calls.get(timeout=_MAX_IDLE_S)
            except Empty:
                # End, unless `run` has reserved this thread meanwhile.
                if self._idle.acquire(blocking=False):
                    return
                continue
            _run_call(call, result)
            del call, result
            self._idle.release()


_threads = _Threads()
_workers: dict[int, WorkerPool] = {}
_lock = threading.Lock()  # guards `_workers`


def _forget_threads() -> None:
    global _threads, _workers, _lock
    _threads, _workers, _lock = _Threads(), {}, threading.Lock()


# A forked child has none of the threads. Windows does not fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
