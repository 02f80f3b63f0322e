"""What a catalog is made of, as JSON, and back.

What comes back is checked: a file may hold anything.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from arrow_io import errors
from arrow_io.errors import CorruptSnapshotError, PulsarOffloadError
from arrow_io.format.index_block import read_index_block
from arrow_io.format.object_names import MAX_LEDGER_ID, LedgerObjectName
from arrow_io.ledger_reader import OffloadedLedger
from arrow_io.storage.location import Location
from arrow_io.storage.object_store import ObjectInfo
from arrow_io.storage.object_version import ETag, ObjectVersion, WriteTime
from connector.catalog.bucket import BucketContents, UnfinishedOffload
from connector.catalog.ledger_copy import LedgerCopy, object_versions
from connector.catalog.metadata.topic_metadata import (
    LedgerInfo,
    OffloadContext,
    TopicMetadata,
    in_order,
)
from connector.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Mapping


FORMAT = "pulsar-offload catalog"
VERSION = 2
"""Version 1 had neither cursors nor how far the metadata is proven."""


@dataclass(frozen=True)
class Snapshot:
    """What a catalog is made of.

    Attributes:
        contents: What lies in the bucket.
        elsewhere: What lies in other buckets, by their names in the metadata.
        topics: What the metadata says, by topic; None: there was none.
        schemas: The admin API's answer for all versions of a schema, by topic without partition.
        warnings: What the metadata leaves unsure, in words.
        taken: When the bucket was listed.
    """

    contents: BucketContents
    elsewhere: Mapping[str, BucketContents] = field(default_factory=dict)
    topics: Mapping[TopicName, TopicMetadata] | None = None
    schemas: Mapping[TopicName, bytes] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    taken: datetime = field(default_factory=lambda: datetime.now(UTC))


def as_json(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot as `json` takes it."""
    topics = None if snapshot.topics is None else list(map(_metadata, snapshot.topics.values()))
    return {
        "format": FORMAT,
        "version": VERSION,
        "taken": snapshot.taken.isoformat(),
        "contents": _contents(snapshot.contents),
        "elsewhere": {
            bucket: _contents(contents) for bucket, contents in snapshot.elsewhere.items()
        },
        "topics": topics,
        "schemas": {str(topic): _base64(answer) for topic, answer in snapshot.schemas.items()},
        "warnings": list(snapshot.warnings),
    }


def _contents(contents: BucketContents) -> dict[str, Any]:
    return {
        "url": str(contents.location),
        "copies": list(map(_copy, contents.copies)),
        "unfinished": [[*_name(each.name), _info(each.data)] for each in contents.unfinished],
        "streaming": list(map(_info, contents.streaming)),
        "foreign": list(map(_info, contents.foreign)),
    }


def _name(name: LedgerObjectName) -> tuple[str, int]:
    return str(name.uuid), name.ledger_id


def _info(info: ObjectInfo) -> list[Any]:
    modified = info.modified and info.modified.isoformat()
    return [info.name, info.size_bytes, modified, _version(info.version)]


def _version(version: ObjectVersion | None) -> list[Any] | None:
    if isinstance(version, WriteTime):
        return [version.size_bytes, version.modified.isoformat()]
    return None if version is None else [version.text]


def _copy(copy: LedgerCopy) -> dict[str, Any]:
    ledger = copy.ledger or copy.cut
    error = copy.error
    value: dict[str, Any] = {
        "name": _name(copy.name),
        "index": _info(copy.index),
        "data": copy.data and _info(copy.data),
        "topic": copy.topic and str(copy.topic),
        "error": error and [type(error).__name__, error.message, _place_of(error)],
        "block": None,
        "cut_bytes": None,
    }
    if ledger is not None:
        metadata = ledger.user_metadata
        value |= {
            "block": _base64(ledger.index.serialize()),
            "warnings": ledger.warnings,
            "cut_bytes": ledger.cut_bytes,
            "user_metadata": None if metadata is None else dict(metadata),
        }
    return value


def _place_of(error: PulsarOffloadError) -> dict[str, Any]:
    fields = ("object_key", "ledger_id", "entry_id", "offset")
    return {name: getattr(error, name) for name in fields}


def _metadata(metadata: TopicMetadata) -> dict[str, Any]:
    return {
        "topic": str(metadata.topic),
        "cursors": dict(metadata.cursors),
        "terminated": metadata.terminated_position,
        "properties": dict(metadata.properties),
        "ledgers": list(map(_ledger, metadata.ledgers)),
        "proven_to": metadata.proven_to_ledger_id,
    }


def _ledger(info: LedgerInfo) -> dict[str, Any]:
    offload = info.offload
    return {
        "ledger_id": info.ledger_id,
        "entries": info.entries,
        "size_bytes": info.size_bytes,
        "timestamp_ms": info.timestamp_ms,
        "properties": dict(info.properties),
        "offload": offload
        and {
            "uuid": offload.uuid and str(offload.uuid),
            "complete": offload.complete,
            "other_uuids": list(map(str, offload.other_uuids)),
            "bookkeeper_deleted": offload.bookkeeper_deleted,
            "timestamp_ms": offload.timestamp_ms,
            "driver": offload.driver,
            "driver_properties": dict(offload.driver_properties),
        },
    }


class SnapshotReader:
    """Makes a snapshot of parsed JSON, which may hold anything.

    Args:
        location: Where the bucket's objects are.
        buckets: Where other buckets are, by the metadata's names for them; else where they were.
    """

    def __init__(
        self,
        location: Location,
        buckets: Mapping[str, str],
    ) -> None:
        self._location = location
        self._buckets = buckets

    def snapshot(self, value: dict[str, Any]) -> Snapshot:
        """Read what `as_json` gave.

        Raises:
            PulsarOffloadError: It is something else; so are the errors below.
            AttributeError: Likewise.
            KeyError: Likewise.
            OverflowError: Likewise.
            TypeError: Likewise.
            ValueError: Likewise.
        """
        options = self._location.storage_options
        elsewhere = {
            bucket: self._contents(
                contents, Location(self._buckets.get(bucket) or _text(contents["url"]), options)
            )
            for bucket, contents in value["elsewhere"].items()
        }
        topics = None
        if value["topics"] is not None:
            topics = {each.topic: each for each in map(_read_metadata, value["topics"])}
        return Snapshot(
            self._contents(value["contents"], self._location),
            elsewhere,
            topics,
            {TopicName.parse(topic): _bytes(text) for topic, text in value["schemas"].items()},
            tuple(map(_text, value["warnings"])),
            _time(value["taken"]),
        )

    def _contents(self, value: dict[str, Any], location: Location) -> BucketContents:
        return BucketContents(
            location,
            tuple(self._copy(each, location) for each in value["copies"]),
            tuple(map(_read_unfinished, value["unfinished"])),
            tuple(map(_read_info, value["streaming"])),
            tuple(map(_read_info, value["foreign"])),
        )

    def _copy(self, value: dict[str, Any], location: Location) -> LedgerCopy:
        name = _read_name(*value["name"])
        data, topic, error = value["data"], value["topic"], value["error"]
        index = _read_info(value["index"], name.index_name)
        data = None if data is None else _read_info(data, name.data_name)
        topic = None if topic is None else TopicName.parse(topic)
        error = None if error is None else _read_error(*error)
        ledger = None if value["block"] is None else self._ledger(value, name, location)
        if ledger is not None:
            ledger = replace(ledger, versions=object_versions(index, data))
        if error is not None:
            is_whole = ledger is None or ledger.cut_bytes is not None
        else:
            is_whole = None not in (ledger, data, topic) and value["cut_bytes"] is None
        if not is_whole:
            # It would be left out without a word.
            message = f"{name.index_name} is neither sound nor in error"
            raise CorruptSnapshotError(message)
        sound, cut = (ledger, None) if error is None else (None, ledger)
        return LedgerCopy(name, index, data, topic, sound, error, cut)

    def _ledger(
        self, value: dict[str, Any], name: LedgerObjectName, location: Location
    ) -> OffloadedLedger:
        user_metadata = value["user_metadata"]
        return OffloadedLedger(
            location,
            name,
            read_index_block(_bytes(value["block"]), object_key=name.index_name),
            tuple(map(_text, value["warnings"])),
            _whole(value["cut_bytes"]),
            None if user_metadata is None else _texts(user_metadata),
        )


def _read_name(uuid: object, ledger_id: object) -> LedgerObjectName:
    return LedgerObjectName(UUID(_text(uuid)), _number(ledger_id))


def _read_info(value: list[Any], expected: str | None = None) -> ObjectInfo:
    """What a listing said; a name that is not the expected one must never be asked for."""
    name, size_bytes, modified, version = value
    if expected not in {None, name}:
        message = f"another object than {expected}"
        raise CorruptSnapshotError(message)
    when = None if modified is None else _time(modified)
    known = None if version is None else _read_version(*version)
    return ObjectInfo(_text(name), _number(size_bytes), when, known)


def _read_version(value: object, modified: object = None) -> ObjectVersion:
    if modified is None:
        return ETag(_text(value))
    return WriteTime(_number(value), _time(modified))


def _read_unfinished(value: list[Any]) -> UnfinishedOffload:
    uuid, ledger_id, data = value
    name = _read_name(uuid, ledger_id)
    return UnfinishedOffload(name, _read_info(data, name.data_name))


def _read_error(kind: str, message: str, place: dict[str, Any]) -> PulsarOffloadError:
    known = getattr(errors, kind, None)
    if not isinstance(known, type) or not issubclass(known, PulsarOffloadError):
        message = f"an error of an unknown class {kind!r}"
        raise CorruptSnapshotError(message)
    key = place["object_key"]
    return known(
        _text(message),
        object_key=None if key is None else _text(key),
        ledger_id=_whole(place["ledger_id"]),
        entry_id=_whole(place["entry_id"]),
        offset=_whole(place["offset"]),
    )


def _read_metadata(value: dict[str, Any]) -> TopicMetadata:
    terminated = value["terminated"]
    return TopicMetadata(
        topic=TopicName.parse(value["topic"]),
        cursors={name: _read_cursor(*each) for name, each in value["cursors"].items()},
        ledgers=in_order(map(_read_ledger, value["ledgers"])),
        terminated_position=terminated and _read_position(*terminated),
        properties=_texts(value["properties"]),
        proven_to_ledger_id=_number(value["proven_to"], least=-1),
    )


def _read_position(ledger_id: object, entry_id: object) -> tuple[int, int]:
    # Before the first message it is entry -1.
    return _number(ledger_id), _number(entry_id, least=-1)


def _read_cursor(ledger_id: object, entry_id: object) -> tuple[int, int]:
    # Before the first message of the topic it is -1:-1.
    return _number(ledger_id, least=-1), _number(entry_id, least=-1)


def _read_ledger(value: dict[str, Any]) -> LedgerInfo:
    offload = value["offload"]
    return LedgerInfo(
        ledger_id=_number(value["ledger_id"]),
        entries=_whole(value["entries"]),
        size_bytes=_whole(value["size_bytes"]),
        timestamp_ms=_whole(value["timestamp_ms"]),
        properties=_texts(value["properties"]),
        offload=None if offload is None else _read_offload(offload),
    )


def _read_offload(value: dict[str, Any]) -> OffloadContext:
    uuid, driver = value["uuid"], value["driver"]
    return OffloadContext(
        uuid=None if uuid is None else UUID(_text(uuid)),
        complete=_told_flag(value["complete"]),
        other_uuids=tuple(UUID(_text(each)) for each in value["other_uuids"]),
        bookkeeper_deleted=_told_flag(value["bookkeeper_deleted"]),
        timestamp_ms=_whole(value["timestamp_ms"]),
        driver=None if driver is None else _text(driver),
        driver_properties=_texts(value["driver_properties"]),
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _text(value: object) -> str:
    if not isinstance(value, str):
        message = f"a {type(value).__name__} where a text must stand"
        raise CorruptSnapshotError(message)
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        message = f"a {type(value).__name__} where true or false must stand"
        raise CorruptSnapshotError(message)
    return value


def _told_flag(value: object) -> bool | None:
    return None if value is None else _flag(value)


def _number(value: object, *, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MAX_LEDGER_ID:
        message = f"something else where a number in {least} … 2^63 - 1 must stand"
        raise CorruptSnapshotError(message)
    return value


def _whole(value: object) -> int | None:
    return None if value is None else _number(value)


def _time(value: object) -> datetime:
    time = datetime.fromisoformat(_text(value))
    if time.tzinfo is None:
        message = "a time without a time zone"
        raise CorruptSnapshotError(message)
    return time


def _texts(value: dict[str, Any]) -> dict[str, str]:
    return {name: _text(text) for name, text in value.items()}
