"""The protocol of a kind of objects that hold ledgers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arrow_io.errors import PulsarOffloadError
    from arrow_io.format.object_names import PairName
    from arrow_io.storage.location import Location
    from arrow_io.storage.object_store import ObjectInfo
    from connector.catalog.kinds.ledger_copy import LedgerCopy, StoredPair
    from connector.catalog.metadata.topic_metadata import LedgerInfo
    from connector.inputs.topic_names import TopicName

_Name = TypeVar("_Name", bound="PairName")
_Name_contra = TypeVar("_Name_contra", bound="PairName", contravariant=True)
_Copy = TypeVar("_Copy", bound="LedgerCopy")


class Part(StrEnum):
    """The part of a pair that an object is."""

    INDEX = "index"
    DATA = "data"
    CHECKSUMS = "checksums"
    """Checksums of one of the others."""


class NamedObject(NamedTuple):
    """The parts of an object's name."""

    name: PairName
    """Names of the pair that the object belongs to."""
    part: Part


@dataclass(frozen=True, slots=True)
class SnapshotPair:
    """The fields that a catalog snapshot has of every pair, whatever its kind."""

    location: Location
    index: ObjectInfo
    data: ObjectInfo | None
    topic: Any
    error: PulsarOffloadError | None


class SnapshotForm(Protocol[_Name_contra, _Copy]):
    """The JSON form of a kind's copies in catalog snapshots."""

    def to_json(self, copy: _Copy) -> dict[str, Any]:
        """Return the fields that a catalog snapshot has of a copy besides `SnapshotPair`."""

    def from_json(self, value: dict[str, Any], name: _Name_contra, pair: SnapshotPair) -> _Copy:
        """Read the value that `to_json` returned.

        Raises:
            CorruptSnapshotError: The copy would be neither sound nor in error. Other errors are
                raised if the value does not have the form that `to_json` returns.
        """


class ObjectKind(Protocol[_Name, _Copy]):
    """One kind of objects. `connector.catalog.kinds.registry` lists all kinds.

    Attributes:
        title: The writer of its objects, for messages.
        unit: The noun for one pair of its objects, for messages.
        name_type: The class of the names of its pairs; no other kind uses it.
        driver: The driver that writes objects of this kind and no other (`OffloadContext.driver`);
            None for the kinds of all other drivers.
    """

    title: str
    unit: str
    driver: str | None
    name_type: type[_Name]

    @property
    def snapshot_form(self) -> SnapshotForm[_Name, _Copy] | None:
        """Its form in catalog snapshots; None if they cannot hold it."""

    def parse(self, object_name: str) -> NamedObject | None:
        """Parse the name of an object; return None if it is not of this kind."""

    def named_pairs(self, topic: TopicName, info: LedgerInfo) -> Sequence[_Name]:
        """Return the names of the pairs of this kind that metadata names for a ledger."""

    def read(
        self,
        location: Location,
        name: _Name,
        *,
        index: ObjectInfo,
        data: ObjectInfo | None,
        checksums: tuple[ObjectInfo, ...],
    ) -> StoredPair:
        """Read the index object of a pair and the copies that the pair has.

        `checksums` are the pair's objects of `Part.CHECKSUMS`.

        Raises:
            StorageError: The store refused or failed to return an object.
        """

    def join_shares(self, copies: Sequence[_Copy], info: LedgerInfo | None) -> Sequence[LedgerCopy]:
        """Join the shares of one ledger that several pairs of this kind have.

        Args:
            copies: The share of each pair, newest first.
            info: The ledger in the metadata; None: all pairs may belong to the ledger.

        Returns:
            The joined copy, if any pairs belong together, then the shares of all other pairs.
        """
