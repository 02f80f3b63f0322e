"""The manifest of a metadata folder: which topic it belongs to, and checksums of its files.

A truncated value of a metadata store parses as a value with fewer ledgers, and the name of a folder
does not identify a topic reliably. Therefore a writer of a topic's folder writes `manifest.json`
into it, last:

```
{"topic": "persistent://public/default/orders",
 "files": {"managed-ledger-info.bin": {"bytes": 61, "sha256": "…"}, …},
 "sha256": "…"}
```

`files` has each file of the folder. `sha256` is the checksum of `topic` and `files`, written as
JSON with sorted names and without spaces.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from arrow_io.core.wording import counted
from arrow_io.errors import CorruptMetadataError, OptionError
from connector.catalog.metadata.admin_answers import read_answer
from connector.inputs.topic_names import TopicName

MANIFEST_FILE: Final = "manifest.json"

_FIELDS: Final = {"topic", "files", "sha256"}
_FILE_FIELDS: Final = {"bytes", "sha256"}


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a manifest: the topic; length in bytes and SHA-256 of each file, by name."""

    topic: TopicName
    files: Mapping[str, tuple[int, str]]

    def check(self, name: str, data: bytes) -> None:
        """Compare a file with its length and checksum in the manifest.

        Raises:
            CorruptMetadataError: The file was replaced or truncated, or the manifest does not have
                a file of this name.
        """
        if name not in self.files:
            message = f"{name} is not listed in {MANIFEST_FILE} of the same folder"
            raise CorruptMetadataError(message)
        size_bytes, checksum = self.files[name]
        if len(data) != size_bytes or _sha256(data) != checksum:
            message = (
                f"{name} has {counted(len(data), 'byte')} and does not match {MANIFEST_FILE} of the"
                f" same folder, which records {size_bytes}: it is truncated, damaged or replaced"
            )
            raise CorruptMetadataError(message)


def manifest_json(topic: TopicName, files: Mapping[str, bytes]) -> bytes:
    """Return the manifest of a topic's folder, in which `files` has all other files by name."""
    described = {
        name: {"bytes": len(data), "sha256": _sha256(data)} for name, data in files.items()
    }
    fields: dict[str, object] = {"topic": str(topic), "files": described}
    return json.dumps(fields | {"sha256": _checksum(fields)}, indent=1).encode()


def read_manifest(data: bytes) -> Manifest:
    """Read a manifest.

    Raises:
        CorruptMetadataError: It is not a manifest, or its checksum does not match.
    """
    answer = read_answer(data)
    fields = {name: answer.get(name) for name in ("topic", "files")}
    if set(answer) != _FIELDS or answer["sha256"] != _checksum(fields):
        message = "the manifest does not match its own checksum"
        raise CorruptMetadataError(message)
    topic, files = fields["topic"], fields["files"]
    if not isinstance(topic, str) or not isinstance(files, Mapping):
        message = "the manifest names no topic, or lists no files"
        raise CorruptMetadataError(message)
    try:
        return Manifest(TopicName.parse(topic), {name: _file(each) for name, each in files.items()})
    except OptionError as error:
        raise CorruptMetadataError(error.message) from error


def _file(fields: object) -> tuple[int, str]:
    if isinstance(fields, Mapping) and set(fields) == _FILE_FIELDS:
        size_bytes, checksum = fields["bytes"], fields["sha256"]
        if type(size_bytes) is int and isinstance(checksum, str):
            return size_bytes, checksum
    message = "the manifest lacks the length or the checksum of a file"
    raise CorruptMetadataError(message)


def _checksum(fields: Mapping[str, object]) -> str:
    return _sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
