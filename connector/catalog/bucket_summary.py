"""What lies at a URL where a topic was looked for, in words: it may be the wrong place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from arrow_io.errors import PulsarOffloadError
from arrow_io.wording import counted
from connector.plain_text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connector.catalog.bucket import BucketContents

_SHOWN_NAMES: Final = 5
_SHOWN_CHARACTERS: Final = 80


def what_lies_there(contents: BucketContents) -> str:
    """The URL, how many ledgers are there, and if there are none, what is there instead.

    Sends one request if there are none, for the folders.
    """
    place = str(contents.location)
    if contents.copies:
        return f"{place} has {counted(len(contents.copies), 'offloaded ledger')}"
    found = []
    if contents.unfinished:
        found.append(counted(len(contents.unfinished), "data object") + " without an index object")
    others = [info.name for info in (*contents.foreign, *contents.streaming)]
    if others:
        found.append(f"{counted(len(others), 'other object')} ({_some(others)})")
    try:
        folders = contents.location.list_folders()
    except PulsarOffloadError:
        # Why a topic is not found shall not be replaced by why this was not found out.
        folders = []
    if folders:
        found.append(f"{counted(len(folders), 'folder')} ({_some(folders)})")
    if not found:
        return f"nothing lies at {place}"
    return f"{place} has no offloaded ledger, but {' and '.join(found)}"


def _some(names: Sequence[str]) -> str:
    shown = [printable(name[:_SHOWN_CHARACTERS]) for name in names[:_SHOWN_NAMES]]
    return ", ".join([*shown, *(["…"] if len(names) > _SHOWN_NAMES else [])])
