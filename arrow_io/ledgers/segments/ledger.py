"""A ledger of streaming offload (PIP-76), whose entries are spread over segments."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Self

from arrow_io.core.wording import counted
from arrow_io.errors import CorruptIndexError, MissingEntriesError
from arrow_io.ledgers.data import LedgerData
from arrow_io.read_metrics import Unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from arrow_io.format.object_names import ShareName
    from arrow_io.format.streaming_index import ShareTable
    from arrow_io.ledgers.ledger import Block
    from arrow_io.messages.entry_run import EntryRun
    from arrow_io.read_metrics import Tally
    from arrow_io.storage.location import Location
    from arrow_io.storage.range_prefetch import RangePrefetcher
    from arrow_io.storage.range_stream import RangeStream
    from arrow_io.storage.ranges import ByteSpan

_first_entry_id = attrgetter("first_entry_id")


@dataclass(frozen=True, slots=True)
class SegmentShare(LedgerData):
    """The entries of one ledger in one segment.

    Attributes:
        is_clipped: Whether the last block may have more of the ledger's entries, which are read of
            another segment.
        from_entry_id: Entries before it are read of another segment.
    """

    name: ShareName
    table: ShareTable
    is_clipped: bool = False
    from_entry_id: int = 0

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled by its values."""
        return SegmentShare, (
            self.location,
            self.name,
            self.table,
            self.length_bytes,
            self.managed_ledger,
            self.version,
            self.cut_bytes,
            self.is_clipped,
            self.from_entry_id,
        )

    @property
    def first_entry_id(self) -> int:
        """Id of the first entry."""
        return max(self.table.least_entry_id, self.from_entry_id)

    def select_entries(self, first_entry_id: int, last_entry_id: int) -> SegmentShare:
        """The share without entries before one, and behind another (inclusive), of its own."""
        if (first_entry_id, last_entry_id) == (self.first_entry_id, self.last_entry_id):
            return self
        table = self.table
        end = table.block_last_entry_id(table.find_block(last_entry_id))
        return replace(
            self,
            table=table.select_entries(first_entry_id, last_entry_id),
            is_clipped=last_entry_id < end or (self.is_clipped and end == self.last_entry_id),
            from_entry_id=first_entry_id,
        )

    def clipped(self, last_entry_id: int) -> SegmentShare:
        """The share up to an entry (inclusive), which is not behind its last."""
        return self.select_entries(self.first_entry_id, last_entry_id)

    def blocks(self, first_entry_id: int, last_entry_id: int) -> list[Block]:
        """Return the blocks with some entries, without those that are read from another segment."""
        # Without arguments, `super` would mean the class that `slots` replaces.
        first, *others = super(SegmentShare, self).blocks(first_entry_id, last_entry_id)
        least = max(first.first_entry_id, self.from_entry_id)
        return [first._replace(first_entry_id=least), *others]

    def _check_padding(self, stream: RangeStream, position: int, block: int, tally: Tally) -> None:
        if not self.is_clipped or block + 1 < self.table.block_count:
            super(SegmentShare, self)._check_padding(stream, position, block, tally)


@dataclass(frozen=True, slots=True)
class SegmentedLedger:
    """A ledger whose entries stand in shares of segments: a `Ledger` of PIP-76.

    Attributes:
        shares: Ascending; no two have an entry in common, but entries may be in none.
        last_entry_id: Id of the last entry (inclusive), whether it is stored or lost.
        length_bytes: Sum of the lengths of all entries' data; 0 if nothing says it.
    """

    shares: tuple[SegmentShare, ...]
    last_entry_id: int
    length_bytes: int = field(default=0, compare=False)

    @classmethod
    def of(
        cls,
        shares: Iterable[SegmentShare],
        *,
        entries: int | None = None,
        length_bytes: int = 0,
    ) -> Self:
        """Put shares together; of those that have an entry, it is read of the one that begins last.

        Args:
            shares: Shares of one ledger, at least one; of two that begin with the same entry, the
                first counts.
            entries: How many entries the ledger has; None: as many as the shares say.
            length_bytes: Sum of the lengths of all entries' data; 0 if nothing says it.
        """
        given = list(shares)
        last = max(each.last_entry_id for each in given) if entries is None else entries - 1
        within = [
            each.clipped(min(each.last_entry_id, max(last, each.first_entry_id))) for each in given
        ]
        pieces = tuple(within[place].select_entries(*ends) for place, *ends in _pieces(within))
        return cls(pieces, last, length_bytes)

    @property
    def location(self) -> Location:
        """Where its objects are."""
        return self.shares[0].location

    @property
    def ledger_id(self) -> int:
        """BookKeeper ledger id."""
        return self.shares[0].ledger_id

    @property
    def parts(self) -> tuple[SegmentShare, ...]:
        """Its shares, one for each data object."""
        return self.shares

    @property
    def stored_bytes(self) -> int:
        """How many bytes its blocks take of the data objects."""
        return sum(each.stored_bytes for each in self.shares)

    def with_range_bytes(self, range_bytes: int) -> SegmentedLedger:
        """The same ledger, of which one request asks for so many bytes at most."""
        shares = tuple(each.with_range_bytes(range_bytes) for each in self.shares)
        return replace(self, shares=shares)

    def _within(self, first: int, last: int) -> Iterator[tuple[SegmentShare, int, int]]:
        """The shares that have some of these entries, each with the first and last that it has."""
        for share in self.shares[max(self._place(first), 0) :]:
            if share.first_entry_id > last:
                return
            start, end = max(first, share.first_entry_id), min(last, share.last_entry_id)
            if start <= end:
                yield share, start, end

    def _place(self, entry_id: int) -> int:
        """Which share may have an entry; -1 if it stands before all of them."""
        return bisect_right(self.shares, entry_id, key=_first_entry_id) - 1

    def blocks(self, first_entry_id: int, last_entry_id: int) -> list[Block]:
        """As any ledger's; neighbours may be of different objects."""
        parts = self._within(first_entry_id, last_entry_id)
        return [block for share, *ends in parts for block in share.blocks(*ends)]

    def extents(self, first_entry_id: int, last_entry_id: int) -> list[tuple[int, int]]:
        """As any ledger's."""
        parts = self._within(first_entry_id, last_entry_id)
        return [extent for share, *ends in parts for extent in share.extents(*ends)]

    def byte_spans(self, first_entry_id: int, last_entry_id: int) -> list[ByteSpan]:
        """As any ledger's."""
        parts = self._within(first_entry_id, last_entry_id)
        return [span for share, *ends in parts for span in share.byte_spans(*ends)]

    def position_of(self, entry_id: int) -> int | None:
        """As any ledger's."""
        parts = self._within(entry_id, entry_id)
        return next((share.position_of(entry_id) for share, *_ in parts), None)

    def remember(self, entry_id: int, position: int) -> None:
        """As any ledger's; where a share begins, the position may be of the object before it."""
        for share, *_ in self._within(entry_id, entry_id):
            if share.first_entry_id < entry_id:
                share.remember(entry_id, position)

    def entry_runs(
        self,
        first_entry_id: int,
        last_entry_id: int,
        tally: Tally,
        *,
        verify_checksums: bool = False,
        is_in_range: bool = True,
        ahead: RangePrefetcher | None = None,
    ) -> Iterator[EntryRun]:
        """As any ledger's.

        Raises:
            MissingEntriesError: No segment has an entry.
            CorruptIndexError: The entries together are not as long as the ledger was.
            PulsarOffloadError: What `LedgerData.entry_runs` raises.
        """
        wanted, length_bytes, entries = first_entry_id, 0, 0
        for share, start, end in self._within(first_entry_id, last_entry_id):
            self._lose(wanted, start - 1, tally)
            for run in share.entry_runs(
                start,
                end,
                tally,
                verify_checksums=verify_checksums,
                is_in_range=is_in_range,
                ahead=ahead,
            ):
                length_bytes += run.frame_bytes
                entries += run.count
                yield run
            wanted = end + 1
        self._lose(wanted, last_entry_id, tally)
        is_whole = entries == self.last_entry_id + 1
        if is_whole and self.length_bytes not in {0, length_bytes}:
            have = counted(length_bytes, "byte")
            message = f"the entries have {have}, the ledger had {self.length_bytes}"
            key = self.shares[-1].name.index_name
            error = CorruptIndexError(message, object_key=key, ledger_id=self.ledger_id)
            tally.lose(Unit.LEDGER, error)

    def gaps(self) -> list[MissingEntriesError]:
        """An error for each run of entries that no share has, by what index objects say."""
        found, wanted = [], 0
        for share in self.shares:
            if wanted < share.first_entry_id:
                found.append(self._missing(wanted, share.first_entry_id - 1))
            wanted = share.last_entry_id + 1
        if wanted <= self.last_entry_id:
            found.append(self._missing(wanted, self.last_entry_id))
        return found

    def _lose(self, first: int, last: int, tally: Tally) -> None:
        """Tell of entries between shares, or around them."""
        if first <= last:
            tally.lose(Unit.ENTRY, self._missing(first, last), count=last - first + 1)

    def _missing(self, first: int, last: int) -> MissingEntriesError:
        place = self._place(first)
        share = self.shares[max(place, 0)]
        table = share.table
        return MissingEntriesError(
            f"no segment has entries {first} … {last} of the ledger",
            object_key=share.data_name,
            ledger_id=self.ledger_id,
            entry_id=first,
            offset=table.block_start(0) if place < 0 else table.data_object_length_bytes,
        )


def _pieces(shares: Sequence[SegmentShare]) -> Iterator[tuple[int, int, int]]:
    """Which share each entry is read of, and from which first to which last one; ascending."""
    by_first = deque(sorted((each.first_entry_id, place) for place, each in enumerate(shares)))
    ends = {each.last_entry_id + 1 for each in shares}
    open_shares: list[tuple[int, int]] = []
    taken: tuple[int, int, int] | None = None
    for start, stop in pairwise(sorted({first for first, _ in by_first} | ends)):
        while by_first and by_first[0][0] == start:
            first, place = by_first.popleft()
            heappush(open_shares, (-first, place))
        while open_shares and shares[open_shares[0][1]].last_entry_id < start:
            heappop(open_shares)
        if not open_shares:
            continue
        place = open_shares[0][1]
        if taken is not None and (taken[0], taken[2]) == (place, start - 1):
            taken = place, taken[1], stop - 1
            continue
        if taken is not None:
            yield taken
        taken = place, start, stop - 1
    if taken is not None:
        yield taken
