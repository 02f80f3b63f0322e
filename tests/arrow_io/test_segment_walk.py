"""`arrow_io.segment_walk`: blocks are found where they really begin, and entries where they end."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from arrow_io.format.object_names import SegmentName
from arrow_io.format.streaming_block import StreamingBlockHeader
from arrow_io.segment_reader import OffloadedSegment
from arrow_io.segment_walk import ForwardReader, end_of_entries
from arrow_io.storage.location import Location
from arrow_io.storage.ranges import RangeReader
from tests.support.buckets import memory_bucket
from tests.support.streaming import Part, golden_segments, segment_objects, write_segment


def _check(segment: OffloadedSegment, size_bytes: int) -> None:
    """Each block ends with its entries, or where its writer counted; the next begins there."""
    headers = segment.index.headers
    told = [0]
    for header in headers:
        told.append(told[-1] + header.block_length_bytes)
    starts = segment.starts or told
    reader = RangeReader(segment.location, segment.name.data_name, size_bytes)
    ends = [
        end_of_entries(ForwardReader(reader), start, header)
        for start, header in zip(starts, headers, strict=False)
    ]
    assert list(pairwise(starts)) == list(zip(starts, ends, strict=False))


def test_entries_end_where_pulsars_writer_begins_the_next_block() -> None:
    """Of blocks that were miscounted too."""
    for golden in golden_segments():
        _check(golden.open(), len(golden.data))


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
        opened = OffloadedSegment.open(
            Location(bucket.url), SegmentName(name), data_size_bytes=size_bytes
        )
        _check(opened, size_bytes)
