"""The 12 bytes in front of an entry's data."""

from __future__ import annotations

import pytest

from arrow_io.format.entry_frame import BytesLike, write_entry


def test_layout() -> None:
    """A frame must be the length as i32, the entry id as i64, both big-endian, and the data."""
    assert write_entry(0x0102030405060708, b"data") == bytes.fromhex(
        "00000004 0102030405060708 64617461"
    )


@pytest.mark.parametrize("data", [b"abc", bytearray(b"abc"), memoryview(b"xabcx")[1:4]])
def test_any_bytes_are_taken(data: BytesLike) -> None:
    """Bytes, bytearrays and memoryviews must give the same frame."""
    assert write_entry(1, data) == b"\0\0\0\x03" + bytes(7) + b"\x01abc"
