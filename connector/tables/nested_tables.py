"""Which files below a table's folder belong to another table, whose folder is inside of it.

A table in `lake` and others in `lake/<topic>` are legal. A listing of the first has the files of
all, and its own manifests or log name none of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from connector.tables.state_file import STATE_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterable

_MARKER: Final = re.compile(
    rf"(?P<folder>.+?)/(?:(?:_delta_log|{STATE_FOLDER})/.*|metadata/[^/]*\.metadata\.json)"
)
"""Matches a file that only the folder of a table has, below another folder."""


def nested_folders(names: Iterable[str]) -> tuple[str, ...]:
    """Return the folders of other tables among the names of a table's folder; each ends in `/`.

    Example:
        >>> nested_folders(["a.parquet", "_delta_log/0.json", "b/_delta_log/0.json", "b/c.parquet"])
        ('b/',)
    """
    matches = map(_MARKER.fullmatch, names)
    return tuple(dict.fromkeys(f"{match['folder']}/" for match in matches if match))
