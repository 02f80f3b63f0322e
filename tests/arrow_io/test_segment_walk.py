"""`arrow_io.segment_walk`: blocks are found from entry to entry, or it is said why they are not."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrow_io import segment_walk
from arrow_io.errors import (
    CorruptBlockError,
    FormatError,
    MissingEntriesError,
    TruncatedObjectError,
    UnknownFormatError,
)
from arrow_io.format.data_block import MAX_BLOCK_HEADER_BYTES
from arrow_io.format.streaming_block import StreamingBlockHeader
from arrow_io.format.streaming_index import MAX_LEDGERS, read_segment_index
from arrow_io.messages.codecs import MAX_MESSAGE_BYTES
from arrow_io.segment_walk import ForwardReader, end_of_entries, walk_segment
from arrow_io.storage.location import Location
from arrow_io.storage.ranges import RangeReader
from arrow_io.storage.trace import RequestTrace
from tests.support.buckets import memory_bucket
from tests.support.streaming import GoldenSegment, Part, golden_segments, write_segment

if TYPE_CHECKING:
    from arrow_io.segment_walk import WalkedSegment
    from tests.support.streaming import Segment

_HEADER: Final = 128
_ENTRIES: Final = [b"a" * 40, b"b" * 100, b"c" * 7, b"d" * 50]
_SOUND: Final = write_segment(
    [Part(7, _ENTRIES, 5, block_entries=[3, 1]), Part(9, [b"e"])], block_bytes=200
).data
_SECOND: Final = _HEADER + 3 * 12 + 147
_THIRD: Final = _SECOND + 200


def _walk(data: bytes) -> WalkedSegment:
    with memory_bucket({"data": data}) as bucket:
        return walk_segment(RangeReader(Location(bucket.url), "data", len(data)))


def _changed(position: int, piece: bytes) -> bytes:
    return _SOUND[:position] + piece + _SOUND[position + len(piece) :]


def _i64(number: int) -> bytes:
    return struct.pack(">q", number)


def _check_index(walked: WalkedSegment, segment: Segment) -> None:
    """The walk found what the index object says."""
    index = read_segment_index(segment.index, object_key="")
    assert {each.ledger_id: each.rows for each in walked.shares} == {
        each.ledger_id: each.rows for each in index.groups
    }
    assert walked.told_length_bytes == index.data_object_length_bytes
    assert walked.header_length_bytes == index.data_header_length_bytes
    assert walked.blocks[-1].stop == len(segment.data)


@pytest.mark.parametrize("golden", golden_segments(), ids=lambda each: each.folder.name)
def test_the_walk_finds_what_pulsars_index_objects_say(golden: GoldenSegment) -> None:
    """Of blocks that were miscounted too."""
    walked = _walk(golden.data)
    opened = golden.open()
    assert {each.ledger_id: each.rows for each in walked.shares} == {
        each.ledger_id: each.rows for each in opened.index.groups
    }
    assert walked.told_length_bytes == opened.index.data_object_length_bytes
    if opened.starts is not None:
        assert [*(each.start for each in walked.blocks), len(golden.data)] == list(opened.starts)
    there = {
        (each.header.ledger_id, each.first_entry_id + place): each
        for each in walked.blocks
        for place in range(each.entry_count)
    }
    lost = {(541, 14), (541, 26)} if golden.is_damaged else set()
    assert there.keys() == golden.entries.keys() - lost
    for share in walked.shares:
        lengths = [
            len(entry)
            for key, entry in golden.entries.items()
            if key[0] == share.ledger_id and key not in lost
        ]
        assert share.length_bytes == sum(lengths)
        assert share.entry_count == len(lengths)


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
    """However long entries and blocks are; what was lost may have been lost."""
    parts = []
    for ledger_id, each in ((7, sizes), (8, more)):
        counts = [min(per_block, len(each) - at) for at in range(0, len(each), per_block)]
        # Within an entry, a header of a block and padding are just bytes.
        forged = StreamingBlockHeader(200, 1, ledger_id).serialize() + b"\xfe\xdc\xde\xad" * 50
        entries = [forged[:size] for size in each]
        parts += [Part(ledger_id, entries, block_entries=counts)] if each else []
    segment = write_segment(parts, block_bytes=block_bytes, miscounts=miscounts)

    with memory_bucket({"data": segment.data}) as bucket:
        reader = RangeReader(Location(bucket.url), "data", len(segment.data))
        walked = walk_segment(reader)
        for block in walked.blocks:
            assert end_of_entries(ForwardReader(reader), block.start, block.header) == block.stop

    _check_index(walked, segment)
    lost = dict.fromkeys((part.ledger_id for part in parts), 0)
    for ledger_id, _ in segment.lost:
        lost[ledger_id] += 1
    for part, share in zip(parts, walked.shares, strict=True):
        assert share.entry_count == len(part.entries) - lost[part.ledger_id]
        behind = part.behind - 1 - share.last_entry_id
        lost_bytes = sum(map(len, part.entries)) - share.length_bytes
        assert share.may_end_with(part.behind - 1)
        assert share.may_lack(behind, lost_bytes)
        assert not share.may_end_with(share.last_entry_id - 1)
        assert not share.may_lack(behind, lost_bytes + max(map(len, part.entries)) * 9 + 1)


def test_what_has_padding_behind_it_lacks_nothing() -> None:
    """And a block that was counted rightly, and is full, may have lost what its first entry has."""
    walked = _walk(_SOUND)
    full, padded, last = walked.blocks
    assert (full.unwritten_bytes, padded.unwritten_bytes, last.unwritten_bytes) == (40, 0, 0)
    assert full.may_lack(3)
    assert not full.may_lack(4)
    assert not padded.may_lack(1)
    assert [each.last_position for each in walked.blocks] == [
        _SECOND - 12 - 7,
        _SECOND + _HEADER,
        _THIRD + _HEADER,
    ]


def test_lost_entries_must_have_had_room_in_the_count() -> None:
    """Those of each block that lost any, to the byte."""
    sizes = (240, 300, 40, 250, 310, 60)
    entries = [bytes(size) for size in sizes]
    segment = write_segment(
        [Part(7, entries, block_entries=[3, 3])], block_bytes=200, miscounts=True
    )
    assert segment.lost == [(7, 2), (7, 5)]
    (share,) = _walk(segment.data).shares
    assert [each.unwritten_bytes for each in share.blocks] == [52, 72]
    assert share.may_end_with(5)
    assert share.may_end_with(10)
    assert not share.may_end_with(11)
    assert share.may_lack(1, 100)
    assert not share.may_lack(1, 101)
    assert not share.may_lack(1, -1)
    assert share.may_lack(0, 40)
    assert not share.may_lack(0, 41)


def test_errors_name_ledger_and_entry() -> None:
    """Of what is missing, or is not padding: one byte is enough."""
    for data, entry_id in (
        (_changed(12, _i64(_HEADER)), 5),
        (_changed(_SECOND + _HEADER + 62, b"\xfd"), 9),
        (_changed(12, _i64(_SECOND + 1))[:_SECOND] + b"\0" + _SOUND[_SECOND:], 8),
        (_changed(_HEADER, struct.pack(">i", MAX_MESSAGE_BYTES)), 5),
    ):
        with pytest.raises(FormatError) as caught:
            _walk(data)
        assert (caught.value.ledger_id, caught.value.entry_id) == (7, entry_id)
    with pytest.raises(TruncatedObjectError, match=r"^6 bytes of the 50 of an entry") as caught:
        _walk(_cut_miscounted(6))
    assert (caught.value.ledger_id, caught.value.entry_id) == (7, 1)
    with pytest.raises(TruncatedObjectError, match=r"^11 bytes of an entry") as caught:
        _walk(_cut_miscounted(-1))
    assert (caught.value.ledger_id, caught.value.entry_id) == (7, 1)
    with pytest.raises(TruncatedObjectError, match=r"^100 bytes of a block of 311") as caught:
        _walk(_SOUND[:100])
    assert (caught.value.ledger_id, caught.value.offset) == (7, 100)


def _cut_miscounted(left_bytes: int) -> bytes:
    """A miscounted block whose second entry, of 50 bytes, has so many left."""
    part = Part(7, [b"a" * 56, b"b" * 50], block_entries=[2])
    data = write_segment([part], block_bytes=130, miscounts=True).data
    return data[: len(data) - 50 + left_bytes]


def test_requests_are_few() -> None:
    """Small blocks come many at once."""
    trace = RequestTrace(keep_records=True)
    segment = write_segment([Part(7, [b"x" * 1000] * 400)], block_bytes=4096)
    with memory_bucket({"data": segment.data}) as bucket:
        location = Location(bucket.url, trace=trace)
        walk_segment(RangeReader(location, "data", len(segment.data)))
    assert len(trace.records) == 1


def test_a_cut_object_is_found() -> None:
    """Unless it is cut between blocks, which the object itself cannot say."""
    for length in range(len(_SOUND)):
        if length in {_SECOND, _THIRD}:
            assert len(_walk(_SOUND[:length]).blocks) < 3
            continue
        with pytest.raises(TruncatedObjectError):
            _walk(_SOUND[:length])


def test_a_cut_last_entry_of_a_miscounted_block_is_found() -> None:
    """It ends behind the length that its block tells."""
    segment = write_segment(
        [Part(7, [b"a" * 80, b"b" * 90], block_entries=[2])], block_bytes=130, miscounts=True
    )
    told = read_segment_index(segment.index, object_key="").data_object_length_bytes
    assert told < len(segment.data)
    for length in range(told, len(segment.data)):
        with pytest.raises(TruncatedObjectError):
            _walk(segment.data[:length])


@pytest.mark.parametrize(
    ("position", "piece", "error", "text", "offset"),
    [
        pytest.param(*each, id=name)
        for name, each in {
            "magic": (0, b"\0", UnknownFormatError, "magic", 0),
            "short header": (4, _i64(35), CorruptBlockError, "header length 35", 4),
            "long header": (
                4,
                _i64(MAX_BLOCK_HEADER_BYTES + 1),
                CorruptBlockError,
                "header length 4097",
                4,
            ),
            "short block": (12, _i64(127), CorruptBlockError, "127 bytes with a header", 12),
            "long block": (12, _i64(2**62), TruncatedObjectError, "bytes of a block", len(_SOUND)),
            "no entry": (12, _i64(_HEADER), MissingEntriesError, "without an entry", _HEADER),
            "negative id": (20, _i64(-1), CorruptBlockError, "entry id -1 is negative", 20),
            "negative ledger": (28, _i64(-7), CorruptBlockError, "ledger id -7 is negative", 28),
            "another ledger": (
                28,
                _i64(6),
                CorruptBlockError,
                "begins with entry 8, not 0",
                _SECOND,
            ),
            "later ledger": (28, _i64(8), CorruptBlockError, "behind one of ledger 8", _SECOND),
            "longest entry": (
                _HEADER,
                struct.pack(">i", MAX_MESSAGE_BYTES - 11),
                CorruptBlockError,
                "are believed",
                _HEADER,
            ),
            "long second entry": (
                _HEADER + 52,
                struct.pack(">i", 172),
                CorruptBlockError,
                "172 bytes, which reaches beyond its block",
                _HEADER + 52,
            ),
            "no padding": (
                _SECOND + _HEADER + 62,
                b"\xfd",
                CorruptBlockError,
                "neither this entry nor padding",
                _SECOND + _HEADER + 62,
            ),
            "id": (_HEADER + 4, _i64(6), CorruptBlockError, "neither this entry", _HEADER),
            "another header": (
                _SECOND + 4,
                _i64(127),
                CorruptBlockError,
                "neither this entry",
                _SECOND + 127,
            ),
            "back": (_SECOND + 20, _i64(7), CorruptBlockError, "neither", _SECOND + _HEADER),
        }.items()
    ],
)
def test_what_does_not_follow_is_an_error(
    position: int, piece: bytes, error: type[FormatError], text: str, offset: int
) -> None:
    """It says where."""
    with pytest.raises(error, match=text) as caught:
        _walk(_changed(position, piece))
    assert type(caught.value) is error
    assert caught.value.offset == offset
    assert caught.value.object_key == "data"


def _block(first: int, entries: list[bytes], **fields: int) -> bytes:
    """A block that is just as long as its entries."""
    frames = b"".join(
        struct.pack(">iq", len(each), number) + each for number, each in enumerate(entries, first)
    )
    header = StreamingBlockHeader(0, first, 7, fields.get("header", _HEADER))
    length = header.header_length_bytes + len(frames)
    return StreamingBlockHeader(length, first, 7, header.header_length_bytes).serialize() + frames


def test_blocks_must_follow_each_other() -> None:
    """By their entries, but for what may have been lost, and with headers of one length."""
    first = _block(0, [bytes(20)])
    assert _walk(first + _block(2, [b"z"])).shares[0].entry_count == 2
    for behind, text in (
        (_block(3, [b"z"]), "begins with entry 3, not 1"),
        (_block(0, [b"z"]), "begins with entry 0, not 1"),
        (_block(1, [b"z"], header=140), "header length 140; blocks before have 128"),
    ):
        with pytest.raises(CorruptBlockError, match=text) as caught:
            _walk(first + behind)
        assert (caught.value.ledger_id, caught.value.offset) == (7, len(first))


def test_counts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is: a block takes a kilobyte, and no ledger has less than one."""
    assert segment_walk._MAX_BLOCKS <= MAX_LEDGERS
    monkeypatch.setattr(segment_walk, "_MAX_BLOCKS", 3)
    _walk(_SOUND)
    monkeypatch.setattr(segment_walk, "_MAX_BLOCKS", 2)
    with pytest.raises(CorruptBlockError, match="more than 2 blocks") as caught:
        _walk(_SOUND)
    assert caught.value.offset == _THIRD
