"""Which topics have the history of a scalable topic, by its cluster or by the bucket alone.

With the graph of its segments (`ScalableTopic`), these are the segments and migrated partitions
that it names. It lacks segments that were pruned, whose objects may still be in the bucket.

Without it, they are all segments that the bucket has. Partitions of a persistent topic of the same
name precede them, unless a segment has an id that a migration would have given to a partition: a
migrated topic of N partitions has segments from N on.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from arrow_io.errors import FormatError, MissingObjectError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from connector.catalog.metadata.scalable import ScalableTopic, SegmentNode
    from connector.catalog.metadata.source import MetadataSource
    from connector.display.topic_metrics import TopicMetrics
    from connector.inputs.topic_names import TopicName

_CONCURRENT_TOPICS: Final = 8


class ScalableTopics:
    """The scalable topics of a catalog. Safe to use from several threads."""

    def __init__(self, source: MetadataSource | None) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._sound: dict[TopicName, ScalableTopic | None] = {}

    def find(self, topic: TopicName) -> ScalableTopic | None:
        """Return the graph of a scalable topic; None if the metadata has none.

        Raises:
            CorruptMetadataError: The graph is malformed.
            MissingObjectError: The user named a path for the topic, and nothing exists there.
            StorageError: The metadata cannot be read.
        """
        with self._lock:
            if topic in self._sound:
                return self._sound[topic]
        found = None if self._source is None else self._source.scalable_topic(topic)
        with self._lock:
            return self._sound.setdefault(topic, found)

    def error(self, topic: TopicName) -> FormatError | MissingObjectError | None:
        """Return why the graph of a scalable topic cannot be read; None if it can.

        Raises:
            StorageError: The metadata cannot be read.
        """
        try:
            self.find(topic)
        except (FormatError, MissingObjectError) as error:
            return error
        return None

    def node(self, topic: TopicName) -> SegmentNode | None:
        """Return the node of a segment; None if no sound graph has it, or for other topics.

        Raises:
            StorageError: The metadata cannot be read.
        """
        if topic.segment is None:
            return None
        with suppress(FormatError, MissingObjectError):
            graph = self.find(topic.base)
            node = None if graph is None else graph.node(topic.segment.id)
            return node if node is not None and node.segment == topic.segment else None
        return None

    def topics(self, namespaces: Collection[str] | None) -> set[TopicName]:
        """Return the members of all scalable topics of the metadata whose graph is sound.

        Raises:
            PulsarOffloadError: The metadata cannot be read.
        """
        bases = [] if self._source is None else self._source.scalable_topics(namespaces)
        if not bases:
            return set()
        with ThreadPoolExecutor(_CONCURRENT_TOPICS) as executor:
            return set(chain.from_iterable(executor.map(self._sound_members, bases)))

    def every(self) -> list[ScalableTopic]:
        """Return the graphs of all scalable topics of the metadata, by name.

        Raises:
            PulsarOffloadError: The metadata cannot be read, or a graph is malformed.
        """
        bases = [] if self._source is None else self._source.scalable_topics()
        return [graph for graph in map(self.find, bases) if graph is not None]

    def _sound_members(self, topic: TopicName) -> list[TopicName]:
        with suppress(FormatError, MissingObjectError):
            graph = self.find(topic)
            return [] if graph is None else graph.members
        return []

    def members(
        self,
        topic: TopicName,
        available: Iterable[TopicName],
        *,
        include_pruned: bool = False,
        salvage: bool = False,
    ) -> list[TopicName]:
        """Return the topics that have the history of a scalable topic, in order.

        Args:
            topic: The scalable topic.
            available: The topics of the bucket and of the metadata.
            include_pruned: Whether to add those that the graph does not name.
            salvage: Whether a malformed graph counts as none.

        Raises:
            CorruptMetadataError: The graph is malformed.
            MissingObjectError: The user named a path for the topic, and nothing exists there.
            StorageError: The metadata cannot be read.
        """
        if salvage and self.error(topic) is not None:
            return _members_in_bucket(topic, available)
        graph = self.find(topic)
        if graph is None:
            return _members_in_bucket(topic, available)
        found = set(graph.members)
        if include_pruned:
            found.update(_relatives(topic, available))
        return sorted(found, key=attrgetter("order"))

    def count_gaps(
        self,
        topics: Iterable[TopicName],
        selected: Collection[TopicName],
        available: Collection[TopicName],
        metrics: TopicMetrics,
    ) -> None:
        """Count the segments that a read of scalable topics lacks, as far as anything shows them.

        Args:
            topics: The scalable topics.
            selected: Their members that are read.
            available: The topics of the bucket and of the metadata.
            metrics: Receives the counts.

        Raises:
            StorageError: The metadata cannot be read.
        """
        for topic in topics:
            error = self.error(topic)
            if error is not None:
                metrics.doubts.append(
                    f"the segments of {topic} were taken from the bucket alone, because their"
                    f" metadata cannot be read: {error}"
                )
            elif self.find(topic) is not None:
                relatives = {each for each in available if each.base == topic}
                metrics.unnamed_segments += len(relatives.difference(selected))
            else:
                ids = {each.segment_id for each in selected if each.base == topic}
                partitions = sum(each.base == topic.classic for each in selected)
                last = max((each for each in ids if each is not None), default=-1)
                metrics.absent_segments += max(0, last + 1 - len(ids) - partitions)


def _relatives(topic: TopicName, available: Iterable[TopicName]) -> list[TopicName]:
    return [each for each in available if each.base in (topic, topic.classic)]


def _members_in_bucket(topic: TopicName, available: Iterable[TopicName]) -> list[TopicName]:
    relatives = sorted(_relatives(topic, available), key=attrgetter("order"))
    segments = [each for each in relatives if each.segment is not None]
    partitions = [each for each in relatives if each.segment is None]
    migrated = max((max(each.partition, 0) + 1 for each in partitions), default=0)
    if any(each.segment_id < migrated for each in segments if each.segment_id is not None):
        return segments
    return [*partitions, *segments]
