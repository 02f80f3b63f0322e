"""Ledgers of a topic that were written to another bucket than the one that is read.

A cluster's bucket may change, and each ledger keeps the one that it was written to: Pulsar reads it
from the bucket recorded with the ledger (OffloadDriverMetadata), with its present credentials.
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
    """The buckets that metadata names, each listed when a ledger is first looked for in it.

    Args:
        location: The bucket that is read.
        urls: Where a bucket is, by the name that the metadata has for it. One that is not named
            here is looked for in the same store, by its name and with the same storage options; a
            local folder has no such neighbours.
        known_buckets: Some of them.
        earlier: The buckets as they were listed before: index objects that were read then are not
            read again.
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
        """The copies whose index objects have been read until now, by the name of the bucket."""
        found = {name: each for name, each in self._buckets.items() if isinstance(each, Bucket)}
        return self._known_copies | {name: bucket.opened_copies for name, bucket in found.items()}

    @property
    def contents(self) -> dict[str, BucketContents]:
        """All that lies in the buckets that were listed, by the metadata's names for them.

        Raises:
            StorageError: An index object cannot be read for a reason that lies in the store.
        """
        found = self._buckets.items()
        return {name: bucket.open_all() for name, bucket in found if isinstance(bucket, Bucket)}

    def prefetch(self, metadata: TopicMetadata, local_copies: Iterable[LedgerCopy]) -> None:
        """Read together the index objects that `find` would read one by one.

        `find` says what cannot be read.

        Args:
            metadata: A topic.
            local_copies: Its copies in the bucket that is read, which are not looked for.
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
        """List the buckets in which ledgers may be once more.

        What cannot be listed has nothing new. One that could not be listed before may be by now.
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
        """The copy of an offloaded ledger of a topic in the bucket that the metadata names.

        If it names none, and the admin API never does, the copy may be in any that the user named.

        Args:
            topic: The topic or partition.
            info: What the metadata says of the ledger.

        Returns:
            The copy; what went wrong, if a bucket cannot be read; None if there is no such bucket
            or no such copy in it.
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
        """Names of the buckets in which a ledger may be."""
        if info.offload is None:
            return ()
        return self._urls if info.offload.bucket is None else (info.offload.bucket,)

    def _copies(self, bucket: str, ledger_ids: Collection[int]) -> list[LedgerCopy]:
        found = self._open_bucket(bucket)
        if isinstance(found, PulsarOffloadError):
            raise found
        return [] if found is None else found.copies_of(ledger_ids)

    def _open_bucket(self, bucket: str) -> Bucket | PulsarOffloadError | None:
        # Topics are looked up side by side, and a bucket is listed once for all of them.
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
