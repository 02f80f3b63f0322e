"""The ledger of a MapFile: range requests planned by positions in its index."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final, Self

from arrow_io.core.wording import OR_DELETION, counted
from arrow_io.errors import (
    CorruptBlockError,
    CorruptIndexError,
    MissingObjectError,
    PulsarOffloadError,
    TruncatedObjectError,
)
from arrow_io.format.entry_frame import ENTRY_HEADER_BYTES
from arrow_io.format.map_file_index import METADATA_KEY
from arrow_io.format.sequence_file import Compression
from arrow_io.ledgers.ledger import Block
from arrow_io.ledgers.mapfiles.walk import walk_map_file
from arrow_io.messages.entry_run import EntryRun, find_run
from arrow_io.read_metrics import Unit
from arrow_io.storage.range_stream import RangeStream
from arrow_io.storage.ranges import RangeReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arrow_io.format.map_file_index import MapFileIndex
    from arrow_io.format.object_names import MapFileName
    from arrow_io.format.sequence_file import SequenceFileHeader
    from arrow_io.ledgers.mapfiles.walk import Chunk, MapFileWalk
    from arrow_io.read_metrics import Tally
    from arrow_io.storage.location import Location
    from arrow_io.storage.object_version import ObjectVersion
    from arrow_io.storage.range_prefetch import RangePrefetcher
    from arrow_io.storage.ranges import ByteSpan

SEEK_DISTANCE_BYTES: Final = 1 << 20
"""Approximate distance of the positions from which a read can start."""
_BLOCK_BYTES: Final = 16 << 20
"""Approximate size of the parts that tasks are made of."""
_MAX_RUN_ENTRIES: Final = 4096
_RUN_BYTES: Final = 2 << 20
_TRIAL_BYTES: Final = 1 << 20
"""Maximum bytes of entries that are held back until a sync marker follows."""
_SHORT: Final = "the data file ends before the last entry of the ledger"


@dataclass(frozen=True, slots=True)
class SeekTable:
    """Positions in `data` from which its records can be read.

    Attributes:
        entry_ids: First entry after each position, ascending from 0. In a file in blocks, the block
            at the position may hold earlier entries too.
        positions: Ascending positions in bytes; the first is the end of the file's header.
    """

    entry_ids: tuple[int, ...]
    positions: tuple[int, ...]

    @classmethod
    def from_index(cls, index: MapFileIndex) -> Self:
        """Return the pairs of an index that are `SEEK_DISTANCE_BYTES` or more apart."""
        entry_ids, positions = list[int](), list[int]()
        for key, position in zip(index.keys, index.positions, strict=True):
            if not positions or position >= positions[-1] + SEEK_DISTANCE_BYTES:
                entry_ids.append(max(key, 0))
                positions.append(position)
        return cls(tuple(entry_ids), tuple(positions))

    def is_valid(self, header_bytes: int, data_bytes: int) -> bool:
        """Return whether a data file of this length can have the positions."""
        entry_ids, positions = (0, *self.entry_ids), (header_bytes, *self.positions)
        return (
            0 < len(self.positions) == len(self.entry_ids)
            and positions[1] == header_bytes
            and entry_ids[1] == 0
            and all(first <= second for first, second in pairwise(entry_ids))
            and all(first <= second for first, second in pairwise((*positions, data_bytes)))
        )

    def floor(self, entry_id: int) -> int:
        """Return the number of the last position that is not after an entry."""
        return max(bisect_right(self.entry_ids, entry_id) - 1, 0)


@dataclass(frozen=True, slots=True)
class MapFileLedger:
    """The `Ledger` of a MapFile: the values that a read of its entries needs.

    Attributes:
        location: Location of its files.
        name: Names of its files.
        header: Header of the data file.
        table: Positions from which a read can start.
        last_entry_id: Id of the last entry (inclusive), whether it is stored or lost.
        length_bytes: Sum of the lengths of its entries' data.
        data_stop: Length of the data file, in bytes.
        version: Version that the data file must have; None if unknown.
    """

    location: Location
    name: MapFileName
    header: SequenceFileHeader
    table: SeekTable
    last_entry_id: int
    length_bytes: int
    data_stop: int
    version: ObjectVersion | None = field(default=None)

    @property
    def ledger_id(self) -> int:
        """BookKeeper ledger id."""
        return self.name.ledger_id

    @property
    def parts(self) -> tuple[Self, ...]:
        """The ledger itself: one data file holds all of it."""
        return (self,)

    @property
    def data_name(self) -> str:
        """Name of the data file."""
        return self.name.data_name

    @property
    def first_entry_id(self) -> int:
        """Id of the first entry."""
        return 0

    @property
    def is_in_blocks(self) -> bool:
        """Whether records are compressed in blocks."""
        return self.header.compression is Compression.BLOCK

    @property
    def block_count(self) -> int:
        """Number of blocks that hold entries."""
        return len(self.blocks(0, self.last_entry_id))

    @property
    def missing_from_entry_id(self) -> None:
        """None: the length of the file shows whether the offloader lost entries."""
        return

    @property
    def may_lack_entries(self) -> bool:
        """Whether the offloader lost entries, or may have lost some."""
        return False

    @property
    def stored_bytes(self) -> int:
        """Size of its records in the data file, in bytes."""
        return self.data_stop - self.table.positions[0]

    def with_range_bytes(self, range_bytes: int) -> Self:
        """Return the same ledger with another maximum size of a range request."""
        return replace(self, location=replace(self.location, range_bytes=range_bytes))

    def blocks(self, first_entry_id: int, last_entry_id: int) -> list[Block]:
        """Return parts of about `_BLOCK_BYTES` with any entry of a range, ascending.

        In a file in blocks, the last entries of a part may be stored after its end, in the block in
        which the next part begins.
        """
        table, blocks = self.table, list[Block]()
        first = 0
        for number in range(1, len(table.positions) + 1):
            is_last = number == len(table.positions)
            stop = self.data_stop if is_last else table.positions[number]
            if not is_last and stop - table.positions[first] < _BLOCK_BYTES:
                continue
            last = self.last_entry_id if is_last else table.entry_ids[number] - 1
            entry_id = table.entry_ids[first]
            if entry_id <= last and entry_id <= last_entry_id and last >= first_entry_id:
                blocks.append(Block(entry_id, last, table.positions[first], stop))
            first = number
        return blocks

    def extents(self, first_entry_id: int, last_entry_id: int) -> list[tuple[int, int]]:
        """Return the bytes `[start, stop)` that surely contain some entries."""
        table = self.table
        # In a file in blocks, the block of the next position may hold earlier entries.
        after = 2 if self.is_in_blocks else 1
        stop = table.floor(last_entry_id) + after
        is_end = stop >= len(table.positions)
        start = table.positions[table.floor(first_entry_id)]
        return [(start, self.data_stop if is_end else table.positions[stop])]

    def position_of(self, entry_id: int) -> None:
        """Return None: reads start at positions of the index."""
        del entry_id

    def remember(self, entry_id: int, position: int) -> None:
        """Do nothing: reads start at positions of the index."""

    def byte_spans(self, first_entry_id: int, last_entry_id: int) -> list[ByteSpan]:
        """Return the bytes that `entry_runs` reads."""
        position = self.table.positions[self.table.floor(first_entry_id)]
        return [self.span(position, last_entry_id)]

    def span(self, position: int, last: int) -> ByteSpan:
        """Return the bytes from a position on; those up to the entry `last` are estimated."""
        table, stop = self.table, self.data_stop
        number = table.floor(last)
        if last < self.last_entry_id and number + 1 < len(table.positions):
            start, next_start = table.positions[number : number + 2]
            entry_id, next_id = table.entry_ids[number : number + 2]
            stop = start + (last + 1 - entry_id) * (next_start - start) // (next_id - entry_id)
        range_bytes = self.location.first_range_bytes
        if stop < self.data_stop:
            # The rest of a range costs less than another request for a few missing bytes.
            stop = position - (position - stop) // range_bytes * range_bytes
        reader = RangeReader(self.location, self.data_name, self.data_stop, self.version)
        return reader.span(position, self.data_stop, sure_stop=min(stop, self.data_stop))

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

        If the index proves wrong, the file is read from its start, and the metrics say so.

        Raises:
            CorruptBlockError: A record or block is damaged, or keys are not consecutive.
            CorruptIndexError: The total length of all entries differs from the ledger's length.
            TruncatedObjectError: The data file ends too early.
            MissingObjectError: The data file is missing.
            ObjectChangedError: The data file was replaced.
            StorageError: The store denied access, or requests failed until the deadline.
        """
        if first_entry_id > last_entry_id:
            return
        length_bytes = count = 0
        read = _EntryRead(self, first_entry_id, last_entry_id, tally, prefetcher)
        try:
            for run in read.runs():
                length_bytes += run.frame_bytes
                count += run.count
                run.is_in_range = is_in_range
                if verify_checksums:
                    run.verify_checksums()
                yield run
        except MissingObjectError as missing:
            message = f"the data file of the ledger is missing{OR_DELETION}"
            raise self.locate(MissingObjectError(message)) from missing
        if count == self.last_entry_id + 1 and length_bytes != self.length_bytes:
            have = counted(length_bytes, "byte")
            message = f"the entries have {have}, the ledger had {self.length_bytes}"
            tally.lose(Unit.LEDGER, self.locate(CorruptIndexError(message)))

    def locate(self, error: PulsarOffloadError, entry_id: int | None = None) -> PulsarOffloadError:
        """Add the location of the data file, and of an entry, to an error."""
        return error.located(object_key=self.data_name, ledger_id=self.ledger_id, entry_id=entry_id)


class _EntryRead:
    """One read of a range of entries."""

    def __init__(
        self,
        ledger: MapFileLedger,
        first: int,
        last: int,
        tally: Tally,
        prefetcher: RangePrefetcher | None,
    ) -> None:
        self._ledger = ledger
        self._next = first
        self._last = last
        self._tally = tally
        self._prefetcher = prefetcher
        self._is_trial = False  # whether the position of the index may still prove wrong
        self._is_aligned = False
        self._is_damaged = False
        self._error = _gap_error()  # what the next entries are lost to, if they are

    def runs(self) -> Iterator[EntryRun]:
        """Read from the position before the first entry; if that is wrong, from the start."""
        ledger, first = self._ledger, self._next
        number = ledger.table.floor(first)
        trial = self._trial(number) if number else None
        if trial is not None:
            yield from trial
            return
        # Only a pass from the start shows whether the index or the data is wrong.
        self._next, self._is_damaged = first, False
        yield from self._runs(ledger.table.positions[0], METADATA_KEY)
        if number and not self._is_damaged:
            self._tally.metrics.doubts.append(
                f"{ledger.name.index_name} has wrong positions: the data file of ledger"
                f" {ledger.ledger_id} was read from its start"
            )

    def _trial(self, number: int) -> Iterator[EntryRun] | None:
        """Read from a position of the index; return None if no record is there.

        What looks like a record may be the data of an entry, until a sync marker follows.
        """
        ledger = self._ledger
        key = None if ledger.is_in_blocks else ledger.table.entry_ids[number]
        runs = self._runs(ledger.table.positions[number], key)
        held, held_bytes = list[EntryRun](), 0
        self._is_trial = True
        try:
            for run in runs:
                held.append(run)
                held_bytes += run.frame_bytes
                if self._is_aligned or held_bytes >= _TRIAL_BYTES:
                    break
        except (CorruptBlockError, TruncatedObjectError):
            return None
        finally:
            self._is_trial = False
        return chain(held, runs)

    def _runs(self, position: int, key: int | None) -> Iterator[EntryRun]:
        """Read from a position on; after damage, resume at the next intact record if salvaging."""
        ledger = self._ledger
        while self._next <= self._last:
            with RangeStream(ledger.span(position, self._last), self._prefetcher) as stream:
                walk = walk_map_file(stream, ledger.header, ledger.data_stop, position, key)
                try:
                    yield from self._walked_runs(walk)
                    self._error = TruncatedObjectError(_SHORT, offset=ledger.data_stop)
                except (CorruptBlockError, TruncatedObjectError) as damage:
                    self._error, self._is_damaged = damage, True
                    if self._is_trial:
                        raise
            if self._next > self._last:
                return
            if self._is_trial or not self._tally.salvage:
                raise ledger.locate(self._error, self._next)
            resumed = self._resume_position(walk)
            if resumed is None:
                self._lose(self._last + 1)
                return
            position, key = resumed

    def _walked_runs(self, walk: MapFileWalk) -> Iterator[EntryRun]:
        """Yield the entries of a walk, whose first key may be greater than that of the next."""
        for chunk in walk.chunks(self._last):
            self._is_aligned = walk.is_aligned
            if chunk.first_key > self._next:
                self._lose(chunk.first_key)
            for run in self._chunk_runs(chunk):
                self._error = _gap_error()
                yield run
        if self._is_trial:
            _confirm(walk, self._ledger.data_stop)

    def _resume_position(self, walk: MapFileWalk) -> tuple[int, int | None] | None:
        """Return position and key at which a read resumes after damage; None if there is none."""
        ledger, table, start = self._ledger, self._ledger.table, walk.position + 1
        if start >= ledger.data_stop:
            return None
        number = bisect_left(table.positions, start)
        # Blocks begin with an escape, so positions of the index are not needed.
        is_last = number == len(table.positions) or ledger.is_in_blocks
        stop = ledger.data_stop if is_last else table.positions[number]
        with RangeStream(ledger.span(start, self._last), self._prefetcher) as stream:
            search = walk_map_file(stream, ledger.header, ledger.data_stop, start)
            found = search.find_next(stop, walk)
        return found if found is not None or is_last else (stop, table.entry_ids[number])

    def _lose(self, key: int) -> None:
        """Count the entries before a key as lost to the last damage."""
        if self._is_trial:
            raise self._error
        stop = min(key, self._last + 1)
        located = self._ledger.locate(self._error, self._next)
        self._tally.lose(Unit.ENTRY, located, count=stop - self._next)
        self._next = stop

    def _chunk_runs(self, chunk: Chunk) -> Iterator[EntryRun]:
        """Yield the entries of a chunk from the next one on."""
        ledger, frames, key, position = self._ledger, chunk.frames, chunk.first_key, 0
        if key == METADATA_KEY:
            position = ENTRY_HEADER_BYTES + int.from_bytes(frames[:4], "big")
            key += 1
        last = min(self._last, chunk.first_key + chunk.record_count - 1)
        capacity = min(_RUN_BYTES * chunk.record_count // len(frames) + 1, _MAX_RUN_ENTRIES)
        while key <= last:
            ids = range(key, min(last + 1, key + capacity))
            run, position, *_ = find_run(
                ledger.ledger_id, ledger.data_name, frames, chunk.start, ids, start=position
            )
            run.scale = chunk.stop - chunk.start, len(frames)
            skip_count = max(self._next - key, 0)
            key += run.count
            if skip_count >= run.count:
                continue
            self._next = key
            yield run.part(skip_count, run.count) if skip_count else run


def _confirm(walk: MapFileWalk, data_stop: int) -> None:
    """Walk until a sync marker or the end of the file shows that the records before are records.

    Raises:
        CorruptBlockError: They are not.
        TruncatedObjectError: The file ends in what follows them.
    """
    stop = min(walk.position + _TRIAL_BYTES, data_stop)
    while not walk.is_aligned and walk.position < stop and walk.key is not None:
        next(walk.chunks(walk.key), None)


def _gap_error() -> PulsarOffloadError:
    return CorruptBlockError("keys are missing between two records")
