"""The files of one topic or partition, as `write` makes them, in the order that readers need.

While they are of different times, no manifest vouches for them; and schemas come before ledgers,
and go behind them, so that there is no ledger whose schema a reader does not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from arrow_io.errors import CorruptMetadataError, MissingObjectError, PulsarOffloadError
from connector.catalog.metadata.admin_answers import internal_info_json, internal_stats_json
from connector.catalog.metadata.folder import INFO_FILE, SCHEMAS_FILE, STATS_FILE, VALUE_FILE
from connector.catalog.metadata.managed_ledger import serialize_managed_ledger_info
from connector.catalog.metadata.manifest import MANIFEST_FILE, manifest_json, read_manifest
from connector.catalog.metadata.topic_metadata import MAX_METADATA_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arrow_io.storage.location import Location
    from connector.catalog.metadata.topic_metadata import TopicMetadata
    from connector.topic_name import TopicName

METADATA_FILES: Final = (SCHEMAS_FILE, VALUE_FILE, INFO_FILE, STATS_FILE, MANIFEST_FILE)
"""The files of a topic, in the order in which they are written; the last vouches for the others."""


def folder_name(topic: TopicName) -> str:
    """`tenant__namespace__topic`; what a name of a folder cannot have is encoded."""
    *parts, _domain, local_name = topic.managed_ledger_name.split("/")
    return "__".join((*parts, local_name))


def files_of(metadata: TopicMetadata, schemas: bytes) -> dict[str, bytes]:
    """The files that a cluster's record of a topic makes."""
    files = {
        VALUE_FILE: serialize_managed_ledger_info(metadata),
        INFO_FILE: internal_info_json(metadata).encode(),
        STATS_FILE: internal_stats_json(metadata).encode(),
        SCHEMAS_FILE: schemas,
    }
    return {**files, MANIFEST_FILE: manifest_json(metadata.topic, files)}


def files_in(folder: Location) -> dict[str, bytes]:
    """The files of metadata that are in a folder.

    Raises:
        StorageError: The store refused, or went on failing.
    """
    try:
        names = {info.name for info in folder.list_objects()}
    except MissingObjectError:
        return {}
    return {
        name: folder.read_object(name, max_bytes=MAX_METADATA_BYTES).data
        for name in METADATA_FILES
        if name in names
    }


def write_files(folder: Location, files: Mapping[str, bytes]) -> None:
    """Write all files of a topic.

    Raises:
        StorageError: The store refused, or went on failing.
    """
    folder.delete_objects([MANIFEST_FILE])
    for name in METADATA_FILES:
        folder.write_object(name, files[name], user_metadata={})


def are_whole(files: Mapping[str, bytes]) -> bool:
    """Whether the manifest, which is written last, vouches for all that it has."""
    if MANIFEST_FILE not in files:
        return False
    try:
        manifest = read_manifest(files[MANIFEST_FILE])
        for name in manifest.files:
            manifest.check(name, files.get(name, b""))
    except CorruptMetadataError:
        return False
    return True


def restore_files(folder: Location, before: Mapping[str, bytes]) -> dict[str, str]:
    """Make the files what they were.

    Returns:
        The name of each that could not be restored, and why; then no manifest vouches for any.
    """
    failures: dict[str, str] = {}
    *others, manifest = METADATA_FILES
    wanted = [(manifest, None), *((name, before.get(name)) for name in reversed(others))]
    for name, data in (*wanted, (manifest, before.get(manifest))):
        try:
            if data is None:
                folder.delete_objects([name])
            elif name != manifest or not failures:
                folder.write_object(name, data, user_metadata={})
        except PulsarOffloadError as failure:
            failures[name] = str(failure)
    return failures
