"""Ledgers of a topic that are stored in another bucket than the catalog's.

A cluster's bucket may change, and ledgers stay in the bucket that they were written to. Pulsar
reads each ledger from the bucket recorded with it (OffloadDriverMetadata), with its current
credentials.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from arrow_io.core.option_names import option_name
from arrow_io.errors import MissingObjectError, PulsarOffloadError
from arrow_io.storage.store_kinds import OBJECT_STORE_SCHEMES
from connector.catalog.bucket import Bucket
from connector.catalog.bucket_listing import list_bucket
from connector.catalog.kinds.registry import join_shares

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from arrow_io.storage.location import Location
    from connector.catalog.bucket import BucketContents
    from connector.catalog.kinds.ledger_copy import LedgerCopy
    from connector.catalog.metadata.topic_metadata import LedgerInfo, TopicMetadata
    from connector.inputs.topic_names import TopicName


_RELATIVE_PATH: Final = re.compile(r"(?!\.\.?(/|$))[^/:\\]+(?:/(?!\.\.?(/|$))[^/:\\]+)*")
"""A relative path without empty parts and without a way up."""


_FILE_SCHEME: Final = re.compile(r"file:/+")


class _Place(NamedTuple):
    """The place of objects, as metadata names it."""

    name: str
    """Name of a bucket, or the base path."""
    is_base_path: bool = False


class OtherBuckets:
    """The buckets that metadata names. Each is listed when a ledger is first looked up in it.

    Args:
        location: The bucket of the catalog.
        urls: URLs of buckets, by their names in the metadata. Other buckets are looked up by their
            name in the same store, with the same storage options; local folders have no other
            buckets. The filesystem driver records a base path instead of a bucket; a relative one
            is looked up below the catalog's location.
        known_buckets: Buckets that are open already.
        earlier: The buckets as they were listed before, to reuse the index objects read then.
    """

    def __init__(
        self,
        location: Location,
        urls: Mapping[str, str],
        *,
        known_buckets: Mapping[str, Bucket],
        earlier: OtherBuckets | None = None,
    ) -> None:
        self._location = location
        self._urls = dict(urls)
        self._buckets: dict[str, Bucket | PulsarOffloadError] = dict(known_buckets)
        self._known_copies = earlier.opened_copies if earlier else {}
        self._lock = threading.Lock()

    @property
    def opened_copies(self) -> dict[str, tuple[LedgerCopy, ...]]:
        """The copies whose index objects have been read so far, by bucket name."""
        found = {name: each for name, each in self._buckets.items() if isinstance(each, Bucket)}
        return self._known_copies | {name: bucket.opened_copies for name, bucket in found.items()}

    @property
    def contents(self) -> dict[str, BucketContents]:
        """The contents of all listed buckets, by their names in the metadata.

        Raises:
            StorageError: The store refused or failed to return an index object.
        """
        found = self._buckets.items()
        return {name: bucket.open_all() for name, bucket in found if isinstance(bucket, Bucket)}

    def prefetch(self, metadata: TopicMetadata, local_copies: Iterable[LedgerCopy]) -> None:
        """Read together the index objects that `find` would read one by one.

        Copies in the catalog's bucket are not looked up. Errors are ignored: `find` reports them.
        """
        attempts = {
            (copy.name.ledger_id, uuid) for copy in local_copies for uuid in (None, *copy.uuids)
        }
        ledger_ids: dict[_Place, set[int]] = defaultdict(set)
        for info in metadata.ledgers:
            offload = info.offload
            if offload is None or offload.complete is False:
                continue
            named_attempts = {(info.ledger_id, uuid) for uuid in offload.uuids or (None,)}
            if named_attempts.isdisjoint(attempts):
                for place in self._candidates(info):
                    ledger_ids[place].add(info.ledger_id)
        for place, ids in ledger_ids.items():
            with suppress(PulsarOffloadError):
                self._copies(place, ids)

    def look_again(self, ledgers: Iterable[LedgerInfo]) -> None:
        """List again the buckets in which ledgers may be stored.

        Errors are ignored: a bucket that cannot be listed has nothing new. One that could not be
        listed before is tried anew.
        """
        for name in {place.name for info in ledgers for place in self._candidates(info)}:
            bucket = self._buckets.get(name)
            if isinstance(bucket, Bucket):
                with suppress(PulsarOffloadError):
                    bucket.look_again(None)
            elif bucket is not None:
                with self._lock:
                    self._buckets.pop(name, None)

    def find(self, topic: TopicName, info: LedgerInfo) -> LedgerCopy | PulsarOffloadError | None:
        """Return the copy of an offloaded ledger in the bucket that the metadata names, if any.

        If the metadata names none, as the admin API never does, search all buckets that the user
        named. If a bucket cannot be read or its URL is unknown, return the error.
        """
        uuids = set() if info.offload is None else set(info.offload.uuids)
        failure = None
        for place in self._candidates(info):
            try:
                copies = [
                    copy.with_topic(topic)
                    for copy in self._copies(place, (info.ledger_id,))
                    if copy.topic in (None, topic) and (not uuids or copy.name.uuid in uuids)
                ]
            except PulsarOffloadError as error:
                failure = error
                continue
            copies = join_shares(copies, info)
            if copies:
                return next((copy for copy in copies if copy.ledger), copies[0])
        return failure

    def _candidates(self, info: LedgerInfo) -> Collection[_Place]:
        if info.offload is None:
            return ()
        if info.offload.bucket is not None:
            return (_Place(info.offload.bucket),)
        if info.offload.base_path is not None:
            return (_Place(info.offload.base_path, is_base_path=True),)
        return [_Place(name) for name in self._urls]

    def _copies(self, place: _Place, ledger_ids: Collection[int]) -> list[LedgerCopy]:
        found = self._open_bucket(place)
        if isinstance(found, PulsarOffloadError):
            raise found
        return [] if found is None else found.copies_of(ledger_ids)

    def _open_bucket(self, place: _Place) -> Bucket | PulsarOffloadError | None:
        # Topics are looked up concurrently, and a bucket is listed once for all of them.
        bucket = place.name
        with self._lock:
            if bucket not in self._buckets:
                location = self._locate(place)
                if location is None:
                    return self._unknown_base_path(bucket) if place.is_base_path else None
                try:
                    self._buckets[bucket] = Bucket(
                        list_bucket(location), self._known_copies.get(bucket, ())
                    )
                except PulsarOffloadError as error:
                    self._buckets[bucket] = error
            return self._buckets[bucket]

    def _locate(self, place: _Place) -> Location | None:
        url = self._urls.get(place.name)
        if url is None and place.is_base_path:
            is_relative = _RELATIVE_PATH.fullmatch(place.name) is not None
            return self._location.child(place.name) if is_relative else None
        url = url or self._neighbour(place.name)
        return None if url is None else replace(self._location, url=url)

    def _unknown_base_path(self, path: str) -> MissingObjectError | None:
        """Return the error for a base path that may be elsewhere; None if it is the location's."""
        if _local_path(path) == _local_path(self._location.url):
            return None
        message = (
            f"it was written below the base path {path!r}: if that is not {self._location}, give"
            f" its URL with {option_name('buckets')}"
        )
        return MissingObjectError(message)

    def _neighbour(self, bucket: str) -> str | None:
        scheme, _, rest = self._location.url.partition("://")
        if scheme.lower() not in OBJECT_STORE_SCHEMES or rest.partition("/")[0] == bucket:
            return None
        return f"{scheme}://{bucket}"


def _local_path(url: str) -> str:
    """Return the path of a local URL in one form; another URL without a slash at its end."""
    return _FILE_SCHEME.sub("/", url).rstrip("/")
