"""Requests of a library that blocks, given up when their time is over.

A thread that sends a request cannot be stopped, so somebody else waits for it, who can be: by the
end of the time, or by an interrupt. The thread ends by itself, at the latest when the library's own
limits end the request, and keeps no process from ending.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from arrow_io.storage.failures import RequestGivenUpError
from arrow_io.threads import in_thread

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
    answer = in_thread(lambda: send(body_time))
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
