"""The values that a snapshot is made of, as JSON, and back.

What comes back is checked: a file may hold anything.
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
    """What a listing said of an object, as `json` takes it."""
    modified = info.modified and info.modified.isoformat()
    return [info.name, info.size_bytes, modified, _version(info.version)]


def _version(version: ObjectVersion | None) -> list[Any] | None:
    if isinstance(version, WriteTime):
        return [version.size_bytes, version.modified.isoformat()]
    return None if version is None else [version.text]


def error_json(error: PulsarOffloadError) -> list[Any]:
    """An error, as `json` takes it."""
    fields = ("object_key", "ledger_id", "entry_id", "offset")
    return [type(error).__name__, error.message, {name: getattr(error, name) for name in fields}]


def base64_text(data: bytes) -> str:
    """Bytes as `json` takes them."""
    return base64.b64encode(data).decode()


def read_base64(text: str) -> bytes:
    """Read what `base64_text` gave."""
    return base64.b64decode(text, validate=True)


def read_text(value: object) -> str:
    """Read a text."""
    if not isinstance(value, str):
        message = f"a {type(value).__name__} where a text must stand"
        raise CorruptSnapshotError(message)
    return value


def read_flag(value: object) -> bool:
    """Read a flag."""
    if not isinstance(value, bool):
        message = f"a {type(value).__name__} where true or false must stand"
        raise CorruptSnapshotError(message)
    return value


def read_optional_flag(value: object) -> bool | None:
    """Read a flag that may not be known."""
    return None if value is None else read_flag(value)


def read_number(value: object, *, minimum: int = 0) -> int:
    """Read a whole number in `minimum` … 2^63 - 1."""
    if (
        not isinstance(value, int)
        or isinstance(value, bool)
        or not minimum <= value <= MAX_LEDGER_ID
    ):
        message = f"something else where a number in {minimum} … 2^63 - 1 must stand"
        raise CorruptSnapshotError(message)
    return value


def read_optional_number(value: object) -> int | None:
    """Read a whole number from 0 on that may not be known."""
    return None if value is None else read_number(value)


def read_time(value: object) -> datetime:
    """Read a time, which has a time zone."""
    time = datetime.fromisoformat(read_text(value))
    if time.tzinfo is None:
        message = "a time without a time zone"
        raise CorruptSnapshotError(message)
    return time


def read_texts(value: dict[str, Any]) -> dict[str, str]:
    """Read texts by name."""
    return {name: read_text(text) for name, text in value.items()}


def owner_json(owner: AnyTopic | None) -> str | None:
    """The topic that a copy names, as `json` takes it."""
    if isinstance(owner, ForeignTopic):
        return owner.managed_ledger_name
    return None if owner is None else str(owner)


def read_owner(value: object) -> AnyTopic | None:
    """Read what `owner_json` gave."""
    if value is None:
        return None
    name = read_text(value)
    return ForeignTopic.from_managed_ledger_name(name) or TopicName.parse(name)


def read_info(value: list[Any], expected: str | None = None) -> ObjectInfo:
    """What a listing said; a name that is not the expected one must never be asked for."""
    name, size_bytes, modified, version = value
    if expected not in {None, name}:
        message = f"another object than {expected}"
        raise CorruptSnapshotError(message)
    modified_time = None if modified is None else read_time(modified)
    parsed_version = None if version is None else _read_version(*version)
    return ObjectInfo(read_text(name), read_number(size_bytes), modified_time, parsed_version)


def _read_version(value: object, modified: object = None) -> ObjectVersion:
    if modified is None:
        return ETag(read_text(value))
    return WriteTime(read_number(value), read_time(modified))


def read_error(kind: str, message: str, fields: dict[str, Any]) -> PulsarOffloadError:
    """Read what `error_json` gave."""
    error_class = getattr(errors, kind, None)
    if not isinstance(error_class, type) or not issubclass(error_class, PulsarOffloadError):
        message = f"an error of an unknown class {kind!r}"
        raise CorruptSnapshotError(message)
    key = fields["object_key"]
    return error_class(
        read_text(message),
        object_key=None if key is None else read_text(key),
        ledger_id=read_optional_number(fields["ledger_id"]),
        entry_id=read_optional_number(fields["entry_id"]),
        offset=read_optional_number(fields["offset"]),
    )
