"""What a killed write left is made as if it had never begun, when the next write begins.

To write a topic with its metadata is to change many objects: ledgers in the bucket, and files in
the folder of each partition. Before the first of them, a note says how the files stood, and which
ledgers are about to come; behind the last, it is deleted. It lies beside the folders, one object,
which is there whole or not at all, `<folder of the topic>.unfinished.json`:

```
{"bucket": "s3://offloaded", "attempt": "4f6cf8a2-…", "begun_ms": 1760000000000,
 "folders": {"public__default__orders": {"manifest.json": "<Base64>", …}}}
```

The uuid of each ledger is made of `attempt` and the ledger's id, so no other ledger is deleted.
"""

from __future__ import annotations

import json
import re
import time
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from arrow_io.errors import CorruptMetadataError, MissingObjectError, OptionError, StorageError
from arrow_io.wording import counted
from connector.pulsar_time import time_of
from connector.writing.ledger_filling import delete_attempt
from connector.writing.new_folders import remove_if_empty
from connector.writing.topic_files import (
    METADATA_FILES,
    are_whole,
    files_in,
    folder_name,
    restore_files,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arrow_io.storage.location import Location
    from connector.offloader import LedgerOffloader
    from connector.topic_name import TopicName

_MAX_NOTE_BYTES: Final = 1 << 30
"""Most bytes that are read of a note, which has what stood of up to 500 partitions."""


@dataclass(frozen=True, slots=True)
class _Note:
    """What a note says, as in the table above; `folders` has each file's bytes, by its name."""

    bucket: str
    attempt: UUID
    begun_ms: int
    folders: Mapping[str, Mapping[str, bytes]]


class UnfinishedWrite:
    """The note of one topic, and what it is for.

    Args:
        root: Where the folders of the metadata are.
        topic: The topic, or a partition of it: both have the same note.
        bucket: Where the ledgers go.
    """

    def __init__(self, root: Location, topic: TopicName, bucket: LedgerOffloader) -> None:
        self._root = root
        self._bucket = bucket
        self._base = folder_name(topic.base)
        self._name = f"{self._base}.unfinished.json"
        self._ours: bytes | None = None

    def begin(self, attempt: UUID, folders: Mapping[str, Mapping[str, bytes]]) -> None:
        """Note that something is about to be written.

        Args:
            attempt: What the uuids of the ledgers are made of.
            folders: The files that there are, by the name of the folder and of the file.

        Raises:
            OptionError: Someone else has begun meanwhile.
            StorageError: The store refused, or went on failing.
        """
        if self._read() is not None:
            raise self._changed()
        fields = {
            "bucket": self._bucket.location.url,
            "attempt": str(attempt),
            "begun_ms": time.time_ns() // 1_000_000,
            "folders": {
                folder: {name: b64encode(data).decode() for name, data in files.items()}
                for folder, files in folders.items()
            },
        }
        self._ours = json.dumps(fields, indent=1).encode()
        self._root.write_object(self._name, self._ours, user_metadata={})

    def check_ours(self) -> None:
        """Check that nobody has taken what was begun for left and undone it.

        Raises:
            OptionError: Someone has.
            StorageError: The store refused, or went on failing.
        """
        if self._read() != self._ours:
            raise self._changed()

    def end(self) -> None:
        """Forget what was begun, since all is there, or nothing.

        Raises:
            StorageError: The store refused, or went on failing.
        """
        if self._ours is not None and self._read() == self._ours:
            self._root.delete_objects([self._name])

    def undo(self) -> list[str]:
        """Undo what an earlier process has begun and not ended, unless it had written everything.

        Returns:
            What was done, in words.

        Raises:
            OptionError: It wrote to another bucket.
            CorruptMetadataError: The note is malformed.
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
        now = {folder: files_in(self._root.child(folder)) for folder in note.folders}
        begun = f"{time_of(note.begun_ms):%F %T} UTC"
        # A manifest is the last file to be written, and each write has a further open ledger.
        if all(are_whole(files) and files != note.folders[each] for each, files in now.items()):
            done = [
                f"a write that was cut off, begun at {begun}, had written everything: it counts"
            ]
        else:
            done = self._undone(note, begun)
        self._root.delete_objects([self._name])
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
        count, warnings = delete_attempt(self._bucket, note.attempt)
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
            begun_ms = fields["begun_ms"]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise self._malformed() from error
        if (
            type(begun_ms) is not int
            or time_of(begun_ms) is None
            or not isinstance(bucket, str)
            or not folders
            or not all(self._is_ours(*each) for each in folders.items())
        ):
            raise self._malformed()
        return _Note(bucket, attempt, begun_ms, folders)

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
