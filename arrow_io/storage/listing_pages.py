"""The pages of a listing: each is a request by itself, and all together are bounded.

A bucket may have millions of objects, so a listing has no deadline of its own: each page that
brings keys extends it. A server that goes on with pages that bring nothing is given up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from arrow_io.errors import StorageError
from arrow_io.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from arrow_io.storage.failures import RetryPolicy
    from arrow_io.storage.object_store import ObjectStore

_Result = TypeVar("_Result")

KEY_BYTES: Final = 512
"""About what a key takes in the XML of a page, in bytes."""
MAX_KEYS: Final = 20_000_000
"""Most keys of a listing: objects, folders or uploads."""
MAX_PAGES: Final = 1_000_000
"""Most pages of a listing, each of which has up to 1,000 keys."""


class Request(Protocol):
    """Sends a request, and again if it fails in a way that may pass."""

    def __call__(self, send: Callable[[ObjectStore], _Result]) -> _Result:
        """Send it; raises typed errors."""


class ListingPages:
    """Fetches the pages of one listing.

    Args:
        policy: How long they may take.
        request: Sends a request for a page, and sends it again if that may help.
    """

    def __init__(self, policy: RetryPolicy, request: Request) -> None:
        self._policy = policy
        self._request = request
        self._begun: float | None = None
        self._key_count = 0
        self._page_count = 0

    def fetch(self, send: Callable[[ObjectStore], _Result]) -> _Result:
        """Fetch a page.

        Raises:
            StorageError: The pages before brought too few keys for the time that they took.
            PulsarOffloadError: The request failed.
        """
        # To connect, which the first page may wait for, is not the store's time.
        if self._begun is None:
            self._begun = self._policy.clock()
        if self._policy.is_too_late(self._begun, self._key_count * KEY_BYTES):
            message = (
                f"{counted(self._page_count, 'page')} of a listing, with"
                f" {counted(self._key_count, 'key')} in all, took"
                f" longer than {self._policy.deadline_s:g} s and the time for so many keys"
            )
            raise StorageError(message)
        return self._request(send)

    def count(self, keys: int) -> None:
        """Count a page that came.

        Raises:
            StorageError: There are more pages or keys than a listing may have.
        """
        self._page_count += 1
        self._key_count += keys
        if self._key_count > MAX_KEYS or self._page_count > MAX_PAGES:
            message = (
                f"a listing of more than {MAX_KEYS} keys or {MAX_PAGES} pages: the server has no"
                " end of them"
            )
            raise StorageError(message)
