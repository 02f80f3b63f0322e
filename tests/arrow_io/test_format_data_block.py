"""Headers, padding and lengths of data blocks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from arrow_io.errors import (
    CorruptBlockError,
    FormatError,
    TruncatedObjectError,
    UnknownFormatError,
)
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
