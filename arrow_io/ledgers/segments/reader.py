"""The reader of a streaming segment (PIP-76): its objects → shares of ledgers."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Final, Self

from arrow_io.core.lazy import cached_property
from arrow_io.core.wording import counted
from arrow_io.errors import TruncatedObjectError
from arrow_io.format.index_block import MANAGED_LEDGER_NAME_KEY, check_format_version
from arrow_io.format.object_names import ShareName
from arrow_io.format.streaming_index import read_segment_index
from arrow_io.ledgers.index_objects import read_index_object
from arrow_io.ledgers.open_ledger import OpenLedger
from arrow_io.ledgers.reader import UNKNOWN_VERSIONS, ObjectVersions
from arrow_io.ledgers.segments.ledger import SegmentedLedger, SegmentShare
from arrow_io.messages.codecs import MAX_MESSAGE_BYTES
from arrow_io.storage.ranges import RangeReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from arrow_io.format.object_names import SegmentName
    from arrow_io.format.streaming_block import StreamingBlockHeader
    from arrow_io.format.streaming_index import SegmentIndex
    from arrow_io.storage.location import Location
    from arrow_io.storage.object_store import ObjectContent, ObjectInfo

_FIRST_LOOK_BYTES: Final = 4 << 10
"""Bytes read at the expected start of a block; it may start one entry, usually small, later."""
_ENTRY_HEADER: Final = struct.Struct(">iq")
_LOOK_GROWTH: Final = 16
_MAX_LOOK_BYTES: Final = 4 << 20


@dataclass(frozen=True)
class OffloadedSegment:
    """One segment. Can be pickled; holds no connection.

    Attributes:
        location: Location of its objects.
        name: Names of its objects.
        index: Its index block.
        starts: Real start of each of its blocks, then the end of the object, in bytes; None: as in
            the index block.
        warnings: Harmless irregularities, in words.
        data_size_bytes: Real length of the data object; None if unknown.
        user_metadata: User metadata of its index object, names in lower case, if the store returned
            it.
        versions: Versions that its objects must have.
    """

    location: Location
    name: SegmentName
    index: SegmentIndex
    starts: tuple[int, ...] | None = None
    warnings: tuple[str, ...] = field(default=(), compare=False)
    data_size_bytes: int | None = None
    user_metadata: Mapping[str, str] | None = field(default=None, compare=False)
    versions: ObjectVersions = field(default=UNKNOWN_VERSIONS, compare=False)

    @classmethod
    def open(
        cls,
        location: Location,
        name: SegmentName,
        *,
        data_size_bytes: int | None = None,
        versions: ObjectVersions = UNKNOWN_VERSIONS,
        listed: ObjectInfo | None = None,
    ) -> Self:
        """Read the index object, with one request unless the index cache has it.

        Pulsar's writer sometimes miscounts blocks (`streaming_block`). Then the data object is
        longer than its index object says, and each block is searched for from its expected start,
        with a few more requests.

        Args:
            location: Location of the objects.
            name: Names of the objects.
            data_size_bytes: Real length of the data object if it is available, for example from a
                listing.
            versions: Available versions of the objects.
            listed: The index object as listed. None: the index cache is not used.

        Raises:
            MissingObjectError: The index object is missing, or a data object that must be searched.
            UnknownFormatError: It is not an index object of PIP-76, or has another format version.
            CorruptIndexError: Its fields contradict each other.
            FormatError: It is longer than any index object that is accepted.
            TruncatedObjectError: It is shorter than it says.
            ObjectChangedError: It has another version.
            StorageError: The store denied access, or requests failed until the deadline.
        """
        key = name.index_name

        def parse(content: ObjectContent) -> tuple[SegmentIndex, str | None]:
            unversioned = None
            if content.user_metadata is not None:
                unversioned = check_format_version(content.user_metadata, object_key=key)
            return read_segment_index(content.data, object_key=key), unversioned

        content, (index, unversioned) = read_index_object(
            location, key, parse, version=versions.index, listed=listed
        )
        segment = cls(
            location,
            name,
            index,
            None,
            (*([unversioned] if unversioned else []), *index.warnings),
            data_size_bytes,
            content.user_metadata,
            replace(versions, index=versions.index or content.version),
        )
        return segment._with_real_starts()

    def _with_real_starts(self) -> Self:
        """Search for the blocks if the data object is longer than the index object says."""
        indexed_bytes, size_bytes = self.index.data_object_length_bytes, self.data_size_bytes
        if size_bytes is None or size_bytes <= indexed_bytes:
            return self
        reader = RangeReader(self.location, self.name.data_name, size_bytes, self.versions.data)
        starts = _real_starts(reader, self.index.headers)
        warning = (
            f"{self.name.data_name}: {counted(size_bytes - indexed_bytes, 'byte')} more than the"
            " index object says: its writer miscounted blocks, and may have lost entries"
        )
        return replace(self, starts=starts, warnings=(warning, *self.warnings))

    @property
    def managed_ledger(self) -> str | None:
        """Name of the managed ledger; None if unknown: Pulsar's writer does not record it."""
        return (self.user_metadata or {}).get(MANAGED_LEDGER_NAME_KEY)

    @property
    def ledger_ids(self) -> tuple[int, ...]:
        """The ledgers of its shares, in storage order."""
        return tuple(each.ledger_id for each in self.index.groups)

    @cached_property
    def share_indexes(self) -> Mapping[int, int]:
        """Index of the share of each ledger, from 0, by ledger id."""
        return {ledger_id: index for index, ledger_id in enumerate(self.ledger_ids)}

    @cached_property
    def shares(self) -> tuple[SegmentShare, ...]:
        """The share of each ledger, in the same order, readable up to the end of the object."""
        indexed_bytes = self.index.data_object_length_bytes
        size_bytes = self.data_size_bytes
        return tuple(
            SegmentShare(
                self.location,
                ShareName(self.name.uuid, table.ledger_id),
                table,
                0,
                self.managed_ledger,
                self.versions.data,
                size_bytes if size_bytes is not None and size_bytes < indexed_bytes else None,
            )
            for table in self.index.tables(self.starts)
        )

    def truncation(self, share: SegmentShare) -> TruncatedObjectError | None:
        """Return the error if the data object ends within or before a share, else None."""
        size_bytes, stop = self.data_size_bytes, share.table.data_object_length_bytes
        if size_bytes is None or size_bytes >= stop:
            return None
        message = (
            f"the data object has {counted(size_bytes, 'byte')}, its index object says"
            f" {self.index.data_object_length_bytes}"
        )
        return TruncatedObjectError(
            message,
            object_key=self.name.data_name,
            ledger_id=share.ledger_id,
            offset=size_bytes,
        )


@dataclass(frozen=True)
class SegmentedOffload(OpenLedger):
    """A ledger of streaming offload that is open for reading; PIP-17 has `OffloadedLedger`.

    Attributes:
        segmented: The ledger interface to its entries.
        user_metadata: User metadata of the first segment's index object, names in lower case.
        warnings: Harmless irregularities, in words.
    """

    segmented: SegmentedLedger
    user_metadata: Mapping[str, str] | None
    warnings: tuple[str, ...] = ()

    @property
    def data(self) -> SegmentedLedger:
        """The ledger interface to its entries."""
        return self.segmented

    @property
    def location(self) -> Location:
        """Location of its objects."""
        return self.data.location

    @property
    def name(self) -> ShareName:
        """Names of the objects of its first segment."""
        return self.data.shares[0].name

    @property
    def ledger_metadata(self) -> None:
        """None: segments do not contain BookKeeper's metadata."""
        return


def _real_starts(reader: RangeReader, headers: Sequence[StreamingBlockHeader]) -> tuple[int, ...]:
    """Search for the blocks in an object that is longer than its writer counted.

    The *shift* of a block is the distance from its counted to its real start. It is at least that
    of the previous block, and exceeds it by at most the size of the previous block's first entry. A
    block that is not found is assumed at its expected start; reading it then reports the damage.
    """
    slack = reader.size_bytes - sum(each.block_length_bytes for each in headers)
    # Each byte is searched about once, unless a block is missing from its possible positions.
    left_bytes = 2 * reader.size_bytes
    data = _ForwardReader(reader)
    starts: list[int] = []
    counted_start, shift, max_growth = 0, 0, 0
    for place, header in enumerate(headers):
        first, pattern = counted_start + shift, header.serialize()
        last = min(counted_start + slack, first + min(MAX_MESSAGE_BYTES, left_bytes))
        near = min(first + max_growth, last)
        found = list(data.find_all(pattern, first, near))
        if not found:
            found = list(islice(data.find_all(pattern, near + 1, last), 1))
        left_bytes -= (found[-1] if found else last) - first
        start = found[0] if found else first
        if len(found) > 1:
            # An entry contains the same bytes; a block begins at the end of the previous entries.
            end = _end_of_entries(data, starts[-1], headers[place - 1])
            start = end if end in found else start
        starts.append(start)
        shift = start - counted_start
        counted_start += header.block_length_bytes
        max_growth = (
            data.entry_bytes(start + header.header_length_bytes, header.first_entry_id) or 0
        )
    return *starts, reader.size_bytes


def _end_of_entries(data: _ForwardReader, start: int, header: StreamingBlockHeader) -> int:
    """Return the end of a block's entries; the last begins within the counted length."""
    end = start + header.block_length_bytes
    for _, stop in data.frames(start, header):
        end = max(end, stop)
    return end


class _ForwardReader:
    """A reader of one object, mostly forward, with the bytes of its last request as a buffer."""

    def __init__(self, reader: RangeReader) -> None:
        self._reader = reader
        self._start, self._data = 0, b""
        self.size_bytes = reader.size_bytes

    def read(self, start: int, stop: int, least_bytes: int = _FIRST_LOOK_BYTES) -> bytes:
        """Return the bytes `[start, stop)`; a request reads at least `least_bytes`."""
        stop = min(stop, self.size_bytes)
        if start < self._start or stop > self._start + len(self._data):
            read_stop = min(max(stop, start + least_bytes), self.size_bytes)
            self._start, self._data = start, self._reader.read(min(start, read_stop), read_stop)
        return self._data[start - self._start : max(stop - self._start, 0)]

    def find_all(self, pattern: bytes, first: int, last: int) -> Iterator[int]:
        """Find all occurrences of bytes that begin at `first … last` (inclusive), ascending."""
        position, look_bytes = first, max(_FIRST_LOOK_BYTES - len(pattern), 1)
        while position <= last:
            look_stop = min(position + look_bytes, last + 1)
            data = self.read(position, look_stop + len(pattern) - 1)
            offset = data.find(pattern)
            while offset >= 0:
                yield position + offset
                offset = data.find(pattern, offset + 1)
            position, look_bytes = look_stop, min(look_bytes * _LOOK_GROWTH, _MAX_LOOK_BYTES)

    def entry_bytes(
        self, position: int, entry_id: int, least_bytes: int = _FIRST_LOOK_BYTES
    ) -> int | None:
        """Return the data length of an entry; None if its frame is not at the position."""
        header = self.read(position, position + _ENTRY_HEADER.size, least_bytes)
        if len(header) < _ENTRY_HEADER.size:
            return None
        length: int
        length, found = _ENTRY_HEADER.unpack(header)
        return length if length >= 0 and found == entry_id else None

    def frames(self, start: int, header: StreamingBlockHeader) -> Iterator[tuple[int, int]]:
        """Yield the start and the end of each entry of the block at `start`.

        An entry begins within the length that the block's writer counted, and may end after it.
        """
        counted_stop = start + header.block_length_bytes
        position, entry_id = start + header.header_length_bytes, header.first_entry_id
        while position < counted_stop:
            least_bytes = min(counted_stop - position, _MAX_LOOK_BYTES)
            length = self.entry_bytes(position, entry_id, least_bytes)
            if length is None:
                return
            stop = position + _ENTRY_HEADER.size + length
            yield position, stop
            position, entry_id = stop, entry_id + 1
