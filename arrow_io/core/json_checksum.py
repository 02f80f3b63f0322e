"""A checksum stored inside a JSON document, so that a damaged copy is detected."""

from __future__ import annotations

import json
import zlib


def json_crc32(value: object) -> int:
    """Return the CRC-32 of a JSON value, regardless of white space and the order of keys.

    Raises:
        RecursionError: The value is nested too deeply.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return zlib.crc32(text.encode())
