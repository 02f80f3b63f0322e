"""The reader of one MapFile: opens its files, whose first record describes the ledger.

A MapFile that is being written looks like a finished one. It is finished if the last key in its
data file is the last entry of the ledger, so opening it reads the end of that file too. Pulsar's
own reader is `FileStoreBackedReadHandleImpl`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from arrow_io.core.lazy import cached_property
from arrow_io.errors import (
    CorruptBlockError,
    CorruptIndexError,
    FormatError,
    MissingObjectError,
    PulsarOffloadError,
    TruncatedObjectError,
)
from arrow_io.format.checksum_file import (
    HEADER_BYTES,
    check_checksums,
    chunk_bytes,
)
from arrow_io.format.index_block import MAX_INDEX_OBJECT_BYTES
from arrow_io.format.ledger_metadata import parse_ledger_metadata
from arrow_io.format.map_file_index import (
    METADATA_KEY,
    MapFileIndex,
    build_index,
    read_map_file_index,
)
from arrow_io.format.sequence_file import BYTES_CLASS, MAX_HEADER_BYTES, Compression, parse_header
from arrow_io.ledgers.mapfiles.ledger import MapFileLedger, SeekTable
from arrow_io.ledgers.mapfiles.walk import Group, read_metadata_record, walk_map_file
from arrow_io.ledgers.open_ledger import OpenLedger
from arrow_io.ledgers.reader import UNKNOWN_VERSIONS, ObjectVersions
from arrow_io.storage.range_stream import RangeStream
from arrow_io.storage.ranges import RangeReader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from arrow_io.format.ledger_metadata import LedgerMetadata
    from arrow_io.format.object_names import MapFileName
    from arrow_io.format.sequence_file import SequenceFileHeader
    from arrow_io.storage.location import Location

_RANGE_BYTES = 64 << 10
"""Maximum size of the first range requests while a data file is opened, in bytes."""
_VERIFIED_BYTES = 4 << 20
"""Approximate number of bytes that are compared with their checksums at a time."""


@dataclass(frozen=True)
class OffloadedMapFile(OpenLedger):
    """One MapFile that is open for reading. Can be pickled; holds no connection.

    Attributes:
        location: Location of its files.
        name: Names of its files.
        header: Header of its data file.
        table: Positions from which its data file can be read: those of its index file, or of a walk
            over its data.
        ledger_metadata: BookKeeper's metadata of the ledger, the record with the key -1.
        data_bytes: Length of the data file.
        warnings: Harmless irregularities, in words.
        index_error: Why the index file cannot be used; None if it can.
        end_error: Why entries at the end of the ledger are not in the data file; None if all are.
        user_metadata: None: files have none.
        versions: Versions that its files must have.
    """

    location: Location
    name: MapFileName
    header: SequenceFileHeader
    table: SeekTable
    ledger_metadata: LedgerMetadata
    data_bytes: int
    warnings: tuple[str, ...] = field(default=(), compare=False)
    index_error: PulsarOffloadError | None = field(default=None, compare=False)
    end_error: PulsarOffloadError | None = field(default=None, compare=False)
    versions: ObjectVersions = field(default=UNKNOWN_VERSIONS, compare=False)

    user_metadata = None

    @classmethod
    def open(
        cls,
        location: Location,
        name: MapFileName,
        data_bytes: int,
        *,
        has_checksums: bool = False,
        versions: ObjectVersions = UNKNOWN_VERSIONS,
    ) -> Self:
        """Read the index, and the start and the end of the data file.

        Three requests suffice if the end, from the last position of the index on, is short. If the
        index cannot be used, the data file is walked from start to end.

        Args:
            location: Location of the files.
            name: Names of the files.
            data_bytes: Length of the data file.
            has_checksums: Whether `.index.crc` exists: one more request.
            versions: Available versions of the files.

        Raises:
            MissingObjectError: A file is missing.
            UnknownFormatError: The data file is not one that Pulsar writes.
            CorruptBlockError: Its first record is damaged.
            CorruptIndexError: The first record contradicts itself or the path of the file.
            TruncatedObjectError: The data file ends before its first record does.
            ObjectChangedError: A file has another version.
            StorageError: The store denied access, or requests failed until the deadline.
        """
        opener = _Opener(location, name, data_bytes, versions)
        try:
            opener.read_head()
            opener.read_index(has_checksums=has_checksums)
            opener.read_end()
        except PulsarOffloadError as error:
            error.located(object_key=name.data_name, ledger_id=name.ledger_id)
            raise
        problem = opener.index_error
        return cls(
            location,
            name,
            opener.header,
            SeekTable.from_index(opener.index),
            opener.metadata,
            data_bytes,
            () if problem is None else (f"{name.index_name}: {problem.message}",),
            problem,
            opener.end_error,
            replace(versions, index=opener.index_version),
        )

    @classmethod
    def with_rebuilt_index(
        cls,
        location: Location,
        name: MapFileName,
        data_bytes: int,
        *,
        versions: ObjectVersions = UNKNOWN_VERSIONS,
    ) -> tuple[Self, MapFileIndex]:
        """Read all of the data file but its values, and return the ledger with a new index.

        See `open` for the arguments.

        Raises:
            PulsarOffloadError: See `open`; or a record is damaged, or entries are missing.
        """
        opener = _Opener(location, name, data_bytes, versions)
        try:
            opener.read_head()
            index = opener.rebuild_index()
        except PulsarOffloadError as error:
            error.located(object_key=name.data_name, ledger_id=name.ledger_id)
            raise
        table = SeekTable.from_index(index)
        ledger = cls(
            location, name, opener.header, table, opener.metadata, data_bytes, versions=versions
        )
        return ledger, index

    @property
    def ledger_id(self) -> int:
        """BookKeeper ledger id."""
        return self.name.ledger_id

    @property
    def last_entry_id(self) -> int:
        """Id of the last entry (inclusive)."""
        return self.ledger_metadata.last_entry_id

    @cached_property
    def data(self) -> MapFileLedger:
        """The ledger interface to its entries."""
        return MapFileLedger(
            self.location,
            self.name,
            self.header,
            self.table,
            self.last_entry_id,
            self.ledger_metadata.length_bytes,
            self.data_bytes,
            self.versions.data,
        )

    def broker_problems(self) -> list[str]:
        """Return the errors a broker would report in the index and in the `.crc` files.

        Reads both files, and compares them with their checksums if these exist.
        """
        problems = [] if self.index_error is None else [str(self.index_error)]
        names = (self.name.index_name, self.name.data_name)
        for name, checksum_name in zip(names, self.name.checksum_names, strict=True):
            try:
                self._check_checksums(name, checksum_name)
            except FormatError as error:
                error.located(object_key=name, ledger_id=self.ledger_id)
                problems += [str(error)] if str(error) not in problems else []
        return problems

    def _check_checksums(self, name: str, checksum_name: str) -> None:
        """Compare a file with its checksums, a part at a time."""
        info, checksums = self.location.find(name), self.location.find(checksum_name)
        if info is None or checksums is None:
            return
        data = RangeReader(self.location, name, info.size_bytes, info.version)
        expected = RangeReader(
            self.location, checksum_name, checksums.size_bytes, checksums.version
        )
        length = chunk_bytes(expected.read(0, min(HEADER_BYTES, checksums.size_bytes)))
        step = max(_VERIFIED_BYTES // length, 1) * length
        for start in range(0, info.size_bytes, step):
            stop = min(start + step, info.size_bytes)
            first, last = (HEADER_BYTES + 4 * -(-each // length) for each in (start, stop))
            part = expected.read(min(first, expected.size_bytes), min(last, expected.size_bytes))
            check_checksums(data.read(start, stop), start, part, length)


class _Opener:
    """The parts of a MapFile, as they are read.

    Attributes:
        header: Header of the data file.
        metadata: The ledger's metadata.
        index: Positions in the data file.
        index_error: Why the index file cannot be used.
        index_version: The version of the index file that was read.
        end_error: Why the data file does not end with the last entry.
    """

    header: SequenceFileHeader
    metadata: LedgerMetadata
    index: MapFileIndex

    def __init__(
        self, location: Location, name: MapFileName, data_bytes: int, versions: ObjectVersions
    ) -> None:
        self._location = location
        self._name = name
        self._versions = versions
        self._reader = RangeReader(location, name.data_name, data_bytes, versions.data)
        self._start = 0
        self.index_error: PulsarOffloadError | None = None
        self.index_version = versions.index
        self.end_error: PulsarOffloadError | None = None

    def read_head(self) -> None:
        """Read header and first record of the data file."""
        size_bytes = self._reader.size_bytes
        with self._stream(0) as stream:
            view, start = stream.at(0, min(MAX_HEADER_BYTES, size_bytes))
            self.header, self._start = parse_header(view[start:], BYTES_CLASS)
            record = read_metadata_record(stream, self.header, size_bytes, self._start)
        self.metadata = parse_ledger_metadata(record)
        self.index = MapFileIndex((METADATA_KEY,), (self._start,))
        _check_owner(self._name, self.metadata)

    def _stream(self, position: int) -> RangeStream:
        stop = self._reader.size_bytes
        sure_stop = min(position + _RANGE_BYTES, stop)
        return RangeStream(self._reader.span(position, stop, sure_stop=sure_stop))

    def read_index(self, *, has_checksums: bool) -> None:
        """Read the index; if it cannot be used, find out why."""
        name = self._name
        try:
            content = self._location.read_object(
                name.index_name, max_bytes=MAX_INDEX_OBJECT_BYTES, version=self._versions.index
            )
            self.index_version = self._versions.index or content.version
            index = read_map_file_index(content.data, object_key=name.index_name)
            if has_checksums:
                self._check_checksums(content.data)
            if index.positions[0] != self._start or index.positions[-1] >= self._reader.size_bytes:
                message = "the index has positions outside the records of its data file"
                raise CorruptIndexError(message)
        except FormatError as error:
            self.index_error = error.located(object_key=name.index_name, ledger_id=name.ledger_id)
        else:
            self.index = index

    def _check_checksums(self, data: bytes) -> None:
        """Compare the index with its checksums, unless these were deleted after the listing."""
        name = self._name.checksum_names[0]
        try:
            content = self._location.read_object(name, max_bytes=MAX_INDEX_OBJECT_BYTES)
        except MissingObjectError:
            return
        check_checksums(data, 0, content.data[HEADER_BYTES:], chunk_bytes(content.data))

    def read_end(self) -> None:
        """Compare the last key of the data file with the last entry of the ledger.

        If the index is unusable or leads to no record, walk over the whole file instead.
        """
        if self.index_error is None and self._ends_well():
            return
        name, groups = self._name, list[Group]()
        try:
            self._check_groups(self._start, METADATA_KEY, groups)
        except FormatError as error:
            self.end_error = error.located(object_key=name.data_name, ledger_id=name.ledger_id)
            if self.index_error is None:
                return
        else:
            if self.index_error is None:
                message = "the last position of the index is not that of its record"
                self.index_error = CorruptIndexError(
                    message, object_key=name.index_name, ledger_id=name.ledger_id
                )
        if groups:
            self.index = _index_of(groups)

    def _ends_well(self) -> bool:
        """Return whether the last position of the index leads to the last entry of the ledger."""
        try:
            self._check_groups(self.index.positions[-1], self.index.keys[-1])
        except FormatError:
            return False
        return True

    def rebuild_index(self) -> MapFileIndex:
        """Walk over the whole data file and return its index.

        Raises:
            FormatError: The file is damaged, or lacks entries.
        """
        groups: list[Group] = []
        self._check_groups(self._start, METADATA_KEY, groups)
        return _index_of(groups)

    def _check_groups(self, position: int, key: int, groups: list[Group] | None = None) -> None:
        """Walk over the records from a position, which must be that of a key, to the last entry."""
        size_bytes, last_entry_id = self._reader.size_bytes, self.metadata.last_entry_id
        is_in_blocks = self.header.compression is Compression.BLOCK
        first_key = None if is_in_blocks else key
        last_key = None
        with self._stream(position) as stream:
            walk = walk_map_file(stream, self.header, size_bytes, position, first_key)
            for group in walk.groups():
                if last_key is None and not group.first_key <= key <= group.last_key:
                    message = f"the position of key {key} is that of key {group.first_key}"
                    raise CorruptBlockError(message, offset=position)
                last_key = group.last_key
                if groups is not None:
                    groups.append(group)
        if last_key != last_entry_id:
            message = (
                f"the data file ends with entry {last_key}, the ledger with entry {last_entry_id}:"
                " the offload has not finished, or lost entries"
            )
            kind = CorruptBlockError if (last_key or 0) > last_entry_id else TruncatedObjectError
            raise kind(message, offset=size_bytes)


def _index_of(groups: Iterable[Group]) -> MapFileIndex:
    return build_index((each.first_key, each.record_count, each.start) for each in groups)


def _check_owner(name: MapFileName, metadata: LedgerMetadata) -> None:
    """Compare the managed ledger of the path with the one in the metadata."""
    owner = metadata.managed_ledger_name
    if owner != name.managed_ledger:
        message = (
            f"the folder is of managed ledger {name.managed_ledger!r}, the ledger's metadata says"
            f" {owner!r}"
        )
        raise CorruptIndexError(message)
