"""Upkeep of Iceberg tables that PyIceberg does not offer: which files no snapshot needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table

_FOLDERS: Final = ("data/", "metadata/")
"""Where files of a table are; others below its folder may be those of another program."""


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
    """Iterate over the names, relative to the table's folder, that no URL refers to."""
    prefix = _path(folder_url).rstrip("/") + "/"
    needed_names = {_path(each).removeprefix(prefix) for each in needed}
    for name in names:
        if name.startswith(_FOLDERS) and name not in needed_names:
            yield name


def _path(url: str) -> str:
    """Return a URL without its scheme: `s3`, `s3a` and `s3n` name the same object."""
    return url.partition("://")[2] or url.removeprefix("file:")
