"""Saving a catalog as one file and loading it with one read.

The file is gzip-compressed JSON: every index block, every listed object, and the metadata of every
topic. It has no secrets: storage options and the user information of URLs are left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from arrow_io.errors import (
    CorruptSnapshotError,
    FormatError,
    MissingObjectError,
    OptionError,
    StorageError,
)
from arrow_io.storage.location import Location, folder_and_name
from connector.catalog.snapshot.documents import MAX_SNAPSHOT_BYTES, Documents, begins_file
from connector.catalog.snapshot.snapshot_file import SnapshotFile, serialize_snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connector.catalog.snapshot.json import Snapshot

SUFFIX = ".json.gz"
"""The suffix of the name of a catalog snapshot."""

_BEGINNING_BYTES = 1024


def is_snapshot(path: object) -> bool:
    """Return whether a path or URL is that of a catalog snapshot, by its suffix."""
    return str(path).endswith(SUFFIX)


def begins_snapshot(location: Location, name: str) -> bool:
    """Return whether an object starts like a catalog snapshot; reads only its first bytes.

    False if the object cannot be read, for example without permission.
    """
    try:
        return begins_file(bytes(location.read_range(name, 0, _BEGINNING_BYTES).data))
    except (FormatError, MissingObjectError, StorageError):
        return False


def save_snapshot(
    snapshot: Snapshot, path: str, storage_options: Mapping[str, object] | None = None
) -> None:
    """Write a catalog snapshot to a path or URL that ends with `.json.gz`.

    Raises:
        OptionError: The path has another suffix, or the catalog is too large for a snapshot.
        StorageError: The store refused, or all attempts failed.
    """
    location, name = _location_and_name(path, storage_options)
    location.write_object(name, serialize_snapshot(snapshot), user_metadata={})


def load_snapshot(
    path: str,
    location: Location,
    *,
    buckets: Mapping[str, str] | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> SnapshotFile:
    """Read a catalog snapshot: one request. Topics are parsed on first use.

    `location` is the bucket of the ledgers' objects; its trace counts the request. `buckets` has
    the URLs of other buckets that have moved since the snapshot was saved.

    Raises:
        OptionError: The path has another suffix, or cannot be used.
        CorruptSnapshotError: It is not a catalog snapshot, is damaged, or has an unknown version.
        MissingObjectError: There is no such file.
        StorageError: The store refused, or all attempts failed.
    """
    folder, name = _location_and_name(path, storage_options)
    folder = replace(folder, trace=location.trace)
    try:
        content = folder.read_object(name, max_bytes=MAX_SNAPSHOT_BYTES)
    except FormatError as error:
        raise CorruptSnapshotError(error.message, object_key=name) from None
    return SnapshotFile(Documents(content.data, name), location, buckets or {})


def _location_and_name(
    path: str, storage_options: Mapping[str, object] | None
) -> tuple[Location, str]:
    folder, name = folder_and_name(path)
    if not is_snapshot(name):
        message = f"the name of a catalog snapshot must end with {SUFFIX}, unlike {name!r}"
        raise OptionError(message)
    return Location(folder or ".", storage_options), name
