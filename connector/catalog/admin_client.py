"""What a live cluster knows of its topics, asked of its admin API.

=============================================================== =================================
Path                                                            Answers
=============================================================== =================================
`/admin/v2/tenants`                                             names of tenants
`/admin/v2/namespaces/{tenant}`                                 names of namespaces
`/admin/v2/persistent/{tenant}/{namespace}`                     names of topics, each partition by
                                                                itself
`/admin/v2/persistent/{tenant}/{namespace}/{topic}/…`           `internal-info`, `internalStats`
`/admin/v2/schemas/{tenant}/{namespace}/{topic}/schemas`        all versions of the schema
=============================================================== =================================

Topics whose names have a cluster, as in Pulsar's first version, are below `/admin/persistent`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from arrow_io.errors import CorruptMetadataError, OptionError
from connector.catalog.admin_answers import (
    has_schemas,
    parse_internal_info,
    parse_internal_stats,
    read_answer,
    read_names,
)
from connector.catalog.admin_connection import AdminConnection, parse_options
from connector.catalog.metadata_merge import merge_metadata
from connector.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connector.catalog.topic_metadata import TopicMetadata

_CONCURRENT_REQUESTS: Final = 8


class AdminApi:
    """The admin API of a live cluster as a source of metadata.

    Answers are asked for when they are first needed, topic by topic, and kept.

    Args:
        connection: What sends the requests.
    """

    is_live = True

    def __init__(self, connection: AdminConnection) -> None:
        self.warnings: list[str] = []
        self._connection = connection
        self._topics: list[TopicName] | None = None
        self._metadata: dict[TopicName, TopicMetadata | None] = {}
        self._schemas: dict[TopicName, bytes | None] = {}

    @classmethod
    def from_options(cls, url: str, options: Mapping[str, object]) -> AdminApi:
        """Take a URL and the options of `AdminOptions` as users give them.

        Raises:
            OptionError: The URL or an option is not usable.
        """
        return cls(AdminConnection(url, parse_options(options)))

    def __repr__(self) -> str:
        """The URL, without the token."""
        return f"AdminApi({self._connection.url!r})"

    def topics(self) -> list[TopicName]:
        """Every topic of the cluster, or of the namespaces that were given.

        Each partition by itself, by name and partition number.

        Raises:
            CorruptMetadataError: An answer is malformed.
            StorageError: The cluster cannot be reached, or refuses.
        """
        if self._topics is None:
            with ThreadPoolExecutor(_CONCURRENT_REQUESTS) as executor:
                names = self._connection.options.namespaces or chain.from_iterable(
                    executor.map(self._namespaces, self._names("/admin/v2/tenants"))
                )
                found = set(chain.from_iterable(executor.map(self._topics_of, names)))
            self._topics = sorted(found, key=lambda topic: (str(topic.base), topic.partition))
        return list(self._topics)

    def topic_metadata(self, topic: TopicName) -> TopicMetadata | None:
        """The ledgers of one topic or partition; None if the cluster does not know it.

        Raises:
            CorruptMetadataError: An answer is malformed.
            StorageError: The cluster cannot be reached, or refuses.
        """
        if topic not in self._metadata:
            path = _topic_path(topic)
            info = self._answer(f"{path}/internal-info")
            # The second request makes a broker load the topic: not where there is none.
            stats = None if info is None else self._answer(f"{path}/internalStats")
            self._metadata[topic] = merge_metadata(
                None,
                None if info is None else parse_internal_info(info, topic).get(topic),
                None if stats is None else parse_internal_stats(stats, topic).get(topic),
                self.warnings,
            )
        return self._metadata[topic]

    def schema_source(self, topic: TopicName) -> bytes | None:
        """The schemas of a topic, or of the topic that a partition belongs to.

        Raises:
            CorruptMetadataError: The answer is malformed.
            StorageError: The cluster cannot be reached, or refuses.
        """
        base = topic.base
        if base not in self._schemas:
            place = "/".join(map(_encoded, _parts(base)))
            data = self._connection.get(f"/admin/v2/schemas/{place}/schemas")
            self._schemas[base] = data if data and has_schemas(read_answer(data)) else None
        return self._schemas[base]

    def _answer(self, path: str) -> Mapping[str, object] | None:
        data = self._connection.get(path)
        return None if data is None else read_answer(data)

    def _names(self, path: str) -> list[str]:
        data = self._connection.get(path)
        return [] if data is None else read_names(data)

    def _namespaces(self, tenant: str) -> list[str]:
        return self._names(f"/admin/v2/namespaces/{_encoded(tenant)}")

    def _topics_of(self, namespace: str) -> list[TopicName]:
        parts = namespace.split("/")
        names = self._names(f"{_persistent(len(parts))}/{'/'.join(map(_encoded, parts))}")
        try:
            return [TopicName.parse(name) for name in names]
        except OptionError as error:
            raise CorruptMetadataError(error.message) from error


def _topic_path(topic: TopicName) -> str:
    parts = _parts(topic)
    return f"{_persistent(len(parts) - 1)}/{'/'.join(map(_encoded, parts))}"


def _parts(topic: TopicName) -> list[str]:
    cluster = [] if topic.cluster is None else [topic.cluster]
    return [topic.tenant, *cluster, topic.namespace, topic.local_name]


def _persistent(namespace_parts: int) -> str:
    """Where persistent topics are, for a namespace without or with a cluster in its name."""
    return "/admin/persistent" if namespace_parts > 2 else "/admin/v2/persistent"  # noqa: PLR2004


def _encoded(part: str) -> str:
    return quote(part, safe="", errors="replace")
