"""Segments of streaming offload in a snapshot, as JSON, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from arrow_io.errors import CorruptSnapshotError
from arrow_io.format.object_names import SegmentName
from arrow_io.format.streaming_index import read_segment_index
from arrow_io.segment_reader import OffloadedSegment
from connector.catalog.ledger_copy import object_versions
from connector.catalog.metadata.topic_metadata import OffloadSegment
from connector.catalog.segment_copies import SegmentCopy, SegmentedCopy, segmented_copy
from connector.catalog.snapshot_values import (
    base64_text,
    error_json,
    info_json,
    owner_json,
    read_base64,
    read_error,
    read_info,
    read_number,
    read_owner,
    read_text,
    read_texts,
    read_told_flag,
    read_whole,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arrow_io.storage.location import Location


def segment_copy_json(copy: SegmentCopy) -> dict[str, Any]:
    """A segment of a bucket, as `json` takes it."""
    value: dict[str, Any] = {
        "uuid": str(copy.name.uuid),
        "index": info_json(copy.index),
        "data": copy.data and info_json(copy.data),
        "topic": owner_json(copy.topic),
        "error": copy.error and error_json(copy.error),
        "block": None,
    }
    segment = copy.segment
    if segment is not None:
        metadata = segment.user_metadata
        value |= {
            "block": base64_text(segment.index.raw),
            "starts": segment.starts,
            "warnings": segment.warnings,
            "user_metadata": None if metadata is None else dict(metadata),
        }
    return value


def offload_segment_json(segment: OffloadSegment) -> dict[str, Any]:
    """What the metadata says of a segment, as `json` takes it."""
    return {
        "uuid": str(segment.uuid),
        "complete": segment.complete,
        "assigned_timestamp_ms": segment.assigned_timestamp_ms,
        "timestamp_ms": segment.timestamp_ms,
        "end_entry_id": segment.end_entry_id,
        "driver": segment.driver,
        "driver_properties": dict(segment.driver_properties),
    }


def _read_segment_copy(value: dict[str, Any], location: Location) -> SegmentCopy:
    name = SegmentName(UUID(read_text(value["uuid"])))
    data, error = value["data"], value["error"]
    index = read_info(value["index"], name.index_name)
    data = None if data is None else read_info(data, name.data_name)
    segment = None
    if value["block"] is not None:
        read = read_segment_index(read_base64(value["block"]), object_key=name.index_name)
        user_metadata, starts = value["user_metadata"], value["starts"]
        if starts is not None:
            starts = tuple(map(read_number, starts))
            read.check_starts(starts)
        segment = OffloadedSegment(
            location,
            name,
            read,
            starts,
            tuple(map(read_text, value["warnings"])),
            None if data is None else data.size_bytes,
            None if user_metadata is None else read_texts(user_metadata),
            object_versions(index, data),
        )
    if (segment is None) == (error is None):
        message = f"{name.index_name} is neither sound nor in error"
        raise CorruptSnapshotError(message)
    return SegmentCopy(
        name,
        index,
        data,
        read_owner(value["topic"]),
        segment,
        None if error is None else read_error(*error),
    )


def read_offload_segment(value: dict[str, Any]) -> OffloadSegment:
    """Read what `offload_segment_json` gave."""
    driver = value["driver"]
    return OffloadSegment(
        uuid=UUID(read_text(value["uuid"])),
        complete=read_told_flag(value["complete"]),
        assigned_timestamp_ms=read_whole(value["assigned_timestamp_ms"]),
        timestamp_ms=read_whole(value["timestamp_ms"]),
        end_entry_id=read_whole(value["end_entry_id"]),
        driver=None if driver is None else read_text(driver),
        driver_properties=read_texts(value["driver_properties"]),
    )


def read_segments_json(value: dict[str, Any], location: Location) -> dict[UUID, SegmentCopy]:
    """Read the segments of what `contents_json` gave, by uuid."""
    # Snapshots of earlier releases do not have them.
    found = (_read_segment_copy(each, location) for each in value.get("segments", ()))
    return {each.name.uuid: each for each in found}


def read_segmented_json(
    value: dict[str, Any], segments: Mapping[UUID, SegmentCopy]
) -> SegmentedCopy:
    """Read what `copy_json` gave of a copy in segments.

    Args:
        value: What it gave.
        segments: The segments of its bucket, by uuid.
    """
    _, ledger_id = value["name"]
    mine = [segments[UUID(read_text(each))] for each in value["segments"]]
    copy = segmented_copy(
        read_number(ledger_id), mine, tuple(map(read_offload_segment, value["named"]))
    )
    topic = read_owner(value["topic"])
    return copy if topic is None else copy.of_topic(topic)
