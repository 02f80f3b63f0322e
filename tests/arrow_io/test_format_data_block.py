"""Headers of data blocks, of offload and of streaming offload; padding; frames of entries."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import CorruptBlockError, FormatError, TruncatedObjectError, UnknownFormatError
from arrow_io.format.data_block import (
    BLOCK_FIELDS_BYTES,
    BLOCK_HEADER_BYTES,
    BlockHeader,
    block_length_bytes,
    check_block_header,
    is_padding,
    padding,
    write_block_header,
)
from arrow_io.format.entry_frame import BytesLike, write_entry
from arrow_io.format.streaming_block import StreamingBlockHeader, check_streaming_header
from tests.support.streaming import GoldenSegment, golden_segments

HEADER = BlockHeader(block_length_bytes=5 << 20, first_entry_id=77)


def check(buffer: bytes, expected: BlockHeader = HEADER) -> None:
    """Compare a header that stands at byte 1000."""
    check_block_header(buffer, expected=expected, offset=1000)


def test_layout() -> None:
    """A header must be magic, header length, block length, first entry id, zeroes up to 128."""
    expected = "fbdbabcb 0000000000000080 0000000000500000 000000000000004d" + "00" * 100

    assert write_block_header(HEADER) == bytes.fromhex(expected)


@pytest.mark.parametrize("header_length_bytes", [BLOCK_FIELDS_BYTES, BLOCK_HEADER_BYTES, 4096])
def test_header_is_read_back(header_length_bytes: int) -> None:
    """A header of any length the index block may give must be read back, also from a memoryview."""
    header = replace(HEADER, header_length_bytes=header_length_bytes)
    block = write_block_header(header) + b"entries"

    check(block, header)
    check_block_header(memoryview(block), expected=header, offset=0)


@pytest.mark.parametrize("length", [0, 3, 27, 127])
def test_cut_header_is_truncated(length: int) -> None:
    """A buffer that ends within the header must be told as truncated, with the place."""
    with pytest.raises(TruncatedObjectError, match=f"{length} bytes") as caught:
        check(write_block_header(HEADER)[:length])

    assert caught.value.offset == 1000


@pytest.mark.parametrize(
    ("magic", "error", "words"),
    [
        (0x26A66D32, UnknownFormatError, "26A66D32.*data block of streaming offload"),
        (0xDE47DE47, UnknownFormatError, "DE47DE47, expected 0xFBDBABCB.*an index block"),
        (0xDEAD1234, UnknownFormatError, "DEAD1234, expected 0xFBDBABCB.*draft"),
        (0x0000002A, UnknownFormatError, "0000002A, expected 0xFBDBABCB"),
    ],
)
def test_other_magics_are_refused_by_name(magic: int, error: type[FormatError], words: str) -> None:
    """Another magic must be named together with the expected one, and by what it belongs to."""
    with pytest.raises(error, match=words) as caught:
        check(magic.to_bytes(4) + write_block_header(HEADER)[4:])

    assert type(caught.value) is error
    assert caught.value.offset == 1000


@pytest.mark.parametrize(
    ("expected", "words", "offset"),
    [
        (replace(HEADER, header_length_bytes=100), "header length is 128 .* 100", 1004),
        (replace(HEADER, block_length_bytes=500), "block length is 5242880 .* 500", 1012),
        (replace(HEADER, first_entry_id=78), "first entry id is 77 .* 78", 1020),
    ],
)
def test_fields_that_differ_are_corrupt(expected: BlockHeader, words: str, offset: int) -> None:
    """A field that differs from the index block must be told with both values and its place."""
    with pytest.raises(CorruptBlockError, match=words) as caught:
        check(write_block_header(HEADER), expected)

    assert (caught.value.entry_id, caught.value.offset) == (expected.first_entry_id, offset)


def test_every_flipped_bit_of_the_fields_is_seen() -> None:
    """No bit of the header's fields may change unseen; the zeroes behind them mean nothing."""
    header = write_block_header(HEADER)
    for position in range(8 * BLOCK_HEADER_BYTES):
        damaged = bytearray(header)
        damaged[position // 8] ^= 1 << position % 8
        if position // 8 < BLOCK_FIELDS_BYTES:
            with pytest.raises(FormatError):
                check(bytes(damaged))
        else:
            check(bytes(damaged))


@pytest.mark.parametrize(
    ("n_bytes", "expected"),
    [(0, ""), (1, "fe"), (2, "fedc"), (3, "fedcde"), (4, "fedcdead"), (9, "fedcdeadfedcdeadfe")],
)
def test_padding(n_bytes: int, expected: str) -> None:
    """Padding must start with FE and may be cut anywhere."""
    assert padding(n_bytes).hex() == expected
    assert is_padding(bytes.fromhex(expected))
    assert is_padding(memoryview(bytes.fromhex(expected)))


@pytest.mark.parametrize("other", ["00", "dc", "fedcdeae", "fedcdeaddc", "fedcdead00"])
def test_other_bytes_are_no_padding(other: str) -> None:
    """Bytes out of phase or of another value must not pass as padding."""
    assert not is_padding(bytes.fromhex(other))


@pytest.mark.parametrize(
    ("max_block_bytes", "first_entry_id", "written", "expected"),
    [(160, 0, 0, 160), (160, 1, 5, 160), (160, 2, 12, 142), (10_000, 0, 0, 128 + 3 * 12 + 14)],
)
def test_block_length(
    max_block_bytes: int, first_entry_id: int, written: int, expected: int
) -> None:
    """A block must have the maximum size, or what the last entries need if that is less."""
    length = block_length_bytes(
        max_block_bytes=max_block_bytes,
        first_entry_id=first_entry_id,
        last_entry_id=2,
        ledger_length_bytes=14,
        earlier_length_bytes=written,
    )

    assert length == expected


# Frames of entries


def test_layout_of_a_frame() -> None:
    """A frame must be the length as i32, the entry id as i64, both big-endian, and the data."""
    assert write_entry(0x0102030405060708, b"data") == bytes.fromhex(
        "00000004 0102030405060708 64617461"
    )


@pytest.mark.parametrize("data", [b"abc", bytearray(b"abc"), memoryview(b"xabcx")[1:4]])
def test_any_bytes_are_taken(data: BytesLike) -> None:
    """Bytes, bytearrays and memoryviews must give the same frame."""
    assert write_entry(1, data) == b"\0\0\0\x03" + bytes(7) + b"\x01abc"


# Headers of streaming offload


STREAMING_HEADER = StreamingBlockHeader(4096, 12, 521)


@pytest.mark.parametrize("golden", golden_segments(), ids=lambda each: each.folder.name)
def test_headers_are_those_of_pulsars_writer(golden: GoldenSegment) -> None:
    """What is made of an index object stands in the data object, byte for byte."""
    for header in golden.open().index.headers:
        assert golden.data.count(header.serialize()) == 1


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (0, UnknownFormatError),
        (11, "header length is 129 in the block header, but 128 in the index block"),
        (19, "block length is 4097"),
        (27, "first entry id is 13"),
        (35, "ledger id is 520"),
    ],
)
def test_each_field_is_compared(offset: int, expected: str | type[FormatError]) -> None:
    """A header that says something else than the index object is an error that says where."""
    data = bytearray(STREAMING_HEADER.serialize())
    data[offset] ^= 1
    kind = CorruptBlockError if isinstance(expected, str) else expected

    with pytest.raises(kind, match=expected if isinstance(expected, str) else None) as caught:
        check_streaming_header(data, expected=STREAMING_HEADER, offset=1000)
    assert caught.value.offset is not None
    assert 1000 <= caught.value.offset <= 1000 + offset


def test_a_short_header_is_truncated() -> None:
    """All of the header must be there, though zeroes are most of it."""
    with pytest.raises(TruncatedObjectError, match="127 bytes instead of a block header of 128"):
        check_streaming_header(bytes(127), expected=STREAMING_HEADER, offset=0)


@given(st.binary(min_size=36, max_size=36))
def test_any_other_fields_are_refused(fields: bytes) -> None:
    """Of all bytes, only those that are expected pass."""
    data = fields.ljust(128, b"\0")
    try:
        check_streaming_header(data, expected=STREAMING_HEADER, offset=0)
    except FormatError:
        assert data != STREAMING_HEADER.serialize()
    else:
        assert data == STREAMING_HEADER.serialize()
