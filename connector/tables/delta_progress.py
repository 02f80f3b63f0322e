"""Progress files of a Delta table: which one belongs to a version, and which can be deleted.

A Delta log keeps one number for each application that writes to a table, its *transaction*. The
number survives checkpoints and log cleanup, while text stored in a commit does not. So the progress
is stored in `_pulsar_offload/progress-<number>.json`, written before the commit, and the commit
sets the number. Each attempt has its own number, so a file that no commit names has no effect.
`VACUUM` ignores folders whose names begin with `_`.

`RESTORE` restores the rows of an earlier version, but not the transaction. So the log is read
backwards, until a commit sets the number or restores another version.

Functions raise `StorageError` if the store refuses a request or keeps failing.
"""

from __future__ import annotations

import json
import re
import secrets
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from arrow_io.errors import LakeTableError, MissingObjectError
from connector.tables.state_file import (
    STATE_FOLDER,
    check_members,
    decode_state,
    encode_state,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from arrow_io.storage.location import Location

APPLICATION: Final = "pulsar-offload"
"""The application id of the transaction."""

_LOG: Final = "_delta_log"
_RANDOM_BITS: Final = 31
_MAX_PROGRESS_BYTES: Final = 64 << 20
_MAX_COMMIT_BYTES: Final = 1 << 30
_MEMBERS: Final[Mapping[str, type]] = MappingProxyType(
    {"progress": str, "partitioning": list, "latest_per_key": bool}
)
_NAME: Final = re.compile(r"progress-(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint\..+")
_CLEANING_INTERVAL: Final = 100
"""Progress files are deleted once in this many commits: as often as `deltalake` writes a checkpoint
and cleans the log."""


def next_number(previous: int | None) -> int:
    """Return a unique number for an attempt to commit, greater than the table's, if it has one."""
    return ((previous or 0) >> _RANDOM_BITS) + 1 << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)


def write_progress(location: Location, number: int, content: Mapping[str, object]) -> None:
    """Write the progress file that a commit will name, with the members `_MEMBERS`."""
    data = encode_state(number, content)
    location.child(STATE_FOLDER).write_object(_progress_name(number), data, user_metadata={})


def read_progress(location: Location, number: int) -> dict[str, Any]:
    """Return the content of a progress file.

    Raises:
        LakeTableError: The file is missing or damaged.
    """
    folder = location.child(STATE_FOLDER)
    try:
        data = folder.read_object(_progress_name(number), max_bytes=_MAX_PROGRESS_BYTES).data
        content = decode_state(data, number, _MEMBERS)
        # Earlier versions wrote no key columns: they knew no other key than that of messages.
        content.setdefault("key_columns", [])
        check_members(content, {"key_columns": list})
    except (MissingObjectError, ValueError) as error:
        raise unreadable_progress_error(location, number, error) from None
    return content


def unreadable_progress_error(location: Location, number: int, error: Exception) -> LakeTableError:
    """Return the error for a progress file that cannot be read."""
    name = _progress_name(number)
    message = (
        f"cannot read {STATE_FOLDER}/{name}, which has the copy progress of the Delta table at"
        f" {location}: {error}"
    )
    return LakeTableError(message, object_key=name)


def find_progress_number(
    location: Location, version: int, number_at: Callable[[int], int | None]
) -> int | None:
    """Return the number of the progress file that belongs to a version, or None if it has none.

    Args:
        location: The table's folder.
        version: The version.
        number_at: Returns the transaction number that the log records at a version.

    Raises:
        LakeTableError: The table was restored to a version that the log no longer has, or to a
            timestamp; or the log is malformed.
    """
    start = version
    while version >= 0:
        try:
            number, restored = _commit(location, version)
        except MissingObjectError:
            # A checkpoint replaced the commit. A restore before it that no copy followed cannot
            # be detected.
            return number_at(start)
        if number is not None:
            return number
        if restored is None:
            version -= 1
        elif 0 <= restored < version:
            version = start = restored
        else:
            raise _malformed_commit_error(location, version)
    return None


def delete_unneeded(
    location: Location, number: int, number_at: Callable[[int], int | None]
) -> None:
    """Delete progress files that no retained version of the table needs.

    Numbers rise from commit to commit. So neither a version that can be loaded nor a concurrent run
    needs a number below that of the earliest version. Most calls do nothing, since cleaning is
    needed only rarely.

    The number is the table's current one. For `number_at`, see `find_progress_number`.

    Raises:
        LakeTableError: The earliest version cannot be loaded.
    """
    if (number >> _RANDOM_BITS) % _CLEANING_INTERVAL:
        return
    names = [each.name for each in location.child(_LOG).list_objects()]
    checkpoints = (_CHECKPOINT.fullmatch(each) for each in names)
    versions = [int(each[1]) for each in checkpoints if each]
    if _commit_name(0) in names or not versions:
        return
    least = number_at(min(versions))
    if least is None:
        return
    folder = location.child(STATE_FOLDER)
    matches = (_NAME.fullmatch(each.name) for each in folder.list_objects())
    folder.delete_objects([each[0] for each in matches if each and int(each[1]) < least])


def _commit(location: Location, version: int) -> tuple[int | None, int | None]:
    """Return the number that a commit sets and the version that it restores, or None for each."""
    log, name = location.child(_LOG), _commit_name(version)
    data = log.read_object(name, max_bytes=_MAX_COMMIT_BYTES).data
    number = restored = None
    for line in data.splitlines():
        if b'"txn"' not in line and b'"commitInfo"' not in line:
            continue
        try:
            action = json.loads(line)
        except (ValueError, RecursionError):
            raise _malformed_commit_error(location, version) from None
        match action:
            case {"txn": {"appId": str(application), "version": int(application_version)}}:
                number = application_version if application == APPLICATION else number
            case {"commitInfo": {"operation": "RESTORE", **info}}:
                restored = _restored_version(location, version, info.get("operationParameters"))
    return number, restored


def _restored_version(location: Location, version: int, parameters: object) -> int:
    parameter = parameters.get("version") if isinstance(parameters, dict) else None
    try:
        return int(str(parameter))
    except ValueError:
        message = (
            f"version {version} of the Delta table at {location} restored the table to a timestamp,"
            " so the copy progress of the restored rows is unknown: restore it to a version number,"
            " and copy again"
        )
        raise LakeTableError(message) from None


def _malformed_commit_error(location: Location, version: int) -> LakeTableError:
    name = _commit_name(version)
    message = f"the Delta table at {location} has a malformed commit, {_LOG}/{name}"
    return LakeTableError(message, object_key=name)


def _commit_name(version: int) -> str:
    return f"{version:020}.json"


def _progress_name(number: int) -> str:
    return f"progress-{number:020}.json"
