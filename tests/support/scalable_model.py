"""A cluster with one scalable topic, whose segments split, merge and are pruned, and its bucket.

The model numbers the messages in the order in which producers sent them, and knows by construction
which segment has which; no reader is asked. Clocks of producers and ids of ledgers say nothing of
that order, apart from ledgers of one segment.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from connector.catalog.metadata.managed_ledger import serialize_managed_ledger_info
from connector.catalog.metadata.scalable import (
    LEGACY_FOLDER,
    SCALABLE_FILE,
    SEGMENT_FOLDER,
    ScalableTopic,
    SegmentNode,
    scalable_topic_json,
    segment_name,
)
from connector.catalog.metadata.topic_metadata import LedgerInfo, OffloadContext, TopicMetadata
from connector.inputs.topic_names import Segment, TopicName
from tests.support.buckets import object_name, offload_ledger
from tests.support.entries import Message, encode_entry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from random import Random
    from uuid import UUID

    from tests.support.buckets import MemoryBucket

TOPIC: Final = TopicName.parse("topic://public/default/orders")
KEYS: Final = tuple(f"k{number}" for number in range(12))
_LAST_HASH: Final = 0xFFFF
_MAX_SEGMENTS: Final = 24


def hash_of(key: str) -> int:
    """The hash of a key, which chooses its segment."""
    return int(key[1:]) * _LAST_HASH // (len(KEYS) - 1)


@dataclass
class ModelLedger:
    """A ledger: its id, its entries, each with numbers of messages, and where it is stored."""

    ledger_id: int
    entries: list[list[int]] = field(default_factory=list)
    is_closed: bool = False
    uuid: UUID | None = None
    sizes: list[int] = field(default_factory=list)


@dataclass
class ModelSegment:
    """A segment, or a partition that was or will be migrated."""

    name: TopicName
    segment: Segment
    parents: list[int] = field(default_factory=list)
    children: list[int] = field(default_factory=list)
    is_sealed: bool = False
    is_pruned: bool = False
    ledgers: list[ModelLedger] = field(default_factory=list)

    @property
    def has(self) -> range:
        """The hashes of its keys."""
        return range(self.segment.first_hash, self.segment.last_hash + 1)

    @property
    def offloaded(self) -> list[ModelLedger]:
        """Its ledgers in the bucket."""
        return [each for each in self.ledgers if each.uuid is not None]

    @property
    def is_offloaded_whole(self) -> bool:
        """Whether each of its messages is in the bucket, and no other can come."""
        return self.is_sealed and all(each.uuid or not each.entries for each in self.ledgers)


class ScalableWorld:
    """The cluster and its bucket.

    Args:
        bucket: The bucket.
        folder: Where the metadata is saved.
        random: Chooses ids of ledgers and times.
        partitions: Partitions of the topic before it is migrated; 0: it was created scalable, -1:
            a topic without partitions is migrated.
    """

    def __init__(
        self, bucket: MemoryBucket, folder: Path, random: Random, partitions: int = 0
    ) -> None:
        self.bucket = bucket
        self.folder = folder
        self.keys: dict[int, str | None] = {}
        self.segments: dict[int, ModelSegment] = {}
        self._random = random
        self._ids: set[int] = set()
        self._encoded: dict[tuple[int, int], bytes] = {}
        self.partitions = partitions
        if partitions:
            for number in range(max(partitions, 1)):
                suffix = f"-partition-{number}" if partitions > 0 else ""
                name = TopicName.parse(f"persistent://public/default/orders{suffix}")
                self._add(name, Segment(number, 0, _LAST_HASH))
        else:
            self._add_segment(0, _LAST_HASH, ())

    @property
    def is_migrated(self) -> bool:
        """Whether the topic is scalable."""
        return any(each.name.is_scalable for each in self.segments.values())

    @property
    def current(self) -> list[ModelSegment]:
        """The segments that the graph names, in order."""
        return [each for each in self.segments.values() if not each.is_pruned]

    @property
    def active(self) -> list[ModelSegment]:
        """The segments that get messages."""
        return [each for each in self.current if not each.is_sealed]

    def _add(self, name: TopicName, segment: Segment, parents: Sequence[int] = ()) -> ModelSegment:
        added = ModelSegment(name, segment, list(parents))
        self.segments[segment.id] = added
        for each in parents:
            self.segments[each].children.append(segment.id)
        self._open_ledger(added)
        return added

    def _add_segment(self, first: int, last: int, parents: Sequence[int]) -> ModelSegment:
        segment = Segment(len(self.segments), first, last)
        return self._add(segment_name(TOPIC, segment), segment, parents)

    def _open_ledger(self, segment: ModelSegment) -> None:
        least = max((each.ledger_id for each in segment.ledgers), default=-1)
        ledger_id = least + 1 + self._random.randrange(50)
        while ledger_id in self._ids:
            ledger_id += 1
        self._ids.add(ledger_id)
        segment.ledgers.append(ModelLedger(ledger_id))

    def publish(self, keys: Sequence[str | None]) -> None:
        """Send a batch; one of a key goes to the segment that has it, one without key anywhere."""
        places: dict[int, list[int]] = {}
        for key in keys:
            number = len(self.keys)
            self.keys[number] = key
            places.setdefault(self._place(key).segment.id, []).append(number)
        for segment_id, numbers in places.items():
            self._append(self.segments[segment_id].ledgers[-1], numbers)

    def _place(self, key: str | None) -> ModelSegment:
        if key is None:
            return self._random.choice(self.active)
        if not self.is_migrated:
            return self.active[hash_of(key) % len(self.active)]
        (found,) = (each for each in self.active if hash_of(key) in each.has)
        return found

    def _append(self, ledger: ModelLedger, numbers: list[int]) -> None:
        entry = encode_entry(
            [Message(payload=b"%d" % each, partition_key=self.keys[each]) for each in numbers],
            batched=True,
            publish_time=self._random.randrange(1, 10**12),
        )
        ledger.entries.append(numbers)
        ledger.sizes.append(len(entry))
        self._encoded[ledger.ledger_id, len(ledger.entries) - 1] = entry

    def roll(self, segment: ModelSegment) -> None:
        """Close the open ledger, if it has entries, and open another."""
        if segment.ledgers[-1].entries and not segment.is_sealed:
            segment.ledgers[-1].is_closed = True
            self._open_ledger(segment)

    def offload(self, segment: ModelSegment) -> None:
        """Offload the oldest ledger that is closed."""
        for ledger in segment.ledgers:
            if ledger.uuid is None and ledger.is_closed and ledger.entries:
                name = object_name(ledger.ledger_id)
                entries = [
                    self._encoded[ledger.ledger_id, number] for number in range(len(ledger.entries))
                ]
                managed_ledger = segment.name.managed_ledger_name
                objects = offload_ledger(
                    name, entries, block_bytes=200, managed_ledger=managed_ledger
                )
                self.bucket.put(objects)
                ledger.uuid = name.uuid
                return

    def offload_everything(self) -> None:
        """Seal what gets messages, and offload all of it."""
        for each in self.current:
            self._seal(each)
            for _ in each.ledgers:
                self.offload(each)

    def _seal(self, segment: ModelSegment) -> None:
        segment.is_sealed = True
        segment.ledgers[-1].is_closed = True

    def split(self, segment: ModelSegment, *, writes_meanwhile: Sequence[str] = ()) -> None:
        """Split a segment; before it is sealed, the parent may get messages and a ledger."""
        first, last = segment.segment.first_hash, segment.segment.last_hash
        if first == last or len(self.segments) > _MAX_SEGMENTS or not self.is_migrated:
            return
        middle = (first + last) // 2
        # The children's ledgers are made first, so the parent may have ledgers with greater ids.
        children = [Segment(len(self.segments) + n, 0, 0) for n in range(2)]
        least = max(self._ids, default=0)
        self.publish([each for each in writes_meanwhile if hash_of(each) in segment.has])
        self.roll(segment)
        self._seal(segment)
        assert children[0].id == len(self.segments)
        for start, stop in ((first, middle), (middle + 1, last)):
            child = self._add_segment(start, stop, [segment.segment.id])
            low = self._random.randrange(least + 1)
            self._renumber(child, low)

    def _renumber(self, segment: ModelSegment, low: int) -> None:
        """Give the first ledger of a new segment an id that is below others."""
        ledger = segment.ledgers[0]
        self._ids.discard(ledger.ledger_id)
        while low in self._ids:
            low += 1
        self._ids.add(low)
        ledger.ledger_id = low

    def rebucket(self, segment: ModelSegment) -> None:
        """Replace a segment by another with the same hashes."""
        if len(self.segments) <= _MAX_SEGMENTS and self.is_migrated:
            self._seal(segment)
            first, last = segment.segment.first_hash, segment.segment.last_hash
            self._renumber(self._add_segment(first, last, [segment.segment.id]), 0)

    def merge(self, segment: ModelSegment) -> None:
        """Merge a segment with its right neighbor, if that gets messages too."""
        start = segment.segment.last_hash + 1
        right = [each for each in self.active if each.segment.first_hash == start]
        if right and len(self.segments) <= _MAX_SEGMENTS and self.is_migrated:
            self._seal(segment)
            self._seal(right[0])
            parents = sorted((segment.segment.id, right[0].segment.id))
            child = self._add_segment(
                segment.segment.first_hash, right[0].segment.last_hash, parents
            )
            self._renumber(child, 0)

    def migrate(self) -> None:
        """Make the classic topic a scalable one, with as many segments as it had partitions."""
        if self.is_migrated:
            return
        parents = sorted(self.segments)
        for each in list(self.active):
            self._seal(each)
        count = len(parents)
        for number in range(count):
            first = number * (_LAST_HASH + 1) // count
            last = (number + 1) * (_LAST_HASH + 1) // count - 1
            self._add_segment(first, last, parents)

    def prune(self, segment: ModelSegment, *, leaves_objects: bool) -> bool:
        """Prune a root that is sealed and offloaded; return whether it could be."""
        has_parents = any(not self.segments[each].is_pruned for each in segment.parents)
        if has_parents or not segment.is_offloaded_whole or not segment.children:
            return False
        segment.is_pruned = True
        if not leaves_objects:
            for ledger in segment.offloaded:
                stem = f"{ledger.uuid}-ledger-{ledger.ledger_id}"
                self.bucket.delete(stem)
                self.bucket.delete(f"{stem}-index")
                ledger.uuid = None
        return True

    def graph(self) -> ScalableTopic:
        """The node of the topic."""
        current = {each.segment.id for each in self.current}
        nodes = [
            SegmentNode(
                segment=each.segment,
                is_sealed=each.is_sealed,
                parent_ids=tuple(p for p in sorted(each.parents) if p in current),
                child_ids=tuple(sorted(each.children)),
                legacy=None if each.name.is_scalable else each.name,
            )
            for each in self.current
        ]
        return ScalableTopic(topic=TOPIC, nodes=tuple(nodes))

    def metadata(self, segment: ModelSegment) -> TopicMetadata:
        """What the metadata store has of a segment's ledgers."""
        infos = []
        for each in segment.ledgers:
            if not each.is_closed:
                infos.append(LedgerInfo(ledger_id=each.ledger_id))
                continue
            offload = None
            if each.uuid is not None:
                offload = OffloadContext(uuid=each.uuid, complete=True, bookkeeper_deleted=False)
            infos.append(
                LedgerInfo(
                    ledger_id=each.ledger_id,
                    entries=len(each.entries),
                    size_bytes=sum(each.sizes),
                    timestamp_ms=1,
                    offload=offload,
                )
            )
        last = segment.ledgers[-1]
        return TopicMetadata(
            topic=segment.name,
            ledgers=tuple(infos),
            terminated_position=(
                (last.ledger_id, len(last.entries) - 1) if segment.is_sealed else None
            ),
        )

    def save(self, *, with_ledgers: bool = True) -> str:
        """Save the metadata, and return its folder; without ledgers, as the admin API has it."""
        folder = self.folder / ("whole" if with_ledgers else "graph")
        topic = folder / "orders"
        topic.mkdir(parents=True, exist_ok=True)
        (folder / "topics.json").write_text(json.dumps({str(TOPIC): {"dir": "orders"}}))
        (topic / SCALABLE_FILE).write_text(json.dumps(scalable_topic_json(self.graph())))
        for each in self.current if with_ledgers else ():
            if each.name.is_scalable:
                name = f"{SEGMENT_FOLDER}{each.segment.id}"
            else:
                name = f"{LEGACY_FOLDER}{each.name.local_name}"
            (topic / name).mkdir(exist_ok=True)
            value = serialize_managed_ledger_info(self.metadata(each))
            (topic / name / "managed-ledger-info.bin").write_bytes(value)
        return str(folder)

    def rows(self, segments: Sequence[ModelSegment] | None = None) -> list[int]:
        """The numbers of the messages of some segments' offloaded ledgers, in order."""
        return [
            number
            for segment in (self.current if segments is None else segments)
            for ledger in segment.offloaded
            for entry in ledger.entries
            for number in entry
        ]

    def latest(self, numbers: Sequence[int]) -> set[int]:
        """The last of each key among some messages, by the order in which they were sent."""
        last: dict[str, int] = {}
        for number in sorted(numbers):
            key = self.keys[number]
            if key is not None:
                last[key] = number
        return set(last.values())

    def by_key(self, numbers: Sequence[int]) -> Iterator[list[int]]:
        """Yield the messages of each key, in the given order."""
        for key in KEYS:
            yield [each for each in numbers if self.keys[each] == key]
