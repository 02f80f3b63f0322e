"""Progress files of a Delta table: which of them the rows of a version go by, and which may go.

A Delta log keeps one number for each application that writes to a table (a *transaction*), through
checkpoints and the cleaning of old commits; words that stand in a commit are lost with it. So the
progress lies in `_pulsar_offload/progress-<number>.json`, written before the commit, and the commit
sets the number. Each attempt has a number of its own, so a file that no commit names means nothing.
What a table keeps below a folder whose name begins with `_` is left alone when it is vacuumed.

`RESTORE` brings rows back to those of an earlier version, and leaves the transaction as it is. So
the log is read from its end, until a commit sets the number or restores another version.
"""

from __future__ import annotations

import json
import re
import secrets
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from arrow_io.errors import LakeTableError, MissingObjectError
from connector.lake.state_file import STATE_FOLDER, decode_state, encode_state

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from arrow_io.storage.location import Location

APPLICATION: Final = "pulsar-offload"
"""Whose transaction it is."""

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
"""How many commits of copies there are for each that deletes progress files: as many as
`deltalake` makes before it writes a checkpoint and cleans the log."""


def next_number(previous: int | None) -> int:
    """Return the number of an attempt to commit: it rises, and no two attempts have the same.

    Args:
        previous: The number that the table has; None: no copy wrote to it yet.
    """
    return ((previous or 0) >> _RANDOM_BITS) + 1 << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)


def write_progress(location: Location, number: int, content: Mapping[str, object]) -> None:
    """Write the file that a commit is to name.

    Args:
        location: The table's folder.
        number: The number that the commit sets.
        content: `progress`, `partitioning` and `latest_per_key`.

    Raises:
        StorageError: The store refused, or went on failing.
    """
    data = encode_state(number, content)
    location.child(STATE_FOLDER).write_object(_progress_name(number), data, user_metadata={})


def read_progress(location: Location, number: int) -> dict[str, Any]:
    """Return what `write_progress` wrote.

    Raises:
        LakeTableError: It is missing, or was damaged.
        StorageError: The store refused, or went on failing.
    """
    folder = location.child(STATE_FOLDER)
    try:
        data = folder.read_object(_progress_name(number), max_bytes=_MAX_PROGRESS_BYTES).data
        return decode_state(data, number, _MEMBERS)
    except (MissingObjectError, ValueError) as error:
        raise unreadable_progress_error(location, number, error) from None


def unreadable_progress_error(location: Location, number: int, error: Exception) -> LakeTableError:
    """Return the error for a progress file that cannot be read."""
    name = _progress_name(number)
    message = (
        f"the Delta table at {location} was copied to before, and how far stands in"
        f" {STATE_FOLDER}/{name}, which cannot be read: {error}"
    )
    return LakeTableError(message, object_key=name)


def find_progress_number(
    location: Location, version: int, number_at: Callable[[int], int | None]
) -> int | None:
    """Return the number of the progress that the rows of a version go by; None: of none.

    Args:
        location: The table's folder.
        version: The version.
        number_at: Returns the number of the transaction as a version of the log has it.

    Raises:
        LakeTableError: The table was restored to a version that the log no longer has, or to a
            time; or the log is malformed.
        StorageError: The store refused, or went on failing.
    """
    start = version
    while version >= 0:
        try:
            number, restored = _commit(location, version)
        except MissingObjectError:
            # A checkpoint took its place. If somebody restored the table before that, copied
            # nothing since, and cleaned the log, nothing says so.
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
    """Delete the progress files that no retained version of the table needs; seldom more.

    Numbers rise from commit to commit. So versions that can be loaded, and runs that are to commit,
    need none that is less than the number of the earliest version.

    Args:
        location: The table's folder.
        number: The number that the table has.
        number_at: Returns the number of the transaction as a version of the log has it.

    Raises:
        LakeTableError: The earliest version cannot be loaded.
        StorageError: The store refused, or went on failing.
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
    """Return the number that a commit sets, and the version that it restores, if it does."""
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
            f"version {version} of the Delta table at {location} restored the table as it was at"
            " some time, which does not say how far it was copied then: restore it to the number of"
            " a version, and copy again"
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
