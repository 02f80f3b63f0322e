"""The bucket alone → which ledgers lie in it, whole, and to which managed ledgers they belong.

One listing, and one request for each index object. The managed-ledger name comes from the ledger's
custom metadata in the index, else from the user metadata of the object.
"""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from arrow_io.errors import (
    CorruptIndexError,
    FormatError,
    MissingObjectError,
    PulsarOffloadError,
    UnsupportedFormatError,
)
from arrow_io.format.index_block import MANAGED_LEDGER_NAME_KEY
from arrow_io.format.object_names import LedgerObjectName, parse_object_name
from arrow_io.ledger_reader import ObjectVersions, OffloadedLedger
from arrow_io.wording import counted
from connector.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Iterable

    from arrow_io.storage.location import Location
    from arrow_io.storage.object_store import ObjectInfo

_CONCURRENT_REQUESTS = 16
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class LedgerCopy:
    """One offload attempt of one ledger, as it lies in the bucket.

    Attributes:
        name: Names of its objects.
        index: What the listing said of its index object.
        data: What it said of its data object; None if there is none.
        topic: The topic that it belongs to; None if nothing tells.
        ledger: The ledger, if both objects are there and the index object is sound.
        error: What is wrong with it otherwise.
        cut: The ledger, if nothing is wrong but that its data object is cut.
    """

    name: LedgerObjectName
    index: ObjectInfo
    data: ObjectInfo | None
    topic: TopicName | None
    ledger: OffloadedLedger | None
    error: PulsarOffloadError | None = None
    cut: OffloadedLedger | None = None

    @property
    def modified(self) -> datetime | None:
        """When the index object, which is written last, was written; None if unknown."""
        return self.index.modified

    @property
    def age_rank(self) -> tuple[datetime, str]:
        """Greater for what was written later; copies of the same time are told apart by uuid."""
        return self.modified or _LONG_AGO, str(self.name.uuid)

    @property
    def stored_bytes(self) -> int:
        """Bytes of both objects."""
        return self.index.size_bytes + (self.data.size_bytes if self.data else 0)

    def is_still(self, index: ObjectInfo, data: ObjectInfo | None) -> bool:
        """Whether a later listing shows the same sound objects."""
        versions = object_versions(self.index, self.data)
        same = (self.index, self.data) == (index, data)
        same = same and versions.agrees_with(object_versions(index, data))
        return same and index.modified is not None and self.ledger is not None

    def as_listed(self, index: ObjectInfo, data: ObjectInfo | None) -> LedgerCopy:
        """The copy, of which a later listing shows the same sound objects, of these versions."""
        if self.ledger is None or self.ledger.versions == object_versions(index, data):
            return self
        ledger = replace(self.ledger, versions=object_versions(index, data))
        return replace(self, index=index, data=data, ledger=ledger)


@dataclass(frozen=True)
class UnfinishedOffload:
    """A data object without an index object: an attempt that never completed.

    A complete copy of the ledger, if there is one, lies under another uuid.

    Attributes:
        name: Names of the attempt's objects.
        data: What the listing said of its data object.
    """

    name: LedgerObjectName
    data: ObjectInfo


@dataclass(frozen=True)
class BucketContents:
    """What the bucket holds.

    Attributes:
        location: The bucket, prefix or folder.
        copies: Every offload attempt that has an index object, by ledger id, then from the newest
            to the oldest.
        unfinished: Attempts that never completed.
        streaming: Objects of streaming offload (PIP-76).
        foreign: Objects that no offloader of Pulsar names so.
    """

    location: Location
    copies: tuple[LedgerCopy, ...]
    unfinished: tuple[UnfinishedOffload, ...] = ()
    streaming: tuple[ObjectInfo, ...] = ()
    foreign: tuple[ObjectInfo, ...] = ()

    def copies_by_topic(self) -> dict[TopicName | None, list[LedgerCopy]]:
        """Copies of each topic's ledgers, in their order; under None, those that tell no topic."""
        grouped = defaultdict(list)
        for copy in self.copies:
            grouped[copy.topic].append(copy)
        return dict(grouped)


def read_bucket(
    location: Location,
    *,
    known: BucketContents | None = None,
) -> BucketContents:
    """List the bucket and read the index object of every ledger in it.

    Args:
        location: The bucket, prefix or folder.
        known: What an earlier call gave; index objects that have not changed since, by time and
            size in the listing, are not read again.

    Raises:
        StorageError: The bucket cannot be listed, or an index object cannot be read for a reason
            that lies in the store.
    """
    listed = [(info, parse_object_name(info.name)) for info in location.list_objects()]
    named = [(info, parsed) for info, parsed in listed if parsed is not None]
    ours = [(info, each) for info, each in named if not each.is_streaming]
    data = {each.ledger_object_name: info for info, each in ours if not each.is_index}
    indexes = [(info, each.ledger_object_name) for info, each in ours if each.is_index]
    before = {copy.name: copy for copy in known.copies} if known else {}

    def read(pair: tuple[ObjectInfo, LedgerObjectName]) -> LedgerCopy:
        info, name = pair
        found = before.get(name)
        if found is not None and found.is_still(info, data.get(name)):
            return found.as_listed(info, data.get(name))
        return _read_copy(
            location,
            name,
            index=info,
            data=data.get(name),
        )

    with ThreadPoolExecutor(_CONCURRENT_REQUESTS) as executor:
        copies = list(executor.map(read, indexes))
    copies = _without_deleted(location, copies)
    copies.sort(key=lambda copy: copy.age_rank, reverse=True)
    copies.sort(key=lambda copy: copy.name.ledger_id)
    complete = {copy.name for copy in copies}
    return BucketContents(
        location,
        tuple(copies),
        tuple(UnfinishedOffload(*each) for each in data.items() if each[0] not in complete),
        tuple(info for info, each in named if each.is_streaming),
        tuple(info for info, parsed in listed if parsed is None),
    )


def _without_deleted(location: Location, copies: list[LedgerCopy]) -> list[LedgerCopy]:
    """The copies but for those whose index object was deleted after the bucket was listed."""
    if not any(isinstance(copy.error, MissingObjectError) and copy.data for copy in copies):
        return copies
    still = {info.name for info in location.list_objects()}
    return [copy for copy in copies if copy.name.index_name in still]


def _read_copy(
    location: Location,
    name: LedgerObjectName,
    *,
    index: ObjectInfo,
    data: ObjectInfo | None,
) -> LedgerCopy:
    ledger = cut = None
    topic = None
    error: PulsarOffloadError | None = None
    managed_ledger = None
    try:
        ledger = OffloadedLedger.open(
            location,
            name,
            versions=object_versions(index, data),
        )
        # A ledger whose data object is cut has a topic too.
        managed_ledger = ledger.index.ledger_metadata.managed_ledger_name
        if data is not None:
            cut = ledger.cut_at(data.size_bytes)
            ledger = ledger.with_data_size(data.size_bytes)
            cut = None
    except (FormatError, MissingObjectError) as unsound:
        error = unsound.located(object_key=name.index_name, ledger_id=name.ledger_id)
    if managed_ledger is None and not isinstance(error, MissingObjectError):
        metadata = location.user_metadata(name.index_name) or {}
        managed_ledger = metadata.get(MANAGED_LEDGER_NAME_KEY)
    if managed_ledger is not None:
        try:
            topic = TopicName.from_managed_ledger_name(managed_ledger)
        except FormatError as unsound:
            error = unsound.located(object_key=name.index_name, ledger_id=name.ledger_id)
    if data is None and error is None:
        message = "the index object is there, its data object is not"
        error = MissingObjectError(message, object_key=name.data_name, ledger_id=name.ledger_id)
    if topic is None and error is None:
        message = "nothing tells which topic the ledger belongs to"
        error = CorruptIndexError(message, object_key=name.index_name, ledger_id=name.ledger_id)
    return LedgerCopy(name, index, data, topic, None if error else ledger, error, cut)


def object_versions(index: ObjectInfo, data: ObjectInfo | None) -> ObjectVersions:
    """The versions of a ledger's two objects, as they were listed."""
    return ObjectVersions(index.version, None if data is None else data.version)


def streaming_error(objects: Iterable[ObjectInfo]) -> UnsupportedFormatError:
    """The error for objects of streaming offload."""
    some = sorted(info.name for info in objects)
    found = counted(len(some), "object")
    message = f"streaming offload (PIP-76) is not supported yet: {found}, the first"
    return UnsupportedFormatError(message, object_key=some[0])
