"""The checksum of entries, for the source of the core; the compiled build has `_checksum.pxd`."""

from __future__ import annotations

import crc32c as package


def crc32c(p: memoryview, i: int, n: int) -> int:
    """The CRC32C of the `n` bytes from `p[i]` on, unsigned."""
    return package.crc32c(p[i : i + n])


def choose_crc32c(fastest: int) -> int:
    """Nothing is chosen: the package knows one way. Gives 0."""
    del fastest
    return 0
