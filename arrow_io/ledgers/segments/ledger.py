"""The ledger of streaming offload (PIP-76), whose entries are spread over segments."""

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
        is_clipped: Whether the last block may hold later entries, which are read from another
            segment.
        from_entry_id: Entries before this one are read from another segment.
    """

    name: ShareName
    table: ShareTable
    is_clipped: bool = False
    from_entry_id: int = 0

    def __reduce__(self) -> tuple[object, ...]:
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
        """Return the share restricted to a range of its entries (inclusive)."""
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

    def clip(self, last_entry_id: int) -> SegmentShare:
        """Return the share up to an entry (inclusive), which must be one of its entries."""
        return self.select_entries(self.first_entry_id, last_entry_id)

    def blocks(self, first_entry_id: int, last_entry_id: int) -> list[Block]:
        """Return the blocks with any entry of a range, without entries of other segments."""
        # Without arguments, `super` would refer to the class that `slots=True` replaces.
        first, *others = super(SegmentShare, self).blocks(first_entry_id, last_entry_id)
        least = max(first.first_entry_id, self.from_entry_id)
        return [first._replace(first_entry_id=least), *others]

    def _check_padding(self, stream: RangeStream, position: int, block: int, tally: Tally) -> None:
        if not self.is_clipped or block + 1 < self.table.block_count:
            super(SegmentShare, self)._check_padding(stream, position, block, tally)


@dataclass(frozen=True, slots=True)
class SegmentedLedger:
    """A ledger whose entries are stored in shares of segments: a `Ledger` of PIP-76.

    Attributes:
        shares: Ascending and disjoint; entries may be in no share.
        last_entry_id: Id of the last entry (inclusive), whether it is stored or lost.
        length_bytes: Sum of the lengths of all entries' data; 0 if it is not recorded.
    """

    shares: tuple[SegmentShare, ...]
    last_entry_id: int
    length_bytes: int = field(default=0, compare=False)

    @classmethod
    def from_shares(
        cls,
        shares: Iterable[SegmentShare],
        *,
        entries: int | None = None,
        length_bytes: int = 0,
    ) -> Self:
        """Combine shares; an entry in several shares is read from the one that begins last.

        Args:
            shares: Shares of one ledger, at least one; of two that begin with the same entry, the
                first wins.
            entries: Number of entries of the ledger; None: the end of the shares.
            length_bytes: Sum of the lengths of all entries' data; 0 if it is not recorded.
        """
        all_shares = list(shares)
        last = max(each.last_entry_id for each in all_shares) if entries is None else entries - 1
        clipped = [
            each.clip(min(each.last_entry_id, max(last, each.first_entry_id)))
            for each in all_shares
        ]
        pieces = tuple(clipped[index].select_entries(*ends) for index, *ends in _pieces(clipped))
        return cls(pieces, last, length_bytes)

    @property
    def location(self) -> Location:
        """Location of its objects."""
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
        """Size of its blocks in the data objects, in bytes."""
        return sum(each.stored_bytes for each in self.shares)

    def with_range_bytes(self, range_bytes: int) -> SegmentedLedger:
        """Return the same ledger with another maximum size of a range request."""
        shares = tuple(each.with_range_bytes(range_bytes) for each in self.shares)
        return replace(self, shares=shares)

    def _overlapping_shares(self, first: int, last: int) -> Iterator[tuple[SegmentShare, int, int]]:
        """Yield the shares with any entry of a range, each with its first and last such entry."""
        for share in self.shares[max(self._share_index(first), 0) :]:
            if share.first_entry_id > last:
                return
            start, end = max(first, share.first_entry_id), min(last, share.last_entry_id)
            if start <= end:
                yield share, start, end

    def _share_index(self, entry_id: int) -> int:
        """Return the index of the share that may hold an entry; -1 if it precedes all shares."""
        return bisect_right(self.shares, entry_id, key=_first_entry_id) - 1

    def blocks(self, first_entry_id: int, last_entry_id: int) -> list[Block]:
        """See `Ledger.blocks`; neighbouring blocks may be in different objects."""
        parts = self._overlapping_shares(first_entry_id, last_entry_id)
        return [block for share, *ends in parts for block in share.blocks(*ends)]

    def extents(self, first_entry_id: int, last_entry_id: int) -> list[tuple[int, int]]:
        """See `Ledger.extents`."""
        parts = self._overlapping_shares(first_entry_id, last_entry_id)
        return [extent for share, *ends in parts for extent in share.extents(*ends)]

    def byte_spans(self, first_entry_id: int, last_entry_id: int) -> list[ByteSpan]:
        """See `Ledger.byte_spans`."""
        parts = self._overlapping_shares(first_entry_id, last_entry_id)
        return [span for share, *ends in parts for span in share.byte_spans(*ends)]

    def position_of(self, entry_id: int) -> int | None:
        """See `Ledger.position_of`."""
        parts = self._overlapping_shares(entry_id, entry_id)
        return next((share.position_of(entry_id) for share, *_ in parts), None)

    def remember(self, entry_id: int, position: int) -> None:
        """See `Ledger.remember`; ignores a share's first entry, which may be in another object."""
        for share, *_ in self._overlapping_shares(entry_id, entry_id):
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
        prefetcher: RangePrefetcher | None = None,
    ) -> Iterator[EntryRun]:
        """See `Ledger.entry_runs`.

        Raises:
            MissingEntriesError: No segment has an entry.
            CorruptIndexError: The total length of all entries differs from the ledger's length.
            PulsarOffloadError: See `LedgerData.entry_runs`.
        """
        next_entry, length_bytes, entries = first_entry_id, 0, 0
        for share, start, end in self._overlapping_shares(first_entry_id, last_entry_id):
            self._lose(next_entry, start - 1, tally)
            for run in share.entry_runs(
                start,
                end,
                tally,
                verify_checksums=verify_checksums,
                is_in_range=is_in_range,
                prefetcher=prefetcher,
            ):
                length_bytes += run.frame_bytes
                entries += run.count
                yield run
            next_entry = end + 1
        self._lose(next_entry, last_entry_id, tally)
        is_whole = entries == self.last_entry_id + 1
        if is_whole and self.length_bytes not in {0, length_bytes}:
            have = counted(length_bytes, "byte")
            message = f"the entries have {have}, the ledger had {self.length_bytes}"
            key = self.shares[-1].name.index_name
            error = CorruptIndexError(message, object_key=key, ledger_id=self.ledger_id)
            tally.lose(Unit.LEDGER, error)

    def gaps(self) -> list[MissingEntriesError]:
        """Return an error for each run of entries that, by the index objects, no share has."""
        gaps, next_entry = [], 0
        for share in self.shares:
            if next_entry < share.first_entry_id:
                gaps.append(self._missing(next_entry, share.first_entry_id - 1))
            next_entry = share.last_entry_id + 1
        if next_entry <= self.last_entry_id:
            gaps.append(self._missing(next_entry, self.last_entry_id))
        return gaps

    def _lose(self, first: int, last: int, tally: Tally) -> None:
        if first <= last:
            tally.lose(Unit.ENTRY, self._missing(first, last), count=last - first + 1)

    def _missing(self, first: int, last: int) -> MissingEntriesError:
        index = self._share_index(first)
        share = self.shares[max(index, 0)]
        table = share.table
        return MissingEntriesError(
            f"no segment has entries {first} … {last} of the ledger",
            object_key=share.data_name,
            ledger_id=self.ledger_id,
            entry_id=first,
            offset=table.block_start(0) if index < 0 else table.data_object_length_bytes,
        )


def _pieces(shares: Sequence[SegmentShare]) -> Iterator[tuple[int, int, int]]:
    """Yield ascending ranges of entries: index of the share to read, first entry, last entry."""
    by_first = deque(sorted((each.first_entry_id, index) for index, each in enumerate(shares)))
    ends = {each.last_entry_id + 1 for each in shares}
    open_shares: list[tuple[int, int]] = []
    piece: tuple[int, int, int] | None = None
    for start, stop in pairwise(sorted({first for first, _ in by_first} | ends)):
        while by_first and by_first[0][0] == start:
            first, index = by_first.popleft()
            heappush(open_shares, (-first, index))
        while open_shares and shares[open_shares[0][1]].last_entry_id < start:
            heappop(open_shares)
        if not open_shares:
            continue
        index = open_shares[0][1]
        if piece is not None and (piece[0], piece[2]) == (index, start - 1):
            piece = index, piece[1], stop - 1
            continue
        if piece is not None:
            yield piece
        piece = index, start, stop - 1
    if piece is not None:
        yield piece
