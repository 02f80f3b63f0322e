"""The sources of what a cluster knows of its topics: one interface for all of them.

======================================= ==========================================================
Source                                  Read by
======================================= ==========================================================
`http://…`, `https://…`                 `AdminApi`: the admin API of a live cluster
path or URL of a folder                 `MetadataFolder`: saved files, one folder a topic
mapping of topic name to path or URL    the same, and the user says which topic is where
======================================= ==========================================================
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

from arrow_io.core.option_values import check_by_name, path_or_url
from connector.catalog.metadata.admin_client import AdminApi
from connector.catalog.metadata.folder import MetadataFolder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from uuid import UUID

    from connector.catalog.metadata.topic_metadata import TopicMetadata
    from connector.inputs.topic_names import TopicName

PathLike: TypeAlias = str | os.PathLike[str]


class MetadataSource(Protocol):
    """What a cluster knows of its topics. Answers are read when they are asked for, and kept.

    Several threads may ask at once.
    """

    @property
    def is_live(self) -> bool:
        """Whether what it says is so now; else it was so when it was saved."""

    @property
    def warnings(self) -> list[str]:
        """What the answers given until now leave unsure, or say against each other."""

    def topics(self, namespaces: Collection[str] | None = None) -> list[TopicName]:
        """The topics that it knows, each partition by itself, by name and partition number.

        Args:
            namespaces: Namespaces (`TopicName.full_namespace`) whose topics are asked for; those
                that the source does not know have none. By default all that the source knows.

        Raises:
            PulsarOffloadError: The source cannot be read.
        """

    def topic_metadata(self, topic: TopicName, *, again: bool = False) -> TopicMetadata | None:
        """The ledgers of one topic or partition; None if the source does not know it.

        Args:
            topic: The topic or partition.
            again: Whether to ask anew if the source is live; its answer replaces the one before.

        Raises:
            CorruptMetadataError: What the source says is malformed, or contradicts itself.
            MissingObjectError: The user named a place for the topic, and nothing is there.
            StorageError: The source cannot be read.
        """

    def named_attempts(
        self, namespaces: Collection[str] | None, *, most_topics: int
    ) -> Collection[tuple[int, UUID]] | None:
        """Ledger id and uuid of each offload of topics, as far as the source gives them.

        A topic whose metadata cannot be read, or may be another topic's, names none.

        Args:
            namespaces: Those whose topics are asked about, and perhaps others; None: all.
            most_topics: Up to how many topics it is worth a request for each.

        Returns:
            The attempts; None if there are more topics, and each takes a request.

        Raises:
            PulsarOffloadError: The source cannot say which topics there are.
        """

    def schema_source(self, topic: TopicName) -> bytes | None:
        """The schemas of a topic, or of the topic that a partition belongs to, for `load_schema`.

        Returns:
            The admin API's answer with all versions, as it came; None if there are no schemas.

        Raises:
            CorruptMetadataError: What the source says is malformed.
            StorageError: The source cannot be read.
        """


def open_metadata_source(
    source: PathLike | Mapping[str, PathLike], *, options: Mapping[str, object] | None = None
) -> MetadataSource:
    """Choose how a source is read; sends no request yet.

    Args:
        source: URL of the admin API (`https://broker:8443`); path or fsspec URL of a folder with
            one folder for each topic, or of one topic's folder; or paths of topics' folders, or of
            their `managed-ledger-info.bin`, by topic name.
        options: For the admin API `token`, `token_file`, `ca_file`, `cert_file`, `key_file`,
            `verify_hostname`, `timeout_s` and `namespaces` (names `tenant/namespace`, in a list or
            separated by commas: all topics are then the topics of these, while only a superuser may
            ask for those of the whole cluster); for folders the options of the fsspec file system.

    Raises:
        OptionError: The source is of no such kind or has no path in it, or an option is unknown or
            of the wrong type.
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
    return MetadataFolder(path, options)
