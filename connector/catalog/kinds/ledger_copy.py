"""Protocols for the copies of ledgers that a bucket holds, whatever kind of objects holds them.

A bucket holds pairs of an index object and a data object. The index object says which ledgers the
pair has copies of. If a ledger is spread over several pairs, each has a *share* of it. Pairs and
copies are *sound* if their objects exist and can be read. If only the end of its data is missing,
an unsound copy is *cut*.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from arrow_io.ledgers.reader import ObjectVersions
from arrow_io.storage.trace import RequestCounts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from arrow_io.errors import PulsarOffloadError
    from arrow_io.format.object_names import CopyName, PairName
    from arrow_io.ledgers.open_ledger import OpenLedger
    from arrow_io.storage.object_store import ObjectInfo
    from connector.inputs.topic_names import AnyTopic

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class StoredObjects(Protocol):
    """Objects in a bucket whose index object was read."""

    if TYPE_CHECKING:
        # Subclasses are dataclasses, whose fields would take these properties as defaults.
        @property
        def index(self) -> ObjectInfo:
            """The index object as it was listed; the first one, if there are several."""

        @property
        def data(self) -> ObjectInfo | None:
            """Its data object as it was listed, or None."""

        @property
        def topic(self) -> AnyTopic | None:
            """The topic that the objects belong to; None if nothing names it."""

        @property
        def error(self) -> PulsarOffloadError | None:
            """Why the objects are unsound; None if they are sound."""

        @property
        def objects(self) -> tuple[ObjectInfo, ...]:
            """All objects; index objects come before their data objects."""


class StoredPair(StoredObjects, Protocol):
    """An index object that was read, with its data object."""

    @property
    def name(self) -> PairName:
        """Names of both objects."""

    @property
    def copies(self) -> Sequence[LedgerCopy]:
        """The pair's copy of each ledger; empty if the index object names no ledger."""

    @property
    def index_error(self) -> PulsarOffloadError | None:
        """Why brokers cannot use the index object, although the pair can be read without it."""

    def is_unchanged(self, index: ObjectInfo, data: ObjectInfo | None) -> bool:
        """Return whether a later listing shows the same objects and they are sound."""

    def as_listed(self, index: ObjectInfo, data: ObjectInfo | None) -> StoredPair:
        """Return the pair with the object versions of a later listing of unchanged objects."""


class LedgerCopy(StoredObjects, Protocol):
    """One copy of a ledger in a bucket: one pair of objects, or shares of several pairs."""

    if TYPE_CHECKING:

        @property
        def name(self) -> CopyName:
            """Names of its first objects."""

        @property
        def pairs(self) -> Sequence[StoredPair]:
            """The pairs of objects that hold the copy, in the order of its entries."""

        @property
        def ledger(self) -> OpenLedger | None:
            """The ledger, if its objects exist and are sound."""

        @property
        def cut(self) -> OpenLedger | None:
            """The readable part of an unsound ledger, up to where its data objects end."""

        @property
        def is_shared(self) -> bool:
            """Whether its objects may hold other ledgers too, as segments do.

            Shared objects need not name their topic, and objects that were not found may hold more
            of the ledger. They are needed as long as any of their ledgers is.
            """

        @property
        def data_bytes(self) -> int | None:
            """Bytes that the copy occupies in data objects; None if there is no data object."""

        @property
        def stored_bytes(self) -> int:
            """Bytes of objects that only this copy occupies."""

        @property
        def extra_bytes(self) -> int:
            """Bytes at the end of its data object that its index object does not describe."""

        def with_topic(self, topic: AnyTopic) -> LedgerCopy:
            """Return the copy with this topic, if its objects do not name one."""

    @property
    def is_unfinished(self) -> bool:
        """Whether its writer may still be writing it, or stopped before its end.

        False for kinds whose index object is written last.
        """
        return False

    @property
    def uuids(self) -> set[UUID]:
        """The ids by which metadata names its objects."""
        return {each.name.uuid for each in self.pairs}

    @property
    def modified(self) -> datetime | None:
        """When the last index object, which writers write last, was written; None if unknown."""
        times = [each.modified for each in self.index_objects]
        known = [each for each in times if each is not None]
        return max(known) if len(known) == len(times) else None

    @property
    def index_objects(self) -> tuple[ObjectInfo, ...]:
        """The objects that opening the ledger reads."""
        return tuple(each.index for each in self.pairs)

    @property
    def opening_ranges(self) -> RequestCounts:
        """Requests for ranges of data objects that opening the ledger took."""
        return RequestCounts()

    @property
    def may_lack_entries(self) -> bool:
        """Whether its writer lost entries, or may have lost some."""
        parts = () if self.ledger is None else self.ledger.parts
        return any(each.may_lack_entries for each in parts)


def objects_of(index: ObjectInfo, data: ObjectInfo | None) -> tuple[ObjectInfo, ...]:
    """Return the objects of a pair, index object first."""
    return (index,) if data is None else (index, data)


def age_rank(name: PairName, index: ObjectInfo) -> tuple[datetime, str]:
    """Return a sort key that is greater for pairs written later; the uuid breaks ties."""
    return index.modified or _LONG_AGO, str(name.uuid)


def are_same(
    index: ObjectInfo,
    data: ObjectInfo | None,
    later_index: ObjectInfo,
    later_data: ObjectInfo | None,
) -> bool:
    """Return whether two listings certainly show the same index and data object.

    Both may lack the data object. Without a time of modification, the answer is False.
    """
    versions = object_versions(index, data)
    same = (index, data) == (later_index, later_data)
    same = same and versions.agrees_with(object_versions(later_index, later_data))
    return same and later_index.modified is not None


def object_versions(index: ObjectInfo, data: ObjectInfo | None) -> ObjectVersions:
    """Return the versions of a pair's objects, as they were listed."""
    return ObjectVersions(index.version, None if data is None else data.version)
