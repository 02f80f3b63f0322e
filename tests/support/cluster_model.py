"""Clusters that offload to one bucket: what they do, what they know, and what they need of it.

Everything that a cluster does takes one call, so that a test can put the calls into any order. The
bytes in the bucket are real; what is true of them is kept beside them, and never read from them.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final
from uuid import UUID

from arrow_io.format.index_block import (
    CLUSTER_NAME_KEY,
    FORMAT_VERSION,
    FORMAT_VERSION_KEY,
    MANAGED_LEDGER_NAME_KEY,
)
from arrow_io.format.ledger_metadata import LedgerSegment
from arrow_io.format.object_names import LedgerObjectName, MapFileName
from arrow_io.ledgers.writer import new_ledger_metadata
from arrow_io.storage.store_uploads import temporary_path
from connector.catalog.metadata.topic_metadata import (
    LedgerInfo,
    OffloadContext,
    OffloadSegment,
    TopicMetadata,
)
from connector.inputs.topic_names import TopicName
from tests.support.encoded_ledgers import EncodedLedger, encode_ledger
from tests.support.entries import Message, encode_entry
from tests.support.map_files import MapFile, write_map_file
from tests.support.model_store import ModelBucket
from tests.support.streaming import Part, segment_objects, write_segment

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from arrow_io.format.ledger_metadata import LedgerMetadata

START_MS: Final = 1_577_836_800_000
"""The year 2020, so that the clock of the machine is never behind that of the model."""
SECOND_MS: Final = 1_000
HOUR_MS: Final = 3_600 * SECOND_MS
DAY_MS: Final = 24 * HOUR_MS

ELSEWHERE: Final = "elsewhere"
"""How metadata names the bucket that is not looked at."""

_UPLOAD_ID: Final = "0123456789abcdef"
_BLOCK_BYTES: Final = 4_096


class Stage(StrEnum):
    """How far an offload got."""

    UPLOAD = "upload"
    """Its data object is not whole yet."""
    DATA = "data"
    """Its data object is there."""
    COMPLETE = "complete"
    """Both are, and the cluster knows."""


@dataclass(eq=False)
class Attempt:
    """One attempt to offload a ledger."""

    name: LedgerObjectName | MapFileName
    ledger: ModelLedger
    stage: Stage
    is_running: bool = True
    completed_ms: int | None = None
    segments: tuple[UUID, ...] = ()
    """The segments of streaming offload that have the ledger; none: PIP-17."""
    is_here: bool = True
    """Whether it goes to the bucket that is looked at."""

    @property
    def objects(self) -> list[str]:
        """Names of what it put into the bucket until now, as the store lists them."""
        if isinstance(self.name, MapFileName):
            return [self.name.index_name, self.name.data_name]
        if self.stage is Stage.UPLOAD:
            return [temporary_path(self.name.data_name, _UPLOAD_ID)]
        if self.segments:
            return list(self.encoded)[: -1 if self.stage is Stage.DATA else None]
        if self.stage is Stage.DATA:
            return [self.name.data_name]
        return [self.name.index_name, self.name.data_name]

    @property
    def encoded(self) -> dict[str, bytes]:
        """The objects in the order in which they are written."""
        if isinstance(self.name, MapFileName):
            map_file = self.ledger.map_file
            if self.stage is Stage.COMPLETE:
                return map_file.objects(self.name)
            half = map_file.data[: len(map_file.data) // 2]
            return {self.name.data_name: half, self.name.index_name: b""}
        if not self.segments:
            encoded = self.ledger.encoded
            return {self.name.data_name: encoded.data, self.name.index_name: encoded.index}
        return _encoded_segments(self.ledger.ledger_id, self.ledger.entries, self.segments)

    @property
    def _driver(self) -> str | None:
        if isinstance(self.name, MapFileName):
            return "filesystem"
        return None if self.is_here else "aws-s3"

    @property
    def context(self) -> OffloadContext:
        """What the cluster records of it."""
        is_complete = self.stage is Stage.COMPLETE
        ends = _ends(len(self.ledger.rows), len(self.segments))
        return OffloadContext(
            uuid=None if self.segments else self.name.uuid,
            complete=is_complete,
            timestamp_ms=self.completed_ms,
            driver=self._driver,
            driver_properties={} if self.is_here else {"bucket": ELSEWHERE},
            segments=tuple(
                OffloadSegment(
                    uuid=uuid,
                    complete=is_complete or uuid != self.segments[-1],
                    end_entry_id=end - 1,
                )
                for uuid, end in zip(self.segments, ends, strict=True)
            ),
        )


@dataclass(eq=False)
class ModelLedger:
    """One ledger."""

    owner: Owner
    topic: str
    ledger_id: int
    created_ms: int
    rows: list[str] = field(default_factory=list)
    closed_ms: int | None = None
    attempt: Attempt | None = None
    """The attempt that the cluster has recorded: the last."""
    bookkeeper_deleted: bool = False
    is_recorded: bool = True
    """Whether its owner records it: what is appended offline may be recorded nowhere."""

    @property
    def is_closed(self) -> bool:
        """Whether nothing is added any more."""
        return self.closed_ms is not None

    @property
    def is_offloaded(self) -> bool:
        """Whether the cluster reads it from a bucket, or could."""
        return self.attempt is not None and self.attempt.stage is Stage.COMPLETE

    @property
    def info(self) -> LedgerInfo:
        """What the cluster records of it."""
        if not self.is_closed:
            return LedgerInfo(ledger_id=self.ledger_id)
        attempt, offload = self.attempt, None
        if attempt is not None:
            offload = replace(attempt.context, bookkeeper_deleted=self.bookkeeper_deleted)
        return LedgerInfo(
            ledger_id=self.ledger_id,
            entries=len(self.rows),
            size_bytes=sum(map(len, self.entries)),
            timestamp_ms=self.closed_ms,
            offload=offload,
        )

    @property
    def entries(self) -> tuple[bytes, ...]:
        """Its entries, one for each row."""
        return tuple(map(_entry, self.rows))

    @property
    def encoded(self) -> EncodedLedger:
        """Its two objects."""
        return _encoded(self.entries, *self._described)

    @property
    def map_file(self) -> MapFile:
        """Its files, if the filesystem driver writes them."""
        return _map_file(self.entries, *self._described)

    @property
    def managed_ledger(self) -> str:
        """Name of the managed ledger."""
        return TopicName.parse(self.topic).managed_ledger_name

    @property
    def _described(self) -> tuple[str, int, str]:
        return self.managed_ledger, self.created_ms, self.owner.bookie


@dataclass(eq=False)
class ModelTopic:
    """One topic."""

    name: str
    ledgers: list[ModelLedger]
    is_terminated: bool = False

    @property
    def known(self) -> TopicMetadata:
        """What its cluster knows of it."""
        last = self.ledgers[-1]
        return TopicMetadata(
            topic=TopicName.parse(self.name),
            ledgers=tuple(each.info for each in self.ledgers if each.is_recorded),
            terminated_position=(
                (last.ledger_id, len(last.rows) - 1) if self.is_terminated else None
            ),
        )


@dataclass(eq=False)
class Owner:
    """Who has topics: a cluster, or somebody who writes topics offline.

    Attributes:
        label: How tests name it.
        cluster: The cluster's name in the objects' user metadata; None: it is not there.
        bookie: Where its ledgers were.
        next_id: Id of its next ledger.
        offloads_here: Whether it offloads to the bucket that is looked at.
        segments: In how many segments of streaming offload it writes a ledger; 0: by PIP-17.
        writes_map_files: Whether it has the filesystem driver instead.
        topics: Its topics by name.
    """

    label: str
    cluster: str | None = "pulsar"
    bookie: str = "bookie-a:3181"
    next_id: int = 0
    offloads_here: bool = True
    segments: int = 0
    writes_map_files: bool = False
    topics: dict[str, ModelTopic] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Its label."""
        return self.label


class ModelWorld:
    """A bucket, and who writes to it.

    Args:
        skew_ms: How much later the store's clock is than those of the clusters.
        tells_times: Whether the store tells when an object was written.
    """

    def __init__(self, *, skew_ms: int = 0, tells_times: bool = True) -> None:
        self.now_ms = START_MS
        self.skew_ms = skew_ms
        self.step = 0
        self.bucket = ModelBucket(lambda: self.now_ms + skew_ms, tells_times=tells_times)
        self.elsewhere = ModelBucket(lambda: self.now_ms)
        self.store = ModelBucket(lambda: self.now_ms)
        """Where metadata is saved."""
        self.first = Owner("first")
        self.owners = [self.first]
        self.attempts: dict[LedgerObjectName | MapFileName, Attempt] = {}
        self.truth: dict[str, ModelLedger] = {}
        """The ledger of every row that was ever produced."""
        self._needed_until: dict[tuple[Owner, str], int] = {}
        self._uuids = (UUID(int=number) for number in itertools.count(1))
        self._numbers = itertools.count()

    def drop(self) -> None:
        """Forget all."""
        for bucket in (self.bucket, self.elsewhere, self.store):
            bucket.drop()

    def tick(self, milliseconds: int) -> None:
        """Let time pass."""
        self.now_ms += milliseconds

    # What a cluster does.

    def create(self, owner: Owner, name: str) -> ModelTopic:
        """Make a topic, or make it anew."""
        topic = ModelTopic(name, [])
        owner.topics[name] = topic
        self._open_ledger(owner, topic)
        return topic

    def produce(self, topic: ModelTopic, count: int = 1) -> list[str]:
        """Add messages to the open ledger."""
        ledger = topic.ledgers[-1]
        rows = self.new_rows(count)
        ledger.rows += rows
        self.truth |= dict.fromkeys(rows, ledger)
        return rows

    def new_rows(self, count: int) -> list[str]:
        """Values that no other message has."""
        return [f"row-{next(self._numbers)}" for _ in range(count)]

    def roll(self, topic: ModelTopic) -> None:
        """Close the open ledger, if there is anything in it, and open the next."""
        ledger = topic.ledgers[-1]
        if topic.is_terminated or not ledger.rows:
            return
        ledger.closed_ms = self.now_ms
        self._open_ledger(ledger.owner, topic)

    def terminate(self, topic: ModelTopic, *, reloaded: bool = True) -> None:
        """End a topic; what its last ledger has is recorded when the topic is loaded again."""
        topic.is_terminated = True
        if reloaded and topic.ledgers[-1].rows:
            topic.ledgers[-1].closed_ms = self.now_ms

    def begin_offload(
        self, ledger: ModelLedger, stage: Stage = Stage.DATA, uuid: UUID | None = None
    ) -> Attempt:
        """Begin to offload a closed ledger; in segments, if its owner streams."""
        uuid = uuid or next(self._uuids)
        name: LedgerObjectName | MapFileName = LedgerObjectName(uuid, ledger.ledger_id)
        if ledger.owner.writes_map_files:
            name = MapFileName(ledger.managed_ledger, uuid, ledger.ledger_id)
        segments = tuple(islice(self._uuids, ledger.owner.segments))
        is_here = ledger.owner.offloads_here
        attempt = Attempt(name, ledger, stage, segments=segments, is_here=is_here)
        self.attempts[name] = attempt
        ledger.attempt = attempt
        if stage is Stage.UPLOAD and isinstance(name, LedgerObjectName):
            data = attempt.encoded[name.data_name]
            self._put(attempt, attempt.objects[0], data[: len(data) // 2], {})
        else:
            self._put_encoded(attempt)
        return attempt

    def finish_offload(self, attempt: Attempt) -> None:
        """Complete an offload."""
        is_map_file = isinstance(attempt.name, MapFileName)
        written = () if attempt.stage is Stage.UPLOAD or is_map_file else attempt.objects
        if attempt.stage is Stage.UPLOAD:
            self.delete(*attempt.objects)
        attempt.stage, attempt.is_running = Stage.COMPLETE, False
        self._put_encoded(attempt, written)
        attempt.completed_ms = self.now_ms

    def fail_offload(self, attempt: Attempt) -> None:
        """Let an offload end where it is; what it wrote stays."""
        attempt.is_running = False

    def offload(self, ledger: ModelLedger) -> Attempt:
        """Offload a closed ledger, or offload it once more, under a new uuid."""
        attempt = self.begin_offload(ledger)
        self.finish_offload(attempt)
        return attempt

    def offload_again(self, ledger: ModelLedger, *, remove: bool = False) -> Attempt:
        """Offload a ledger from the bucket once more, as a repair does, and record that."""
        before = ledger.attempt
        attempt = self.offload(ledger)
        if remove and before is not None:
            self.delete(*before.objects)
        return attempt

    def lose(self, ledger: ModelLedger, *, index: bool, data: bool) -> None:
        """Let objects of an offloaded ledger be deleted by mistake."""
        assert ledger.attempt is not None
        name = ledger.attempt.name
        names = [name.index_name] * index + [name.data_name] * data
        self.delete(*names)

    def delete_from_bookkeeper(self, ledger: ModelLedger) -> None:
        """Let BookKeeper forget a ledger that is offloaded."""
        ledger.bookkeeper_deleted = True

    def trim(self, topic: ModelTopic, *, remove: bool) -> None:
        """Let retention take the oldest ledger; its objects are deleted, or left behind."""
        if len(topic.ledgers) > 1:
            self._release(topic.ledgers.pop(0), remove=remove)

    def delete_topic(self, topic: ModelTopic, *, remove: bool) -> None:
        """Delete a topic; its objects are deleted, or left behind."""
        for ledger in topic.ledgers:
            self._release(ledger, remove=remove)
        del topic.ledgers[-1].owner.topics[topic.name]

    def add_owner(self, owner: Owner) -> Owner:
        """Let somebody else use the bucket."""
        self.owners.append(owner)
        return owner

    def adopt(self, ledger: ModelLedger, uuid: UUID, completed_ms: int) -> None:
        """Record a ledger that production code offloaded, user metadata and all.

        The store is one of which nothing is known but fsspec's interface, so that production code
        writes no user metadata to it; an object store has it.
        """
        name = LedgerObjectName(uuid, ledger.ledger_id)
        attempt = Attempt(name, ledger, Stage.COMPLETE, is_running=False, completed_ms=completed_ms)
        self.attempts[name] = ledger.attempt = attempt
        for each in attempt.objects:
            told = replace(self.bucket.objects[each], user_metadata=self._user_metadata(ledger))
            self.bucket.objects[each] = told

    # What is true.

    @property
    def running(self) -> list[Attempt]:
        """Offloads under way."""
        return [each for each in self.attempts.values() if each.is_running]

    @property
    def ledgers(self) -> Iterator[ModelLedger]:
        """Every ledger that a topic has."""
        for owner in self.owners:
            for topic in owner.topics.values():
                yield from topic.ledgers

    def needed(self, owner: Owner) -> set[str]:
        """Names of the objects in the bucket that somebody needs."""
        found: set[str] = set()
        for topic in owner.topics.values():
            for ledger in topic.ledgers:
                attempt = ledger.attempt
                if attempt is None or not attempt.is_here:
                    continue
                if ledger.is_offloaded or attempt.is_running:
                    found.update(attempt.objects)
        return found

    def copies(self, ledger: ModelLedger) -> list[set[str]]:
        """The objects of each copy that is there, of which the ledger can be read."""
        attempts = (each for each in self.attempts.values() if each.ledger is ledger)
        objects = (set(each.objects) for each in attempts if each.stage is Stage.COMPLETE)
        return [each for each in objects if each <= self.bucket.objects.keys()]

    def is_there(self, ledger: ModelLedger) -> bool:
        """Whether the copy that counts is in the bucket."""
        return ledger.attempt is not None and self.bucket.objects.keys() >= {
            *ledger.attempt.objects
        }

    def end_step(self) -> None:
        """Note what is needed now."""
        self.step += 1
        for owner in self.owners:
            for name in self.needed(owner):
                self._needed_until[owner, name] = self.step

    def was_needed_since(self, owner: Owner, name: str, step: int) -> bool:
        """Whether somebody needed an object at the end of a step, or later."""
        return self._needed_until.get((owner, name), -1) >= step

    def _open_ledger(self, owner: Owner, topic: ModelTopic) -> None:
        topic.ledgers.append(ModelLedger(owner, topic.name, owner.next_id, self.now_ms))
        owner.next_id += 1

    def _release(self, ledger: ModelLedger, *, remove: bool) -> None:
        attempt = ledger.attempt
        if attempt is not None:
            attempt.is_running = False
            if remove:
                self.delete(*attempt.objects)

    def _put_encoded(self, attempt: Attempt, written: Collection[str] = ()) -> None:
        """Write the objects that an attempt has at its stage, but for those that are there."""
        ledger, objects = attempt.ledger, attempt.objects
        for name, data in attempt.encoded.items():
            if name in objects and name not in written:
                self._put(attempt, name, data, self._user_metadata(ledger))

    def _put(self, attempt: Attempt, name: str, data: bytes, user_metadata: dict[str, str]) -> None:
        (self.bucket if attempt.is_here else self.elsewhere).put(name, data, user_metadata)

    def delete(self, *names: str) -> None:
        """Delete objects, whichever bucket they are in."""
        self.bucket.delete(*names)
        self.elsewhere.delete(*names)

    def _user_metadata(self, ledger: ModelLedger) -> dict[str, str]:
        cluster = ledger.owner.cluster
        return {
            FORMAT_VERSION_KEY: FORMAT_VERSION,
            MANAGED_LEDGER_NAME_KEY: TopicName.parse(ledger.topic).managed_ledger_name,
            **({} if cluster is None else {CLUSTER_NAME_KEY: cluster}),
        }


@lru_cache(maxsize=10_000)
def _entry(row: str) -> bytes:
    message = Message(payload=row.encode())
    return encode_entry(
        [message], batched=False, producer_name="p", sequence_id=0, publish_time=START_MS
    )


def _ends(entries: int, count: int) -> list[int]:
    """Where each of so many segments ends that have the entries of a ledger."""
    return [entries * place // count for place in range(1, count + 1)]


@lru_cache(maxsize=10_000)
def _encoded_segments(
    ledger_id: int, entries: tuple[bytes, ...], uuids: tuple[UUID, ...]
) -> dict[str, bytes]:
    """The objects of segments in the order in which they are written."""
    ends = _ends(len(entries), len(uuids))
    found: dict[str, bytes] = {}
    for uuid, start, stop in zip(uuids, [0, *ends], ends, strict=False):
        part = Part(ledger_id, entries[start:stop], start, len(entries), sum(map(len, entries)))
        found |= segment_objects(uuid, write_segment([part]))
    return found


@lru_cache(maxsize=10_000)
def _encoded(
    entries: tuple[bytes, ...], managed_ledger: str, created_ms: int, bookie: str
) -> EncodedLedger:
    metadata = _metadata(entries, managed_ledger, created_ms, bookie)
    return encode_ledger(entries, metadata, block_bytes=_BLOCK_BYTES)


@lru_cache(maxsize=10_000)
def _map_file(
    entries: tuple[bytes, ...], managed_ledger: str, created_ms: int, bookie: str
) -> MapFile:
    metadata = _metadata(entries, managed_ledger, created_ms, bookie)
    return write_map_file(entries, metadata=metadata.serialize(), compression="block")


def _metadata(
    entries: tuple[bytes, ...], managed_ledger: str, created_ms: int, bookie: str
) -> LedgerMetadata:
    metadata = new_ledger_metadata(
        map(len, entries), managed_ledger=managed_ledger, ctime_ms=created_ms
    )
    return replace(metadata, segments=(LedgerSegment(0, (bookie,)),))
