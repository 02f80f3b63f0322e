"""A catalog from a snapshot: what that says of a topic is read when it is asked for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from connector.catalog.bucket import Bucket
from connector.catalog.bucket_listing import list_bucket
from connector.catalog.catalog import Catalog
from connector.catalog.shown_catalog import counted_line
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
        saved: The snapshot.
    """

    def __init__(self, options: CatalogOptions, saved: SnapshotFile) -> None:
        self._saved = saved
        super().__init__(
            options,
            SnapshotBucket(saved, None),
            SnapshotSource(saved) if saved.has_metadata else None,
            taken=saved.taken,
            elsewhere=saved.other_buckets,
        )

    def __repr__(self) -> str:
        """The URL, and what was found there; reads nothing of any topic."""
        saved = self._saved
        return counted_line(
            self.location,
            topics=saved.offloaded_topic_count,
            ledgers=saved.ledger_count,
            has_metadata=saved.has_metadata,
        )

    @property
    def statistics(self) -> str | None:
        """Where statistics of the topics are, if that was saved."""
        return self._saved.statistics

    def refreshed(self) -> Catalog:
        """The same: a snapshot stays what it is."""
        return self

    def relisted(self) -> Catalog:
        """The bucket as it is now, with the snapshot's metadata: one listing.

        Raises:
            MissingObjectError: There is no such bucket or folder any more.
            StorageError: The bucket, or an index object, cannot be read.
        """
        taken = datetime.now(UTC)
        bucket = Bucket(list_bucket(self.location), self.bucket.opened)
        return Catalog(self._options, bucket, self.source, taken=taken, earlier=self)

    def _topics(self, namespaces: Collection[str] | None) -> set[TopicName]:
        del namespaces
        return set(self._saved.topics)

    def every_ledger(self) -> list[TopicLedgers]:
        """The ledgers of all topics."""
        return self.ledgers_of(self.topics())

    def ledgers_of(self, topics: Sequence[TopicName]) -> list[TopicLedgers]:
        """The ledgers of each topic."""
        return [self._saved.ledgers(topic) for topic in topics]

    def unattributed(self) -> list[PulsarOffloadError]:
        """What is wrong with ledgers that may belong to any topic, because nothing names theirs."""
        return super().unattributed() if self._saved.has_nameless else []
