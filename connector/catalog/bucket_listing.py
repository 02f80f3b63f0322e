"""The index and data objects of a bucket, found by one listing or by their names."""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from arrow_io.core.lazy import cached_property
from arrow_io.errors import MissingObjectError
from arrow_io.format.object_names import MAX_LEDGER_ID
from connector.catalog.kinds.ledger_copy import age_rank
from connector.catalog.kinds.registry import parse_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from arrow_io.format.object_names import PairName
    from arrow_io.storage.location import Location
    from arrow_io.storage.object_store import ObjectInfo


@dataclass(frozen=True)
class BucketListing:
    """The objects of a bucket, as one listing and later requests by name found them.

    Attributes:
        indexes: Index objects by the names of their pairs: ascending by ledger id, then newest
            first. Pairs whose names contain no ledger id come last.
        data: Data objects by the names of their pairs, in no order.
        foreign: Objects whose names no offloader of Pulsar writes.
    """

    location: Location
    indexes: Mapping[PairName, ObjectInfo]
    data: Mapping[PairName, ObjectInfo]
    foreign: tuple[ObjectInfo, ...] = ()

    @property
    def object_count(self) -> int:
        """The number of listed objects."""
        return len(self.indexes) + len(self.data) + len(self.foreign)

    def has_both(self, name: PairName) -> bool:
        """Return whether both objects of a pair were found."""
        return name in self.indexes and name in self.data

    def has_indexes(self, later: BucketListing) -> bool:
        """Return whether this listing has all index objects of a later one."""
        return later.indexes.keys() <= self.indexes.keys()

    def new_names(self, later: BucketListing) -> set[PairName]:
        """Return the names of pairs with an object that only a later listing has."""
        indexes = later.indexes.keys() - self.indexes.keys()
        return indexes | (later.data.keys() - self.data.keys())

    def with_objects(self, later: BucketListing) -> BucketListing:
        """Return this listing with the objects added that a later one found."""
        return replace(
            self,
            indexes=_sort_indexes({**later.indexes, **self.indexes}),
            data={**later.data, **self.data},
        )

    @cached_property
    def positions(self) -> Mapping[PairName, int]:
        """The position of each pair in `indexes`."""
        return {name: position for position, name in enumerate(self.indexes)}

    @cached_property
    def by_ledger_id(self) -> Mapping[int | None, list[PairName]]:
        """Names of the pairs that have an index object, by ledger id, newest first.

        The key None holds pairs whose names contain no ledger id.
        """
        grouped: dict[int | None, list[PairName]] = defaultdict(list)
        for name in self.indexes:
            grouped[name.ledger_id].append(name)
        return dict(grouped)


def list_bucket(location: Location) -> BucketListing:
    """List a bucket: one request.

    Raises:
        MissingObjectError: There is no such folder, or no object below the prefix.
        StorageError: The bucket cannot be listed.
    """
    objects = [(info, parse_name(info.name)) for info in location.list_objects()]
    parsed_objects = [(info, parsed) for info, parsed in objects if parsed is not None]
    return BucketListing(
        location,
        _sort_indexes({each.name: info for info, each in parsed_objects if each.is_index}),
        {each.name: info for info, each in parsed_objects if not each.is_index},
        tuple(info for info, parsed in objects if parsed is None),
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
    """Look up pairs by their names: up to three requests for each, several at once.

    The data object of a pair is looked up only if its index object exists, because the index object
    is written last.

    Raises:
        StorageError: The store refused, or all attempts failed.
    """

    def find(name: PairName) -> tuple[ObjectInfo | None, ObjectInfo | None]:
        index = location.find(name.index_name)
        data = None if index is None else location.find(name.data_name)
        if index is not None and data is None:
            # Both may have been deleted after the first request.
            index = location.find(name.index_name)
        return index, data

    found: dict[PairName, tuple[ObjectInfo | None, ObjectInfo | None]] = {}
    if names:
        with ThreadPoolExecutor(min(len(names), location.max_connections)) as executor:
            found = dict(zip(names, executor.map(find, names), strict=True))
    return BucketListing(
        location,
        {name: index for name, (index, _) in found.items() if index is not None},
        {name: data for name, (_, data) in found.items() if data is not None},
    )


def _sort_indexes(indexes: Mapping[PairName, ObjectInfo]) -> dict[PairName, ObjectInfo]:
    newest_first = sorted(indexes.items(), key=lambda each: age_rank(*each), reverse=True)
    return dict(sorted(newest_first, key=_ledger_rank))


def _ledger_rank(each: tuple[PairName, ObjectInfo]) -> int:
    ledger_id = each[0].ledger_id
    return MAX_LEDGER_ID + 1 if ledger_id is None else ledger_id
