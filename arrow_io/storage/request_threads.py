"""Requests of a blocking library, abandoned when their time is over.

A thread that sends a request cannot be interrupted. So a second thread sends it, and the caller
waits for the answer until the deadline or an interrupt. The sending thread ends at the latest when
the library's own timeouts end the request, and does not keep the process alive.
"""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from arrow_io.core.threads import run_in_thread
from arrow_io.storage.failures import RequestGivenUpError

if TYPE_CHECKING:
    from collections.abc import Callable

    from arrow_io.storage.attempts import Attempt
    from arrow_io.storage.request import Request

    Send = Callable[[Request, Attempt], Any]
    """A method of a store that sends a request once."""

LISTING_DEADLINES: Final = 10
"""Factor on the time of a listing, because a library fetches all its pages in one call."""


class SendInThread(Protocol):
    """A function that sends a request in another thread."""

    def __call__(self, send: Send, request: Request, attempt: Attempt) -> Any:  # noqa: ANN401 - any answer
        """Return or raise the result of `send`, unless the time is over."""


def send_in_thread(
    send: Send,
    request: Request,
    attempt: Attempt,
    hold_until: Callable[[Future[Any]], object] | None = None,
    listing_deadlines: int = LISTING_DEADLINES,
) -> Any:  # noqa: ANN401 - as `send`
    """Send a request in another thread, and wait for its answer until the time is over.

    Args:
        send: Sends the request.
        request: The request.
        attempt: The attempt, whose time starts now.
        hold_until: Prevents other requests until the answer has arrived or is cancelled.
        listing_deadlines: Factor on the time of a listing.

    Raises:
        RequestGivenUpError: The time is over.
        Exception: The error of `send`.
    """
    attempt.start(listing_deadlines if request.is_listing else 1)
    answer: Future[Any] = Future()
    try:
        if hold_until is not None:
            hold_until(answer)
        run_in_thread(partial(send, request, attempt), answer)
        while True:
            try:
                return answer.result(attempt.remaining_s())
            except TimeoutError:
                if answer.done():
                    return answer.result()
                if attempt.remaining_s():
                    continue
            message = f"no complete, valid answer within {attempt.seconds:.3g} s"
            raise RequestGivenUpError(message)
    finally:
        attempt.is_over = True
        # Do not send the request if no thread has started it.
        answer.cancel()
