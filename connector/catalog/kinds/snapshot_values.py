"""Values of a catalog snapshot as JSON, and back.

Reading checks each value, because a file may hold anything.
"""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any

from arrow_io import errors
from arrow_io.errors import CorruptSnapshotError, PulsarOffloadError
from arrow_io.format.object_names import MAX_LEDGER_ID
from arrow_io.storage.object_store import ObjectInfo
from arrow_io.storage.object_version import ETag, ObjectVersion, WriteTime
from connector.inputs.topic_names import AnyTopic, ForeignTopic, TopicName


def info_json(info: ObjectInfo) -> list[Any]:
    """Return a listed object as a value for `json.dumps`."""
    modified = info.modified and info.modified.isoformat()
    return [info.name, info.size_bytes, modified, _version(info.version)]


def _version(version: ObjectVersion | None) -> list[Any] | None:
    if isinstance(version, WriteTime):
        return [version.size_bytes, version.modified.isoformat()]
    return None if version is None else [version.text]


def error_json(error: PulsarOffloadError) -> list[Any]:
    """Return an error as a value for `json.dumps`."""
    fields = ("object_key", "ledger_id", "entry_id", "offset")
    return [type(error).__name__, error.message, {name: getattr(error, name) for name in fields}]


def base64_text(data: bytes) -> str:
    """Return bytes as Base64 text."""
    return base64.b64encode(data).decode()


def read_base64(text: str) -> bytes:
    """Decode the text that `base64_text` returned."""
    return base64.b64decode(text, validate=True)


def read_text(value: object) -> str:
    """Return a value that must be text."""
    if not isinstance(value, str):
        message = f"expected text, found a {type(value).__name__}"
        raise CorruptSnapshotError(message)
    return value


def read_flag(value: object) -> bool:
    """Return a value that must be a bool."""
    if not isinstance(value, bool):
        message = f"expected true or false, found a {type(value).__name__}"
        raise CorruptSnapshotError(message)
    return value


def read_optional_flag(value: object) -> bool | None:
    """Return a value that must be a bool or None (unknown)."""
    return None if value is None else read_flag(value)


def read_number(value: object, *, minimum: int = 0) -> int:
    """Return a value that must be a whole number in `minimum` … 2^63 - 1."""
    if (
        not isinstance(value, int)
        or isinstance(value, bool)
        or not minimum <= value <= MAX_LEDGER_ID
    ):
        message = f"expected a whole number in {minimum} … 2^63 - 1, found another value"
        raise CorruptSnapshotError(message)
    return value


def read_optional_number(value: object) -> int | None:
    """Return a value that must be a whole number from 0 on, or None (unknown)."""
    return None if value is None else read_number(value)


def read_time(value: object) -> datetime:
    """Parse a time, which must have a time zone."""
    time = datetime.fromisoformat(read_text(value))
    if time.tzinfo is None:
        message = "found a time without a time zone"
        raise CorruptSnapshotError(message)
    return time


def read_texts(value: dict[str, Any]) -> dict[str, str]:
    """Return an object whose values must all be text."""
    return {name: read_text(text) for name, text in value.items()}


def owner_json(owner: AnyTopic | None) -> str | None:
    """Return the topic that a copy names as a value for `json.dumps`."""
    if isinstance(owner, ForeignTopic):
        return owner.managed_ledger_name
    return None if owner is None else str(owner)


def read_owner(value: object) -> AnyTopic | None:
    """Read the value that `owner_json` returned."""
    if value is None:
        return None
    name = read_text(value)
    return ForeignTopic.from_managed_ledger_name(name) or TopicName.parse(name)


def read_info(value: list[Any], expected: str | None = None) -> ObjectInfo:
    """Read the value that `info_json` returned.

    A name other than the expected one is an error, because requests must never go to it.
    """
    name, size_bytes, modified, version = value
    if expected not in {None, name}:
        message = f"expected the object {expected}, found another one"
        raise CorruptSnapshotError(message)
    modified_time = None if modified is None else read_time(modified)
    parsed_version = None if version is None else _read_version(*version)
    return ObjectInfo(read_text(name), read_number(size_bytes), modified_time, parsed_version)


def _read_version(value: object, modified: object = None) -> ObjectVersion:
    if modified is None:
        return ETag(read_text(value))
    return WriteTime(read_number(value), read_time(modified))


def read_error(kind: str, message: str, fields: dict[str, Any]) -> PulsarOffloadError:
    """Read the value that `error_json` returned."""
    error_class = getattr(errors, kind, None)
    if not isinstance(error_class, type) or not issubclass(error_class, PulsarOffloadError):
        message = f"found an error of the unknown class {kind!r}"
        raise CorruptSnapshotError(message)
    key = fields["object_key"]
    return error_class(
        read_text(message),
        object_key=None if key is None else read_text(key),
        ledger_id=read_optional_number(fields["ledger_id"]),
        entry_id=read_optional_number(fields["entry_id"]),
        offset=read_optional_number(fields["offset"]),
    )
