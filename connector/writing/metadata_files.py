"""What a cluster would record of a topic → files, by which a catalog opens it; and more of it.

Each topic or partition has a folder, with the files that `connector.catalog.metadata.folder` reads.
To append to a topic is to extend its metadata: what stands there is read, the new ledgers are put
to it, and it is written back. That is done to what was written here only: what was saved of a
cluster knows more (subscriptions, ledgers in BookKeeper), and the cluster alone may extend it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from arrow_io.errors import FormatError, MissingObjectError, OptionError, PulsarOffloadError
from arrow_io.option_names import option_name
from connector.catalog.metadata.admin_answers import has_schemas, read_answer
from connector.catalog.metadata.folder import SCHEMAS_FILE, VALUE_FILE
from connector.catalog.metadata.managed_ledger import parse_managed_ledger_info
from connector.catalog.schemas.answers import schemas_json
from connector.catalog.schemas.loading import load_schema
from connector.writing.carrying_out import carry_out
from connector.writing.new_folders import NewFolders
from connector.writing.standing_topic import check_partitions
from connector.writing.topic_files import files_in, files_of, folder_name, restore_files
from connector.writing.unfinished_write import UnfinishedWrite

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from arrow_io.payloads.schema_info import TopicSchema
    from arrow_io.storage.location import Location
    from connector.catalog.metadata.topic_metadata import TopicMetadata
    from connector.offloader import LedgerOffloader
    from connector.topic_name import TopicName
    from connector.writing.decision import Decision, DecisionFile
    from connector.writing.ledger_filling import LedgerStager


class MetadataFiles:
    """Receives what a cluster would record of a topic, in a folder for each of its partitions.

    Args:
        root: Where those folders are made.
        topic: The topic.
        names: The topic, or all of its partitions.
        bucket: Where the ledgers go.
    """

    def __init__(
        self,
        root: Location,
        topic: TopicName,
        names: Sequence[TopicName],
        bucket: LedgerOffloader,
    ) -> None:
        self._root = root
        self._topic = topic
        self._bucket = bucket
        self._unfinished = UnfinishedWrite(root, topic, bucket)
        self._names = names
        self._folders = {folder_name(name): root.child(folder_name(name)) for name in names}
        self._new_folders = [NewFolders(folder) for folder in self._folders.values()]
        self._before: Mapping[str, Mapping[str, bytes]] = {}
        self._is_touched = False
        self.warnings: list[str] = []
        """What an earlier write that was cut off had left, and what became of it."""
        self.standing: list[TopicMetadata] = []
        """What is to be extended; nothing, if the topic has no metadata yet."""

    def open(self, *, append: bool) -> None:
        """Look at what stands, when what an earlier write has left is undone, or finished.

        Args:
            append: Whether the topic may have metadata already, which is extended then.

        Raises:
            OptionError: There is metadata of the topic already and `append` is not given, or it is
                of another number of partitions, or was not written here; or a write to another
                bucket was cut off.
            CorruptMetadataError: The metadata that is to be extended is malformed.
            StorageError: The store refused, or went on failing.
        """
        self.warnings = self.finish()
        if append:
            self._check_partitions(self._topic)
        before = {name: files_in(folder) for name, folder in self._folders.items()}
        has_some = any(before.values())
        if not append and has_some:
            message = (
                f"{self._root} has metadata of this topic already: give {option_name('append')} to"
                " extend it"
            )
            raise OptionError(message)
        if has_some and not all(before.values()):
            absent = next(self._folders[name] for name, files in before.items() if not files)
            message = f"{absent} has no metadata, while other partitions of the topic have some"
            raise OptionError(message)
        self._before = before
        if has_some:
            self.standing = [
                _written_here(self._folders[folder_name(name)], name, before[folder_name(name)])
                for name in self._names
            ]

    def finish(self) -> list[str]:
        """Undo, or finish, what an earlier write has left; as `UnfinishedWrite.undo`."""
        return self._unfinished.undo()

    def resume(self, mark: UUID) -> None:
        """Go on where another process has called `begin`.

        Args:
            mark: The mark of the write.

        Raises:
            OptionError: Someone else writes the topic.
            CorruptMetadataError: What was noted is malformed.
            StorageError: The store refused, or went on failing.
        """
        before = self._unfinished.resume(mark)
        self._before = {name: before.get(name, {}) for name in self._folders}

    @property
    def ledger_ids(self) -> set[int]:
        """Ids of the ledgers in what is to be extended, but for the open ones, which are empty."""
        return {ledger.ledger_id for each in self.standing for ledger in each.ledgers[:-1]}

    def joined_schema(self, given: TopicSchema | None) -> TopicSchema | None:
        """The schemas that are given, with the versions that the metadata has already.

        Raises:
            OptionError: They differ in what a version is.
        """
        standing = next(iter(self._before.values())).get(SCHEMAS_FILE)
        if given is None or standing is None or not has_schemas(read_answer(standing)):
            return given
        if not given.versions:
            return replace(given, versions=load_schema(standing).versions)
        answer = schemas_json(given, timestamp_ms=0).encode()
        return replace(given, versions=load_schema([standing, answer]).versions)

    def begin(self, file: DecisionFile) -> None:
        """Note what stands, before any ledger is written, lest a kill leave half of it.

        Args:
            file: Where the write will be decided, unless it gets an id later.

        Raises:
            OptionError: Someone else writes the topic.
            StorageError: The store refused, or went on failing.
        """
        self._unfinished.begin(file, self._before)

    def check_unchanged(self, file: DecisionFile) -> None:
        """Check that nobody has changed anything since, before the write is decided.

        Args:
            file: Where it will be decided.

        Raises:
            OptionError: Someone else wrote there meanwhile.
            StorageError: The store refused, or went on failing.
        """
        self._unfinished.lead_to(file)
        now = {name: files_in(folder) for name, folder in self._folders.items()}
        if now != self._before:
            message = f"the metadata in {self._root} was changed meanwhile: write again"
            raise OptionError(message)

    def carry_out(self, decision: Decision) -> None:
        """Publish ledgers, and write the files of each partition.

        Args:
            decision: What was decided behind `check_unchanged`.

        Raises:
            StorageError: The store refused, or went on failing.
        """
        # Before anything is written, lest an interrupt fall between the two.
        self._is_touched = True
        carry_out(decision, self._bucket, self._root, self._before)

    def end(self) -> None:
        """Forget what was noted, since all is there, or nothing.

        Raises:
            StorageError: The store refused, or went on failing.
        """
        self._unfinished.end()

    def withdraw(self) -> list[str]:
        """Undo what another process has begun; as `UnfinishedWrite.withdraw`."""
        return self._unfinished.withdraw()

    def undo(self, error: BaseException, stager: LedgerStager) -> None:
        """Make all what it was, the ledgers too; what cannot be is noted on the error.

        It is then left to the next write.
        """
        folders = self._folders.items() if self._is_touched else ()
        failures = [
            f"{folder}/{file} could not be made what it was: {reason}"
            for name, folder in folders
            for file, reason in restore_files(folder, self._before[name]).items()
        ]
        for failure in failures:
            error.add_note(failure)
        if stager.undo(error) and not failures:
            try:
                self._unfinished.end()
            except PulsarOffloadError as failure:
                error.add_note(f"the note of what was begun was not deleted: {failure}")
        for new_folders in self._new_folders:
            new_folders.remove()

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
