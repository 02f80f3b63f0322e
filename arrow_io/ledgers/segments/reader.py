"""A segment of streaming offload (PIP-76), open for reading: its objects → shares of ledgers."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Final, Self

from arrow_io.core.lazy import cached_property
from arrow_io.core.wording import counted
from arrow_io.errors import TruncatedObjectError
from arrow_io.format.index_block import (
    MANAGED_LEDGER_NAME_KEY,
    MAX_INDEX_OBJECT_BYTES,
    check_format_version,
)
from arrow_io.format.object_names import ShareName
from arrow_io.format.streaming_index import read_segment_index
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

_FIRST_LOOK_BYTES: Final = 4 << 10
"""Read where a block should begin; an entry, by which it may stand further behind, is small."""
_ENTRY_HEADER: Final = struct.Struct(">iq")
_LOOK_GROWTH: Final = 16
_MAX_LOOK_BYTES: Final = 4 << 20


@dataclass(frozen=True)
class OffloadedSegment:
    """One segment. Can be pickled; holds no connection.

    Attributes:
        location: Where its objects are.
        name: Names of its objects.
        index: Its index block.
        starts: Where each of its blocks really begins, and behind them where the object ends, in
            bytes; None: as the index block says.
        warnings: What is odd, yet harmless, in words.
        data_size_bytes: Real length of the data object; None if it is not known.
        user_metadata: That of its index object, names in lower case, if the store gave it.
        versions: The only versions of its objects that are read.
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
    ) -> Self:
        """Read the index object: one request; and one or a few for each block if it is wrong.

        Pulsar's writer miscounts blocks at times (`streaming_block`). It shows by a data object
        that is longer than its index object says. Then each block is looked for from where it
        should begin.

        Args:
            location: Where the objects are.
            name: Names of the objects.
            data_size_bytes: Real length of the data object if it is known, as from a listing.
            versions: Versions of the objects as far as they are known, likewise.

        Raises:
            MissingObjectError: There is no index object, or no data object where it is looked into.
            UnknownFormatError: It is not an index object of PIP-76, or of another format version.
            CorruptIndexError: Its fields contradict each other.
            FormatError: It is longer than any index object that is read.
            TruncatedObjectError: It is shorter than it says.
            ObjectChangedError: It is of another version.
            StorageError: The store refused, or went on failing.
        """
        key = name.index_name
        content = location.read_object(
            key, max_bytes=MAX_INDEX_OBJECT_BYTES, version=versions.index
        )
        unversioned = None
        if content.user_metadata is not None:
            unversioned = check_format_version(content.user_metadata, object_key=key)
        index = read_segment_index(content.data, object_key=key)
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
        """The segment with its blocks looked for, if its data object is longer than it says.

        Raises:
            MissingObjectError: There is no data object.
            ObjectChangedError: It is of another version.
            StorageError: The store refused, or went on failing.
        """
        told, size_bytes = self.index.data_object_length_bytes, self.data_size_bytes
        if size_bytes is None or size_bytes <= told:
            return self
        reader = RangeReader(self.location, self.name.data_name, size_bytes, self.versions.data)
        starts = _real_starts(reader, self.index.headers)
        warning = (
            f"{self.name.data_name}: {counted(size_bytes - told, 'byte')} more than the index"
            " object says: its writer miscounted blocks, and may have lost entries"
        )
        return replace(self, starts=starts, warnings=(warning, *self.warnings))

    @property
    def managed_ledger(self) -> str | None:
        """Name of the managed ledger; None if nothing names it, as Pulsar's writer does not."""
        return (self.user_metadata or {}).get(MANAGED_LEDGER_NAME_KEY)

    @property
    def ledger_ids(self) -> tuple[int, ...]:
        """The ledgers of which it has a share, in the order in which they stand in it."""
        return tuple(each.ledger_id for each in self.index.groups)

    @cached_property
    def places(self) -> Mapping[int, int]:
        """Which share is of a ledger, from 0, by ledger id."""
        return {ledger_id: place for place, ledger_id in enumerate(self.ledger_ids)}

    @cached_property
    def shares(self) -> tuple[SegmentShare, ...]:
        """The share of each ledger, in the same order; they are read as far as the object goes."""
        told = self.index.data_object_length_bytes
        size_bytes = self.data_size_bytes
        return tuple(
            SegmentShare(
                self.location,
                ShareName(self.name.uuid, table.ledger_id),
                table,
                0,
                self.managed_ledger,
                self.versions.data,
                size_bytes if size_bytes is not None and size_bytes < told else None,
            )
            for table in self.index.tables(self.starts)
        )

    def truncation(self, share: SegmentShare) -> TruncatedObjectError | None:
        """The error if the data object ends within or before a share; None if it does not."""
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
    """A ledger of streaming offload, open for reading, as `OffloadedLedger` is one of PIP-17.

    Attributes:
        segmented: What reads its entries.
        user_metadata: That of the first segment's index object, names in lower case.
        warnings: What is odd, yet harmless, in words.
    """

    segmented: SegmentedLedger
    user_metadata: Mapping[str, str] | None
    warnings: tuple[str, ...] = ()

    @property
    def data(self) -> SegmentedLedger:
        """The part of it that reads entries."""
        return self.segmented

    @property
    def location(self) -> Location:
        """Where its objects are."""
        return self.data.location

    @property
    def name(self) -> ShareName:
        """Names of the objects of its first segment."""
        return self.data.shares[0].name

    @property
    def ledger_metadata(self) -> None:
        """BookKeeper's metadata of it, which segments do not have."""
        return


def _real_starts(reader: RangeReader, headers: Sequence[StreamingBlockHeader]) -> tuple[int, ...]:
    """Where blocks begin in an object that is longer than their writer counted.

    A block stands where it was counted to, or further behind; each by as much as the one before it
    at least, and by the data of that one's first entry more at most. One that is not found is taken
    to be where it should be, and shows when it is read.
    """
    slack = reader.size_bytes - sum(each.block_length_bytes for each in headers)
    # Each byte is looked at about once, unless blocks are not where they can be.
    left_bytes = 2 * reader.size_bytes
    data = _ForwardReader(reader)
    starts: list[int] = []
    told, shift, most = 0, 0, 0
    for place, header in enumerate(headers):
        first, wanted = told + shift, header.serialize()
        last = min(told + slack, first + min(MAX_MESSAGE_BYTES, left_bytes))
        near = min(first + most, last)
        found = list(data.places(wanted, first, near))
        if not found:
            found = list(islice(data.places(wanted, near + 1, last), 1))
        left_bytes -= (found[-1] if found else last) - first
        start = found[0] if found else first
        if len(found) > 1:
            # An entry has the same bytes; a block begins where the entries of the one before end.
            end = _end_of_entries(data, starts[-1], headers[place - 1])
            start = end if end in found else start
        starts.append(start)
        shift = start - told
        told += header.block_length_bytes
        most = data.entry_bytes(start + header.header_length_bytes, header.first_entry_id) or 0
    return *starts, reader.size_bytes


def _end_of_entries(data: _ForwardReader, start: int, header: StreamingBlockHeader) -> int:
    """Where a block ends whose last entry begins within the length that its writer counted."""
    end = start + header.block_length_bytes
    for _, stop in data.frames(start, header):
        end = max(end, stop)
    return end


class _ForwardReader:
    """Reads an object from its start on, some bytes more than are asked for, which it keeps."""

    def __init__(self, reader: RangeReader) -> None:
        self._reader = reader
        self._start, self._data = 0, b""
        self.size_bytes = reader.size_bytes

    def read(self, start: int, stop: int, least_bytes: int = _FIRST_LOOK_BYTES) -> bytes:
        """The bytes `[start, stop)`, as far as the object goes; a request asks for so many."""
        stop = min(stop, self.size_bytes)
        if start < self._start or stop > self._start + len(self._data):
            ahead = min(max(stop, start + least_bytes), self.size_bytes)
            self._start, self._data = start, self._reader.read(min(start, ahead), ahead)
        return self._data[start - self._start : max(stop - self._start, 0)]

    def places(self, wanted: bytes, first: int, last: int) -> Iterator[int]:
        """Where some bytes stand that begin at `first … last` (inclusive), ascending."""
        position, look_bytes = first, max(_FIRST_LOOK_BYTES - len(wanted), 1)
        while position <= last:
            behind = min(position + look_bytes, last + 1)
            data = self.read(position, behind + len(wanted) - 1)
            place = data.find(wanted)
            while place >= 0:
                yield position + place
                place = data.find(wanted, place + 1)
            position, look_bytes = behind, min(look_bytes * _LOOK_GROWTH, _MAX_LOOK_BYTES)

    def entry_bytes(
        self, position: int, entry_id: int, least_bytes: int = _FIRST_LOOK_BYTES
    ) -> int | None:
        """How many bytes an entry's data has whose frame begins there; None if none does."""
        header = self.read(position, position + _ENTRY_HEADER.size, least_bytes)
        if len(header) < _ENTRY_HEADER.size:
            return None
        length: int
        length, found = _ENTRY_HEADER.unpack(header)
        return length if length >= 0 and found == entry_id else None

    def frames(self, start: int, header: StreamingBlockHeader) -> Iterator[tuple[int, int]]:
        """Where each entry of a block begins, and where it ends.

        An entry begins within the length that the block's writer counted, and may end behind it.

        Args:
            start: Where the block begins.
            header: Its header.
        """
        told_stop = start + header.block_length_bytes
        position, entry_id = start + header.header_length_bytes, header.first_entry_id
        while position < told_stop:
            ahead_bytes = min(told_stop - position, _MAX_LOOK_BYTES)
            length = self.entry_bytes(position, entry_id, ahead_bytes)
            if length is None:
                return
            stop = position + _ENTRY_HEADER.size + length
            yield position, stop
            position, entry_id = stop, entry_id + 1
