"""The parts of a catalog as JSON, and back.

Reading checks each value, because a file may hold anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from arrow_io.errors import CorruptSnapshotError, PulsarOffloadError
from arrow_io.messages.transactions import Outcome, TransactionOutcomes
from connector.catalog.bucket import BucketContents, UnfinishedOffload, sort_copies
from connector.catalog.kinds.object_kind import Part, SnapshotPair
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
    from arrow_io.messages.transactions import TransactionId
    from arrow_io.storage.location import Location
    from arrow_io.storage.object_store import ObjectInfo
    from connector.catalog.kinds.ledger_copy import LedgerCopy
    from connector.catalog.kinds.object_kind import SnapshotForm
    from connector.catalog.metadata.scalable import ScalableTopic
    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.inputs.topic_names import TopicName


@dataclass(frozen=True)
class Snapshot:
    """The parts of a catalog.

    Attributes:
        contents: The contents of the bucket.
        other_buckets: The contents of other buckets, by their names in the metadata.
        schemas: The admin API's answer with all versions of a schema, by topic without partition.
        scalable_topics: The graphs of scalable topics, as far as they are sound.
        warnings: Doubts about the metadata, as sentences.
        listed_at: When the bucket was listed.
        statistics: The location of the topics' statistics; None if it is not saved.
    """

    contents: BucketContents
    other_buckets: Mapping[str, BucketContents] = field(default_factory=dict)
    topics: Sequence[TopicLedgers] = ()
    has_metadata: bool = False
    schemas: Mapping[TopicName, bytes] = field(default_factory=dict)
    scalable_topics: Sequence[ScalableTopic] = ()
    warnings: tuple[str, ...] = ()
    listed_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    statistics: str | None = None


def contents_json(
    contents: BucketContents, bucket: str | None, copies: Iterable[LedgerCopy]
) -> dict[str, Any]:
    """Return the contents of a bucket, with some copies, as a value for `json.dumps`.

    `bucket` is its name in the metadata, in this module; None: the catalog's bucket.
    """
    return {
        "copies": [copy_json(copy, bucket) for copy in copies],
        "unfinished": [
            [info_json(each.data), *map(info_json, each.checksums)] for each in contents.unfinished
        ],
        "foreign": list(map(info_json, contents.foreign)),
    }


def ledger_json(ledger: TopicLedger, find_bucket: Callable[[LedgerCopy], str | None]) -> Any:  # noqa: ANN401
    """Return a ledger of a topic as a value for `json.dumps`."""
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
    """Return a copy of a ledger as a value for `json.dumps`."""
    return {
        "bucket": bucket,
        "index": info_json(copy.index),
        "data": copy.data and info_json(copy.data),
        "topic": owner_json(copy.topic),
        "error": copy.error and error_json(copy.error),
        **_form_of(copy.pairs[0].name).to_json(copy),
    }


def metadata_json(metadata: TopicMetadata) -> dict[str, Any]:
    """Return the metadata of a topic without its ledgers as a value for `json.dumps`."""
    return {
        "cursors": dict(metadata.cursors),
        "terminated": metadata.terminated_position,
        "properties": dict(metadata.properties),
        "proven_to": metadata.proven_to_ledger_id,
        "outcomes": metadata.segment_outcomes and _outcomes_json(metadata.segment_outcomes),
    }


def _outcomes_json(outcomes: TransactionOutcomes) -> dict[str, Any]:
    return {
        "watermark": outcomes.watermark,
        "aborted": sorted(outcomes.aborted),
        "states": [[*ids, state.value] for ids, state in sorted(outcomes.states.items())],
        "ended": outcomes.ended_ledger_id,
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
    """Read the value that `contents_json` returned, except for the copies.

    Raises:
        PulsarOffloadError: It is another value. Every function that reads JSON may raise this error
            and those below.
        AttributeError: It is another value.
        LookupError: It is another value.
        OverflowError: It is another value.
        TypeError: It is another value.
        ValueError: It is another value.
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
    """Read the value that `ledger_json` returned."""
    ledger_id, state = read_number(value["ledger_id"]), LedgerState(value["state"])
    info = None if value["info"] is None else _read_ledger(value["info"])
    copy = None if value["copy"] is None else read_copy(value["copy"])
    others = tuple(map(read_copy, value["others"]))
    copies = others if copy is None else (copy, *others)
    if {ledger_id, *(each.name.ledger_id for each in copies)} != {ledger_id}:
        message = f"ledger {ledger_id} has a copy of another ledger"
        raise CorruptSnapshotError(message)
    if info is not None and info.ledger_id != ledger_id:
        message = f"ledger {ledger_id} has the metadata of another ledger"
        raise CorruptSnapshotError(message)
    error: PulsarOffloadError | None
    if value["error"] is True:
        error = None if copy is None else copy.error
    else:
        error = read_error(*value["error"]) if value["error"] else None
    is_sound = copy is not None and copy.ledger is not None and error is None
    if (state.is_readable and not is_sound) or (state.is_lost and error is None):
        # Reads would use it though it is unsound, or skip it silently.
        message = f"ledger {ledger_id} is neither sound nor in error"
        raise CorruptSnapshotError(message)
    return TopicLedger(ledger_id, state, info, copy, others, error)


def read_copy_json(value: dict[str, Any], location: Location) -> LedgerCopy:
    """Read the value that `copy_json` returned."""
    index = read_info(value["index"])
    name = _read_name(index, Part.INDEX)
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
        message = f"catalog snapshots cannot hold {name.index_name}"
        raise CorruptSnapshotError(message)
    return form


def _read_name(info: ObjectInfo, part: Part) -> PairName:
    parsed = parse_name(info.name)
    if parsed is None or parsed.part is not part:
        message = f"{info.name} does not name the expected object of a ledger"
        raise CorruptSnapshotError(message)
    return parsed.name


def _read_unfinished(value: list[Any]) -> UnfinishedOffload:
    data, *checksums = map(read_info, value)
    name = _read_name(data, Part.DATA)
    for each in checksums:
        if each.name not in name.checksum_names:
            message = f"{each.name} does not have checksums of {name.data_name}"
            raise CorruptSnapshotError(message)
    return UnfinishedOffload(name, data, tuple(checksums))


def read_metadata_json(
    value: dict[str, Any], topic: TopicName, ledgers: Sequence[LedgerInfo]
) -> TopicMetadata:
    """Read the value that `metadata_json` returned, and add the ledgers."""
    terminated, outcomes = value["terminated"], value["outcomes"]
    return TopicMetadata(
        topic=topic,
        cursors={name: _read_cursor(*each) for name, each in value["cursors"].items()},
        ledgers=ledgers,
        terminated_position=terminated and _read_position(*terminated),
        properties=read_texts(value["properties"]),
        segment_outcomes=None if outcomes is None else _read_outcomes(outcomes),
        proven_to_ledger_id=read_number(value["proven_to"], minimum=-1),
    )


def _read_outcomes(value: dict[str, Any]) -> TransactionOutcomes:
    watermark = value["watermark"]
    return TransactionOutcomes(
        watermark=None if watermark is None else _read_cursor(*watermark),
        aborted=frozenset(_read_transaction(*each) for each in value["aborted"]),
        states={
            _read_transaction(most, least): Outcome(state) for most, least, state in value["states"]
        },
        ended_ledger_id=read_number(value["ended"], minimum=-1),
    )


def _read_transaction(most: object, least: object) -> TransactionId:
    return read_number(most, minimum=-(2**63)), read_number(least, minimum=-(2**63))


def _read_position(ledger_id: object, entry_id: object) -> tuple[int, int]:
    # Entry -1 is the position before the first message.
    return read_number(ledger_id), read_number(entry_id, minimum=-1)


def _read_cursor(ledger_id: object, entry_id: object) -> tuple[int, int]:
    # -1:-1 is the position before the first message of the topic.
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
