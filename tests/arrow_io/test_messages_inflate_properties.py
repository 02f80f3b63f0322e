"""Streams of ZLIB, sound and damaged, as the library reads them, in both builds."""

from __future__ import annotations

import random
import zlib
from array import array
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.messages import layout
from arrow_io.messages._inflate_py import SCRATCH_WIDTH
from tests.support.builds import BUILDS

if TYPE_CHECKING:
    from arrow_io.core.builds import Build

_WORDS = st.lists(
    st.sampled_from([b"ledger ", b"e", b"\x00" * 300, b"abcabcabd", bytes(range(256))]), max_size=40
).map(b"".join)
_PAYLOADS = st.binary(max_size=300) | _WORDS
_LEVELS = st.sampled_from([-1, 0, 1, 9])
_STRATEGIES = st.sampled_from([zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED, zlib.Z_HUFFMAN_ONLY])
_FLUSHES = st.sampled_from([zlib.Z_SYNC_FLUSH, zlib.Z_FINISH])


def _stream(
    payload: bytes, level: int = -1, strategy: int = 0, flush: int = zlib.Z_SYNC_FLUSH
) -> bytes:
    compressor = zlib.compressobj(level, zlib.DEFLATED, 15, 8, strategy)
    return compressor.compress(payload) + compressor.flush(flush)


def _inflated(build: Build, stream: bytes, size: int) -> bytes | None:
    """What a build makes of a stream: nothing, or the body that it says is whole."""
    table = array("q", bytes(8 * layout.ENTRY_WIDTH))
    table[layout.COMPRESSION] = layout.ZLIB
    table[layout.PAYLOAD], table[layout.BODY] = len(stream), 6 << 32 | size
    out = bytearray(b"before" + b"?" * size)
    scratch = array("i", bytes(4 * SCRATCH_WIDTH))
    build.codecs.decompress_blocks(memoryview(stream), table, 0, 1, memoryview(out), scratch)
    assert out.startswith(b"before")
    return None if table[layout.FLAGS] & layout.ALONE else bytes(out[6:])


@given(_PAYLOADS, _LEVELS, _STRATEGIES, _FLUSHES)
def test_what_zlib_compresses_is_read(
    payload: bytes, level: int, strategy: int, flush: int
) -> None:
    """Stored blocks, fixed codes and codes of their own, flushed or finished."""
    stream = _stream(payload, level, strategy, flush)

    assert {_inflated(build, stream, len(payload)) for build in BUILDS.values()} == {payload}


@pytest.mark.parametrize("flush", [zlib.Z_SYNC_FLUSH, zlib.Z_FINISH])
def test_long_codes_and_far_matches(build: Build, flush: int) -> None:
    """Symbols of very different frequency have long codes; matches reach 32 KiB back."""
    dice = random.Random(5)
    skewed = bytes(min(255, int(dice.expovariate(0.04))) for _ in range(40_000))
    payload = skewed + skewed[8_000:9_000] + bytes(2_000)
    stream = _stream(payload, flush=flush)

    assert _inflated(build, stream, len(payload)) == payload
    assert _inflated(build, stream, len(payload) - 1) is None
    assert _inflated(build, stream, len(payload) + 1) is None


@given(_PAYLOADS, _FLUSHES, st.data())
def test_damaged_streams_are_not_taken_for_others(
    payload: bytes, flush: int, data: st.DataObject
) -> None:
    """What is taken is what the library gives; the builds agree on what that is."""
    damaged = bytearray(_stream(payload, flush=flush))
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    stream = bytes(damaged[: data.draw(st.integers(1, len(damaged)))])
    size = max(0, len(payload) + data.draw(st.sampled_from([0, 0, 0, -1, 1, 40])))

    bodies = {_inflated(build, stream, size) for build in BUILDS.values()}

    assert len(bodies) == 1
    if bodies != {None}:
        assert bodies == {zlib.decompressobj().decompress(stream, size + 1)}


@given(st.binary(max_size=80), st.integers(0, 300))
def test_random_blocks_are_read_alike(blocks: bytes, size: int) -> None:
    """Whatever stands behind the header, both builds give the same."""
    stream = b"\x78\x9c" + blocks

    assert len({_inflated(build, stream, size) for build in BUILDS.values()}) == 1


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        b"\x78",
        b"\x78\x9d",  # a header whose check is wrong
        b"\x68\x81\x00\x00\x00\xff\xff",  # a smaller window
        b"\x78\xbb\x00\x00\x00\xff\xff",  # a dictionary
        b"\x78\x9c\x00\x01\x00\xff\xff",  # a stored block that contradicts itself
        b"\x78\x9c\x06",  # a kind of block that there is not
        b"\x78\x9c\x03\x00\x00\x00\x00\x02",  # a wrong checksum
        b"\x78\x9c\x03\x00\x00\x00\x00\x01-",  # more behind the end
    ],
)
def test_what_is_not_taken(build: Build, stream: bytes) -> None:
    """What is unusual is left to the library."""
    assert _inflated(build, stream, 0) is None
