"""The ledgers that a bucket holds, read from the bucket alone.

A listing returns names. The contents of a ledger are in its index object, which is read when the
ledger is first needed.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from arrow_io.core.threads import ContextThreadPool
from arrow_io.errors import MissingObjectError, StorageError
from arrow_io.format.object_names import has_ledger_id
from connector.catalog.bucket_listing import find_objects, list_again, list_bucket
from connector.catalog.kinds.ledger_copy import age_rank
from connector.catalog.kinds.registry import kind_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from arrow_io.format.object_names import CopyName, PairName
    from arrow_io.storage.location import Location
    from arrow_io.storage.object_store import ObjectInfo
    from connector.catalog.bucket_listing import BucketListing
    from connector.catalog.kinds.ledger_copy import LedgerCopy, StoredPair


_MAX_LOOKUPS_BY_NAME: Final = 256
"""Maximum number of pairs that are looked up by name; for more, the bucket is listed again."""
_MAX_READS: Final = 10
"""How often objects that appear or vanish between requests are read before giving up."""


@dataclass(frozen=True)
class UnfinishedOffload:
    """A data object without an index object: an offload attempt that never completed.

    A complete copy of the same ledger has another uuid. If the name contains no ledger id, the
    ledger is unknown.
    """

    name: PairName
    data: ObjectInfo
    checksums: tuple[ObjectInfo, ...] = ()

    @property
    def objects(self) -> tuple[ObjectInfo, ...]:
        """All of its objects; the data object, which names the others, comes last."""
        return (*self.checksums, self.data)


@dataclass(frozen=True)
class BucketContents:
    """Everything that a bucket holds.

    Attributes:
        copies: The copies of ledgers in all pairs, ascending by ledger id, then newest first.
        unfinished: Offload attempts that never completed.
        pairs_without_copies: Pairs whose index object does not say which ledgers they hold.
        foreign: Objects whose names no offloader of Pulsar writes.
    """

    location: Location
    copies: tuple[LedgerCopy, ...]
    unfinished: tuple[UnfinishedOffload, ...] = ()
    pairs_without_copies: tuple[StoredPair, ...] = ()
    foreign: tuple[ObjectInfo, ...] = ()

    @property
    def pairs(self) -> list[StoredPair]:
        """All pairs that have an index object."""
        found = {pair.name: pair for copy in self.copies for pair in copy.pairs}
        return [*found.values(), *self.pairs_without_copies]


@dataclass(frozen=True)
class Opening:
    """The requests that opening a bucket and selecting topics of it take, for a forecast of costs.

    Attributes:
        object_count: The number of objects that are listed.
        folder_count: The number of folders that are listed besides the location.
        copies: The copies whose index objects are read.
        unfinished_count: The number of unfinished offloads whose topic is requested.
    """

    object_count: int
    folder_count: int
    copies: tuple[LedgerCopy, ...]
    unfinished_count: int


class Bucket:
    """A bucket as it was listed. Each index object is read once, when it is first needed.

    Safe to use from several threads.

    A pair whose name contains no ledger id may be shared by several ledgers: only its index object
    says which. All such pairs are read before ledgers are looked up by id.

    Args:
        listing: The objects of the bucket.
        known_copies: Copies whose index objects were read before. A copy is used if the listing
            shows that its objects have not changed.
        previously_checked: An earlier listing whose missing index objects were looked up, if any.
    """

    def __init__(
        self,
        listing: BucketListing,
        known_copies: Iterable[LedgerCopy] = (),
        previously_checked: BucketListing | None = None,
    ) -> None:
        self._reset()
        self.listing = listing
        self._previously_checked = previously_checked
        self._pairs: dict[PairName, StoredPair] = {}
        for pair in (pair for copy in known_copies for pair in copy.pairs):
            index, data = listing.indexes.get(pair.name), listing.data.get(pair.name)
            if index is not None and pair.is_unchanged(index, data):
                self._pairs[pair.name] = pair.as_listed(index, data)

    def _reset(self) -> None:
        # Reentrant, because `open_all` calls `copies`.
        self._lock = threading.RLock()
        self._contents: BucketContents | None = None
        self._deleted: set[PairName] = set()
        self._shares: dict[CopyName, LedgerCopy] | None = None
        self.checked_listing: BucketListing | None = None
        """The last listing whose missing index objects were looked up."""

    @property
    def opened_copies(self) -> tuple[LedgerCopy, ...]:
        """The copies whose index objects have been read so far; sends no request."""
        pairs = dict(self._pairs)
        found = (pairs[name] for name in self.listing.indexes if name in pairs)
        return tuple(copy for each in found for copy in each.copies)

    @property
    def is_fully_opened(self) -> bool:
        """Whether all index objects have been read; sends no request."""
        return self.listing.indexes.keys() - self._deleted <= self._pairs.keys()

    @property
    def shared_pairs(self) -> list[StoredPair]:
        """The pairs whose names contain no ledger id, newest first; reads all of them.

        Raises:
            StorageError: The store refused or failed to return an object.
        """
        with self._lock:
            while unread := set(self.shared_pair_names) - self._deleted - self._pairs.keys():
                self._read(unread)
            return [self._pairs[name] for name in self.shared_pair_names if name in self._pairs]

    @property
    def shared_pair_names(self) -> Sequence[PairName]:
        """The names with an index object that contain no ledger id."""
        return self.listing.by_ledger_id.get(None, ())

    @property
    def names(self) -> frozenset[CopyName]:
        """The names of all copies, including those that only index objects contain.

        Raises:
            StorageError: The store refused or failed to return an object.
        """
        return frozenset((*filter(has_ledger_id, self.listing.indexes), *self._all_shares()))

    @property
    def ledger_ids(self) -> set[int]:
        """The ledgers of which there is a copy, as far as known without a request."""
        pairs = tuple(self._pairs.values())
        shares = (copy.name.ledger_id for each in pairs for copy in each.copies)
        names = filter(has_ledger_id, self.listing.indexes)
        return {*(name.ledger_id for name in names), *shares}

    @property
    def copy_count(self) -> int:
        """The number of names with an index object and a ledger id, without deleted ones."""
        names = self.listing.indexes.keys() - self._deleted
        return sum(map(has_ledger_id, names))

    @property
    def unfinished(self) -> tuple[UnfinishedOffload, ...]:
        """Attempts that never completed, or whose index object was found to be deleted."""
        complete = self.listing.indexes.keys() - self._deleted
        return tuple(
            UnfinishedOffload(name, info, self.listing.checksums_of(name))
            for name, info in self.listing.data.items()
            if name not in complete
        )

    def look_again(self, names: Collection[PairName] | None) -> None:
        """Look once more for pairs that were not listed with both objects, or are unfinished.

        If `names` is None, because the names are unknown, list the bucket.

        Raises:
            StorageError: The store refused, or all attempts failed.
        """
        with self._lock:
            if names is not None:
                listing, unfinished = self.listing, self._unfinished_pairs
                names = {each for each in names if not listing.has_both(each) or each in unfinished}
                names -= self._deleted
            self._find(names)

    def open_all(self) -> BucketContents:
        """Read every index object that was not read so far and return the bucket's contents.

        A data object without an index object may have got one since the bucket was listed. Each is
        looked up once, until a later listing shows something new. If objects were deleted since,
        the bucket is listed again: a topic may have been created anew.

        Raises:
            StorageError: The store refused or failed to return an index object, or the bucket kept
                changing.
        """
        with self._lock:
            if self.checked_listing is None:
                self._find_missing_indexes()
            for _ in range(_MAX_READS):
                if self._contents is not None:
                    return self._contents
                names = self.names
                copies = tuple(self.copies(names))
                if self.names == names:
                    self._contents = BucketContents(
                        self.listing.location,
                        copies,
                        self.unfinished,
                        tuple(each for each in self.shared_pairs if not each.copies),
                        self.listing.foreign,
                    )
            message = "the bucket changed faster than its index objects could be read: try again"
            raise StorageError(message)

    def _find_missing_indexes(self) -> None:
        """Look for the index objects that data objects lack.

        A listing's pages are read at different times, so a listing may lack the index object of an
        attempt but have both objects of a later one. This cannot happen if no index object is new.
        """
        listing, previous = self.listing, self._previously_checked
        incomplete = listing.data.keys() - listing.indexes.keys()
        if previous is not None and previous.has_indexes(listing):
            incomplete = {
                name for name in incomplete if previous.data.get(name) != listing.data[name]
            }
        self.look_again(incomplete)
        self.checked_listing, self._previously_checked = self.listing, None

    def copies_of(self, ledger_ids: Iterable[int]) -> list[LedgerCopy]:
        """Return all copies of some ledgers; see `copies` for order and errors."""
        return self.copies(self.names_of(ledger_ids))

    def names_of(self, ledger_ids: Iterable[int]) -> list[CopyName]:
        """Return the names of all copies of some ledgers.

        Raises:
            StorageError: The store refused or failed to return an object.
        """
        ids = set(ledger_ids)
        shares = [name for name in self._all_shares() if name.ledger_id in ids]
        return [*self._names_with_ledger_id(ids), *shares]

    def _names_with_ledger_id(self, ledger_ids: Iterable[int]) -> list[CopyName]:
        by_ledger_id = self.listing.by_ledger_id
        names = (name for each in ledger_ids for name in by_ledger_id.get(each, ()))
        return list(filter(has_ledger_id, names))

    def _all_shares(self) -> Mapping[CopyName, LedgerCopy]:
        """Return the shares in all pairs whose names contain no ledger id, newest first."""
        if not self.shared_pair_names:
            return {}
        with self._lock:
            if self._shares is None:
                pairs = self.shared_pairs
                self._shares = {copy.name: copy for each in pairs for copy in each.copies}
            return self._shares

    def copies(self, names: Iterable[CopyName]) -> list[LedgerCopy]:
        """Return copies, ascending by ledger id, then newest first.

        Reads the index objects that were not read before, several at once. Copies whose index
        object was deleted after the listing are left out. The names are those of listed index
        objects, and of shares.

        Raises:
            StorageError: The store refused or failed to return an index object.
        """
        requested: set[PairName] = set(names)
        listed_names = (requested & self.listing.indexes.keys()) - self._deleted
        shares = [copy for name, copy in self._all_shares().items() if name in requested]
        # Of threads that need the same objects, the first reads and the others wait.
        with self._lock:
            unread = listed_names - self._pairs.keys()
            if unread:
                self._read(unread)
            listed_names -= self._deleted
            ordered = sorted(listed_names, key=self.listing.positions.__getitem__)
            found = [copy for name in ordered for copy in self._pairs[name].copies]
        return sort_copies((*found, *shares)) if shares else found

    def _read(self, names: Collection[PairName]) -> None:
        """Read index objects, several at once.

        Objects appear and vanish one at a time, so a listing or a read may find only half of a
        pair. Such a pair is looked up again, and read again if it has both objects by then.
        """
        for _ in range(_MAX_READS):
            if not names:
                return
            new_pairs = self._read_once(names)
            self._pairs.update((each.name, each) for each in new_pairs)
            names = self._recheck_incomplete(
                {each.name for each in new_pairs if _lacks_object(each)}
            )

    def _read_once(self, names: Collection[PairName]) -> list[StoredPair]:
        listing = self.listing

        def read(name: PairName) -> StoredPair:
            return kind_of(name).read(
                listing.location,
                name,
                index=listing.indexes[name],
                data=listing.data.get(name),
                checksums=listing.checksums_of(name),
            )

        with ContextThreadPool(min(len(names), listing.location.max_index_reads)) as executor:
            return list(executor.map(read, names))

    def _recheck_incomplete(self, incomplete: Collection[PairName]) -> set[PairName]:
        """Look again for pairs that lack an object; return those that now have both.

        If an index object is gone, list the bucket again: its topic may have been created anew.
        """
        if not incomplete:
            return set()
        found = self._find(incomplete)
        if any(name not in found.indexes for name in incomplete):
            self._find(None)
        return {name for name in incomplete if found.has_both(name)}

    def _find(self, names: Collection[PairName] | None) -> BucketListing:
        """Look for pairs, by their names or by a listing, and add new ones to the listing.

        Index objects that are not listed any more are recorded as deleted. One that is listed but
        cannot be read is not: the store has lost it.
        """
        location = self.listing.location
        if names is None or len(names) > _MAX_LOOKUPS_BY_NAME:
            found = list_again(location)
            missing_names = self.listing.indexes.keys() - found.indexes.keys() - self._deleted
            if found.unsearched_count:
                # MapFiles may be in the folders that were not searched.
                unseen = missing_names.union(names or ()) - found.indexes.keys()
                map_files = {name for name in unseen if name.managed_ledger is not None}
                found = found.with_objects(find_objects(location, map_files))
                missing_names -= found.indexes.keys()
            self._deleted |= missing_names
            for name in missing_names:
                self._forget(name)
        else:
            found = find_objects(location, names)
        new_names = self.listing.new_names(found)
        changed_names = self.listing.changed_names(found, self._unfinished_pairs)
        new_names |= changed_names
        if new_names:
            self.listing = self.listing.without(changed_names).with_objects(found)
            for name in new_names:
                self._forget(name)
        return found

    @property
    def _unfinished_pairs(self) -> set[PairName]:
        """The pairs that were read while their writer may have been at work."""
        pairs = self._pairs.items()
        return {name for name, pair in pairs if any(each.is_unfinished for each in pair.copies)}

    def _forget(self, name: PairName) -> None:
        self._contents = self._shares = None
        self._pairs.pop(name, None)


def _lacks_object(pair: StoredPair) -> bool:
    return pair.data is None or isinstance(pair.error, MissingObjectError)


def sort_copies(copies: Iterable[LedgerCopy]) -> list[LedgerCopy]:
    """Return copies ascending by ledger id, then newest first."""
    newest_first = sorted(copies, key=lambda copy: age_rank(copy.name, copy.index), reverse=True)
    return sorted(newest_first, key=lambda copy: copy.name.ledger_id)


def read_bucket(location: Location, *, previous: BucketContents | None = None) -> BucketContents:
    """List the bucket and read the index object of every ledger in it.

    Index objects that `previous` contains, and that have not changed since, are not read again.

    Raises:
        MissingObjectError: There is no such folder, or no object below the prefix.
        StorageError: The bucket cannot be listed, or the store refused or failed to return an index
            object.
    """
    return Bucket(list_bucket(location), previous.copies if previous else ()).open_all()
