"""The files of one topic or partition, as `write` makes them, in the order that readers need.

While they are of different times, no manifest vouches for them; and schemas come before ledgers,
and go behind them, so that there is no ledger whose schema a reader does not know. Ledgers may be
added again by whoever finds that undone: those that the metadata has already are not, and files
that are as they should be are not written.
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
"""The files of a topic, in the order in which they are written; the last vouches for the others."""

_INDEX: Final = "index"
"""Property that says where a broker goes on counting messages (ManagedLedgerInterceptorImpl)."""
_LOCAL: Final = ("file://", "local://")


def folder_name(topic: TopicName) -> str:
    """`tenant__namespace__topic`; what a name of a folder cannot have is encoded."""
    *parts, _domain, local_name = topic.managed_ledger_name.split("/")
    return "__".join((*parts, local_name))


def make_files(metadata: TopicMetadata, schemas: bytes) -> dict[str, bytes]:
    """The files that a cluster's record of a topic makes."""
    files = {
        VALUE_FILE: serialize_managed_ledger_info(metadata),
        INFO_FILE: internal_info_json(metadata).encode(),
        STATS_FILE: internal_stats_json(metadata).encode(),
        SCHEMAS_FILE: schemas,
    }
    return {**files, MANIFEST_FILE: manifest_json(metadata.topic, files)}


def read_files(folder: Location) -> dict[str, bytes]:
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


def _write_files(folder: Location, files: Mapping[str, bytes]) -> None:
    """Write all files of a topic.

    Raises:
        StorageError: The store refused, or went on failing.
    """
    folder.delete_objects([MANIFEST_FILE])
    for name in METADATA_FILES:
        folder.write_object(name, files[name], user_metadata={})


def restore_files(folder: Location, before: Mapping[str, bytes]) -> dict[str, str]:
    """Make the files what they were.

    Returns:
        The name of each that could not be restored, and why; then no manifest vouches for any.
    """
    failures: dict[str, str] = {}
    *data_files, manifest = METADATA_FILES
    steps = [(manifest, None), *((name, before.get(name)) for name in reversed(data_files))]
    for name, data in (*steps, (manifest, before.get(manifest))):
        try:
            if data is None:
                folder.delete_objects([name])
            elif name != manifest or not failures:
                folder.write_object(name, data, user_metadata={})
        except PulsarOffloadError as failure:
            failures[name] = str(failure)
    return failures


def extend_files(
    folder: Location, files: Mapping[str, bytes], added: TopicMetadata, schemas: bytes
) -> None:
    """Add ledgers to the files of a topic or partition.

    Args:
        folder: The folder of the files.
        files: What stands there, perhaps half-written by an earlier call.
        added: The ledgers; the last is open and empty.
        schemas: The answer of the admin API with the schemas that are to be there.

    Raises:
        CorruptMetadataError: What stands is malformed.
        StorageError: The store refused, or went on failing.
    """
    current = parse_managed_ledger_info(files.get(VALUE_FILE, b""), added.topic)
    whole = _extend_metadata(current, added) if current.ledgers else added
    extended = make_files(whole, _schemas(files, schemas))
    if extended != files:
        _write_files(folder, extended)


def _schemas(files: Mapping[str, bytes], added: bytes) -> bytes:
    """The file of schemas: the one that stands there, unless there are others now."""
    current = files.get(SCHEMAS_FILE)
    if current is None:
        return added
    if not has_schemas(read_answer(added)):
        return current
    is_same = (
        has_schemas(read_answer(current))
        and load_schema(added).versions == load_schema(current).versions
    )
    return current if is_same else added


def _extend_metadata(current: TopicMetadata, added: TopicMetadata) -> TopicMetadata:
    """The ledgers of both; of their open ledgers, which are empty, the one behind them all."""
    *ledgers, open_ledger = current.ledgers
    *more, next_open = added.ledgers
    ledger_ids = {each.ledger_id for each in ledgers}
    more = [each for each in more if each.ledger_id not in ledger_ids]
    last_id = max(open_ledger.ledger_id, next_open.ledger_id)
    return replace(
        current,
        ledgers=checked_ledgers((*ledgers, *more, LedgerInfo(ledger_id=last_id))),
        properties=_merge_properties(current.properties, added.properties),
    )


def _merge_properties(current: Mapping[str, str], added: Mapping[str, str]) -> dict[str, str]:
    merged = {**current, **added}
    indexes: Collection[int] = [int(each[_INDEX]) for each in (current, added) if _INDEX in each]
    return {**merged, _INDEX: str(max(indexes))} if indexes else merged


class NewFolders:
    """The local folders on the way to a location that are not there yet.

    Object stores have no folders, so there are none to be made or removed.

    Args:
        location: Where something will be written.
    """

    def __init__(self, location: Location) -> None:
        path = _local_path(location)
        ways = () if path is None else (path, *path.parents)
        self._absent = [each for each in ways if not each.exists()]

    def remove(self) -> None:
        """Remove those that are there now, unless something is in them."""
        for folder in self._absent:
            # One that is not empty is someone else's by now.
            with contextlib.suppress(OSError):
                folder.rmdir()


def remove_if_empty(location: Location) -> None:
    """Remove a local folder, unless something is in it."""
    path = _local_path(location)
    if path is not None:
        with contextlib.suppress(OSError):
            path.rmdir()


def _local_path(location: Location) -> Path | None:
    url = location.url
    for scheme in _LOCAL:
        url = url.removeprefix(scheme)
    return None if "://" in url or "::" in url else Path(url)
