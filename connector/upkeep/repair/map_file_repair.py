"""Rebuilding the index of a MapFile (filesystem driver) from its data file.

Nothing is in the index that the data file does not say, except for the file's sync marker, which is
random. So the new index has the bytes that Hadoop writes with its default settings.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from arrow_io.core.wording import counted
from arrow_io.errors import CorruptIndexError, FormatError, MissingEntriesError
from arrow_io.format.checksum_file import checksum_file
from arrow_io.format.sequence_file import LONG_CLASS, SYNC_MARKER_BYTES, parse_header
from arrow_io.ledgers.mapfiles.reader import OffloadedMapFile
from arrow_io.ledgers.reader import ObjectVersions
from connector.inputs.topic_names import managed_ledger_owner
from connector.upkeep.repair.ledger_repair import IS_SOUND, RebuiltLedger, Repair, check_entries
from connector.writing.offloader import IndexObject

if TYPE_CHECKING:
    from arrow_io.format.object_names import MapFileName
    from arrow_io.storage.location import Location
    from arrow_io.storage.object_store import ObjectInfo
    from connector.upkeep.repair.ledger_repair import Attempt


def plan_map_file_repair(
    location: Location, attempt: Attempt[MapFileName], data: ObjectInfo, *, verify: bool
) -> Repair:
    """Rebuild the index of a MapFile in memory, without writing it.

    If the folder has checksums, those of the index are made too. If `verify` is set, all entries
    are read with the new index, and their checksums compared.

    Raises:
        FormatError: The data file is damaged or incomplete, or contradicts the metadata.
        MissingObjectError: A file was deleted since the bucket was listed.
        ObjectChangedError: A file was replaced since the bucket was listed.
        StorageError: The store refused, or kept failing.
    """
    name = attempt.name
    ledger, index = OffloadedMapFile.with_rebuilt_index(
        location, name, data.size_bytes, versions=ObjectVersions(None, data.version)
    )
    _check_counts(attempt, ledger)
    old = attempt.old_index(location)
    old_data = b"" if old is None else old.data
    new_data = index.serialize(_sync_marker(old_data))
    checksum_name = name.checksum_names[0]
    has_checksums = any(location.exists(each) for each in name.checksum_names)
    checksums = checksum_file(new_data) if has_checksums else None
    rebuilt = RebuiltLedger(name.ledger_id, ledger.entry_count, ledger.data.block_count)
    attempt = replace(attempt, topic=managed_ledger_owner(name.managed_ledger))
    if new_data == old_data and checksums in {None, _read(location, checksum_name)}:
        return Repair(attempt, ledger=rebuilt, refusal=IS_SOUND)
    check_entries(ledger.data, 0, ledger.last_entry_id if verify else 0, verify=verify)
    return Repair(
        attempt,
        IndexObject(name.index_name, new_data, {}),
        rebuilt,
        checksums=None if checksums is None else IndexObject(checksum_name, checksums, {}),
    )


def _check_counts(attempt: Attempt[MapFileName], ledger: OffloadedMapFile) -> None:
    """Compare the ledger's entry count and length with the metadata."""
    info = attempt.info
    if info is None or info.entries is None:
        return
    if ledger.entry_count != info.entries:
        message = (
            f"{counted(ledger.entry_count, 'entry')} in the data file, {info.entries} according to"
            " the metadata"
        )
        raise MissingEntriesError(message)
    if info.size_bytes not in {None, 0, ledger.length_bytes}:
        have = counted(ledger.length_bytes, "byte")
        message = f"the entries have {have}, {info.size_bytes} according to the metadata"
        raise CorruptIndexError(message)


def _sync_marker(old_data: bytes) -> bytes:
    """Return the sync marker of the damaged index, or a new one."""
    try:
        return parse_header(old_data, LONG_CLASS)[0].sync_marker
    except FormatError:
        return os.urandom(SYNC_MARKER_BYTES)


def _read(location: Location, name: str) -> bytes | None:
    info = location.find(name)
    if info is None:
        return None
    return location.read_object(name, max_bytes=info.size_bytes, version=info.version).data
