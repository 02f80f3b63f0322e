"""The objects of a bucket, found by a listing or by their names."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

from arrow_io.core.lazy import cached_property
from arrow_io.core.threads import ContextThreadPool
from arrow_io.core.wording import counted
from arrow_io.errors import MissingObjectError
from arrow_io.format.object_names import MAX_LEDGER_ID
from connector.catalog.kinds.ledger_copy import age_rank
from connector.catalog.kinds.object_kind import Part
from connector.catalog.kinds.registry import parse_name
from connector.catalog.managed_ledger_folders import (
    MAX_UNRELATED_FOLDERS,
    list_managed_ledgers,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

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
        checksums: Objects with the checksums of others, by the names of their pairs.
        folder_count: Number of folders that were listed besides the location, to find MapFiles.
        unsearched_count: Number of folders that were not listed: too many, or not permitted.
    """

    location: Location
    indexes: Mapping[PairName, ObjectInfo]
    data: Mapping[PairName, ObjectInfo]
    foreign: tuple[ObjectInfo, ...] = ()
    checksums: Mapping[PairName, tuple[ObjectInfo, ...]] = field(default_factory=dict)
    folder_count: int = 0
    unsearched_count: int = 0

    @property
    def object_count(self) -> int:
        """The number of listed objects."""
        checksums = sum(map(len, self.checksums.values()))
        return len(self.indexes) + len(self.data) + len(self.foreign) + checksums

    @property
    def search_gap(self) -> str:
        """Which folders were not searched for MapFiles, and what to do; empty if all were."""
        if not self.unsearched_count:
            return ""
        folders = counted(self.unsearched_count, "folder")
        return (
            f"{folders} of {self.location} were not searched for MapFiles: access is denied, or"
            f" more than {MAX_UNRELATED_FOLDERS} folders have none. If the bucket has MapFiles,"
            " open the folder that contains their tenants"
        )

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

    def changed_names(self, later: BucketListing, names: Iterable[PairName]) -> set[PairName]:
        """Return those of some pairs that a later listing shows with other objects."""
        return {
            name
            for name in names
            if name in later.indexes
            and (self.indexes.get(name), self.data.get(name))
            != (later.indexes[name], later.data.get(name))
        }

    def without(self, names: Collection[PairName]) -> BucketListing:
        """Return this listing without some pairs."""
        if not names:
            return self
        return replace(
            self,
            indexes={name: each for name, each in self.indexes.items() if name not in names},
            data={name: each for name, each in self.data.items() if name not in names},
            checksums={name: each for name, each in self.checksums.items() if name not in names},
        )

    def with_objects(self, later: BucketListing) -> BucketListing:
        """Return this listing with the objects added that a later one found."""
        return replace(
            self,
            indexes=_sort_indexes({**later.indexes, **self.indexes}),
            data={**later.data, **self.data},
            checksums={**later.checksums, **self.checksums},
        )

    def checksums_of(self, name: PairName) -> tuple[ObjectInfo, ...]:
        """Return the objects with the checksums of a pair's objects."""
        return self.checksums.get(name, ())

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
    """List a bucket: one request, and those for MapFiles if the bucket has folders.

    Raises:
        MissingObjectError: There is no such folder, or no object below the prefix.
        StorageError: The bucket cannot be listed.
    """
    listing = location.list_folder()
    managed_ledgers = list_managed_ledgers(location, listing.folders)
    indexes: dict[PairName, ObjectInfo] = {}
    data: dict[PairName, ObjectInfo] = {}
    checksums: dict[PairName, tuple[ObjectInfo, ...]] = {}
    foreign = []
    for info in chain(listing.objects, managed_ledgers.objects):
        parsed = parse_name(info.name)
        if parsed is None:
            foreign.append(info)
        elif parsed.part is Part.CHECKSUMS:
            checksums[parsed.name] = (*checksums.get(parsed.name, ()), info)
        else:
            (indexes if parsed.part is Part.INDEX else data)[parsed.name] = info
    for name in checksums.keys() - indexes.keys() - data.keys():
        foreign += checksums.pop(name)
    return BucketListing(
        location,
        _sort_indexes(indexes),
        data,
        tuple(foreign),
        checksums,
        managed_ledgers.listing_count,
        managed_ledgers.unsearched_count,
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
    """Look up pairs by their names: a few requests for each, several at once.

    The data object of a pair is looked up only if its index object exists, because the index object
    is written last.

    Raises:
        StorageError: The store refused, or all attempts failed.
    """

    def find(name: PairName) -> _FoundPair:
        index = location.find(name.index_name)
        data = None if index is None else location.find(name.data_name)
        if index is not None and data is None:
            # Both may have been deleted after the first request.
            index = location.find(name.index_name)
        names = () if index is None else name.checksum_names
        checksums = (location.find(each) for each in names)
        return _FoundPair(index, data, tuple(each for each in checksums if each is not None))

    found: dict[PairName, _FoundPair] = {}
    if names:
        with ContextThreadPool(min(len(names), location.max_index_reads)) as executor:
            found = dict(zip(names, executor.map(find, names), strict=True))
    return BucketListing(
        location,
        {name: each.index for name, each in found.items() if each.index is not None},
        {name: each.data for name, each in found.items() if each.data is not None},
        checksums={name: each.checksums for name, each in found.items() if each.checksums},
    )


@dataclass(frozen=True, slots=True)
class _FoundPair:
    """The objects of a pair, as far as they exist."""

    index: ObjectInfo | None
    data: ObjectInfo | None
    checksums: tuple[ObjectInfo, ...]


def _sort_indexes(indexes: Mapping[PairName, ObjectInfo]) -> dict[PairName, ObjectInfo]:
    newest_first = sorted(indexes.items(), key=lambda each: age_rank(*each), reverse=True)
    return dict(sorted(newest_first, key=_ledger_rank))


def _ledger_rank(each: tuple[PairName, ObjectInfo]) -> int:
    ledger_id = each[0].ledger_id
    return MAX_LEDGER_ID + 1 if ledger_id is None else ledger_id
