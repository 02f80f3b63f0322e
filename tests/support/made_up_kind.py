"""A kind of objects that no offloader writes: a list of entries in JSON, and the entries framed.

It has nothing in common with the kinds of Pulsar but the protocols of `connector.catalog`.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from arrow_io.errors import CorruptIndexError, MissingObjectError, PulsarOffloadError
from arrow_io.ledgers.ledger import Block
from arrow_io.ledgers.open_ledger import OpenLedger
from arrow_io.messages.entry_run import find_run
from connector.catalog.kinds.ledger_copy import LedgerCopy, are_same, objects_of
from connector.catalog.kinds.object_kind import NamedObject, Part
from connector.inputs.topic_names import TopicName

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from arrow_io.messages.entry_run import EntryRun
    from arrow_io.read_metrics import Tally
    from arrow_io.storage.location import Location
    from arrow_io.storage.object_store import ObjectInfo
    from arrow_io.storage.object_version import ObjectVersion
    from arrow_io.storage.range_prefetch import RangePrefetcher
    from arrow_io.storage.ranges import ByteSpan
    from connector.catalog.kinds.object_kind import SnapshotPair
    from connector.catalog.metadata.topic_metadata import LedgerInfo
    from connector.inputs.topic_names import AnyTopic

DRIVER: Final = "boxes"
_NAME: Final = re.compile(r"box\.(?P<ledger_id>\d{1,9})\.(?P<uuid>[0-9a-f-]{36})\.(?P<end>lid|box)")
_FRAME: Final = struct.Struct(">iq")


@dataclass(frozen=True, slots=True)
class BoxName:
    """What names the two objects of a box."""

    uuid: UUID
    ledger_id: int

    @property
    def data_name(self) -> str:
        """Name of the box."""
        return f"box.{self.ledger_id}.{self.uuid}.box"

    @property
    def index_name(self) -> str:
        """Name of its lid."""
        return f"box.{self.ledger_id}.{self.uuid}.lid"

    @property
    def checksum_names(self) -> tuple[str, ...]:
        """Empty: boxes have no checksums."""
        return ()

    @property
    def managed_ledger(self) -> None:
        """None: the names do not contain it."""
        return


@dataclass(frozen=True, slots=True)
class BoxedEntries:
    """The entries of a box: a `Ledger`, and its own only part."""

    location: Location
    name: BoxName
    stops: tuple[int, ...]
    version: ObjectVersion | None

    first_entry_id = 0
    block_count = 1
    missing_from_entry_id = None
    may_lack_entries = False

    @property
    def parts(self) -> tuple[BoxedEntries]:
        """Itself."""
        return (self,)

    @property
    def data_name(self) -> str:
        """Name of the box."""
        return self.name.data_name

    @property
    def ledger_id(self) -> int:
        """BookKeeper ledger id."""
        return self.name.ledger_id

    @property
    def last_entry_id(self) -> int:
        """Id of the last entry (inclusive)."""
        return len(self.stops) - 1

    @property
    def data_stop(self) -> int:
        """End of the last entry."""
        return self.stops[-1]

    @property
    def stored_bytes(self) -> int:
        """Bytes of the box."""
        return self.stops[-1]

    @property
    def length_bytes(self) -> int:
        """Sum of the lengths of the entries' data."""
        return self.stops[-1] - _FRAME.size * len(self.stops)

    def with_range_bytes(self, range_bytes: int) -> BoxedEntries:
        """The same entries, of which one request asks for so many bytes at most."""
        return replace(self, location=replace(self.location, range_bytes=range_bytes))

    def blocks(self, first_entry_id: int, last_entry_id: int) -> list[Block]:
        """The box is one block."""
        if first_entry_id > last_entry_id:
            return []
        return [Block(0, self.last_entry_id, 0, self.data_stop)]

    def position_of(self, entry_id: int) -> int:
        """The start of an entry."""
        return self.stops[entry_id - 1] if entry_id else 0

    def remember(self, entry_id: int, position: int) -> None:
        """The lid says it already."""

    def extents(self, first_entry_id: int, last_entry_id: int) -> list[tuple[int, int]]:
        """The bytes of some entries."""
        return [(self.position_of(first_entry_id), self.stops[last_entry_id])]

    def byte_spans(self, first_entry_id: int, last_entry_id: int) -> list[ByteSpan]:
        """Nothing is requested before it is read."""
        del first_entry_id, last_entry_id
        return []

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
        """Read some entries by one request."""
        del tally, prefetcher
        if first_entry_id > last_entry_id:
            return
        start = self.position_of(first_entry_id)
        stop = self.stops[last_entry_id]
        read = self.location.read_range(self.data_name, start, stop, version=self.version)
        data = memoryview(bytes(read.data))
        ids = range(first_entry_id, last_entry_id + 1)
        run = find_run(self.ledger_id, self.data_name, data, start, ids).run
        run.is_in_range = is_in_range
        if verify_checksums:
            run.verify_checksums()
        yield run


@dataclass(frozen=True)
class BoxedLedger(OpenLedger):
    """A box, open for reading."""

    entries: BoxedEntries

    ledger_metadata = None
    user_metadata = None
    warnings = ()

    @property
    def data(self) -> BoxedEntries:
        """The part of it that reads entries."""
        return self.entries

    @property
    def location(self) -> Location:
        """Where it lies."""
        return self.entries.location

    @property
    def name(self) -> BoxName:
        """Names of its objects."""
        return self.entries.name


@dataclass(frozen=True)
class BoxCopy(LedgerCopy):
    """A box in a bucket: a `StoredPair`, and the `LedgerCopy` that it has."""

    name: BoxName
    index: ObjectInfo
    data: ObjectInfo | None
    topic: AnyTopic | None
    ledger: BoxedLedger | None
    error: PulsarOffloadError | None = None

    cut = None
    index_error = None
    is_shared = False
    extra_bytes = 0

    @property
    def pairs(self) -> tuple[BoxCopy]:
        """Itself."""
        return (self,)

    @property
    def copies(self) -> tuple[BoxCopy]:
        """Itself."""
        return (self,)

    @property
    def objects(self) -> tuple[ObjectInfo, ...]:
        """Its objects, index object first."""
        return objects_of(self.index, self.data)

    @property
    def data_bytes(self) -> int | None:
        """Bytes of the box; None if there is none."""
        return None if self.data is None else self.data.size_bytes

    @property
    def stored_bytes(self) -> int:
        """Bytes of both objects."""
        return sum(each.size_bytes for each in self.objects)

    def is_unchanged(self, index: ObjectInfo, data: ObjectInfo | None) -> bool:
        """Return whether a later listing shows the same sound objects."""
        return self.error is None and are_same(self.index, self.data, index, data)

    def as_listed(self, index: ObjectInfo, data: ObjectInfo | None) -> BoxCopy:
        """Return the same copy."""
        del index, data
        return self

    def with_topic(self, topic: AnyTopic) -> BoxCopy:
        """Return the same copy: each lid names its topic."""
        del topic
        return self


class _SavedBoxes:
    """Their form in catalog snapshots (a `SnapshotForm`)."""

    def to_json(self, copy: BoxCopy) -> dict[str, Any]:
        """Return where the entries stop."""
        return {"stops": None if copy.ledger is None else copy.ledger.entries.stops}

    def from_json(self, value: dict[str, Any], name: BoxName, pair: SnapshotPair) -> BoxCopy:
        """Read what `to_json` returned."""
        ledger = None
        if value["stops"] is not None:
            version = None if pair.data is None else pair.data.version
            stops = tuple(value["stops"])
            ledger = BoxedLedger(BoxedEntries(pair.location, name, stops, version))
        return BoxCopy(name, pair.index, pair.data, pair.topic, ledger, pair.error)


class Boxes:
    """The kind (an `ObjectKind`)."""

    title = "the packers"
    unit = "carton"
    driver: str | None = DRIVER
    snapshot_form = _SavedBoxes()
    name_type = BoxName

    def parse(self, object_name: str) -> NamedObject | None:
        """Read the name of an object; None if it is none of this kind."""
        match = _NAME.fullmatch(object_name)
        if match is None:
            return None
        name = BoxName(UUID(match["uuid"]), int(match["ledger_id"]))
        return NamedObject(name, Part.INDEX if match["end"] == "lid" else Part.DATA)

    def named_pairs(self, topic: TopicName, info: LedgerInfo) -> Sequence[BoxName]:
        """Return the name of the box of a ledger, if its driver makes boxes."""
        del topic
        offload = info.offload
        if offload is None or offload.uuid is None or offload.driver != DRIVER:
            return ()
        return (BoxName(offload.uuid, info.ledger_id),)

    def read(
        self,
        location: Location,
        name: BoxName,
        *,
        index: ObjectInfo,
        data: ObjectInfo | None,
        checksums: tuple[ObjectInfo, ...],
    ) -> BoxCopy:
        """Read a lid: one request."""
        assert not checksums
        error: PulsarOffloadError
        try:
            lid = json.loads(location.read_object(name.index_name, max_bytes=1 << 20).data)
        except ValueError:
            error = CorruptIndexError(
                "not a lid", object_key=name.index_name, ledger_id=name.ledger_id
            )
            return BoxCopy(name, index, data, None, None, error)
        topic = TopicName.parse(lid["topic"])
        if data is None:
            error = MissingObjectError(
                "no box", object_key=name.data_name, ledger_id=name.ledger_id
            )
            return BoxCopy(name, index, None, topic, None, error)
        entries = BoxedEntries(location, name, tuple(lid["stops"]), data.version)
        return BoxCopy(name, index, data, topic, BoxedLedger(entries))

    def join_shares(self, copies: Sequence[BoxCopy], info: LedgerInfo | None) -> Sequence[BoxCopy]:
        """Return the same copies."""
        del info
        return copies


def box(name: BoxName, entries: Sequence[bytes], topic: str) -> dict[str, bytes]:
    """The objects of a box, by name."""
    frames = [_FRAME.pack(len(each), number) + each for number, each in enumerate(entries)]
    lid = {"topic": topic, "stops": list(accumulate(map(len, frames)))}
    return {name.data_name: b"".join(frames), name.index_name: json.dumps(lid).encode()}
