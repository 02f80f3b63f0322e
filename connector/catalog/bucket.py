"""The bucket alone → which ledgers lie in it, whole, and to which managed ledgers they belong.

A listing gives the names. What a ledger is, its index object says, which is read when the ledger is
first asked for.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from arrow_io.errors import MissingObjectError
from arrow_io.format.object_names import (
    LedgerObjectName,
    SegmentName,
    ShareName,
    parse_object_name,
)
from arrow_io.lazy import cached_property
from connector.catalog.ledger_copy import LedgerCopy, age_rank, read_copy
from connector.catalog.segment_copies import SegmentedCopy, read_segment

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from arrow_io.storage.location import Location
    from arrow_io.storage.object_store import ObjectInfo
    from connector.catalog.ledger_copy import LedgerCopy
    from connector.catalog.segment_copies import SegmentCopy


_MOST_BY_NAME: Final = 256
"""More attempts are not asked for one by one: the bucket is listed again."""


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
class BucketListing:
    """What one listing says of a bucket.

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
    def streaming(self) -> tuple[ObjectInfo, ...]:
        """Data objects of streaming offload that have no index object."""
        return tuple(info for name, info in self.segment_data.items() if name not in self.segments)

    def has_whole(self, name: LedgerObjectName) -> bool:
        """Whether both objects of an attempt were listed."""
        return name in self.indexes and name in self.data

    def with_objects(
        self,
        indexes: Mapping[LedgerObjectName, ObjectInfo],
        data: Mapping[LedgerObjectName, ObjectInfo],
    ) -> BucketListing:
        """The same listing with objects that were found later; none that it has is left out."""
        return replace(
            self,
            indexes=_in_order({**indexes, **self.indexes}),
            data={**data, **self.data},
        )

    @cached_property
    def places(self) -> Mapping[LedgerObjectName, int]:
        """Where each attempt that has an index object stands in their order."""
        return {name: place for place, name in enumerate(self.indexes)}

    @cached_property
    def by_ledger_id(self) -> Mapping[int, list[LedgerObjectName]]:
        """Names of the attempts that have an index object, the newest first."""
        grouped: dict[int, list[LedgerObjectName]] = defaultdict(list)
        for name in self.indexes:
            grouped[name.ledger_id].append(name)
        return dict(grouped)


@dataclass(frozen=True)
class BucketContents:
    """What the bucket holds.

    Attributes:
        location: The bucket, prefix or folder.
        copies: Every offload attempt that has an index object, and what each segment has of a
            ledger, by ledger id, then from the newest to the oldest.
        unfinished: Attempts that never completed.
        segments: Segments of streaming offload (PIP-76), from the newest to the oldest.
        streaming: Data objects of streaming offload that have no index object.
        foreign: Objects whose names no offloader of Pulsar gives.
    """

    location: Location
    copies: tuple[LedgerCopy, ...]
    unfinished: tuple[UnfinishedOffload, ...] = ()
    segments: tuple[SegmentCopy, ...] = ()
    streaming: tuple[ObjectInfo, ...] = ()
    foreign: tuple[ObjectInfo, ...] = ()


@dataclass(frozen=True)
class Opening:
    """What opening a bucket, and choosing topics of it, takes.

    Attributes:
        object_count: How many objects are listed.
        copies: The copies whose index objects are read.
        unfinished_count: How many offloads that never completed are asked for their topic.
    """

    object_count: int
    copies: tuple[LedgerCopy, ...]
    unfinished_count: int


class Bucket:
    """A bucket as it was listed; each index object is read once, when it is first asked for.

    Several threads may ask at once.

    Args:
        listing: What lies there.
        known: Copies whose index objects were read before. A copy counts if its objects have not
            changed since, by what the listing says of them.
    """

    def __init__(self, listing: BucketListing, known: Iterable[LedgerCopy] = ()) -> None:
        self._start()
        self.listing = listing
        self._copies: dict[LedgerObjectName | ShareName, LedgerCopy] = {}
        for copy in known:
            name = copy.name
            if isinstance(copy, SegmentedCopy):
                self._known_segments |= {each.name: each for each in copy.segments}
            elif isinstance(name, LedgerObjectName) and name in listing.indexes:
                index, data = listing.indexes[name], listing.data.get(name)
                if copy.is_still(index, data):
                    self._copies[name] = copy.as_listed(index, data)

    def _start(self) -> None:
        # Whoever opens all of it asks for copies, too.
        self._lock = threading.RLock()
        self._contents: BucketContents | None = None
        self._has_looked = False
        self._deleted: set[LedgerObjectName] = set()
        self._known_segments: dict[SegmentName, SegmentCopy] = {}
        self._segments: tuple[SegmentCopy, ...] | None = None

    @property
    def opened(self) -> tuple[LedgerCopy, ...]:
        """The copies whose index objects have been read until now; sends no request."""
        known = dict(self._copies)
        found = (known[name] for name in self.listing.indexes if name in known)
        return *found, *(copy for each in self._segments or () for copy in each.copies)

    @property
    def is_opened(self) -> bool:
        """Whether all index objects have been read; sends no request."""
        has_segments = self._segments is not None or not self.listing.segments
        return has_segments and self.listing.indexes.keys() - self._deleted <= self._copies.keys()

    @property
    def segments(self) -> tuple[SegmentCopy, ...]:
        """The segments of streaming offload, whose index objects are read together.

        Raises:
            StorageError: An object cannot be read for a reason that lies in the store.
        """
        with self._lock:
            if self._segments is None:
                self._segments = self._read_segments()
            return self._segments

    @property
    def names(self) -> frozenset[LedgerObjectName | ShareName]:
        """The names of all copies; those of segments only their index objects say.

        Raises:
            StorageError: An object cannot be read for a reason that lies in the store.
        """
        return frozenset((*self.listing.indexes, *self._shares))

    @property
    def ledger_ids(self) -> set[int]:
        """The ledgers of which there is a copy, as far as that is known without a request."""
        shares = (copy.name.ledger_id for each in self._segments or () for copy in each.copies)
        return {*self.listing.by_ledger_id, *shares}

    @property
    def copy_count(self) -> int:
        """How many index objects there are, but for those that are known to be deleted."""
        return len(self.listing.indexes.keys() - self._deleted)

    @property
    def unfinished(self) -> tuple[UnfinishedOffload, ...]:
        """Attempts that never completed, or whose index object is known to be deleted."""
        complete = self.listing.indexes.keys() - self._deleted
        data = self.listing.data.items()
        return tuple(UnfinishedOffload(*each) for each in data if each[0] not in complete)

    @property
    def streaming(self) -> tuple[ObjectInfo, ...]:
        """Data objects of streaming offload that have no index object."""
        return self.listing.streaming

    def look_again(self, names: Collection[LedgerObjectName] | None) -> bool:
        """Ask for attempts that were not listed whole, as they are now: they may have come since.

        Args:
            names: The attempts; None: any, because nothing names them.

        Returns:
            Whether the bucket has objects that were not known.

        Raises:
            StorageError: The store refused, or went on failing.
        """
        with self._lock:
            listing = self.listing
            if names is not None:
                names = {each for each in names if not listing.has_whole(each)} - self._deleted
            if names is None or len(names) > _MOST_BY_NAME:
                indexes, data = _list_objects(listing.location)
            else:
                indexes, data = _find_objects(listing.location, names)
            changed = indexes.keys() - listing.indexes.keys() | data.keys() - listing.data.keys()
            if not changed:
                return False
            self.listing = listing.with_objects(indexes, data)
            for name in changed:
                self._copies.pop(name, None)
            self._contents = None
            return True

    def open_all(self) -> BucketContents:
        """Read every index object that was not read until now, and give what the bucket holds.

        A data object without an index object may have got one since the bucket was listed: each is
        asked for once. If objects were deleted since, the bucket is listed again: a topic may have
        been made anew.

        Raises:
            StorageError: An index object cannot be read for a reason that lies in the store.
        """
        with self._lock:
            if not self._has_looked:
                self.look_again({each.name for each in self.unfinished})
                self._has_looked = True
            if self._contents is None:
                names = self.names
                copies = tuple(self.copies(names))
                if self.names != names:
                    copies = tuple(self.copies(self.names))
                self._contents = BucketContents(
                    self.listing.location,
                    copies,
                    self.unfinished,
                    self.segments,
                    self.streaming,
                    self.listing.foreign,
                )
            return self._contents

    def copies_of(self, ledger_ids: Iterable[int]) -> list[LedgerCopy]:
        """All copies of some ledgers; order and errors are as in `copies`."""
        return self.copies(self.names_of(ledger_ids))

    def names_of(self, ledger_ids: Iterable[int]) -> list[LedgerObjectName | ShareName]:
        """The names of all copies of some ledgers.

        Raises:
            StorageError: An object cannot be read for a reason that lies in the store.
        """
        ids, named = set(ledger_ids), self.listing.by_ledger_id
        shares = [name for name in self._shares if name.ledger_id in ids]
        return [*(name for each in ids for name in named.get(each, ())), *shares]

    @cached_property
    def _shares(self) -> dict[LedgerObjectName | ShareName, SegmentedCopy]:
        """What segments have of ledgers, the newest first."""
        if not self.listing.segments:
            return {}
        return {copy.name: copy for each in self.segments for copy in each.copies}

    def copies(self, names: Iterable[LedgerObjectName | ShareName]) -> list[LedgerCopy]:
        """Read index objects, several at once, but for those that were read before.

        Args:
            names: Names of attempts that the listing has with an index object, and of shares.

        Returns:
            The copies, by ledger id, then from the newest to the oldest; none of those whose index
            object was deleted after the bucket was listed.

        Raises:
            StorageError: An index object cannot be read for a reason that lies in the store.
        """
        given = set(names)
        wanted = {name for name in given if isinstance(name, LedgerObjectName)} - self._deleted
        shares = [copy for name, copy in self._shares.items() if name in given]
        # A thread that asks for the same at the same time waits, and finds it read.
        with self._lock:
            unread = [name for name in wanted if name not in self._copies]
            if unread:
                self._read(unread)
            wanted -= self._deleted
            ordered = sorted(wanted, key=self.listing.places.__getitem__)
            found: list[LedgerCopy] = [self._copies[name] for name in ordered]
        return in_order((*found, *shares)) if shares else found

    def _read(self, names: list[LedgerObjectName]) -> None:
        listing = self.listing

        def read(name: LedgerObjectName) -> LedgerCopy:
            return read_copy(
                listing.location, name, index=listing.indexes[name], data=listing.data.get(name)
            )

        with ThreadPoolExecutor(min(len(names), listing.location.max_connections)) as executor:
            read_now = list(executor.map(read, names))
        # Objects come and go one after the other: half of an attempt may have been listed, or read.
        lacking = {copy.name for copy in read_now if isinstance(copy.error, MissingObjectError)}
        halves = [name for name in names if name in lacking]
        if halves:
            still, data = _find_objects(listing.location, halves)
            if len(still) < len(halves):
                # A store that goes on listing what it does not give has lost it.
                indexes, _ = later = _list_objects(listing.location)
                self._deleted |= {name for name in halves if name not in {*still, *indexes}}
                listing = listing.with_objects(*later)
            whole = [name for name in halves if name in still and name in data]
            if whole:
                listing = listing.with_objects({}, data)
            self.listing = listing
            read_now = [copy for copy in read_now if copy.name not in whole]
            read_now += map(read, whole)
        self._copies |= {copy.name: copy for copy in read_now if copy.name not in self._deleted}

    def _read_segments(self) -> tuple[SegmentCopy, ...]:
        listing = self.listing

        def read(name: SegmentName) -> SegmentCopy:
            index, data = listing.segments[name], listing.segment_data.get(name)
            known = self._known_segments.get(name)
            if known is not None and known.is_still(index, data):
                return known
            return read_segment(listing.location, name, index=index, data=data)

        if not listing.segments:
            return ()
        count = min(len(listing.segments), listing.location.max_connections)
        with ThreadPoolExecutor(count) as executor:
            found = tuple(executor.map(read, listing.segments))
        gone = [each for each in found if isinstance(each.error, MissingObjectError)]
        if gone:
            still = {info.name for info in listing.location.list_objects()}
            return tuple(
                each for each in found if each not in gone or each.name.index_name in still
            )
        return found


def _find_objects(
    location: Location, names: Collection[LedgerObjectName]
) -> tuple[dict[LedgerObjectName, ObjectInfo], dict[LedgerObjectName, ObjectInfo]]:
    """Ask for the objects of attempts by their names.

    Returns:
        The index objects and the data objects that there are.
    """

    def find(name: LedgerObjectName) -> tuple[ObjectInfo | None, ObjectInfo | None]:
        index = location.find(name.index_name)
        # Without an index object, which is written last, it does not matter what else there is.
        data = None if index is None else location.find(name.data_name)
        if index is not None and data is None:
            # Both may have been deleted since.
            index = location.find(name.index_name)
        return index, data

    if not names:
        return {}, {}
    with ThreadPoolExecutor(min(len(names), location.max_connections)) as executor:
        found = list(zip(names, executor.map(find, names), strict=True))
    return (
        {name: index for name, (index, _) in found if index is not None},
        {name: data for name, (_, data) in found if data is not None},
    )


def _list_objects(
    location: Location,
) -> tuple[Mapping[LedgerObjectName, ObjectInfo], Mapping[LedgerObjectName, ObjectInfo]]:
    """List the index objects and the data objects that there are; none if the bucket is gone."""
    try:
        listing = list_bucket(location)
    except MissingObjectError:
        return {}, {}
    return listing.indexes, listing.data


def _in_order(
    indexes: Mapping[LedgerObjectName, ObjectInfo],
) -> dict[LedgerObjectName, ObjectInfo]:
    """Index objects by ledger id, then from the newest to the oldest."""
    newest_first = sorted(indexes.items(), key=lambda each: age_rank(*each), reverse=True)
    return dict(sorted(newest_first, key=lambda each: each[0].ledger_id))


def in_order(copies: Iterable[LedgerCopy]) -> list[LedgerCopy]:
    """Copies by ledger id, then from the newest to the oldest."""
    newest_first = sorted(copies, key=lambda copy: age_rank(copy.name, copy.index), reverse=True)
    return sorted(newest_first, key=lambda copy: copy.name.ledger_id)


def list_bucket(location: Location) -> BucketListing:
    """List a bucket: one request.

    Raises:
        MissingObjectError: There is no such folder, or no object below the prefix.
        StorageError: The bucket cannot be listed.
    """
    listed = [(info, parse_object_name(info.name)) for info in location.list_objects()]
    named = [(info, parsed) for info, parsed in listed if parsed is not None]
    ours = [(info, each) for info, each in named if not each.is_streaming]
    indexes = {each.ledger_object_name: info for info, each in ours if each.is_index}
    streaming = [(SegmentName(each.uuid), info, each) for info, each in named if each.is_streaming]
    segments = [(name, info) for name, info, each in streaming if each.is_index]
    segments.sort(key=lambda each: age_rank(*each), reverse=True)
    return BucketListing(
        location,
        _in_order(indexes),
        {each.ledger_object_name: info for info, each in ours if not each.is_index},
        dict(segments),
        {name: info for name, info, each in streaming if not each.is_index},
        tuple(info for info, parsed in listed if parsed is None),
    )


def read_bucket(location: Location, *, known: BucketContents | None = None) -> BucketContents:
    """List the bucket and read the index object of every ledger in it.

    Args:
        location: The bucket, prefix or folder.
        known: What an earlier call gave; index objects that have not changed since, by what the
            listing says of them, are not read again.

    Raises:
        MissingObjectError: There is no such folder, or no object below the prefix.
        StorageError: The bucket cannot be listed, or an index object cannot be read for a reason
            that lies in the store.
    """
    return Bucket(list_bucket(location), known.copies if known else ()).open_all()
