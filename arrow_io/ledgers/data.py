"""The entries of a ledger in one data object: range requests planned by its block table.

Pulsar's own reader is `BlobStoreBackedReadHandleImpl`; unlike that, this one checks block headers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self
from uuid import UUID

from arrow_io.core.wording import OR_DELETION, counted
from arrow_io.errors import (
    CorruptBlockError,
    CorruptIndexError,
    MissingEntriesError,
    MissingObjectError,
    PulsarOffloadError,
    TruncatedObjectError,
    UnknownFormatError,
)
from arrow_io.format.block_table import BlockTable, pack_entry_table, unpack_entry_table
from arrow_io.format.data_block import PADDING_PATTERN, is_padding
from arrow_io.format.index_block import MANAGED_LEDGER_NAME_KEY
from arrow_io.format.object_names import LedgerObjectName
from arrow_io.ledgers.block_walk import BlockWalk, walk_start
from arrow_io.ledgers.ledger import Block
from arrow_io.ledgers.offset_memory import OffsetMemory
from arrow_io.read_metrics import Unit
from arrow_io.storage.object_version import ETag
from arrow_io.storage.range_stream import RangeStream
from arrow_io.storage.ranges import RangeReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arrow_io.format.object_names import ShareName
    from arrow_io.messages.entry_run import EntryRun
    from arrow_io.read_metrics import Tally
    from arrow_io.storage.location import Location
    from arrow_io.storage.object_version import ObjectVersion
    from arrow_io.storage.range_prefetch import RangePrefetcher
    from arrow_io.storage.ranges import ByteSpan

_OFFSETS = OffsetMemory()


@dataclass(frozen=True, slots=True)
class LedgerData:
    """The `Ledger` of PIP-17: the values that a read of its entries needs.

    Pickled, it takes about 130 bytes with one data block, and 200 with 32.

    Attributes:
        location: Location of its objects.
        name: Names of its objects.
        table: Block table of its entries.
        length_bytes: Sum of the lengths of its entries' data; 0 if the index object does not record
            it.
        managed_ledger: Name of the managed ledger; None if unknown.
        version: Version that the data object must have; None if unknown.
        cut_bytes: Length of the data object if it is known to be truncated; None if it is whole.
    """

    location: Location
    name: LedgerObjectName | ShareName
    table: BlockTable
    length_bytes: int
    managed_ledger: str | None
    version: ObjectVersion | None
    cut_bytes: int | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as plain values: tasks hold thousands of ledgers, and field names are long."""
        table, version = self.table, self.version
        return _restore, (
            self.location,
            self.name.uuid.bytes,
            self.name.ledger_id,
            table.data_object_length_bytes,
            table.data_header_length_bytes,
            pack_entry_table(table.entry_table),
            table.last_entry_id,
            self.length_bytes,
            self.managed_ledger,
            version.text if isinstance(version, ETag) else version,
            self.cut_bytes,
        )

    @property
    def ledger_id(self) -> int:
        """BookKeeper ledger id."""
        return self.name.ledger_id

    @property
    def last_entry_id(self) -> int:
        """Id of the last entry (inclusive), whether it is stored or lost."""
        return self.table.last_entry_id

    @property
    def parts(self) -> tuple[Self, ...]:
        """The ledger itself: one data object holds all of it."""
        return (self,)

    @property
    def data_name(self) -> str:
        """Name of the data object."""
        return self.name.data_name

    @property
    def first_entry_id(self) -> int:
        """Id of the first entry."""
        return self.table.least_entry_id

    @property
    def block_count(self) -> int:
        """Number of blocks that hold entries."""
        return self.table.block_count

    @property
    def missing_from_entry_id(self) -> int | None:
        """First entry that the offloader lost, with all later ones; None if it lost none."""
        return self.table.missing_from_entry_id

    @property
    def may_lack_entries(self) -> bool:
        """Whether the offloader lost entries, or may have lost some."""
        return self.table.may_lack_entries

    @property
    def data_stop(self) -> int:
        """End of the data object, in bytes (exclusive)."""
        whole = self.table.data_object_length_bytes
        return whole if self.cut_bytes is None else min(whole, self.cut_bytes)

    def blocks(self, first_entry_id: int, last_entry_id: int) -> list[Block]:
        """Return the blocks with any entry of a range, ascending; lost entries have none.

        If the data object is too short for a block, the block ends at the end of the object.
        """
        table = self.table
        last = self._last_stored(last_entry_id)
        if first_entry_id > last:
            return []
        numbers = range(table.find_block(first_entry_id), table.find_block(last) + 1)
        stop = self.data_stop
        return [
            Block(
                table.first_entry_id(block),
                table.block_last_entry_id(block),
                min(table.block_start(block), stop),
                min(table.block_stop(block), stop),
            )
            for block in numbers
        ]

    def _last_stored(self, last_entry_id: int) -> int:
        missing_from = self.table.missing_from_entry_id
        return last_entry_id if missing_from is None else min(last_entry_id, missing_from - 1)

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
        """Read a range of entries, in order; see `Ledger.entry_runs` for the arguments.

        Raises:
            CorruptBlockError: A block's header, lengths or ids contradict the index object.
            CorruptIndexError: The total length of all entries differs from the ledger's length.
            UnknownFormatError: A block does not begin with its format's magic.
            TruncatedObjectError: The data object ends too early.
            MissingEntriesError: The offloader lost entries.
            MissingObjectError: The data object is missing.
            ObjectChangedError: The data object was replaced.
            StorageError: The store denied access, or requests failed until the deadline.
        """
        if first_entry_id > last_entry_id:
            return
        last_stored = self._last_stored(last_entry_id)
        if first_entry_id <= last_stored:
            try:
                yield from self._stored_runs(
                    first_entry_id,
                    last_stored,
                    tally,
                    verify_checksums=verify_checksums,
                    is_in_range=is_in_range,
                    prefetcher=prefetcher,
                )
            except MissingObjectError as missing:
                raise self._missing_data_error() from missing
        if last_stored < last_entry_id:
            lost_from = max(first_entry_id, last_stored + 1)
            message = "the offloader lost this entry and those after it"
            error = MissingEntriesError(message, entry_id=lost_from)
            tally.lose(Unit.ENTRY, self._locate(error), count=last_entry_id - lost_from + 1)

    def _stored_runs(
        self,
        first: int,
        last: int,
        tally: Tally,
        *,
        verify_checksums: bool,
        is_in_range: bool,
        prefetcher: RangePrefetcher | None,
    ) -> Iterator[EntryRun]:
        table = self.table
        walk = BlockWalk(self, first, _OFFSETS)
        length_bytes = entries = 0
        last_block = table.find_block(last)
        stream = RangeStream(self._span(walk.position, last), prefetcher)
        is_misled = False
        with stream:
            for block in range(walk.block, last_block + 1):
                next_entry = max(table.first_entry_id(block), first)
                block_end = table.block_last_entry_id(block) + 1
                try:
                    for run in walk.runs(stream, block, last):
                        self._check_data_owner(stream)
                        length_bytes += run.frame_bytes
                        entries += run.count
                        next_id = run.last_entry_id + 1
                        if next_id == block_end:
                            self._check_padding(stream, walk.position, block, tally)
                        if next_id > last and entries == self.last_entry_id + 1:
                            self._check_length(length_bytes, tally)
                        if verify_checksums:
                            run.verify_checksums()
                        run.is_in_range = is_in_range
                        next_entry = next_id
                        yield run
                except (CorruptBlockError, TruncatedObjectError, UnknownFormatError) as error:
                    _OFFSETS.forget(self.memory_key)
                    is_misled = walk.is_remembered and block == walk.block and next_entry == first
                    if is_misled:
                        break
                    lost = min(last + 1, block_end) - next_entry
                    tally.lose(
                        Unit.ENTRY, self._locate(error, next_entry, walk.position), count=lost
                    )
        if is_misled:
            # The remembered offset may be wrong: only a walk from the block's start proves damage.
            yield from self._stored_runs(
                first,
                last,
                tally,
                verify_checksums=verify_checksums,
                is_in_range=is_in_range,
                prefetcher=prefetcher,
            )

    def _missing_data_error(self) -> PulsarOffloadError:
        """Return the error for a missing data object, depending on whether the index object exists.

        Only the metadata of the topic can tell whether retention deleted them.
        """
        message = f"the data object is missing, but its index object exists{OR_DELETION}"
        if not self.location.exists(self.name.index_name):
            message = (
                "both objects of the ledger were deleted since the topic was opened: open the topic"
                " again"
            )
        return self._locate(MissingObjectError(message))

    def position_of(self, entry_id: int) -> int | None:
        """Return the start of an entry's header in the data object, if it is remembered."""
        remembered = _OFFSETS.floor(self.memory_key, entry_id)
        return remembered[1] if remembered is not None and remembered[0] == entry_id else None

    def remember(self, entry_id: int, position: int) -> None:
        """Remember, for later reads, that an entry's header starts at a position.

        A wrong id or position only costs additional requests.
        """
        _OFFSETS.remember(self.memory_key, entry_id, position)

    @property
    def stored_bytes(self) -> int:
        """Size of its blocks in the data object, in bytes."""
        return self.table.stored_bytes

    def with_range_bytes(self, range_bytes: int) -> Self:
        """Return the same ledger with another maximum size of a range request."""
        return replace(self, location=replace(self.location, range_bytes=range_bytes))

    def extents(self, first_entry_id: int, last_entry_id: int) -> list[tuple[int, int]]:
        """Return the bytes `[start, stop)` that surely contain some entries; none if all are lost.

        They are whole blocks, except where the position of an entry in its block is remembered.
        """
        blocks = self.blocks(first_entry_id, last_entry_id)
        if not blocks:
            return []
        start, stop = blocks[0].start, blocks[-1].stop
        if first_entry_id > blocks[0].first_entry_id:
            remembered = self.position_of(first_entry_id)
            start = start if remembered is None else remembered
        if last_entry_id < blocks[-1].last_entry_id:
            remembered = self.position_of(last_entry_id + 1)
            stop = stop if remembered is None else remembered
        return [(start, stop)]

    def byte_spans(self, first_entry_id: int, last_entry_id: int) -> list[ByteSpan]:
        """Return the bytes that `entry_runs` reads; empty if all of the entries are lost."""
        last = self._last_stored(last_entry_id)
        if first_entry_id > last:
            return []
        _, position = walk_start(self, first_entry_id, _OFFSETS)
        return [self._span(position, last)]

    def _span(self, position: int, last: int) -> ByteSpan:
        """Return the bytes from a position to the end of the block of the stored entry `last`."""
        table = self.table
        block = table.find_block(last)
        stop = min(table.block_stop(block), self.data_stop)
        # Unless the entry ends its block or its end is remembered, estimate its end, assuming
        # entries of equal length, and request whole ranges: the rest of a range costs less than
        # another request for a few missing bytes.
        first, last_of_block = table.first_entry_id(block), table.block_last_entry_id(block)
        start = table.block_start(block)
        share = (
            (last - first + 1) * (table.block_stop(block) - start) // (last_of_block - first + 1)
        )
        sure_stop = self.position_of(last + 1) if last < last_of_block else None
        if sure_stop is None:
            range_bytes = self.location.first_range_bytes
            sure_stop = position - (position - start - share) // range_bytes * range_bytes
        reader = RangeReader(self.location, self.data_name, self.data_stop, self.version)
        return reader.span(min(position, stop), stop, sure_stop=min(sure_stop, stop))

    def _check_padding(self, stream: RangeStream, position: int, block: int, tally: Tally) -> None:
        """Check that padding follows a block's last entry, not one that the index leaves out."""
        length = min(len(PADDING_PATTERN), self.table.block_stop(block) - position)
        try:
            view, start = stream.at(position, length)
        except TruncatedObjectError as error:
            tally.lose(Unit.BLOCK, self._locate(error))
            return
        if not is_padding(view[start : start + length]):
            message = "the data after the last entry of a block is not padding"
            last = self.table.block_last_entry_id(block)
            tally.lose(Unit.BLOCK, self._locate(CorruptBlockError(message), last, position))

    def _check_data_owner(self, stream: RangeStream) -> None:
        """Compare the managed ledger names of both objects, if responses contain them."""
        user_metadata = None if stream.first is None else stream.first.user_metadata
        owner = self.managed_ledger
        other = (user_metadata or {}).get(MANAGED_LEDGER_NAME_KEY)
        if None not in (owner, other) and owner != other:
            message = (
                f"the data object is of managed ledger {other!r}, its index object of {owner!r}"
            )
            raise CorruptBlockError(message)

    def _check_length(self, length_bytes: int, tally: Tally) -> None:
        """Compare the total length of the entries with the recorded length of the ledger."""
        if self.length_bytes not in {0, length_bytes}:
            have = counted(length_bytes, "byte")
            message = f"the entries have {have}, the ledger had {self.length_bytes}"
            error = CorruptIndexError(message, object_key=self.name.index_name)
            tally.lose(Unit.LEDGER, self._locate(error))

    @property
    def memory_key(self) -> object:
        """The key of its entries in the offset memory."""
        return (
            self.location.url,
            self.data_name,
            self.table.data_object_length_bytes,
            self.version,
        )

    def _locate(
        self, error: PulsarOffloadError, entry_id: int | None = None, offset: int | None = None
    ) -> PulsarOffloadError:
        return error.located(
            object_key=self.data_name,
            ledger_id=self.ledger_id,
            entry_id=entry_id,
            offset=offset,
        )


def _restore(  # noqa: PLR0917 - called by pickle alone
    location: Location,
    uuid: bytes,
    ledger_id: int,
    data_object_length_bytes: int,
    data_header_length_bytes: int,
    packed_entry_table: bytes,
    last_entry_id: int,
    length_bytes: int,
    managed_ledger: str | None,
    version: ObjectVersion | str | None,
    cut_bytes: int | None,
) -> LedgerData:
    return LedgerData(
        location,
        LedgerObjectName(UUID(bytes=uuid), ledger_id),
        BlockTable(
            data_object_length_bytes,
            data_header_length_bytes,
            unpack_entry_table(packed_entry_table),
            last_entry_id,
        ),
        length_bytes,
        managed_ledger,
        ETag(version) if isinstance(version, str) else version,
        cut_bytes,
    )
