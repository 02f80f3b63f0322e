"""Segments whose index objects are to be lost or damaged, with what their cluster knows."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from arrow_io.format.streaming_block import StreamingBlockHeader
from arrow_io.format.streaming_index import read_segment_index
from arrow_io.storage.location import Location
from connector import open_catalog
from connector.catalog.metadata.topic_metadata import LedgerInfo, OffloadContext, OffloadSegment
from connector.upkeep.repair import plan_repair, repair
from tests.support.entries import Framing, Message, encode_entry
from tests.support.streamed_topics import Streamed, streamed
from tests.support.streaming import (
    GoldenSegment,
    StreamedLedgers,
    golden_segments,
    stream_ledgers,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arrow_io.format.streaming_index import LedgerGroup
    from connector import Catalog
    from connector.upkeep.attempt import Repair


each_golden = pytest.mark.parametrize(
    "golden", golden_segments(), ids=lambda each: each.folder.name
)


_FORGED: Final = StreamingBlockHeader(200, 2, 10).serialize() + b"\xfe\xdc\xde\xad" * 300


def _entry(text: str, size: int = 0) -> bytes:
    """An entry, in which a block seems to begin if there is room."""
    payload = text.encode()
    return encode_entry(
        [Message(payload=payload + _FORGED[: max(size - len(payload), 0)])],
        batched=False,
        framing=Framing(),
        producer_name="p",
        sequence_id=0,
        publish_time=1,
    )


def ledgers_of(*sizes: tuple[int, ...]) -> list[tuple[int, list[bytes]]]:
    """Ledgers 10, 20, … with entries whose payloads have these lengths."""
    return [
        (10 * number, [_entry(f"{10 * number}:{place}", size) for place, size in enumerate(each)])
        for number, each in enumerate(sizes, 1)
    ]


def golden_infos(golden: GoldenSegment) -> dict[int, LedgerInfo]:
    """What the metadata says of the ledgers of a golden segment."""
    return {
        group.ledger_id: LedgerInfo(
            ledger_id=group.ledger_id,
            entries=group.entries if group.is_closed else None,
            size_bytes=group.size_bytes,
            timestamp_ms=group.timestamp_ms,
            offload=OffloadContext(
                uuid=None,
                complete=True,
                segments=(
                    OffloadSegment(uuid=golden.uuid, complete=True, end_entry_id=group.entries - 1),
                ),
            ),
        )
        for group in golden.open().index.groups
    }


@contextmanager
def golden_topic(golden: GoldenSegment) -> Iterator[Streamed]:
    """A bucket with a golden segment, and metadata that names it."""
    objects = {str(golden.uuid): golden.data, f"{golden.uuid}-index": golden.index}
    with streamed(StreamedLedgers(objects, golden_infos(golden), set())) as topic:
        yield topic


def repaired(topic: Streamed, *ledger_ids: int, verify: bool = False) -> list[Repair]:
    """Repair the bucket."""
    catalog = topic.catalog()
    return list(repair(catalog.location, plan_repair(catalog, ledger_ids, verify=verify)))


def content_of(topic: Streamed, name: str) -> bytes:
    """The bytes of an object now."""
    return Location(topic.bucket.url).read_object(name, max_bytes=1 << 24).data


def said(index: bytes) -> tuple[int, int, tuple[LedgerGroup, ...]]:
    """What an index object says, in whichever order: that of the tests' writer is by place."""
    read_back = read_segment_index(index, object_key="")
    return read_back.data_object_length_bytes, read_back.data_header_length_bytes, read_back.groups


def lose_indexes(topic: Streamed, found: StreamedLedgers) -> dict[str, bytes]:
    """Delete all index objects; gives them."""
    lost = {name: each for name, each in found.objects.items() if name.endswith("-index")}
    for name in lost:
        topic.bucket.delete(name)
    return lost


SCENE: Final = stream_ledgers(
    ledgers_of((50, 300, 20), (500, 40, 60, 80)), (2,), block_bytes=300, miscounts=True
)


def with_segments(info: LedgerInfo, **changed: Any) -> LedgerInfo:  # noqa: ANN401
    """What the metadata says of a ledger, with other segments."""
    assert info.offload is not None
    segments = tuple(replace(each, **changed) for each in info.offload.segments)
    return replace(info, offload=replace(info.offload, segments=segments))


def without_metadata(topic: Streamed) -> Catalog:
    """The bucket without metadata."""
    return open_catalog(topic.bucket.url)
