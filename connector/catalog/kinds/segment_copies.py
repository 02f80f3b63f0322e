"""Segments of streaming offload (PIP-76) in a bucket, and the copies of ledgers that they form.

A segment holds shares of ledgers of one topic, and a ledger may be spread over several segments.
Pulsar's writer does not record the topic in a segment: the metadata names the segments of each
ledger. Other writers may put the topic into its user metadata, as objects of PIP-17 have it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from arrow_io.core.lazy import cached_property
from arrow_io.core.wording import OR_DELETION
from arrow_io.errors import (
    CorruptIndexError,
    FormatError,
    MissingObjectError,
    PulsarOffloadError,
)
from arrow_io.format.index_block import MANAGED_LEDGER_NAME_KEY
from arrow_io.format.object_names import SegmentName, ShareName, parse_object_name
from arrow_io.ledgers.segments.ledger import SegmentedLedger
from arrow_io.ledgers.segments.reader import OffloadedSegment, SegmentedOffload
from connector.catalog.kinds.ledger_copy import LedgerCopy, are_same, object_versions, objects_of
from connector.catalog.kinds.object_kind import NamedObject, Part
from connector.inputs.topic_names import managed_ledger_owner

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from arrow_io.format.streaming_index import LedgerGroup
    from arrow_io.ledgers.segments.ledger import SegmentShare
    from arrow_io.storage.location import Location
    from arrow_io.storage.object_store import ObjectInfo
    from connector.catalog.metadata.topic_metadata import LedgerInfo, OffloadSegment
    from connector.inputs.topic_names import AnyTopic, TopicName


@dataclass(frozen=True)
class SegmentCopy:
    """One segment in the bucket.

    Attributes:
        topic: The topic that it belongs to; None if its objects do not name it.
        segment: The segment, if its index object is sound.
        error: Why there is no `segment`.
    """

    name: SegmentName
    index: ObjectInfo
    data: ObjectInfo | None
    topic: AnyTopic | None
    segment: OffloadedSegment | None
    error: PulsarOffloadError | None = None

    index_error = None

    @property
    def objects(self) -> tuple[ObjectInfo, ...]:
        """Its objects, index object first."""
        return objects_of(self.index, self.data)

    def is_unchanged(self, index: ObjectInfo, data: ObjectInfo | None) -> bool:
        """Return whether a later listing shows the same objects and they are sound."""
        return self.error is None and are_same(self.index, self.data, index, data)

    def as_listed(self, index: ObjectInfo, data: ObjectInfo | None) -> SegmentCopy:
        """Return the same segment, which keeps the versions in which it was read."""
        del index, data
        return self

    @cached_property
    def copies(self) -> tuple[SegmentedCopy, ...]:
        """Its share of each ledger; empty if the index object is not sound."""
        if self.segment is None:
            return ()
        return tuple(segmented_copy(each, [self]) for each in self.segment.ledger_ids)


@dataclass(frozen=True)
class SegmentedCopy(LedgerCopy):
    """The shares of one ledger in one or more segments.

    Attributes:
        name: The name of its share of the first segment.
        pairs: The segments, in the order of its entries.
        topic: The topic that it belongs to; None if nothing names it.
        ledger: The ledger, if all of its segments exist and are sound.
        error: Why there is no `ledger`.
        cut: The readable part of the ledger, if there is an error.
    """

    name: ShareName
    pairs: tuple[SegmentCopy, ...]
    topic: AnyTopic | None
    ledger: SegmentedOffload | None
    error: PulsarOffloadError | None = None
    cut: SegmentedOffload | None = None

    is_shared = True
    extra_bytes = 0

    @property
    def index(self) -> ObjectInfo:
        """The index object of its first segment, as it was listed."""
        return self.pairs[0].index

    @property
    def data(self) -> ObjectInfo | None:
        """The data object of its first segment as it was listed; None if it is missing."""
        return self.pairs[0].data

    @property
    def objects(self) -> tuple[ObjectInfo, ...]:
        """All of its objects; other ledgers may have shares of them."""
        return tuple(info for each in self.pairs for info in each.objects)

    @property
    def data_bytes(self) -> int | None:
        """Bytes that it occupies in data objects; None if there is no data object."""
        ledger = self.ledger or self.cut
        return None if ledger is None or self.data is None else ledger.data.stored_bytes

    @property
    def stored_bytes(self) -> int:
        """Bytes that it occupies in data objects: other ledgers share the index objects."""
        return self.data_bytes or 0

    def with_topic(self, topic: AnyTopic) -> SegmentedCopy:
        """Return the copy with the topic that metadata names, unless it names one itself."""
        return self if self.topic is not None else replace(self, topic=topic)


class StreamedSegments:
    """The kind of PIP-76 (`ObjectKind`)."""

    title = "streaming offload (PIP-76)"
    unit = "segment"
    driver: str | None = None
    snapshot_form = None
    name_type = SegmentName

    def parse(self, object_name: str) -> NamedObject | None:
        """Parse the name of an object; return None if it is not of this kind."""
        parsed = parse_object_name(object_name)
        if parsed is None or not parsed.is_streaming:
            return None
        return NamedObject(SegmentName(parsed.uuid), Part.INDEX if parsed.is_index else Part.DATA)

    def named_pairs(self, topic: TopicName, info: LedgerInfo) -> Sequence[SegmentName]:
        """Return the names of the segments that metadata names for a ledger."""
        del topic
        return [SegmentName(each.uuid) for each in _named_segments(info)]

    def read(
        self,
        location: Location,
        name: SegmentName,
        *,
        index: ObjectInfo,
        data: ObjectInfo | None,
        checksums: tuple[ObjectInfo, ...],
    ) -> SegmentCopy:
        """Read an index object: one request, plus those of `OffloadedSegment.open`."""
        del checksums
        topic = segment = None
        error: PulsarOffloadError | None = None
        try:
            segment = OffloadedSegment.open(
                location,
                name,
                data_size_bytes=None if data is None else data.size_bytes,
                versions=object_versions(index, data),
                listed=index,
            )
            managed_ledger = segment.managed_ledger
            if segment.user_metadata is None:
                metadata = location.user_metadata(name.index_name) or {}
                managed_ledger = metadata.get(MANAGED_LEDGER_NAME_KEY)
            if managed_ledger is not None:
                topic = managed_ledger_owner(managed_ledger)
        except (FormatError, MissingObjectError) as cause:
            error, segment = cause.located(object_key=name.index_name), None
        return SegmentCopy(name, index, data, topic, segment, error)

    def join_shares(
        self, copies: Sequence[SegmentedCopy], info: LedgerInfo | None
    ) -> Sequence[SegmentedCopy]:
        """Join the segments that metadata names for a ledger; if it names none, join all."""
        named_segments = _named_segments(info)
        uuids = {each.uuid for each in named_segments}
        selected = [each for each in copies if not named_segments or each.name.uuid in uuids]
        if not selected:
            return copies
        segments = [segment for each in selected for segment in each.pairs]
        copy = segmented_copy(selected[0].name.ledger_id, segments, named_segments)
        topic = next((each.topic for each in selected if each.topic is not None), None)
        copy = copy if topic is None else copy.with_topic(topic)
        return [copy, *(each for each in copies if each not in selected)]


def _named_segments(info: LedgerInfo | None) -> Sequence[OffloadSegment]:
    return info.offload.whole_segments if info is not None and info.offload is not None else ()


def segmented_copy(
    ledger_id: int, segments: Sequence[SegmentCopy], named_segments: Sequence[OffloadSegment] = ()
) -> SegmentedCopy:
    """Join the shares that some segments have of a ledger.

    Args:
        ledger_id: The ledger.
        segments: Segments that have a share of it, at least one. Of two that start with the same
            entry, the first counts.
        named_segments: All segments that the metadata names, whether they exist or not.
    """
    ends = {each.uuid: each.end_entry_id for each in named_segments}
    shares: list[SegmentShare] = []
    groups: list[LedgerGroup] = []
    errors: list[PulsarOffloadError] = []
    present = {each.name.uuid for each in segments}
    for uuid in (each for each in ends if each not in present):
        message = "the metadata names a segment of the ledger whose index object is missing"
        key = SegmentName(uuid).index_name
        errors.append(MissingObjectError(message, object_key=key, ledger_id=ledger_id))
    for each in segments:
        if each.segment is None:
            continue
        position = each.segment.share_indexes[ledger_id]
        share = each.segment.shares[position]
        groups.append(each.segment.index.groups[position])
        errors += _errors(each, share)
        end = ends.get(each.name.uuid)
        if end is not None and share.first_entry_id <= end < share.last_entry_id:
            share = share.clip(end)
        shares.append(share)
    closed = [each for each in groups if each.is_closed]
    entries = max(each.entries for each in (closed or groups))
    recorded_sizes = {(each.entries, each.size_bytes) for each in closed}
    if len(recorded_sizes) > 1 or any(each.entries > entries for each in groups):
        message = "segments of the ledger disagree about its number of entries or bytes"
        key = segments[0].name.index_name
        errors.append(CorruptIndexError(message, object_key=key, ledger_id=ledger_id))
    topics = {each.topic for each in segments} - {None}
    if len(topics) > 1:
        message = f"segments of the ledger belong to different topics: {_texts(topics)}"
        key = segments[0].name.index_name
        errors.append(CorruptIndexError(message, object_key=key, ledger_id=ledger_id))
    data = SegmentedLedger.from_shares(
        shares,
        entries=entries,
        length_bytes=(closed[0].size_bytes or 0) if closed else 0,
    )
    for gap in data.gaps():
        # If the metadata names the segments, each missing one already has its own error.
        gap.message += "" if named_segments else OR_DELETION
        errors.append(gap)
    by_uuid = {each.name.uuid: each for each in segments}
    ordered = dict.fromkeys((*(share.name.uuid for share in data.shares), *by_uuid))
    ledger = SegmentedOffload(
        data,
        by_uuid[data.shares[0].name.uuid].segment.user_metadata,  # type: ignore[union-attr]
        tuple(text for each in segments if each.segment for text in each.segment.warnings),
    )
    ordered_segments = tuple(by_uuid[uuid] for uuid in ordered)
    return SegmentedCopy(
        ShareName(ordered_segments[0].name.uuid, ledger_id),
        ordered_segments,
        next(iter(topics)) if len(topics) == 1 else None,
        None if errors else ledger,
        errors[0] if errors else None,
        ledger if errors else None,
    )


def _errors(each: SegmentCopy, share: SegmentShare) -> Iterator[PulsarOffloadError]:
    if each.error is not None:
        yield each.error
    if each.data is None:
        message = f"the index object exists, but its data object is missing{OR_DELETION}"
        key = each.name.data_name
        yield MissingObjectError(message, object_key=key, ledger_id=share.ledger_id)
    if each.segment is not None and (truncation := each.segment.truncation(share)) is not None:
        yield truncation


def _texts(topics: Iterable[object]) -> str:
    return ", ".join(sorted(map(str, topics)))
