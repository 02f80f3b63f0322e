"""A catalog snapshot in a file, from which each topic is parsed on first use.

The head lists the topics and the position of each topic's document. That document has the topic's
metadata and the indices of ledgers that cannot be read. Pages of the topic's ledgers follow it,
with the copies that were selected when the catalog was saved. Document 0 holds everything that
belongs to no topic.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import lt
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from arrow_io.core.lazy import cached_property
from arrow_io.core.wording import counted
from arrow_io.errors import CorruptSnapshotError, OptionError
from arrow_io.storage.location import Location
from connector.catalog.bucket import Bucket, BucketContents, UnfinishedOffload
from connector.catalog.bucket_listing import BucketListing
from connector.catalog.kinds.registry import kind_of, named_pairs
from connector.catalog.kinds.snapshot_values import base64_text, read_base64, read_text, read_time
from connector.catalog.ledger_pages import LedgerPages, MappedLedgers
from connector.catalog.metadata.scalable import read_scalable_topic, scalable_topic_json
from connector.catalog.snapshot.documents import DocumentWriter
from connector.catalog.snapshot.json import (
    contents_json,
    ledger_json,
    metadata_json,
    read_contents_json,
    read_copy_json,
    read_ledger_json,
    read_metadata_json,
)
from connector.catalog.topic_ledgers import build_topic
from connector.inputs.topic_names import TopicName

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from uuid import UUID

    from arrow_io.format.object_names import PairName
    from arrow_io.ledgers.open_ledger import OpenLedger
    from connector.catalog.kinds.ledger_copy import LedgerCopy, StoredPair
    from connector.catalog.metadata.scalable import ScalableTopic, SegmentNode
    from connector.catalog.metadata.topic_metadata import LedgerInfo, TopicMetadata
    from connector.catalog.snapshot.documents import Documents
    from connector.catalog.snapshot.json import Snapshot
    from connector.catalog.topic_ledgers import TopicLedger, TopicLedgers

PAGE_LEDGERS: Final = 64
_REST: Final = 0
"""Position of the document with everything that belongs to no topic."""


def serialize_snapshot(snapshot: Snapshot) -> bytes:
    """Return the file of a catalog snapshot.

    Raises:
        OptionError: The catalog is too large for a file, or has a kind of objects that the file
            cannot hold.
    """
    every: dict[str | None, BucketContents] = {None: snapshot.contents}
    every.update(snapshot.other_buckets.items())
    _check_savable(every.values(), snapshot.topics)
    buckets = {id(copy): name for name, each in every.items() for copy in each.copies}

    def find_bucket(copy: LedgerCopy) -> str | None:
        return buckets[id(copy)]

    ids_in_topics = {
        id(copy)
        for topic in snapshot.topics
        for ledger in topic.states
        for copy in (ledger.copy, *ledger.others)
    }
    writer = DocumentWriter()
    rest = {
        name: contents_json(
            each, name, (copy for copy in each.copies if id(copy) not in ids_in_topics)
        )
        for name, each in every.items()
    }
    writer.add({"contents": rest.pop(None), "elsewhere": rest})
    schemas = dict(snapshot.schemas)
    topics = []
    for topic in snapshot.topics:
        schema = schemas.pop(topic.topic.classic, None)
        position = _add_topic(writer, topic, schema, find_bucket)
        topics.append([str(topic.topic), topic.metadata is not None, position])
    copies = snapshot.contents.copies
    return writer.file(
        {
            "taken": snapshot.listed_at.isoformat(),
            "warnings": list(snapshot.warnings),
            "has_metadata": snapshot.has_metadata,
            "statistics": snapshot.statistics,
            "elsewhere": {
                name: str(each.location) for name, each in snapshot.other_buckets.items()
            },
            "copies": len(copies),
            "ledgers": len({copy.name.ledger_id for copy in copies}),
            "offloaded_topics": len(
                {copy.topic.classic for copy in copies if isinstance(copy.topic, TopicName)}
            ),
            "topics": topics,
            "scalable_topics": {
                str(each.topic): scalable_topic_json(each) for each in snapshot.scalable_topics
            },
        }
    )


def _check_savable(buckets: Iterable[BucketContents], topics: Iterable[TopicLedgers]) -> None:
    """Refuse kinds of objects that the file cannot hold, so that no ledger is lost silently."""
    recorded_names = (
        (name, f"topic {topic.topic} has ledger {info.ledger_id} in such objects")
        for topic in topics
        for info in (topic.metadata.ledgers if topic.metadata else ())
        for name in named_pairs(topic.topic, info)
    )
    pairs = (pair for contents in buckets for pair in contents.pairs)
    stored_names = ((each.name, f"{each.index.name} is such an object") for each in pairs)
    for name, text in chain(recorded_names, stored_names):
        kind = kind_of(name)
        if kind.snapshot_form is None:
            message = f"{kind.title} cannot be saved in a catalog snapshot: {text}"
            raise OptionError(message)


def _add_topic(
    writer: DocumentWriter,
    topic: TopicLedgers,
    schema: bytes | None,
    find_bucket: Callable[[LedgerCopy], str | None],
) -> int:
    states = topic.states
    firsts = range(0, len(states), PAGE_LEDGERS)
    position = writer.add(
        {
            "metadata": topic.metadata and metadata_json(topic.metadata),
            "schema": None if schema is None else base64_text(schema),
            "ledgers": len(states),
            "pages": [states[first].ledger_id for first in firsts],
            "unread": [at for at, each in enumerate(states) if not each.state.is_readable],
            "unlisted": [at for at, each in enumerate(states) if each.info is None],
            "segment_ledgers": topic.segment_ledgers,
        }
    )
    for first in firsts:
        page = states[first : first + PAGE_LEDGERS]
        writer.add([ledger_json(each, find_bucket) for each in page])
    return position


class SnapshotFile:
    """A catalog snapshot. Safe to use from several threads.

    Methods raise `CorruptSnapshotError` too, when they find a malformed value. `buckets` has the
    URLs of other buckets that have moved since, by their names in the metadata.

    Raises:
        CorruptSnapshotError: The head has a malformed value.
    """

    def __init__(
        self, documents: Documents, location: Location, buckets: Mapping[str, str]
    ) -> None:
        self.location = location
        self._documents = documents
        self._lock = threading.RLock()
        self._opened: dict[TopicName, TopicLedgers] = {}
        self._copies: WeakValueDictionary[tuple[object, ...], LedgerCopy]
        self._copies = WeakValueDictionary()
        with documents.corruption_errors():
            head = documents.head
            self.listed_at = read_time(head["taken"])
            self.warnings = list(map(read_text, head["warnings"]))
            self.has_metadata = bool(head["has_metadata"])
            statistics = head["statistics"]
            self.statistics = None if statistics is None else read_text(statistics)
            self.copy_count = _count(head["copies"])
            self.ledger_count = _count(head["ledgers"])
            self.offloaded_topic_count = _count(head["offloaded_topics"])
            self._locations: dict[str | None, Location] = {
                name: Location(buckets.get(name) or read_text(url), location.storage_options)
                for name, url in head["elsewhere"].items()
            }
            self._locations[None] = location
            self.scalable_topics: dict[TopicName, ScalableTopic] = {}
            for name, graph in head["scalable_topics"].items():
                topic = TopicName.parse(name)
                self.scalable_topics[topic] = read_scalable_topic(graph, topic)
            self._positions: dict[TopicName, int] = {}
            self.topics_with_metadata: list[TopicName] = []
            for name, has_metadata, position in head["topics"]:
                topic = TopicName.parse(name)
                self._positions[topic] = _count(position)
                if has_metadata:
                    self.topics_with_metadata.append(topic)

    @property
    def topics(self) -> Collection[TopicName]:
        """All topics."""
        return self._positions.keys()

    @cached_property
    def _first_of_base(self) -> dict[TopicName, TopicName]:
        return {topic.classic: topic for topic in reversed(self._positions)}

    def schema(self, topic: TopicName) -> bytes | None:
        """Return the admin API's answer for the schemas of a topic, or of one of its partitions."""
        first = self._first_of_base.get(topic.classic)
        if first is None:
            return None
        with self._documents.corruption_errors():
            answer = self._documents.read(self._positions[first])["schema"]
            return None if answer is None else read_base64(answer)

    def ledgers(self, topic: TopicName) -> TopicLedgers:
        """Return one topic; build only the ledgers that cannot be read.

        A topic that is not in the file has no ledgers.
        """
        if topic not in self._positions:
            return build_topic(topic, (), (), ())
        with self._lock:
            if topic not in self._opened:
                with self._documents.corruption_errors():
                    self._opened[topic] = self._read_topic(topic, self._positions[topic])
            return self._opened[topic]

    def _read_topic(self, topic: TopicName, position: int) -> TopicLedgers:
        value = self._documents.read(position)
        count, firsts = _count(value["ledgers"]), _ascending(value["pages"])
        unread, unlisted = _ascending(value["unread"], count), _ascending(value["unlisted"], count)
        if len(firsts) != -(-count // PAGE_LEDGERS):
            message = f"{counted(len(firsts), 'page')} of {counted(count, 'ledger')}"
            raise CorruptSnapshotError(message)
        pages = LedgerPages(
            count,
            PAGE_LEDGERS,
            partial(self._read_page, position + 1, firsts, count),
            partial(self._read_ledger, frozenset(unread), frozenset(unlisted)),
        )
        ledgers = MappedLedgers(pages, unread, _offloaded_of)
        found = replace(
            build_topic(topic, ledgers, pages, pages.pin(unread)),
            segment_ledgers=_count(value["segment_ledgers"]),
            node=self._node(topic),
        )
        if value["metadata"] is None:
            return found
        infos = MappedLedgers(pages, unlisted, _info_of)
        metadata = read_metadata_json(value["metadata"], topic, infos)
        return replace(found, metadata=metadata)

    def _node(self, topic: TopicName) -> SegmentNode | None:
        graph = self.scalable_topics.get(topic.base)
        node = None if graph is None or not topic.segment else graph.node(topic.segment.id)
        return node if node is not None and node.segment == topic.segment else None

    def _read_page(
        self, position: int, firsts: Sequence[int], count: int, number: int
    ) -> list[Any]:
        with self._documents.corruption_errors():
            values = self._documents.read(position + number)
            ids = _ascending([value["ledger_id"] for value in values])
            expected = min(PAGE_LEDGERS, count - number * PAGE_LEDGERS)
            next_first = firsts[number + 1] if number + 1 < len(firsts) else None
            if len(ids) != expected or ids[0] != firsts[number]:
                message = f"page {number} of a topic has unexpected ledgers"
                raise CorruptSnapshotError(message)
            if next_first is not None and ids[-1] >= next_first:
                message = f"page {number} of a topic has ledgers of the next page"
                raise CorruptSnapshotError(message)
            return list(values)

    def _read_ledger(
        self,
        unread: Collection[int],
        unlisted: Collection[int],
        value: Any,  # noqa: ANN401 - any JSON
        position: int,
    ) -> TopicLedger:
        with self._documents.corruption_errors():
            ledger = read_ledger_json(value, self._read_copy)
            if ledger.state.is_readable == (position in unread):
                message = (
                    f"the state of ledger {ledger.ledger_id} contradicts the list of unread ledgers"
                )
                raise CorruptSnapshotError(message)
            if (ledger.info is None) != (position in unlisted):
                message = (
                    f"the metadata of ledger {ledger.ledger_id} contradicts the list of unlisted"
                    " ledgers"
                )
                raise CorruptSnapshotError(message)
            return ledger

    def _read_copy(self, value: Any) -> LedgerCopy:  # noqa: ANN401 - any JSON
        """Read a copy; while one is in use, later reads return the same object."""
        bucket = value["bucket"]
        key = bucket, read_text(value["index"][0])
        with self._lock:
            found = self._copies.get(key)
            if found is None:
                found = read_copy_json(value, self._locations[bucket])
                self._copies[key] = found
            return found

    @cached_property
    def _rest(self) -> dict[str | None, dict[str, Any]]:
        """Everything that belongs to no topic, by bucket."""
        with self._documents.corruption_errors():
            rest = self._documents.read(_REST)
            found = {None: rest["contents"], **rest["elsewhere"]}
            if found.keys() != self._locations.keys():
                message = "its buckets differ from those in its head"
                raise CorruptSnapshotError(message)
            return found

    @property
    def other_buckets(self) -> Mapping[str, Bucket]:
        """The other buckets, by their names in the metadata."""
        return {name: SnapshotBucket(self, name) for name in self._locations if name is not None}

    @property
    def has_copies_without_topic(self) -> bool:
        """Whether the bucket has ledgers that name no topic."""
        with self._documents.corruption_errors():
            return any(each["topic"] is None for each in self._rest[None]["copies"])

    def contents_without_copies(self, bucket: str | None) -> BucketContents:
        """Return the contents of a bucket without the copies of ledgers."""
        with self._documents.corruption_errors():
            return read_contents_json(self._rest[bucket], self._locations[bucket], ())

    def contents(self, bucket: str | None) -> BucketContents:
        """Return the contents of a bucket; parses the whole file."""
        with self._documents.corruption_errors():
            copies = self._every_copy[bucket].values()
            return read_contents_json(self._rest[bucket], self._locations[bucket], copies)

    @cached_property
    def _every_copy(self) -> dict[str | None, dict[object, LedgerCopy]]:
        found: dict[str | None, dict[object, LedgerCopy]]
        found = {name: {} for name in self._locations}
        pages = (self._documents.read(position) for position in self._page_positions())
        ledgers = chain.from_iterable(pages)
        topic_values = ((each["copy"], *each["others"]) for each in ledgers)
        other_values = (each["copies"] for each in self._rest.values())
        for value in chain.from_iterable(chain(topic_values, other_values)):
            if value is not None:
                copy = self._read_copy(value)
                found[value["bucket"]][copy.name] = copy
        return found

    def _page_positions(self) -> Iterable[int]:
        return (
            position + 1 + number
            for position in self._positions.values()
            for number in range(len(_ascending(self._documents.read(position)["pages"])))
        )


class SnapshotBucket(Bucket):
    """A bucket of a snapshot, whose contents are parsed on first use.

    `name` is its name in the metadata; None: the catalog's bucket.
    """

    def __init__(self, file: SnapshotFile, name: str | None) -> None:
        self._file = file
        self._name = name
        self._reset()

    @cached_property
    def _stored_contents(self) -> BucketContents:
        return self._file.contents(self._name)

    @cached_property
    def listing(self) -> BucketListing:
        """The listed objects."""
        contents, pairs = self._stored_contents, self._pairs
        data = {name: pair.data for name, pair in pairs.items() if pair.data is not None}
        return BucketListing(
            contents.location,
            {name: pair.index for name, pair in pairs.items()},
            data | {each.name: each.data for each in contents.unfinished},
            contents.foreign,
        )

    @cached_property
    def _pairs(self) -> dict[PairName, StoredPair]:
        return {pair.name: pair for pair in self._stored_contents.pairs}

    def look_again(self, names: Collection[PairName] | None) -> None:
        """Do nothing: a snapshot does not change."""

    def _find_missing_indexes(self) -> None:
        """Do nothing: a snapshot does not change."""

    @property
    def copy_count(self) -> int:
        """The number of index objects."""
        return self._file.copy_count if self._name is None else len(self._pairs)

    @property
    def unfinished(self) -> tuple[UnfinishedOffload, ...]:
        """Attempts that never completed."""
        return self._file.contents_without_copies(self._name).unfinished


class SnapshotSource:
    """The metadata in a snapshot (`MetadataSource`)."""

    is_live = False
    knows_schemas = True

    def __init__(self, file: SnapshotFile) -> None:
        self.warnings = list(file.warnings)
        self.listed_at = file.listed_at
        self._file = file

    def topics(self, namespaces: Collection[str] | None = None) -> list[TopicName]:
        """Return the topics with metadata, each partition separately."""
        return [
            topic
            for topic in self._file.topics_with_metadata
            if namespaces is None or topic.full_namespace in namespaces
        ]

    def scalable_topics(self, namespaces: Collection[str] | None = None) -> list[TopicName]:
        """Return the scalable topics with metadata."""
        return [
            topic
            for topic in self._file.scalable_topics
            if namespaces is None or topic.full_namespace in namespaces
        ]

    def scalable_topic(self, topic: TopicName) -> ScalableTopic | None:
        """Return the saved segments of a scalable topic; None if there were none."""
        return self._file.scalable_topics.get(topic)

    def topic_metadata(self, topic: TopicName, *, again: bool = False) -> TopicMetadata | None:
        """Return the saved metadata of a topic; None if there was none."""
        del again
        return self._file.ledgers(topic).metadata

    def named_attempts(
        self,
        namespaces: Collection[str] | None,  # noqa: ARG002
        *,
        max_topics: int,  # noqa: ARG002
    ) -> Collection[tuple[int, UUID]]:
        """Return the ledger id and uuid of each offload of all topics."""
        all_metadata = map(self.topic_metadata, self._file.topics_with_metadata)
        return {each for metadata in all_metadata if metadata for each in metadata.named_attempts}

    def schema_source(self, topic: TopicName) -> bytes | None:
        """Return the admin API's answer for the topic's schemas."""
        return self._file.schema(topic)


def _offloaded_of(ledger: TopicLedger) -> OpenLedger:
    if ledger.copy is None or ledger.copy.ledger is None:
        message = f"ledger {ledger.ledger_id} cannot be read, but is listed as readable"
        raise CorruptSnapshotError(message)
    return ledger.copy.ledger


def _info_of(ledger: TopicLedger) -> LedgerInfo:
    if ledger.info is None:
        message = f"ledger {ledger.ledger_id} has no metadata, but is listed by the metadata"
        raise CorruptSnapshotError(message)
    return ledger.info


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        message = "expected a whole number from 0 on, found another value"
        raise CorruptSnapshotError(message)
    return value


def _ascending(values: Sequence[object], stop: int | None = None) -> list[int]:
    """Return numbers after checking that they ascend and are less than `stop`."""
    numbers = list(map(_count, values))
    in_order = all(map(lt, numbers, numbers[1:]))
    if not in_order or (stop is not None and numbers and numbers[-1] >= stop):
        message = "found numbers that do not ascend or exceed their limit"
        raise CorruptSnapshotError(message)
    return numbers
