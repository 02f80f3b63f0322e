"""How often a request was sent before it was given up, what was answered, and what would help."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from arrow_io.storage.own_options import ATTEMPTS_OPTION, DEADLINE_OPTION
from arrow_io.wording import counted

if TYPE_CHECKING:
    from arrow_io.storage.failures import RetryPolicy


class Refusals:
    """How often a store answered that it is asked for too much now.

    Any thread may note one. Of two that do so at once, one may be lost: that there are more than
    before can be relied on, and nothing else.

    Attributes:
        count: The number.
    """

    def __init__(self) -> None:
        self.count = 0

    def note(self) -> None:
        """Count an answer."""
        self.count += 1


@dataclass(slots=True)
class Attempts:
    """What is known of the attempts at one request."""

    retry: RetryPolicy
    """What bounds them."""
    can_repeat: bool = True
    """Whether there may be more than one."""
    count: int = 0
    """How many there were."""
    failure_count: int = 0
    """How many of them failed in a way whose number the policy bounds."""
    sent_requests: int = 0
    """How many requests that were, with all that libraries sent again; 0 if it is not known."""
    last_status: int | None = None
    """HTTP status of the last answer; None if there was none, or it is not known."""
    is_late: bool = False
    """Whether the last one was given up because its time was over."""
    refusals: Refusals = field(default_factory=Refusals)
    """Counts the answers by which the store refused one."""

    def described(self) -> str:
        """How many there were, and what the last answer was.

        Example:
            >>> from arrow_io.storage.failures import RetryPolicy
            >>> Attempts(RetryPolicy(), count=1, sent_requests=7, last_status=503).described()
            '1 attempt with 7 requests, the last answer of status 503'
        """
        text = counted(self.count, "attempt")
        if self.sent_requests > self.count:
            text = f"{text} with {counted(self.sent_requests, 'request')}"
        if self.last_status is not None:
            text = f"{text}, the last answer of status {self.last_status}"
        return text

    def advice(self) -> str:
        """The storage option that allows more; empty if none does.

        Example:
            >>> from arrow_io.storage.failures import RetryPolicy
            >>> Attempts(RetryPolicy(), count=5, failure_count=5).advice()
            '; the storage option request_attempts, now 5, allows more attempts'
        """
        if self.is_late or (self.can_repeat and self.failure_count < self.retry.most_failures):
            return (
                f"; the storage option {DEADLINE_OPTION}, now {self.retry.deadline_s:g},"
                " allows more time"
            )
        if self.can_repeat:
            return (
                f"; the storage option {ATTEMPTS_OPTION}, now {self.retry.most_failures},"
                " allows more attempts"
            )
        return ""
