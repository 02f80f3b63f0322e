"""State files of a table: JSON objects with a number, which their name repeats, and a checksum.

```
{"format": 1, "number": 2, "progress": "…", …, "crc32": 2774351021}
```

`crc32` is the checksum of all other members. A copy refuses a file that was truncated, changed or
copied to another name.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from arrow_io.core.json_checksum import json_crc32

if TYPE_CHECKING:
    from collections.abc import Mapping

STATE_FOLDER: Final = "_pulsar_offload"
"""The folder of state files, below the table's folder."""
_FORMAT: Final = 1


def encode_state(number: int, content: Mapping[str, object]) -> bytes:
    """Return the bytes of a state file. `content` lacks `format`, `number` and `crc32`."""
    body = {"format": _FORMAT, "number": number, **content}
    return json.dumps({**body, "crc32": json_crc32(body)}, indent=1).encode()


def decode_state(data: bytes, number: int, members: Mapping[str, type]) -> dict[str, Any]:
    """Return the content of a state file, after checking its number, checksum and members.

    Raises:
        ValueError: The file was truncated or changed, or is a copy of another file.
    """
    try:
        body: Any = json.loads(data)
        checksum = body.pop("crc32", None) if isinstance(body, dict) else None
        expected = json_crc32(body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it was truncated or changed: {error}") from None
    if checksum is None:
        raise ValueError("it has no checksum (crc32): this release did not write it")
    # `type`, not `isinstance`: a bool is an `int` too.
    if type(checksum) is not int or checksum != expected:
        raise ValueError("it was truncated or changed: its checksum does not match its content")
    if body.get("format") != _FORMAT:
        raise ValueError(f"its format is {body.get('format')!r}, and this release reads {_FORMAT}")
    if body.get("number") != number:
        raise ValueError(f"it is a copy of another file, number {body.get('number')!r}")
    check_members(body, members)
    return dict(body)


def check_members(content: Mapping[str, object], members: Mapping[str, type]) -> None:
    """Check the types of a state file's members.

    Raises:
        ValueError: A member is missing, or has another type.
    """
    for name, member_type in members.items():
        if type(content.get(name)) is not member_type:
            raise ValueError(f"its {name} is malformed: {content.get(name)!r:.100}")
