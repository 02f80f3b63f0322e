"""Batches that were sent and not acknowledged yet, with bounds, a timeout and the first failure."""

from __future__ import annotations

import time
from threading import Condition
from typing import TYPE_CHECKING, Final

from arrow_io.core.wording import agreeing, counted
from arrow_io.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_BYTES: Final = 64 << 20
_MAX_MESSAGES: Final = 50_000


class InFlight:
    """Batches in flight. One thread sends, and other threads acknowledge.

    Args:
        timeout_s: Maximum time without an acknowledgement while batches are in flight, in seconds.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._changed = Condition()
        self._batches = self._messages = self._bytes = 0
        self._last_change = time.monotonic()
        self._failure: tuple[str, str] | None = None
        self._acknowledged_after = 0

    def add(self, description: str, messages: int, size_bytes: int) -> Callable[[str | None], None]:
        """Wait until the bounds allow another batch, and add it. Errors contain its description.

        Returns:
            A callback for the acknowledgement, to be called with None, or with the reason of a
            failure.

        Raises:
            BrokerError: A batch has failed, or nothing was acknowledged before the timeout.
        """
        self._wait(
            lambda: (
                not self._batches
                or (
                    self._messages + messages <= _MAX_MESSAGES
                    and self._bytes + size_bytes <= _MAX_BYTES
                )
            )
        )
        with self._changed:
            if not self._batches:
                self._last_change = time.monotonic()
            self._batches += 1
            self._messages += messages
            self._bytes += size_bytes

        def acknowledge(failure: str | None) -> None:
            with self._changed:
                self._batches -= 1
                self._messages -= messages
                self._bytes -= size_bytes
                self._last_change = time.monotonic()
                if failure is None:
                    self._acknowledged_after += 0 if self._failure is None else messages
                elif self._failure is None:
                    self._failure = description, failure
                self._changed.notify()

        return acknowledge

    def finish(self) -> None:
        """Wait until all batches are acknowledged. Raises the errors of `add`."""
        self._wait(lambda: not self._batches)

    def _wait(self, is_met: Callable[[], bool]) -> None:
        with self._changed:
            while self._failure is None and not is_met():
                self._wait_a_while()
            if self._failure is None:
                return
            # Whether another run can resend it depends on whether later batches were persisted.
            while self._batches:
                self._wait_a_while()
            raise self._error(*self._failure)

    def _wait_a_while(self) -> None:
        left = self._last_change + self._timeout_s - time.monotonic()
        if left > 0:
            self._changed.wait(left)
            return
        if self._failure is not None:
            raise self._error(*self._failure)
        message = (
            f"the broker acknowledged nothing for {self._timeout_s:g} s;"
            f" {counted(self._messages, 'message')} may or may not be in the topic: run it again"
        )
        raise BrokerError(message)

    def _error(self, description: str, reason: str) -> BrokerError:
        later = self._acknowledged_after
        if not later:
            return BrokerError(f"{description}: {reason}")
        return BrokerError(
            f"{description}: {reason}; {counted(later, 'message')} sent after the failed one"
            f" {agreeing(later, 'is', 'are')} in the topic already, so another run would not resend"
            " what failed: replay into a new topic"
        )
