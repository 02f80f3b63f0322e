"""Ledgers of a topic that are stored in another bucket than the catalog's.

A cluster's bucket may change, and ledgers stay in the bucket that they were written to. Pulsar
reads each ledger from the bucket recorded with it (OffloadDriverMetadata), with its current
credentials.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from arrow_io.errors import PulsarOffloadError
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


class OtherBuckets:
    """The buckets that metadata names. Each is listed when a ledger is first looked up in it.

    Args:
        location: The bucket of the catalog.
        urls: URLs of buckets, by their names in the metadata. Other buckets are looked up by their
            name in the same store, with the same storage options; local folders have no other
            buckets.
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
        ledger_ids: dict[str, set[int]] = defaultdict(set)
        for info in metadata.ledgers:
            offload = info.offload
            if offload is None or offload.complete is False:
                continue
            named_attempts = {(info.ledger_id, uuid) for uuid in offload.uuids or (None,)}
            if named_attempts.isdisjoint(attempts):
                for bucket in self._candidate_buckets(info):
                    ledger_ids[bucket].add(info.ledger_id)
        for bucket, ids in ledger_ids.items():
            with suppress(PulsarOffloadError):
                self._copies(bucket, ids)

    def look_again(self, ledgers: Iterable[LedgerInfo]) -> None:
        """List again the buckets in which ledgers may be stored.

        Errors are ignored: a bucket that cannot be listed has nothing new. One that could not be
        listed before is tried anew.
        """
        for name in {name for info in ledgers for name in self._candidate_buckets(info)}:
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
        named. If a bucket cannot be read, return the error.
        """
        uuids = set() if info.offload is None else set(info.offload.uuids)
        failure = None
        for bucket in self._candidate_buckets(info):
            try:
                copies = [
                    copy.with_topic(topic)
                    for copy in self._copies(bucket, (info.ledger_id,))
                    if copy.topic in (None, topic) and (not uuids or copy.name.uuid in uuids)
                ]
            except PulsarOffloadError as error:
                failure = error
                continue
            copies = join_shares(copies, info)
            if copies:
                return next((copy for copy in copies if copy.ledger), copies[0])
        return failure

    def _candidate_buckets(self, info: LedgerInfo) -> Collection[str]:
        if info.offload is None:
            return ()
        return self._urls if info.offload.bucket is None else (info.offload.bucket,)

    def _copies(self, bucket: str, ledger_ids: Collection[int]) -> list[LedgerCopy]:
        found = self._open_bucket(bucket)
        if isinstance(found, PulsarOffloadError):
            raise found
        return [] if found is None else found.copies_of(ledger_ids)

    def _open_bucket(self, bucket: str) -> Bucket | PulsarOffloadError | None:
        # Topics are looked up concurrently, and a bucket is listed once for all of them.
        with self._lock:
            if bucket not in self._buckets:
                url = self._urls.get(bucket) or self._neighbour(bucket)
                if url is None:
                    return None
                try:
                    location = replace(self._location, url=url)
                    self._buckets[bucket] = Bucket(
                        list_bucket(location), self._known_copies.get(bucket, ())
                    )
                except PulsarOffloadError as error:
                    self._buckets[bucket] = error
            return self._buckets[bucket]

    def _neighbour(self, bucket: str) -> str | None:
        scheme, _, rest = self._location.url.partition("://")
        if scheme.lower() not in OBJECT_STORE_SCHEMES or rest.partition("/")[0] == bucket:
            return None
        return f"{scheme}://{bucket}"
