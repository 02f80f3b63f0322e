"""Sequences of a topic's ledgers that build each ledger on access.

A topic may have a hundred thousand ledgers, of which a read needs two.
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
        """Return the item at an index that is not negative."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[_T]:
        return (self._item(index) for index in range(len(self)))

    @overload
    def __getitem__(self, key: int) -> _T: ...

    @overload
    def __getitem__(self, key: slice) -> tuple[_T, ...]: ...

    def __getitem__(self, key: int | slice) -> _T | tuple[_T, ...]:
        indices = range(len(self))[key]
        if isinstance(indices, int):
            return self._item(indices)
        return tuple(map(self._item, indices))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (list(self),)


class LedgerPages(LazySequence[TopicLedger]):
    """All ledgers of a topic, in pages. Only the pages used last are cached.

    Safe to use from several threads.

    Args:
        count: The number of ledgers.
        page_ledgers: The number of ledgers on each page but the last.
        read_page: Returns the values of a page, from 0.
        read_ledger: Builds a ledger from a value and its index.
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
        """Build some ledgers now and return them; later accesses return the same objects."""
        self._pinned = {index: self._item(index) for index in indices}
        return tuple(self._pinned.values())

    def __len__(self) -> int:
        return self._count

    def _item(self, index: int) -> TopicLedger:
        if index in self._pinned:
            return self._pinned[index]
        number, row = divmod(index, self._page_ledgers)
        page = self._page(number)
        # Read once: another thread may replace the value by the ledger meanwhile.
        found = page[row]
        if not isinstance(found, TopicLedger):
            found = page[row] = self._read_ledger(found, index)
        return found


class MappedLedgers(LazySequence[_T]):
    """The values that `extract` returns for the ledgers of a topic.

    Args:
        ledgers: The ledgers.
        skipped: Indices of ledgers without a value, ascending.
        extract: Returns the value of a ledger.
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
        return len(self._ledgers) - len(self._before)

    def _item(self, index: int) -> _T:
        return self._extract(self._ledgers[index + bisect_right(self._before, index)])
