"""Upkeep of Iceberg tables that PyIceberg does not offer: which files no snapshot needs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from connector.lake.nested_tables import nested_folders

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table

_FOLDERS: Final = ("data/", "metadata/")
"""Where files of a table are; others below its folder may be those of another program."""
_VERSION_HINT: Final = "metadata/version-hint.text"
"""Names the current metadata file, for engines that read a table without its catalog."""
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


def _path(url: str) -> str:
    """Return a URL's path, by which files are compared.

    One object has several URLs: with `s3` or `s3a`, or with two names of one host.
    """
    return _ROOT.sub("", url, count=1).lstrip("/")
