"""What a killed write left is finished if it was decided, and undone otherwise, by the next write.

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
`write_id` is null unless the write may be repeated.
"""

from __future__ import annotations

import json
import re
import time
from base64 import b64decode, b64encode
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from uuid import UUID

from arrow_io.errors import CorruptMetadataError, MissingObjectError, OptionError, StorageError
from arrow_io.wording import counted
from connector.pulsar_time import time_of
from connector.topic_name import TopicName
from connector.writing.carrying_out import carry_out
from connector.writing.decision import DecisionFile
from connector.writing.ledger_ids import delete_marked, has_mark
from connector.writing.new_folders import remove_if_empty
from connector.writing.topic_files import METADATA_FILES, folder_name, restore_files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arrow_io.storage.location import Location
    from connector.offloader import LedgerOffloader

_MAX_NOTE_BYTES: Final = 1 << 30
"""Most bytes that are read of a note, which has what stood of up to 500 partitions."""


@dataclass(frozen=True, slots=True)
class _Note:
    """What a note says, as in the table above; `folders` has each file's bytes, by its name."""

    bucket: str
    attempt: UUID
    begun_ms: int
    topic: TopicName
    write_id: str | None
    folders: Mapping[str, Mapping[str, bytes]]

    def to_json(self) -> bytes:
        fields = {
            "bucket": self.bucket,
            "attempt": str(self.attempt),
            "begun_ms": self.begun_ms,
            "topic": str(self.topic),
            "write_id": self.write_id,
            "folders": {
                folder: {name: b64encode(data).decode() for name, data in files.items()}
                for folder, files in self.folders.items()
            },
        }
        return json.dumps(fields, indent=1).encode()


class UnfinishedWrite:
    """The note of one topic, and what it is for.

    Args:
        root: Where the folders of the metadata are.
        topic: The topic, or a partition of it: both have the same note.
        bucket: Where the ledgers go.
    """

    def __init__(self, root: Location, topic: TopicName, bucket: LedgerOffloader) -> None:
        self._root = root
        self._topic = topic
        self._bucket = bucket
        self._base = folder_name(topic.base)
        self._name = f"{self._base}.unfinished.json"
        self._ours: _Note | None = None

    def begin(self, file: DecisionFile, folders: Mapping[str, Mapping[str, bytes]]) -> None:
        """Note that something is about to be written.

        Args:
            file: Where the write will be decided, unless it gets an id later.
            folders: The files that there are, by the name of the folder and of the file.

        Raises:
            OptionError: Someone else has begun meanwhile.
            StorageError: The store refused, or went on failing.
        """
        if self._read() is not None:
            raise self._changed()
        self._note(
            _Note(
                bucket=self._bucket.location.url,
                attempt=file.mark,
                begun_ms=time.time_ns() // 1_000_000,
                topic=file.topic,
                write_id=file.write_id if file.is_named else None,
                folders=folders,
            )
        )

    def resume(self, attempt: UUID) -> Mapping[str, Mapping[str, bytes]]:
        """Go on with what another process has begun.

        Args:
            attempt: The mark of the write.

        Returns:
            What was given to `begin` as `folders`.

        Raises:
            OptionError: Someone else has begun meanwhile.
            CorruptMetadataError: The note is malformed.
            StorageError: The store refused, or went on failing.
        """
        data = self._read()
        note = None if data is None else self._parsed(data)
        if note is None or not has_mark(note.attempt, attempt):
            raise self._changed()
        self._ours = note
        return note.folders

    def lead_to(self, file: DecisionFile) -> None:
        """Note where the write is about to be decided.

        Raises:
            OptionError: Someone else has begun meanwhile.
            StorageError: The store refused, or went on failing.
        """
        self.check_ours()
        write_id = file.write_id if file.is_named else None
        if self._ours is not None and self._ours.write_id != write_id:
            self._note(replace(self._ours, write_id=write_id))

    def _note(self, note: _Note) -> None:
        # Before it is written, lest an interrupt fall between the two.
        self._ours = note
        self._root.write_object(self._name, note.to_json(), user_metadata={})

    def check_ours(self) -> None:
        """Check that nobody has taken what was begun for left and undone it.

        Raises:
            OptionError: Someone has.
            StorageError: The store refused, or went on failing.
        """
        if self._ours is None or self._read() != self._ours.to_json():
            raise self._changed()

    def end(self) -> None:
        """Forget what was begun, since all is there, or nothing.

        Raises:
            StorageError: The store refused, or went on failing.
        """
        if self._ours is not None and self._read() == self._ours.to_json():
            self._root.delete_objects([self._name])

    def undo(self) -> list[str]:
        """Undo what an earlier process has begun and not ended; or end it, if it was decided.

        Returns:
            What was done, in words.

        Raises:
            OptionError: It wrote to another bucket.
            CorruptMetadataError: The note, the decision or the metadata is malformed.
            StorageError: The store refused, or went on failing; the next call begins anew.
        """
        data = self._read()
        if data is None:
            return []
        note = self._parsed(data)
        if note.bucket != self._bucket.location.url:
            message = (
                f"a write of this topic to {note.bucket} with the metadata in {self._root} was cut"
                f" off: repeat it with {note.bucket}, which undoes what it left"
            )
            raise OptionError(message)
        begun = f"{time_of(note.begun_ms):%F %T} UTC"
        file = DecisionFile(
            self._bucket.location, note.topic, write_id=note.write_id, mark=note.attempt
        )
        decision = file.read()
        # A write of the same id may have been decided by another process.
        if decision is not None and has_mark(decision.mark, note.attempt):
            carry_out(decision, self._bucket, self._root)
            self._root.delete_objects([self._name])
            file.settle(decision)
            return [
                f"a write that was cut off, begun at {begun}, had written everything: it counts"
            ]
        done = self._undone(note, begun)
        self._root.delete_objects([self._name])
        return done

    def withdraw(self) -> list[str]:
        """Undo what was begun, decided or not: nobody else may have carried it out.

        Returns:
            What was done, in words.

        Raises:
            StorageError: The store refused, or went on failing; the next `undo` begins anew.
        """
        if self._ours is None:
            return []
        done = self._undone(self._ours, f"{time_of(self._ours.begun_ms):%F %T} UTC")
        self.end()
        return done

    def _undone(self, note: _Note, begun: str) -> list[str]:
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
        text = f"a write that was cut off, begun at {begun}, was undone: {counted(count, 'ledger')}"
        return [f"{text} deleted, whole or not" if count else text, *warnings]

    def _read(self) -> bytes | None:
        try:
            return self._root.read_object(self._name, max_bytes=_MAX_NOTE_BYTES).data
        except MissingObjectError:
            return None

    def _parsed(self, data: bytes) -> _Note:
        try:
            fields = json.loads(data)
            folders = {
                folder: {name: b64decode(text, validate=True) for name, text in files.items()}
                for folder, files in fields["folders"].items()
            }
            bucket, attempt = fields["bucket"], UUID(fields["attempt"])
            begun_ms, write_id = fields["begun_ms"], fields["write_id"]
            topic = TopicName.parse(fields["topic"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise self._malformed() from error
        if (
            type(begun_ms) is not int
            or time_of(begun_ms) is None
            or not isinstance(bucket, str)
            or not isinstance(write_id, str | None)
            or topic.base != self._topic.base
            or not folders
            or not all(self._is_ours(*each) for each in folders.items())
        ):
            raise self._malformed()
        return _Note(bucket, attempt, begun_ms, topic, write_id, folders)

    def _is_ours(self, folder: str, files: Mapping[str, bytes]) -> bool:
        """Whether a note of this topic can have such a folder."""
        partition = rf"{re.escape(self._base)}(-partition-(0|[1-9][0-9]*))?"
        return re.fullmatch(partition, folder) is not None and not files.keys() - METADATA_FILES

    def _malformed(self) -> CorruptMetadataError:
        message = "the note of a write that was cut off is not as it was written"
        return CorruptMetadataError(message, object_key=f"{self._root}/{self._name}")

    def _changed(self) -> OptionError:
        message = f"the metadata in {self._root} was changed meanwhile: write again"
        return OptionError(message)
