"""`arrow_io.ledgers.data_object_walk`: where the entries of a data object are."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import pytest

from arrow_io.errors import (
    CorruptBlockError,
    FormatError,
    MissingEntriesError,
    TruncatedObjectError,
    UnknownFormatError,
)
from arrow_io.format.data_block import MAX_BLOCK_HEADER_BYTES, BlockHeader, write_block_header
from arrow_io.format.entry_frame import write_entry
from arrow_io.format.index_block import read_index_block
from arrow_io.ledgers.data_object_walk import walk_data_object
from arrow_io.messages.codecs import MAX_MESSAGE_BYTES
from arrow_io.storage.location import Location
from arrow_io.storage.ranges import RangeReader
from arrow_io.storage.trace import RequestTrace
from tests.support.buckets import memory_bucket
from tests.support.encoded_ledgers import encode_ledger
from tests.support.golden import golden_topics
from tests.support.offloads import metadata_of

if TYPE_CHECKING:
    from arrow_io.ledgers.data_object_walk import WalkedObject

LEDGER_ID: Final = 42
ENTRIES: Final = [bytes([number]) * number for number in range(1, 60)]
SOUND: Final = encode_ledger(ENTRIES, metadata_of(ENTRIES), block_bytes=400)
TABLE: Final = read_index_block(SOUND.index, object_key="").block_table
HEADER: Final = 128


def _walk(data: bytes, **options: int) -> WalkedObject:
    with memory_bucket({"data": data}) as bucket:
        location = Location(bucket.url, **options)  # type: ignore[arg-type]
        return walk_data_object(RangeReader(location, "data", len(data)), LEDGER_ID)


def _changed(position: int, piece: bytes) -> bytes:
    return SOUND.data[:position] + piece + SOUND.data[position + len(piece) :]


def _i64(number: int) -> bytes:
    return struct.pack(">q", number)


@pytest.mark.parametrize("range_bytes", [1, 7, 1 << 20])
def test_the_walk_finds_what_the_index_object_says(range_bytes: int) -> None:
    """In ranges of whichever length."""
    walked = _walk(SOUND.data, range_bytes=range_bytes)
    assert walked.table == TABLE
    assert walked.length_bytes == sum(map(len, ENTRIES))
    assert walked.looks_complete
    for block, position in enumerate(walked.last_positions):
        last = TABLE.block_last_entry_id(block)
        frame = write_entry(last, ENTRIES[last])
        assert SOUND.data[position : position + len(frame)] == frame


def test_brokers_end_their_objects_with_an_entry() -> None:
    """So padding at the end shows that something is missing."""
    for topic in golden_topics():
        for ledger in topic.ledgers:
            walked = _walk(ledger.data_object.read_bytes())
            assert walked.looks_complete
            assert walked.table.entry_count == ledger.entry_count
            assert walked.length_bytes == ledger.length_bytes


def test_the_object_is_asked_for_once() -> None:
    """Each byte comes in one range, and nothing else is sent."""
    trace = RequestTrace(keep_records=True)
    with memory_bucket({"data": SOUND.data}) as bucket:
        location = Location(bucket.url, range_bytes=1000, trace=trace)
        walk_data_object(RangeReader(location, "data", len(SOUND.data)), LEDGER_ID)
    ranges = [(each.start, each.stop) for each in trace.records]
    starts = range(0, len(SOUND.data), 1000)
    assert ranges == [(start, min(start + 1000, len(SOUND.data))) for start in starts]


def test_a_cut_object_is_found() -> None:
    """Unless it is cut between blocks, when the last one left does not look like a last one."""
    starts = {TABLE.block_start(block) for block in range(1, TABLE.block_count)}
    near = {start + step for start in starts for step in (-1, 0, 1)}
    for length in {*near, *range(0, len(SOUND.data), 7), len(SOUND.data) - 1}:
        if length in starts:
            assert not _walk(SOUND.data[:length]).looks_complete
        else:
            with pytest.raises(TruncatedObjectError):
                _walk(SOUND.data[:length])


def test_blocks_that_are_full_are_as_long_as_each_other() -> None:
    """So one that is cut between two of these does not look whole either."""
    entries = [bytes(16)] * 12
    data = encode_ledger(entries, metadata_of(entries), block_bytes=HEADER + 4 * 28).data
    assert _walk(data).looks_complete is False
    assert not _walk(data).is_padded
    assert _walk(data[: HEADER + 4 * 28]).looks_complete, "nothing tells this one from a whole one"


SECOND: Final = TABLE.block_start(1)
"""Where the second block begins."""
SIZE: Final = len(SOUND.data)
CORRUPT: Final = CorruptBlockError


def _i32(number: int) -> bytes:
    return struct.pack(">i", number)


@pytest.mark.parametrize(
    ("position", "piece", "error", "text", "place"),
    [
        (0, b"\0", UnknownFormatError, "magic", (0, None)),
        (4, _i64(27), CORRUPT, "header length 27", (4, None)),
        (4, _i64(MAX_BLOCK_HEADER_BYTES + 1), CORRUPT, "header length 4097", (4, None)),
        (12, _i64(127), CORRUPT, "127 is less than the block header length 128", (12, None)),
        (12, _i64(2**62), TruncatedObjectError, f"^the object has {SIZE} bytes of a block of",
         (SIZE, None)),
        (12, _i64(HEADER), MissingEntriesError, "a block without an entry", (HEADER, 0)),
        (20, _i64(1), CORRUPT, "begins with entry 1, not 0", (0, 0)),
        (HEADER, _i32(MAX_MESSAGE_BYTES - 11), CORRUPT, "are accepted", (HEADER, 0)),
        (HEADER, _i32(400), CORRUPT, "announces 400 bytes, which exceeds its block", (HEADER, 0)),
        (HEADER, b"\xff", CORRUPT, "neither an entry nor padding", (HEADER, 0)),
        (HEADER + 4, _i64(5), CORRUPT, "found entry id 5 instead of 0", (HEADER, 0)),
        (SECOND, b"\0", UnknownFormatError, "magic", (SECOND, None)),
        (SECOND + 4, _i64(129), CORRUPT, "129; earlier blocks have 128", (SECOND, None)),
        (SECOND + 20, _i64(0), CORRUPT, "with entry 0, not", (SECOND, TABLE.first_entry_id(1))),
    ],
    ids=range(14),
)  # fmt: skip
def test_what_does_not_follow_is_an_error(
    position: int, piece: bytes, error: type[FormatError], text: str, place: tuple[int, int | None]
) -> None:
    """It names the object, the ledger and the place."""
    with pytest.raises(error, match=text) as raised:
        _walk(_changed(position, piece))
    assert type(raised.value) is error
    assert raised.value.object_key == "data"
    assert raised.value.ledger_id == LEDGER_ID
    assert (raised.value.offset, raised.value.entry_id) == place


def test_there_are_no_more_blocks_than_an_index_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found can be written, and read again."""
    monkeypatch.setattr(
        "arrow_io.ledgers.data_object_walk.MAX_INDEX_OBJECT_BYTES", 20 * TABLE.block_count
    )
    assert _walk(SOUND.data).table == TABLE
    most = 20 * (TABLE.block_count - 1)
    monkeypatch.setattr("arrow_io.ledgers.data_object_walk.MAX_INDEX_OBJECT_BYTES", most)
    with pytest.raises(CorruptBlockError, match="blocks are more than an index may have"):
        _walk(SOUND.data)


def test_a_walk_ends_whatever_lengths_say() -> None:
    """Blocks and entries take bytes, so there are no more than fit."""
    tiny = write_block_header(BlockHeader(28 + 12, 0, 28)) + write_entry(0, b"")
    assert _walk(tiny).table.entry_count == 1
    with pytest.raises(CorruptBlockError):
        _walk(tiny * 1000)
