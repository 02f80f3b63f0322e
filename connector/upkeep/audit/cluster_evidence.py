"""Whether objects in a bucket belong to the cluster whose metadata is used.

Two clusters may share a bucket, and may have the same topic names, ledger ids and cluster name.
Three facts distinguish them:

- the cluster's name in the user metadata
- the names of the bookies in the index object
- the creation time in the index object, since BookKeeper assigns ids in order of creation

Clusters that were installed alike, as on Kubernetes, may share all names. Then only ids and times
are left. If these prove that one ledger is another cluster's, ledgers with the same names are not
assumed to be the cluster's own.

A copy that matches the metadata, including its uuid, is the cluster's own. All others are compared
with such copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from arrow_io.core.lazy import cached_property
from connector.catalog.ledger_origin import (
    LedgerTimes,
    bookies_of,
    ledger_metadata_of,
    recorded_cluster,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from connector.catalog.catalog import Catalog
    from connector.catalog.kinds.ledger_copy import LedgerCopy
    from connector.catalog.topic_ledgers import TopicLedgers

_OTHER_BOOKIES: Final = "it was stored on bookies that no ledger of the cluster used"
_NO_BOOKIES: Final = "it names no bookie, unlike the cluster's ledgers"
_SEVERAL: Final = (
    "the bucket may hold ledgers of several clusters, and nothing says which wrote this one"
)


class ClusterEvidence:
    """Decides whether an offload attempt may be another cluster's, and why.

    Args:
        topics: Every topic of the catalog.
        is_one_cluster: Whether the user asserts that the whole bucket belongs to the metadata's
            cluster. Contrary evidence still counts.
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
        """Return why a copy may be another cluster's, or None if it certainly is not.

        The topic may have no metadata.

        Raises:
            MissingObjectError: An object was deleted since the bucket was listed.
            StorageError: The user metadata of an object cannot be read.
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
        """Return why objects without an index object may be another cluster's, or None.

        `name` is the name of their cluster, or None if they do not have it.

        Raises:
            StorageError: The user metadata of an object cannot be read.
        """
        return self._doubt_of_name(topic, name, is_proven=False) or (
            _SEVERAL if self._strangers else None
        )

    def doubt_of_upload(self, topic: TopicLedgers) -> str | None:
        """Return why an upload, which names no topic and no cluster, may be another cluster's."""
        names = {
            recorded_cluster(each.ledger.user_metadata)
            for each in self._catalog.contents.copies
            if each.ledger is not None
        }
        if len(names) > 1:
            return "the bucket has ledgers of several clusters, and an upload names none"
        return self.doubt_of_data(topic, next(iter(names), None))

    def _doubt_of_name(
        self, topic: TopicLedgers, name: str | None, *, is_proven: bool
    ) -> str | None:
        """Return the doubt that follows from the cluster's name in an attempt.

        `is_proven` tells whether other evidence shows that the cluster wrote it.
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
        # For a topic that the cluster lacks, only its bookies can prove that it wrote the copy.
        if self._is_one_cluster and (topic.metadata is not None or is_proven):
            return None
        return "nothing says which cluster wrote it"

    def _contradiction(self, topic: TopicLedgers, copy: LedgerCopy) -> str | None:
        """Return what in the index object contradicts the cluster's ledgers, or None."""
        metadata = ledger_metadata_of(copy)
        if metadata is None:
            # It cannot be compared, so it is trusted only if no other ledger is a stranger's.
            return _SEVERAL if self._strangers else None
        if topic.metadata is not None and topic.metadata.lacks(copy.name.ledger_id):
            return "the metadata has earlier and later ledgers, but not this one"
        same = self._own_by_name.get((topic.topic, copy.name.ledger_id), metadata)
        if same != metadata:
            return "it is of another ledger than the copy that counts, perhaps another cluster's"
        if self._bookies and self._bookies.isdisjoint(bookies_of(copy)):
            return _OTHER_BOOKIES if bookies_of(copy) else _NO_BOOKIES
        # Ledgers of a topic that the cluster lacks are compared with those of all topics.
        times = [self._times.get(topic.topic, self._all_times)]
        if bookies_of(copy):
            times.append(self._bookkeeper_times)
        if not all(each.allow(copy.name.ledger_id, metadata.ctime_ms) for each in times):
            return "its ledger was not created between the previous and the next ledger"
        return None

    @cached_property
    def _bookkeeper_times(self) -> LedgerTimes:
        """Creation times of the cluster's ledgers of all topics, in the order of their ids.

        Ledgers that were written without BookKeeper are left out: their ids are in another order.
        """
        return LedgerTimes([copy for copy in self._all_own if bookies_of(copy)], ())

    @cached_property
    def _strangers(self) -> list[tuple[TopicLedgers, LedgerCopy]]:
        """The copies in the bucket that contradict the cluster's ledgers."""
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
        """Return why a cluster with the same names may have written the copy."""
        if self._is_double(topic, copy) or not self._has_lookalike:
            return None
        return "another cluster of the same name and bookies seems to write into the bucket too"

    @cached_property
    def _has_lookalike(self) -> bool:
        """Whether a stranger has the same cluster name and bookies as the cluster."""
        return any(
            not self._is_double(topic, copy)
            and (not self._bookies or not self._bookies.isdisjoint(bookies_of(copy)))
            and self._cluster_name(copy)
            in {None, self._cluster_name((self._own[topic.topic] or self._all_own)[-1])}
            for topic, copy in self._strangers
            if self._all_own
        )

    def _is_double(self, topic: TopicLedgers, copy: LedgerCopy) -> bool:
        """Return whether a copy is of a ledger of the cluster; its bookies may have changed."""
        own = self._own_by_name.get((topic.topic, copy.name.ledger_id))
        metadata = ledger_metadata_of(copy)
        return own is not None and metadata is not None and own.ctime_ms == metadata.ctime_ms

    def _cluster_name(self, copy: LedgerCopy) -> str | None:
        key = copy.name.index_name
        if key not in self._names:
            ledger = copy.ledger or copy.cut
            metadata = None if ledger is None else ledger.user_metadata
            if metadata is None:
                # Some stores return user metadata only in response to a separate request.
                location = self._catalog.location if ledger is None else ledger.location
                metadata = location.user_metadata(key)
            self._names[key] = recorded_cluster(metadata)
        return self._names[key]
