"""Which topics have the history of a scalable topic, by its cluster or by the bucket alone.

With the graph of its segments (`ScalableTopic`), these are the segments and migrated partitions
that it names. It lacks segments that were pruned, whose objects may still be in the bucket.

Without it, they are all segments that the bucket has. Partitions of a persistent topic of the same
name precede them, unless a segment has an id that a migration would have given to a partition: a
migrated topic of N partitions has segments from N on.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from contextlib import suppress
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from arrow_io.core.threads import ContextThreadPool
from arrow_io.errors import FormatError, MissingObjectError
from connector.inputs.topic_names import may_be_migrated

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from connector.catalog.metadata.scalable import ScalableTopic, SegmentNode
    from connector.catalog.metadata.source import MetadataSource
    from connector.display.topic_metrics import TopicMetrics
    from connector.inputs.topic_names import SegmentSelection, TopicName

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
        with ContextThreadPool(_CONCURRENT_TOPICS) as executor:
            return set(chain.from_iterable(executor.map(self._sound_members, bases)))

    def every(self) -> list[ScalableTopic]:
        """Return the graphs of all scalable topics of the metadata, by name.

        Raises:
            PulsarOffloadError: The metadata cannot be read, or a graph is malformed.
        """
        bases = [] if self._source is None else self._source.scalable_topics()
        return [graph for graph in map(self.find, bases) if graph is not None]

    def _sound_members(self, topic: TopicName) -> Sequence[TopicName]:
        with suppress(FormatError, MissingObjectError):
            graph = self.find(topic)
            return () if graph is None else graph.members
        return ()

    def members(
        self,
        topic: TopicName,
        relatives: Iterable[TopicName],
        *,
        include_pruned: bool = False,
        salvage: bool = False,
    ) -> list[TopicName]:
        """Return the topics that have the history of a scalable topic, in order.

        Args:
            topic: The scalable topic.
            relatives: The segments and partitions of its name, in the bucket and in the metadata.
            include_pruned: Whether to add those that the graph does not name.
            salvage: Whether a malformed graph counts as none.

        Raises:
            CorruptMetadataError: The graph is malformed.
            MissingObjectError: The user named a path for the topic, and nothing exists there.
            StorageError: The metadata cannot be read.
        """
        graph = None if salvage and self.error(topic) is not None else self.find(topic)
        if graph is None:
            return _members_in_bucket(relatives)
        found = {*graph.members, *(relatives if include_pruned else ())}
        return sorted(found, key=attrgetter("order"))


class MemberFinder:
    """Finds the members of scalable topics among some topics, for `select_topics`.

    Args:
        scalable_topics: The scalable topics of the metadata.
        available: The topics of the bucket and of the metadata.
        additional: Topics that are members whatever the metadata names.
        segments: Whether members are those that the metadata names (`current`), or all.
        salvage: Whether a malformed graph counts as none.
    """

    def __init__(
        self,
        scalable_topics: ScalableTopics,
        available: Iterable[TopicName],
        *,
        additional: Iterable[TopicName] = (),
        segments: SegmentSelection = "current",
        salvage: bool = False,
    ) -> None:
        self._scalable_topics = scalable_topics
        self._relatives = _by_classic(available)
        self._additional = _by_classic(additional)
        self._segments = segments
        self._salvage = salvage
        self._found: set[TopicName] = set()

    def __call__(self, topic: TopicName) -> list[TopicName]:
        """Return the members of a scalable topic.

        Raises:
            PulsarOffloadError: See `ScalableTopics.members`.
        """
        self._found.add(topic)
        found = self._scalable_topics.members(
            topic,
            self._relatives.get(topic.classic, ()),
            include_pruned=self._segments == "all",
            salvage=self._salvage,
        )
        return [*found, *self._additional.get(topic.classic, ())]

    def count_gaps(self, selected: Iterable[TopicName], metrics: TopicMetrics) -> None:
        """Count the segments that are missing from the members that were found.

        Args:
            selected: The topics that are read.
            metrics: Receives the counts.

        Raises:
            StorageError: The metadata cannot be read.
        """
        selected_by_name = _by_classic(selected)
        for topic in self._found:
            members = selected_by_name.get(topic.classic, [])
            error = self._scalable_topics.error(topic)
            if error is not None:
                metrics.doubts.append(
                    f"the segments of {topic} were taken from the bucket alone, because their"
                    f" metadata cannot be read: {error}"
                )
            elif self._scalable_topics.find(topic) is not None:
                segments = {each for each in self._relatives[topic.classic] if each.segment}
                metrics.unnamed_segments += len(segments.difference(members))
            else:
                ids = {each.segment_id for each in members if each.segment_id is not None}
                partitions = sum(each.segment is None for each in members)
                metrics.absent_segments += max(0, max(ids) + 1 - len(ids) - partitions)


def _by_classic(topics: Iterable[TopicName]) -> dict[TopicName, list[TopicName]]:
    """Group topics by the persistent topic of their name."""
    grouped: dict[TopicName, list[TopicName]] = defaultdict(list)
    for each in topics:
        grouped[each.classic].append(each)
    return dict(grouped)


def _members_in_bucket(relatives: Iterable[TopicName]) -> list[TopicName]:
    ordered = sorted(relatives, key=attrgetter("order"))
    if may_be_migrated(ordered):
        return ordered
    return [each for each in ordered if each.segment is not None]
