"""Which copies in a bucket may be a topic's: their index objects are read, and no others.

Those are the copies of the ledgers that the topic's metadata lists, whatever their uuid; and
strays, which the metadata of no topic names. A stray may be newer than the metadata, or of a topic
that the metadata does not know. A bucket that is as its metadata says has no strays. For a topic
without metadata, only index objects say what it has, and all of them are read.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from arrow_io.errors import PulsarOffloadError
from connector.inputs.topic_names import AnyTopic, ForeignTopic, TopicName

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from connector.catalog.bucket import Bucket
    from connector.catalog.kinds.ledger_copy import LedgerCopy
    from connector.catalog.metadata.source import MetadataSource
    from connector.catalog.metadata.topic_metadata import TopicMetadata

    CopiesByTopic = Mapping[AnyTopic | None, list[LedgerCopy]]

_MAX_STRAYS_READ: Final = 16
"""Up to so many strays are read; only for more, other namespaces are listed to spare that."""


class TopicCopies:
    """The copies of each topic, of a bucket as it was listed. Several threads may ask at once.

    Args:
        bucket: The bucket.
        source: What the topics' cluster knows of them; None if nothing is known.
    """

    def __init__(self, bucket: Bucket, source: MetadataSource | None) -> None:
        self._bucket = bucket
        self._source = source
        self._lock = threading.Lock()
        self._namespaces: set[str] = set()
        self._is_narrowed = False
        self._strays = bucket.names
        self._stray_copies: tuple[Collection[object], CopiesByTopic] = ((), {})
        self._segment_ledgers: tuple[object, Counter[TopicName]] = (None, Counter())
        self._bucket_copies: tuple[object, CopiesByTopic] = (None, {})

    def find_by_metadata(self, metadata: TopicMetadata) -> list[LedgerCopy]:
        """The copies of a topic that has metadata; those of one ledger from the newest on.

        They are the copies that name the topic, and those that the metadata names, even if they
        name another topic or none. If the metadata lists a ledger and no offload of it, its copies
        that name no topic count too: no other topic of the cluster has a ledger of this id.

        Raises:
            StorageError: An index object cannot be read for a reason that lies in the store.
        """
        topic, ledger_ids = metadata.topic, {info.ledger_id for info in metadata.ledgers}
        without_offload = {info.ledger_id for info in metadata.ledgers if info.offload is None}
        # Segments need not name their topic, and the admin API does not name segments.
        without_uuids = without_offload | {
            info.ledger_id for info in metadata.ledgers if info.offload and not info.offload.uuids
        }
        named = metadata.named_attempts
        listed = [
            copy
            for copy in self._bucket.copies_of(ledger_ids)
            if copy.topic == topic
            or (copy.name.ledger_id, copy.name.uuid) in named
            or (
                copy.topic is None
                and copy.name.ledger_id in (without_uuids if copy.is_shared else without_offload)
            )
        ]
        strays = self._copies_of_strays().get(topic, ())
        found = [*listed, *(copy for copy in strays if copy.name.ledger_id not in ledger_ids)]
        return [each.with_topic(topic) for each in found]

    def find_in_bucket(self, topic: TopicName) -> list[LedgerCopy]:
        """The copies of a topic that has no metadata: all in the bucket that name it.

        Raises:
            StorageError: An index object cannot be read for a reason that lies in the store.
        """
        contents = self._bucket.open_all()
        if self._bucket_copies[0] is not contents:
            self._bucket_copies = contents, _by_topic(contents.copies)
        return self._bucket_copies[1].get(topic, [])

    def stray_topics(self, namespaces: Collection[str] | None) -> set[TopicName]:
        """The topics that are named by copies which the metadata of no topic names.

        Args:
            namespaces: Those whose topics are looked for; None: all.

        Raises:
            StorageError: An index object cannot be read for a reason that lies in the store.
        """
        self._narrow_strays(namespaces)
        return {topic for topic in self._copies_of_strays() if isinstance(topic, TopicName)}

    def strays_without_topic(self) -> list[LedgerCopy]:
        """The copies that name no topic, of those that the metadata of no topic names.

        Raises:
            StorageError: An index object cannot be read for a reason that lies in the store.
        """
        return self._copies_of_strays().get(None, [])

    def segment_ledgers(self, topic: TopicName) -> int:
        """Return how many ledgers the segments of a topic's scalable successor have (Pulsar 5.0).

        They are counted among the copies that the metadata of no topic names, for no metadata names
        those of segments.

        Args:
            topic: A topic or partition.

        Raises:
            StorageError: An index object cannot be read for a reason that lies in the store.
        """
        strays = self._copies_of_strays()
        counted_strays, counts = self._segment_ledgers
        if counted_strays is not strays:
            counts = Counter()
            for owner, copies in strays.items():
                if isinstance(owner, ForeignTopic) and owner.migrated_topic is not None:
                    counts[owner.migrated_topic] += len({copy.name.ledger_id for copy in copies})
            self._segment_ledgers = strays, counts
        return counts[topic.base]

    def treat_all_as_strays(self) -> bool:
        """Take every copy for a stray from now on; gives whether that changes anything.

        Raises:
            StorageError: An index object cannot be read for a reason that lies in the store.
        """
        self._bucket.open_all()
        with self._lock:
            is_new = len(self._strays) < len(self._bucket.names)
            self._strays, self._is_narrowed = self._bucket.names, True
            return is_new

    def prefetch(self, metadata: Iterable[TopicMetadata | None]) -> list[LedgerCopy]:
        """Read together all index objects that topics take, which each would read by itself.

        Args:
            metadata: The metadata of each topic; None for one that has none.

        Returns:
            The copies, by ledger id, then from the newest to the oldest.

        Raises:
            StorageError: An index object cannot be read for a reason that lies in the store.
        """
        entries = list(metadata)
        if any(each is None for each in entries):
            return list(self._bucket.open_all().copies)
        self._narrow_strays({each.topic.full_namespace for each in entries if each is not None})
        ids = {info.ledger_id for each in entries if each is not None for info in each.ledgers}
        return self._bucket.copies({*self._bucket.names_of(ids), *self._strays})

    def _copies_of_strays(self) -> CopiesByTopic:
        strays = self._strays
        if self._stray_copies[0] is not strays:
            self._stray_copies = strays, _by_topic(self._bucket.copies(strays))
        return self._stray_copies[1]

    def _narrow_strays(self, namespaces: Collection[str] | None) -> None:
        """Find out which attempts the metadata of topics names; the others are strays.

        To list the topics of other namespaces takes time, and rights that a reader of one need not
        have. So they are asked about only if that spares more.
        """
        with self._lock:
            if self._source is None or self._is_narrowed:
                return
            if namespaces is not None:
                new = set(namespaces) - self._namespaces
                if not new:
                    return
                self._remove_named(self._source, new)
                self._namespaces |= new
            if namespaces is None or len(self._strays) > _MAX_STRAYS_READ:
                self._remove_named(self._source, None)
                self._is_narrowed = True

    def _remove_named(self, source: MetadataSource, namespaces: Collection[str] | None) -> None:
        try:
            named = source.named_attempts(namespaces, most_topics=len(self._strays))
        except PulsarOffloadError:
            # Index objects say what the metadata does not.
            return
        self._strays = frozenset(
            name for name in self._strays if (name.ledger_id, name.uuid) not in (named or ())
        )


def _by_topic(copies: Iterable[LedgerCopy]) -> CopiesByTopic:
    """Copies of each topic's ledgers, in their order; under None, those that name no topic."""
    grouped: dict[AnyTopic | None, list[LedgerCopy]] = defaultdict(list)
    for copy in copies:
        grouped[copy.topic].append(copy)
    return dict(grouped)
