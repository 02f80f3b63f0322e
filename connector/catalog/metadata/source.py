"""The sources of a cluster's metadata, with one interface.

======================================= ==========================================================
Source                                  Read by
======================================= ==========================================================
`http://…`, `https://…`                 `AdminApi`: the admin API of a live cluster
`zk://…`, `oxia://…`                    `StoreSource`: the metadata store of a cluster
path or URL of a folder                 `MetadataFolder`: saved files, one folder per topic
mapping of topic name to path or URL    the same, with the topics named by the user
======================================= ==========================================================
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from arrow_io.core.extras import install_command
from arrow_io.core.option_values import check_by_name, path_or_url
from arrow_io.errors import OptionError
from arrow_io.storage.redaction import redacted_urls
from connector.catalog.metadata.admin_client import AdminApi
from connector.catalog.metadata.folder import MetadataFolder
from connector.catalog.metadata.store_source import StoreSource

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from uuid import UUID

    from connector.catalog.metadata.metadata_store import MetadataStore
    from connector.catalog.metadata.scalable import ScalableTopic
    from connector.catalog.metadata.topic_metadata import TopicMetadata
    from connector.inputs.topic_names import TopicName

_STORES: Final = {"zk": ("zookeeper", "kazoo"), "oxia": ("oxia", "grpc")}
"""The extra with the library of each metadata store, and its module, by the scheme of URLs."""

PathLike: TypeAlias = str | os.PathLike[str]


class MetadataSource(Protocol):
    """A cluster's record of its topics. Answers are read on first use and cached.

    Safe to use from several threads.
    """

    @property
    def is_live(self) -> bool:
        """Whether the answers are current; otherwise they are as old as the saved files."""

    @property
    def knows_schemas(self) -> bool:
        """Whether the source has the schemas of its topics; otherwise only BookKeeper has them."""

    @property
    def warnings(self) -> list[str]:
        """Doubts about the answers so far, and contradictions between them."""

    def topics(self, namespaces: Collection[str] | None = None) -> list[TopicName]:
        """Return the topics, each partition separately, sorted by name and partition number.

        Args:
            namespaces: Namespaces (`TopicName.full_namespace`) whose topics are returned. By
                default all that the source knows.

        Raises:
            PulsarOffloadError: The source cannot be read.
        """

    def topic_metadata(self, topic: TopicName, *, again: bool = False) -> TopicMetadata | None:
        """Return the ledgers of one topic, partition or segment; None if the source lacks them.

        With `again`, a live source is asked anew, and the new answer replaces the cached one.

        Raises:
            CorruptMetadataError: The answer is malformed, or contradicts itself.
            MissingObjectError: The user named a path for the topic, and nothing exists there.
            StorageError: The source cannot be read.
        """

    def scalable_topics(self, namespaces: Collection[str] | None = None) -> list[TopicName]:
        """Return the scalable topics, sorted by name; `topics` has none of their segments.

        Args:
            namespaces: As for `topics`.

        Raises:
            PulsarOffloadError: The source cannot be read.
        """

    def scalable_topic(self, topic: TopicName) -> ScalableTopic | None:
        """Return the segments of a scalable topic; None if the source does not know it.

        Raises:
            CorruptMetadataError: The answer is malformed.
            MissingObjectError: The user named a path for the topic, and nothing exists there.
            StorageError: The source cannot be read.
        """

    def named_attempts(
        self, namespaces: Collection[str] | None, *, max_topics: int
    ) -> Collection[tuple[int, UUID]] | None:
        """Return the ledger id and uuid of each offload of topics, as far as they are recorded.

        A topic whose metadata cannot be read, or may belong to another topic, adds none.

        Args:
            namespaces: Namespaces whose topics are included, possibly with others; None: all.
            max_topics: Maximum number of topics for which one request each is worthwhile.

        Returns:
            The attempts; None if there are more topics and each takes a request.

        Raises:
            PulsarOffloadError: The source cannot list its topics.
        """

    def schema_source(self, topic: TopicName) -> bytes | None:
        """Return the schemas of a topic, or of the topic of a partition, for `load_schema`.

        A scalable topic has those of the persistent topic of its name.

        They are the admin API's unchanged answer with all versions; None if there are no schemas.

        Raises:
            CorruptMetadataError: The answer is malformed.
            StorageError: The source cannot be read.
        """


def open_metadata_source(
    source: PathLike | Mapping[str, PathLike], *, options: Mapping[str, object] | None = None
) -> MetadataSource:
    """Return the reader for a source; sends no request yet.

    Args:
        source: URL of the admin API (`https://broker:8443`), or of the metadata store
            (`zk://host:2181,other:2181/chroot`, `oxia://host:6648/namespace`); path or fsspec URL
            of a folder with one folder per topic, or of one topic's folder; or paths of topics'
            folders, or of their `managed-ledger-info.bin`, by topic name.
        options: For the admin API `token`, `token_file`, `ca_file`, `cert_file`, `key_file`,
            `verify_hostname`, `timeout_s` and `namespaces` (names `tenant/namespace`, in a list or
            separated by commas). Without `namespaces`, all namespaces are listed, for which
            only a superuser has permission. For metadata stores those of `ZooKeeperOptions` and
            `OxiaOptions`. For folders the options of the fsspec file system.

    Raises:
        OptionError: The source is of no such kind or contains no path; an option is unknown or of
            the wrong type; or the library of a metadata store is not installed.
    """
    if isinstance(source, Mapping):
        check_by_name("metadata", source)
    paths: Iterable[object] = source.values() if isinstance(source, Mapping) else (source,)
    for each in paths:
        path_or_url("metadata", each)
    if isinstance(source, Mapping):
        return MetadataFolder(source, options)
    path = os.fspath(source)
    if path.lower().startswith(("http://", "https://")):
        return AdminApi.from_options(path, options or {})
    if path.partition("://")[0].lower() in _STORES:
        return StoreSource(open_metadata_store(path, options or {}))
    return MetadataFolder(path, options)


def open_metadata_store(url: str, options: Mapping[str, object]) -> MetadataStore:
    """Return a metadata store, by a URL `zk://…` or `oxia://…`; sends no request yet.

    Args:
        url: The URL.
        options: Those of `ZooKeeperOptions` or `OxiaOptions`, as users pass them.

    Raises:
        OptionError: The URL is of another form, an option cannot be used, or the library for the
            store is not installed.
    """
    extra, library = _STORES[url.partition("://")[0].lower()]
    try:
        module = import_module(f"connector.catalog.metadata.{extra}_store")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != library:
            raise
        message = f"reading {redacted_urls(url)} needs {library}: {install_command(extra)}"
        raise OptionError(message) from None
    store: MetadataStore = module.open_store(url, options)
    return store
