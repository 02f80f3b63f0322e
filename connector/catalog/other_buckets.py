"""Ledgers of a topic that were written to another bucket than the one that is read.

A cluster's bucket may change, and each ledger keeps the one that it was written to: Pulsar reads it
from the bucket recorded with the ledger (OffloadDriverMetadata), with its present credentials.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from arrow_io.errors import PulsarOffloadError
from arrow_io.storage.store_kinds import OBJECT_STORE_SCHEMES
from connector.catalog.bucket import BucketContents, LedgerCopy, read_bucket

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arrow_io.storage.location import Location
    from connector.catalog.metadata.topic_metadata import LedgerInfo
    from connector.topic_name import TopicName


class OtherBuckets:
    """The buckets that metadata names, each listed when a ledger is first looked for in it.

    Args:
        location: The bucket that is read.
        urls: Where a bucket is, by the name that the metadata has for it. One that is not named
            here is looked for in the same store, by its name and with the same storage options; a
            local folder has no such neighbours.
        known: What lies in some of them.
    """

    def __init__(
        self,
        location: Location,
        urls: Mapping[str, str],
        *,
        known: Mapping[str, BucketContents],
    ) -> None:
        self._location = location
        self._urls = dict(urls)
        self._found: dict[str, BucketContents | PulsarOffloadError] = dict(known)
        self._by_ledger: dict[str, dict[int, list[LedgerCopy]]] = {}
        self._lock = threading.Lock()

    @property
    def contents(self) -> dict[str, BucketContents]:
        """What lies in the buckets that were listed, by the metadata's name for them."""
        return {
            name: found for name, found in self._found.items() if isinstance(found, BucketContents)
        }

    def find(self, topic: TopicName, info: LedgerInfo) -> LedgerCopy | PulsarOffloadError | None:
        """The copy of an offloaded ledger of a topic in the bucket that the metadata names.

        Where it names none, as the admin API does, in any of those that the user named.

        Returns:
            The copy; what went wrong, if a bucket cannot be read; None if there is no such bucket
            or no such copy in it.
        """
        offload = info.offload
        if offload is None:
            return None
        failure = None
        for bucket in self._urls if offload.bucket is None else (offload.bucket,):
            contents = self._contents(bucket)
            if isinstance(contents, PulsarOffloadError):
                failure = contents
            elif contents is not None:
                copies = [
                    copy
                    for copy in self._copies(bucket, contents).get(info.ledger_id, ())
                    if copy.topic in (None, topic) and offload.uuid in (None, copy.name.uuid)
                ]
                if copies:
                    return next((copy for copy in copies if copy.ledger), copies[0])
        return failure

    def _copies(self, bucket: str, contents: BucketContents) -> dict[int, list[LedgerCopy]]:
        """The copies in a bucket by ledger id."""
        known = self._by_ledger.get(bucket)
        if known is None:
            known = defaultdict(list)
            for copy in contents.copies:
                known[copy.name.ledger_id].append(copy)
            self._by_ledger[bucket] = known
        return known

    def _contents(self, bucket: str) -> BucketContents | PulsarOffloadError | None:
        # Topics are looked up side by side, and a bucket is listed once for all of them.
        with self._lock:
            if bucket not in self._found:
                url = self._urls.get(bucket) or self._neighbour(bucket)
                if url is None:
                    return None
                try:
                    self._found[bucket] = read_bucket(replace(self._location, url=url))
                except PulsarOffloadError as error:
                    self._found[bucket] = error
            return self._found[bucket]

    def _neighbour(self, bucket: str) -> str | None:
        scheme, _, rest = self._location.url.partition("://")
        if scheme.lower() not in OBJECT_STORE_SCHEMES or rest.partition("/")[0] == bucket:
            return None
        return f"{scheme}://{bucket}"
