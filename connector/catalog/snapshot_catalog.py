"""A catalog from a snapshot: what that says of a topic is read when it is asked for."""

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
    """The topics as they were when the catalog was saved.

    Any method that reads of the snapshot raises `CorruptSnapshotError` if it has something else
    there than a snapshot has.

    Args:
        options: What it is opened with.
        file: The snapshot.
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
        """The URL, and what was found there; reads nothing of any topic."""
        file = self._file
        return counts_repr(
            self.location,
            topics=file.offloaded_topic_count,
            ledgers=file.ledger_count,
            has_metadata=file.has_metadata,
        )

    @property
    def statistics(self) -> str | None:
        """Where statistics of the topics are, if that was saved."""
        return self._file.statistics

    def refreshed(self) -> Catalog:
        """The same: a snapshot stays what it is."""
        return self

    def relisted(self) -> Catalog:
        """The bucket as it is now, with the snapshot's metadata: one listing.

        Raises:
            MissingObjectError: There is no such bucket or folder any more.
            StorageError: The bucket, or an index object, cannot be read.
        """
        listed_at = datetime.now(UTC)
        bucket = Bucket(list_bucket(self.location), self.bucket.opened_copies)
        return Catalog(self._options, bucket, self.source, listed_at=listed_at, earlier=self)

    def _topics(self, namespaces: Collection[str] | None) -> set[TopicName]:
        del namespaces
        return set(self._file.topics)

    def every_ledger(self) -> list[TopicLedgers]:
        """The ledgers of all topics."""
        return self.ledgers_of(self.topics())

    def ledgers_of(self, topics: Sequence[TopicName]) -> list[TopicLedgers]:
        """The ledgers of each topic."""
        return [self._file.ledgers(topic) for topic in topics]

    def unattributed_errors(self) -> list[PulsarOffloadError]:
        """What is wrong with ledgers that may belong to any topic, because nothing names theirs."""
        return super().unattributed_errors() if self._file.has_copies_without_topic else []
