"""Blocks of LZ4 and Snappy, sound and damaged, as other libraries read them, in both builds."""

from __future__ import annotations

import cramjam
import lz4.block
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.builds import BUILDS
from tests.support.codecs import Codec, compress, decompress

_TYPES: dict[Codec, int] = {"LZ4": 1, "SNAPPY": 4}
_BLOCKS = st.sampled_from(list(_TYPES))
_WORDS = st.lists(
    st.sampled_from([b"ledger ", b"e", b"\x00" * 40, b"abcabcabd", bytes(range(70))]), max_size=60
).map(b"".join)
_PAYLOADS = st.binary(max_size=300) | _WORDS


def _bodies(codec: Codec, block: bytes, size: int, behind: int) -> list[bytes | None]:
    """What each build makes of a block: nothing, or the body that it says is whole."""
    bodies: list[bytes | None] = []
    before = b"before"
    for build in BUILDS.values():
        out = bytearray(before + b"?" * (size + behind))
        body = memoryview(out)[len(before) : len(before) + size]
        is_whole = build.codecs.decompress_block(_TYPES[codec], memoryview(block), body)
        # What stands around the body is not ours to write.
        assert out.startswith(before)
        assert out.endswith(b"?" * behind)
        bodies.append(bytes(body) if is_whole else None)
    return bodies


@given(_BLOCKS, _PAYLOADS, st.integers(0, 3))
def test_what_others_compress_is_read(codec: Codec, payload: bytes, behind: int) -> None:
    """Both builds give the bytes that were compressed, into a place that is just as long."""
    block = compress(codec, payload)

    assert _bodies(codec, block, len(payload), behind) == [payload, payload]


@given(_BLOCKS, _PAYLOADS, st.data())
def test_damaged_blocks_are_read_alike(codec: Codec, payload: bytes, data: st.DataObject) -> None:
    """Cut, changed and made-up blocks: the builds agree, and with the other library if it reads."""
    damaged = bytearray(compress(codec, payload))
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    block = bytes(damaged[: data.draw(st.integers(0, len(damaged)))] or data.draw(st.binary()))
    size = len(payload) + data.draw(st.sampled_from([0, 0, 0, -1, 1, 40]))
    if size < 0:
        return

    pure, compiled = _bodies(codec, block, size, 5)

    assert pure == compiled
    try:
        expected = decompress(codec, block, size)
    except (ValueError, cramjam.DecompressionError, lz4.block.LZ4BlockError):
        return
    # The other library takes an offset of 0, and gives zeroes or what memory held.
    assert pure in {expected, None}
    if pure is None:
        assert codec == "LZ4"
        assert b"\x00\x00" in block


@pytest.mark.parametrize("codec", _TYPES)
@given(block=st.binary(max_size=60), size=st.integers(0, 200))
def test_random_bytes_are_read_alike(codec: Codec, block: bytes, size: int) -> None:
    """Whatever the bytes, both builds give the same, and write to their place alone."""
    pure, compiled = _bodies(codec, block, size, 5)

    assert pure == compiled
