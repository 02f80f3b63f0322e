"""The metadata of a topic in folders, which a write extends: all of it, or nothing.

Each topic or partition has a folder, with the files that `connector.catalog.metadata.folder` reads.
To append to a topic is to extend its metadata: what stands there is read, the new ledgers are put
to it, and it is written back. That is done to what was written here only: what was saved of a
cluster knows more (subscriptions, ledgers in BookKeeper), and the cluster alone may extend it.

To write a topic with its metadata is to change many objects: ledgers in the bucket, and files in
the folder of each partition. Before the first of them, a note says how the files stood, and which
ledgers are about to come; behind the last, it is deleted. It lies beside the folders, one object,
which is there whole or not at all, `<folder of the topic>.unfinished.json`:

```
{"bucket": "s3://offloaded", "attempt": "4f6cf8a2-…", "begun_ms": 1760000000000,
 "topic": "persistent://public/default/orders", "write_id": null,
 "folders": {"public__default__orders": {"manifest.json": "<Base64>", …}}}
```

`attempt` is the mark of the write, by which its ledgers are known, so that no other is deleted;
`write_id` is null unless the write may be repeated. The next write finishes what a killed one left
if it was decided, and undoes it otherwise.
"""

from __future__ import annotations

import json
import re
import time
from base64 import b64decode, b64encode
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from uuid import UUID

from arrow_io.core.option_names import option_name
from arrow_io.core.wording import counted
from arrow_io.errors import (
    CorruptMetadataError,
    FormatError,
    MissingObjectError,
    OptionError,
    PulsarOffloadError,
    StorageError,
)
from connector.catalog.metadata.admin_answers import has_schemas, read_answer
from connector.catalog.metadata.folder import SCHEMAS_FILE, VALUE_FILE
from connector.catalog.metadata.managed_ledger import parse_managed_ledger_info
from connector.catalog.schemas.answers import schemas_json
from connector.catalog.schemas.loading import load_schema
from connector.inputs.times import time_of
from connector.inputs.topic_names import TopicName
from connector.writing.commit_record import CommitRecordFile, carry_out
from connector.writing.ledger_ids import delete_marked, has_mark
from connector.writing.topic_files import (
    METADATA_FILES,
    NewFolders,
    folder_name,
    make_files,
    read_files,
    remove_if_empty,
    restore_files,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from arrow_io.payloads.schema_info import TopicSchema
    from arrow_io.storage.location import Location
    from connector.catalog.metadata.topic_metadata import TopicMetadata
    from connector.writing.commit_record import CommitRecord
    from connector.writing.offloader import LedgerOffloader
    from connector.writing.staging import LedgerStager


_MAX_NOTE_BYTES: Final = 1 << 30
"""Most bytes that are read of a note, which has what stood of up to 500 partitions."""


@dataclass(frozen=True, slots=True)
class _Note:
    """What a note says, as in the table above; `folders` has each file's bytes, by its name."""

    bucket: str
    attempt: UUID
    started_ms: int
    topic: TopicName
    write_id: str | None
    folders: Mapping[str, Mapping[str, bytes]]

    @property
    def start_time(self) -> str:
        """When the write began, in words."""
        return f"{time_of(self.started_ms):%F %T} UTC"

    def to_json(self) -> bytes:
        fields = {
            "bucket": self.bucket,
            "attempt": str(self.attempt),
            "begun_ms": self.started_ms,
            "topic": str(self.topic),
            "write_id": self.write_id,
            "folders": {
                folder: {name: b64encode(data).decode() for name, data in files.items()}
                for folder, files in self.folders.items()
            },
        }
        return json.dumps(fields, indent=1).encode()

    @classmethod
    def from_json(cls, data: bytes, topic: TopicName) -> _Note:
        """Read the note of a topic.

        Raises:
            CorruptMetadataError: It is not as it was written.
        """
        message = "the note of a write that was cut off is not as it was written"
        try:
            fields = json.loads(data)
            bucket, attempt = fields["bucket"], UUID(fields["attempt"])
            started_ms, write_id = fields["begun_ms"], fields["write_id"]
            own = TopicName.parse(fields["topic"])
            folders = {
                folder: {name: b64decode(text, validate=True) for name, text in files.items()}
                for folder, files in fields["folders"].items()
            }
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise CorruptMetadataError(message) from error
        if (
            type(started_ms) is not int
            or time_of(started_ms) is None
            or not isinstance(bucket, str)
            or not isinstance(write_id, str | None)
            or own.base != topic.base
            or not folders
            or not all(map(_partition_folders(topic).fullmatch, folders))
            or any(files.keys() - METADATA_FILES for files in folders.values())
        ):
            raise CorruptMetadataError(message)
        return cls(bucket, attempt, started_ms, own, write_id, folders)


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
        self._names = names
        # A topic and its partitions have the same note.
        self._note_name = f"{folder_name(topic.base)}.unfinished.json"
        self._note: _Note | None = None
        self._folders = {folder_name(name): root.child(folder_name(name)) for name in names}
        self._new_folders = [NewFolders(folder) for folder in self._folders.values()]
        self._before: Mapping[str, Mapping[str, bytes]] = {}
        self._is_touched = False
        self.warnings: list[str] = []
        """What an earlier write that was cut off had left, and what became of it."""
        self.metadata: list[TopicMetadata] = []
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
            self._check_partitions()
        before = {name: read_files(folder) for name, folder in self._folders.items()}
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
            self.metadata = [
                _parse_own_metadata(
                    self._folders[folder_name(name)], name, before[folder_name(name)]
                )
                for name in self._names
            ]

    def finish(self) -> list[str]:
        """Undo what an earlier process has begun and not ended; or end it, if it was decided.

        Returns:
            What was done, in words.

        Raises:
            OptionError: It wrote to another bucket.
            CorruptMetadataError: The note, the decision or the metadata is malformed.
            StorageError: The store refused, or went on failing; the next call begins anew.
        """
        data = self._read_note()
        if data is None:
            return []
        note = self._parse_note(data)
        if note.bucket != self._bucket.location.url:
            message = (
                f"a write of this topic to {note.bucket} with the metadata in {self._root} was cut"
                f" off: repeat it with {note.bucket}, which undoes what it left"
            )
            raise OptionError(message)
        file = CommitRecordFile(
            self._bucket.location, note.topic, write_id=note.write_id, mark=note.attempt
        )
        record = file.read()
        # A write of the same id may have been decided by another process.
        if record is not None and has_mark(record.mark, note.attempt):
            carry_out(record, self._bucket, self._root)
            self._root.delete_objects([self._note_name])
            file.finish(record)
            text = f"a write that was cut off, begun at {note.start_time}, had written everything"
            return [f"{text}: it counts"]
        warnings = self._undo_write(note)
        self._root.delete_objects([self._note_name])
        return warnings

    def resume(self, mark: UUID) -> None:
        """Go on where another process has called `begin`.

        Args:
            mark: The mark of the write.

        Raises:
            OptionError: Someone else writes the topic.
            CorruptMetadataError: What was noted is malformed.
            StorageError: The store refused, or went on failing.
        """
        data = self._read_note()
        note = None if data is None else self._parse_note(data)
        if note is None or not has_mark(note.attempt, mark):
            raise self._changed_error()
        self._note = note
        self._before = {name: note.folders.get(name, {}) for name in self._folders}

    @property
    def ledger_ids(self) -> set[int]:
        """Ids of the ledgers in what is to be extended, but for the open ones, which are empty."""
        return {ledger.ledger_id for each in self.metadata for ledger in each.ledgers[:-1]}

    def merge_schema(self, schema: TopicSchema | None) -> TopicSchema | None:
        """The schemas that are given, with the versions that the metadata has already.

        Raises:
            OptionError: They differ in what a version is.
        """
        current = next(iter(self._before.values())).get(SCHEMAS_FILE)
        if schema is None or current is None or not has_schemas(read_answer(current)):
            return schema
        if not schema.versions:
            return replace(schema, versions=load_schema(current).versions)
        answer = schemas_json(schema, timestamp_ms=0).encode()
        return replace(schema, versions=load_schema([current, answer]).versions)

    def begin(self, file: CommitRecordFile) -> None:
        """Note what stands, before any ledger is written, lest a kill leave half of it.

        Args:
            file: Where the write will be decided, unless it gets an id later.

        Raises:
            OptionError: Someone else writes the topic.
            StorageError: The store refused, or went on failing.
        """
        if self._read_note() is not None:
            raise self._changed_error()
        self._write_note(
            _Note(
                bucket=self._bucket.location.url,
                attempt=file.mark,
                started_ms=time.time_ns() // 1_000_000,
                topic=file.topic,
                write_id=file.write_id if file.is_named else None,
                folders=self._before,
            )
        )

    def check_unchanged(self, file: CommitRecordFile) -> None:
        """Check that nobody has changed anything since, before the write is decided.

        Args:
            file: Where it will be decided.

        Raises:
            OptionError: Someone else wrote there meanwhile.
            StorageError: The store refused, or went on failing.
        """
        note = self._note
        if note is None or self._read_note() != note.to_json():
            raise self._changed_error()
        # Where it will be decided may be known only now.
        write_id = file.write_id if file.is_named else None
        if note.write_id != write_id:
            self._write_note(replace(note, write_id=write_id))
        now = {name: read_files(folder) for name, folder in self._folders.items()}
        if now != self._before:
            raise self._changed_error()

    def carry_out(self, record: CommitRecord) -> None:
        """Publish ledgers, and write the files of each partition.

        Args:
            record: What was decided behind `check_unchanged`.

        Raises:
            StorageError: The store refused, or went on failing.
        """
        # Before anything is written, lest an interrupt fall between the two.
        self._is_touched = True
        carry_out(record, self._bucket, self._root, self._before)

    def end(self) -> None:
        """Forget what was noted, since all is there, or nothing.

        Raises:
            StorageError: The store refused, or went on failing.
        """
        if self._note is not None and self._read_note() == self._note.to_json():
            self._root.delete_objects([self._note_name])

    def withdraw(self) -> None:
        """Undo what was begun, decided or not: nobody else may have carried it out.

        Raises:
            StorageError: The store refused, or went on failing; the next `finish` begins anew.
        """
        if self._note is not None:
            self._undo_write(self._note)
            self.end()

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
                self.end()
            except PulsarOffloadError as failure:
                error.add_note(f"the note of what was begun was not deleted: {failure}")
        for new_folders in self._new_folders:
            new_folders.remove()

    def _check_partitions(self) -> None:
        """Refuse to append to metadata of another number of partitions."""
        try:
            folders = self._root.list_folders()
        except MissingObjectError:
            return
        matches = map(_partition_folders(self._topic).fullmatch, folders)
        partitions = {-1 if match[1] is None else int(match[1]) for match in matches if match}
        location = f"the metadata in {self._root}"
        check_partitions(self._topic, self._names, partitions, location, is_whole=True)

    def _undo_write(self, note: _Note) -> list[str]:
        """Make all what it was before a write; what was done, in words."""
        for name, files in note.folders.items():
            folder = self._root.child(name)
            for file, reason in restore_files(folder, files).items():
                message = f"{file} could not be made what it was: {reason}"
                raise StorageError(message, object_key=f"{folder}/{file}")
            if not files:
                # One that is empty would count as a partition.
                remove_if_empty(folder)
        # Behind the metadata, which would name them.
        count, warnings = delete_marked(self._bucket, note.attempt)
        deleted = counted(count, "ledger")
        text = f"a write that was cut off, begun at {note.start_time}, was undone: {deleted}"
        return [f"{text} deleted, whole or not" if count else text, *warnings]

    def _write_note(self, note: _Note) -> None:
        # Before it is written, lest an interrupt fall between the two.
        self._note = note
        self._root.write_object(self._note_name, note.to_json(), user_metadata={})

    def _read_note(self) -> bytes | None:
        try:
            return self._root.read_object(self._note_name, max_bytes=_MAX_NOTE_BYTES).data
        except MissingObjectError:
            return None

    def _parse_note(self, data: bytes) -> _Note:
        try:
            return _Note.from_json(data, self._topic)
        except CorruptMetadataError as error:
            raise error.located(object_key=f"{self._root}/{self._note_name}") from None

    def _changed_error(self) -> OptionError:
        message = f"the metadata in {self._root} was changed meanwhile: write again"
        return OptionError(message)


def _partition_folders(topic: TopicName) -> re.Pattern[str]:
    """What the folders of a topic and of its partitions match; the group is the partition."""
    base = re.escape(folder_name(topic.base))
    return re.compile(rf"{base}(?:-partition-(0|[1-9][0-9]*))?")


def _parse_own_metadata(
    folder: Location, name: TopicName, files: Mapping[str, bytes]
) -> TopicMetadata:
    """The metadata in a folder, if it is nothing but what `MetadataFiles` writes of it."""
    try:
        metadata = parse_managed_ledger_info(files.get(VALUE_FILE, b""), name)
    except FormatError as error:
        raise error.located(object_key=f"{folder}/{VALUE_FILE}") from None
    if not metadata.ledgers or files != make_files(metadata, files.get(SCHEMAS_FILE, b"")):
        message = (
            f"{folder} has metadata that write did not make, such as a cluster's own: nothing can"
            f" be appended to it; give another {option_name('metadata_folder')}, or a topic of"
            " another name"
        )
        raise OptionError(message)
    return metadata


def check_partitions(
    topic: TopicName,
    names: Sequence[TopicName],
    partitions: Collection[int],
    location: str,
    *,
    is_whole: bool,
) -> None:
    """Refuse another number of partitions than a topic has: keys would go to other ones.

    Args:
        topic: The topic that is appended to.
        names: The topic, or all the partitions that messages are to go to.
        partitions: Numbers of the partitions that are there; -1: the topic has none.
        location: Where they were found, for messages.
        is_whole: Whether the topic has no further partition behind the greatest of `partitions`.

    Raises:
        OptionError: It is another number.
    """
    if not partitions:
        return
    count = max(partitions) + 1
    if topic.partition >= 0:
        fits = -1 not in partitions
    elif list(names) == [topic]:
        fits = count == 0
    else:
        fits = -1 not in partitions and (
            count == len(names) or (not is_whole and count < len(names))
        )
    if not fits:
        has = "no partitions" if -1 in partitions else counted(count, "partition")
        how = "append to it without partitions"
        if -1 not in partitions:
            how = f"give {option_name('partitions', count)} to append to it"
        message = f"{topic.base} has {has} in {location}: {how}"
        raise OptionError(message)
