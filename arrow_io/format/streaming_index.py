"""The index block of streaming offload: where a segment stores which ledgers (PIP-76).

====== ==== ===================== ==== =========================================================
Offset Size Field                 Type Value
====== ==== ===================== ==== =========================================================
0      4    index_magic           u32  0x3D1FB0BC
4      4    index_len             i32  length of the whole index object
8      8    data_object_length    i64  length of the data object as its writer counted it
16     8    data_header_length    i64  length of each data block's header, 128
24     …    ledger groups              one for each ledger, in no order
====== ==== ===================== ==== =========================================================

One ledger group (OffloadIndexBlockV2Impl):

====== ==== ===================== ==== =========================================================
0      8    ledger_id             i64
8      4    index_entry_count     i32  number of data blocks of this ledger
12     4    metadata_len          i32  M
16     M    metadata                   LedgerInfo of MLDataFormats.proto, a bare protobuf message
16+M   20*n entries                    as in `index_block`; offsets are those in the whole object
====== ==== ===================== ==== =========================================================

All numbers are big-endian. A ledger may begin in an earlier segment and end in a later one; the
part in this segment is its *share*. LedgerInfo has the number of entries of the whole ledger, or of
the entries up to the share's end if the ledger was still open.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, NoReturn

from google.protobuf.message import DecodeError

from arrow_io.core.wording import agreeing, counted
from arrow_io.errors import CorruptIndexError, PulsarOffloadError, TruncatedObjectError
from arrow_io.format.block_table import INDEX_ENTRY, INDEX_ENTRY_BYTES, BlockEntry, BlockTable
from arrow_io.format.data_block import BLOCK_HEADER_BYTES, MAX_BLOCK_HEADER_BYTES
from arrow_io.format.entry_frame import ENTRY_HEADER_BYTES
from arrow_io.format.index_block import (
    DATA_HEADER_LENGTH_OFFSET,
    DATA_OBJECT_LENGTH_OFFSET,
    INDEX_LENGTH_OFFSET,
    MAX_INDEX_OBJECT_BYTES,
)
from arrow_io.format.magics import STREAMING_INDEX_BLOCK_MAGIC, check_magic
from arrow_io.format.protobuf_messages import message_classes
from arrow_io.format.streaming_block import (
    STREAMING_FIELDS_BYTES,
    StreamingBlockHeader,
    check_streaming_header,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from arrow_io.format.entry_frame import BytesLike

_GROUPS_OFFSET = 24
MAX_LEDGERS = 1 << 16
"""Maximum number of ledgers accepted in one segment: each takes some kilobytes of memory."""

_FIXED = struct.Struct(">Iiqq")
_GROUP = struct.Struct(">qii")
_LedgerInfo = message_classes(
    {
        "LedgerInfo": """
            1 ledgerId required int64
            2 entries optional int64
            3 size optional int64
            4 timestamp optional int64
        """
    }
)["LedgerInfo"]


@dataclass(frozen=True, slots=True)
class ShareTable(BlockTable):
    """The block table of one ledger's share of a segment."""

    ledger_id: int
    recorded_lengths: tuple[int, ...] | None = None
    """Length of each block as its writer counted it, in bytes; None if all were counted right."""

    @property
    def may_lack_entries(self) -> bool:
        """Whether entries may be missing: a writer that miscounts may have lost some."""
        return self.recorded_lengths is not None

    def streaming_header(self, block: int) -> StreamingBlockHeader:
        """Return the header that the data object must have at a block's start."""
        length = self.block_stop(block) - self.block_start(block)
        if self.recorded_lengths is not None:
            length = self.recorded_lengths[block]
        return StreamingBlockHeader(
            length, self.first_entry_id(block), self.ledger_id, self.data_header_length_bytes
        )

    def select_entries(self, first_entry_id: int, last_entry_id: int) -> ShareTable:
        """Return the table of only the blocks that hold some entries of the share.

        Args:
            first_entry_id: First entry.
            last_entry_id: Last entry (inclusive); the returned table ends there.
        """
        first, stop = self.find_block(first_entry_id), self.find_block(last_entry_id) + 1
        lengths = self.recorded_lengths
        return ShareTable(
            self.block_stop(stop - 1),
            self.data_header_length_bytes,
            self.entry_table[first * INDEX_ENTRY_BYTES : stop * INDEX_ENTRY_BYTES],
            last_entry_id,
            self.ledger_id,
            None if lengths is None else lengths[first:stop],
        )

    def check_header(self, buffer: BytesLike, block: int, *, offset: int) -> None:
        """Compare a block's header with the table; see `BlockTable.check_header`."""
        check_streaming_header(buffer, expected=self.streaming_header(block), offset=offset)


@dataclass(frozen=True, slots=True)
class LedgerGroup:
    """The record of one ledger in the index block."""

    ledger_id: int
    entries: int
    """Number of entries of the whole ledger; if it was open, of those up to the share's end."""
    size_bytes: int | None
    """Sum of the lengths of all its entries; None if it was open."""
    timestamp_ms: int | None
    """When it was closed, ms since the epoch; None if it was open."""
    rows: tuple[BlockEntry, ...]
    """One for each block, ascending."""

    @property
    def is_closed(self) -> bool:
        """Whether the ledger was closed when the share was written."""
        return self.timestamp_ms is not None


@dataclass(frozen=True, slots=True)
class SegmentIndex:
    """An index block of streaming offload whose fields are consistent."""

    data_object_length_bytes: int
    """Length of the data object as its writer counted it; a whole object may be longer."""
    data_header_length_bytes: int
    groups: tuple[LedgerGroup, ...]
    """The ledgers, in the order of the data object."""
    warnings: tuple[str, ...] = ()

    @property
    def headers(self) -> list[StreamingBlockHeader]:
        """The headers of all blocks, in the order of the data object."""
        rows = [(each.ledger_id, row) for each in self.groups for row in each.rows]
        stops = [*(row.offset for _, row in rows[1:]), self.data_object_length_bytes]
        return [
            StreamingBlockHeader(
                stop - row.offset, row.first_entry_id, ledger_id, self.data_header_length_bytes
            )
            for (ledger_id, row), stop in zip(rows, stops, strict=True)
        ]

    def tables(self, starts: Sequence[int] | None = None) -> list[ShareTable]:
        """Return the block table of each ledger, in the order of `groups`.

        Args:
            starts: The actual start of each block of the object, then the object's end, in bytes;
                None to use those that the index records.
        """
        recorded = [row.offset for each in self.groups for row in each.rows]
        recorded.append(self.data_object_length_bytes)
        real = recorded if starts is None else starts
        tables, first = [], 0
        for each in self.groups:
            stop = first + len(each.rows)
            rows = zip(each.rows, real[first:stop], strict=True)
            lengths = tuple(end - start for start, end in pairwise(recorded[first : stop + 1]))
            tables.append(
                ShareTable(
                    real[stop],
                    self.data_header_length_bytes,
                    b"".join(INDEX_ENTRY.pack(*row[:2], start) for row, start in rows),
                    each.entries - 1,
                    each.ledger_id,
                    None if starts is None else lengths,
                )
            )
            first = stop
        return tables


def read_segment_index(data: bytes, *, object_key: str) -> SegmentIndex:
    """Read an index object of streaming offload.

    Args:
        data: The whole index object.
        object_key: Its key, for errors.

    Raises:
        TruncatedObjectError: The object is shorter than its index_len.
        UnknownFormatError: The magic is another.
        CorruptIndexError: Fields contradict each other, or the object is longer than
            `MAX_INDEX_OBJECT_BYTES`.
    """
    try:
        return _read_segment_index(data)
    except PulsarOffloadError as error:
        error.located(object_key=object_key)
        raise


def _read_segment_index(data: bytes) -> SegmentIndex:
    if len(data) > MAX_INDEX_OBJECT_BYTES:
        _corrupt(f"the object has {len(data)} bytes; at most {MAX_INDEX_OBJECT_BYTES} allowed", 0)
    if len(data) >= INDEX_LENGTH_OFFSET:
        magic = int.from_bytes(data[:INDEX_LENGTH_OFFSET])
        check_magic(magic, STREAMING_INDEX_BLOCK_MAGIC, offset=0)
    if len(data) < _GROUPS_OFFSET:
        message = f"the index object ends within its first {_GROUPS_OFFSET} bytes"
        raise TruncatedObjectError(message, offset=len(data))
    _, index_length, data_length, header_length = _FIXED.unpack_from(data)
    if index_length > len(data):
        message = f"the index object has {counted(len(data), 'byte')} of {index_length}"
        raise TruncatedObjectError(message, offset=len(data))
    if data_length < 0:
        _corrupt(f"data object length {data_length} is negative", DATA_OBJECT_LENGTH_OFFSET)
    if not STREAMING_FIELDS_BYTES <= header_length <= MAX_BLOCK_HEADER_BYTES:
        allowed = f"allowed are {STREAMING_FIELDS_BYTES} … {MAX_BLOCK_HEADER_BYTES}"
        _corrupt(f"block header length {header_length}; {allowed}", DATA_HEADER_LENGTH_OFFSET)
    groups = sorted(
        islice(_read_groups(data, index_length), MAX_LEDGERS + 1),
        key=lambda each: each.rows[0].offset,
    )
    if len(groups) > MAX_LEDGERS:
        _corrupt(f"the index block has more than {MAX_LEDGERS} ledgers", _GROUPS_OFFSET)
    if not groups:
        _corrupt("the index block has no ledger", _GROUPS_OFFSET)
    if len({each.ledger_id for each in groups}) < len(groups):
        _corrupt("the index block has the same ledger twice", _GROUPS_OFFSET)
    index = SegmentIndex(
        data_length,
        header_length,
        tuple(groups),
        tuple(_oddities(data, index_length, header_length, groups)),
    )
    _check_room(index)
    return index


def _read_groups(data: bytes, stop: int) -> Iterator[LedgerGroup]:
    """Yield the ledgers of an index object that ends at `stop`, in stored order."""
    position = _GROUPS_OFFSET
    if stop < position:
        _corrupt(f"index length {stop} ends within the fields before it", INDEX_LENGTH_OFFSET)
    while position < stop:
        if stop - position < _GROUP.size:
            _corrupt(f"{counted(stop - position, 'byte')} instead of a ledger's record", position)
        ledger_id, row_count, metadata_length = _GROUP.unpack_from(data, position)
        if ledger_id < 0:
            _corrupt(f"ledger id {ledger_id} is negative", position)
        if row_count < 1:
            _corrupt(f"number of blocks {row_count}; at least 1 required", position, ledger_id)
        metadata_offset = position + _GROUP.size
        table_offset = metadata_offset + metadata_length
        table_stop = table_offset + row_count * INDEX_ENTRY_BYTES
        if metadata_length < 0 or table_stop > stop:
            content = f"{counted(row_count, 'block')} and {counted(metadata_length, 'byte')} of"
            _corrupt(
                f"{content} metadata in {counted(stop - metadata_offset, 'byte')}",
                position,
                ledger_id,
            )
        table = data[table_offset:table_stop]
        rows = tuple(map(BlockEntry._make, INDEX_ENTRY.iter_unpack(table)))
        metadata = data[metadata_offset:table_offset]
        group = _ledger_group(metadata, ledger_id, rows)
        if rows[0].first_entry_id < 0 or rows[-1].first_entry_id >= group.entries:
            text = f"blocks from entry {rows[0].first_entry_id} to {rows[-1].first_entry_id}"
            _corrupt(f"{text} of {counted(group.entries, 'entry')}", table_offset, ledger_id)
        yield group
        position = table_stop


def _ledger_group(metadata: bytes, ledger_id: int, rows: tuple[BlockEntry, ...]) -> LedgerGroup:
    try:
        info = _LedgerInfo.FromString(metadata)
    except DecodeError:
        info = None
    if info is None or not info.IsInitialized():
        _corrupt("the metadata of a ledger is not a LedgerInfo", _GROUPS_OFFSET, ledger_id)
    if info.ledgerId != ledger_id:
        _corrupt(f"metadata of ledger {info.ledgerId}", _GROUPS_OFFSET, ledger_id)
    if info.entries < 1 or info.size < 0 or info.timestamp < 0:
        size = f"{counted(info.entries, 'entry')} of {counted(info.size, 'byte')}"
        text = f"the metadata of a ledger records {size}, closed at {info.timestamp} ms"
        _corrupt(text, _GROUPS_OFFSET, ledger_id)
    return LedgerGroup(ledger_id, info.entries, info.size or None, info.timestamp or None, rows)


def _check_room(index: SegmentIndex) -> None:
    """Check that blocks ascend, grouped by ledger, and that each has room for its entries."""
    rows = [(each.ledger_id, row) for each in index.groups for row in each.rows]
    if rows[0][1].offset != 0:
        _corrupt(f"the first block is at offset {rows[0][1].offset}, not 0", _GROUPS_OFFSET)
    stops = [*(row.offset for _, row in rows[1:]), index.data_object_length_bytes]
    following = [*rows[1:], None]
    for (ledger_id, row), stop, next_row in zip(rows, stops, following, strict=True):
        n_entries = 1  # at least: the last entries may be in a later segment
        if next_row is not None and next_row[0] == ledger_id:
            n_entries = next_row[1].first_entry_id - row.first_entry_id
        needed = index.data_header_length_bytes + n_entries * ENTRY_HEADER_BYTES
        if n_entries < 1 or stop - row.offset < needed:
            block = f"a data block of {counted(stop - row.offset, 'byte')}"
            text = f"{block} with {counted(n_entries, 'entry')}"
            _corrupt(text, _GROUPS_OFFSET, ledger_id)


def _oddities(
    data: bytes, index_length: int, header_length: int, groups: Sequence[LedgerGroup]
) -> Iterator[str]:
    if header_length != BLOCK_HEADER_BYTES:
        yield f"block headers of {header_length} bytes; Pulsar writes {BLOCK_HEADER_BYTES}"
    part_ids = [row.part_id for each in groups for row in each.rows]
    if part_ids != list(range(1, len(part_ids) + 1)):
        yield "the part ids are not 1, 2, 3, …"
    trailing_bytes = len(data) - index_length
    if trailing_bytes > 0:
        follow = agreeing(trailing_bytes, "follows", "follow")
        were = agreeing(trailing_bytes, "was", "were")
        yield f"{counted(trailing_bytes, 'byte')} {follow} the index block and {were} ignored"


def _corrupt(message: str, offset: int, ledger_id: int | None = None) -> NoReturn:
    raise CorruptIndexError(message, offset=offset, ledger_id=ledger_id)
