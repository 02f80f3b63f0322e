"""Every codec of Pulsar gives exactly the bytes that were compressed, or a typed error."""

from __future__ import annotations

import random
import zlib
from array import array
from typing import TYPE_CHECKING

import cramjam
import lz4.block
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import CorruptEntryError, OptionError
from arrow_io.messages import codecs, layout
from arrow_io.messages._inflate_py import SCRATCH_WIDTH
from tests.support.builds import BUILDS
from tests.support.codecs import CODECS, Codec, compress, decompress

if TYPE_CHECKING:
    from arrow_io.core.builds import Build


_COMPRESSED: list[Codec] = [codec for codec in CODECS if codec != "NONE"]
_TYPES = {codec: number for number, codec in enumerate(CODECS)}
_TEXT = b"ledger entry offset " * 40


def _decompress(codec: Codec, data: bytes, size: int) -> memoryview:
    return codecs.decompress(_TYPES[codec], memoryview(data), size)


def _literals_only(data: bytes) -> bytes:
    """A raw LZ4 block of one sequence, shorter than 15 bytes."""
    return bytes([len(data) << 4]) + data


@pytest.mark.parametrize("codec", _COMPRESSED)
def test_nothing_decompresses_to_nothing(codec: Codec) -> None:
    """A payload of no bytes, which stands for an empty one, is accepted."""
    assert bytes(_decompress(codec, b"", 0)) == b""


@pytest.mark.parametrize("codec", _COMPRESSED)
@pytest.mark.parametrize("off_by", [-len(_TEXT), -len(_TEXT) + 1, -1, 1, 7, 1000])
def test_wrong_size_is_an_error(build: Build, codec: Codec, off_by: int) -> None:
    """A declared size that the bytes do not decompress to is never believed, larger or smaller."""
    with pytest.raises(CorruptEntryError, match=r"bytes? declared|cannot be|exceeds the"):
        _decompress(codec, compress(codec, _TEXT), len(_TEXT) + off_by)
    assert build is not None


@pytest.mark.parametrize("codec", _COMPRESSED)
def test_cut_bytes_are_an_error(codec: Codec) -> None:
    """Each cut of the compressed bytes is noticed, but of ZLIB's and Snappy's ends without data."""
    payload = random.Random(5).randbytes(300) + _TEXT
    data = compress(codec, payload)

    for length in range(len(data) - 6):
        with pytest.raises(CorruptEntryError):
            _decompress(codec, data[:length], len(payload))


@pytest.mark.parametrize("compression", [-1, 0, 5, 2**31 - 1])
def test_unknown_codec_is_an_error(compression: int) -> None:
    """A compression type that Pulsar does not have is named."""
    with pytest.raises(CorruptEntryError, match=f"unknown compression type {compression}"):
        codecs.decompress(compression, memoryview(b"x"), 1)


@pytest.mark.parametrize("codec", _COMPRESSED)
def test_size_beyond_what_bytes_can_become_allocates_nothing(codec: Codec) -> None:
    """A few bytes that announce gigabytes are refused before any memory is taken for them."""
    before = pa.total_allocated_bytes()

    for size, said in (
        (codecs.MAX_MESSAGE_BYTES, "exceeds the"),
        (codecs.MAX_MESSAGE_BYTES + 1, f"at most {codecs.MAX_MESSAGE_BYTES} are accepted"),
        (2**32 - 1, f"at most {codecs.MAX_MESSAGE_BYTES} are accepted"),
    ):
        with pytest.raises(CorruptEntryError, match=said):
            _decompress(codec, b"12345678", size)

    assert pa.total_allocated_bytes() == before


def test_size_beyond_the_limit_is_an_error_however_long_the_bytes() -> None:
    """No message is believed to be larger than the limit, though its bytes could become it."""
    data = compress("ZSTD", bytes(codecs.MAX_MESSAGE_BYTES + 1))

    with pytest.raises(CorruptEntryError, match=f"at most {codecs.MAX_MESSAGE_BYTES} are accepted"):
        _decompress("ZSTD", data * 100, codecs.MAX_MESSAGE_BYTES + 1)


@pytest.mark.parametrize("codec", _COMPRESSED)
def test_greatest_ratio_of_each_codec_is_accepted(codec: Codec) -> None:
    """What compresses best is no bomb: zeroes come back at the ratio that their codec reaches."""
    payload = bytes(4 << 20)

    assert _decompress(codec, compress(codec, payload), len(payload)) == payload


def _fits(build: Build, codec: Codec, block: bytes, length: int) -> bytes | None:
    out = bytearray(length)
    is_whole = build.codecs.decompress_block(_TYPES[codec], memoryview(block), memoryview(out))
    return bytes(out) if is_whole else None


@pytest.mark.parametrize(
    ("block", "body"),
    [
        (b"\x00", b""),
        (_literals_only(b"abcde"), b"abcde"),
        (b"\xf0\x00" + bytes(15), bytes(15)),
        (b"\xf0\xff\x01" + bytes(15 + 256), bytes(271)),
        (b"\x14a\x01\x00\x50bcdef", b"a" * 9 + b"bcdef"),
        (b"\x1fa\x01\x00\xff\x02\x10b", b"a" * 277 + b"b"),
        (b"\x3fabc\x03\x00\x14\x10d", b"abc" * 14 + b"d"),
        (b"\xf3\x02" + bytes(range(17)) + b"\x11\x00\x10x", bytes([*range(17), *range(7)]) + b"x"),
    ],
)
def test_lz4_blocks(build: Build, block: bytes, body: bytes) -> None:
    """Literals, and matches near and far, short and long; no other length is taken."""
    assert _fits(build, "LZ4", block, len(body)) == body
    for other in {0, len(body) - 1, len(body) + 1, len(body) + 100} - {len(body), -1}:
        assert _fits(build, "LZ4", block, other) is None


@pytest.mark.parametrize("behind", [20, 100], ids=["at the end", "inside"])
@pytest.mark.parametrize("offset", [1, 2, 15, 16, 17, 47, 48, 49, 64, 90])
def test_lz4_matches_of_every_length(build: Build, offset: int, behind: int) -> None:
    """A match gives what stands before it, however long, and wherever the block ends."""
    before, tail = bytes(range(100)), bytes(range(100, 100 + behind))
    for length in [*range(4, 90), 272, 273, 274, 275, 529]:
        block = _sequence(before, offset, length) + _sequence(tail)
        body = bytearray(before)
        for _ in range(length):
            body.append(body[-offset])
        assert _fits(build, "LZ4", block, len(body) + behind) == bytes(body) + tail


def _sequence(literals: bytes, offset: int = 0, length: int = 4) -> bytes:
    """A sequence of an LZ4 block; without an offset, the last."""
    first, second = min(len(literals), 15), min(length - 4, 15)
    sequence = bytes([first << 4 | second]) + _rest(len(literals)) + literals
    return sequence + offset.to_bytes(2, "little") + _rest(length - 4) if offset else sequence


def _rest(length: int) -> bytes:
    """How a length of 15 and more goes on."""
    if length < 15:
        return b""
    full, last = divmod(length - 15, 255)
    return b"\xff" * full + bytes([last])


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\x10",
        b"\xf0",
        b"\xf0\xff",
        b"\x14a\x01",
        b"\x14a\x01\x00",
        b"\xf0\x05abc",
        b"\x14a\x00\x00\x50bcdef",  # an offset of 0
        b"\x14a\x02\x00\x50bcdef",  # from before the block
        b"\x1fa\x01\x00",  # a length without its end
        b"\x1fa\x01\x00\xff",
    ],
)
@pytest.mark.parametrize("length", [0, 1, 9, 14, 400])
def test_bad_lz4_blocks(build: Build, block: bytes, length: int) -> None:
    """A block that is cut, or points before its beginning, has no body of any length."""
    assert _fits(build, "LZ4", block, length) is None


@pytest.mark.parametrize(
    ("block", "body"),
    [
        (b"\x00", b""),
        (b"\x05\x10abcde", b"abcde"),
        (b"\x3d\xf0\x3c" + bytes(61), bytes(61)),
        (b"\x3d\xf4\x3c\x00" + bytes(61), bytes(61)),
        (b"\x3d\xf8\x3c\x00\x00" + bytes(61), bytes(61)),
        (b"\x3d\xfc\x3c\x00\x00\x00" + bytes(61), bytes(61)),
        (b"\x0e\x08abc\x1d\x03", b"abc" * 4 + b"ab"),
        (b"\x43\x08abc\xfe\x03\x00", b"abc" * 22 + b"a"),
        (b"\x43\x08abc\xff\x03\x00\x00\x00", b"abc" * 22 + b"a"),
    ],
)
def test_snappy_blocks(build: Build, block: bytes, body: bytes) -> None:
    """Literals of each width of length, and copies of each width of offset."""
    assert _fits(build, "SNAPPY", block, len(body)) == body
    assert decompress("SNAPPY", block, len(body)) == body


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\x80",
        b"\x80\x80\x80\x80\x08",  # 2**31
        b"\xff" * 12,
        b"\x05",
        b"\x05\x10abcd",
        b"\x05\x10abcdef",
        b"\x05\xf0",
        b"\x05\xf8\x04\x00",
        b"\x05\xfc\xff\xff\xff\xffabcde",
        b"\x05\x00a\x01\x00",  # an offset of 0
        b"\x05\x00a\x01\x02",  # from before the block
        b"\x05\x00a\x01",
        b"\x05\x00a\x0e\x01",
        b"\x05\x00a\x0f\x01\x00\x00",
        b"\x05\x00a\x0f\x01\x00\x00\xff",
        b"\x06\x10abcde",
    ],
)
@pytest.mark.parametrize("length", [0, 5, 6])
def test_bad_snappy_blocks(build: Build, block: bytes, length: int) -> None:
    """A block that is cut, lies of its length, or points before its beginning, has no body."""
    assert _fits(build, "SNAPPY", block, length) is None


def test_single_lz4_message_shows_no_foreign_memory(build: Build) -> None:
    """A block that fills less than was declared gives an error, not what memory held before."""
    short = _literals_only(b"secret")

    with pytest.raises(CorruptEntryError, match="not decompress to the 1000 bytes"):
        _decompress("LZ4", short, 1000)
    assert build is not None


@given(st.sampled_from(CODECS), st.binary(max_size=3000))
def test_what_is_compressed_is_read_by_others(codec: Codec, data: bytes) -> None:
    """Other libraries, and our own way back, must give the bytes that were compressed."""
    number = CODECS.index(codec)

    compressed = codecs.compress(number, data)

    assert decompress(codec, compressed, len(data)) == data
    if number != codecs.NONE:
        assert _decompress(codec, compressed, len(data)) == data


def test_zlib_streams_are_finished() -> None:
    """Not every reader takes a stream without its end, as Java writes it."""
    assert zlib.decompress(codecs.compress(codecs.ZLIB, _TEXT)) == _TEXT


def test_unknown_codec_is_not_written() -> None:
    """Only Pulsar's five codecs have a number."""
    with pytest.raises(OptionError, match="compression type 5"):
        codecs.compress(5, b"")


# Sound and damaged blocks, as other libraries read them


_OWN_TYPES: dict[Codec, int] = {"LZ4": 1, "SNAPPY": 4}
_BLOCKS = st.sampled_from(list(_OWN_TYPES))
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
        is_whole = build.codecs.decompress_block(_OWN_TYPES[codec], memoryview(block), body)
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


@pytest.mark.parametrize("codec", _OWN_TYPES)
@given(block=st.binary(max_size=60), size=st.integers(0, 200))
def test_random_bytes_are_read_alike(codec: Codec, block: bytes, size: int) -> None:
    """Whatever the bytes, both builds give the same, and write to their place alone."""
    pure, compiled = _bodies(codec, block, size, 5)

    assert pure == compiled


# Streams of ZLIB


_LONG_WORDS = st.lists(
    st.sampled_from([b"ledger ", b"e", b"\x00" * 300, b"abcabcabd", bytes(range(256))]), max_size=40
).map(b"".join)
_LONG_PAYLOADS = st.binary(max_size=300) | _LONG_WORDS
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


@given(_LONG_PAYLOADS, _LEVELS, _STRATEGIES, _FLUSHES)
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


@given(_LONG_PAYLOADS, _FLUSHES, st.data())
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
