"""What lies at a URL where a topic was looked for, in words: it may be the wrong place."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from arrow_io.core.wording import counted
from arrow_io.errors import PulsarOffloadError, UnsupportedFormatError
from connector.catalog.kinds import kind_of
from connector.display.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arrow_io.storage.location import Location
    from connector.catalog.bucket import Bucket

_SHOWN_NAMES: Final = 5
_SHOWN_CHARACTERS: Final = 80
_MAP_FILES: Final = "MapFiles of Pulsar's filesystem offloader"
_MAP_FILE: Final = re.compile(r"\d{1,19}-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DEEPEST: Final = 5
"""Slashes in the longest path that is looked at."""
_MOST_LISTINGS: Final = 16


def what_lies_there(bucket: Bucket) -> str:
    """The URL, how many ledgers are there, and if there are none, what is there instead.

    Sends one request if there are none, for the folders, and a few that look for MapFiles in them.
    """
    listing = bucket.listing
    place = str(listing.location)
    if bucket.copy_count:
        return f"{place} has {counted(bucket.copy_count, 'offloaded ledger')}"
    found = []
    unfinished = [each for each in bucket.unfinished if each.name.ledger_id is not None]
    if unfinished:
        found.append(counted(len(unfinished), "data object") + " without an index object")
    for kind, count in Counter(map(kind_of, bucket.nameless)).items():
        found.append(f"{counted(count, kind.unit)} of {kind.title}")
    others = [info.name for info in listing.foreign]
    others += [each.data.name for each in bucket.unfinished if each.name.ledger_id is None]
    if others:
        found.append(f"{counted(len(others), 'other object')} ({_some(others)})")
    try:
        folders = listing.location.list_folders()
    except PulsarOffloadError:
        # This must not hide the error that a topic was not found.
        folders = []
    map_file = _map_file(listing.location, folders)
    if map_file is not None:
        found.append(f"{_MAP_FILES} ({printable(map_file)})")
    elif folders:
        found.append(f"{counted(len(folders), 'folder')} ({_some(folders)})")
    if not found:
        return f"nothing lies at {place}"
    return f"{place} has no offloaded ledger, but {' and '.join(found)}"


def check_no_map_files(bucket: Bucket) -> None:
    """Refuse a place whose ledgers are MapFiles: it looks empty, and is not.

    Raises:
        UnsupportedFormatError: It has MapFiles.
    """
    text = what_lies_there(bucket)
    if _MAP_FILES in text:
        message = f"{text}, which cannot be read yet"
        raise UnsupportedFormatError(message)


def _map_file(location: Location, folders: Sequence[str]) -> str | None:
    """The path of a MapFile, a folder that the filesystem offloader makes for a ledger.

    It is `<tenant>/<namespace>/persistent/<topic>/<ledgerId>-<uuid>`, perhaps in another folder.
    """
    waiting = [(location, "", name) for name in reversed(folders)]
    for _ in range(_MOST_LISTINGS):
        if not waiting:
            return None
        parent, path, name = waiting.pop()
        path += name
        if _MAP_FILE.fullmatch(name):
            return path
        if path.count("/") >= _DEEPEST:
            continue
        place = parent.child(name)
        with suppress(PulsarOffloadError):
            waiting += [(place, f"{path}/", each) for each in reversed(place.list_folders())]
    return None


def _some(names: Sequence[str]) -> str:
    shown = [printable(name[:_SHOWN_CHARACTERS]) for name in names[:_SHOWN_NAMES]]
    return ", ".join([*shown, *(["…"] if len(names) > _SHOWN_NAMES else [])])
