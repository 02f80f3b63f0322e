"""Metadata of topics from files saved from a cluster: one folder per topic.

========================== ======================================================================
File in a topic's folder   Content
========================== ======================================================================
`managed-ledger-info.bin`  the metadata store's value of `/managed-ledgers/<managed ledger>`
`internal-info.json`       the answer to `pulsar-admin topics info-internal`
`internal-stats.json`      the answer to `pulsar-admin topics stats-internal`
`schemas-rest.json`        the answer to `GET /admin/v2/schemas/<topic>/schemas`
`manifest.json`            the topic's name, and a checksum of each file (module `manifest`)
`scalable-metadata.json`   the segments of a scalable topic (module `scalable`)
========================== ======================================================================

The folder of a scalable topic has one folder for the ledgers of each segment, `segment-<id>`, and
of each partition that was migrated, `legacy-<encoded name>`; any of them may be missing.

The folder that the user passes, or passes for a scalable topic, may have a folder `metadata-store`
with nodes of the metadata store (module `node_folder`). It is read for the outcomes of transactions
of segments (module `transaction_nodes`).

Any of the first three is enough; `connector.catalog.metadata.merge` merges several. The topic of a
folder is determined by the first of these that exists:

- the user;
- the file `topics.json` beside the folders, which has `{"dir": folder}` for each topic;
- the manifest;
- the ledgers in `internal-stats.json`;
- names of nested folders, `tenant/namespace/topic`.

A single name, such as `a__b__c__d`, is ambiguous and not used.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from arrow_io.core.lazy import cached_property
from arrow_io.core.threads import ContextThreadPool
from arrow_io.errors import (
    CorruptMetadataError,
    FormatError,
    MissingObjectError,
    OptionError,
    PulsarOffloadError,
)
from arrow_io.storage.location import Location, folder_and_name
from connector.catalog.metadata.admin_answers import (
    has_schemas,
    managed_ledger_name_of,
    parse_internal_info,
    parse_internal_stats,
    read_answer,
)
from connector.catalog.metadata.answer_cache import AnswerCache
from connector.catalog.metadata.managed_ledger import parse_managed_ledger_info
from connector.catalog.metadata.manifest import MANIFEST_FILE, Manifest, read_manifest
from connector.catalog.metadata.merge import merge_metadata
from connector.catalog.metadata.node_folder import NODE_FOLDER, NodeFolder
from connector.catalog.metadata.scalable import (
    LEGACY_FOLDER,
    SCALABLE_FILE,
    SEGMENT_FOLDER,
    parse_scalable_topic,
)
from connector.catalog.metadata.topic_metadata import MAX_METADATA_BYTES
from connector.catalog.metadata.transaction_nodes import read_segment_metadata
from connector.inputs.topic_names import TopicName, encode_local_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from uuid import UUID

    from connector.catalog.metadata.scalable import ScalableTopic
    from connector.catalog.metadata.topic_metadata import TopicMetadata

VALUE_FILE: Final = "managed-ledger-info.bin"
INFO_FILE: Final = "internal-info.json"
STATS_FILE: Final = "internal-stats.json"
SCHEMAS_FILE: Final = "schemas-rest.json"
TOPICS_FILE: Final = "topics.json"

_METADATA_FILES: Final = (VALUE_FILE, INFO_FILE, STATS_FILE)
_ANY_FILE: Final = f"{VALUE_FILE}, {INFO_FILE} or {STATS_FILE}"
_MAX_DEPTH: Final = 4
"""Levels of folders below the user's: tenant, cluster, namespace, topic."""
_MAX_FOLDERS: Final = 100_000


class MetadataFolder:
    """Saved files as a source of metadata.

    Files are read on first use and cached. Safe to use from several threads. A folder with
    malformed files is an error for its topic only, if the user or `topics.json` names that topic.

    Args:
        source: Path or fsspec URL of the folder, or of one topic's folder; or by topic name, paths
            of topics' folders, or of files with the metadata store's value.
        storage_options: Options of the fsspec file system.

    Raises:
        OptionError: A name is not a topic's, there are two paths for one topic or none at all, or a
            URL names no bucket or has credentials.
    """

    def __init__(
        self,
        source: str | Mapping[str, str | os.PathLike[str]],
        storage_options: Mapping[str, object] | None = None,
    ) -> None:
        self._lock = threading.Lock()
        self._by_name: dict[TopicName, _TopicFolder] = {}
        self._scalable: dict[TopicName, _ScalableFolder] = {}
        self._segments: AnswerCache[TopicName, TopicMetadata | None] = AnswerCache()
        if isinstance(source, str):
            self._source: Location | dict[TopicName, Location] = Location(source, storage_options)
            return
        self._source = {}
        for name, path in source.items():
            topic = TopicName.parse(name)
            if topic in self._source:
                message = f"there are two paths for the metadata of {topic}"
                raise OptionError(message)
            self._source[topic] = Location(os.fspath(path), storage_options)
        if not self._source:
            message = "metadata has no topics: name at least one"
            raise OptionError(message)

    is_live = False
    knows_schemas = True

    @property
    def warnings(self) -> list[str]:
        """Doubts about the files read so far, and contradictions between them."""
        parts = (each.opened_parts.values() for each in self._scalable.values())
        folders = dict.fromkeys(chain(self._by_name.values(), *parts))
        return [warning for folder in folders for warning in folder.warnings]

    def topics(self, namespaces: Collection[str] | None = None) -> list[TopicName]:
        """Return the topics, each partition separately, sorted by name and partition number.

        Raises:
            CorruptMetadataError: Files are malformed, and nothing else names their topic.
            OptionError: There are no files of any topic, or nothing names the topic of a folder.
            StorageError: The files cannot be read.
        """
        folders = [
            folder
            for topic, folder in self._folders.items()
            if namespaces is None or topic.full_namespace in namespaces
        ]
        with ContextThreadPool(_connections(folders)) as executor:
            found = set(chain.from_iterable(executor.map(_topics_of, folders)))
        if folders and not self._scalable and not any(folder.has_files for folder in folders):
            message = (
                f"neither {folders[0].location} nor another folder of the metadata has {_ANY_FILE}"
            )
            raise OptionError(message)
        return sorted(found, key=attrgetter("order"))

    def topic_metadata(self, topic: TopicName, *, again: bool = False) -> TopicMetadata | None:
        """Return the ledgers of one topic or partition; None if it has no folder.

        Raises:
            CorruptMetadataError: Its files are malformed.
            MissingObjectError: The folder that the user or `topics.json` names for it does not
                exist, or has none of the files.
            OptionError: Nothing names the topic of a folder.
            StorageError: The files cannot be read.
        """
        del again
        folder = (
            self._folders.get(topic)
            or self._folders.get(topic.base)
            or self._part_of_scalable_topic(topic)
        )
        metadata = None if folder is None else folder.metadata.get(topic)
        nodes = self._nodes(topic)
        if metadata is None or nodes is None:
            return metadata
        return self._segments.get(
            topic, lambda: read_segment_metadata(nodes, str(topic), lambda: metadata, is_live=False)
        )

    def _nodes(self, topic: TopicName) -> NodeFolder | None:
        """Return the nodes of a segment's cluster; None for other topics, and without a folder."""
        source = self._source
        location = source if isinstance(source, Location) else source.get(topic.base)
        if topic.segment is None or location is None:
            return None
        return NodeFolder(location.child(NODE_FOLDER))

    def scalable_topics(self, namespaces: Collection[str] | None = None) -> list[TopicName]:
        """Return the scalable topics that have a folder, sorted by name.

        Raises:
            OptionError: Nothing names the topic of a folder.
            StorageError: The files cannot be read.
        """
        found = [
            topic
            for topic in self._scalable_folders
            if namespaces is None or topic.full_namespace in namespaces
        ]
        return sorted(found, key=attrgetter("order"))

    def scalable_topic(self, topic: TopicName) -> ScalableTopic | None:
        """Return the segments of a scalable topic; None if it has no folder.

        Raises:
            CorruptMetadataError: Its file is malformed.
            MissingObjectError: Its folder, which the user or `topics.json` names, has no such file.
            StorageError: The file cannot be read.
        """
        folder = self._scalable_folders.get(topic)
        return None if folder is None else folder.scalable_topic

    def _part_of_scalable_topic(self, topic: TopicName) -> _TopicFolder | None:
        folder = self._scalable_folders.get(topic.scalable)
        if folder is None:
            return None
        with suppress(FormatError, MissingObjectError):
            return folder.parts.get(topic)
        return None

    def named_attempts(
        self,
        namespaces: Collection[str] | None,  # noqa: ARG002
        *,
        max_topics: int,  # noqa: ARG002
    ) -> Collection[tuple[int, UUID]]:
        """Return the ledger id and uuid of each offload of all topics, as far as known.

        Raises:
            PulsarOffloadError: The folders cannot be listed.
        """
        folders, scalable = set(self._folders.values()), self._scalable_folders.values()
        with ContextThreadPool(_connections([*folders, *scalable])) as executor:
            folders.update(chain.from_iterable(executor.map(_parts_of, scalable)))
            return set(chain.from_iterable(executor.map(_attempts_of, folders)))

    def schema_source(self, topic: TopicName) -> bytes | None:
        """Return the schemas of a topic, from its own folder or a related one.

        Related are other partitions, and the scalable topic that continues it.

        Raises:
            CorruptMetadataError: The file is not a JSON object.
            StorageError: The file cannot be read.
        """
        relatives = [each for each in self._folders if each.classic == topic.classic]
        relatives.sort(key=lambda each: (each != topic, each.order))
        folders = [self._folders[each] for each in relatives]
        scalable = self._scalable_folders.get(topic.scalable)
        folders += [] if scalable is None else [scalable]
        answers = (each.schemas for each in folders)
        return next((answer for answer in answers if answer is not None), None)

    @property
    def _folders(self) -> dict[TopicName, _TopicFolder]:
        """The folders of topics, partitions and single segments."""
        with self._lock:
            if not self._by_name and not self._scalable:
                self._by_name, self._scalable = self._find()
            return self._by_name

    @property
    def _scalable_folders(self) -> dict[TopicName, _ScalableFolder]:
        """The folders of scalable topics."""
        return self._scalable if self._folders or self._scalable else {}

    def _find(self) -> tuple[dict[TopicName, _TopicFolder], dict[TopicName, _ScalableFolder]]:
        if isinstance(self._source, Location) and not self._source.exists(TOPICS_FILE):
            folders, scalable_folders = _discover(self._source)
            found = _by_topic(folders), _by_scalable_topic(scalable_folders)
        else:
            locations = (
                _locations_by_file(self._source)
                if isinstance(self._source, Location)
                else self._source
            )
            scalable = {topic for topic in locations if topic.domain == "topic"}
            found = (
                {
                    topic: _TopicFolder(location, topic)
                    for topic, location in locations.items()
                    if topic not in scalable
                },
                {topic: _ScalableFolder(locations[topic], topic) for topic in scalable},
            )
        if not any(found):
            message = (
                f"there is no metadata of any topic in {self._source}: neither it nor a folder"
                f" below it has {_ANY_FILE}"
            )
            raise OptionError(message)
        return found


class _TopicFolder:
    """The files of one topic.

    Args:
        location: The folder; if `topic` is set, possibly a file with the metadata store's value.
        topic: The topic, if the user or `topics.json` names it.
        names: Names of the nested folders below the user's; the last is its own.
    """

    def __init__(
        self, location: Location, topic: TopicName | None = None, names: Sequence[str] = ()
    ) -> None:
        self.location = location
        self.warnings: Sequence[str] = ()
        self.has_other_name = False
        self._known_topic = topic
        self._names = names

    @property
    def declared_topic(self) -> TopicName | None:
        """The topic, if the user, a valid file or the names of nested folders name it."""
        if self._known_topic is not None:
            return self._known_topic
        for read_topic in (self._topic_in_manifest, self._topic_in_stats):
            with suppress(FormatError, MissingObjectError):
                topic = read_topic()
                if topic is not None:
                    return topic
        match self._names:
            case [tenant, namespace, local_name]:
                return TopicName(tenant, namespace, local_name)
            case [tenant, cluster, namespace, local_name]:
                return TopicName(tenant, namespace, local_name, cluster)
        return None

    @cached_property
    def metadata(self) -> Mapping[TopicName, TopicMetadata]:
        """The topic, or those of its partitions that have answers.

        Raises:
            CorruptMetadataError: A file is malformed, or does not match the manifest.
            MissingObjectError: There is no folder, or none of its files is about ledgers.
            OptionError: Nothing names its topic.
            StorageError: A file cannot be read.
        """
        warnings: list[str] = []
        topic, is_sure = self._resolve_topic(warnings)
        with self._name_in_errors(STATS_FILE):
            stats_answer = self._answer(STATS_FILE)
            stats = {} if stats_answer is None else parse_internal_stats(stats_answer, topic)
        with self._name_in_errors(INFO_FILE):
            info_answer = self._answer(INFO_FILE)
            info = {} if info_answer is None else parse_internal_info(info_answer, topic)
        with self._name_in_errors(VALUE_FILE):
            data = self._content(VALUE_FILE)
            value = {} if data is None else {topic: parse_managed_ledger_info(data, topic)}
        if data is None and info_answer is None and stats_answer is None:
            message = f"{self.location} has no {_ANY_FILE}"
            raise MissingObjectError(message)
        is_checked = self._manifest is not None
        merged: dict[TopicName, TopicMetadata] = {}
        for each in {**value, **info, **stats}:
            sources = value.get(each), info.get(each), stats.get(each)
            found = merge_metadata(*sources, warnings, is_checked=is_checked)
            if found is not None:
                merged[each] = found if is_sure else replace(found, proven_to_ledger_id=-1)
        self.warnings = warnings
        return merged

    @property
    def has_files(self) -> bool:
        try:
            _, names = self._files
        except MissingObjectError:
            return False
        return any(file in names for file in _METADATA_FILES)

    @cached_property
    def schemas(self) -> bytes | None:
        """The admin API's answer with all versions of the schema; None if there is no schema."""
        with self._name_in_errors(SCHEMAS_FILE):
            data = self._content(SCHEMAS_FILE)
            return data if data is not None and has_schemas(read_answer(data)) else None

    def _resolve_topic(self, warnings: list[str]) -> tuple[TopicName, bool]:
        """Return the topic and whether it is certain; warn if files name other topics."""
        with self._name_in_errors(MANIFEST_FILE):
            in_manifest = self._topic_in_manifest()
        with self._name_in_errors(STATS_FILE):
            in_stats = self._topic_in_stats()
        topic = self.declared_topic
        recorded = [each for each in (in_manifest, in_stats) if each is not None]
        if topic is None:
            raise OptionError(_nameless(self.location))
        warnings.extend(
            f"{self.location} is used for {topic}, but belongs to {each}"
            for each in recorded
            if each != topic
        )
        self.has_other_name = bool(warnings)
        return topic, not warnings and (self._known_topic is not None or bool(recorded))

    def _topic_in_manifest(self) -> TopicName | None:
        return None if self._manifest is None else self._manifest.topic

    def _topic_in_stats(self) -> TopicName | None:
        data = self._stats_data
        name = None if data is None else managed_ledger_name_of(read_answer(data))
        return None if name is None else TopicName.from_managed_ledger_name(name)

    @cached_property
    def _manifest(self) -> Manifest | None:
        _, names = self._files
        if MANIFEST_FILE not in names:
            return None
        manifest = read_manifest(self._read(MANIFEST_FILE))
        missing = sorted(manifest.files.keys() - names.keys())
        if missing:
            message = f"{missing[0]}, which the manifest lists, is missing"
            raise CorruptMetadataError(message)
        return manifest

    @cached_property
    def _stats_data(self) -> bytes | None:
        """The unverified `internal-stats.json`: it names the topic if the manifest is damaged."""
        _, names = self._files
        return self._read(STATS_FILE) if STATS_FILE in names else None

    @cached_property
    def _files(self) -> tuple[Location, Mapping[str, str]]:
        """The location of the files, and their names there by their standard names."""
        if self._known_topic is not None:
            url, name = folder_and_name(self.location.url)
            folder = Location(url, self.location.storage_options, self.location.retry)
            if name and folder.exists(name):
                return folder, {VALUE_FILE: name}
        names = (info.name for info in self.location.list_objects())
        return self.location, {name: name for name in names}

    def _content(self, file: str) -> bytes | None:
        """Return a file, checked by the manifest if there is one; None if the file is missing."""
        _, names = self._files
        if file not in names:
            return None
        data = self._stats_data if file == STATS_FILE else self._read(file)
        manifest = self._manifest
        # Schemas may be added later, because they do not affect ledgers.
        is_late = manifest is not None and file == SCHEMAS_FILE and file not in manifest.files
        if data is not None and manifest is not None and not is_late:
            manifest.check(file, data)
        return data

    def _read(self, file: str) -> bytes:
        location, names = self._files
        return location.read_object(names[file], max_bytes=MAX_METADATA_BYTES).data

    def _answer(self, file: str) -> Mapping[str, object] | None:
        data = self._content(file)
        return None if data is None else read_answer(data)

    @contextmanager
    def _name_in_errors(self, file: str) -> Iterator[None]:
        try:
            yield
        except FormatError as error:
            error.object_key = f"{self.location}/{file}"
            raise


class _ScalableFolder(_TopicFolder):
    """The files of a scalable topic, and the folders of its segments."""

    @property
    def declared_topic(self) -> TopicName | None:
        """The topic, if the user, the manifest or the names of nested folders name it."""
        if self._known_topic is not None:
            return self._known_topic
        with suppress(FormatError, MissingObjectError):
            topic = self._topic_in_manifest()
            if topic is not None:
                return topic
        match self._names:
            case [tenant, namespace, local_name]:
                return TopicName(tenant, namespace, local_name).scalable
        return None

    @cached_property
    def scalable_topic(self) -> ScalableTopic:
        """The segments of the topic.

        Raises:
            CorruptMetadataError: The file is malformed, or does not match the manifest.
            MissingObjectError: There is no folder, or it has no such file.
            StorageError: The file cannot be read.
        """
        topic = self.declared_topic
        with self._name_in_errors(SCALABLE_FILE):
            data = self._content(SCALABLE_FILE)
            if topic is None or data is None:
                message = f"{self.location} has no {SCALABLE_FILE}"
                raise MissingObjectError(message)
            return parse_scalable_topic(data, topic)

    @cached_property
    def parts(self) -> Mapping[TopicName, _TopicFolder]:
        """The folders of segments and migrated partitions that exist.

        Raises:
            CorruptMetadataError: See `scalable_topic`.
            MissingObjectError: See `scalable_topic`.
            StorageError: The files cannot be read.
        """
        names = {each: _part_folder(each) for each in self.scalable_topic.members}
        existing = set(self.location.list_folders())
        return {
            topic: _TopicFolder(self.location.child(name), topic)
            for topic, name in names.items()
            if name in existing
        }

    @property
    def opened_parts(self) -> Mapping[TopicName, _TopicFolder]:
        """Those of `parts` that were looked up so far; sends no request."""
        parts: Mapping[TopicName, _TopicFolder] = vars(self).get("parts", {})
        return parts


def _part_folder(topic: TopicName) -> str:
    if topic.segment is not None:
        return f"{SEGMENT_FOLDER}{topic.segment.id}"
    return f"{LEGACY_FOLDER}{encode_local_name(topic.local_name)}"


def _parts_of(folder: _ScalableFolder) -> list[_TopicFolder]:
    """Return the folders of segments and partitions; none if the graph cannot be read."""
    with suppress(FormatError, MissingObjectError):
        return list(folder.parts.values())
    return []


def _by_scalable_topic(folders: Iterable[_ScalableFolder]) -> dict[TopicName, _ScalableFolder]:
    found: dict[TopicName, _ScalableFolder] = {}
    for folder in folders:
        topic = folder.declared_topic
        if topic is None:
            raise OptionError(_nameless(folder.location))
        if topic in found:
            message = f"{folder.location} and {found[topic].location} both belong to {topic}"
            raise CorruptMetadataError(message)
        found[topic] = folder
    return found


def _nameless(location: Location) -> str:
    return (
        f"nothing names the topic of {location}: pass the folders by topic name, or write"
        f" {TOPICS_FILE} beside them"
    )


def _by_topic(folders: Sequence[_TopicFolder]) -> dict[TopicName, _TopicFolder]:
    found: dict[TopicName, _TopicFolder] = {}
    with ContextThreadPool(_connections(folders)) as executor:
        topics_of_each = list(executor.map(_topics_of, folders))
    for folder, topics in zip(folders, topics_of_each, strict=True):
        for topic in topics:
            if topic in found:
                message = f"{folder.location} and {found[topic].location} both belong to {topic}"
                raise CorruptMetadataError(message)
            found[topic] = folder
    return found


def _connections(folders: Iterable[_TopicFolder]) -> int:
    return max((each.location.max_connections for each in folders), default=1)


def _topics_of(folder: _TopicFolder) -> list[TopicName]:
    """Return the topics of a folder; if its files are unsound, the topic that others name."""
    try:
        return list(folder.metadata)
    except (FormatError, MissingObjectError):
        if folder.declared_topic is None:
            raise
        return [folder.declared_topic]


def _attempts_of(folder: _TopicFolder) -> set[tuple[int, UUID]]:
    """Return the offloads that a folder names; empty if its files may belong to another topic."""
    with suppress(PulsarOffloadError):
        metadata = folder.metadata
        if not folder.has_other_name:
            return {each for topic in metadata.values() for each in topic.named_attempts}
    return set()


def _locations_by_file(root: Location) -> dict[TopicName, Location]:
    answer = read_answer(root.read_object(TOPICS_FILE, max_bytes=MAX_METADATA_BYTES).data)
    found: dict[TopicName, Location] = {}
    for name, each in answer.items():
        folder = each.get("dir") if isinstance(each, Mapping) else None
        if not isinstance(folder, str) or {"", ".", ".."}.intersection(folder.split("/")):
            message = (
                f"{root}/{TOPICS_FILE} names no folder below its own for the topic {name[:200]!r}"
            )
            raise CorruptMetadataError(message)
        found[TopicName.parse(name)] = root.child(folder)
    return found


def _discover(root: Location) -> tuple[list[_TopicFolder], list[_ScalableFolder]]:
    found: list[_TopicFolder] = []
    scalable: list[_ScalableFolder] = []
    level: list[tuple[Location, tuple[str, ...]]] = [(root, ())]
    with ContextThreadPool(root.max_connections) as executor:
        for _ in range(_MAX_DEPTH + 1):
            below: list[tuple[Location, tuple[str, ...]]] = []
            listings = list(executor.map(_listing, [location for location, _ in level]))
            for (location, names), (files, folders) in zip(level, listings, strict=True):
                has_ledgers = any(name in files for name in _METADATA_FILES)
                if has_ledgers:
                    found.append(_TopicFolder(location, names=names))
                if SCALABLE_FILE in files:
                    scalable.append(_ScalableFolder(location, names=names))
                elif not has_ledgers:
                    below.extend(
                        (location.child(name), (*names, name))
                        for name in folders
                        if name != NODE_FOLDER
                    )
            if len(below) > _MAX_FOLDERS:
                message = f"{root} has more than {_MAX_FOLDERS} folders, too many for metadata"
                raise OptionError(message)
            level = below
    return found, scalable


def _listing(location: Location) -> tuple[list[str], list[str]]:
    listing = location.list_folder()
    return [info.name for info in listing.objects], listing.folders
