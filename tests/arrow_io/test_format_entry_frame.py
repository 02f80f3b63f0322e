"""The 12 bytes in front of an entry's data."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import TruncatedObjectError
from arrow_io.format.entry_frame import (
    ENTRY_HEADER_BYTES,
    BytesLike,
    EntryHeader,
    read_entry_header,
    write_entry,
)


def test_layout() -> None:
    """A frame must be the length as i32, the entry id as i64, both big-endian, and the data."""
    assert write_entry(0x0102030405060708, b"data") == bytes.fromhex(
        "00000004 0102030405060708 64617461"
    )


@pytest.mark.parametrize("data", [b"abc", bytearray(b"abc"), memoryview(b"xabcx")[1:4]])
def test_any_bytes_are_taken(data: BytesLike) -> None:
    """Bytes, bytearrays and memoryviews must give the same frame."""
    assert write_entry(1, data) == b"\0\0\0\x03" + bytes(7) + b"\x01abc"


@given(st.integers(0, 2**63 - 1), st.binary(max_size=50), st.binary(max_size=20))
def test_header_is_read_where_it_stands(entry_id: int, data: bytes, before: bytes) -> None:
    """A header must be read from any index of a buffer."""
    buffer = before + write_entry(entry_id, data)

    assert read_entry_header(buffer, len(before)) == EntryHeader(len(data), entry_id)


def test_padding_reads_as_a_negative_length() -> None:
    """Where padding stands in place of an entry, the length must be negative."""
    assert read_entry_header(b"\xfe\xdc\xde\xad" * 3, 0).length_bytes < 0


@pytest.mark.parametrize("left", range(ENTRY_HEADER_BYTES))
def test_cut_header_is_an_error(left: int) -> None:
    """Fewer than 12 bytes must be a typed error, not a short header."""
    buffer = b"before" + write_entry(1, b"data")[:left]

    with pytest.raises(TruncatedObjectError, match=rf"{left} bytes? left"):
        read_entry_header(buffer, len(b"before"))
