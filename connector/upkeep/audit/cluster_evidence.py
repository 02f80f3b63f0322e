"""Whether what lies in a bucket is of the cluster whose metadata is given.

Two clusters may write into one bucket, and have topics of one name, ledgers of one id, and one name
themselves. Three things distinguish them: the cluster's name in the user metadata; and in the index
object the names of the bookies, and when the ledger was created, since BookKeeper gives out its ids
in order. Clusters that were installed alike, as on Kubernetes, may share all names. Then only ids
and times are left. If these prove that one ledger is another cluster's, no ledger that looks like
it is taken to be the cluster's own.

A copy that is there as the metadata says, uuid and all, is the cluster's own. All others are
compared with such copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from arrow_io.core.lazy import cached_property
from connector.catalog.ledger_origin import (
    LedgerTimes,
    bookies_of,
    ledger_metadata_of,
    told_cluster,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from connector.catalog.catalog import Catalog
    from connector.catalog.ledger_copy import LedgerCopy
    from connector.catalog.topic_ledgers import TopicLedgers

_OTHER_BOOKIES: Final = "it was in bookies that no ledger of the cluster was in"
_NO_BOOKIES: Final = "it names no bookie, and the cluster's ledgers do"
_SEVERAL: Final = (
    "the bucket may hold ledgers of several clusters, and nothing says which wrote this one"
)


class ClusterEvidence:
    """Tells why an offload attempt may be another cluster's.

    Args:
        catalog: The bucket and the metadata.
        topics: Every topic of the catalog.
        is_one_cluster: Whether the user says that all that lies in the bucket is of the metadata's
            cluster. What speaks against it counts nevertheless.
    """

    def __init__(
        self, catalog: Catalog, topics: Collection[TopicLedgers], *, is_one_cluster: bool
    ) -> None:
        self._catalog = catalog
        self._is_one_cluster = is_one_cluster
        self._names: dict[str, str | None] = {}
        self._topics = topics
        self._own = {topic.topic: topic.own_copies for topic in topics}
        self._own_by_name = {
            (topic, copy.name.ledger_id): ledger_metadata_of(copy)
            for topic, copies in self._own.items()
            for copy in copies
        }
        self._all_own = [copy for copies in self._own.values() for copy in copies]
        self._times = {
            topic.topic: LedgerTimes(own, topic.metadata.ledgers)
            for topic in topics
            if topic.metadata and (own := self._own[topic.topic])
        }
        self._all_times = LedgerTimes(self._all_own, ())
        self._bookies = {bookie for copy in self._all_own for bookie in bookies_of(copy)}

    def doubt_of_copy(self, topic: TopicLedgers, copy: LedgerCopy) -> str | None:
        """Why a copy may be another cluster's; None if it is surely not.

        Args:
            topic: The topic that it belongs to, with metadata or without.
            copy: The copy.

        Raises:
            MissingObjectError: It was deleted since the bucket was listed.
            StorageError: The user metadata of an object cannot be asked for.
        """
        return (
            self._contradiction(topic, copy)
            or self._doubt_of_name(
                topic,
                self._cluster_name(copy),
                is_proven=not self._bookies.isdisjoint(bookies_of(copy)),
            )
            or self._doubt_of_lookalikes(topic, copy)
        )

    def doubt_of_data(self, topic: TopicLedgers, name: str | None) -> str | None:
        """As `doubt_of_copy`, for what has no index object.

        Args:
            topic: The topic that it belongs to.
            name: Name of its cluster; None if nothing names it.

        Raises:
            StorageError: The user metadata of an object cannot be asked for.
        """
        return self._doubt_of_name(topic, name, is_proven=False) or (
            _SEVERAL if self._strangers else None
        )

    def doubt_of_upload(self, topic: TopicLedgers) -> str | None:
        """As `doubt_of_data`, for an upload, which names neither its topic nor its cluster."""
        names = {
            told_cluster(each.ledger.user_metadata)
            for each in self._catalog.contents.copies
            if each.ledger is not None
        }
        if len(names) > 1:
            return "ledgers of several clusters lie in the bucket, and an upload names none"
        return self.doubt_of_data(topic, next(iter(names), None))

    def _doubt_of_name(
        self, topic: TopicLedgers, name: str | None, *, is_proven: bool
    ) -> str | None:
        """What the cluster's name says.

        Args:
            topic: The topic.
            name: The name that the attempt gives.
            is_proven: Whether anything else shows that the cluster wrote it.
        """
        own = self._own[topic.topic] if topic.metadata is not None else self._all_own
        if not own:
            scope = "of the topic " if topic.metadata is not None else ""
            return (
                f"no ledger {scope}shows that the metadata is of the cluster that wrote the bucket"
            )
        own_name = self._cluster_name(own[-1])
        if None not in (name, own_name):
            return None if name == own_name else "it is another cluster's"
        # Of a topic that it does not have, the cluster must be known by its bookies.
        if self._is_one_cluster and (topic.metadata is not None or is_proven):
            return None
        return "nothing says which cluster wrote it"

    def _contradiction(self, topic: TopicLedgers, copy: LedgerCopy) -> str | None:
        """What in the index object a ledger of the cluster would not have; None if nothing."""
        metadata = ledger_metadata_of(copy)
        if metadata is None:
            # Nothing in it can be compared, so no other ledger may be a stranger's.
            return _SEVERAL if self._strangers else None
        if topic.metadata is not None and topic.metadata.lacks(copy.name.ledger_id):
            return "the metadata lacks its ledger between ledgers that it has"
        same = self._own_by_name.get((topic.topic, copy.name.ledger_id), metadata)
        if same != metadata:
            return "it is of another ledger than the copy that counts: another cluster's, perhaps"
        if self._bookies and self._bookies.isdisjoint(bookies_of(copy)):
            return _OTHER_BOOKIES if bookies_of(copy) else _NO_BOOKIES
        # Ledgers of a topic that the cluster lacks are judged by those of all others.
        times = [self._times.get(topic.topic, self._all_times)]
        if bookies_of(copy):
            times.append(self._bookkeeper_times)
        if not all(each.allow(copy.name.ledger_id, metadata.ctime_ms) for each in times):
            return "its ledger was not created between those before and behind it"
        return None

    @cached_property
    def _bookkeeper_times(self) -> LedgerTimes:
        """When the cluster's ledgers of all topics were created, in the order of their ids.

        Ledgers that were written without BookKeeper are left out: their ids have another order.
        """
        return LedgerTimes([copy for copy in self._all_own if bookies_of(copy)], ())

    @cached_property
    def _strangers(self) -> list[tuple[TopicLedgers, LedgerCopy]]:
        """The copies in the bucket that have what a ledger of the cluster would not have."""
        own = {copy.name for copy in self._all_own}
        return [
            (topic, copy)
            for topic in self._topics
            for state in topic.states
            for copy in (state.copy, *state.others)
            if copy is not None and copy.name not in own and ledger_metadata_of(copy) is not None
            if self._contradiction(topic, copy) is not None
        ]

    def _doubt_of_lookalikes(self, topic: TopicLedgers, copy: LedgerCopy) -> str | None:
        """Whether the copy may be of a cluster that only ids and times of other ledgers show."""
        if self._is_double(topic, copy) or not self._has_lookalike:
            return None
        return "another cluster of the same name and bookies seems to write into the bucket too"

    @cached_property
    def _has_lookalike(self) -> bool:
        """Whether neither names nor bookies distinguish a stranger from the cluster."""
        return any(
            not self._is_double(topic, copy)
            and (not self._bookies or not self._bookies.isdisjoint(bookies_of(copy)))
            and self._cluster_name(copy)
            in {None, self._cluster_name((self._own[topic.topic] or self._all_own)[-1])}
            for topic, copy in self._strangers
            if self._all_own
        )

    def _is_double(self, topic: TopicLedgers, copy: LedgerCopy) -> bool:
        """Whether a copy is of one of the cluster's ledgers; its bookies may have changed."""
        own = self._own_by_name.get((topic.topic, copy.name.ledger_id))
        metadata = ledger_metadata_of(copy)
        return own is not None and metadata is not None and own.ctime_ms == metadata.ctime_ms

    def _cluster_name(self, copy: LedgerCopy) -> str | None:
        key = copy.name.index_name
        if key not in self._names:
            ledger = copy.ledger or copy.cut
            metadata = None if ledger is None else ledger.user_metadata
            if metadata is None:
                # Some stores give it only in answer to another request.
                location = self._catalog.location if ledger is None else ledger.location
                metadata = location.user_metadata(key)
            self._names[key] = told_cluster(metadata)
        return self._names[key]
