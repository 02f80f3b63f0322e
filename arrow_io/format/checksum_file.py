"""The `.crc` files that Hadoop's `LocalFileSystem` (`ChecksumFileSystem`) writes beside files.

====== ============== =========================================================
Size   Field          Value
====== ============== =========================================================
4      magic          `63 72 63 00`
4      chunk length   i32, bytes of the file for each checksum, usually 512
4 * n  checksums      u32, CRC-32 of each chunk of the file; the last is shorter
====== ============== =========================================================

All numbers are big-endian. The checksums of `NAME` are in the hidden file `.NAME.crc`. Hadoop
refuses a file that does not match them.
"""

from __future__ import annotations

import struct
from typing import Final
from zlib import crc32

from arrow_io.core.wording import counted
from arrow_io.errors import ChecksumError, UnknownFormatError

CHUNK_BYTES: Final = 512
"""Hadoop's default of `file.bytes-per-checksum`."""
_MAX_CHUNK_BYTES: Final = 16 << 20
_MAGIC: Final = b"crc\0"
_HEADER: Final = struct.Struct(">4si")
_CHECKSUM: Final = struct.Struct(">I")
HEADER_BYTES: Final = _HEADER.size


def checksum_file(data: bytes) -> bytes:
    """Return the checksum file of a file with these bytes, as Hadoop writes it."""
    view = memoryview(data)
    checksums = [
        crc32(view[start : start + CHUNK_BYTES]) for start in range(0, len(view), CHUNK_BYTES)
    ]
    return _HEADER.pack(_MAGIC, CHUNK_BYTES) + struct.pack(f">{len(checksums)}I", *checksums)


def chunk_bytes(data: bytes) -> int:
    """Return the number of bytes of a file for each checksum.

    Args:
        data: The first bytes of the checksum file.

    Raises:
        UnknownFormatError: The bytes are not the header of a checksum file.
    """
    if len(data) >= HEADER_BYTES:
        magic, length = _HEADER.unpack_from(data)
        if magic == _MAGIC and 0 < length <= _MAX_CHUNK_BYTES:
            return int(length)
    message = f"not a checksum file of Hadoop: it begins with {bytes(data[:HEADER_BYTES])!r}"
    raise UnknownFormatError(message, offset=0)


def check_checksums(data: bytes | memoryview, start: int, checksums: bytes, length: int) -> None:
    """Compare a part of a file with its checksums.

    Args:
        data: Bytes of the file.
        start: Position of their first byte in the file, at the start of a chunk.
        checksums: The checksum file without its header, from the first of these chunks on.
        length: Bytes for each checksum.

    Raises:
        ChecksumError: The bytes differ, or a chunk has no checksum.
    """
    view = memoryview(data)
    for index, at in enumerate(range(0, len(view), length)):
        expected = checksums[index * _CHECKSUM.size : (index + 1) * _CHECKSUM.size]
        if expected != _CHECKSUM.pack(crc32(view[at : at + length])):
            what = "differ from their CRC-32" if len(expected) == _CHECKSUM.size else "have none"
            count = counted(len(view[at : at + length]), "byte")
            message = f"{count} from {start + at} on {what} in the checksum file"
            raise ChecksumError(message, offset=start + at)
