"""The pages of a listing: each is a request of its own, and together they are bounded.

A bucket may have millions of objects, so a listing has no fixed deadline: each page that brings
keys extends it. The listing of a server that keeps sending empty pages is cancelled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from arrow_io.core.wording import counted
from arrow_io.errors import StorageError

if TYPE_CHECKING:
    from arrow_io.storage.attempts import RetryPolicy

_Item = TypeVar("_Item")

KEY_BYTES: Final = 512
"""Approximate size of a key in the XML of a page, in bytes."""
MAX_KEYS: Final = 20_000_000
"""Maximum number of keys of a listing: objects, folders or uploads."""
MAX_PAGES: Final = 1_000_000
"""Maximum number of pages of a listing; a page has up to 1,000 keys."""


@dataclass(frozen=True, slots=True)
class ListingPage(Generic[_Item]):
    """One page of a listing, or the whole listing if a library fetches the pages itself."""

    items: list[_Item]
    folders: list[str] = field(default_factory=list)
    """In the listing of a folder, the names of the folders directly in it. In that of a tree, paths
    of folders, relative to the location, whose objects are not in the page: each has its own."""
    key_count: int = 0
    """Number of keys that the store sent, including those that are not items; 0 if unknown."""
    next_marker: tuple[str, ...] | None = None
    """Start of the next page (`Request.marker`); None if this is the last."""


class ListingPages:
    """The limits on the pages of one listing, whose time starts now.

    Attributes:
        key_count: Number of keys of all pages so far.
        page_count: Number of pages so far.
    """

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._start_s = policy.clock()
        self.key_count = 0
        self.page_count = 0
        self._markers: set[tuple[str, ...]] = set()

    def check_time(self) -> None:
        """Check, before a page is requested, that there is time for it.

        Raises:
            StorageError: The previous pages brought too few keys for the time that they took.
        """
        if self._policy.is_too_late(self._start_s, self.key_count * KEY_BYTES):
            message = (
                f"{counted(self.page_count, 'page')} of a listing, with"
                f" {counted(self.key_count, 'key')} in all, took"
                f" longer than {self._policy.deadline_s:g} s plus the time for so many keys"
            )
            raise StorageError(message)

    def count(self, page: ListingPage[Any]) -> None:
        """Count a received page.

        Raises:
            StorageError: There are more pages or keys than a listing may have, or a page refers to
                an earlier one as the next.
        """
        self.page_count += 1
        self.key_count += page.key_count
        if page.next_marker in self._markers:
            raise StorageError("the server lists the same page over and over")
        if page.next_marker is not None:
            self._markers.add(page.next_marker)
        if self.key_count > MAX_KEYS or self.page_count > MAX_PAGES:
            message = (
                f"a listing of more than {MAX_KEYS} keys or {MAX_PAGES} pages, which does not seem"
                " to end"
            )
            raise StorageError(message)
