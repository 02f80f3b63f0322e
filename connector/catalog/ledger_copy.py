"""One offload attempt of a ledger, as its index object tells it.

The managed-ledger name comes from the ledger's custom metadata in the index, else from the user
metadata of the object.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from arrow_io.core.wording import OR_DELETION
from arrow_io.errors import (
    CorruptIndexError,
    FormatError,
    MissingObjectError,
    PulsarOffloadError,
)
from arrow_io.format.index_block import MANAGED_LEDGER_NAME_KEY
from arrow_io.ledgers.reader import ObjectVersions, OffloadedLedger
from connector.inputs.topic_names import managed_ledger_owner

if TYPE_CHECKING:
    from arrow_io.format.object_names import LedgerObjectName, SegmentName, ShareName
    from arrow_io.ledgers.open_ledger import OpenLedger
    from arrow_io.storage.location import Location
    from arrow_io.storage.object_store import ObjectInfo
    from connector.inputs.topic_names import AnyTopic

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class LedgerCopy:
    """One offload attempt of one ledger, as it lies in the bucket.

    Attributes:
        name: Names of its objects.
        index: What the listing said of its index object.
        data: What it said of its data object; None if there is none.
        topic: The topic that it belongs to; None if nothing names it.
        ledger: The ledger, if both objects are there and the index object is sound.
        error: What is wrong with it otherwise.
        cut: The ledger, if all that is wrong with it is that its data object is cut.
    """

    name: LedgerObjectName | ShareName
    index: ObjectInfo
    data: ObjectInfo | None
    topic: AnyTopic | None
    ledger: OpenLedger | None
    error: PulsarOffloadError | None = None
    cut: OpenLedger | None = None

    @property
    def modified(self) -> datetime | None:
        """When the index object, which is written last, was written; None if unknown."""
        return self.index.modified

    @property
    def index_objects(self) -> tuple[ObjectInfo, ...]:
        """What has to be read to open it."""
        return (self.index,)

    @property
    def data_bytes(self) -> int | None:
        """Bytes of data objects that it takes; None if there is none."""
        return None if self.data is None else self.data.size_bytes

    @property
    def objects(self) -> tuple[ObjectInfo, ...]:
        """Its objects, index object first."""
        return (self.index,) if self.data is None else (self.index, self.data)

    @property
    def stored_bytes(self) -> int:
        """Bytes of both objects."""
        return sum(info.size_bytes for info in self.objects)

    @property
    def may_lack_entries(self) -> bool:
        """Whether its writer lost entries, or may have."""
        parts = () if self.ledger is None else self.ledger.parts
        return any(each.may_lack_entries for each in parts)

    def is_still(self, index: ObjectInfo, data: ObjectInfo | None) -> bool:
        """Whether a later listing shows the same sound objects."""
        return self.ledger is not None and are_same(self.index, self.data, index, data)

    def as_listed(self, index: ObjectInfo, data: ObjectInfo | None) -> LedgerCopy:
        """The copy with the versions of a later listing, which shows the same sound objects."""
        ledger, versions = self.ledger, object_versions(index, data)
        if not isinstance(ledger, OffloadedLedger) or ledger.versions == versions:
            return self
        ledger = replace(ledger, versions=versions)
        return replace(self, index=index, data=data, ledger=ledger)


def age_rank(name: LedgerObjectName | SegmentName, index: ObjectInfo) -> tuple[datetime, str]:
    """Greater for what was written later; the uuid decides between copies of the same time."""
    return index.modified or _LONG_AGO, str(name.uuid)


def read_copy(
    location: Location,
    name: LedgerObjectName,
    *,
    index: ObjectInfo,
    data: ObjectInfo | None,
) -> LedgerCopy:
    """Read the index object of one attempt: one request, and a HEAD if it does not name its topic.

    Args:
        location: Where the objects lie.
        name: Names of the attempt's objects.
        index: What the listing said of its index object.
        data: What it said of its data object; None if there is none.

    Raises:
        StorageError: The index object cannot be read for a reason that lies in the store.
    """
    ledger = cut = None
    topic = None
    error: PulsarOffloadError | None = None
    managed_ledger = None
    try:
        ledger = OffloadedLedger.open(location, name, versions=object_versions(index, data))
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
            topic = managed_ledger_owner(managed_ledger)
        except FormatError as unsound:
            error = unsound.located(object_key=name.index_name, ledger_id=name.ledger_id)
    if data is None and error is None:
        message = f"the index object is there, its data object is not{OR_DELETION}"
        error = MissingObjectError(message, object_key=name.data_name, ledger_id=name.ledger_id)
    if topic is None and error is None:
        message = "nothing tells which topic the ledger belongs to"
        error = CorruptIndexError(message, object_key=name.index_name, ledger_id=name.ledger_id)
    return LedgerCopy(name, index, data, topic, None if error else ledger, error, cut)


def are_same(
    index: ObjectInfo,
    data: ObjectInfo | None,
    later_index: ObjectInfo,
    later_data: ObjectInfo | None,
) -> bool:
    """Whether two listings surely show the same two objects; data objects may not be there."""
    versions = object_versions(index, data)
    same = (index, data) == (later_index, later_data)
    same = same and versions.agrees_with(object_versions(later_index, later_data))
    return same and later_index.modified is not None


def object_versions(index: ObjectInfo, data: ObjectInfo | None) -> ObjectVersions:
    """The versions of a ledger's two objects, as they were listed."""
    return ObjectVersions(index.version, None if data is None else data.version)
