"""What a cluster would record of a topic → files, by which a catalog opens it; and more of it.

Each topic or partition has a folder, with the files that `connector.catalog.metadata_folder` reads.
To append to a topic is to extend its metadata: what stands there is read, the new ledgers are put
to it, and it is written back. That is done to what was written here only: what was saved of a
cluster tells more (subscriptions, ledgers in BookKeeper), and the cluster alone may extend it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from arrow_io.errors import FormatError, MissingObjectError, OptionError, PulsarOffloadError
from arrow_io.option_names import option_name
from arrow_io.option_values import path_or_url
from arrow_io.storage.location import Location
from connector.catalog.admin_answers import (
    has_schemas,
    internal_info_json,
    internal_stats_json,
    read_answer,
)
from connector.catalog.managed_ledger import (
    parse_managed_ledger_info,
    serialize_managed_ledger_info,
)
from connector.catalog.metadata_folder import INFO_FILE, SCHEMAS_FILE, STATS_FILE, VALUE_FILE
from connector.catalog.metadata_manifest import MANIFEST_FILE, manifest_json
from connector.catalog.schema_answers import registered_versions, schemas_json
from connector.catalog.schemas import load_schema
from connector.catalog.topic_metadata import (
    MAX_METADATA_BYTES,
    LedgerInfo,
    TopicMetadata,
    in_order,
)
from connector.writing.new_folders import NewFolders
from connector.writing.standing_topic import check_partitions

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Mapping, Sequence

    from arrow_io.payloads.schema_info import TopicSchema
    from connector.topic_name import TopicName

METADATA_FILES: Final = (VALUE_FILE, INFO_FILE, STATS_FILE, SCHEMAS_FILE, MANIFEST_FILE)
"""The files of a topic, in the order in which they are written; the last vouches for the others."""

_INDEX: Final = "index"
"""Property that says where a broker goes on counting messages (ManagedLedgerInterceptorImpl)."""


class MetadataFiles:
    """Receives what a cluster would record of a topic, in a folder for each of its partitions.

    Args:
        path: Path or URL of the folder in which those folders are made.
        options: Options of its fsspec file system.
        topic: The topic.
        names: The topic, or all of its partitions.
        append: Whether the topic may have metadata already, which is extended then.

    Raises:
        OptionError: The path is not a path or URL; there is metadata of the topic already and
            `append` is not given, or it is of another number of partitions, or was not written
            here.
        CorruptMetadataError: The metadata that is to be extended is malformed.
        StorageError: The store refused, or went on failing.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        options: Mapping[str, object] | None,
        topic: TopicName,
        names: Sequence[TopicName],
        *,
        append: bool,
    ) -> None:
        self._root = Location(path_or_url("metadata_folder", path), options)
        self._root.check_writable()
        self._names = names
        self._folders = [self._root.child(folder_name(name)) for name in names]
        self._new_folders = [NewFolders(folder) for folder in self._folders]
        if append:
            self._check_partitions(topic)
        self._before = [_files_in(folder) for folder in self._folders]
        self._touched: list[tuple[Location, dict[str, bytes]]] = []
        if not append and any(self._before):
            message = (
                f"{self._root} has metadata of this topic already: give {option_name('append')} to"
                " extend it"
            )
            raise OptionError(message)
        if any(self._before) and not all(self._before):
            absent = self._folders[self._before.index({})]
            message = f"{absent} has no metadata, while other partitions of the topic have some"
            raise OptionError(message)
        self.standing: list[TopicMetadata] = [
            _written_here(*each)
            for each in zip(self._folders, names, self._before, strict=True)
            if any(self._before)
        ]
        """What is to be extended; nothing, if the topic has no metadata yet."""

    @property
    def ledger_ids(self) -> set[int]:
        """Ids of the ledgers in what is to be extended, but for the open ones, which are empty."""
        return {ledger.ledger_id for each in self.standing for ledger in each.ledgers[:-1]}

    def joined_schema(self, given: TopicSchema | None) -> TopicSchema | None:
        """The schemas that are given, with the versions that the metadata has already.

        Raises:
            OptionError: They differ in what a version is.
        """
        standing = self._before[0].get(SCHEMAS_FILE)
        if given is None or standing is None or not has_schemas(read_answer(standing)):
            return given
        if not given.versions:
            return replace(given, versions=load_schema(standing).versions)
        answer = schemas_json(given, timestamp_ms=0).encode()
        return replace(given, versions=load_schema([standing, answer]).versions)

    def write(
        self, added: Sequence[TopicMetadata], schema: TopicSchema | None, *, now_ms: int
    ) -> None:
        """Write the files of each partition, the schemas into each folder.

        Args:
            added: Ledgers of the topic or of each partition; the last of each is open and empty.
            schema: What `joined_schema` gave.
            now_ms: When new schemas were registered, ms since the epoch.

        Raises:
            OptionError: Someone else wrote there meanwhile.
            StorageError: The store refused, or went on failing.
        """
        if [_files_in(folder) for folder in self._folders] != self._before:
            message = f"the metadata in {self._root} was changed meanwhile: write again"
            raise OptionError(message)
        whole = map(_extended, self.standing, added) if self.standing else added
        for folder, before, metadata in zip(self._folders, self._before, whole, strict=True):
            files = _files_of(metadata, _schemas(before, schema, now_ms))
            # Before anything is written, lest an interrupt fall between the two.
            self._touched.append((folder, before))
            # While files are of different times, none vouches for them.
            folder.delete_objects([MANIFEST_FILE])
            for name in METADATA_FILES:
                folder.write_object(name, files[name], user_metadata={})

    def undo(self, error: BaseException) -> None:
        """Restore what stood there; of what cannot be, the error is told."""
        for folder, before in self._touched:
            for name in METADATA_FILES:
                try:
                    if name in before:
                        folder.write_object(name, before[name], user_metadata={})
                    else:
                        folder.delete_objects([name])
                except PulsarOffloadError as failure:
                    error.add_note(f"{folder}/{name} could not be made what it was: {failure}")
        for folders in self._new_folders:
            folders.remove()

    def _check_partitions(self, topic: TopicName) -> None:
        """Refuse to append to metadata of another number of partitions."""
        base = folder_name(topic.base)
        partition = re.compile(rf"{re.escape(base)}-partition-(0|[1-9][0-9]*)")
        try:
            folders = self._root.list_folders()
        except MissingObjectError:
            return
        matches = [partition.fullmatch(folder) for folder in folders]
        standing = {int(match[1]) for match in matches if match}
        standing.update([-1] * (base in folders))
        place = f"the metadata in {self._root}"
        check_partitions(topic, self._names, standing, place, is_whole=True)


def folder_name(topic: TopicName) -> str:
    """`tenant__namespace__topic`; what a name of a folder cannot have is encoded."""
    *parts, _domain, local_name = topic.managed_ledger_name.split("/")
    return "__".join((*parts, local_name))


def _files_in(folder: Location) -> dict[str, bytes]:
    """The files of metadata that are in a folder."""
    try:
        names = {info.name for info in folder.list_objects()}
    except MissingObjectError:
        return {}
    return {
        name: folder.read_object(name, max_bytes=MAX_METADATA_BYTES).data
        for name in METADATA_FILES
        if name in names
    }


def _files_of(metadata: TopicMetadata, schemas: bytes) -> dict[str, bytes]:
    files = {
        VALUE_FILE: serialize_managed_ledger_info(metadata),
        INFO_FILE: internal_info_json(metadata).encode(),
        STATS_FILE: internal_stats_json(metadata).encode(),
        SCHEMAS_FILE: schemas,
    }
    return {**files, MANIFEST_FILE: manifest_json(metadata.topic, files)}


def _schemas(before: Mapping[str, bytes], schema: TopicSchema | None, now_ms: int) -> bytes:
    """The file of schemas: the one that stands there, unless there are others now."""
    standing = before.get(SCHEMAS_FILE)
    if standing is not None and (
        schema is None
        or (
            has_schemas(read_answer(standing))
            and registered_versions(schema) == load_schema(standing).versions
        )
    ):
        return standing
    return schemas_json(schema, timestamp_ms=now_ms).encode()


def _written_here(folder: Location, name: TopicName, files: Mapping[str, bytes]) -> TopicMetadata:
    """The metadata in a folder, if it is nothing but what `MetadataFiles` writes of it."""
    try:
        metadata = parse_managed_ledger_info(files.get(VALUE_FILE, b""), name)
    except FormatError as error:
        raise error.located(object_key=f"{folder}/{VALUE_FILE}") from None
    if not metadata.ledgers or files != _files_of(metadata, files.get(SCHEMAS_FILE, b"")):
        message = (
            f"{folder} has metadata that write did not make, such as a cluster's own: nothing can"
            f" be appended to it; give another {option_name('metadata_folder')}, or a topic of"
            " another name"
        )
        raise OptionError(message)
    return metadata


def _extended(standing: TopicMetadata, added: TopicMetadata) -> TopicMetadata:
    """The ledgers of both; of their open ledgers, which are empty, the one behind them all."""
    *ledgers, open_ledger = standing.ledgers
    *more, next_open = added.ledgers
    last_id = max(open_ledger.ledger_id, next_open.ledger_id)
    return replace(
        standing,
        ledgers=in_order((*ledgers, *more, LedgerInfo(ledger_id=last_id))),
        properties=_joined_properties(standing.properties, added.properties),
    )


def _joined_properties(standing: Mapping[str, str], added: Mapping[str, str]) -> dict[str, str]:
    joined = {**standing, **added}
    indexes: Collection[int] = [int(each[_INDEX]) for each in (standing, added) if _INDEX in each]
    return {**joined, _INDEX: str(max(indexes))} if indexes else joined
