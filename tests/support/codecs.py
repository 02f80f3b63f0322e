"""Compression of payloads for tests, apart from what is under test: one payload at a time.

Names and forms follow Pulsar's `CompressionCodecProvider`: LZ4 is one raw block, ZLIB is flushed
but never finished, ZSTD is a standard frame, SNAPPY is a raw block.
"""

from __future__ import annotations

import zlib
from typing import Final, Literal, TypeAlias

import cramjam
import lz4.block
import zstandard

from tests.support.pulsar_proto import varint

Codec: TypeAlias = Literal["NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"]

CODECS: Final[tuple[Codec, ...]] = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")


def compress(codec: Codec, data: bytes, *, other_client: bool = False) -> bytes:
    """Compress a payload as Pulsar's Java client does.

    Args:
        codec: Pulsar's name of the codec.
        data: The payload, of any length.
        other_client: Write the equally legal form that a reader must accept from other clients: a
            finished ZLIB stream, a ZSTD frame without content size. No effect on other codecs.

    Returns:
        The compressed bytes.
    """
    match codec:
        case "NONE":
            return data
        case "LZ4":
            return bytes(lz4.block.compress(data, store_size=False))
        case "ZLIB":
            compressor = zlib.compressobj()
            flush_mode = zlib.Z_FINISH if other_client else zlib.Z_SYNC_FLUSH
            return compressor.compress(data) + compressor.flush(flush_mode)
        case "ZSTD":
            return zstandard.ZstdCompressor(write_content_size=not other_client).compress(data)
        case "SNAPPY":
            return bytes(cramjam.snappy.compress_raw(data))


def decompress(codec: Codec, data: bytes, uncompressed_size: int) -> bytes:
    """Decompress a payload.

    Args:
        codec: Pulsar's name of the codec.
        data: The compressed bytes.
        uncompressed_size: The exact length of the result, in bytes; ignored for `NONE`.

    Returns:
        The payload.

    Raises:
        ValueError: The result has another length.
    """
    match codec:
        case "NONE":
            return data
        case "LZ4":
            payload = bytes(lz4.block.decompress(data, uncompressed_size=uncompressed_size))
        case "ZLIB":
            payload = zlib.decompressobj().decompress(data, uncompressed_size + 1)
        case "ZSTD":
            # An output bound of 0 would mean "no bound"; content size may be absent.
            payload = zstandard.ZstdDecompressor().decompress(
                data, max_output_size=uncompressed_size + 1
            )
        case "SNAPPY":
            payload = bytes(cramjam.snappy.decompress_raw(data))
    if len(payload) != uncompressed_size:
        message = f"{codec} gave {len(payload)} bytes where {uncompressed_size} were announced"
        raise ValueError(message)
    return payload


def compressed_managed_ledger(codec: Codec, data: bytes, size: int | None = None) -> bytes:
    """The compressed form of a ManagedLedgerInfo, by other libraries than ours."""
    sizes = varint(CODECS.index(codec)), varint(len(data) if size is None else size)
    header = b"\x08" + sizes[0] + b"\x10" + sizes[1]
    return b"\x47\x78" + len(header).to_bytes(4) + header + compress(codec, data)
