"""The names of a bucket → the index and data objects of its ledgers and segments."""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from arrow_io.core.lazy import cached_property
from arrow_io.errors import MissingObjectError
from arrow_io.format.object_names import LedgerObjectName, SegmentName, parse_object_name
from connector.catalog.ledger_copy import age_rank

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from arrow_io.storage.location import Location
    from arrow_io.storage.object_store import ObjectInfo

PairName: TypeAlias = LedgerObjectName | SegmentName
"""Names an index object and its data object: of an offload attempt (PIP-17), or of a segment."""


@dataclass(frozen=True)
class BucketListing:
    """The objects of a bucket, as one listing and later requests by name found them.

    Attributes:
        location: The bucket, prefix or folder.
        indexes: Index objects, by the names of their attempts: by ledger id, then from the newest
            to the oldest.
        data: Data objects likewise, in no order.
        segments: Index objects of streaming offload (PIP-76), from the newest to the oldest.
        segment_data: Data objects of streaming offload, in no order.
        foreign: Objects whose names no offloader of Pulsar gives.
    """

    location: Location
    indexes: Mapping[LedgerObjectName, ObjectInfo]
    data: Mapping[LedgerObjectName, ObjectInfo]
    segments: Mapping[SegmentName, ObjectInfo] = field(default_factory=dict)
    segment_data: Mapping[SegmentName, ObjectInfo] = field(default_factory=dict)
    foreign: tuple[ObjectInfo, ...] = ()

    @property
    def object_count(self) -> int:
        """How many objects were listed."""
        of_ledgers = len(self.indexes) + len(self.data)
        return of_ledgers + len(self.segments) + len(self.segment_data) + len(self.foreign)

    @property
    def index_names(self) -> set[PairName]:
        """The names of all pairs that have an index object."""
        return {*self.indexes, *self.segments}

    @property
    def data_names(self) -> set[PairName]:
        """The names of all pairs that have a data object."""
        return {*self.data, *self.segment_data}

    def index_of(self, name: PairName) -> ObjectInfo | None:
        """Return the index object of a pair; None if there is none."""
        if isinstance(name, SegmentName):
            return self.segments.get(name)
        return self.indexes.get(name)

    def data_of(self, name: PairName) -> ObjectInfo | None:
        """Return the data object of a pair; None if there is none."""
        if isinstance(name, SegmentName):
            return self.segment_data.get(name)
        return self.data.get(name)

    def has_both(self, name: PairName) -> bool:
        """Return whether both objects of a pair were found."""
        return self.index_of(name) is not None and self.data_of(name) is not None

    def has_indexes(self, later: BucketListing) -> bool:
        """Return whether a later listing has no index object that this lacks."""
        return (
            later.indexes.keys() <= self.indexes.keys()
            and later.segments.keys() <= self.segments.keys()
        )

    def names_of_new(self, later: BucketListing) -> set[PairName]:
        """Return the names of the pairs of which a later listing has an object that this lacks."""
        return {
            *(name for name in later.indexes if name not in self.indexes),
            *(name for name in later.data if name not in self.data),
            *(name for name in later.segments if name not in self.segments),
            *(name for name in later.segment_data if name not in self.segment_data),
        }

    def with_objects(self, later: BucketListing) -> BucketListing:
        """Return the same listing with objects that were found later; removes none of its own."""
        return replace(
            self,
            indexes=_in_order({**later.indexes, **self.indexes}),
            data={**later.data, **self.data},
            segments=_newest_first({**later.segments, **self.segments}),
            segment_data={**later.segment_data, **self.segment_data},
        )

    @cached_property
    def places(self) -> Mapping[LedgerObjectName, int]:
        """The position of each attempt that has an index object in their order."""
        return {name: place for place, name in enumerate(self.indexes)}

    @cached_property
    def by_ledger_id(self) -> Mapping[int, list[LedgerObjectName]]:
        """Names of the attempts that have an index object, the newest first."""
        grouped: dict[int, list[LedgerObjectName]] = defaultdict(list)
        for name in self.indexes:
            grouped[name.ledger_id].append(name)
        return dict(grouped)


def list_bucket(location: Location) -> BucketListing:
    """List a bucket: one request.

    Raises:
        MissingObjectError: There is no such folder, or no object below the prefix.
        StorageError: The bucket cannot be listed.
    """
    listed = [(info, parse_object_name(info.name)) for info in location.list_objects()]
    named = [(info, parsed) for info, parsed in listed if parsed is not None]
    ours = [(info, each) for info, each in named if not each.is_streaming]
    streaming = [(SegmentName(each.uuid), info, each) for info, each in named if each.is_streaming]
    return BucketListing(
        location,
        _in_order({each.ledger_object_name: info for info, each in ours if each.is_index}),
        {each.ledger_object_name: info for info, each in ours if not each.is_index},
        _newest_first({name: info for name, info, each in streaming if each.is_index}),
        {name: info for name, info, each in streaming if not each.is_index},
        tuple(info for info, parsed in listed if parsed is None),
    )


def list_again(location: Location) -> BucketListing:
    """List a bucket that was listed before; return an empty listing if the bucket is gone.

    Raises:
        StorageError: The bucket cannot be listed.
    """
    try:
        return list_bucket(location)
    except MissingObjectError:
        return BucketListing(location, {}, {})


def find_objects(location: Location, names: Collection[PairName]) -> BucketListing:
    """Ask for objects by their names: up to three requests for each pair, several at once.

    Args:
        location: The bucket, prefix or folder.
        names: The pairs. Without an index object, which is written last, a pair counts for nothing:
            its data object is not asked for.

    Raises:
        StorageError: The store refused, or went on failing.
    """

    def find(name: PairName) -> tuple[ObjectInfo | None, ObjectInfo | None]:
        index = location.find(name.index_name)
        data = None if index is None else location.find(name.data_name)
        if index is not None and data is None:
            # Both may have been deleted since.
            index = location.find(name.index_name)
        return index, data

    found: dict[PairName, tuple[ObjectInfo | None, ObjectInfo | None]] = {}
    if names:
        with ThreadPoolExecutor(min(len(names), location.max_connections)) as executor:
            found = dict(zip(names, executor.map(find, names), strict=True))
    ledgers = {name: each for name, each in found.items() if isinstance(name, LedgerObjectName)}
    segments = {name: each for name, each in found.items() if isinstance(name, SegmentName)}
    return BucketListing(
        location,
        {name: index for name, (index, _) in ledgers.items() if index is not None},
        {name: data for name, (_, data) in ledgers.items() if data is not None},
        {name: index for name, (index, _) in segments.items() if index is not None},
        {name: data for name, (_, data) in segments.items() if data is not None},
    )


def _in_order(
    indexes: Mapping[LedgerObjectName, ObjectInfo],
) -> dict[LedgerObjectName, ObjectInfo]:
    """Index objects by ledger id, then from the newest to the oldest."""
    newest_first = sorted(indexes.items(), key=lambda each: age_rank(*each), reverse=True)
    return dict(sorted(newest_first, key=lambda each: each[0].ledger_id))


def _newest_first(segments: Mapping[SegmentName, ObjectInfo]) -> dict[SegmentName, ObjectInfo]:
    return dict(sorted(segments.items(), key=lambda each: age_rank(*each), reverse=True))
