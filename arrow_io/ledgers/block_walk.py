"""Walks over the entries of a ledger's data blocks, in storage order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from arrow_io.core.wording import counted
from arrow_io.errors import CorruptBlockError, TruncatedObjectError
from arrow_io.format.entry_frame import ENTRY_HEADER_BYTES
from arrow_io.messages import layout
from arrow_io.messages.codecs import MAX_MESSAGE_BYTES
from arrow_io.messages.entry_run import find_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arrow_io.format.block_table import BlockTable
    from arrow_io.ledgers.offset_memory import OffsetMemory
    from arrow_io.messages.entry_run import EntryRun, FoundRun
    from arrow_io.storage.range_stream import RangeStream

_MAX_RUN_ENTRIES = 8192
_RUN_BYTES = 2 << 20
"""Approximate size of a run's entries in bytes: the size of a core's second-level cache."""
_LARGE_ENTRY_BYTES = 16 << 10
_LARGE_ENTRY_RUN_BYTES = 4 << 20
"""As `_RUN_BYTES`, for entries whose mean size is at least `_LARGE_ENTRY_BYTES`.

Most of them are batches. A plain batch is read from memory once, and a compressed one is small
beside its messages. So a run need not fit into the cache, and fewer runs cost less.
"""
_REMEMBERED_DISTANCE_BYTES = 1 << 20
_STOP_PROBLEMS = {
    layout.PADDING: "found padding or the next block instead of the expected entry",
    layout.WRONG_ENTRY_ID: "found another entry id than the expected one",
}


class WalkedData(Protocol):
    """The attributes of a ledger that a walk over its data object uses."""

    @property
    def ledger_id(self) -> int:
        """BookKeeper ledger id."""

    @property
    def data_name(self) -> str:
        """Name of the data object."""

    @property
    def data_stop(self) -> int:
        """End of the data object, in bytes (exclusive)."""

    @property
    def length_bytes(self) -> int:
        """Sum of the lengths of all entries' data; 0 if it is not recorded."""

    @property
    def table(self) -> BlockTable:
        """The block table."""

    @property
    def memory_key(self) -> object:
        """The key of its entries in the offset memory."""


class BlockWalk:
    """A walk over consecutive blocks, from the start of a block or from a remembered entry.

    Attributes:
        block: Number of the first block.
        position: Start of the next entry, or of the next block's header, in the data object.
        entry_id: Id of the next entry.
        is_remembered: Whether the walk starts at a remembered entry, whose offset may be wrong.
    """

    def __init__(self, ledger: WalkedData, first_entry_id: int, offsets: OffsetMemory) -> None:
        table = ledger.table
        self._ledger = ledger
        self._first = first_entry_id
        self.block = table.find_block(first_entry_id)
        self.entry_id, self.position = walk_start(ledger, first_entry_id, offsets)
        self.is_remembered = self.entry_id > table.first_entry_id(self.block)
        self._inside = self.is_remembered
        mean_bytes = ENTRY_HEADER_BYTES + (ledger.length_bytes // table.entry_count)
        run_bytes = _RUN_BYTES if mean_bytes < _LARGE_ENTRY_BYTES else _LARGE_ENTRY_RUN_BYTES
        self._capacity = min(run_bytes // mean_bytes + 1, _MAX_RUN_ENTRIES)
        self._data_name = ledger.data_name
        self._offsets = offsets
        self._memory_key = ledger.memory_key
        self._remembered = 0

    def runs(self, stream: RangeStream, block: int, last_entry_id: int) -> Iterator[EntryRun]:
        """Read the entries of one block, from `first_entry_id` to `last_entry_id` (inclusive).

        Args:
            stream: The bytes of the data object.
            block: Number of the block: `self.block`, or the one after the last that was walked.
            last_entry_id: Last entry (inclusive).

        Raises:
            CorruptBlockError: The block's header or an entry id contradicts the index object, the
                block ends within an entry, or an entry is too long.
            UnknownFormatError: The block does not begin with its format's magic.
            TruncatedObjectError: The data object ends within an entry.
            MissingObjectError: The data object is missing.
            StorageError: The store denied access, requests failed until the deadline, or the object
                was replaced.
        """
        table = self._ledger.table
        block_stop = min(table.block_stop(block), self._ledger.data_stop)
        if not self._inside:
            self.position = table.block_start(block)
            self.entry_id = table.first_entry_id(block)
            self._skip_header(stream, block)
        self._inside = False
        last = min(last_entry_id, table.block_last_entry_id(block))
        needed = ENTRY_HEADER_BYTES
        while self.entry_id <= last:
            if needed > block_stop - self.position:
                message = f"entries are missing: the block ends before entry {self.entry_id} does"
                is_cut = block_stop < table.block_stop(block)
                raise TruncatedObjectError(message) if is_cut else CorruptBlockError(message)
            if needed > MAX_MESSAGE_BYTES:
                size = counted(needed - ENTRY_HEADER_BYTES, "byte")
                limit = MAX_MESSAGE_BYTES - ENTRY_HEADER_BYTES
                message = f"the entry announces {size}; at most {limit} are accepted"
                raise CorruptBlockError(message)
            view, start = stream.at(self.position, needed)
            stop = min(len(view), start + block_stop - self.position)
            found = self._find(view, start, stop, last)
            needed = found.needed_bytes or ENTRY_HEADER_BYTES
            run = found.run
            if run.count:
                if self.position - self._remembered >= _REMEMBERED_DISTANCE_BYTES:
                    self._remember(self.entry_id, self.position)
                self.position += found.stop - start
                self.entry_id += run.count
                skip_count = max(self._first - run.first_entry_id, 0)
                if skip_count < run.count:
                    run = run.part(skip_count, run.count) if skip_count else run
                    self._remember_inside(run)
                    yield run

    def _remember_inside(self, run: EntryRun) -> None:
        """Remember entries of a run at regular distances, assuming entries of similar length."""
        length_bytes = self.position - run.entry_start(0)
        distance = run.count * _REMEMBERED_DISTANCE_BYTES // length_bytes + 1
        for index in range(distance, run.count, distance):
            self._remember(run.first_entry_id + index, run.entry_start(index))

    def _remember(self, entry_id: int, position: int) -> None:
        self._offsets.remember(self._memory_key, entry_id, position)
        self._remembered = position

    def _skip_header(self, stream: RangeStream, block: int) -> None:
        table = self._ledger.table
        length = table.data_header_length_bytes
        view, start = stream.at(self.position, length)
        table.check_header(view[start : start + length], block, offset=self.position)
        self.position += length

    def _find(self, view: memoryview, start: int, stop: int, last: int) -> FoundRun:
        """Find entries in the buffered bytes."""
        ids = range(self.entry_id, min(last + 1, self.entry_id + self._capacity))
        ledger, offset = self._ledger, self.position - start
        found = find_run(
            ledger.ledger_id, self._data_name, view, offset, ids, start=start, stop=stop
        )
        if found.run.count == 0 and found.status in _STOP_PROBLEMS:
            raise CorruptBlockError(_STOP_PROBLEMS[found.status])
        return found


def walk_start(ledger: WalkedData, first_entry_id: int, offsets: OffsetMemory) -> tuple[int, int]:
    """Return the entry at which a walk to another entry starts, and its offset.

    The offset is that of a remembered entry, or of the start of the block.
    """
    block = ledger.table.find_block(first_entry_id)
    entry_id = ledger.table.first_entry_id(block)
    remembered = offsets.floor(ledger.memory_key, first_entry_id)
    start = ledger.table.block_start(block)
    if remembered is not None and remembered[0] > entry_id and start < remembered[1]:
        return remembered
    return entry_id, start
