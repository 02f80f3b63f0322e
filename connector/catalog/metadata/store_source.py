"""Metadata of topics from the metadata store of a cluster, without a broker.

Brokers keep a node for each managed ledger, and below it one for each cursor (`managed_ledger`).
The list of a topic's ledgers is one value, which brokers replace whole and stores transmit with its
length. So it is complete, and it is the list that brokers themselves use.

A store does not have:

- schemas: brokers write them to BookKeeper, and nodes only say where;
- positions of subscriptions that are open: brokers write them to BookKeeper too.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote_plus

from arrow_io.core.threads import ContextThreadPool
from arrow_io.core.wording import counted
from arrow_io.errors import (
    CorruptMetadataError,
    FormatError,
    OptionError,
    PulsarOffloadError,
    StorageError,
)
from connector.catalog.metadata.answer_cache import AnswerCache
from connector.catalog.metadata.managed_ledger import (
    parse_managed_cursor_info,
    parse_managed_ledger_info,
)
from connector.catalog.metadata.merge import merge_metadata
from connector.catalog.metadata.scalable import (
    namespace_path,
    node_path,
    parse_scalable_topic,
)
from connector.catalog.metadata.transaction_nodes import read_segment_metadata
from connector.inputs.topic_names import TopicName, encode_local_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from uuid import UUID

    from connector.catalog.metadata.metadata_store import MetadataStore
    from connector.catalog.metadata.scalable import ScalableTopic
    from connector.catalog.metadata.topic_metadata import TopicMetadata

_CONCURRENT_REQUESTS: Final = 8
_LEDGERS: Final = "/managed-ledgers"
_SCHEMAS: Final = "/schemas"
_PERSISTENT: Final = "persistent"
_DOMAINS: Final = frozenset({_PERSISTENT, "segment"})
"""Nodes of a namespace that have topics below them; others are namespaces of a cluster."""


class StoreSource:
    """A metadata store as a source of metadata (`MetadataSource`).

    Nodes are requested on first use, topic by topic, and cached. Safe to use from several threads;
    of those that need the same answer, one sends the request.

    Attributes:
        store: The store, for nodes that this source does not cache.
    """

    is_live = True
    knows_schemas = False

    def __init__(self, store: MetadataStore) -> None:
        self.store = store
        self._namespaces: AnswerCache[None, tuple[str, ...]] = AnswerCache()
        self._lists: AnswerCache[str, _TopicList] = AnswerCache()
        self._metadata: AnswerCache[TopicName, _TopicNodes] = AnswerCache()
        self._scalable_topics: AnswerCache[str, _TopicList] = AnswerCache()
        self._segments: AnswerCache[TopicName, ScalableTopic | None] = AnswerCache()
        self._schemas: AnswerCache[TopicName, bool] = AnswerCache()
        self._is_cluster: AnswerCache[None, bool] = AnswerCache()

    def __repr__(self) -> str:
        return f"StoreSource({self.store!r})"

    @property
    def warnings(self) -> list[str]:
        """What the store does not have of the topics so far, and doubts about its nodes."""
        nodes = self._metadata.values()
        lists = (*self._lists.values(), *self._scalable_topics.values())
        warnings = [warning for each in lists for warning in each.warnings]
        warnings += [warning for each in nodes for warning in each.warnings]
        open_cursors = sum(each.open_cursors for each in nodes)
        if open_cursors:
            subscriptions = counted(open_cursors, "open subscription")
            warnings.append(
                f"the metadata store lacks the positions of {subscriptions}: brokers write them to"
                " BookKeeper"
            )
        topics = sum(self._schemas.values())
        if topics:
            warnings.append(
                f"the metadata store lacks the schemas of {counted(topics, 'topic')}: brokers write"
                " them to BookKeeper"
            )
        return warnings

    def topics(self, namespaces: Collection[str] | None = None) -> list[TopicName]:
        """Return the topics of namespaces, each partition separately, by name and partition number.

        System topics are included.

        Args:
            namespaces: Namespaces whose topics are returned. By default all.

        Raises:
            StorageError: The store cannot be reached, or refuses; or it is no cluster's.
        """
        return self._list(self._topics_of, namespaces)

    def scalable_topics(self, namespaces: Collection[str] | None = None) -> list[TopicName]:
        """Return the scalable topics of namespaces, by name; see `topics`.

        Raises:
            StorageError: The store cannot be reached, or refuses; or it is no cluster's.
        """
        return self._list(self._scalable_topics_of, namespaces)

    def scalable_topic(self, topic: TopicName) -> ScalableTopic | None:
        """Return the segments of a scalable topic; None if the cluster does not have it.

        Raises:
            CorruptMetadataError: The node is malformed.
            StorageError: The store cannot be reached, or refuses.
        """
        return self._segments.get(topic, lambda: self._fetch_segments(topic))

    def _list(
        self, list_topics: Callable[[str], list[TopicName]], namespaces: Collection[str] | None
    ) -> list[TopicName]:
        self._check_cluster()
        if namespaces is None:
            namespaces = self._namespaces.get(None, self._all_namespaces)
        with ContextThreadPool(_CONCURRENT_REQUESTS) as executor:
            found = set(chain.from_iterable(executor.map(list_topics, set(namespaces))))
        return sorted(found, key=attrgetter("order"))

    def topic_metadata(self, topic: TopicName, *, again: bool = False) -> TopicMetadata | None:
        """Return the ledgers of one topic or partition; see `MetadataSource`.

        Raises:
            CorruptMetadataError: The node is malformed.
            StorageError: The store cannot be reached, or refuses; or it is no cluster's.
        """
        find = self._metadata.renew if again else self._metadata.get
        return find(topic, lambda: self._fetch_topic(topic)).metadata

    def named_attempts(
        self, namespaces: Collection[str] | None, *, max_topics: int
    ) -> Collection[tuple[int, UUID]] | None:
        """Return the ledger id and uuid of each offload of topics: one request per topic.

        Returns None if there are more than `max_topics` topics and segments.

        Raises:
            StorageError: The store cannot be reached, or refuses; or it is no cluster's.
        """
        topics = [*self.topics(namespaces), *self._every_segment(namespaces)]
        if len(topics) > max_topics:
            return None
        with ContextThreadPool(_CONCURRENT_REQUESTS) as executor:
            return set(chain.from_iterable(executor.map(self._attempts_of, topics)))

    def schema_source(self, topic: TopicName) -> bytes | None:
        """Return None: a metadata store has no schemas.

        If the topic has a schema, `warnings` counts it.

        Raises:
            StorageError: The store cannot be reached, or refuses.
        """
        base = topic.classic
        local_name = base.managed_ledger_name.rpartition("/")[2]
        path = f"{_SCHEMAS}/{base.full_namespace}/{local_name}"
        self._schemas.get(base, lambda: self.store.get(path) is not None)
        return None

    def _check_cluster(self) -> None:
        """Raise an error unless the store is a cluster's: then what it lacks does not exist."""
        if not self._is_cluster.get(None, lambda: bool(self.store.children(_LEDGERS))):
            message = (
                f"there are no managed ledgers in {self.store.url}: it is not the metadata store"
                " of a cluster, or its path or namespace is another"
            )
            raise StorageError(message)

    def _all_namespaces(self) -> tuple[str, ...]:
        # `/admin/policies` lists namespaces too, but may be in another store (the configuration
        # metadata store).
        by_tenant = self._children([""])
        by_second = self._children(_paths(by_tenant))
        by_namespace = self._children(_paths(by_second))
        # In names of Pulsar's first version the second part is a cluster.
        thirds = [each for each in _paths(by_namespace) if each.split("/")[-1] not in _DOMAINS]
        by_namespace |= self._children(thirds)
        return tuple(path[1:] for path, names in by_namespace.items() if _DOMAINS & {*names})

    def _children(self, paths: Collection[str]) -> dict[str, list[str]]:
        """Return the names of the children of nodes below `/managed-ledgers`, by path."""
        with ContextThreadPool(_CONCURRENT_REQUESTS) as executor:
            names = executor.map(self.store.children, [f"{_LEDGERS}{path}" for path in paths])
            return dict(zip(paths, names, strict=True))

    def _topics_of(self, namespace: str) -> list[TopicName]:
        return self._lists.get(namespace, lambda: self._fetch_topics(namespace)).topics

    def _fetch_topics(self, namespace: str) -> _TopicList:
        topics: list[TopicName] = []
        warnings: list[str] = []
        parent = f"{namespace}/{_PERSISTENT}"
        for name in self.store.children(f"{_LEDGERS}/{parent}"):
            try:
                topics.append(TopicName.from_managed_ledger_name(f"{parent}/{name}"))
            except FormatError as error:
                warnings.append(f"a node of the metadata store is left out: {error.message}")
        return _TopicList(topics, warnings)

    def _scalable_topics_of(self, namespace: str) -> list[TopicName]:
        list_ = self._scalable_topics.get(namespace, lambda: self._fetch_scalable_topics(namespace))
        return list_.topics

    def _fetch_scalable_topics(self, namespace: str) -> _TopicList:
        topics: list[TopicName] = []
        warnings: list[str] = []
        if namespace.count("/") > 1:
            # Only names of Pulsar's first version have a cluster, and no segments.
            return _TopicList(topics, warnings)
        for name in self.store.children(namespace_path(namespace)):
            try:
                topic = TopicName.parse(f"topic://{namespace}/{unquote_plus(name)}")
            except OptionError as error:
                warnings.append(f"a node of the metadata store is left out: {error.message}")
                continue
            if encode_local_name(topic.local_name) == name:
                topics.append(topic)
            else:
                warnings.append(f"a node of the metadata store is left out: {name[:200]!r}")
        return _TopicList(topics, warnings)

    def _every_segment(self, namespaces: Collection[str] | None) -> list[TopicName]:
        segments: list[TopicName] = []
        for topic in self.scalable_topics(namespaces):
            with suppress(FormatError):
                graph = self.scalable_topic(topic)
                members = [] if graph is None else graph.members
                segments += [each for each in members if each.segment is not None]
        return segments

    def _fetch_segments(self, topic: TopicName) -> ScalableTopic | None:
        path = node_path(topic)
        value = self.store.get(path)
        try:
            # A node that exists for its children alone, such as a lock of brokers, is empty.
            return parse_scalable_topic(value, topic) if value else None
        except CorruptMetadataError as error:
            raise error.located(object_key=f"{self.store.url}{path}") from None

    def _fetch_topic(self, topic: TopicName) -> _TopicNodes:
        if topic.segment is None:
            metadata = self._ledgers(topic)
        else:
            metadata = read_segment_metadata(
                self.store, str(topic), lambda: self._ledgers(topic), is_live=self.is_live
            )
        if metadata is None:
            self._check_cluster()
            return _TopicNodes(None, [], 0)
        warnings: list[str] = []
        path = _path(topic)
        with ContextThreadPool(_CONCURRENT_REQUESTS) as executor:
            names = self.store.children(path)
            values = executor.map(lambda name: self.store.get(f"{path}/{name}"), names)
            # A subscription that was deleted after its name was listed has no value.
            cursors = {name: each for name, each in zip(names, values, strict=True) if each}
        positions = {}
        open_cursors = 0
        for name, value in cursors.items():
            try:
                position = parse_managed_cursor_info(value)
            except CorruptMetadataError as error:
                warnings.append(
                    f"the position of subscription {name} of {topic} is not used: {error}"
                )
                continue
            if position is None:
                open_cursors += 1
            else:
                positions[name] = position
        return _TopicNodes(replace(metadata, cursors=positions), warnings, open_cursors)

    def _ledgers(self, topic: TopicName) -> TopicMetadata | None:
        """Return a topic's ledgers, without cursors; not cached."""
        path = _path(topic)
        value = self.store.get(path)
        if value is None:
            return None
        try:
            metadata = parse_managed_ledger_info(value, topic)
            return merge_metadata(metadata, None, None, [], is_checked=True)
        except FormatError as error:
            raise error.located(object_key=f"{self.store.url}{path}") from None

    def _attempts_of(self, topic: TopicName) -> set[tuple[int, UUID]]:
        nodes = self._metadata.peek(topic)
        with suppress(PulsarOffloadError):
            metadata = self._ledgers(topic) if nodes is None else nodes.metadata
            return set() if metadata is None else metadata.named_attempts
        return set()


class _TopicList(NamedTuple):
    """The topics of a namespace, and why nodes are left out."""

    topics: list[TopicName]
    warnings: list[str]


class _TopicNodes(NamedTuple):
    """The nodes of a topic, and the number of cursors whose positions are elsewhere."""

    metadata: TopicMetadata | None
    warnings: list[str]
    open_cursors: int


def _paths(children: Mapping[str, Iterable[str]]) -> list[str]:
    return [f"{path}/{name}" for path, names in children.items() for name in names]


def _path(topic: TopicName) -> str:
    return f"{_LEDGERS}/{topic.managed_ledger_name}"
