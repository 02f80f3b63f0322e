"""Headers of data blocks of streaming offload."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import CorruptBlockError, FormatError, TruncatedObjectError, UnknownFormatError
from arrow_io.format.streaming_block import StreamingBlockHeader, check_streaming_header
from tests.support.streaming import GoldenSegment, golden_segments

HEADER = StreamingBlockHeader(4096, 12, 521)


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
    data = bytearray(HEADER.serialize())
    data[offset] ^= 1
    kind = CorruptBlockError if isinstance(expected, str) else expected

    with pytest.raises(kind, match=expected if isinstance(expected, str) else None) as caught:
        check_streaming_header(data, expected=HEADER, offset=1000)
    assert caught.value.offset is not None
    assert 1000 <= caught.value.offset <= 1000 + offset


def test_a_short_header_is_truncated() -> None:
    """All of the header must be there, though zeroes are most of it."""
    with pytest.raises(TruncatedObjectError, match="127 bytes instead of a block header of 128"):
        check_streaming_header(bytes(127), expected=HEADER, offset=0)


@given(st.binary(min_size=36, max_size=36))
def test_any_other_fields_are_refused(fields: bytes) -> None:
    """Of all bytes, only those that are expected pass."""
    data = fields.ljust(128, b"\0")
    try:
        check_streaming_header(data, expected=HEADER, offset=0)
    except FormatError:
        assert data != HEADER.serialize()
    else:
        assert data == HEADER.serialize()
