"""Metadata of topics from the admin API of a live cluster.

=============================================================== =================================
Path                                                            Answer
=============================================================== =================================
`/admin/v2/clusters`                                            names of clusters, to everyone
`/admin/v2/tenants`                                             names of tenants
`/admin/v2/namespaces/{tenant}`                                 names of namespaces
`/admin/v2/persistent/{tenant}/{namespace}`                     names of topics, each partition
                                                                separately
`/admin/v2/persistent/{tenant}/{namespace}/{topic}/…`           `internal-info`, `internalStats`
`/admin/v2/schemas/{tenant}/{namespace}/{topic}/schemas`        all versions of the schema
`/admin/v2/namespaces/{tenant}/{namespace}`                     policies of a namespace
`/admin/v2/brokers/configuration/runtime`                       settings of the brokers
`/admin/v2/scalable/{tenant}/{namespace}`                       names of scalable topics
`/admin/v2/scalable/{tenant}/{namespace}/{topic}`               the segments of one
=============================================================== =================================

Topics whose names have a cluster, as in Pulsar's first version, are below `/admin/persistent`. A
cluster answers 404 for unknown resources, but so does any other web server. So after the first 404,
the server must prove to be a cluster by its answer to `/admin/v2/clusters`. For an unknown topic,
brokers answer 404 to `internalStats`, but 500 to `internal-info`. Only clusters of Pulsar 5.0 have
scalable topics; no answer has the ledgers of their segments.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from urllib.parse import quote

from arrow_io.core.threads import ContextThreadPool
from arrow_io.errors import (
    CorruptMetadataError,
    FormatError,
    OptionError,
    PulsarOffloadError,
    StorageError,
)
from connector.catalog.metadata.admin_answers import (
    has_schemas,
    parse_internal_info,
    parse_internal_stats,
    read_answer,
    read_names,
)
from connector.catalog.metadata.admin_connection import AdminConnection, parse_options
from connector.catalog.metadata.answer_cache import AnswerCache
from connector.catalog.metadata.merge import merge_metadata
from connector.catalog.metadata.scalable import parse_scalable_topic
from connector.inputs.topic_names import TopicName

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from uuid import UUID

    from connector.catalog.metadata.admin_connection import AdminOptions
    from connector.catalog.metadata.scalable import ScalableTopic
    from connector.catalog.metadata.topic_metadata import TopicMetadata

_CONCURRENT_REQUESTS: Final = 8
_CLUSTERS: Final = "/admin/v2/clusters"
_TENANTS: Final = "/admin/v2/tenants"
_SCALABLE: Final = "/admin/v2/scalable"
_SCALABLE_NAMESPACE_PARTS: Final = 2

_Value = TypeVar("_Value")


class AdminApi:
    """The admin API of a live cluster as a source of metadata.

    Answers are requested on first use, topic by topic, and cached. Safe to use from several
    threads; of those that need the same answer, one sends the request.
    """

    is_live = True
    knows_schemas = True

    def __init__(self, connection: AdminConnection[AdminOptions]) -> None:
        self._connection = connection
        self._namespaces: AnswerCache[None, tuple[str, ...]] = AnswerCache()
        self._topics: AnswerCache[str, list[TopicName]] = AnswerCache()
        self._metadata: AnswerCache[TopicName, _TopicAnswer] = AnswerCache()
        self._scalable_topics: AnswerCache[str, list[TopicName]] = AnswerCache()
        self._segments: AnswerCache[TopicName, ScalableTopic | None] = AnswerCache()
        self._lacks_scalable_topics = False
        self._schemas: AnswerCache[TopicName, bytes | None] = AnswerCache()
        self._is_admin_api: AnswerCache[None, bool] = AnswerCache()

    @classmethod
    def from_options(cls, url: str, options: Mapping[str, object]) -> AdminApi:
        """Create a source from a URL and the options of `AdminOptions` as users pass them.

        Raises:
            OptionError: The URL or an option cannot be used.
        """
        return cls(AdminConnection(url, parse_options(options)))

    def __repr__(self) -> str:
        return f"AdminApi({self._connection.url!r})"

    @property
    def url(self) -> str:
        """The URL, without the token."""
        return self._connection.url

    @property
    def warnings(self) -> list[str]:
        """Doubts about the answers so far, and contradictions between them."""
        return [warning for answer in self._metadata.values() for warning in answer.warnings]

    def topics(self, namespaces: Collection[str] | None = None) -> list[TopicName]:
        """Return the topics of namespaces, each partition separately, by name and partition number.

        Args:
            namespaces: Namespaces whose topics are returned, which must be allowed to be listed. By
                default those of the option `namespaces`, or all of the cluster.

        Raises:
            CorruptMetadataError: An answer is malformed.
            StorageError: The cluster cannot be reached, or refuses; no admin API answers at the
                URL; or the cluster does not know a namespace of the option `namespaces`.
        """
        return self._list(self._topics_of, namespaces)

    def scalable_topics(self, namespaces: Collection[str] | None = None) -> list[TopicName]:
        """Return the scalable topics of namespaces, by name; see `topics`.

        Raises:
            CorruptMetadataError: An answer is malformed.
            StorageError: The cluster cannot be reached, or refuses; or no admin API answers at the
                URL.
        """
        return self._list(self._scalable_topics_of, namespaces)

    def scalable_topic(self, topic: TopicName) -> ScalableTopic | None:
        """Return the segments of a scalable topic; None if the cluster does not know it.

        Raises:
            CorruptMetadataError: The answer is malformed.
            StorageError: The cluster cannot be reached, or refuses, or no admin API answers at the
                URL.
        """
        return self._segments.get(topic, lambda: self._fetch_segments(topic))

    def _list(
        self, list_topics: Callable[[str], list[TopicName]], namespaces: Collection[str] | None
    ) -> list[TopicName]:
        if namespaces is None:
            namespaces = self._namespaces.get(None, self._all_namespaces)
        with ContextThreadPool(_CONCURRENT_REQUESTS) as executor:
            found = set(chain.from_iterable(executor.map(list_topics, set(namespaces))))
        return sorted(found, key=attrgetter("order"))

    def topic_metadata(self, topic: TopicName, *, again: bool = False) -> TopicMetadata | None:
        """Return the ledgers of one topic or partition; see `MetadataSource`.

        Raises:
            CorruptMetadataError: An answer is malformed.
            StorageError: The cluster cannot be reached, or refuses, or no admin API answers at the
                URL.
        """
        if topic.is_scalable:
            return None
        find = self._metadata.renew if again else self._metadata.get
        return find(topic, lambda: self._fetch_topic(topic)).metadata

    def named_attempts(
        self, namespaces: Collection[str] | None, *, max_topics: int
    ) -> Collection[tuple[int, UUID]] | None:
        """Return the ledger id and uuid of each offload of topics: one request per topic.

        Does not make a broker load a topic. Returns None if there are more than `max_topics`
        topics.

        Raises:
            CorruptMetadataError: An answer that lists topics is malformed.
            StorageError: The cluster does not list its topics.
        """
        topics = self.topics(namespaces)
        if len(topics) > max_topics:
            return None
        with ContextThreadPool(_CONCURRENT_REQUESTS) as executor:
            return set(chain.from_iterable(executor.map(self._attempts_of, topics)))

    def _attempts_of(self, topic: TopicName) -> set[tuple[int, UUID]]:
        answer = self._metadata.peek(topic)
        with suppress(PulsarOffloadError):
            info = self._info(topic) if answer is None else answer.metadata
            return set() if info is None else info.named_attempts
        return set()

    def ledger_owners(self) -> dict[int, TopicName]:
        """Return the topic of each ledger of the cluster's topics: one request per topic.

        Does not make a broker load a topic.

        Raises:
            CorruptMetadataError: An answer is malformed.
            StorageError: The cluster cannot be reached, or refuses.
        """
        topics = self.topics()
        with ContextThreadPool(_CONCURRENT_REQUESTS) as executor:
            infos = zip(topics, executor.map(self._info, topics), strict=True)
            return {
                ledger.ledger_id: topic
                for topic, info in infos
                for ledger in (info.ledgers if info else ())
            }

    def answer(self, *path: str) -> Mapping[str, object] | None:
        """Return the answer for another path, a JSON object; None if the cluster does not know it.

        `path` has the names after `/admin/v2/`, not encoded.

        Raises:
            CorruptMetadataError: The answer is no JSON object.
            StorageError: The cluster cannot be reached, or refuses.
        """
        return self._get(f"/admin/v2/{'/'.join(map(_encoded, path))}", read_answer)

    def schema_source(self, topic: TopicName) -> bytes | None:
        """Return the schemas of a topic, or of the topic of a partition.

        Raises:
            CorruptMetadataError: The answer is malformed.
            StorageError: The cluster cannot be reached, or refuses, or no admin API answers at the
                URL.
        """
        return self._schemas.get(topic.classic, lambda: self._fetch_schemas(topic.classic))

    def _all_namespaces(self) -> tuple[str, ...]:
        namespaces = self._connection.options.namespaces
        if namespaces:
            return namespaces
        tenants = self._get(_TENANTS, read_names)
        if tenants is None:
            raise StorageError(self._no_admin_api(_TENANTS))
        with ContextThreadPool(_CONCURRENT_REQUESTS) as executor:
            lists = executor.map(self._namespaces_of, tenants)
            return tuple(chain.from_iterable(lists))

    def _namespaces_of(self, tenant: str) -> list[str]:
        return self._get(f"/admin/v2/namespaces/{_encoded(tenant)}", read_names) or []

    def _topics_of(self, namespace: str) -> list[TopicName]:
        return self._topics.get(namespace, lambda: self._fetch_topics(namespace))

    def _fetch_topics(self, namespace: str) -> list[TopicName]:
        parts = namespace.split("/")
        path = f"{_persistent(len(parts))}/{'/'.join(map(_encoded, parts))}"
        names = self._get(path, read_names)
        if names is None and namespace in self._connection.options.namespaces:
            message = (
                f"the cluster at {self._connection.url} has no namespace {namespace!r}, which the"
                " option namespaces names"
            )
            raise StorageError(message)
        try:
            return [TopicName.parse_persistent(name, "the answer") for name in names or ()]
        except OptionError as error:
            raise CorruptMetadataError(error.message) from error

    def _scalable_topics_of(self, namespace: str) -> list[TopicName]:
        return self._scalable_topics.get(namespace, lambda: self._fetch_scalable_topics(namespace))

    def _fetch_scalable_topics(self, namespace: str) -> list[TopicName]:
        parts = namespace.split("/")
        if self._lacks_scalable_topics or len(parts) > _SCALABLE_NAMESPACE_PARTS:
            return []
        path = f"{_SCALABLE}/{'/'.join(map(_encoded, parts))}"
        names = self._get(path, read_names)
        # An older cluster knows the namespace, but not the path.
        if names is None and self._topics.peek(namespace):
            self._lacks_scalable_topics = True
        try:
            found = [TopicName.parse(name) for name in names or ()]
        except OptionError as error:
            raise CorruptMetadataError(error.message) from error
        for topic in found:
            if topic.domain != "topic" or topic.full_namespace != namespace:
                message = f"an answer about scalable topics of {namespace} has {str(topic)!r}"
                raise CorruptMetadataError(message)
        return found

    def _fetch_segments(self, topic: TopicName) -> ScalableTopic | None:
        if self._lacks_scalable_topics:
            return None
        path = f"{_SCALABLE}/{'/'.join(map(_encoded, _parts(topic)))}"
        return self._get(path, lambda data: parse_scalable_topic(data, topic))

    def _fetch_topic(self, topic: TopicName) -> _TopicAnswer:
        path = _topic_path(topic)
        warnings: list[str] = []
        topics = self._topics.peek(topic.full_namespace)
        # Lists of brokers lack some topics, so `internalStats` decides. `internal-info` would
        # answer 500, which is retried.
        if topics is not None and topic not in topics and self._is_unknown(path):
            return _TopicAnswer(None, [])
        try:
            info = self._info(topic)
        except StorageError:
            if not self._is_unknown(path):
                raise
            info = None
        stats: TopicMetadata | None = None
        # The request makes a broker load the topic, so it is sent only if there are offloads whose
        # completion is in question.
        if info is not None and any(ledger.offload for ledger in info.ledgers):
            answer = self._get(f"{path}/internalStats", read_answer)
            stats = None if answer is None else parse_internal_stats(answer, topic).get(topic)
        # Answers are known to be complete: the connection raises an error for a truncated one.
        merged = merge_metadata(None, info, stats, warnings, is_checked=True)
        return _TopicAnswer(merged, warnings)

    def _info(self, topic: TopicName) -> TopicMetadata | None:
        """Return a topic's internal-info; not cached, so that it is as new as its internalStats."""
        answer = self._get(f"{_topic_path(topic)}/internal-info", read_answer)
        return None if answer is None else parse_internal_info(answer, topic).get(topic)

    def _is_unknown(self, path: str) -> bool:
        try:
            return self._get(f"{path}/internalStats", bytes) is None
        except PulsarOffloadError:
            return False

    def _fetch_schemas(self, topic: TopicName) -> bytes | None:
        place = "/".join(map(_encoded, _parts(topic)))

        def with_schemas(data: bytes) -> bytes | None:
            return data if data and has_schemas(read_answer(data)) else None

        return self._get(f"/admin/v2/schemas/{place}/schemas", with_schemas)

    def _get(self, path: str, read: Callable[[bytes], _Value]) -> _Value | None:
        """Return the answer; None if the server is a cluster that does not know the path."""
        try:
            data = self._connection.get(path)
            if data is not None:
                return read(data)
        except FormatError as error:
            raise error.located(object_key=f"{self._connection.url}{path}") from None
        if not self._is_admin_api.get(None, self._has_clusters):
            raise StorageError(self._no_admin_api(path))
        return None

    def _has_clusters(self) -> bool:
        return self._connection.get(_CLUSTERS) is not None

    def _no_admin_api(self, path: str) -> str:
        url = self._connection.url
        return (
            f"no admin API of Pulsar answers at {url}: HTTP 404 for {path}; give the URL of a"
            " broker's or proxy's web service, without a path"
        )


class _TopicAnswer(NamedTuple):
    metadata: TopicMetadata | None
    warnings: list[str]


def _topic_path(topic: TopicName) -> str:
    parts = _parts(topic)
    return f"{_persistent(len(parts) - 1)}/{'/'.join(map(_encoded, parts))}"


def _parts(topic: TopicName) -> list[str]:
    cluster = [] if topic.cluster is None else [topic.cluster]
    return [topic.tenant, *cluster, topic.namespace, topic.local_name]


def _persistent(namespace_parts: int) -> str:
    # Three parts: tenant, cluster and namespace.
    return "/admin/persistent" if namespace_parts > 2 else "/admin/v2/persistent"  # noqa: PLR2004


def _encoded(part: str) -> str:
    return quote(part, safe="", errors="replace")
