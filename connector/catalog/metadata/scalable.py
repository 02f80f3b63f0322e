"""A scalable topic's segments, as a cluster of Pulsar 5.0 stores them: paths and JSON.

================ ==================================================================================
Source           Path
================ ==================================================================================
metadata store   `/topics/<tenant>/<namespace>/<encoded name>` (`ScalableTopicResources`)
admin API        `/admin/v2/scalable/<tenant>/<namespace>/<name>`
folder           `scalable-metadata.json` in the topic's folder
================ ==================================================================================

All have the same JSON object (`ScalableTopicMetadata`). Unknown fields are ignored:

- `segments`: object by id, in decimal, with `SegmentInfo`: `segmentId`; `hashRange`, which has
  `start` and `end` (inclusive); `state`, which is `ACTIVE` or `SEALED`; `parentIds`, `childIds`;
  `legacyTopicName` of a partition that was migrated, which is a segment of this topic too.
- `nextSegmentId`: greater than all ids.
- `deleted`: true while the topic is being deleted.

Segments form a directed acyclic graph. A split or merge (`SegmentLayout`) seals the parents, and
gives the children greater ids. A segment that all subscriptions have read is pruned: its id is in
no segment any more, and its ledgers are deleted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from arrow_io.core.lazy import cached_property
from arrow_io.core.wording import counted
from arrow_io.errors import CorruptMetadataError, OptionError
from connector.catalog.metadata.topic_metadata import MAX_METADATA_BYTES
from connector.catalog.schemas.forms import parse_json
from connector.inputs.topic_names import MAX_SEGMENT_ID, Segment, TopicName, encode_local_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SCALABLE_FILE: Final = "scalable-metadata.json"
"""File in a topic's folder with its segments."""
SEGMENT_FOLDER: Final = "segment-"
"""Folders in a topic's folder with the ledgers of a segment; the id follows."""
LEGACY_FOLDER: Final = "legacy-"
"""Folders in a topic's folder with the ledgers of a partition; its encoded local name follows."""

_MAX_HASH: Final = 0xFFFF
_STATES: Final = {"ACTIVE": False, "SEALED": True}
_SHOWN_CHARACTERS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentNode:
    """One segment in the graph of a scalable topic."""

    segment: Segment
    is_sealed: bool
    """Whether it gets no more messages."""
    parent_ids: tuple[int, ...] = ()
    """Ids of the segments that it was split or merged from, unless they were pruned; ascending."""
    child_ids: tuple[int, ...] = ()
    """Ids of the segments that continue it; ascending."""
    legacy: TopicName | None = None
    """The partition of a migrated topic that it stands for; None if it is a segment of its own."""


@dataclass(frozen=True, kw_only=True)
class ScalableTopic:
    """A scalable topic as its cluster recorded it.

    Attributes:
        topic: The topic, with the domain `topic`.
        nodes: Its segments, ascending by id; empty if the topic is being deleted.
    """

    topic: TopicName
    nodes: tuple[SegmentNode, ...]

    @cached_property
    def members(self) -> tuple[TopicName, ...]:
        """The topics that have its history, in order: migrated partitions, then segments."""
        return tuple(sorted(map(self._name, self.nodes), key=attrgetter("order")))

    def node(self, segment_id: int) -> SegmentNode | None:
        """Return the segment with an id; None if it was pruned, or never existed."""
        index = bisect_left(self.nodes, segment_id, key=attrgetter("segment.id"))
        found = self.nodes[index] if index < len(self.nodes) else None
        return found if found is not None and found.segment.id == segment_id else None

    def _name(self, node: SegmentNode) -> TopicName:
        return node.legacy or segment_name(self.topic, node.segment)


def segment_name(topic: TopicName, segment: Segment) -> TopicName:
    """Return the name of a segment of a scalable topic."""
    return TopicName(
        topic.tenant, topic.namespace, topic.local_name, domain="segment", segment=segment
    )


def node_path(topic: TopicName) -> str:
    """Return the path of a scalable topic in the metadata store."""
    return f"{namespace_path(topic.full_namespace)}/{encode_local_name(topic.local_name)}"


def namespace_path(namespace: str) -> str:
    """Return the path of a namespace, whose children are the encoded names of scalable topics."""
    return f"/topics/{namespace}"


def parse_scalable_topic(data: bytes, topic: TopicName) -> ScalableTopic:
    """Parse the JSON of a scalable topic.

    Args:
        data: The JSON, which does not name the topic.
        topic: The topic, with the domain `topic`.

    Raises:
        CorruptMetadataError: It is no such JSON or longer than `MAX_METADATA_BYTES`; or a field has
            a value that Pulsar never writes; or the segments form no such graph.
    """
    if len(data) > MAX_METADATA_BYTES:
        has = counted(len(data), "byte")
        message = f"the scalable topic has {has}; {MAX_METADATA_BYTES} are allowed"
        raise CorruptMetadataError(message)
    try:
        value = parse_json(data, allow_repeated_names=False)
    except OptionError as error:
        raise CorruptMetadataError(error.message) from error
    return read_scalable_topic(value, topic)


def read_scalable_topic(value: object, topic: TopicName) -> ScalableTopic:
    """Read the parsed JSON of a scalable topic; see `parse_scalable_topic`.

    Raises:
        CorruptMetadataError: See `parse_scalable_topic`.
    """
    fields = _mapping(value, "a scalable topic")
    next_id = _number(fields, "nextSegmentId", MAX_SEGMENT_ID)
    deleted = fields.get("deleted", False)
    if not isinstance(deleted, bool):
        message = "the field deleted of a scalable topic is neither true nor false"
        raise CorruptMetadataError(message)
    nodes = [
        _node(name, each, topic)
        for name, each in _mapping(fields.get("segments"), "the field segments").items()
    ]
    nodes.sort(key=attrgetter("segment.id"))
    _check_graph(nodes, next_id)
    return ScalableTopic(topic=topic, nodes=() if deleted else tuple(nodes))


def scalable_topic_json(scalable: ScalableTopic) -> dict[str, Any]:
    """Return the JSON of a scalable topic, as far as `read_scalable_topic` reads it."""
    nodes = scalable.nodes
    return {
        "nextSegmentId": nodes[-1].segment.id + 1 if nodes else 0,
        "segments": {str(each.segment.id): _node_json(each) for each in nodes},
    }


def _node_json(node: SegmentNode) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "segmentId": node.segment.id,
        "hashRange": {"start": node.segment.first_hash, "end": node.segment.last_hash},
        "state": "SEALED" if node.is_sealed else "ACTIVE",
        "parentIds": list(node.parent_ids),
        "childIds": list(node.child_ids),
    }
    return fields if node.legacy is None else fields | {"legacyTopicName": str(node.legacy)}


def _node(name: str, value: object, topic: TopicName) -> SegmentNode:
    fields = _mapping(value, "a segment")
    number = _number(fields, "segmentId", MAX_SEGMENT_ID)
    if name != str(number):
        message = f"the segment {_shorten(name)} has the id {number}"
        raise CorruptMetadataError(message)
    hashes = _mapping(fields.get("hashRange"), "the field hashRange")
    segment = Segment(
        number, _number(hashes, "start", _MAX_HASH), _number(hashes, "end", _MAX_HASH)
    )
    if segment.first_hash > segment.last_hash:
        message = f"the hashes of segment {number} end before they start"
        raise CorruptMetadataError(message)
    state = fields.get("state")
    if not isinstance(state, str) or state not in _STATES:
        message = f"segment {number} has the unknown state {_shorten(state)}"
        raise CorruptMetadataError(message)
    return SegmentNode(
        segment=segment,
        is_sealed=_STATES[state],
        parent_ids=_ids(fields, "parentIds"),
        child_ids=_ids(fields, "childIds"),
        legacy=_legacy_topic(fields.get("legacyTopicName"), number, topic),
    )


def _legacy_topic(name: object, number: int, topic: TopicName) -> TopicName | None:
    if name is None:
        return None
    try:
        legacy = TopicName.parse(name) if isinstance(name, str) else None
    except OptionError:
        legacy = None
    if legacy is None or legacy.is_scalable or legacy.base != topic.classic:
        message = f"segment {number} names {_shorten(name)}, which {topic} was not migrated from"
        raise CorruptMetadataError(message)
    return legacy


def _check_graph(nodes: Iterable[SegmentNode], next_id: int) -> None:
    """Raise unless parents and children are segments that name each other."""
    by_id = {each.segment.id: each for each in nodes}
    legacy = [each.legacy for each in by_id.values() if each.legacy is not None]
    if len(set(legacy)) < len(legacy):
        message = "two segments represent one migrated partition"
        raise CorruptMetadataError(message)
    if by_id and max(by_id) >= next_id:
        message = f"segment {max(by_id)} has an id that the topic has not assigned so far"
        raise CorruptMetadataError(message)
    for number, other, word in _links(by_id.values()):
        if other not in by_id:
            message = f"segment {number} has the {word} {other}, which the topic lacks"
            raise CorruptMetadataError(message)
        # Ids that ascend from parent to child exclude cycles too.
        if (other >= number) if word == "parent" else (other <= number):
            message = f"segment {number} has the {word} {other}: children have greater ids"
            raise CorruptMetadataError(message)
    for number, other, word in _links(by_id.values()):
        ids = by_id[other].child_ids if word == "parent" else by_id[other].parent_ids
        # A topic that was migrated from a thousand partitions has two million links.
        index = bisect_left(ids, number)
        if ids[index : index + 1] != (number,):
            message = f"segment {other} does not know segment {number}, which has it as {word}"
            raise CorruptMetadataError(message)


def _links(nodes: Iterable[SegmentNode]) -> Iterator[tuple[int, int, str]]:
    """Yield each id of a segment, the id of a parent or child, and which of both it is."""
    for each in nodes:
        for word, others in (("parent", each.parent_ids), ("child", each.child_ids)):
            for other in others:
                yield each.segment.id, other, word


def _ids(fields: Mapping[str, object], name: str) -> tuple[int, ...]:
    values = fields.get(name, [])
    if not isinstance(values, list):
        message = f"the field {name} of a segment is not a list"
        raise CorruptMetadataError(message)
    ids = tuple(sorted(_checked_number(each, name, MAX_SEGMENT_ID) for each in values))
    if len(set(ids)) < len(ids):
        message = f"the field {name} of a segment has an id twice"
        raise CorruptMetadataError(message)
    return ids


def _number(fields: Mapping[str, object], name: str, most: int) -> int:
    return _checked_number(fields.get(name), name, most)


def _checked_number(value: object, name: str, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        message = f"the field {name} of a scalable topic is no whole number in 0 … {most}"
        raise CorruptMetadataError(message)
    return value


def _mapping(value: object, what: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        message = f"{what} is not a JSON object"
        raise CorruptMetadataError(message)
    return value


def _shorten(value: object) -> str:
    return repr(value)[:_SHOWN_CHARACTERS]
