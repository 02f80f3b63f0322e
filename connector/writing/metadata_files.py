"""What a cluster would record of a topic → files, by which a catalog opens it; and more of it.

Each topic or partition has a folder, with the files that `connector.catalog.metadata.folder` reads.
To append to a topic is to extend its metadata: what stands there is read, the new ledgers are put
to it, and it is written back. That is done to what was written here only: what was saved of a
cluster knows more (subscriptions, ledgers in BookKeeper), and the cluster alone may extend it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from arrow_io.errors import FormatError, MissingObjectError, OptionError, PulsarOffloadError
from arrow_io.option_names import option_name
from arrow_io.option_values import path_or_url
from arrow_io.storage.location import Location
from connector.catalog.metadata.admin_answers import has_schemas, read_answer
from connector.catalog.metadata.folder import SCHEMAS_FILE, VALUE_FILE
from connector.catalog.metadata.managed_ledger import parse_managed_ledger_info
from connector.catalog.metadata.topic_metadata import LedgerInfo, TopicMetadata, in_order
from connector.catalog.schemas.answers import registered_versions, schemas_json
from connector.catalog.schemas.loading import load_schema
from connector.writing.new_folders import NewFolders
from connector.writing.standing_topic import check_partitions
from connector.writing.topic_files import (
    files_in,
    files_of,
    folder_name,
    restore_files,
    write_files,
)
from connector.writing.unfinished_write import UnfinishedWrite

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Mapping, Sequence
    from uuid import UUID

    from arrow_io.payloads.schema_info import TopicSchema
    from connector.offloader import LedgerOffloader
    from connector.topic_name import TopicName
    from connector.writing.ledger_filling import LedgerSeries

_INDEX: Final = "index"
"""Property that says where a broker goes on counting messages (ManagedLedgerInterceptorImpl)."""


class MetadataFiles:
    """Receives what a cluster would record of a topic, in a folder for each of its partitions.

    Args:
        path: Path or URL of the folder in which those folders are made.
        options: Options of its fsspec file system.
        topic: The topic.
        names: The topic, or all of its partitions.
        bucket: Where the ledgers go.
        append: Whether the topic may have metadata already, which is extended then.

    Raises:
        OptionError: The path is not a path or URL; there is metadata of the topic already and
            `append` is not given, or it is of another number of partitions, or was not written
            here; or a write to another bucket was cut off.
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
        bucket: LedgerOffloader,
        append: bool,
    ) -> None:
        self._root = Location(path_or_url("metadata_folder", path), options)
        self._root.check_writable()
        self._unfinished = UnfinishedWrite(self._root, topic, bucket)
        self.warnings = self._unfinished.undo()
        """What an earlier write that was cut off had left, and what became of it."""
        self._names = names
        self._folders = [self._root.child(folder_name(name)) for name in names]
        self._new_folders = [NewFolders(folder) for folder in self._folders]
        if append:
            self._check_partitions(topic)
        self._before = [files_in(folder) for folder in self._folders]
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

    def begin(self, attempt: UUID) -> None:
        """Note what stands, before any ledger is written, lest a kill leave half of it.

        Args:
            attempt: What the uuids of the ledgers are made of.

        Raises:
            OptionError: Someone else writes the topic.
            StorageError: The store refused, or went on failing.
        """
        folders = map(folder_name, self._names)
        self._unfinished.begin(attempt, dict(zip(folders, self._before, strict=True)))

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
        self._unfinished.check_ours()
        if [files_in(folder) for folder in self._folders] != self._before:
            message = f"the metadata in {self._root} was changed meanwhile: write again"
            raise OptionError(message)
        whole = map(_extended, self.standing, added) if self.standing else added
        for folder, before, metadata in zip(self._folders, self._before, whole, strict=True):
            files = files_of(metadata, _schemas(before, schema, now_ms))
            # Before anything is written, lest an interrupt fall between the two.
            self._touched.append((folder, before))
            write_files(folder, files)
        self._unfinished.check_ours()
        self._unfinished.end()

    def undo(self, error: BaseException, series: LedgerSeries) -> None:
        """Make all what it was, the ledgers too; what cannot be is noted on the error.

        It is then left to the next write.
        """
        failures = [
            f"{folder}/{name} could not be made what it was: {reason}"
            for folder, before in self._touched
            for name, reason in restore_files(folder, before).items()
        ]
        for failure in failures:
            error.add_note(failure)
        if series.undo(error) and not failures:
            try:
                self._unfinished.end()
            except PulsarOffloadError as failure:
                error.add_note(f"the note of what was begun was not deleted: {failure}")
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
    if not metadata.ledgers or files != files_of(metadata, files.get(SCHEMAS_FILE, b"")):
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
