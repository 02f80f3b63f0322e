"""What copies store in an Iceberg table: how far topics are copied to a branch, and the rows' key.

The progress is stored twice. The summary of each commit's snapshot has it, so that a rollback of
the table also restores the progress. Table properties have the newest progress and its branch,
which survive when snapshots expire or another writer compacts the table.

The progress of the nearest ancestor of the branch's snapshot that has one is used. If no ancestor
has one, the property is used, if it is of this branch, and no ancestor is older than the commit
that wrote it. Otherwise the branch was rolled back or replaced, and its progress is unknown.

The key of a table with the latest row of each key is in table properties alone: it never changes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import ancestors_of

from arrow_io.errors import LakeTableError, OptionError

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from connector.tables.table import Commit

PROGRESS: Final = "pulsar-offload.progress"
"""The property of tables and snapshots that stores the progress."""
_SEQUENCE_NUMBER: Final = "pulsar-offload.progress-sequence-number"
"""The property of tables with the sequence number of the snapshot that stored the progress."""
_BRANCH: Final = "pulsar-offload.progress-branch"
"""The property of tables with the branch of that snapshot. If it is missing: the main branch."""
_LATEST_PER_KEY: Final = "pulsar-offload.latest-per-key"
"""The property of tables that keep the latest row of each key."""
_KEY_COLUMNS: Final = "pulsar-offload.key-columns"
"""The property of such tables with the columns of the key, unless it is that of the messages."""


def progress_properties(progress: str, branch: str, metadata: TableMetadata) -> dict[str, str]:
    """Return the properties of a table whose next snapshot stores a progress in a branch."""
    return {
        PROGRESS: progress,
        _SEQUENCE_NUMBER: str(metadata.next_sequence_number()),
        _BRANCH: branch,
    }


def branch_snapshot(table: Table, branch: str) -> Snapshot | None:
    """Return the current snapshot of a branch; if the branch is missing, that of the main branch.

    Raises:
        OptionError: The name is that of a tag.
    """
    ref = table.metadata.refs.get(branch)
    if ref is not None and ref.snapshot_ref_type is not SnapshotRefType.BRANCH:
        message = f"{branch} is a tag of the Iceberg table {_name(table)}, not a branch"
        raise OptionError(message)
    return table.metadata.snapshot_by_name(MAIN_BRANCH if ref is None else branch)


def new_branch(table: Table, branch: str) -> str:
    """Return the branch if a commit to it creates it; otherwise an empty text."""
    return "" if branch == MAIN_BRANCH or branch in table.metadata.refs else branch


def read_progress(table: Table, branch: str) -> str | None:
    """Return how far topics were copied to a branch, or None if nothing was copied.

    Raises:
        LakeTableError: The progress is unknown.
        OptionError: The name is that of a tag.
    """
    head = branch_snapshot(table, branch)
    sequence_number = _sequence_number(table)
    is_unknown = head is None
    for snapshot in ancestors_of(head, table.metadata):
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        if PROGRESS in summary:
            return summary[PROGRESS]
        is_unknown |= (snapshot.sequence_number or 0) < sequence_number
    progress = table.properties.get(PROGRESS)
    if branch not in table.metadata.refs:  # It starts at the main branch.
        branch = MAIN_BRANCH
    is_unknown |= table.properties.get(_BRANCH, MAIN_BRANCH) != branch
    if is_unknown and progress is not None:
        where = "" if branch == MAIN_BRANCH else f", in its branch {branch}"
        message = (
            f"the Iceberg table {_name(table)}{where} was rolled back to before its last copy, or"
            " replaced by another branch, and no snapshot has its progress: remove its property"
            f" {PROGRESS} to copy everything again"
        )
        raise LakeTableError(message)
    return progress


def key_properties(commit: Commit) -> dict[str, str]:
    """Return the properties of a table that keeps the latest row of each key; none of another."""
    properties = {_LATEST_PER_KEY: "true"} if commit.latest_per_key else {}
    if commit.key_columns:
        properties[_KEY_COLUMNS] = json.dumps(commit.key_columns)
    return properties


def has_latest_rows(table: Table) -> bool:
    """Return whether a table keeps only the latest row of each key."""
    return bool(table.properties.get(_LATEST_PER_KEY) == "true")


def read_key_columns(table: Table) -> tuple[str, ...]:
    """Return the columns of the key; none if it is the key of the messages.

    Raises:
        LakeTableError: The property is malformed.
    """
    text = table.properties.get(_KEY_COLUMNS, "[]")
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        message = (
            f"cannot read the property {_KEY_COLUMNS} of the Iceberg table {_name(table)}:"
            f" {text[:100]!r}"
        )
        raise LakeTableError(message)
    return tuple(names)


def _sequence_number(table: Table) -> int:
    """Return the sequence number of the snapshot that stored the newest progress."""
    text = table.properties.get(_SEQUENCE_NUMBER, "0")
    try:
        return int(text)
    except ValueError:
        message = (
            f"the property {_SEQUENCE_NUMBER} of the Iceberg table {_name(table)} is not a number:"
            f" {text!r:.100}"
        )
        raise LakeTableError(message) from None


def _name(table: Table) -> str:
    return ".".join(table.name())
