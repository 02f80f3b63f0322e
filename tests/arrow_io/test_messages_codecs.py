"""Every codec of Pulsar gives exactly the bytes that were compressed, or a typed error."""

from __future__ import annotations

import random
import zlib
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import CorruptEntryError, OptionError
from arrow_io.messages import codecs
from tests.support.builds import BUILDS, using_build
from tests.support.codecs import CODECS, Codec, compress, decompress

if TYPE_CHECKING:
    from arrow_io.core.builds import Build

_COMPRESSED: list[Codec] = [codec for codec in CODECS if codec != "NONE"]
_TYPES = {codec: number for number, codec in enumerate(CODECS)}
_TEXT = b"ledger entry offset " * 40
_BLOCKS: list[Codec] = ["LZ4", "SNAPPY"]


def _decompress(
    codec: Codec, data: bytes, size: int, *, is_size_trusted: bool = False
) -> memoryview:
    return codecs.decompress(_TYPES[codec], memoryview(data), size, is_size_trusted=is_size_trusted)


def _literals_only(data: bytes) -> bytes:
    """A raw LZ4 block of one sequence, shorter than 15 bytes."""
    return bytes([len(data) << 4]) + data


@pytest.mark.parametrize("other_client", [False, True], ids=["java", "other"])
@pytest.mark.parametrize("codec", _COMPRESSED)
@pytest.mark.parametrize("is_size_trusted", [False, True], ids=["compared", "trusted"])
@pytest.mark.parametrize("payload", [b"", b"a", _TEXT, bytes(1 << 17)], ids=len)
def test_codec_gives_what_was_compressed(
    build: Build, codec: Codec, payload: bytes, *, is_size_trusted: bool, other_client: bool
) -> None:
    """The forms that Java's client and others write both decompress, the empty payload too."""
    data = compress(codec, payload, other_client=other_client)

    result = _decompress(codec, data, len(payload), is_size_trusted=is_size_trusted)

    assert result == payload
    assert result.format == "B"
    assert build is not None


@pytest.mark.parametrize("codec", _COMPRESSED)
def test_nothing_decompresses_to_nothing(codec: Codec) -> None:
    """A payload of no bytes, which stands for an empty one, is accepted."""
    assert bytes(_decompress(codec, b"", 0)) == b""


@pytest.mark.parametrize("codec", _COMPRESSED)
@pytest.mark.parametrize("off_by", [-len(_TEXT), -len(_TEXT) + 1, -1, 1, 7, 1000])
def test_wrong_size_is_an_error(build: Build, codec: Codec, off_by: int) -> None:
    """A declared size that the bytes do not decompress to is never believed, larger or smaller."""
    with pytest.raises(CorruptEntryError, match=r"bytes? declared|cannot be|is beyond"):
        _decompress(codec, compress(codec, _TEXT), len(_TEXT) + off_by)
    assert build is not None


@pytest.mark.parametrize("codec", ["ZLIB", "ZSTD", "SNAPPY"])
@pytest.mark.parametrize("off_by", [-1, 1, 1000])
def test_wrong_size_is_an_error_though_a_checksum_vouches_for_it(codec: Codec, off_by: int) -> None:
    """Where it costs nothing, what a producer wrote is compared too."""
    with pytest.raises(CorruptEntryError, match=r"bytes? declared|cannot be|is beyond"):
        _decompress(codec, compress(codec, _TEXT), len(_TEXT) + off_by, is_size_trusted=True)


@pytest.mark.parametrize("codec", _COMPRESSED)
@pytest.mark.parametrize("size", [100, len(_TEXT)])
def test_bytes_that_are_not_compressed_are_an_error(codec: Codec, size: int) -> None:
    """Garbage does not decompress."""
    garbage = random.Random(3).randbytes(100)

    with pytest.raises(CorruptEntryError):
        _decompress(codec, garbage, size)


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
        codecs.decompress(compression, memoryview(b"x"), 1, is_size_trusted=False)


@pytest.mark.parametrize("codec", _COMPRESSED)
def test_size_beyond_what_bytes_can_become_allocates_nothing(codec: Codec) -> None:
    """A few bytes that announce gigabytes are refused before any memory is taken for them."""
    before = pa.total_allocated_bytes()

    for size in (codecs.MAX_MESSAGE_BYTES, codecs.MAX_MESSAGE_BYTES + 1, 2**32 - 1):
        with pytest.raises(CorruptEntryError, match="is beyond the"):
            _decompress(codec, b"12345678", size)

    assert pa.total_allocated_bytes() == before


def test_size_beyond_the_limit_is_an_error_however_long_the_bytes() -> None:
    """No message is believed to be larger than the limit, though its bytes could become it."""
    data = compress("ZSTD", bytes(codecs.MAX_MESSAGE_BYTES + 1))

    with pytest.raises(CorruptEntryError, match=f"beyond the {codecs.MAX_MESSAGE_BYTES} bytes"):
        _decompress("ZSTD", data * 100, codecs.MAX_MESSAGE_BYTES + 1)


@pytest.mark.parametrize("codec", _COMPRESSED)
def test_greatest_ratio_of_each_codec_is_accepted(codec: Codec) -> None:
    """What compresses best is no bomb: zeroes come back at the ratio that their codec reaches."""
    payload = bytes(4 << 20)

    assert _decompress(codec, compress(codec, payload), len(payload)) == payload


@pytest.mark.parametrize(
    ("block", "length"),
    [
        (b"", 0),
        (b"\x00", 0),
        (_literals_only(b"abcde"), 5),
        (b"\xf0\x00" + bytes(15), 15),
        (b"\xf0\xff\x01" + bytes(15 + 256), 271),
        (b"\x14a\x01\x00\x50bcdef", 1 + 8 + 5),
        (b"\x1fa\x01\x00\xff\x02\x10b", 1 + 19 + 257 + 1),
    ],
)
def test_length_of_lz4_blocks(build: Build, block: bytes, length: int) -> None:
    """A block's own length is the sum of its literals and matches."""
    assert build.entries.lz4_block_length(memoryview(block)) == length


@pytest.mark.parametrize(
    "block", [b"\x10", b"\xf0", b"\xf0\xff", b"\x14a\x01", b"\x14a\x01\x00", b"\xf0\x05abc"]
)
def test_length_of_cut_lz4_blocks(build: Build, block: bytes) -> None:
    """A block that ends within a sequence has no length."""
    assert build.entries.lz4_block_length(memoryview(block)) == -1


@pytest.mark.parametrize(
    ("block", "length"),
    [
        (b"\x00", 0),
        (b"\x05rest", 5),
        (b"\x80\x01", 128),
        (b"\xff\xff\xff\xff\x07", 2**31 - 1),
        (b"", -1),
        (b"\x80", -1),
        (b"\x80\x80\x80\x80\x08", -1),
        (b"\xff" * 12, -1),
    ],
)
def test_length_of_snappy_blocks(build: Build, block: bytes, length: int) -> None:
    """The preamble tells the length; one that is cut or beyond what can be held tells none."""
    assert build.entries.snappy_block_length(memoryview(block)) == length


@given(payload=st.binary(max_size=300), data=st.data())
def test_lengths_of_damaged_blocks_never_disagree(payload: bytes, data: st.DataObject) -> None:
    """Whatever the bytes, both builds give one length, and decompression gives that or fails."""
    codec = data.draw(st.sampled_from(_BLOCKS))
    damaged = bytearray(compress(codec, payload))
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    name = f"{codec.lower()}_block_length"
    block = memoryview(bytes(damaged))
    lengths = {getattr(build.entries, name)(block) for build in BUILDS.values()}

    assert len(lengths) == 1
    for build in BUILDS:
        with using_build(build):
            try:
                result = _decompress(codec, bytes(damaged), len(payload))
            except CorruptEntryError:
                continue
            assert lengths == {len(result)} == {len(payload)}


def test_single_lz4_message_shows_no_foreign_memory(build: Build) -> None:
    """A block that fills less than was declared gives an error, not what memory held before."""
    short = _literals_only(b"secret")

    with pytest.raises(CorruptEntryError, match="not decompress to the 1000 bytes"):
        _decompress("LZ4", short, 1000)
    assert build is not None


def test_short_lz4_block_of_a_trusted_size_is_seen_by_its_end() -> None:
    """Where a checksum vouches for the size, what Arrow leaves unfilled is still not given."""
    data = compress("LZ4", _TEXT)

    with pytest.raises(CorruptEntryError, match="does not decompress to the"):
        _decompress("LZ4", data, len(_TEXT) + 40, is_size_trusted=True)


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
