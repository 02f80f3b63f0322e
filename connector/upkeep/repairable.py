"""Which offload attempts in a bucket lack a sound index object, and what is known of each."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from uuid import UUID

from arrow_io.errors import CorruptIndexError
from arrow_io.format.object_names import LedgerObjectName, SegmentName
from connector.catalog.ledger_origin import ledger_metadata_of
from connector.catalog.segment_copies import SegmentedCopy
from connector.upkeep.attempt import LedgerAttempt, SegmentAttempt

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from arrow_io.errors import PulsarOffloadError
    from arrow_io.format.streaming_index import ShareInfo
    from arrow_io.storage.object_store import ObjectInfo
    from connector.catalog.catalog import Catalog
    from connector.catalog.ledger_copy import LedgerCopy
    from connector.catalog.metadata.topic_metadata import (
        LedgerInfo,
        OffloadSegment,
        TopicMetadata,
    )
    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.topic_name import ForeignTopic, TopicName

NO_INDEX: Final = "there is no index object"
_UNDER_WAY: Final = "the metadata says that this offload is under way, or failed"
_NO_DATA: Final = "its data object is not there"
_NOT_NAMED: Final = "the metadata of no topic names this offload"


def repairable_attempts(
    catalog: Catalog, ledger_ids: Collection[int] = ()
) -> list[LedgerAttempt | SegmentAttempt]:
    """The attempts whose index object is missing or unsound, by the names of their objects.

    Args:
        catalog: The bucket, with the metadata if there is any.
        ledger_ids: Ledgers whose every attempt is wanted, and no others but segments of which
            nothing says what ledgers they have; none: all ledgers.

    Raises:
        PulsarOffloadError: The metadata or an object cannot be read.
    """
    topics = catalog.every_ledger()
    found: list[LedgerAttempt | SegmentAttempt] = [
        *_KnownLedgers(catalog, topics).attempts(),
        *_KnownSegments(catalog, topics).attempts(),
    ]
    wanted = [each for each in found if _is_wanted(each, ledger_ids)]
    return sorted(wanted, key=lambda each: (min(each.ledger_ids, default=-1), each.name.data_name))


def _is_wanted(attempt: LedgerAttempt | SegmentAttempt, ledger_ids: Collection[int]) -> bool:
    if not ledger_ids:
        return attempt.problem is not None
    if not attempt.ledger_ids:
        return attempt.refusal is None
    return not set(attempt.ledger_ids).isdisjoint(ledger_ids)


class _KnownLedgers:
    """What the bucket and the metadata say of ledgers of PIP-17."""

    def __init__(self, catalog: Catalog, topics: Sequence[TopicLedgers]) -> None:
        self._topics = topics
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

    def attempts(self) -> Iterator[LedgerAttempt]:
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

    def _attempt(
        self,
        name: LedgerObjectName,
        data: ObjectInfo | None,
        index: ObjectInfo | None,
        problem: str | None,
        topic: TopicName | ForeignTopic | None,
    ) -> LedgerAttempt:
        others = [each for each in self._sound[name.ledger_id] if each.name != name]
        known = self._owner(name, others)
        told = [(each.name.uuid, ledger_metadata_of(each)) for each in others]
        return LedgerAttempt(
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
            return _NO_DATA
        if self._has_metadata and known is None:
            return _NOT_NAMED
        if known is not None and known[1].offload and known[1].offload.complete is False:
            return _UNDER_WAY
        if not self._has_metadata and others:
            return f"another copy of the ledger is sound, under the uuid {others[0].name.uuid}"
        return None


class _KnownSegments:
    """What the bucket and the metadata say of segments of streaming offload (PIP-76)."""

    def __init__(self, catalog: Catalog, topics: Sequence[TopicLedgers]) -> None:
        self._contents = catalog.contents
        self._has_metadata = catalog.source is not None
        self._infos: dict[TopicName, dict[int, LedgerInfo]] = {}
        self._owners: dict[UUID, set[TopicName]] = defaultdict(set)
        self._named: dict[UUID, dict[int, OffloadSegment]] = defaultdict(dict)
        self._errors: dict[SegmentName, PulsarOffloadError] = {}
        self._closed: dict[int, list[tuple[UUID, ShareInfo]]] = defaultdict(list)
        for topic in topics:
            if topic.metadata is not None:
                self._learn(topic.metadata)
            for state in topic.states:
                # Index objects may be sound, and contradict each other or the metadata.
                if isinstance(state.error, CorruptIndexError):
                    copy = state.copy if isinstance(state.copy, SegmentedCopy) else None
                    names = (each.name for each in (copy.segments if copy else ()))
                    self._errors |= dict.fromkeys(names, state.error)
        for each in self._contents.segments:
            for group in each.segment.index.groups if each.segment else ():
                if group.is_closed:
                    self._closed[group.ledger_id].append((each.name.uuid, group))

    def _learn(self, metadata: TopicMetadata) -> None:
        self._infos[metadata.topic] = {info.ledger_id: info for info in metadata.ledgers}
        for info in metadata.ledgers:
            for segment in info.offload.segments if info.offload else ():
                self._owners[segment.uuid].add(metadata.topic)
                self._named[segment.uuid][info.ledger_id] = segment

    def attempts(self) -> Iterator[SegmentAttempt]:
        """All segments."""
        for segment in self._contents.segments:
            error = segment.error or self._errors.get(segment.name)
            problem = None if error is None else str(error)
            ids = segment.segment.ledger_ids if segment.segment else ()
            found = self._attempt(segment.name, segment.data, segment.index, problem, ids)
            yield replace(found, topic=found.topic or segment.topic)
        for info in self._contents.streaming:
            yield self._attempt(SegmentName(UUID(info.name)), info, None, NO_INDEX)

    def _attempt(
        self,
        name: SegmentName,
        data: ObjectInfo | None,
        index: ObjectInfo | None,
        problem: str | None,
        ledger_ids: Sequence[int] = (),
    ) -> SegmentAttempt:
        owners = self._owners[name.uuid]
        topic = next(iter(owners)) if len(owners) == 1 else None
        named = self._named[name.uuid]
        found = SegmentAttempt(
            name=name,
            data=data,
            index=index,
            problem=problem,
            topic=topic,
            ledger_ids=tuple(sorted({*ledger_ids, *named})),
            named=named,
            infos={} if topic is None else self._infos[topic],
            others=self._closed,
        )
        return replace(found, refusal=self._refusal(found, len(owners)))

    def _refusal(self, attempt: SegmentAttempt, owner_count: int) -> str | None:
        if attempt.data is None:
            return _NO_DATA
        if self._has_metadata and not owner_count:
            return _NOT_NAMED
        if owner_count > 1:
            return "the metadata of several topics names this segment"
        for ledger_id, segment in attempt.named.items():
            offload = attempt.infos[ledger_id].offload
            # Of a ledger that goes on, the whole offload may be under way.
            told = offload.complete if segment.complete is None and offload else segment.complete
            if told is False:
                return _UNDER_WAY
        return None
