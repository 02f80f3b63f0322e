"""What the catalog asks of each kind of objects that hold ledgers."""

from __future__ import annotations

from dataclasses import dataclass
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


class NamedObject(NamedTuple):
    """What the name of an object says."""

    name: PairName
    """Names of the pair that it belongs to."""
    is_index: bool
    """Whether it is the index object; else it is the data object."""


@dataclass(frozen=True, slots=True)
class SnapshotPair:
    """What every catalog snapshot has of a pair, whatever its kind."""

    location: Location
    index: ObjectInfo
    data: ObjectInfo | None
    topic: Any
    error: PulsarOffloadError | None


class SnapshotForm(Protocol[_Name_contra, _Copy]):
    """The form in which catalog snapshots have the copies of a kind."""

    def to_json(self, copy: _Copy) -> dict[str, Any]:
        """Return what a catalog snapshot has of a copy beyond `SnapshotPair`."""

    def from_json(self, value: dict[str, Any], name: _Name_contra, pair: SnapshotPair) -> _Copy:
        """Read what `to_json` returned.

        Raises:
            CorruptSnapshotError: The copy would be neither sound nor in error; or another error, if
                the value is not what `to_json` returns.
        """


class ObjectKind(Protocol[_Name, _Copy]):
    """One kind of objects. `connector.catalog.kinds.registry` has the list of all kinds.

    Attributes:
        title: What wrote its objects, in words.
        unit: What one pair of them is, in words.
        name_type: The class of the names of its pairs, which no other kind has.
    """

    title: str
    unit: str
    name_type: type[_Name]

    @property
    def snapshot_form(self) -> SnapshotForm[_Name, _Copy] | None:
        """Its form in catalog snapshots; None if they have none for it."""

    def parse(self, object_name: str) -> NamedObject | None:
        """Read the name of an object; None if it is none of this kind."""

    def named_pairs(self, topic: TopicName, info: LedgerInfo) -> Sequence[_Name]:
        """Return the names of the pairs of this kind that metadata names for a ledger."""

    def read(
        self, location: Location, name: _Name, *, index: ObjectInfo, data: ObjectInfo | None
    ) -> StoredPair:
        """Read the index object of a pair, and find out which copies the pair has.

        Args:
            location: Where the objects are.
            name: Names of the objects.
            index: The index object, as it was listed.
            data: The data object likewise; None if there is none.

        Raises:
            StorageError: An object cannot be read for a reason that lies in the store.
        """

    def join_shares(self, copies: Sequence[_Copy], info: LedgerInfo | None) -> Sequence[LedgerCopy]:
        """Put together the shares of one ledger that several pairs of this kind have.

        Args:
            copies: What each pair has of the ledger, from the newest on.
            info: What the metadata says of the ledger; None: all pairs may be of the ledger.

        Returns:
            The copy of the pairs that count, if there are any, then what each other pair has.
        """
