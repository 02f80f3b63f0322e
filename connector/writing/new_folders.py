"""Local folders that writing makes, so that a failure can leave none of them behind."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from arrow_io.storage.location import Location

_LOCAL: Final = ("file://", "local://")


class NewFolders:
    """The local folders on the way to a location that are not there yet.

    Object stores have no folders, so there are none to be made or removed.

    Args:
        location: Where something will be written.
    """

    def __init__(self, location: Location) -> None:
        path = _local_path(location)
        ways = () if path is None else (path, *path.parents)
        self._absent = [each for each in ways if not each.exists()]

    def remove(self) -> None:
        """Remove those that are there now, unless something is in them."""
        for folder in self._absent:
            # One that is not empty is someone else's by now.
            with contextlib.suppress(OSError):
                folder.rmdir()


def remove_if_empty(location: Location) -> None:
    """Remove a local folder, unless something is in it."""
    path = _local_path(location)
    if path is not None:
        with contextlib.suppress(OSError):
            path.rmdir()


def _local_path(location: Location) -> Path | None:
    url = location.url
    for scheme in _LOCAL:
        url = url.removeprefix(scheme)
    return None if "://" in url or "::" in url else Path(url)
