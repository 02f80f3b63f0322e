"""A description of what a URL holds, for errors about a topic that was not found there."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from arrow_io.core.wording import counted
from arrow_io.errors import PulsarOffloadError
from connector.catalog.kinds.registry import kind_of
from connector.display.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arrow_io.storage.location import Location
    from connector.catalog.bucket import Bucket

_SHOWN_NAMES: Final = 5
_SHOWN_CHARACTERS: Final = 80
_MAP_FILE: Final = re.compile(r"\d{1,19}-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MAP_FILE_DEPTH: Final = 4
"""Number of folders that a MapFile is in, below the URL that finds it."""
_DEEPEST: Final = 6
"""Maximum number of slashes in a path that is searched for MapFiles."""
_MAX_LISTINGS: Final = 16


def describe_contents(bucket: Bucket) -> str:
    """Return a sentence with the URL and its number of ledgers, or with its other contents.

    Without ledgers, it lists the folders and sends a few requests to look for MapFiles in them.
    """
    listing = bucket.listing
    url = str(listing.location)
    if bucket.copy_count:
        return f"{url} has {counted(bucket.copy_count, 'offloaded ledger')}"
    parts = []
    unfinished = [each for each in bucket.unfinished if each.name.ledger_id is not None]
    if unfinished:
        parts.append(counted(len(unfinished), "data object") + " without an index object")
    for kind, count in Counter(map(kind_of, bucket.shared_pair_names)).items():
        parts.append(f"{counted(count, kind.unit)} of {kind.title}")
    other_names = [info.name for info in listing.foreign]
    other_names += [each.data.name for each in bucket.unfinished if each.name.ledger_id is None]
    if other_names:
        parts.append(f"{counted(len(other_names), 'other object')} ({_some(other_names)})")
    try:
        folders = listing.location.list_folders()
    except PulsarOffloadError:
        # The caller reports that a topic was not found, which is more useful than this error.
        folders = []
    path = _map_file_path(listing.location, folders)
    if path is not None:
        parts.append(f"MapFiles of the filesystem driver, found by the URL of {_base(path)}")
    elif folders:
        parts.append(f"{counted(len(folders), 'folder')} ({_some(folders)})")
    if not parts:
        return f"there is nothing at {url}"
    text = f"{url} has no offloaded ledger, but {' and '.join(parts)}"
    return f"{text}; {listing.search_gap}" if listing.search_gap else text


def _base(path: str) -> str:
    """Return words for the folder whose URL finds a MapFile that is not directly below the URL."""
    depth = path.count("/")
    if depth < _MAP_FILE_DEPTH:
        return f"the folder {counted(_MAP_FILE_DEPTH - depth, 'level')} above it"
    return f"its folder {printable(path.rsplit('/', _MAP_FILE_DEPTH + 1)[0])}"


def _map_file_path(location: Location, folders: Sequence[str]) -> str | None:
    """Return the path of a folder that the filesystem driver wrote, if one is found quickly."""
    stack = [(location, "", name) for name in reversed(folders)]
    for _ in range(_MAX_LISTINGS):
        if not stack:
            return None
        parent, path, name = stack.pop()
        path += name
        if path.count("/") != _MAP_FILE_DEPTH and _MAP_FILE.fullmatch(name):
            return path
        if path.count("/") >= _DEEPEST:
            continue
        folder = parent.child(name)
        with suppress(PulsarOffloadError):
            stack += [(folder, f"{path}/", each) for each in reversed(folder.list_folders())]
    return None


def _some(names: Sequence[str]) -> str:
    shown = [printable(name[:_SHOWN_CHARACTERS]) for name in names[:_SHOWN_NAMES]]
    return ", ".join([*shown, *(["…"] if len(names) > _SHOWN_NAMES else [])])
