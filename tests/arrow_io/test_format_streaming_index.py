"""The index block of streaming offload: its layout and its checks."""

from __future__ import annotations

import struct
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import CorruptIndexError, FormatError, TruncatedObjectError, UnknownFormatError
from arrow_io.format import streaming_index
from arrow_io.format.index_block import MAX_INDEX_OBJECT_BYTES
from arrow_io.format.object_names import SegmentName
from arrow_io.format.streaming_index import SegmentIndex, read_segment_index
from tests.support.streaming import GoldenSegment, Part, golden_segments, write_segment

KEY = SegmentName(UUID(int=1)).index_name
INFO_7 = bytes.fromhex("0807 1003 1806 2064")
"""Ledger 7 with 3 entries of 6 bytes, closed at 100 ms."""


def index_object(
    *groups: tuple[int, bytes, list[tuple[int, int, int]]],
    data_length: int = 4096,
    header_length: int = 128,
    extra_length: int = 0,
) -> bytes:
    """An index object of some groups: ledger id, LedgerInfo and rows of each."""
    body = b"".join(
        struct.pack(">qii", ledger_id, len(rows), len(info))
        + info
        + b"".join(struct.pack(">qiq", *row) for row in rows)
        for ledger_id, info, rows in groups
    )
    length = 24 + len(body) + extra_length
    return struct.pack(">Iiqq", 0x3D1FB0BC, length, data_length, header_length) + body


GROUP = (7, INFO_7, [(0, 1, 0)])
SOUND = index_object(GROUP)


def read(data: bytes) -> SegmentIndex:
    """Read an index object with a place for its errors."""
    return read_segment_index(data, object_key=KEY)


@pytest.mark.parametrize("golden", golden_segments(), ids=lambda each: each.folder.name)
def test_our_writer_for_tests_writes_what_pulsars_writes(golden: GoldenSegment) -> None:
    """Both objects, byte for byte, from the entries that Pulsar's writer was given."""
    index = read(golden.index)
    parts = []
    for group in index.groups:
        ids = [entry_id for ledger_id, entry_id in golden.entries if ledger_id == group.ledger_id]
        firsts = [*(row.first_entry_id for row in group.rows), ids[-1] + 1]
        part = Part(
            group.ledger_id,
            [golden.entries[group.ledger_id, entry_id] for entry_id in ids],
            ids[0],
            group.entries,
            group.size_bytes,
            group.timestamp_ms,
            [behind - first for first, behind in pairwise(firsts)],
        )
        parts.append(part)

    segment = write_segment(parts, miscounts=golden.is_damaged)

    assert segment.data == golden.data
    assert segment.index == golden.index
    assert segment.lost == ([(541, 14), (541, 26)] if golden.is_damaged else [])
    assert index.warnings == ()


def test_groups_come_in_any_order() -> None:
    """A HashMap has put them there; they are given as they stand in the data object."""
    parts = [Part(ledger_id, [b"entry"] * 3) for ledger_id in (17, 5, 9)]
    segment = write_segment(parts)
    size = (len(segment.index) - 24) // 3
    first, second, third = (segment.index[24 + size * place :][:size] for place in range(3))

    index = read(segment.index[:24] + third + first + second)

    assert [each.ledger_id for each in index.groups] == [17, 5, 9]
    assert index.tables() == read(segment.index).tables()


def test_a_share_says_where_its_blocks_stand() -> None:
    """Block numbers, entries and bytes are those of one ledger alone."""
    parts = [Part(4, [b"a"]), Part(6, [b"b" * 10] * 5, 20, block_entries=[2, 3])]
    _, table = read(write_segment(parts, block_bytes=200).index).tables()

    assert (table.least_entry_id, table.last_entry_id, table.entry_count) == (20, 24, 5)
    assert table.find_block(21) == 0
    assert table.find_block(22) == 1
    assert (table.block_start(0), table.block_stop(1)) == (200, 600)
    assert table.stored_bytes == 400
    assert table.streaming_header(1).first_entry_id == 22


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (index_object(), "no ledger"),
        (index_object(GROUP, data_length=-1), "length -1 is negative"),
        (index_object(GROUP, header_length=35), "header length 35"),
        (index_object(GROUP, header_length=4097), "header length 4097"),
        (index_object(GROUP, GROUP), "twice"),
        (index_object((-1, INFO_7, [(0, 1, 0)])), "ledger id -1"),
        (index_object((8, INFO_7, [(0, 1, 0)])), "metadata of ledger 7"),
        (index_object((7, INFO_7, [])), "number of blocks 0"),
        (index_object((7, INFO_7[:2], [(0, 1, 0)])), "records 0 entries"),
        (index_object((7, b"\x10\x03", [(0, 1, 0)])), "not a LedgerInfo"),
        (index_object((7, b"\xff", [(0, 1, 0)])), "not a LedgerInfo"),
        (index_object((7, INFO_7, [(3, 1, 0)])), "blocks from entry 3 to 3 of 3 entries"),
        (index_object((7, INFO_7, [(-1, 1, 0)])), "blocks from entry -1"),
        (index_object((7, INFO_7, [(0, 1, 8)])), "first block is at offset 8"),
        (index_object((7, INFO_7, [(0, 1, 0), (0, 2, 200)])), "with 0 entries"),
        (index_object((7, INFO_7, [(1, 1, 0), (0, 2, 200)])), "with -1 entries"),
        (index_object((7, INFO_7, [(0, 1, 0), (2, 2, 151)])), "block of 151 bytes with 2 entries"),
        (index_object((7, INFO_7, [(0, 1, 0), (2, 2, 4000)])), "block of 96 bytes"),
        (index_object((7, INFO_7, [(0, 1, 0), (2, 2, 5000)])), "block of -904 bytes"),
        (SOUND + bytes(3), None),
        (index_object(GROUP, extra_length=3) + bytes(3), "3 bytes instead of a ledger.s record"),
        (index_object(GROUP, extra_length=-60), "index length"),
        (bytes(MAX_INDEX_OBJECT_BYTES + 1), "at most 67108864 allowed"),
    ],
)
def test_contradictions_are_found(data: bytes, match: str | None) -> None:
    """Each rule is checked by itself; bytes behind the index block are only odd."""
    if match is None:
        assert read(data).warnings == ("3 bytes follow the index block and were ignored",)
        return
    with pytest.raises(CorruptIndexError, match=match) as caught:
        read(data)
    assert caught.value.object_key == KEY


def test_blocks_of_two_ledgers_do_not_mix() -> None:
    """A ledger's blocks follow each other, as its entries do in the topic."""
    other = (9, bytes.fromhex("0809 1003 1806 2064"), [(0, 2, 200)])
    mixed = (7, INFO_7, [(0, 1, 0), (2, 3, 400)])

    with pytest.raises(CorruptIndexError, match="a data block of -200 bytes"):
        read(index_object(mixed, other, data_length=600))


@pytest.mark.parametrize("cut", range(len(SOUND)))
def test_a_cut_index_object_is_truncated(cut: int) -> None:
    """Wherever it is cut."""
    with pytest.raises(TruncatedObjectError):
        read(SOUND[:cut])


def test_another_magic_is_named() -> None:
    """An index object of PIP-17 is told by name."""
    with pytest.raises(UnknownFormatError, match="this is an index block"):
        read(b"\xde\x47\xde\x47" + SOUND[4:])


@given(st.data())
def test_changed_bytes_are_read_or_refused(data: st.DataObject) -> None:
    """Nothing but the typed errors; what is read agrees with itself."""
    golden = data.draw(st.sampled_from(golden_segments()))
    changed = bytearray(golden.index)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(changed) - 1))
        changed[place] = data.draw(st.integers(0, 255))
    try:
        index = read(bytes(changed))
    except FormatError:
        return
    stop = 0
    for table in index.tables():
        assert table.block_start(0) == stop
        stop = table.data_object_length_bytes
        assert 0 <= table.least_entry_id <= table.last_entry_id
    assert stop == index.data_object_length_bytes
    assert sum(each.block_length_bytes for each in index.headers) == stop


def test_no_more_ledgers_are_believed_than_fit_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index object has room for a million."""
    index = write_segment([Part(number, [b"a"]) for number in range(4)]).index
    monkeypatch.setattr(streaming_index, "MAX_LEDGERS", 4)
    assert len(read_segment_index(index, object_key="k").groups) == 4
    monkeypatch.setattr(streaming_index, "MAX_LEDGERS", 3)
    with pytest.raises(CorruptIndexError, match="more than 3 ledgers"):
        read_segment_index(index, object_key="k")
