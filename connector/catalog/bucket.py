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
from arrow_io.format.object_names import tells_ledger
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


_MOST_BY_NAME: Final = 256
"""More pairs of objects are not asked for one by one: the bucket is listed again."""
_MOST_READS: Final = 10
"""After so many reads of objects that come and go between them, it stays as it was found."""


@dataclass(frozen=True)
class UnfinishedOffload:
    """A data object without an index object: an attempt that never completed.

    A complete copy of the ledger, if there is one, lies under another uuid.

    Attributes:
        name: Names of the attempt's objects; their ledger is not known if they do not tell it.
        data: What the listing said of its data object.
    """

    name: PairName
    data: ObjectInfo


@dataclass(frozen=True)
class BucketContents:
    """What the bucket holds.

    Attributes:
        location: The bucket, prefix or folder.
        copies: What each pair that has an index object has of a ledger, by ledger id, then from
            the newest to the oldest.
        unfinished: Attempts that never completed.
        without_copies: Pairs whose index object does not tell which ledgers it is of.
        foreign: Objects whose names no offloader of Pulsar gives.
    """

    location: Location
    copies: tuple[LedgerCopy, ...]
    unfinished: tuple[UnfinishedOffload, ...] = ()
    pairs_without_copies: tuple[StoredPair, ...] = ()
    foreign: tuple[ObjectInfo, ...] = ()

    @property
    def pairs(self) -> list[StoredPair]:
        """Every pair that has an index object, each once."""
        found = {pair.name: pair for copy in self.copies for pair in copy.pairs}
        return [*found.values(), *self.pairs_without_copies]


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
        known_copies: Copies whose index objects were read before. A copy counts if its objects have
            not changed since, by what the listing says of them.
        checked_listing: `checked_listing` of the bucket as it was listed before.
    """

    def __init__(
        self,
        listing: BucketListing,
        known_copies: Iterable[LedgerCopy] = (),
        checked_listing: BucketListing | None = None,
    ) -> None:
        self._start()
        self.listing = listing
        self._previously_checked = checked_listing
        self._pairs: dict[PairName, StoredPair] = {}
        for pair in (pair for copy in known_copies for pair in copy.pairs):
            index, data = listing.indexes.get(pair.name), listing.data.get(pair.name)
            if index is not None and pair.is_still(index, data):
                self._pairs[pair.name] = pair.as_listed(index, data)

    def _start(self) -> None:
        # Whoever opens all of it asks for copies, too.
        self._lock = threading.RLock()
        self._contents: BucketContents | None = None
        self._deleted: set[PairName] = set()
        self._shares: dict[CopyName, LedgerCopy] | None = None
        self.checked_listing: BucketListing | None = None
        """The listing whose data objects without an index object were asked for theirs."""

    @property
    def opened_copies(self) -> tuple[LedgerCopy, ...]:
        """The copies whose index objects have been read until now; sends no request."""
        pairs = dict(self._pairs)
        found = (pairs[name] for name in self.listing.indexes if name in pairs)
        return tuple(copy for each in found for copy in each.copies)

    @property
    def is_fully_opened(self) -> bool:
        """Whether all index objects have been read; sends no request."""
        return self.listing.indexes.keys() - self._deleted <= self._pairs.keys()

    @property
    def shared_pairs(self) -> list[StoredPair]:
        """The pairs whose names do not tell their ledgers, the newest first; they are all read.

        Raises:
            StorageError: An object cannot be read for a reason that lies in the store.
        """
        with self._lock:
            while unread := set(self.shared_pair_names) - self._deleted - self._pairs.keys():
                self._read(unread)
            return [self._pairs[name] for name in self.shared_pair_names if name in self._pairs]

    @property
    def shared_pair_names(self) -> Sequence[PairName]:
        """The names of pairs with an index object that do not tell their ledgers."""
        return self.listing.by_ledger_id.get(None, ())

    @property
    def names(self) -> frozenset[CopyName]:
        """The names of all copies; some only their index objects say.

        Raises:
            StorageError: An object cannot be read for a reason that lies in the store.
        """
        return frozenset((*filter(tells_ledger, self.listing.indexes), *self._all_shares()))

    @property
    def ledger_ids(self) -> set[int]:
        """The ledgers of which there is a copy, as far as that is known without a request."""
        pairs = tuple(self._pairs.values())
        shares = (copy.name.ledger_id for each in pairs for copy in each.copies)
        names = filter(tells_ledger, self.listing.indexes)
        return {*(name.ledger_id for name in names), *shares}

    @property
    def copy_count(self) -> int:
        """How many index objects name their ledger, but for those that are known to be deleted."""
        names = self.listing.indexes.keys() - self._deleted
        return sum(map(tells_ledger, names))

    @property
    def unfinished(self) -> tuple[UnfinishedOffload, ...]:
        """Attempts that never completed, or whose index object is known to be deleted."""
        complete = self.listing.indexes.keys() - self._deleted
        data = self.listing.data.items()
        return tuple(UnfinishedOffload(*each) for each in data if each[0] not in complete)

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
            if self.checked_listing is None:
                self._find_missing_indexes()
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
                        tuple(each for each in self.shared_pairs if not each.copies),
                        self.listing.foreign,
                    )
            message = "the bucket changed faster than its index objects could be read: try again"
            raise StorageError(message)

    def _find_missing_indexes(self) -> None:
        """Ask for the index objects that data objects lack.

        The pages of a listing are of different times, so it may have an attempt whole, and lack the
        index object of an earlier one. Without new index objects there is no such attempt.
        """
        listing, before = self.listing, self._previously_checked
        incomplete = listing.data.keys() - listing.indexes.keys()
        if before is not None and before.has_indexes(listing):
            incomplete = {
                name for name in incomplete if before.data.get(name) != listing.data[name]
            }
        self.look_again(incomplete)
        self.checked_listing, self._previously_checked = self.listing, None

    def copies_of(self, ledger_ids: Iterable[int]) -> list[LedgerCopy]:
        """All copies of some ledgers; order and errors are as in `copies`."""
        return self.copies(self.names_of(ledger_ids))

    def names_of(self, ledger_ids: Iterable[int]) -> list[CopyName]:
        """The names of all copies of some ledgers.

        Raises:
            StorageError: An object cannot be read for a reason that lies in the store.
        """
        ids = set(ledger_ids)
        shares = [name for name in self._all_shares() if name.ledger_id in ids]
        return [*self._names_with_ledger_id(ids), *shares]

    def _names_with_ledger_id(self, ledger_ids: Iterable[int]) -> list[CopyName]:
        """Return the names of pairs that tell their ledger, which are those of its copies too."""
        named = self.listing.by_ledger_id
        names = (name for each in ledger_ids for name in named.get(each, ()))
        return list(filter(tells_ledger, names))

    def _all_shares(self) -> Mapping[CopyName, LedgerCopy]:
        """Return what pairs whose names do not tell their ledgers have of each, newest first."""
        if not self.shared_pair_names:
            return {}
        with self._lock:
            if self._shares is None:
                pairs = self.shared_pairs
                self._shares = {copy.name: copy for each in pairs for copy in each.copies}
            return self._shares

    def copies(self, names: Iterable[CopyName]) -> list[LedgerCopy]:
        """Read index objects, several at once, but for those that were read before.

        Args:
            names: Names of pairs that the listing has with an index object, and of shares.

        Returns:
            The copies, by ledger id, then from the newest to the oldest; none of those whose index
            object was deleted after the bucket was listed.

        Raises:
            StorageError: An index object cannot be read for a reason that lies in the store.
        """
        requested: set[PairName] = set(names)
        listed_names = (requested & self.listing.indexes.keys()) - self._deleted
        shares = [copy for name, copy in self._all_shares().items() if name in requested]
        # A thread that asks for the same at the same time waits, and finds it read.
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

        Objects come and go one after the other, so half of a pair may have been listed, or read.
        What lacks an object is asked for again, and read again if it has both by then.
        """
        for _ in range(_MOST_READS):
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
            index, data = listing.indexes[name], listing.data.get(name)
            return kind_of(name).read(listing.location, name, index=index, data=data)

        with ThreadPoolExecutor(min(len(names), listing.location.max_connections)) as executor:
            return list(executor.map(read, names))

    def _recheck_incomplete(self, incomplete: Collection[PairName]) -> set[PairName]:
        """Ask again for pairs that lack an object; return those that have both now.

        If any is gone, the bucket is listed again: its topic may have been made anew.
        """
        if not incomplete:
            return set()
        found = self._find(incomplete)
        if any(name not in found.indexes for name in incomplete):
            self._find(None)
        return {name for name in incomplete if found.has_both(name)}

    def _find(self, names: Collection[PairName] | None) -> BucketListing:
        """Look for pairs, by their names or by a listing, and add what is new to the listing.

        Index objects that are not listed any more are noted as deleted. One that is still listed is
        not, even if the store does not return it: then it has lost the object.
        """
        location = self.listing.location
        if names is None or len(names) > _MOST_BY_NAME:
            found = list_again(location)
            gone = self.listing.indexes.keys() - found.indexes.keys() - self._deleted
            self._deleted |= gone
            for name in gone:
                self._forget(name)
        else:
            found = find_objects(location, names)
        changed = self.listing.new_names(found)
        if changed:
            self.listing = self.listing.with_objects(found)
            for name in changed:
                self._forget(name)
        return found

    def _forget(self, name: PairName) -> None:
        """Forget what was read of a pair."""
        self._contents = self._shares = None
        self._pairs.pop(name, None)


def _lacks_object(pair: StoredPair) -> bool:
    return pair.data is None or isinstance(pair.error, MissingObjectError)


def sort_copies(copies: Iterable[LedgerCopy]) -> list[LedgerCopy]:
    """Copies by ledger id, then from the newest to the oldest."""
    newest_first = sorted(copies, key=lambda copy: age_rank(copy.name, copy.index), reverse=True)
    return sorted(newest_first, key=lambda copy: copy.name.ledger_id)


def read_bucket(location: Location, *, previous: BucketContents | None = None) -> BucketContents:
    """List the bucket and read the index object of every ledger in it.

    Args:
        location: The bucket, prefix or folder.
        previous: What an earlier call gave; index objects that have not changed since, by what the
            listing says of them, are not read again.

    Raises:
        MissingObjectError: There is no such folder, or no object below the prefix.
        StorageError: The bucket cannot be listed, or an index object cannot be read for a reason
            that lies in the store.
    """
    return Bucket(list_bucket(location), previous.copies if previous else ()).open_all()
