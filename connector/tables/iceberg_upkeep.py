"""Upkeep of Iceberg tables that PyIceberg does not offer: unneeded files, and expired snapshots."""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from typing import TYPE_CHECKING, Final

from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.utils.properties import property_as_int

from arrow_io.errors import LakeTableError
from arrow_io.storage.redaction import redacted_urls
from connector.display.text import size_text
from connector.tables.nested_tables import nested_folders

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime, timedelta

    from pyiceberg.io import InputFile
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table

_FOLDERS: Final = ("data/", "metadata/")
"""Where files of a table are; others below its folder may be those of another program."""
_VERSION_HINT: Final = "metadata/version-hint.text"
"""Names the current metadata file, for engines that read a table without its catalog."""
_METADATA_FILE: Final = re.compile(r"metadata/[^/]*\.metadata\.json(?:\.gz)?")
"""Matches the name of a metadata file, which may be compressed."""
_GZIP: Final = b"\x1f\x8b"
_MAX_METADATA_BYTES: Final = 64 << 20
"""Maximum length of a metadata file that is not the table's current one, also unpacked."""
_MIN_SNAPSHOTS: Final = "history.expire.min-snapshots-to-keep"
_MAX_AGE: Final = "history.expire.max-snapshot-age-ms"
_ROOT: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?")
"""Matches a URL's scheme and host."""


def needed_files(table: Table) -> set[str]:
    """Return the URLs of all files that the table's metadata refers to, directly or not."""
    metadata = table.metadata
    needed = {table.metadata_location, *(each.metadata_file for each in metadata.metadata_log)}
    needed |= {each.statistics_path for each in metadata.statistics}
    needed |= {each.statistics_path for each in metadata.partition_statistics}
    manifests: dict[str, ManifestFile] = {}
    for snapshot in metadata.snapshots:
        needed.add(snapshot.manifest_list)
        manifests |= {each.manifest_path: each for each in snapshot.manifests(table.io)}
    for path, manifest in manifests.items():
        needed.add(path)
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        needed |= {each.data_file.file_path for each in entries}
    return needed


def unneeded_names(names: Iterable[str], needed: set[str], folder_url: str) -> Iterator[str]:
    """Iterate over the names, relative to the table's folder, that no URL refers to.

    Args:
        names: Names of all files below the table's folder.
        needed: URLs of the files that the table needs.
        folder_url: URL of the table's folder.
    """
    names = list(names)
    nested = nested_folders(names)
    prefix = _path(folder_url).rstrip("/") + "/"
    needed_names = {_path(each).removeprefix(prefix) for each in needed}
    for name in names:
        is_own = name.startswith(_FOLDERS) and not name.startswith(nested)
        if is_own and name not in needed_names and name != _VERSION_HINT:
            yield name


def check_folder(table: Table, unneeded: Iterable[str], folder_url: str) -> None:
    """Raise `LakeTableError` if files that a table does not need may be those of another table.

    Args:
        table: The table.
        unneeded: Names of files in its folder, relative to it.
        folder_url: URL of the folder.
    """
    for name in unneeded:
        if _METADATA_FILE.fullmatch(name) is None:
            continue
        uuid = _read_uuid(table.io.new_input(f"{folder_url.rstrip('/')}/{name}"))
        if uuid not in {None, str(table.metadata.table_uuid)}:
            message = (
                f"the folder of the Iceberg table {'.'.join(table.name())} has metadata of another"
                f" table, such as {name}: no file was deleted, since it may belong to either. If"
                " the other table was dropped, delete its metadata files; otherwise, copy one of"
                " them to another folder"
            )
            raise LakeTableError(message)


def _read_uuid(file: InputFile) -> str | None:
    """Return the UUID of a metadata file's table, or None if no table has the file.

    Such a file is truncated, because its writer was killed, or was deleted since it was listed.

    Raises:
        LakeTableError: The file is too long to be read.
    """
    try:
        with file.open() as stream:
            data = stream.read(_MAX_METADATA_BYTES + 1)
        if data.startswith(_GZIP):
            # It may be many times as long as its compressed form.
            with gzip.open(io.BytesIO(data)) as unpacked:
                data = unpacked.read(_MAX_METADATA_BYTES + 1)
        content = None if len(data) > _MAX_METADATA_BYTES else json.loads(data)
    except (ValueError, RecursionError, EOFError, FileNotFoundError, gzip.BadGzipFile, zlib.error):
        return None
    if len(data) > _MAX_METADATA_BYTES:
        message = (
            f"{redacted_urls(file.location)} is longer than {size_text(_MAX_METADATA_BYTES)}, so it"
            " was not read, and no file was deleted, since it may belong to another table. If no"
            " table has it, delete it"
        )
        raise LakeTableError(message)
    return str(content.get("table-uuid")) if isinstance(content, dict) else None


def expired_snapshots(table: Table, now: datetime, age: timedelta) -> list[int]:
    """Return the ids of snapshots that were replaced longer ago than an age, and are not kept.

    Branches and tags keep their snapshot. As in Iceberg, a branch also keeps as many of its latest
    snapshots as its `min-snapshots-to-keep`, and those younger than its `max-snapshot-age-ms`; for
    branches without these, the properties `history.expire.…` of the table apply.

    Args:
        table: The table.
        now: The current time, with time zone.
        age: Minimum age of expired snapshots. A larger one of the branch has precedence.
    """
    metadata = table.metadata
    properties = metadata.properties
    now_ms, age_ms = now.timestamp() * 1000, age.total_seconds() * 1000
    table_age_ms = property_as_int(properties, _MAX_AGE, 0) or 0
    before_ms = now_ms - max(age_ms, table_age_ms)
    # Until a snapshot follows it, queries read a snapshot, whatever its age.
    protected = {
        each.parent_snapshot_id for each in metadata.snapshots if each.timestamp_ms >= before_ms
    }
    for ref in metadata.refs.values():
        protected.add(ref.snapshot_id)
        if ref.snapshot_ref_type is not SnapshotRefType.BRANCH:
            continue
        minimum = ref.min_snapshots_to_keep or property_as_int(properties, _MIN_SNAPSHOTS, 1) or 1
        own_before_ms = now_ms - max(age_ms, ref.max_snapshot_age_ms or table_age_ms)
        snapshots = ancestors_of(metadata.snapshot_by_id(ref.snapshot_id), metadata)
        for number, each in enumerate(snapshots):
            if number < minimum or each.timestamp_ms >= own_before_ms:
                protected.add(each.snapshot_id)
    return [
        each.snapshot_id
        for each in metadata.snapshots
        if each.timestamp_ms < before_ms and each.snapshot_id not in protected
    ]


def _path(url: str) -> str:
    """Return a URL's path, by which files are compared.

    One object has several URLs: with `s3` or `s3a`, or with two names of one host.
    """
    return _ROOT.sub("", url, count=1).lstrip("/")
