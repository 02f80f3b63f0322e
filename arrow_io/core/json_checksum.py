"""The checksum that JSON carries of itself, so that a damaged copy is not believed."""

from __future__ import annotations

import json
import zlib


def json_crc32(value: object) -> int:
    """Return the CRC-32 of a JSON value: of its meaning, whatever its white space and order.

    Raises:
        RecursionError: The value is nested too deeply.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return zlib.crc32(text.encode())
