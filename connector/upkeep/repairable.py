"""Which offload attempts in a bucket lack a sound index object, and what is known of each."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from arrow_io.format.object_names import LedgerObjectName, SegmentName
from connector.catalog.ledger_origin import ledger_metadata_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from arrow_io.format.ledger_metadata import LedgerMetadata
    from arrow_io.storage.object_store import ObjectInfo
    from connector.catalog.catalog import Catalog
    from connector.catalog.ledger_copy import LedgerCopy
    from connector.catalog.metadata.topic_metadata import LedgerInfo
    from connector.topic_name import TopicName

NO_INDEX: Final = "there is no index object"
_IS_SEGMENT: Final = (
    "index objects of streaming offload (PIP-76) are not rebuilt: its writer miscounts blocks, and"
    " what it notes of ledgers is in no data object"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One offload attempt.

    Attributes:
        name: Names of its objects.
        data: What the listing said of its data object; None if there is none.
        index: What it said of its index object; None likewise.
        problem: What is wrong with the index object, in words; None if nothing is known to be.
        topic: The topic that has the ledger, as far as the metadata or the index object says it.
        info: What the metadata says of the ledger.
        others: Metadata of the ledger in other copies of it, whose index objects are sound.
        refusal: Why its index object is not to be rebuilt; None if it is.
    """

    name: LedgerObjectName | SegmentName
    data: ObjectInfo | None
    index: ObjectInfo | None
    problem: str | None
    topic: TopicName | None = None
    info: LedgerInfo | None = None
    others: tuple[tuple[UUID, LedgerMetadata], ...] = ()
    refusal: str | None = None

    @property
    def ledger_id(self) -> int | None:
        """BookKeeper ledger id; None for a segment of streaming offload."""
        return self.name.ledger_id if isinstance(self.name, LedgerObjectName) else None


def repairable_attempts(catalog: Catalog, ledger_ids: Collection[int] = ()) -> list[Attempt]:
    """The attempts whose index object is missing or unsound, by the names of their objects.

    Args:
        catalog: The bucket, with the metadata if there is any.
        ledger_ids: Ledgers whose every attempt is wanted, and no others; none: all ledgers.

    Raises:
        PulsarOffloadError: The metadata or an object cannot be read.
    """
    wanted = [
        each
        for each in _Known(catalog).attempts()
        if (each.ledger_id in ledger_ids if ledger_ids else each.problem is not None)
    ]
    return sorted(wanted, key=lambda each: (each.ledger_id or -1, each.name.data_name))


class _Known:
    """What the bucket and the metadata say."""

    def __init__(self, catalog: Catalog) -> None:
        self._topics = catalog.every_ledger()
        self._contents = catalog.contents
        self._has_metadata = catalog.source is not None
        self._named: dict[LedgerObjectName, tuple[TopicName, LedgerInfo]] = {}
        self._unnamed: dict[int, list[tuple[TopicName, LedgerInfo]]] = defaultdict(list)
        self._sound: dict[int, list[LedgerCopy]] = defaultdict(list)
        for topic in self._topics:
            for info in topic.metadata.ledgers if topic.metadata else ():
                self._learn(topic.topic, info)
        for copy in self._contents.copies:
            if copy.ledger is not None:
                self._sound[copy.name.ledger_id].append(copy)

    def _learn(self, topic: TopicName, info: LedgerInfo) -> None:
        offload = info.offload
        if offload is None:
            return
        for uuid in offload.uuids:
            self._named[LedgerObjectName(uuid, info.ledger_id)] = topic, info
        if not offload.uuids:
            self._unnamed[info.ledger_id].append((topic, info))

    def attempts(self) -> Iterator[Attempt]:
        """All attempts."""
        # An index object may be sound, and contradict the metadata.
        errors = {
            state.copy.name: state.error
            for topic in self._topics
            for state in topic.states
            if state.copy is not None and state.error is not None
        }
        for copy in self._contents.copies:
            if isinstance(copy.name, LedgerObjectName):
                error = copy.error or errors.get(copy.name)
                problem = None if error is None else str(error)
                yield self._attempt(copy.name, copy.data, copy.index, problem, copy.topic)
        for each in self._contents.unfinished:
            yield self._attempt(each.name, each.data, None, NO_INDEX, None)
        for segment in self._contents.segments:
            if segment.error is not None:
                yield _of_segment(segment.name, segment.data, segment.index, str(segment.error))
        for info in self._contents.streaming:
            yield _of_segment(SegmentName(UUID(info.name)), info, None, NO_INDEX)

    def _attempt(
        self,
        name: LedgerObjectName,
        data: ObjectInfo | None,
        index: ObjectInfo | None,
        problem: str | None,
        topic: TopicName | None,
    ) -> Attempt:
        others = [each for each in self._sound[name.ledger_id] if each.name != name]
        known = self._owner(name, others)
        told = [(each.name.uuid, ledger_metadata_of(each)) for each in others]
        return Attempt(
            name=name,
            data=data,
            index=index,
            problem=problem,
            topic=topic if known is None else known[0],
            info=None if known is None else known[1],
            others=tuple((uuid, metadata) for uuid, metadata in told if metadata is not None),
            refusal=self._refusal(data, known, others),
        )

    def _owner(
        self, name: LedgerObjectName, others: list[LedgerCopy]
    ) -> tuple[TopicName, LedgerInfo] | None:
        """The topic whose metadata says that this attempt counts, or may count."""
        unnamed = self._unnamed[name.ledger_id]
        if name in self._named or len(unnamed) != 1 or others:
            return self._named.get(name)
        return unnamed[0]

    def _refusal(
        self,
        data: ObjectInfo | None,
        known: tuple[TopicName, LedgerInfo] | None,
        others: list[LedgerCopy],
    ) -> str | None:
        if data is None:
            return "its data object is not there"
        if self._has_metadata and known is None:
            return "the metadata of no topic names this offload"
        if known is not None and known[1].offload and known[1].offload.complete is False:
            return "the metadata says that this offload is under way, or failed"
        if not self._has_metadata and others:
            return f"another copy of the ledger is sound, under the uuid {others[0].name.uuid}"
        return None


def _of_segment(
    name: SegmentName, data: ObjectInfo | None, index: ObjectInfo | None, problem: str
) -> Attempt:
    return Attempt(name=name, data=data, index=index, problem=problem, refusal=_IS_SEGMENT)
