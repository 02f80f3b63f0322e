"""Copies of ledgers in MapFiles (filesystem driver): one folder for each offload attempt.

The folder is below those of the managed ledger, and the ledger's metadata in its first record names
the managed ledger too.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from arrow_io.core.wording import OR_DELETION
from arrow_io.errors import (
    CorruptSnapshotError,
    FormatError,
    MissingObjectError,
    ObjectChangedError,
    PulsarOffloadError,
    TruncatedObjectError,
)
from arrow_io.format.ledger_metadata import parse_ledger_metadata
from arrow_io.format.object_names import MapFileName, parse_map_file_name
from arrow_io.format.sequence_file import BYTES_CLASS, parse_header
from arrow_io.ledgers.mapfiles.ledger import SeekTable
from arrow_io.ledgers.mapfiles.reader import OffloadedMapFile
from arrow_io.storage.trace import RequestCounts, RequestTrace
from connector.catalog.kinds.ledger_copy import LedgerCopy, are_same, object_versions
from connector.catalog.kinds.object_kind import NamedObject, Part
from connector.catalog.kinds.snapshot_values import (
    base64_text,
    error_json,
    info_json,
    read_base64,
    read_error,
    read_info,
    read_number,
)
from connector.catalog.metadata.topic_metadata import FILESYSTEM_DRIVER
from connector.inputs.topic_names import managed_ledger_owner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arrow_io.storage.location import Location
    from arrow_io.storage.object_store import ObjectInfo
    from connector.catalog.kinds.object_kind import SnapshotPair
    from connector.catalog.metadata.topic_metadata import LedgerInfo
    from connector.inputs.topic_names import AnyTopic, TopicName


_MAX_READS: Final = 3
"""How often files that change meanwhile are read before giving up."""


@dataclass(frozen=True)
class MapFileCopy(LedgerCopy):
    """One MapFile: both a pair, of its index and data file, and the copy that it has.

    Attributes:
        topic: The topic that it belongs to; None if its path names none.
        ledger: The ledger, if its data file has all entries.
        error: Why there is no `ledger`.
        cut: The ledger, if its only fault is that its data file is too short.
        checksums: The files with checksums of the others.
        opening_ranges: Requests for the start and the end of its data file, which opening it took.
    """

    name: MapFileName
    index: ObjectInfo
    data: ObjectInfo | None
    topic: AnyTopic | None
    ledger: OffloadedMapFile | None
    error: PulsarOffloadError | None = None
    cut: OffloadedMapFile | None = None
    checksums: tuple[ObjectInfo, ...] = ()
    opening_ranges: RequestCounts = field(default=RequestCounts(), compare=False)

    is_shared = False
    extra_bytes = 0

    @property
    def pairs(self) -> tuple[MapFileCopy]:
        """The MapFile itself."""
        return (self,)

    @property
    def copies(self) -> tuple[MapFileCopy]:
        """The MapFile itself."""
        return (self,)

    @property
    def is_unfinished(self) -> bool:
        """Whether the data file ends before the ledger does."""
        return isinstance(self.error, TruncatedObjectError)

    @property
    def index_error(self) -> PulsarOffloadError | None:
        """Why brokers cannot use the index, although the data file can be read without it."""
        return None if self.ledger is None else self.ledger.index_error

    @property
    def data_bytes(self) -> int | None:
        """Bytes of its data file; None if it is missing."""
        return None if self.data is None else self.data.size_bytes

    @property
    def objects(self) -> tuple[ObjectInfo, ...]:
        """All of its files: the index first, and the data file, which names the others, last."""
        return (self.index, *self.checksums, *((self.data,) if self.data else ()))

    @property
    def index_objects(self) -> tuple[ObjectInfo, ...]:
        """The index, and its checksums if these exist."""
        name = self.name.checksum_names[0]
        return (self.index, *(each for each in self.checksums if each.name == name))

    @property
    def stored_bytes(self) -> int:
        """Bytes of all of its files."""
        return sum(info.size_bytes for info in self.objects)

    def is_unchanged(self, index: ObjectInfo, data: ObjectInfo | None) -> bool:
        """Return whether a later listing shows the same files and they are sound."""
        return self.ledger is not None and are_same(self.index, self.data, index, data)

    def as_listed(self, index: ObjectInfo, data: ObjectInfo | None) -> MapFileCopy:
        """Return the copy with the versions of a later listing of the same files."""
        ledger, versions = self.ledger, object_versions(index, data)
        if ledger is None or ledger.versions == versions:
            return self
        return replace(self, index=index, data=data, ledger=replace(ledger, versions=versions))

    def with_topic(self, topic: AnyTopic) -> MapFileCopy:
        """Return the same copy: its path names its topic."""
        del topic
        return self


class _MapFileCopyForm:
    """The form of these copies in catalog snapshots (`SnapshotForm`)."""

    def to_json(self, copy: MapFileCopy) -> dict[str, Any]:
        ledger = copy.ledger or copy.cut
        value: dict[str, Any] = {"checksums": [info_json(each) for each in copy.checksums]}
        if ledger is None:
            return {**value, "header": None}
        table = array("q", chain(ledger.table.entry_ids, ledger.table.positions))
        return {
            **value,
            "header": base64_text(ledger.header.serialize()),
            "metadata": base64_text(ledger.ledger_metadata.serialize()),
            "positions": base64_text(_big_endian(table)),
            "index_error": ledger.index_error and error_json(ledger.index_error),
        }

    def from_json(
        self, value: dict[str, Any], name: MapFileName, pair: SnapshotPair
    ) -> MapFileCopy:
        index, data, topic, error = pair.index, pair.data, pair.topic, pair.error
        checksums = tuple(map(read_info, value["checksums"]))
        if any(parse_map_file_name(each.name) != name for each in checksums):
            message = f"{name.index_name} has the checksums of another ledger"
            raise CorruptSnapshotError(message)
        ledger = None
        if value["header"] is not None and data is not None:
            ledger = self._ledger(value, name, pair, data)
        if error is None and (ledger is None or topic is None):
            # Without an error, reads would skip the ledger silently.
            message = f"{name.index_name} is neither sound nor in error"
            raise CorruptSnapshotError(message)
        sound, cut = (ledger, None) if error is None else (None, ledger)
        return MapFileCopy(name, index, data, topic, sound, error, cut, checksums)

    def _ledger(
        self, value: dict[str, Any], name: MapFileName, pair: SnapshotPair, data: ObjectInfo
    ) -> OffloadedMapFile:
        header, start = parse_header(read_base64(value["header"]), BYTES_CLASS)
        numbers = _from_big_endian(read_base64(value["positions"]))
        half = len(numbers) // 2
        table = SeekTable(numbers[:half], numbers[half:])
        if not table.is_valid(start, data.size_bytes):
            message = f"{name.index_name} has impossible positions"
            raise CorruptSnapshotError(message)
        problem = value["index_error"]
        index_error = None if problem is None else read_error(*problem)
        warnings = () if index_error is None else (f"{name.index_name}: {index_error.message}",)
        return OffloadedMapFile(
            pair.location,
            name,
            header,
            table,
            parse_ledger_metadata(read_base64(value["metadata"])),
            read_number(data.size_bytes),
            warnings,
            index_error=index_error,
            end_error=pair.error,
            versions=object_versions(pair.index, data),
        )


def _big_endian(numbers: array[int]) -> bytes:
    return b"".join(number.to_bytes(8, "big") for number in numbers)


def _from_big_endian(data: bytes) -> tuple[int, ...]:
    return tuple(int.from_bytes(data[at : at + 8], "big") for at in range(0, len(data), 8))


class MapFiles:
    """The kind of the filesystem driver (`ObjectKind`)."""

    title = "the filesystem driver (MapFiles)"
    unit = "MapFile"
    driver: str | None = FILESYSTEM_DRIVER
    snapshot_form = _MapFileCopyForm()
    name_type = MapFileName

    def parse(self, object_name: str) -> NamedObject | None:
        """Parse the path of a file; return None if it is not of this kind."""
        name = parse_map_file_name(object_name)
        if name is None:
            return None
        if object_name in name.checksum_names:
            return NamedObject(name, Part.CHECKSUMS)
        return NamedObject(name, Part.INDEX if object_name == name.index_name else Part.DATA)

    def named_pairs(self, topic: TopicName, info: LedgerInfo) -> Sequence[MapFileName]:
        """Return the name of the MapFile that metadata names for a ledger."""
        if info.offload is None or info.offload.uuid is None:
            return ()
        return (MapFileName(topic.managed_ledger_name, info.offload.uuid, info.ledger_id),)

    def read(
        self,
        location: Location,
        name: MapFileName,
        *,
        index: ObjectInfo,
        data: ObjectInfo | None,
        checksums: tuple[ObjectInfo, ...],
    ) -> MapFileCopy:
        """Read the index, and parts of the data file; see `OffloadedMapFile.open`.

        The files have their names from the start, so a writer may change them meanwhile. Then they
        are read again; if they keep changing, the copy is unfinished.
        """
        for _ in range(_MAX_READS):
            try:
                copy = self._read(location, name, index, data, checksums)
                current_data = location.find(name.data_name) if copy.is_unfinished else data
                if current_data == data:
                    return copy
            except ObjectChangedError:
                current_data = location.find(name.data_name)
            index, data = location.find(name.index_name) or index, current_data
        message = "the files of the ledger keep changing"
        error = TruncatedObjectError(message, object_key=name.data_name, ledger_id=name.ledger_id)
        topic = managed_ledger_owner(name.managed_ledger)
        return MapFileCopy(name, index, data, topic, None, error, None, checksums)

    def _read(
        self,
        location: Location,
        name: MapFileName,
        index: ObjectInfo,
        data: ObjectInfo | None,
        checksums: tuple[ObjectInfo, ...],
    ) -> MapFileCopy:
        ledger: OffloadedMapFile | None = None
        topic: AnyTopic | None = None
        error: PulsarOffloadError | None = None
        trace = RequestTrace(parent=location.trace)
        try:
            topic = managed_ledger_owner(name.managed_ledger)
            if data is None:
                message = f"the index exists, but its data file is missing{OR_DELETION}"
                error = MissingObjectError(message, object_key=name.data_name)
            else:
                index_checksums = name.checksum_names[0]
                ledger = OffloadedMapFile.open(
                    location.with_trace(trace),
                    name,
                    data.size_bytes,
                    has_checksums=any(each.name == index_checksums for each in checksums),
                    versions=object_versions(index, data),
                )
                ledger = replace(ledger, location=location)
                error = ledger.end_error
        except (FormatError, MissingObjectError) as cause:
            error = cause
        if error is not None:
            error.located(object_key=name.data_name, ledger_id=name.ledger_id)
        sound, cut = (ledger, None) if error is None else (None, ledger)
        counts = trace.counts
        ranges = RequestCounts(range_requests=counts.range_requests, range_bytes=counts.range_bytes)
        return MapFileCopy(name, index, data, topic, sound, error, cut, checksums, ranges)

    def join_shares(
        self, copies: Sequence[MapFileCopy], info: LedgerInfo | None
    ) -> Sequence[MapFileCopy]:
        """Return the same copies: each is a copy of the whole ledger."""
        del info
        return copies
