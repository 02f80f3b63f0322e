"""A catalog in one file, so that opening it again takes one read.

The file is JSON, compressed by gzip: every index block, what the listing said of every object, and
what the cluster's metadata said of every topic. Nothing of it is secret: storage options are not in
it, nor is the URL's user information.
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
"""How the name of a snapshot ends."""

_BEGINNING_BYTES = 1024


def is_snapshot(path: object) -> bool:
    """Whether a path or URL is that of a snapshot, by how it ends."""
    return str(path).endswith(SUFFIX)


def begins_snapshot(location: Location, name: str) -> bool:
    """Whether an object begins as a snapshot does; only its first bytes are read.

    What cannot be read, as for want of a permission, does not.

    Args:
        location: Where it is.
        name: Name of the object.
    """
    try:
        return begins_file(bytes(location.read_range(name, 0, _BEGINNING_BYTES).data))
    except (FormatError, MissingObjectError, StorageError):
        return False


def save_snapshot(
    snapshot: Snapshot, path: str, storage_options: Mapping[str, object] | None = None
) -> None:
    """Write a snapshot.

    Args:
        snapshot: What to write.
        path: Path or URL of the file; ends with `.json.gz`.
        storage_options: Options of the fsspec file system of the path.

    Raises:
        OptionError: The path ends otherwise, or the catalog is too large for a snapshot.
        StorageError: The store refused, or went on failing.
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
    """Read a snapshot: one request. What is said of a topic is parsed when it is asked for.

    Args:
        path: Path or URL of the file.
        location: Where the bucket's objects are; its trace counts this request too.
        buckets: Where other buckets are, if not where they were.
        storage_options: Options of the fsspec file system of the path.

    Raises:
        OptionError: The path ends otherwise than a snapshot's, or cannot be used.
        CorruptSnapshotError: It is not a snapshot, is damaged, or is of a version that is not
            known.
        MissingObjectError: There is no such file.
        StorageError: The store refused, or went on failing.
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
        message = f"the name of a snapshot ends with {SUFFIX}, unlike {name!r}"
        raise OptionError(message)
    return Location(folder or ".", storage_options), name
