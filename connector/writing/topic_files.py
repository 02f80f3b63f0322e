"""Metadata files of one topic or partition, written in the order that readers need.

While the files differ in age, no manifest exists. Schemas are written before ledgers and removed
after them, so that a reader knows the schema of every ledger. Adding ledgers can be repeated:
ledgers that the metadata already has are skipped, and unchanged files are not written.

Functions raise `StorageError` if the store refuses a request, or retries are exhausted.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from arrow_io.errors import MissingObjectError, PulsarOffloadError
from connector.catalog.metadata.admin_answers import (
    has_schemas,
    internal_info_json,
    internal_stats_json,
    read_answer,
)
from connector.catalog.metadata.folder import INFO_FILE, SCHEMAS_FILE, STATS_FILE, VALUE_FILE
from connector.catalog.metadata.managed_ledger import (
    parse_managed_ledger_info,
    serialize_managed_ledger_info,
)
from connector.catalog.metadata.manifest import MANIFEST_FILE, manifest_json
from connector.catalog.metadata.topic_metadata import (
    MAX_METADATA_BYTES,
    LedgerInfo,
    checked_ledgers,
)
from connector.catalog.schemas.loading import load_schema

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from arrow_io.storage.location import Location
    from connector.catalog.metadata.topic_metadata import TopicMetadata
    from connector.inputs.topic_names import TopicName

METADATA_FILES: Final = (SCHEMAS_FILE, VALUE_FILE, INFO_FILE, STATS_FILE, MANIFEST_FILE)
"""Files of a topic, in write order; the last has the checksums of the others."""

_INDEX: Final = "index"
"""Property with the message index from which a broker continues (ManagedLedgerInterceptorImpl)."""
_LOCAL: Final = ("file://", "local://")


def folder_name(topic: TopicName) -> str:
    """Return `tenant__namespace__topic`, with characters that a folder name cannot have encoded."""
    *parts, _domain, local_name = topic.managed_ledger_name.split("/")
    return "__".join((*parts, local_name))


def make_files(metadata: TopicMetadata, schemas: bytes) -> dict[str, bytes]:
    """Return the metadata files for a cluster's record of a topic."""
    files = {
        VALUE_FILE: serialize_managed_ledger_info(metadata),
        INFO_FILE: internal_info_json(metadata).encode(),
        STATS_FILE: internal_stats_json(metadata).encode(),
        SCHEMAS_FILE: schemas,
    }
    return {**files, MANIFEST_FILE: manifest_json(metadata.topic, files)}


def read_files(folder: Location) -> dict[str, bytes]:
    """Read the metadata files that a folder has."""
    try:
        names = {info.name for info in folder.list_objects()}
    except MissingObjectError:
        return {}
    return {
        name: folder.read_object(name, max_bytes=MAX_METADATA_BYTES).data
        for name in METADATA_FILES
        if name in names
    }


def _write_files(folder: Location, files: Mapping[str, bytes]) -> None:
    folder.delete_objects([MANIFEST_FILE])
    for name in METADATA_FILES:
        folder.write_object(name, files[name], user_metadata={})


def restore_files(folder: Location, old_files: Mapping[str, bytes]) -> dict[str, str]:
    """Restore the earlier content of the files.

    Returns:
        The reason for each file that could not be restored, by name. If there is one, no manifest
        is written.
    """
    failures: dict[str, str] = {}
    *data_files, manifest = METADATA_FILES
    steps = [(manifest, None), *((name, old_files.get(name)) for name in reversed(data_files))]
    for name, data in (*steps, (manifest, old_files.get(manifest))):
        try:
            if data is None:
                folder.delete_objects([name])
            elif name != manifest or not failures:
                folder.write_object(name, data, user_metadata={})
        except PulsarOffloadError as failure:
            failures[name] = str(failure)
    return failures


def extend_files(
    folder: Location, files: Mapping[str, bytes], addition: TopicMetadata, schemas: bytes
) -> None:
    """Add ledgers to the files of a topic or partition.

    Args:
        folder: The folder of the files.
        files: Its current files, which an earlier call may have left half written.
        addition: The ledgers; the last is open and empty.
        schemas: The admin API's answer with the schemas to store.

    Raises:
        CorruptMetadataError: The existing metadata is malformed.
    """
    current = parse_managed_ledger_info(files.get(VALUE_FILE, b""), addition.topic)
    metadata_to_write = _extend_metadata(current, addition) if current.ledgers else addition
    extended = make_files(metadata_to_write, _schemas(files, schemas))
    if extended != files:
        _write_files(folder, extended)


def _schemas(files: Mapping[str, bytes], addition: bytes) -> bytes:
    """Return the file of schemas: the existing one, unless the schemas have changed."""
    current = files.get(SCHEMAS_FILE)
    if current is None:
        return addition
    if not has_schemas(read_answer(addition)):
        return current
    is_same = (
        has_schemas(read_answer(current))
        and load_schema(addition).versions == load_schema(current).versions
    )
    return current if is_same else addition


def _extend_metadata(current: TopicMetadata, addition: TopicMetadata) -> TopicMetadata:
    """Return the ledgers of both, with one open and empty ledger at the end."""
    *ledgers, open_ledger = current.ledgers
    *new_ledgers, next_open = addition.ledgers
    ledger_ids = {each.ledger_id for each in ledgers}
    new_ledgers = [each for each in new_ledgers if each.ledger_id not in ledger_ids]
    last_id = max(open_ledger.ledger_id, next_open.ledger_id)
    return replace(
        current,
        ledgers=checked_ledgers((*ledgers, *new_ledgers, LedgerInfo(ledger_id=last_id))),
        properties=_merge_properties(current.properties, addition.properties),
    )


def _merge_properties(current: Mapping[str, str], addition: Mapping[str, str]) -> dict[str, str]:
    merged = {**current, **addition}
    indexes: Collection[int] = [int(each[_INDEX]) for each in (current, addition) if _INDEX in each]
    return {**merged, _INDEX: str(max(indexes))} if indexes else merged


class NewFolders:
    """Local folders on the path of a location that do not exist before it is written to.

    Object stores have no folders to create or remove.
    """

    def __init__(self, location: Location) -> None:
        path = _local_path(location)
        paths = () if path is None else (path, *path.parents)
        self._missing_folders = [each for each in paths if not each.exists()]

    def remove(self) -> None:
        """Remove those folders that exist now and are empty."""
        for folder in self._missing_folders:
            # If it is not empty, someone else uses it by now.
            with contextlib.suppress(OSError):
                folder.rmdir()


def remove_if_empty(location: Location) -> None:
    """Remove a local folder if it is empty."""
    path = _local_path(location)
    if path is not None:
        with contextlib.suppress(OSError):
            path.rmdir()


def _local_path(location: Location) -> Path | None:
    url = location.url
    for scheme in _LOCAL:
        url = url.removeprefix(scheme)
    return None if "://" in url or "::" in url else Path(url)
