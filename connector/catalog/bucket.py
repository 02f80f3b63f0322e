"""The bucket alone → which ledgers lie in it, whole, and to which managed ledgers they belong.

A listing gives the names. What a ledger is, its index object says, which is read when the ledger is
first asked for.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from arrow_io.errors import MissingObjectError, StorageError
from arrow_io.format.object_names import LedgerObjectName, SegmentName, ShareName
from connector.catalog.bucket_listing import find_objects, list_again, list_bucket
from connector.catalog.ledger_copy import LedgerCopy, age_rank, read_copy
from connector.catalog.segment_copies import SegmentCopy, SegmentedCopy, read_segment

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from arrow_io.storage.location import Location
    from arrow_io.storage.object_store import ObjectInfo
    from connector.catalog.bucket_listing import BucketListing, PairName


_MOST_BY_NAME: Final = 256
"""More pairs of objects are not asked for one by one: the bucket is listed again."""
_MOST_READS: Final = 10
"""After so many reads of objects that come and go between them, it stays as it was found."""


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
        listing: The objects of the bucket.
        known: Copies whose index objects were read before. A copy counts if its objects have not
            changed since, by what the listing says of them.
        looked: `looked` of the bucket as it was listed before.
    """

    def __init__(
        self,
        listing: BucketListing,
        known: Iterable[LedgerCopy] = (),
        looked: BucketListing | None = None,
    ) -> None:
        self._start()
        self.listing = listing
        self._looked_before = looked
        self._copies: dict[LedgerObjectName, LedgerCopy] = {}
        self._segment_copies: dict[SegmentName, SegmentCopy] = {}
        for copy in known:
            if isinstance(copy, SegmentedCopy):
                for each in copy.segments:
                    index = listing.index_of(each.name)
                    if index is not None and each.is_still(index, listing.data_of(each.name)):
                        self._segment_copies[each.name] = each
            elif isinstance(copy.name, LedgerObjectName) and copy.name in listing.indexes:
                index, data = listing.indexes[copy.name], listing.data.get(copy.name)
                if copy.is_still(index, data):
                    self._copies[copy.name] = copy.as_listed(index, data)

    def _start(self) -> None:
        # Whoever opens all of it asks for copies, too.
        self._lock = threading.RLock()
        self._contents: BucketContents | None = None
        self._deleted: set[PairName] = set()
        self._shares: dict[LedgerObjectName | ShareName, SegmentedCopy] | None = None
        self.looked: BucketListing | None = None
        """The listing whose data objects without an index object were asked for theirs."""

    @property
    def opened(self) -> tuple[LedgerCopy, ...]:
        """The copies whose index objects have been read until now; sends no request."""
        known, segments = dict(self._copies), dict(self._segment_copies)
        found = (known[name] for name in self.listing.indexes if name in known)
        in_order = (segments[name] for name in self.listing.segments if name in segments)
        return *found, *(copy for each in in_order for copy in each.copies)

    @property
    def is_opened(self) -> bool:
        """Whether all index objects have been read; sends no request."""
        unread = self.listing.index_names - self._deleted
        return unread <= {*self._copies, *self._segment_copies}

    @property
    def segments(self) -> tuple[SegmentCopy, ...]:
        """The segments of streaming offload, whose index objects are read together.

        Raises:
            StorageError: An object cannot be read for a reason that lies in the store.
        """
        with self._lock:
            while unread := self._listed_segments - self._segment_copies.keys():
                self._read(unread)
            is_there = self._segment_copies
            return tuple(is_there[name] for name in self.listing.segments if name in is_there)

    @property
    def _listed_segments(self) -> set[SegmentName]:
        return {name for name in self.listing.segments if name not in self._deleted}

    @property
    def names(self) -> frozenset[LedgerObjectName | ShareName]:
        """The names of all copies; those of segments only their index objects say.

        Raises:
            StorageError: An object cannot be read for a reason that lies in the store.
        """
        return frozenset((*self.listing.indexes, *self._every_share()))

    @property
    def ledger_ids(self) -> set[int]:
        """The ledgers of which there is a copy, as far as that is known without a request."""
        segments = tuple(self._segment_copies.values())
        shares = (copy.name.ledger_id for each in segments for copy in each.copies)
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
        """Data objects of streaming offload that have no index object, or a deleted one."""
        complete = self._listed_segments
        data = self.listing.segment_data.items()
        return tuple(info for name, info in data if name not in complete)

    def look_again(self, names: Collection[PairName] | None) -> None:
        """Ask for pairs of objects that were not listed whole: they may have come since.

        Args:
            names: The pairs; None: any, because nothing names them.

        Raises:
            StorageError: The store refused, or went on failing.
        """
        with self._lock:
            if names is not None:
                names = {each for each in names if not self.listing.has_both(each)} - self._deleted
            self._find(names)

    def open_all(self) -> BucketContents:
        """Read every index object that was not read until now, and give what the bucket holds.

        A data object without an index object may have got one since the bucket was listed: each is
        asked for once, until a later listing shows something new. If objects were deleted since,
        the bucket is listed again: a topic may have been made anew.

        Raises:
            StorageError: An index object cannot be read for a reason that lies in the store.
        """
        with self._lock:
            if self.looked is None:
                self._look_for_unfinished()
            for _ in range(_MOST_READS):
                if self._contents is not None:
                    return self._contents
                names = self.names
                copies = tuple(self.copies(names))
                if self.names == names:
                    self._contents = BucketContents(
                        self.listing.location,
                        copies,
                        self.unfinished,
                        self.segments,
                        self.streaming,
                        self.listing.foreign,
                    )
            message = "the bucket changed faster than its index objects could be read: try again"
            raise StorageError(message)

    def _look_for_unfinished(self) -> None:
        """Ask for the index objects that data objects lack.

        The pages of a listing are of different times, so it may have an attempt whole, and lack the
        index object of an earlier one. Without new index objects there is no such attempt.
        """
        listing, before = self.listing, self._looked_before
        lacking = listing.data_names - listing.index_names
        if before is not None and before.has_indexes(listing):
            lacking = {name for name in lacking if before.data_of(name) != listing.data_of(name)}
        self.look_again(lacking)
        self.looked, self._looked_before = self.listing, None

    def copies_of(self, ledger_ids: Iterable[int]) -> list[LedgerCopy]:
        """All copies of some ledgers; order and errors are as in `copies`."""
        return self.copies(self.names_of(ledger_ids))

    def names_of(self, ledger_ids: Iterable[int]) -> list[LedgerObjectName | ShareName]:
        """The names of all copies of some ledgers.

        Raises:
            StorageError: An object cannot be read for a reason that lies in the store.
        """
        ids, named = set(ledger_ids), self.listing.by_ledger_id
        shares = [name for name in self._every_share() if name.ledger_id in ids]
        return [*(name for each in ids for name in named.get(each, ())), *shares]

    def _every_share(self) -> Mapping[LedgerObjectName | ShareName, SegmentedCopy]:
        """Return what segments have of ledgers, the newest first."""
        if not self.listing.segments:
            return {}
        with self._lock:
            if self._shares is None:
                segments = self.segments
                self._shares = {copy.name: copy for each in segments for copy in each.copies}
            return self._shares

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
        shares = [copy for name, copy in self._every_share().items() if name in given]
        # A thread that asks for the same at the same time waits, and finds it read.
        with self._lock:
            unread = [name for name in wanted if name not in self._copies]
            if unread:
                self._read(unread)
            wanted -= self._deleted
            ordered = sorted(wanted, key=self.listing.places.__getitem__)
            found: list[LedgerCopy] = [self._copies[name] for name in ordered]
        return in_order((*found, *shares)) if shares else found

    def _read(self, names: Collection[PairName]) -> None:
        """Read index objects, several at once.

        Objects come and go one after the other, so half of a pair may have been listed, or read.
        What lacks an object is asked for again, and read again if it has both by then.
        """
        for _ in range(_MOST_READS):
            if not names:
                return
            read_now = self._read_once(names)
            for each in read_now:
                if isinstance(each, SegmentCopy):
                    self._segment_copies[each.name] = each
                elif isinstance(each.name, LedgerObjectName):
                    self._copies[each.name] = each
            names = self._whole_since({each.name for each in read_now if _lacks_object(each)})

    def _read_once(self, names: Collection[PairName]) -> list[LedgerCopy | SegmentCopy]:
        listing = self.listing

        def read(name: PairName) -> LedgerCopy | SegmentCopy:
            data = listing.data_of(name)
            if isinstance(name, LedgerObjectName):
                return read_copy(listing.location, name, index=listing.indexes[name], data=data)
            return read_segment(listing.location, name, index=listing.segments[name], data=data)

        with ThreadPoolExecutor(min(len(names), listing.location.max_connections)) as executor:
            return list(executor.map(read, names))

    def _whole_since(self, lacking: Collection[PairName]) -> set[PairName]:
        """Ask again for pairs that lack an object; return those that have both now.

        If any is gone, the bucket is listed again: its topic may have been made anew.
        """
        if not lacking:
            return set()
        found = self._find(lacking)
        if any(found.index_of(name) is None for name in lacking):
            self._find(None)
        return {name for name in lacking if found.has_both(name)}

    def _find(self, names: Collection[PairName] | None) -> BucketListing:
        """Look for pairs, by their names or by a listing, and add what is new to the listing.

        Index objects that are not listed any more are noted as deleted. One that is still listed is
        not, even if the store does not return it: then it has lost the object.
        """
        location = self.listing.location
        if names is None or len(names) > _MOST_BY_NAME:
            found = list_again(location)
            gone = self.listing.index_names - found.index_names - self._deleted
            self._deleted |= gone
            for name in gone:
                self._forget(name)
        else:
            found = find_objects(location, names)
        changed = self.listing.names_of_new(found)
        if changed:
            self.listing = self.listing.with_objects(found)
            for name in changed:
                self._forget(name)
        return found

    def _forget(self, name: PairName) -> None:
        """Forget what was read of a pair."""
        self._contents = self._shares = None
        if isinstance(name, SegmentName):
            self._segment_copies.pop(name, None)
        else:
            self._copies.pop(name, None)


def _lacks_object(copy: LedgerCopy | SegmentCopy) -> bool:
    return copy.data is None or isinstance(copy.error, MissingObjectError)


def in_order(copies: Iterable[LedgerCopy]) -> list[LedgerCopy]:
    """Copies by ledger id, then from the newest to the oldest."""
    newest_first = sorted(copies, key=lambda copy: age_rank(copy.name, copy.index), reverse=True)
    return sorted(newest_first, key=lambda copy: copy.name.ledger_id)


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
