"""A segment is opened by its index object, and by what the store keeps beside it."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Final
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrow_io.errors import EntryNotInLedgerError, ObjectChangedError, UnknownFormatError
from arrow_io.format.data_block import MAX_BLOCK_HEADER_BYTES
from arrow_io.format.index_block import FORMAT_VERSION_KEY, MANAGED_LEDGER_NAME_KEY
from arrow_io.format.object_names import SegmentName
from arrow_io.format.streaming_block import StreamingBlockHeader
from arrow_io.ledgers.reader import UNKNOWN_VERSIONS, ObjectVersions
from arrow_io.ledgers.segments.reader import (
    OffloadedSegment,
    SegmentedOffload,
    _end_of_entries,
    _ForwardReader,
)
from arrow_io.storage.location import Location
from arrow_io.storage.object_store import ObjectContent
from arrow_io.storage.object_version import ETag, WriteTime
from arrow_io.storage.ranges import RangeReader
from tests.support.buckets import memory_bucket
from tests.support.streaming import (
    Part,
    Segment,
    golden_segments,
    segment_objects,
    share_ledger,
    write_segment,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME: Final = SegmentName(UUID(int=1))
SEGMENT: Final = write_segment([Part(7, [b"a", b"b"]), Part(8, [b"c"])])


def opened(
    segment: Segment = SEGMENT,
    data_size_bytes: int | None = None,
    versions: ObjectVersions = UNKNOWN_VERSIONS,
) -> OffloadedSegment:
    """The segment; only its index object is looked at unless it is miscounted."""
    with memory_bucket(segment_objects(NAME.uuid, segment)) as bucket:
        return OffloadedSegment.open(
            Location(bucket.url), NAME, data_size_bytes=data_size_bytes, versions=versions
        )


def with_metadata(monkeypatch: pytest.MonkeyPatch, metadata: Mapping[str, str]) -> OffloadedSegment:
    """The segment, from a store that gives user metadata together with the bytes."""
    content = ObjectContent(SEGMENT.index, dict(metadata), ETag("v"))
    monkeypatch.setattr(Location, "read_object", lambda *_, **__: content)
    return OffloadedSegment.open(Location("memory://nowhere"), NAME)


def test_user_metadata_names_version_and_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with ledgers of PIP-17; Pulsar's writer names no topic."""
    told = {FORMAT_VERSION_KEY: "1", MANAGED_LEDGER_NAME_KEY: "a/b/persistent/c"}
    segment = with_metadata(monkeypatch, told)
    assert segment.managed_ledger == "a/b/persistent/c"
    assert segment.warnings == ()
    assert segment.versions.index == ETag("v")
    assert {share.managed_ledger for share in segment.shares} == {"a/b/persistent/c"}
    (warning,) = with_metadata(monkeypatch, {}).warnings
    assert "copied without it" in warning
    assert with_metadata(monkeypatch, {}).managed_ledger is None
    with pytest.raises(UnknownFormatError, match="version '2'"):
        with_metadata(monkeypatch, {FORMAT_VERSION_KEY: "2"})


def test_only_the_listed_version_is_read() -> None:
    """An index object that was replaced since it was listed may be of another segment."""
    with pytest.raises(ObjectChangedError):
        opened(versions=ObjectVersions(WriteTime(1, datetime(2020, 1, 1, tzinfo=UTC)), None))


def test_bytes_behind_the_data_are_told() -> None:
    """Each block is looked for, and stands where it should; what follows is no padding."""
    longer = Segment(SEGMENT.data + b"x" * 10, SEGMENT.index)
    segment = opened(longer, len(longer.data))
    assert segment.starts == (0, 4096, 8202)
    assert "10 bytes more" in segment.warnings[0]


def test_blocks_with_long_headers_are_looked_for() -> None:
    """The index object says how long they are, and what is asked for at once may be shorter."""
    segment = write_segment([Part(7, [b"a"]), Part(8, [b"b"])], block_bytes=8192)
    for header_bytes in (MAX_BLOCK_HEADER_BYTES - 1, MAX_BLOCK_HEADER_BYTES):
        index = bytearray(segment.index)
        index[16:24] = header_bytes.to_bytes(8)
        longer = Segment(segment.data + b"x" * 10_000, bytes(index))
        assert opened(longer, len(longer.data)).starts == (0, 8192, 26384)


@pytest.mark.parametrize("size", [2000, 20_000])
def test_no_entry_is_taken_for_a_block(size: int) -> None:
    """Whoever sends messages may put the next block's header into one, with entries behind it."""
    told = struct.pack(">Iqqqq", 0x26A66D32, 128, 200, 2, 7).ljust(128, b"\0")
    forged = told + struct.pack(">iq", 6, 2) + b"forged" + b"\xfe\xdc\xde\xad" * 40
    # Where the header should be by its writer's count.
    entries = [b"a" * size, b"x" * 500 + forged.ljust(size, b"y"), b"real" * 20, b"more"]
    segment = write_segment(
        [Part(7, entries, block_entries=[2, 1, 1])], block_bytes=200, miscounts=True
    )
    assert not segment.lost
    with memory_bucket(segment_objects(NAME.uuid, segment)) as bucket:
        opened = OffloadedSegment.open(
            Location(bucket.url), NAME, data_size_bytes=len(segment.data)
        )
        ledger = SegmentedOffload(share_ledger(opened, 7), None)
        assert [each.data for each in ledger.read_entries(0, 3)] == entries


def test_a_block_that_is_not_found_stays_where_it_should_be() -> None:
    """Its entries are lost; those of blocks behind it are found."""
    (golden,) = (each for each in golden_segments() if each.is_damaged)
    damaged = bytearray(golden.data)
    damaged[9658] ^= 1
    segment = opened(Segment(bytes(damaged), golden.index), len(damaged))
    assert segment.starts == (0, 4807, 9658, 14412, 19344, 23440)
    damaged[9658] ^= 1
    assert opened(Segment(bytes(damaged), golden.index), len(damaged)).starts == segment.starts


def test_entries_of_a_ledger_in_segments_are_read_by_id() -> None:
    """As of any ledger that is open."""
    with memory_bucket(segment_objects(NAME.uuid, SEGMENT)) as bucket:
        segment = OffloadedSegment.open(Location(bucket.url), NAME)
        ledger = SegmentedOffload(share_ledger(segment, 7), None)
        assert [each.data for each in ledger.read_entries(0, 1)] == [b"a", b"b"]
        assert (ledger.ledger_id, ledger.last_entry_id, ledger.entry_count) == (7, 1, 2)
        with pytest.raises(EntryNotInLedgerError) as caught:
            list(ledger.read_entries(1, 2))
        assert caught.value.object_key == str(NAME.uuid)


def check_starts(segment: OffloadedSegment, size_bytes: int) -> None:
    """Each block ends with its entries, or where its writer counted; the next begins there."""
    headers = segment.index.headers
    told = [0]
    for header in headers:
        told.append(told[-1] + header.block_length_bytes)
    starts = segment.starts or told
    reader = RangeReader(segment.location, segment.name.data_name, size_bytes)
    ends = [
        _end_of_entries(_ForwardReader(reader), start, header)
        for start, header in zip(starts, headers, strict=False)
    ]
    assert list(pairwise(starts)) == list(zip(starts, ends, strict=False))


def test_entries_end_where_pulsars_writer_begins_the_next_block() -> None:
    """Of blocks that were miscounted too."""
    for golden in golden_segments():
        check_starts(golden.open(), len(golden.data))


@given(
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=12),
    more=st.lists(st.integers(0, 300), max_size=5),
    per_block=st.integers(1, 5),
    block_bytes=st.sampled_from((150, 400, 2000)),
    miscounts=st.booleans(),
)
@settings(max_examples=40)
def test_any_segment_is_walked(
    sizes: list[int], more: list[int], per_block: int, block_bytes: int, *, miscounts: bool
) -> None:
    """However long entries and blocks are, and whatever entries hold."""
    parts = []
    for ledger_id, each in ((7, sizes), (8, more)):
        counts = [min(per_block, len(each) - at) for at in range(0, len(each), per_block)]
        # Within an entry, a header of a block and padding are just bytes.
        forged = StreamingBlockHeader(200, 1, ledger_id).serialize() + b"\xfe\xdc\xde\xad" * 50
        entries = [forged[:size] for size in each]
        parts += [Part(ledger_id, entries, block_entries=counts)] if each else []
    segment = write_segment(parts, block_bytes=block_bytes, miscounts=miscounts)
    name = golden_segments()[0].uuid
    with memory_bucket(segment_objects(name, segment)) as bucket:
        size_bytes = len(segment.data)
        found = OffloadedSegment.open(
            Location(bucket.url), SegmentName(name), data_size_bytes=size_bytes
        )
        check_starts(found, size_bytes)
