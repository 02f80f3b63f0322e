"""What a catalog is made of, as JSON, and back.

What comes back is checked: a file may hold anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from arrow_io.errors import CorruptSnapshotError, PulsarOffloadError
from connector.catalog.bucket import BucketContents, UnfinishedOffload, sort_copies
from connector.catalog.kinds.object_kind import SnapshotPair
from connector.catalog.kinds.registry import kind_of, parse_name
from connector.catalog.kinds.snapshot_values import (
    error_json,
    info_json,
    owner_json,
    read_error,
    read_info,
    read_number,
    read_optional_flag,
    read_optional_number,
    read_owner,
    read_text,
    read_texts,
)
from connector.catalog.metadata.topic_metadata import (
    LedgerInfo,
    OffloadContext,
    TopicMetadata,
)
from connector.catalog.topic_ledgers import LedgerState, TopicLedger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from arrow_io.format.object_names import PairName
    from arrow_io.storage.location import Location
    from arrow_io.storage.object_store import ObjectInfo
    from connector.catalog.kinds.ledger_copy import LedgerCopy
    from connector.catalog.kinds.object_kind import SnapshotForm
    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.inputs.topic_names import TopicName


@dataclass(frozen=True)
class Snapshot:
    """What a catalog is made of.

    Attributes:
        contents: What lies in the bucket.
        other_buckets: What lies in other buckets, by their names in the metadata.
        topics: Every topic.
        has_metadata: Whether there was metadata.
        schemas: The admin API's answer for all versions of a schema, by topic without partition.
        warnings: What the metadata leaves unsure, in words.
        listed_at: When the bucket was listed.
        statistics: Where statistics of the topics are; None if that is not told.
    """

    contents: BucketContents
    other_buckets: Mapping[str, BucketContents] = field(default_factory=dict)
    topics: Sequence[TopicLedgers] = ()
    has_metadata: bool = False
    schemas: Mapping[TopicName, bytes] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    listed_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    statistics: str | None = None


def contents_json(
    contents: BucketContents, bucket: str | None, copies: Iterable[LedgerCopy]
) -> dict[str, Any]:
    """What lies in a bucket, as `json` takes it.

    Args:
        contents: What lies there.
        bucket: The metadata's name for the bucket; None: the one that is read.
        copies: Which of the copies are wanted.
    """
    return {
        "copies": [copy_json(copy, bucket) for copy in copies],
        "unfinished": [info_json(each.data) for each in contents.unfinished],
        "foreign": list(map(info_json, contents.foreign)),
    }


def ledger_json(ledger: TopicLedger, find_bucket: Callable[[LedgerCopy], str | None]) -> Any:  # noqa: ANN401
    """A ledger of a topic, as `json` takes it.

    Args:
        ledger: The ledger.
        find_bucket: Gives the metadata's name for the bucket that a copy is in; None: the one read.
    """
    error, copy = ledger.error, ledger.copy
    is_copy_error = copy is not None and error is not None and error is copy.error
    return {
        "ledger_id": ledger.ledger_id,
        "state": ledger.state.value,
        "info": ledger.info and _ledger(ledger.info),
        "copy": copy and copy_json(copy, find_bucket(copy)),
        "others": [copy_json(each, find_bucket(each)) for each in ledger.others],
        "error": is_copy_error or (error and error_json(error)),
    }


def copy_json(copy: LedgerCopy, bucket: str | None) -> dict[str, Any]:
    """A copy of a ledger, as `json` takes it.

    Args:
        copy: The copy.
        bucket: The metadata's name for the bucket that it is in; None: the one that is read.
    """
    return {
        "bucket": bucket,
        "index": info_json(copy.index),
        "data": copy.data and info_json(copy.data),
        "topic": owner_json(copy.topic),
        "error": copy.error and error_json(copy.error),
        **_form_of(copy.pairs[0].name).to_json(copy),
    }


def metadata_json(metadata: TopicMetadata) -> dict[str, Any]:
    """What the metadata says of a topic but for its ledgers, as `json` takes it."""
    return {
        "cursors": dict(metadata.cursors),
        "terminated": metadata.terminated_position,
        "properties": dict(metadata.properties),
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


def read_contents_json(
    value: dict[str, Any], location: Location, copies: Iterable[LedgerCopy]
) -> BucketContents:
    """Read what `contents_json` gave, but for the copies, which are given.

    Raises:
        PulsarOffloadError: It is something else; so are the errors below, here and in all that is
            read of JSON.
        AttributeError: Likewise.
        LookupError: Likewise.
        OverflowError: Likewise.
        TypeError: Likewise.
        ValueError: Likewise.
    """
    return BucketContents(
        location,
        tuple(sort_copies(copies)),
        tuple(map(_read_unfinished, value["unfinished"])),
        foreign=tuple(map(read_info, value["foreign"])),
    )


def read_ledger_json(
    value: dict[str, Any], read_copy: Callable[[dict[str, Any]], LedgerCopy]
) -> TopicLedger:
    """Read what `ledger_json` gave.

    Args:
        value: What it gave.
        read_copy: Reads a copy.
    """
    ledger_id, state = read_number(value["ledger_id"]), LedgerState(value["state"])
    info = None if value["info"] is None else _read_ledger(value["info"])
    copy = None if value["copy"] is None else read_copy(value["copy"])
    others = tuple(map(read_copy, value["others"]))
    copies = others if copy is None else (copy, *others)
    if {ledger_id, *(each.name.ledger_id for each in copies)} != {ledger_id}:
        message = f"a copy of another ledger than {ledger_id}"
        raise CorruptSnapshotError(message)
    if info is not None and info.ledger_id != ledger_id:
        message = f"metadata of another ledger than {ledger_id}"
        raise CorruptSnapshotError(message)
    error: PulsarOffloadError | None
    if value["error"] is True:
        error = None if copy is None else copy.error
    else:
        error = read_error(*value["error"]) if value["error"] else None
    is_sound = copy is not None and copy.ledger is not None and error is None
    if (state.is_readable and not is_sound) or (state.is_lost and error is None):
        # It would be read though it cannot be, or left out without a word.
        message = f"ledger {ledger_id} is neither sound nor in error"
        raise CorruptSnapshotError(message)
    return TopicLedger(ledger_id, state, info, copy, others, error)


def read_copy_json(value: dict[str, Any], location: Location) -> LedgerCopy:
    """Read what `copy_json` gave.

    Args:
        value: What it gave.
        location: The bucket that it is in.
    """
    index = read_info(value["index"])
    name = _read_name(index, is_index=True)
    data, error = value["data"], value["error"]
    pair = SnapshotPair(
        location,
        index,
        None if data is None else read_info(data, name.data_name),
        read_owner(value["topic"]),
        None if error is None else read_error(*error),
    )
    copy: LedgerCopy = _form_of(name).from_json(value, name, pair)
    return copy


def _form_of(name: PairName) -> SnapshotForm[Any, Any]:
    form = kind_of(name).snapshot_form
    if form is None:
        message = f"catalog snapshots have no form for {name.index_name}"
        raise CorruptSnapshotError(message)
    return form


def _read_name(info: ObjectInfo, *, is_index: bool) -> PairName:
    """Return the name of the pair that an object belongs to."""
    parsed = parse_name(info.name)
    if parsed is None or parsed.is_index != is_index:
        message = f"{info.name} is not an object of a ledger"
        raise CorruptSnapshotError(message)
    return parsed.name


def _read_unfinished(value: list[Any]) -> UnfinishedOffload:
    data = read_info(value)
    return UnfinishedOffload(_read_name(data, is_index=False), data)


def read_metadata_json(
    value: dict[str, Any], topic: TopicName, ledgers: Sequence[LedgerInfo]
) -> TopicMetadata:
    """Read what `metadata_json` gave.

    Args:
        value: What it gave.
        topic: The topic.
        ledgers: Its ledgers, ascending.
    """
    terminated = value["terminated"]
    return TopicMetadata(
        topic=topic,
        cursors={name: _read_cursor(*each) for name, each in value["cursors"].items()},
        ledgers=ledgers,
        terminated_position=terminated and _read_position(*terminated),
        properties=read_texts(value["properties"]),
        proven_to_ledger_id=read_number(value["proven_to"], minimum=-1),
    )


def _read_position(ledger_id: object, entry_id: object) -> tuple[int, int]:
    # Before the first message it is entry -1.
    return read_number(ledger_id), read_number(entry_id, minimum=-1)


def _read_cursor(ledger_id: object, entry_id: object) -> tuple[int, int]:
    # Before the first message of the topic it is -1:-1.
    return read_number(ledger_id, minimum=-1), read_number(entry_id, minimum=-1)


def _read_ledger(value: dict[str, Any]) -> LedgerInfo:
    offload = value["offload"]
    return LedgerInfo(
        ledger_id=read_number(value["ledger_id"]),
        entries=read_optional_number(value["entries"]),
        size_bytes=read_optional_number(value["size_bytes"]),
        timestamp_ms=read_optional_number(value["timestamp_ms"]),
        properties=read_texts(value["properties"]),
        offload=None if offload is None else _read_offload(offload),
    )


def _read_offload(value: dict[str, Any]) -> OffloadContext:
    uuid, driver = value["uuid"], value["driver"]
    return OffloadContext(
        uuid=None if uuid is None else UUID(read_text(uuid)),
        complete=read_optional_flag(value["complete"]),
        other_uuids=tuple(UUID(read_text(each)) for each in value["other_uuids"]),
        bookkeeper_deleted=read_optional_flag(value["bookkeeper_deleted"]),
        timestamp_ms=read_optional_number(value["timestamp_ms"]),
        driver=None if driver is None else read_text(driver),
        driver_properties=read_texts(value["driver_properties"]),
    )
