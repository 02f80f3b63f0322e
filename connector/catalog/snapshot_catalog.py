"""A catalog opened from a catalog snapshot, which parses each topic on first use."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from connector.catalog.bucket import Bucket
from connector.catalog.bucket_listing import list_bucket
from connector.catalog.catalog import Catalog
from connector.catalog.catalog_display import counts_repr
from connector.catalog.snapshot.snapshot_file import SnapshotBucket, SnapshotSource

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from arrow_io.errors import PulsarOffloadError
    from connector.catalog.catalog_options import CatalogOptions
    from connector.catalog.snapshot.snapshot_file import SnapshotFile
    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.inputs.topic_names import TopicName


class SnapshotCatalog(Catalog):
    """The topics of a bucket as they were when the catalog was saved.

    Any method that reads the snapshot raises `CorruptSnapshotError` if it finds a malformed value.
    """

    def __init__(self, options: CatalogOptions, file: SnapshotFile) -> None:
        self._file = file
        super().__init__(
            options,
            SnapshotBucket(file, None),
            SnapshotSource(file) if file.has_metadata else None,
            listed_at=file.listed_at,
            other_buckets=file.other_buckets,
        )

    def __repr__(self) -> str:
        """Return the URL and the number of topics and ledgers; parses no topic."""
        file = self._file
        return counts_repr(
            self.location,
            topics=file.offloaded_topic_count,
            ledgers=file.ledger_count,
            has_metadata=file.has_metadata,
        )

    @property
    def statistics(self) -> str | None:
        """The location of the topics' statistics, if it was saved."""
        return self._file.statistics

    def refreshed(self) -> Catalog:
        """Return the same catalog: a snapshot does not change."""
        return self

    def relisted(self) -> Catalog:
        """Return the current bucket with the snapshot's metadata: one listing.

        Raises:
            MissingObjectError: The bucket or folder does not exist any more.
            StorageError: The store refused or failed to list the bucket, or to return an index
                object.
        """
        return RelistedCatalog.from_earlier(self._options, self)

    def _topics(self, namespaces: Collection[str] | None) -> set[TopicName]:
        del namespaces
        return set(self._file.topics)

    def every_ledger(self) -> list[TopicLedgers]:
        """Return the ledgers of all topics."""
        return self.ledgers_of(self.topics())

    def ledgers_of(self, topics: Sequence[TopicName]) -> list[TopicLedgers]:
        """Return the ledgers of each topic."""
        return [self._file.ledgers(topic) for topic in topics]

    def unattributed_errors(self) -> list[PulsarOffloadError]:
        """Return the errors of ledgers whose topic is unknown: each may belong to any topic."""
        return super().unattributed_errors() if self._file.has_copies_without_topic else []


class RelistedCatalog(Catalog):
    """The current objects of a bucket, with the metadata of a catalog snapshot."""

    @classmethod
    def from_earlier(cls, options: CatalogOptions, earlier: Catalog) -> RelistedCatalog:
        """List the bucket, and keep the metadata of an earlier catalog; see `Catalog.relisted`."""
        listed_at = datetime.now(UTC)
        bucket = Bucket(list_bucket(options.location), earlier.bucket.opened_copies)
        return cls(options, bucket, earlier.source, listed_at=listed_at, earlier=earlier)

    def refreshed(self) -> Catalog:
        """Return the current bucket, with the same metadata; see `Catalog.relisted`."""
        return RelistedCatalog.from_earlier(self._options, self)
