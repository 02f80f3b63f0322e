"""Pulsar's five compression codecs (`CompressionCodecProvider`), with bounded output.

`decompress` takes the compressed payload of one entry, or of one chunked message after joining. It
returns exactly `uncompressed_size` bytes or raises `CorruptEntryError`. `compress` is the inverse.
"""

from __future__ import annotations

import zlib
from functools import cache

import pyarrow as pa

from arrow_io.core import builds
from arrow_io.core.memory import allocate
from arrow_io.core.wording import counted
from arrow_io.errors import CorruptEntryError, OptionError
from arrow_io.messages import layout

NONE, LZ4, ZLIB, ZSTD, SNAPPY = 0, layout.LZ4, layout.ZLIB, layout.ZSTD, layout.SNAPPY
"""CompressionType of PulsarApi.proto."""

COMPRESSION_TYPES = {"NONE": NONE, "LZ4": LZ4, "ZLIB": ZLIB, "ZSTD": ZSTD, "SNAPPY": SNAPPY}
"""CompressionType by its name in Pulsar."""

_ARROW_CODECS = {LZ4: "lz4_raw", ZSTD: "zstd", SNAPPY: "snappy"}
_LEVELS = {ZSTD: 3}
"""Compression levels of Pulsar's clients that differ from Arrow's defaults."""

MAX_MESSAGE_BYTES = 128 << 20
"""Largest accepted uncompressed size. A broker's own limit is 5 MiB unless configured."""

MAX_RATIO = {LZ4: 255, ZLIB: 1032, SNAPPY: 22, ZSTD: layout.MAX_COMPRESSION_RATIO}
"""Maximum number of bytes that one compressed byte can become (ZSTD: a 128 KiB block from 4
bytes)."""


@cache
def _arrow_codec(compression: int) -> pa.Codec:
    return pa.Codec(_ARROW_CODECS[compression], compression_level=_LEVELS.get(compression))


def decompress(
    compression: int,
    data: memoryview,
    uncompressed_size: int,
    *,
    max_bytes: int = MAX_MESSAGE_BYTES,
) -> memoryview:
    """Decompress one payload to exactly `uncompressed_size` bytes, the length in its metadata.

    `compression` is a CompressionType from 1 to 4.

    Raises:
        CorruptEntryError: The codec is unknown, the size exceeds `max_bytes`, or the bytes do not
            decompress to this size.
    """
    if not LZ4 <= compression <= SNAPPY:
        message = f"unknown compression type {compression}"
        raise CorruptEntryError(message)
    if uncompressed_size > max_bytes:
        message = (
            f"the message has {counted(uncompressed_size, 'byte')} uncompressed; at most"
            f" {max_bytes} are accepted"
        )
        raise CorruptEntryError(message)
    limit = MAX_RATIO[compression] * (len(data) + 16)
    if uncompressed_size > limit:
        message = (
            f"uncompressed size {uncompressed_size} exceeds the {limit} bytes that a payload of "
            f"{counted(len(data), 'byte')} can become"
        )
        raise CorruptEntryError(message)
    if not data and uncompressed_size == 0:
        return data
    is_whole = True
    try:
        if compression == ZLIB:
            # Java's deflater flushes its streams and never finishes them; zlib.decompress refuses
            # such streams.
            result = memoryview(zlib.decompressobj().decompress(data, uncompressed_size + 1))
            is_whole = len(result) == uncompressed_size
        elif compression == ZSTD:
            # Arrow's buffers have signed bytes; the hot loop reads unsigned ones.
            buffer = _arrow_codec(compression).decompress(data, uncompressed_size)
            result = memoryview(buffer).cast("B")
        else:
            result = memoryview(allocate(uncompressed_size)).cast("B")
            is_whole = builds.in_use.codecs.decompress_block(compression, data, result)
    except (zlib.error, OSError, pa.ArrowInvalid) as error:
        message = f"the payload cannot be decompressed: {error}"
        raise CorruptEntryError(message) from error
    if not is_whole:
        declared = counted(uncompressed_size, "byte")
        message = f"the payload does not decompress to the {declared} declared"
        raise CorruptEntryError(message)
    return result


def compress(compression: int, data: bytes) -> bytes:
    """Compress bytes as one payload, in a form that every client of Pulsar can read.

    ZLIB streams are finished, like those of the C++ client; the other codecs have only one form.
    `compression` is a CompressionType from 0 to 4.

    Raises:
        OptionError: The codec is unknown.
    """
    if compression == NONE:
        return data
    if compression == ZLIB:
        return zlib.compress(data)
    if compression not in _ARROW_CODECS:
        message = f"unknown compression type {compression}"
        raise OptionError(message)
    compressed: bytes = _arrow_codec(compression).compress(data, asbytes=True)
    return compressed
