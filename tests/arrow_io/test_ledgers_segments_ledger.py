"""Ledgers of streaming offload, entry by entry."""

from __future__ import annotations

import pickle
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrow_io.errors import (
    CorruptBlockError,
    CorruptIndexError,
    FormatError,
    MissingEntriesError,
    TruncatedObjectError,
)
from arrow_io.format.object_names import SegmentName
from arrow_io.ledgers.segments.ledger import SegmentedLedger
from arrow_io.ledgers.segments.reader import OffloadedSegment
from arrow_io.messages import layout
from arrow_io.read_metrics import Tally, Unit
from arrow_io.storage.location import Location
from arrow_io.storage.range_prefetch import RangePrefetcher
from arrow_io.storage.trace import RequestTrace
from tests.support.buckets import memory_bucket
from tests.support.streaming import (
    GoldenSegment,
    Part,
    Segment,
    golden_segments,
    segment_objects,
    share_ledger,
    write_segment,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from arrow_io.ledgers.ledger import Ledger

pytestmark = pytest.mark.usefixtures("build")


def entries_of(
    ledger: Ledger, first: int, last: int, tally: Tally | None = None
) -> dict[int, bytes]:
    """The entries `first … last`, by id; requests go ahead, as in a read."""
    found = {}
    tally = tally or Tally()
    with RangePrefetcher(ledger.byte_spans(first, last)) as prefetcher:
        for run in ledger.entry_runs(first, last, tally, prefetcher=prefetcher):
            for index in range(run.count):
                entry_id = run.number(index, layout.ENTRY_ID)
                assert entry_id not in found
                found[entry_id] = bytes(run.view(index, layout.FRAME))
    assert list(found) == sorted(found)
    return found


@contextmanager
def opened(*segments: Segment) -> Iterator[list[OffloadedSegment]]:
    """Segments, open in one bucket."""
    names = [SegmentName(UUID(int=number)) for number, _ in enumerate(segments, 1)]
    objects: dict[str, bytes] = {}
    for name, segment in zip(names, segments, strict=True):
        objects |= segment_objects(name.uuid, segment)
    with memory_bucket(objects) as bucket:
        location = Location(bucket.url)
        yield [
            OffloadedSegment.open(location, name, data_size_bytes=len(segment.data))
            for name, segment in zip(names, segments, strict=True)
        ]


def ledger_of(segments: Iterable[OffloadedSegment], ledger_id: int) -> SegmentedLedger:
    """A ledger of all of its shares."""
    shares = (share for segment in segments for share in segment.shares)
    return SegmentedLedger.from_shares(share for share in shares if share.ledger_id == ledger_id)


@pytest.mark.parametrize("salvage", [False, True])
@pytest.mark.parametrize("golden", golden_segments(), ids=lambda each: each.folder.name)
def test_golden_segments_entry_by_entry(golden: GoldenSegment, *, salvage: bool) -> None:
    """All entries that Pulsar's writer was given are read; those that it lost are told."""
    segment = golden.open()
    lost = {(541, 14), (541, 26)} if golden.is_damaged else set()
    for ledger_id in segment.ledger_ids:
        ledger = pickle.loads(pickle.dumps(share_ledger(segment, ledger_id)))
        mine = {key[1]: data for key, data in golden.entries.items() if key[0] == ledger_id}
        tally = Tally(salvage=salvage)
        if golden.is_damaged and not salvage:
            with pytest.raises(CorruptBlockError, match="before entry 14 does") as caught:
                entries_of(ledger, 0, ledger.last_entry_id)
            error = caught.value
            assert error.object_key == str(golden.uuid)
            assert (error.ledger_id, error.entry_id, error.offset) == (541, 14, 4807)
            continue
        found = entries_of(ledger, min(mine), ledger.last_entry_id, tally)
        assert found == {k: data for k, data in mine.items() if (ledger_id, k) not in lost}
        assert tally.metrics.lost.total() == len(lost)
        # Each by itself, and what stands around it need not be read.
        for entry_id in found:
            assert entries_of(ledger, entry_id, entry_id) == {entry_id: mine[entry_id]}


def test_a_segment_is_opened_with_one_request_unless_it_is_miscounted() -> None:
    """Of the damaged one, a little is read where each block should begin."""
    for golden in golden_segments():
        trace = RequestTrace()
        location = Location(str(golden.folder / "objects"), trace=trace)
        OffloadedSegment.open(location, SegmentName(golden.uuid), data_size_bytes=len(golden.data))
        assert trace.counts.index_requests == 1
        assert trace.counts.range_requests == (5 if golden.is_damaged else 0)


def test_entries_of_no_segment_are_missing() -> None:
    """Before the first share, between two and behind the last; each is told where it should be."""
    shares = [Part(7, [b"a", b"b"], 2, 9), Part(7, [b"c"], 6, 9)]
    with opened(*(write_segment([each]) for each in shares)) as segments:
        ledger = ledger_of(segments, 7)
        # The index objects say how many the ledger has, not where a share ends.
        ledger = SegmentedLedger.from_shares(
            [ledger.shares[0].clip(3), ledger.shares[1].clip(6)], entries=9
        )
        tally = Tally(salvage=True)
        assert entries_of(ledger, 0, 8, tally) == {2: b"a", 3: b"b", 6: b"c"}
        assert tally.metrics.lost == {(Unit.ENTRY, "MissingEntriesError"): 6}
        for first, last, where in ((0, 1, (1, 0)), (4, 5, (1, 4096)), (7, 8, (2, 4096))):
            for entry_id in range(first, last + 1):
                with pytest.raises(MissingEntriesError) as caught:
                    entries_of(ledger, entry_id, last)
                error = caught.value
                assert (error.ledger_id, error.entry_id) == (7, entry_id)
                assert error.object_key == str(UUID(int=where[0]))
                assert error.offset == where[1]
        assert ledger.blocks(4, 5) == []
        assert ledger.extents(0, 1) == []


def test_a_share_that_ends_early_is_told() -> None:
    """A ledger's later entries are in a segment that is not there."""
    with opened(write_segment([Part(7, [b"a", b"b"], 0, 9)])) as segments:
        ledger = ledger_of(segments, 7)
        assert ledger.last_entry_id == 8
        assert entries_of(ledger, 0, 1) == {0: b"a", 1: b"b"}
        with pytest.raises(CorruptBlockError) as caught:
            entries_of(ledger, 0, 8)
        assert (caught.value.ledger_id, caught.value.entry_id) == (7, 2)
        tally = Tally(salvage=True)
        assert entries_of(ledger, 0, 8, tally) == {0: b"a", 1: b"b"}
        assert tally.metrics.lost.total() == 7


@given(
    spans=st.lists(
        st.tuples(st.integers(0, 12), st.integers(1, 12), st.integers(1, 5)), min_size=1, max_size=5
    )
)
def test_shares_may_overlap_in_any_way(spans: list[tuple[int, int, int]]) -> None:
    """Each entry is read of the share that begins last, and is in one block alone."""
    segments: list[tuple[int, Segment]] = []
    model: dict[int, bytes] = {}
    for place, (first, count, each) in sorted(enumerate(spans), key=lambda it: (it[1][0], -it[0])):
        entries = [bytes([place, entry_id]) for entry_id in range(first, first + count)]
        blocks = [min(each, count - start) for start in range(0, count, each)]
        part = Part(7, entries, first, closed_ms=None, block_entries=blocks)
        segments.append((place, write_segment([part], block_bytes=140)))
        model |= dict(enumerate(entries, first))
    with opened(*(segment for _, segment in sorted(segments, key=lambda it: it[0]))) as found:
        ledger = pickle.loads(pickle.dumps(ledger_of(found, 7)))
        last = ledger.last_entry_id
        assert entries_of(ledger, 0, last, Tally(salvage=True)) == model
        told = {(error.entry_id, str(error)) for error in ledger.gaps()}
        assert len(told) == sum(each - 1 not in model for each in model if each)
        blocks = ledger.blocks(0, last)
        ids = [
            entry_id
            for block in blocks
            for entry_id in range(block.first_entry_id, block.last_entry_id + 1)
        ]
        assert ids == sorted(model)
        for entry_id in model:
            assert entries_of(ledger, entry_id, entry_id) == {entry_id: model[entry_id]}
            (block,) = ledger.blocks(entry_id, entry_id)
            assert block in blocks


def test_an_entry_that_the_index_object_leaves_out_is_told() -> None:
    """What stands behind the last entry of a ledger must be padding."""
    segment = write_segment([Part(7, [b"a", b"b", b"c"], closed_ms=None)])
    shorter = write_segment([Part(7, [b"a", b"b"], closed_ms=None)])
    with (
        opened(Segment(segment.data, shorter.index)) as segments,
        pytest.raises(CorruptBlockError, match="not padding"),
    ):
        entries_of(ledger_of(segments, 7), 0, 1)


def test_entries_together_are_as_long_as_the_ledger_was() -> None:
    """The metadata says how long that was; a part of the ledger proves nothing."""
    with opened(write_segment([Part(7, [b"a", b"b"])])) as segments:
        shares = segments[0].shares
        assert entries_of(SegmentedLedger.from_shares(shares, length_bytes=2), 0, 1)
        wrong = SegmentedLedger.from_shares(shares, length_bytes=3)
        assert entries_of(wrong, 0, 0)
        with pytest.raises(CorruptIndexError, match="the entries have 2 bytes, the ledger had 3"):
            entries_of(wrong, 0, 1)


def test_a_cut_object_is_read_as_far_as_it_goes() -> None:
    """Shares before the cut are whole, and those behind it are told."""
    whole = write_segment([Part(7, [b"a"]), Part(8, [b"b"]), Part(9, [b"c"])])
    with opened(Segment(whole.data[:6000], whole.index)) as segments:
        (segment,) = segments
        errors = [segment.truncation(share) for share in segment.shares]
        assert [error and error.offset for error in errors] == [None, 6000, 6000]
        assert entries_of(ledger_of(segments, 7), 0, 0) == {0: b"a"}
        assert entries_of(ledger_of(segments, 8), 0, 0, Tally(salvage=True)) == {0: b"b"}
        with pytest.raises(TruncatedObjectError):
            entries_of(ledger_of(segments, 9), 0, 0)


def test_where_entries_stand_is_remembered_of_each_share() -> None:
    """A ledger of several objects has several places for the same offset."""
    parts = [Part(7, [b"x" * 50] * 4, 0, 8), Part(7, [b"y" * 50] * 4, 4, 8)]
    with opened(*(write_segment([each]) for each in parts)) as segments:
        ledger = ledger_of(segments, 7)
        for entry_id, position in ((2, 128 + 2 * 62), (6, 128 + 2 * 62)):
            assert ledger.position_of(entry_id) is None
            ledger.remember(entry_id, position)
            assert ledger.position_of(entry_id) == position
        assert ledger.extents(2, 6) == [(252, 4096), (0, 4096)]
        assert set(entries_of(ledger, 2, 6)) == {2, 3, 4, 5, 6}
        assert set(entries_of(ledger, 6, 7)) == {6, 7}


@given(st.data())
@settings(max_examples=60)
def test_any_cut_of_any_ledgers_is_the_ledgers(data: st.DataObject) -> None:
    """Ledgers that are spread over segments in any way, counted rightly or not, are the model."""
    sizes = st.lists(st.integers(0, 300), min_size=1, max_size=12)
    model = {
        ledger_id: [bytes([ledger_id, entry_id]) * size for entry_id, size in enumerate(each)]
        for ledger_id, each in data.draw(
            st.dictionaries(st.integers(0, 5), sizes, min_size=1, max_size=3)
        ).items()
    }
    order = [(ledger, entry) for ledger in sorted(model) for entry in range(len(model[ledger]))]
    cuts = sorted(data.draw(st.sets(st.integers(1, len(order)), max_size=4)) | {len(order)})
    miscounts = data.draw(st.booleans())
    segments = []
    for start, stop in zip([0, *cuts], cuts, strict=False):
        parts = []
        for ledger_id in sorted({ledger for ledger, _ in order[start:stop]}):
            ids = [entry for ledger, entry in order[start:stop] if ledger == ledger_id]
            entries = [model[ledger_id][entry] for entry in ids]
            # Whoever wrote the segment knew of the whole ledger, or of no more than it wrote.
            is_closed = data.draw(st.booleans()) or ids[-1] + 1 == len(model[ledger_id])
            whole = len(model[ledger_id])
            parts.append(
                Part(ledger_id, entries, ids[0], whole, closed_ms=5 if is_closed else None)
            )
        size = data.draw(st.sampled_from([200, 500, 1000]))
        segments.append(write_segment(parts, block_bytes=size, miscounts=miscounts))
    lost = {each for segment in segments for each in segment.lost}

    with opened(*segments) as found:
        for ledger_id, entries in model.items():
            ledger = ledger_of(found, ledger_id)
            assert ledger.last_entry_id == len(entries) - 1
            first = data.draw(st.integers(0, len(entries) - 1))
            last = data.draw(st.integers(first, len(entries) - 1))
            mine = {each for each in range(first, last + 1) if (ledger_id, each) in lost}
            tally = Tally(salvage=True)
            assert entries_of(ledger, first, last, tally) == {
                each: entries[each] for each in range(first, last + 1) if each not in mine
            }
            assert tally.metrics.lost.total() == len(mine)
            if mine:
                with pytest.raises(FormatError):
                    entries_of(ledger, first, last)
            else:
                entries_of(ledger, first, last)


@given(st.data())
def test_damage_gives_an_error_or_the_entries(data: st.DataObject) -> None:
    """Whatever bytes of a golden segment are changed or cut, no entry is a wrong one."""
    golden = data.draw(st.sampled_from(golden_segments()))
    objects = [bytearray(golden.data), bytearray(golden.index)]
    for _ in range(data.draw(st.integers(1, 3))):
        changed = data.draw(st.sampled_from(objects))
        place = data.draw(st.integers(0, len(changed) - 1))
        changed[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([0, 0, 0, 1, 500, 5000]))
    content = bytes(objects[0][: len(objects[0]) - cut])
    with ExitStack() as stack:
        try:
            found = stack.enter_context(opened(Segment(content, bytes(objects[1]))))
        except FormatError:
            return
        for share in found[0].shares:
            ledger = SegmentedLedger.from_shares([share])
            tally = Tally(salvage=True)
            last = min(ledger.last_entry_id, share.first_entry_id + 100)
            runs = ledger.entry_runs(share.first_entry_id, last, tally, verify_checksums=True)
            for run in runs:
                broken = set(run.flagged(layout.BROKEN))
                for index in set(range(run.count)) - broken:
                    key = run.ledger_id, run.number(index, layout.ENTRY_ID)
                    if key in golden.entries:
                        # The broker's metadata in front of the checksum is not covered by it.
                        checked = run.view(index, layout.FRAME)[-50:]
                        assert checked == golden.entries[key][-50:]
