"""Metadata of a topic in folders. A write extends all of it or none.

Each topic or partition has a folder with the files that `connector.catalog.metadata.folder` reads.
To append to a topic, its metadata is read, extended by the new ledgers, and written back. Only
metadata written here is extended. A cluster's metadata has more (subscriptions, ledgers in
BookKeeper), and only the cluster may extend it.

A write with metadata changes many objects: ledgers in the bucket, and files in the folder of each
partition. Before the first change, a note records the files' content and the mark of the ledgers to
come. After the last change, the note is deleted. It is one object beside the folders, `<folder of
the topic>.unfinished.json`, so it is never half written:

```
{"bucket": "s3://offloaded", "attempt": "4f6cf8a2-…", "begun_ms": 1760000000000,
 "topic": "persistent://public/default/orders", "write_id": null,
 "folders": {"public__default__orders": {"manifest.json": "<Base64>", …}}}
```

`attempt` is the mark of the write, which identifies its ledgers, so that no others are deleted.
`write_id` is null unless the write may be repeated. If a process is killed, the next write finds
its note. It finishes the killed write if that was committed, and undoes it otherwise.

Functions raise `StorageError` if the store refuses a request, or retries are exhausted.
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
"""Maximum size of a note, which has the files of up to 500 partitions."""


@dataclass(frozen=True, slots=True)
class _Note:
    """Content of a note, as described above. `folders` has the bytes of each file, by name."""

    bucket: str
    attempt: UUID
    started_ms: int
    topic: TopicName
    write_id: str | None
    folders: Mapping[str, Mapping[str, bytes]]

    @property
    def start_time(self) -> str:
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
        """Parse the note of a topic. Raises `CorruptMetadataError` if it is damaged."""
        message = "the note of an interrupted write is damaged"
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
    """The metadata folders of a topic, one for each partition.

    Args:
        root: Parent of the folders.
        names: The topic, or all of its partitions.
        bucket: The offloader that writes the ledgers.
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
        # A topic and its partitions share one note, so that their writes exclude each other.
        self._note_name = f"{folder_name(topic.base)}.unfinished.json"
        self._note: _Note | None = None
        self._folders = {folder_name(name): root.child(folder_name(name)) for name in names}
        self._new_folders = [NewFolders(folder) for folder in self._folders.values()]
        self._old_files: Mapping[str, Mapping[str, bytes]] = {}
        self._is_touched = False
        self.warnings: list[str] = []
        """Whether an interrupted earlier write was undone or finished."""
        self.metadata: list[TopicMetadata] = []
        """The metadata to extend; empty if the topic has none yet."""

    def open(self, *, append: bool) -> None:
        """Undo or finish an interrupted earlier write, then read the existing metadata.

        Args:
            append: Whether to extend existing metadata of the topic.

        Raises:
            OptionError: Metadata exists but `append` is False, it has another number of partitions,
                or it was not written here. Or a write to another bucket was interrupted.
            CorruptMetadataError: The metadata to extend is malformed.
        """
        self.warnings = self.finish()
        if append:
            self._check_partitions()
        old_files = {name: read_files(folder) for name, folder in self._folders.items()}
        has_some = any(old_files.values())
        if not append and has_some:
            message = (
                f"{self._root} has metadata of this topic already: give {option_name('append')} to"
                " extend it"
            )
            raise OptionError(message)
        if has_some and not all(old_files.values()):
            empty_folder = next(
                self._folders[name] for name, files in old_files.items() if not files
            )
            message = (
                f"{empty_folder} has no metadata, while other partitions of the topic have some"
            )
            raise OptionError(message)
        self._old_files = old_files
        if has_some:
            self.metadata = [
                _parse_own_metadata(
                    self._folders[folder_name(name)], name, old_files[folder_name(name)]
                )
                for name in self._names
            ]

    def finish(self) -> list[str]:
        """Undo a write that an earlier process did not finish; if it was committed, finish it.

        If the call fails, it can be repeated.

        Returns:
            What was done, as warnings.

        Raises:
            OptionError: The earlier process wrote to another bucket.
            CorruptMetadataError: The note, the commit record or the metadata is malformed.
        """
        data = self._read_note()
        if data is None:
            return []
        note = self._parse_note(data)
        if note.bucket != self._bucket.location.url:
            message = (
                f"a write of this topic to {note.bucket} with the metadata in {self._root} was"
                f" interrupted: write to {note.bucket} again, which cleans up what it left"
            )
            raise OptionError(message)
        file = CommitRecordFile(
            self._bucket.location, note.topic, write_id=note.write_id, mark=note.attempt
        )
        record = file.read()
        # Another process may have committed a write with the same id.
        if record is not None and has_mark(record.mark, note.attempt):
            carry_out(record, self._bucket, self._root)
            self._root.delete_objects([self._note_name])
            file.finish(record)
            text = f"a write that was interrupted, begun at {note.start_time}, was committed"
            return [f"{text}: it is finished now"]
        warnings = self._undo_write(note)
        self._root.delete_objects([self._note_name])
        return warnings

    def resume(self, mark: UUID) -> None:
        """Continue the write with a mark, for which another process called `begin`.

        Raises:
            OptionError: Another writer writes the topic.
            CorruptMetadataError: The note is malformed.
        """
        data = self._read_note()
        note = None if data is None else self._parse_note(data)
        if note is None or not has_mark(note.attempt, mark):
            raise self._changed_error()
        self._note = note
        self._old_files = {name: note.folders.get(name, {}) for name in self._folders}

    @property
    def ledger_ids(self) -> set[int]:
        """Ids of the ledgers in the existing metadata, except open ones, which are empty."""
        return {ledger.ledger_id for each in self.metadata for ledger in each.ledgers[:-1]}

    def merge_schema(self, schema: TopicSchema | None) -> TopicSchema | None:
        """Return the schema to write, with the versions that the metadata already has.

        Raises:
            OptionError: Both define the same version differently.
        """
        current = next(iter(self._old_files.values())).get(SCHEMAS_FILE)
        if schema is None or current is None or not has_schemas(read_answer(current)):
            return schema
        if not schema.versions:
            return replace(schema, versions=load_schema(current).versions)
        answer = schemas_json(schema, timestamp_ms=0).encode()
        return replace(schema, versions=load_schema([current, answer]).versions)

    def begin(self, file: CommitRecordFile) -> None:
        """Write the note, before any ledger is written, so that a kill leaves a trace.

        The write may get its id later.

        Raises:
            OptionError: Another writer writes the topic.
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
                folders=self._old_files,
            )
        )

    def check_unchanged(self, file: CommitRecordFile) -> None:
        """Check, before the commit, that nobody has changed the note or the metadata.

        Raises:
            OptionError: Another writer changed them in the meantime.
        """
        note = self._note
        if note is None or self._read_note() != note.to_json():
            raise self._changed_error()
        # The write may have got its id after the note was written.
        write_id = file.write_id if file.is_named else None
        if note.write_id != write_id:
            self._write_note(replace(note, write_id=write_id))
        now = {name: read_files(folder) for name, folder in self._folders.items()}
        if now != self._old_files:
            raise self._changed_error()

    def carry_out(self, record: CommitRecord) -> None:
        """Publish the ledgers, and write the files of each partition, after `check_unchanged`."""
        # Set before anything is written: an interrupt may come between the two.
        self._is_touched = True
        carry_out(record, self._bucket, self._root, self._old_files)

    def end(self) -> None:
        """Delete the note after the write is finished or undone."""
        if self._note is not None and self._read_note() == self._note.to_json():
            self._root.delete_objects([self._note_name])

    def withdraw(self) -> None:
        """Undo the write, committed or not. No other process may have published it.

        If the call fails, the next `finish` undoes the write.
        """
        if self._note is not None:
            self._undo_write(self._note)
            self.end()

    def undo(self, error: BaseException, stager: LedgerStager) -> None:
        """Restore the files and delete the ledgers. Failures are added to the error as notes.

        After a failure, the note stays, and the next write undoes the rest.
        """
        folders = self._folders.items() if self._is_touched else ()
        failures = [
            f"{folder}/{file} could not be restored: {reason}"
            for name, folder in folders
            for file, reason in restore_files(folder, self._old_files[name]).items()
        ]
        for failure in failures:
            error.add_note(failure)
        if stager.undo(error) and not failures:
            try:
                self.end()
            except PulsarOffloadError as failure:
                error.add_note(f"the note of the write could not be deleted: {failure}")
        for new_folders in self._new_folders:
            new_folders.remove()

    def _check_partitions(self) -> None:
        try:
            folders = self._root.list_folders()
        except MissingObjectError:
            return
        matches = map(_partition_folders(self._topic).fullmatch, folders)
        partitions = {-1 if match[1] is None else int(match[1]) for match in matches if match}
        location = f"the metadata in {self._root}"
        check_partitions(self._topic, self._names, partitions, location, is_whole=True)

    def _undo_write(self, note: _Note) -> list[str]:
        """Restore the state before a write, and return what was done as warnings."""
        for name, files in note.folders.items():
            folder = self._root.child(name)
            for file, reason in restore_files(folder, files).items():
                message = f"{file} could not be restored: {reason}"
                raise StorageError(message, object_key=f"{folder}/{file}")
            if not files:
                # An empty folder would count as a partition.
                remove_if_empty(folder)
        # After the metadata, which would still name the ledgers.
        count, warnings = delete_marked(self._bucket, note.attempt)
        deleted = counted(count, "ledger")
        text = f"a write that was interrupted, begun at {note.start_time}, was undone: {deleted}"
        return [f"{text} deleted, complete or not" if count else text, *warnings]

    def _write_note(self, note: _Note) -> None:
        # Set before the note is written: an interrupt may come between the two.
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
        message = f"the metadata in {self._root} was changed in the meantime: write again"
        return OptionError(message)


def _partition_folders(topic: TopicName) -> re.Pattern[str]:
    """Return a pattern of the topic's folder names; the group is the partition number."""
    base = re.escape(folder_name(topic.base))
    return re.compile(rf"{base}(?:-partition-(0|[1-9][0-9]*))?")


def _parse_own_metadata(
    folder: Location, name: TopicName, files: Mapping[str, bytes]
) -> TopicMetadata:
    """Parse the metadata in a folder, and raise if `MetadataFiles` did not write it."""
    try:
        metadata = parse_managed_ledger_info(files.get(VALUE_FILE, b""), name)
    except FormatError as error:
        raise error.located(object_key=f"{folder}/{VALUE_FILE}") from None
    if not metadata.ledgers or files != make_files(metadata, files.get(SCHEMAS_FILE, b"")):
        message = (
            f"{folder} has metadata that write did not make, such as a cluster's: it cannot be"
            f" extended; give another {option_name('metadata_folder')} or another topic name"
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
    """Raise if the number of partitions differs from the topic's: keys would move to others.

    Args:
        topic: The topic to append to.
        names: The topic, or all the partitions to write to.
        partitions: Numbers of the existing partitions; -1 if the topic is not partitioned.
        location: Location of the existing partitions, for error messages.
        is_whole: Whether the greatest of `partitions` is the topic's last.

    Raises:
        OptionError: The number of partitions differs.
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
        advice = "append to it without partitions"
        if -1 not in partitions:
            advice = f"give {option_name('partitions', count)} to append to it"
        message = f"{topic.base} has {has} in {location}: {advice}"
        raise OptionError(message)
