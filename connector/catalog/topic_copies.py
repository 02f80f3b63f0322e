"""The copies in a bucket that may belong to a topic, reading as few index objects as possible.

With metadata, these are the copies of the ledgers that the topic's metadata lists, whatever their
uuid, and the strays. A *stray* is a copy that the metadata of no topic names: it may be newer than
the metadata, or belong to a topic that the metadata does not know. Without metadata, only index
objects name the topic of a ledger, so all of them are read.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from arrow_io.errors import FormatError, MissingObjectError, PulsarOffloadError
from connector.inputs.topic_names import AnyTopic, TopicName

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from connector.catalog.bucket import Bucket
    from connector.catalog.kinds.ledger_copy import LedgerCopy
    from connector.catalog.metadata.source import MetadataSource
    from connector.catalog.metadata.topic_metadata import TopicMetadata
    from connector.catalog.scalable_topics import ScalableTopics

    CopiesByTopic = Mapping[AnyTopic | None, list[LedgerCopy]]

_MAX_STRAYS_READ: Final = 16
"""Maximum number of strays that are read directly. For more, other namespaces are listed first,
because that is cheaper."""


class TopicCopies:
    """The copies of each topic in a bucket as it was listed. Safe to use from several threads."""

    def __init__(
        self, bucket: Bucket, source: MetadataSource | None, scalable_topics: ScalableTopics
    ) -> None:
        self._bucket = bucket
        self._source = source
        self._scalable_topics = scalable_topics
        self._lock = threading.Lock()
        self._namespaces: set[str] = set()
        self._is_narrowed = False
        self._strays = bucket.names
        self._stray_copies: tuple[Collection[object], CopiesByTopic] = ((), {})
        self._segment_ledgers: tuple[object, Mapping[TopicName, set[int]]] = (None, {})
        self._bucket_copies: tuple[object, CopiesByTopic] = (None, {})

    def find_by_metadata(self, metadata: TopicMetadata) -> list[LedgerCopy]:
        """Return the copies of a topic that has metadata; those of one ledger newest first.

        These are the copies that name the topic, and those that the metadata names, even if they
        name another topic or none. If the metadata lists a ledger without an offload, copies of it
        that name no topic count too: no other topic of the cluster has a ledger of this id.

        Raises:
            StorageError: The store refused or failed to return an index object.
        """
        topic, ledger_ids = metadata.topic, {info.ledger_id for info in metadata.ledgers}
        without_offload = {info.ledger_id for info in metadata.ledgers if info.offload is None}
        # Segments need not name their topic, and the admin API does not return their uuids.
        without_uuids = without_offload | {
            info.ledger_id for info in metadata.ledgers if info.offload and not info.offload.uuids
        }
        attempts = metadata.named_attempts
        matching = [
            copy
            for copy in self._bucket.copies_of(ledger_ids)
            if copy.topic == topic
            or (copy.name.ledger_id, copy.name.uuid) in attempts
            or (
                copy.topic is None
                and copy.name.ledger_id in (without_uuids if copy.is_shared else without_offload)
            )
        ]
        strays = self._copies_of_strays().get(topic, ())
        found = [*matching, *(copy for copy in strays if copy.name.ledger_id not in ledger_ids)]
        return [each.with_topic(topic) for each in found]

    def find_in_bucket(self, topic: TopicName) -> list[LedgerCopy]:
        """Return the copies of a topic that has no metadata: all that name it.

        Raises:
            StorageError: The store refused or failed to return an index object.
        """
        contents = self._bucket.open_all()
        if self._bucket_copies[0] is not contents:
            self._bucket_copies = contents, _by_topic(contents.copies)
        return self._bucket_copies[1].get(topic, [])

    def stray_topics(self, namespaces: Collection[str] | None) -> set[TopicName]:
        """Return the topics that strays name.

        With namespaces, copies of other namespaces may count as strays although metadata names
        them.

        Raises:
            StorageError: The store refused or failed to return an index object.
        """
        self._narrow_strays(namespaces)
        return {topic for topic in self._copies_of_strays() if isinstance(topic, TopicName)}

    def strays_without_topic(self) -> list[LedgerCopy]:
        """Return the strays that name no topic.

        Raises:
            StorageError: The store refused or failed to return an index object.
        """
        return self._copies_of_strays().get(None, [])

    def segment_ledgers(self, topic: TopicName, metadata: TopicMetadata | None) -> int:
        """Return the number of ledgers in the bucket of the scalable topic that continues a topic.

        The metadata of the scalable topic is read only if the topic may have been migrated, for
        which its cluster terminates it.

        Raises:
            StorageError: The store refused or failed to return an index object, or the metadata
                cannot be read.
        """
        if topic.is_scalable:
            return 0
        ids = self._segment_ledgers_of_strays().get(topic.scalable, set())
        if metadata is not None and metadata.terminated_position is not None:
            ids = ids | self._recorded_segment_ledgers(topic.scalable)
        return len(ids)

    def _segment_ledgers_of_strays(self) -> Mapping[TopicName, set[int]]:
        strays = self._copies_of_strays()
        if self._segment_ledgers[0] is not strays:
            ids: dict[TopicName, set[int]] = defaultdict(set)
            for owner, copies in strays.items():
                if isinstance(owner, TopicName) and owner.segment is not None:
                    ids[owner.base].update(copy.name.ledger_id for copy in copies)
            self._segment_ledgers = strays, ids
        return self._segment_ledgers[1]

    def _recorded_segment_ledgers(self, topic: TopicName) -> set[int]:
        """Return the ids of offloaded ledgers of a scalable topic, as far as metadata has them."""
        ids: set[int] = set()
        if self._source is None:
            return ids
        with suppress(FormatError, MissingObjectError):
            graph = self._scalable_topics.find(topic)
            for each in () if graph is None else graph.members:
                metadata = self._source.topic_metadata(each) if each.segment else None
                ledgers = () if metadata is None else metadata.ledgers
                ids.update(info.ledger_id for info in ledgers if info.is_offloaded)
        return ids

    def treat_all_as_strays(self) -> bool:
        """Treat every copy as a stray from now on; return whether this adds strays.

        Raises:
            StorageError: The store refused or failed to return an index object.
        """
        self._bucket.open_all()
        with self._lock:
            is_new = len(self._strays) < len(self._bucket.names)
            self._strays, self._is_narrowed = self._bucket.names, True
            return is_new

    def prefetch(self, metadata: Iterable[TopicMetadata | None]) -> list[LedgerCopy]:
        """Read the index objects of several topics together, instead of topic by topic.

        The metadata is None for a topic without metadata. Returns the copies, ascending by ledger
        id, then newest first.

        Raises:
            StorageError: The store refused or failed to return an index object.
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
        """Remove the copies that the metadata of topics names from the strays.

        Listing the topics of other namespaces takes time, and permissions that a reader of one
        namespace need not have. They are listed only if that avoids more reads.
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
            attempts = source.named_attempts(namespaces, max_topics=len(self._strays))
        except PulsarOffloadError:
            # Strays are then attributed by their index objects alone.
            return
        self._strays = frozenset(
            name for name in self._strays if (name.ledger_id, name.uuid) not in (attempts or ())
        )


def _by_topic(copies: Iterable[LedgerCopy]) -> CopiesByTopic:
    """Group copies by topic and keep their order; None groups those that name no topic."""
    grouped: dict[AnyTopic | None, list[LedgerCopy]] = defaultdict(list)
    for copy in copies:
        grouped[copy.topic].append(copy)
    return dict(grouped)
