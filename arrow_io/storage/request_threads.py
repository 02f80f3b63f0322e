"""Requests of a library that blocks, given up when their time is over.

A thread that sends a request cannot be stopped, so somebody else waits for it, who can be: by the
end of the time, or by an interrupt. The thread ends by itself, at the latest when the library's own
limits end the request, and keeps no process from ending.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from arrow_io.storage.failures import RequestGivenUpError

if TYPE_CHECKING:
    from collections.abc import Callable

    from arrow_io.storage.time_limit import BodyTime

_Result = TypeVar("_Result")


def wait_for(send: Callable[[BodyTime], _Result], body_time: BodyTime) -> _Result:
    """Send a request in another thread, and wait for what it gives.

    Args:
        send: Sends the request; is told what puts off the end of its time.
        body_time: The time, which has begun.

    Raises:
        RequestGivenUpError: The time was over.
        Exception: What `send` raised.
    """
    answer = _threads.run(lambda: send(body_time))
    try:
        while True:
            try:
                return answer.result(body_time.left_s())
            except TimeoutError:
                if answer.done():
                    return answer.result()
                if body_time.left_s():
                    continue
            message = f"no sound and whole answer within {body_time.seconds:.3g} s"
            raise RequestGivenUpError(message)
    finally:
        body_time.is_over = True


class _Threads:
    """Threads that each take the next request when they are done with one."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        self._idle = threading.Semaphore(0)

    def run(self, call: Callable[[], _Result]) -> Future[_Result]:
        """Have a thread call something."""
        result: Future[_Result] = Future()
        self._calls.put((call, result))
        if not self._idle.acquire(blocking=False):
            threading.Thread(target=self._work, daemon=True).start()
        return result

    def _work(self) -> None:
        while True:
            call, result = self._calls.get()
            try:
                result.set_result(call())
            except BaseException as error:  # noqa: BLE001 - whoever waits raises it
                result.set_exception(error)
            # What was read is not kept until the next request.
            del call, result
            self._idle.release()


_threads = _Threads()


def _forget_threads() -> None:
    global _threads  # noqa: PLW0603 - there is one of them in a process
    _threads = _Threads()


# None of them followed into the child.
os.register_at_fork(after_in_child=_forget_threads)
