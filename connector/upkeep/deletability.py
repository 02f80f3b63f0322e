"""Whether objects of an offload attempt are needed, as far as a topic's metadata can tell.

Every doubt keeps an object: to keep one costs money, to delete one that a broker reads loses
messages.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from arrow_io.format.index_block import CLUSTER_NAME_KEY
from arrow_io.format.object_names import LedgerObjectName
from connector.pulsar_time import time_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from datetime import datetime
    from uuid import UUID

    from connector.catalog.bucket import LedgerCopy
    from connector.catalog.catalog import Catalog
    from connector.catalog.topic_ledgers import TopicLedger, TopicLedgers
    from connector.catalog.topic_metadata import LedgerInfo
    from connector.topic_name import TopicName

CLOCK_DIFFERENCE = timedelta(hours=1)
"""How far the clocks of a store and of a broker may be apart."""


class Deletability:
    """Tells why an offload attempt may be needed.

    Args:
        catalog: The bucket and the metadata.
        topics: Every topic of the catalog.
        is_one_cluster: Whether what tells no cluster is of the cluster that the metadata is of.
    """

    def __init__(
        self, catalog: Catalog, topics: Collection[TopicLedgers], *, is_one_cluster: bool
    ) -> None:
        self._catalog = catalog
        self._is_one_cluster = is_one_cluster
        self._clusters: dict[LedgerObjectName, str | None] = {}
        self._attempts: dict[LedgerObjectName, str] = {}
        self.owners: dict[int, list[TopicLedgers]] = {}
        """The topics that have a ledger of an id, by the metadata."""
        self._states = {
            (topic.topic, state.ledger_id): state for topic in topics for state in topic.states
        }
        self._times: dict[TopicName, datetime | None] = {
            topic.topic: self._metadata_time(topic.metadata.ledgers)
            for topic in topics
            if topic.metadata
        }
        self._witnesses = {topic.topic: _witness(topic) for topic in topics}
        self._any_witness = next(filter(None, self._witnesses.values()), None)
        for topic in topics:
            for info in topic.metadata.ledgers if topic.metadata else ():
                self.owners.setdefault(info.ledger_id, []).append(topic)
                for uuid, state in _named_attempts(info):
                    self._attempts[LedgerObjectName(uuid, info.ledger_id)] = state

    def doubt_of_copy(
        self, topic: TopicLedgers, copy: LedgerCopy, modified: datetime | None
    ) -> str | None:
        """Why an attempt that has an index object may be needed; None if nothing needs it.

        Args:
            topic: The topic that it belongs to.
            copy: The attempt.
            modified: When the newer of its objects was written.

        Raises:
            MissingObjectError: It was deleted since the bucket was listed.
            StorageError: What the store keeps with an object cannot be asked for.
        """
        return self._doubt(topic, copy.name, modified) or self._doubt_of_cluster(
            topic, self._cluster(copy)
        )

    def doubt_of_data(
        self, topic: TopicLedgers, name: LedgerObjectName, modified: datetime | None
    ) -> str | None:
        """As `doubt_of_copy`, for a data object without an index object."""
        return self._doubt(topic, name, modified) or self._doubt_of_cluster(
            topic, _told_cluster(self._catalog.attempt_metadata(name))
        )

    def doubt_of_upload(
        self, topic: TopicLedgers, name: LedgerObjectName, begun: datetime | None
    ) -> str | None:
        """As `doubt_of_copy`, for an upload, which tells neither its topic nor its cluster."""
        doubt = self._doubt(topic, name, begun)
        if doubt is not None:
            return doubt
        clusters = {
            _told_cluster(each.ledger.user_metadata)
            for each in self._catalog.contents.copies
            if each.ledger is not None
        }
        if len(clusters) > 1:
            return "ledgers of several clusters lie in the bucket, and an upload tells of none"
        return self._doubt_of_cluster(topic, next(iter(clusters), None))

    def _doubt(
        self, topic: TopicLedgers, name: LedgerObjectName, modified: datetime | None
    ) -> str | None:
        if topic.metadata is None:
            return "the topic may be another cluster's"
        if name in self._attempts:
            return f"the metadata names it: {self._attempts[name]}"
        ledgers = topic.metadata.ledgers
        if not ledgers or name.ledger_id > ledgers[-1].ledger_id:
            return "the ledger is newer than the topic's last in the metadata"
        state = self._states.get((topic.topic, name.ledger_id))
        return _doubt_of_place(state) or self._doubt_of_time(topic, modified)

    def _doubt_of_time(self, topic: TopicLedgers, modified: datetime | None) -> str | None:
        if modified is None:
            return "the store does not tell when it was written"
        known = self._times.get(topic.topic)
        if known is None or modified >= known:
            return "it was written after the metadata, perhaps"
        return None

    def _metadata_time(self, ledgers: Iterable[LedgerInfo]) -> datetime | None:
        """A time at which the metadata was surely made, or later, by the store's clock."""
        taken, source = self._catalog.taken, self._catalog.source
        if source is not None and source.is_live:
            return taken
        times_ms = (
            time_ms
            for info in ledgers
            for time_ms in (info.timestamp_ms, info.offload and info.offload.timestamp_ms)
            if time_ms
        )
        # What lies in the future was noted by a clock that tells nothing.
        past = [time for time in map(time_of, times_ms) if time is not None and time <= taken]
        return max(past) - CLOCK_DIFFERENCE if past else None

    def _doubt_of_cluster(self, topic: TopicLedgers, cluster: str | None) -> str | None:
        """Whether another cluster may have written it, which may have a topic of the same name."""
        witness = self._witnesses.get(topic.topic) or self._any_witness
        if witness is None:
            return "no ledger shows that the metadata is of the cluster that wrote the bucket"
        own = self._cluster(witness)
        if own is None or cluster is None:
            return None if self._is_one_cluster else "nothing tells which cluster wrote it"
        return None if cluster == own else "it is another cluster's"

    def _cluster(self, copy: LedgerCopy) -> str | None:
        if copy.name not in self._clusters:
            ledger = copy.ledger or copy.cut
            metadata = None if ledger is None else ledger.user_metadata
            if metadata is None:
                # Some stores tell it by another request only.
                location = self._catalog.location if ledger is None else ledger.location
                metadata = location.user_metadata(copy.index.name)
            self._clusters[copy.name] = _told_cluster(metadata)
        return self._clusters[copy.name]


def _doubt_of_place(state: TopicLedger | None) -> str | None:
    """Whether an attempt may be the only one left of a ledger that the topic has."""
    if state is None or state.info is None:
        return None
    if not state.state.is_readable:
        return "no copy that the metadata names can be read in its place"
    if state.info.offload is None or state.info.offload.uuid is None:
        return "the metadata does not tell which copy counts"
    return None


def _named_attempts(info: LedgerInfo) -> Iterator[tuple[UUID, str]]:
    """The attempts that the metadata names for a ledger, and what it says of them."""
    offload = info.offload
    if offload is None:
        return
    for uuid in offload.other_uuids:
        yield uuid, "another of its answers names another"
    if offload.uuid is not None:
        state = {True: "complete", False: "under way, or failed", None: "begun"}
        yield offload.uuid, state[offload.complete]


def _told_cluster(user_metadata: Mapping[str, str] | None) -> str | None:
    """The cluster's name; None where nothing tells it, as in a folder or a copy."""
    return (user_metadata or {}).get(CLUSTER_NAME_KEY) or None


def _witness(topic: TopicLedgers) -> LedgerCopy | None:
    """The newest copy of a topic that is there as the metadata says, uuid and all."""
    return next(
        (
            ledger.copy
            for ledger in reversed(topic.states)
            if ledger.copy is not None
            and ledger.state.is_readable
            and ledger.info is not None
            and ledger.info.offload is not None
            and ledger.info.offload.uuid is not None
        ),
        None,
    )
