"""What lies at a URL where a topic was looked for, in words: it may be the wrong place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from arrow_io.errors import PulsarOffloadError
from arrow_io.wording import counted
from connector.plain_text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connector.catalog.bucket import Bucket

_SHOWN_NAMES: Final = 5
_SHOWN_CHARACTERS: Final = 80


def what_lies_there(bucket: Bucket) -> str:
    """The URL, how many ledgers are there, and if there are none, what is there instead.

    Sends one request if there are none, for the folders.
    """
    listing, unfinished = bucket.listing, bucket.unfinished
    place = str(listing.location)
    if bucket.copy_count:
        return f"{place} has {counted(bucket.copy_count, 'offloaded ledger')}"
    found = []
    if unfinished:
        found.append(counted(len(unfinished), "data object") + " without an index object")
    if listing.segments:
        found.append(f"{counted(len(listing.segments), 'segment')} of streaming offload (PIP-76)")
    others = [info.name for info in (*listing.foreign, *listing.streaming)]
    if others:
        found.append(f"{counted(len(others), 'other object')} ({_some(others)})")
    try:
        folders = listing.location.list_folders()
    except PulsarOffloadError:
        # This must not hide the error that a topic was not found.
        folders = []
    if folders:
        found.append(f"{counted(len(folders), 'folder')} ({_some(folders)})")
    if not found:
        return f"nothing lies at {place}"
    return f"{place} has no offloaded ledger, but {' and '.join(found)}"


def _some(names: Sequence[str]) -> str:
    shown = [printable(name[:_SHOWN_CHARACTERS]) for name in names[:_SHOWN_NAMES]]
    return ", ".join([*shown, *(["…"] if len(names) > _SHOWN_NAMES else [])])
