"""The ledgers of a topic as sequences that make each ledger when it is asked for.

A topic may have a hundred thousand ledgers, and a read of it may need two of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from connector.catalog.topic_ledgers import TopicLedger

if TYPE_CHECKING:
    from collections.abc import Mapping

_T = TypeVar("_T")
_CACHED_PAGES: Final = 8


class LazySequence(Sequence[_T]):
    """A sequence that is equal to any other of the same items, and pickled as a tuple."""

    def _item(self, index: int) -> _T:
        """The item at a place, from 0."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[_T]:
        """Each item, made anew."""
        return (self._item(index) for index in range(len(self)))

    @overload
    def __getitem__(self, key: int) -> _T: ...

    @overload
    def __getitem__(self, key: slice) -> tuple[_T, ...]: ...

    def __getitem__(self, key: int | slice) -> _T | tuple[_T, ...]:
        """An item, or several as a tuple."""
        indices = range(len(self))[key]
        if isinstance(indices, int):
            return self._item(indices)
        return tuple(map(self._item, indices))

    def __eq__(self, other: object) -> bool:
        """Whether the other has the same items."""
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        """Return the hash of the same items in a tuple."""
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the items."""
        return tuple, (list(self),)


class LedgerPages(LazySequence[TopicLedger]):
    """All ledgers of a topic, some to a page. Only the pages used last are kept.

    Several threads may ask at once.

    Args:
        count: How many ledgers there are.
        page_ledgers: How many there are on each page but the last.
        read_page: Gives the values of a page, from 0.
        read_ledger: Makes a ledger of a value and its place.
    """

    def __init__(
        self,
        count: int,
        page_ledgers: int,
        read_page: Callable[[int], list[Any]],
        read_ledger: Callable[[Any, int], TopicLedger],
    ) -> None:
        self._count = count
        self._page_ledgers = page_ledgers
        self._page = lru_cache(_CACHED_PAGES)(read_page)
        self._read_ledger = read_ledger
        self._pinned: Mapping[int, TopicLedger] = {}

    def pin(self, indices: Sequence[int]) -> tuple[TopicLedger, ...]:
        """Make some ledgers now, and give them; they stay the same objects."""
        self._pinned = {index: self._item(index) for index in indices}
        return tuple(self._pinned.values())

    def __len__(self) -> int:
        """How many ledgers there are."""
        return self._count

    def _item(self, index: int) -> TopicLedger:
        if index in self._pinned:
            return self._pinned[index]
        number, row = divmod(index, self._page_ledgers)
        page = self._page(number)
        # Read once: another thread may put the ledger there meanwhile.
        found = page[row]
        if not isinstance(found, TopicLedger):
            found = page[row] = self._read_ledger(found, index)
        return found


class MappedLedgers(LazySequence[_T]):
    """Something of each ledger of a topic, but for some.

    Args:
        ledgers: The ledgers.
        left_out: Places of those that are left out, ascending.
        pick: Takes what is wanted of a ledger.
    """

    def __init__(
        self,
        ledgers: Sequence[TopicLedger],
        skipped: Sequence[int],
        extract: Callable[[TopicLedger], _T],
    ) -> None:
        self._ledgers = ledgers
        self._before = [index - number for number, index in enumerate(skipped)]
        self._extract = extract

    def __len__(self) -> int:
        """How many there are."""
        return len(self._ledgers) - len(self._before)

    def _item(self, index: int) -> _T:
        return self._extract(self._ledgers[index + bisect_right(self._before, index)])
