"""An attempt that nothing needs, in a bucket, with metadata that says so: for tests to change."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

from arrow_io.errors import CorruptIndexError
from arrow_io.format.index_block import CLUSTER_NAME_KEY
from arrow_io.format.object_names import LedgerObjectName
from arrow_io.ledgers.reader import OffloadedLedger
from arrow_io.storage.location import Location
from connector.catalog.bucket import BucketContents, read_bucket
from connector.catalog.metadata.topic_metadata import LedgerInfo, OffloadContext, TopicMetadata
from connector.catalog.scalable_topics import ScalableTopics
from connector.catalog.topic_ledgers import TopicLedgers, from_bucket, from_metadata
from connector.inputs.times import milliseconds_of
from connector.inputs.topic_names import TopicName
from connector.upkeep.audit.deletability import CLOCK_DIFFERENCE, Deletability
from tests.support.golden import GOLDEN
from tests.support.offloads import offloaded_copies

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from arrow_io.format.ledger_metadata import LedgerMetadata
    from connector.catalog.catalog import Catalog
    from connector.catalog.kinds.offloaded_copy import OffloadedCopy

TOPIC: Final = TopicName.parse("small-chunked")
LAST: Final = datetime(2026, 11, 21, 12, 50, tzinfo=UTC)
"""The latest time that the metadata has."""
NEWEST: Final = LAST - CLOCK_DIFFERENCE
"""What was written then may be as new as the metadata."""
TAKEN: Final = LAST + timedelta(days=30)
OLD: Final = NEWEST - timedelta(microseconds=1)
OTHER_UUID: Final = UUID(int=7)


@cache
def golden() -> tuple[OffloadedCopy, ...]:
    """The golden topic's eight ledgers, 14 … 21, as their cluster wrote them to an object store."""
    contents = read_bucket(Location(str(GOLDEN / "pulsar-4.0.7-small" / "objects")))
    return tuple(named(copy, "pulsar") for copy in offloaded_copies(contents, TOPIC))


def named(copy: OffloadedCopy, cluster: str | None) -> OffloadedCopy:
    """The copy, of a cluster of this name."""
    assert isinstance(copy.ledger, OffloadedLedger)
    told = {} if cluster is None else {CLUSTER_NAME_KEY: cluster}
    return replace(copy, ledger=replace(copy.ledger, user_metadata=told))


def changed(copy: OffloadedCopy, **of_metadata: Any) -> OffloadedCopy:  # noqa: ANN401
    """The copy, with something else in its ledger metadata."""
    assert isinstance(copy.ledger, OffloadedLedger)
    metadata = replace(ledger_metadata(copy), **of_metadata)
    index = replace(copy.ledger.index, ledger_metadata=metadata)
    return replace(copy, ledger=replace(copy.ledger, index=index))


def ledger_metadata(copy: OffloadedCopy) -> LedgerMetadata:
    """What its index object says of the ledger."""
    assert isinstance(copy.ledger, OffloadedLedger)
    return copy.ledger.ledger_metadata


def under(copy: OffloadedCopy, uuid: UUID) -> OffloadedCopy:
    """The copy under another uuid."""
    return replace(copy, name=replace(copy.name, uuid=uuid))


def unreadable(copy: OffloadedCopy) -> OffloadedCopy:
    """The copy, with an index object that cannot be read."""
    return replace(copy, ledger=None, error=CorruptIndexError("damaged"))


@dataclass
class Store:
    """What tells an object's user metadata, by a request each.

    Attributes:
        clusters: Names of clusters, by name of the index object.
        asked: Names of the objects that were asked for.
    """

    clusters: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def user_metadata(self, name: str) -> dict[str, str]:
        """The cluster's name, if it is known."""
        self.asked.append(name)
        return {CLUSTER_NAME_KEY: self.clusters[name]} if name in self.clusters else {}

    def keeps(self, copy: OffloadedCopy, cluster: str) -> OffloadedCopy:
        """The copy, of a cluster whose name only a request tells."""
        assert isinstance(copy.ledger, OffloadedLedger)
        self.clusters[copy.name.index_name] = cluster
        ledger = replace(copy.ledger, user_metadata=None, location=cast("Location", self))
        return replace(copy, ledger=ledger)


def told(copy: OffloadedCopy) -> LedgerInfo:
    """What the cluster says of a copy of its own."""
    metadata = ledger_metadata(copy)
    created_ms = metadata.ctime_ms or 0
    return LedgerInfo(
        ledger_id=copy.name.ledger_id,
        entries=metadata.last_entry_id + 1,
        size_bytes=metadata.length_bytes,
        timestamp_ms=created_ms + 1,
        offload=OffloadContext(uuid=copy.name.uuid, complete=True, timestamp_ms=created_ms + 2),
    )


@dataclass
class Scene:
    """A bucket, metadata, and an attempt that nothing needs; tests change one thing of it."""

    subject: OffloadedCopy
    own: list[OffloadedCopy] = field(default_factory=lambda: list(golden()))
    infos: list[LedgerInfo] | None = field(default_factory=lambda: list(map(told, golden())))
    modified: datetime | None = OLD
    proven_to: int = 2**62
    is_live: bool = False
    is_one_cluster: bool = False
    last: datetime | None = LAST
    listed: Sequence[TopicName] = ()
    others: list[TopicLedgers] = field(default_factory=list)
    attempt_cluster: str | None = "pulsar"
    attempts: Sequence[LedgerObjectName] = ()
    store: Store = field(default_factory=Store)

    def deletability(self) -> tuple[Deletability, TopicLedgers]:
        """What is asked, and the topic."""
        copies = [*self.own, self.subject]
        copies.sort(key=lambda copy: copy.name.ledger_id)
        topic = from_bucket(TOPIC, copies)
        if self.infos is not None:
            topic = from_metadata(self._metadata(self.infos), copies, lambda _: None)
        contents = BucketContents(Location("memory://none"), tuple(copies))
        told = None if self.attempt_cluster is None else {CLUSTER_NAME_KEY: self.attempt_cluster}
        attempts = dict.fromkeys((self.subject.name, *self.attempts), told)
        catalog = SimpleNamespace(
            contents=contents,
            listed_at=TAKEN,
            source=SimpleNamespace(is_live=self.is_live, topics=self._listed_in),
            scalable_topics=ScalableTopics(None),
            location=self.store,
            unfinished=SimpleNamespace(user_metadata=attempts.__getitem__),
        )
        topics = [topic, *self.others]
        return (
            Deletability(cast("Catalog", catalog), topics, is_one_cluster=self.is_one_cluster),
            topic,
        )

    def _listed_in(self, namespaces: Collection[str]) -> list[TopicName]:
        return [each for each in self.listed if each.full_namespace in namespaces]

    def _metadata(self, infos: list[LedgerInfo]) -> TopicMetadata:
        if self.last is None:
            infos = [timeless(info) for info in infos]
        else:
            # An empty ledger behind the others, closed at the latest time.
            last_ms = milliseconds_of(self.last)
            infos = [*infos, LedgerInfo(ledger_id=30, entries=0, timestamp_ms=last_ms)]
        return TopicMetadata(
            topic=TOPIC, ledgers=tuple(infos), proven_to_ledger_id=min(self.proven_to, 30)
        )

    def doubt(self) -> str | None:
        """Why the attempt is kept, if it has an index object."""
        deletability, topic = self.deletability()
        return deletability.doubt_of_copy(topic, self.subject, self.modified)

    def doubt_of_data(self) -> str | None:
        """Why it is kept, if it has none."""
        deletability, topic = self.deletability()
        return deletability.doubt_of_data(topic, self._name, self.modified)

    def doubt_of_upload(self) -> str | None:
        """Why it is kept, if it is an upload."""
        deletability, topic = self.deletability()
        return deletability.doubt_of_upload(topic, self._name, self.modified)

    def doubts(self) -> list[str | None]:
        """Why it is kept in each of these forms."""
        return [self.doubt(), self.doubt_of_data(), self.doubt_of_upload()]

    @property
    def _name(self) -> LedgerObjectName:
        assert isinstance(self.subject.name, LedgerObjectName)
        return self.subject.name


def timeless(info: LedgerInfo) -> LedgerInfo:
    """The ledger without any time."""
    offload = info.offload and replace(info.offload, timestamp_ms=None)
    return replace(info, timestamp_ms=None, offload=offload)


def double() -> Scene:
    """A further copy of ledger 17, which is there as the metadata says."""
    return Scene(under(golden()[3], OTHER_UUID))


def orphan() -> Scene:
    """Ledger 14, the topic's first, which the metadata does not have any more."""
    subject, *own = golden()
    return Scene(subject, own=own, infos=list(map(told, own)))


def of_deleted_topic() -> Scene:
    """Ledger 17 of a topic that a live cluster, which wrote the bucket, does not know."""
    other = TopicName.parse("other")
    own = [replace(copy, topic=other) for copy in (*golden()[:3], *golden()[4:])]
    metadata = TopicMetadata(topic=other, ledgers=tuple(map(told, own)))
    return Scene(
        golden()[3],
        own=[],
        infos=None,
        is_live=True,
        is_one_cluster=True,
        others=[from_metadata(metadata, own, lambda _: None)],
    )


SCENES: Final = (double, orphan, of_deleted_topic)


def change_offload(scene: Scene, ledger_id: int, **changes: Any) -> None:  # noqa: ANN401
    """Let the metadata say something else of the offload of a ledger."""
    assert scene.infos is not None
    scene.infos = [
        replace(info, offload=replace(info.offload, **changes))
        if info.ledger_id == ledger_id and info.offload is not None
        else info
        for info in scene.infos
    ]
