"""Whether objects of an offload attempt are still needed, according to the topic's metadata.

In case of doubt an object is kept: keeping it costs money, but deleting an object that a broker
reads loses messages.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from connector.catalog.ledger_origin import bookies_of, recorded_cluster
from connector.inputs.times import time_of
from connector.upkeep.audit.cluster_evidence import ClusterEvidence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from datetime import datetime
    from uuid import UUID

    from arrow_io.format.object_names import CopyName
    from connector.catalog.catalog import Catalog
    from connector.catalog.kinds.ledger_copy import LedgerCopy
    from connector.catalog.metadata.topic_metadata import LedgerInfo
    from connector.catalog.topic_ledgers import TopicLedger, TopicLedgers
    from connector.inputs.topic_names import TopicName

CLOCK_DIFFERENCE = timedelta(hours=1)
"""Maximum difference between the clocks of a store and of a broker."""


class Deletability:
    """Decides whether an offload attempt may still be needed, and why.

    Args:
        topics: Every topic of the catalog.
        is_one_cluster: Whether objects that name no cluster belong to the metadata's cluster. Then
            a topic that the metadata lacks is the cluster's too, and was deleted.
    """

    def __init__(
        self, catalog: Catalog, topics: Collection[TopicLedgers], *, is_one_cluster: bool
    ) -> None:
        self._catalog = catalog
        self._is_one_cluster = is_one_cluster
        self._evidence = ClusterEvidence(catalog, topics, is_one_cluster=is_one_cluster)
        self._attempts: dict[tuple[int, UUID], str] = {}
        self.owners: dict[int, list[TopicLedgers]] = {}
        """The topics that have a ledger of an id, by the metadata."""
        self._states = {
            (topic.topic, state.ledger_id): state for topic in topics for state in topic.states
        }
        self._times: dict[TopicName, datetime | None] = {
            topic.topic: self._metadata_time(topic.states) for topic in topics if topic.metadata
        }
        for topic in topics:
            for info in topic.metadata.ledgers if topic.metadata else ():
                self.owners.setdefault(info.ledger_id, []).append(topic)
                for uuid, state in _named_attempts(info):
                    self._attempts[info.ledger_id, uuid] = state

    def doubt_of_copy(
        self, topic: TopicLedgers, copy: LedgerCopy, modified: datetime | None
    ) -> str | None:
        """Return why an attempt with an index object may be needed, or None if it is not.

        `modified` is when the newer of its objects was written.

        Raises:
            MissingObjectError: An object was deleted since the bucket was listed.
            StorageError: The user metadata of an object cannot be read.
        """
        return self._doubt(topic, copy.name, modified) or self._evidence.doubt_of_copy(topic, copy)

    def doubt_of_data(
        self, topic: TopicLedgers, name: CopyName, modified: datetime | None
    ) -> str | None:
        """Return why a data object without an index object may be needed; see `doubt_of_copy`."""
        return self._doubt(topic, name, modified) or self._evidence.doubt_of_data(
            topic, recorded_cluster(self._catalog.unfinished.user_metadata(name))
        )

    def doubt_of_upload(
        self, topic: TopicLedgers, name: CopyName, initiated: datetime | None
    ) -> str | None:
        """Return why an upload, which names no topic and no cluster, may be needed."""
        return self._doubt(topic, name, initiated) or self._evidence.doubt_of_upload(topic)

    def _doubt(self, topic: TopicLedgers, name: CopyName, modified: datetime | None) -> str | None:
        attempt = name.ledger_id, name.uuid
        if attempt in self._attempts:
            return f"the metadata names it: {self._attempts[attempt]}"
        metadata = topic.metadata
        if metadata is None:
            return self._doubt_of_deletion(topic.topic) or _doubt_of_age(
                modified, self._catalog.listed_at
            )
        if name.ledger_id > metadata.last_ledger_id:
            return "the ledger is newer than the topic's last in the metadata"
        if metadata.lacks(name.ledger_id):
            return "the metadata has earlier and later ledgers, but not this one"
        state = self._states.get((topic.topic, name.ledger_id))
        doubt = _doubt_of_readability(state)
        if doubt is None and name.ledger_id > metadata.proven_to_ledger_id:
            doubt = (
                "the metadata is not proven complete: a live cluster, a second file that agrees, or"
                " a manifest would prove it"
            )
        return doubt or _doubt_of_age(modified, self._times.get(topic.topic))

    def _doubt_of_deletion(self, topic: TopicName) -> str | None:
        """Return why the cluster may have a topic that its metadata lacks."""
        doubt = self._doubt_of_segment(topic)
        if doubt is not None:
            return doubt
        source = self._catalog.source
        if not self._is_one_cluster:
            return "the topic may be another cluster's"
        if source is None or not source.is_live:
            return (
                "saved metadata may lack topics; only a live cluster can say that one was deleted"
            )
        if topic in source.topics([topic.full_namespace]):
            return "the cluster lists the topic"
        return None

    def _doubt_of_segment(self, topic: TopicName) -> str | None:
        """Return why a scalable topic may have a segment or partition; None if it cannot.

        A broker creates the ledgers of a segment before the graph names it (`SegmentLayout`).
        """
        scalable_topics = self._catalog.scalable_topics
        if scalable_topics.error(topic.scalable) is not None:
            return "the metadata of the scalable topic cannot be read"
        graph = scalable_topics.find(topic.scalable)
        if graph is not None and topic in graph.members:
            return "the scalable topic names it"
        if graph is not None or topic.is_scalable:
            return "it may be part of a scalable topic that does not name it yet, or any more"
        return None

    def _metadata_time(self, ledgers: Iterable[TopicLedger]) -> datetime | None:
        """Return a time, by the store's clock, that is not after the metadata was made."""
        listed_at, source = self._catalog.listed_at, self._catalog.source
        if source is not None and source.is_live:
            return listed_at
        times_ms = (time_ms for each in ledgers for time_ms in _recorded_times(each) if time_ms)
        # A time in the future comes from a wrong clock.
        past = [time for time in map(time_of, times_ms) if time is not None and time <= listed_at]
        return max(past) - CLOCK_DIFFERENCE if past else None


def _recorded_times(ledger: TopicLedger) -> Iterator[int | None]:
    """Yield when the cluster recorded something about a ledger, in ms since the epoch.

    A program that writes messages without a broker chooses their publish times, and the last one
    becomes the ledger's closing time. So a closing time counts only if the ledger has evidently
    been in BookKeeper.
    """
    info = ledger.info
    if info is None:
        return
    if info.offload is None or (ledger.copy is not None and bookies_of(ledger.copy)):
        yield info.timestamp_ms
    if info.offload is not None:
        yield info.offload.timestamp_ms


def _doubt_of_age(modified: datetime | None, metadata_time: datetime | None) -> str | None:
    """Return why an attempt may be newer than the metadata, made at `metadata_time` or later.

    Each time is None if it is unknown.
    """
    if modified is None:
        return "the store does not say when it was written"
    if metadata_time is None or modified >= metadata_time:
        return "it may have been written after the metadata"
    return None


def _doubt_of_readability(state: TopicLedger | None) -> str | None:
    """Return why an attempt may be the only readable one of a ledger that the topic has."""
    if state is None or state.info is None:
        return None
    if not state.state.is_readable:
        return "no copy that the metadata names can be read instead"
    if state.info.offload is None or not state.info.offload.uuids:
        return "the metadata does not say which copy counts"
    if state.copy is not None and state.copy.may_lack_entries:
        return "the copy that counts may lack entries that its writer lost"
    if state.copy is not None and any(pair.index_error for pair in state.copy.pairs):
        return "brokers cannot read the copy that counts"
    return None


def _named_attempts(info: LedgerInfo) -> Iterator[tuple[UUID, str]]:
    """Yield the attempts that the metadata names for a ledger, and their state."""
    offload = info.offload
    if offload is None:
        return
    for uuid in offload.other_uuids:
        yield uuid, "another answer of the same cluster names this uuid"
    state = {True: "complete", False: "under way, or failed", None: "started"}
    for uuid in offload.uuids:
        yield uuid, state[offload.complete]
