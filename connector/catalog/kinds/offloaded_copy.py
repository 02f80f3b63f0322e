"""Copies of ledgers in offloaded objects (PIP-17): one pair of objects for each offload attempt.

The managed-ledger name comes from the ledger's custom metadata in the index object, else from the
user metadata of the object.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from arrow_io.core.wording import OR_DELETION
from arrow_io.errors import (
    CorruptIndexError,
    CorruptSnapshotError,
    FormatError,
    MissingObjectError,
    PulsarOffloadError,
)
from arrow_io.format.index_block import MANAGED_LEDGER_NAME_KEY, read_index_block
from arrow_io.format.object_names import LedgerObjectName, parse_object_name
from arrow_io.ledgers.reader import OffloadedLedger
from connector.catalog.kinds.ledger_copy import LedgerCopy, are_same, object_versions, objects_of
from connector.catalog.kinds.object_kind import NamedObject, Part
from connector.catalog.kinds.snapshot_values import (
    base64_text,
    read_base64,
    read_optional_number,
    read_text,
    read_texts,
)
from connector.inputs.topic_names import managed_ledger_owner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arrow_io.storage.location import Location
    from arrow_io.storage.object_store import ObjectInfo
    from connector.catalog.kinds.object_kind import SnapshotPair
    from connector.catalog.metadata.topic_metadata import LedgerInfo
    from connector.inputs.topic_names import AnyTopic, TopicName


@dataclass(frozen=True)
class OffloadedCopy(LedgerCopy):
    """One offload attempt of one ledger in the bucket: both a pair and the copy that it has.

    Attributes:
        topic: The topic that it belongs to; None if nothing names it.
        ledger: The ledger, if both objects exist and the index object is sound.
        error: Why there is no `ledger`.
        cut: The ledger, if its only fault is that its data object is too short.
    """

    name: LedgerObjectName
    index: ObjectInfo
    data: ObjectInfo | None
    topic: AnyTopic | None
    ledger: OffloadedLedger | None
    error: PulsarOffloadError | None = None
    cut: OffloadedLedger | None = None

    is_shared = False
    index_error = None

    @property
    def pairs(self) -> tuple[OffloadedCopy]:
        """The attempt itself."""
        return (self,)

    @property
    def copies(self) -> tuple[OffloadedCopy]:
        """The attempt itself."""
        return (self,)

    @property
    def data_bytes(self) -> int | None:
        """Bytes of its data object; None if it is missing."""
        return None if self.data is None else self.data.size_bytes

    @property
    def objects(self) -> tuple[ObjectInfo, ...]:
        """Its objects, index object first."""
        return objects_of(self.index, self.data)

    @property
    def stored_bytes(self) -> int:
        """Bytes of both objects."""
        return sum(info.size_bytes for info in self.objects)

    @property
    def extra_bytes(self) -> int:
        """Bytes at the end of its data object that its index object does not describe."""
        if self.ledger is None or self.data is None:
            return 0
        return max(0, self.data.size_bytes - self.ledger.index.data_object_length_bytes)

    def is_unchanged(self, index: ObjectInfo, data: ObjectInfo | None) -> bool:
        """Return whether a later listing shows the same objects and they are sound."""
        return self.ledger is not None and are_same(self.index, self.data, index, data)

    def as_listed(self, index: ObjectInfo, data: ObjectInfo | None) -> OffloadedCopy:
        """Return the copy with the object versions of a later listing of the same objects."""
        ledger, versions = self.ledger, object_versions(index, data)
        if ledger is None or ledger.versions == versions:
            return self
        ledger = replace(ledger, versions=versions)
        return replace(self, index=index, data=data, ledger=ledger)

    def with_topic(self, topic: AnyTopic) -> OffloadedCopy:
        """Return the same copy: without a topic of its own it is unsound."""
        del topic
        return self


class _OffloadedCopyForm:
    """The form of these copies in catalog snapshots (`SnapshotForm`)."""

    def to_json(self, copy: OffloadedCopy) -> dict[str, Any]:
        ledger = copy.ledger or copy.cut
        if ledger is None:
            return {"block": None, "cut_bytes": None}
        metadata = ledger.user_metadata
        return {
            "block": base64_text(ledger.index.serialize()),
            "warnings": ledger.warnings,
            "cut_bytes": ledger.cut_bytes,
            "user_metadata": None if metadata is None else dict(metadata),
        }

    def from_json(
        self, value: dict[str, Any], name: LedgerObjectName, pair: SnapshotPair
    ) -> OffloadedCopy:
        index, data, topic, error = pair.index, pair.data, pair.topic, pair.error
        ledger = None
        if value["block"] is not None:
            user_metadata = value["user_metadata"]
            ledger = OffloadedLedger(
                pair.location,
                name,
                read_index_block(read_base64(value["block"]), object_key=name.index_name),
                tuple(map(read_text, value["warnings"])),
                read_optional_number(value["cut_bytes"]),
                None if user_metadata is None else read_texts(user_metadata),
                object_versions(index, data),
            )
        if error is not None:
            is_whole = ledger is None or ledger.cut_bytes is not None
        else:
            is_whole = None not in (ledger, data, topic) and value["cut_bytes"] is None
        if not is_whole:
            # Without an error, reads would skip the ledger silently.
            message = f"{name.index_name} is neither sound nor in error"
            raise CorruptSnapshotError(message)
        sound, cut = (ledger, None) if error is None else (None, ledger)
        return OffloadedCopy(name, index, data, topic, sound, error, cut)


class OffloadedObjects:
    """The kind of PIP-17 (`ObjectKind`)."""

    title = "offload (PIP-17)"
    unit = "ledger"
    driver: str | None = None
    snapshot_form = _OffloadedCopyForm()
    name_type = LedgerObjectName

    def parse(self, object_name: str) -> NamedObject | None:
        """Parse the name of an object; return None if it is not of this kind."""
        parsed = parse_object_name(object_name)
        if parsed is None or parsed.is_streaming:
            return None
        return NamedObject(parsed.ledger_object_name, Part.INDEX if parsed.is_index else Part.DATA)

    def named_pairs(self, topic: TopicName, info: LedgerInfo) -> Sequence[LedgerObjectName]:
        """Return the names of the attempt that metadata names for a ledger."""
        del topic
        if info.offload is None or info.offload.uuid is None:
            return ()
        return (LedgerObjectName(info.offload.uuid, info.ledger_id),)

    def read(
        self,
        location: Location,
        name: LedgerObjectName,
        *,
        index: ObjectInfo,
        data: ObjectInfo | None,
        checksums: tuple[ObjectInfo, ...],
    ) -> OffloadedCopy:
        """Read an index object: one request, and a HEAD if it does not name its topic."""
        del checksums
        ledger = cut = None
        topic = None
        error: PulsarOffloadError | None = None
        managed_ledger = None
        try:
            versions = object_versions(index, data)
            ledger = OffloadedLedger.open(location, name, versions=versions, listed=index)
            # Set before the size check, so that a truncated ledger has a topic too.
            managed_ledger = ledger.index.ledger_metadata.managed_ledger_name
            if data is not None:
                cut = ledger.cut_at(data.size_bytes)
                ledger = ledger.with_data_size(data.size_bytes)
                cut = None
        except (FormatError, MissingObjectError) as cause:
            error = cause.located(object_key=name.index_name, ledger_id=name.ledger_id)
        if managed_ledger is None and not isinstance(error, MissingObjectError):
            metadata = None if ledger is None else ledger.user_metadata
            metadata = location.user_metadata(name.index_name) if metadata is None else metadata
            managed_ledger = (metadata or {}).get(MANAGED_LEDGER_NAME_KEY)
        if managed_ledger is not None:
            try:
                topic = managed_ledger_owner(managed_ledger)
            except FormatError as cause:
                error = cause.located(object_key=name.index_name, ledger_id=name.ledger_id)
        if data is None and error is None:
            message = f"the index object exists, but its data object is missing{OR_DELETION}"
            error = MissingObjectError(message, object_key=name.data_name, ledger_id=name.ledger_id)
        if topic is None and error is None:
            message = "neither the index object nor its user metadata names the topic of the ledger"
            error = CorruptIndexError(message, object_key=name.index_name, ledger_id=name.ledger_id)
        return OffloadedCopy(name, index, data, topic, None if error else ledger, error, cut)

    def join_shares(
        self, copies: Sequence[OffloadedCopy], info: LedgerInfo | None
    ) -> Sequence[OffloadedCopy]:
        """Return the same copies: each is a copy of the whole ledger."""
        del info
        return copies
