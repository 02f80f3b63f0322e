"""The progress that a table stores: how far its topics are copied, and members of other modules.

A member is an object with a checksum, `crc32`, of its other members.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

from arrow_io.core.json_checksum import json_crc32
from arrow_io.errors import CorruptProgressError, LakeTableError, OptionError
from connector.increments.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from connector.tables.table import LakeTable, TableState

_Parsed = TypeVar("_Parsed")


def read_progress(table: LakeTable, state: TableState | None) -> Progress:
    """Return how far the topics of a table are copied; no progress if there is no table.

    Raises:
        CorruptProgressError: It is malformed. The message names the table.
    """
    return parse_progress(table, state, Progress.from_json, Progress())


def parse_progress(
    table: LakeTable,
    state: TableState | None,
    parse: Callable[[str], _Parsed],
    default: _Parsed,
) -> _Parsed:
    """Return what a function reads from the progress of a table.

    Args:
        table: The table.
        state: Its state.
        parse: Reads a progress. May raise `CorruptProgressError`.
        default: What to return if there is no table, or nothing was copied to it.

    Raises:
        CorruptProgressError: The progress is malformed. The message names the table.
    """
    if state is None or state.progress is None:
        return default
    try:
        return parse(state.progress)
    except CorruptProgressError as error:
        message = f"cannot read the progress stored in {table.location}: {error.message}"
        raise CorruptProgressError(message) from None


def check_copied(table: LakeTable, state: TableState | None) -> TableState:
    """Return the state of a table that topics were copied to.

    Raises:
        OptionError: The table has no such branch.
        LakeTableError: There is no table, or nothing was copied to it.
    """
    if state is None or state.progress is None:
        message = f"{table.location} is not a table that topics are copied to"
        raise LakeTableError(message)
    if state.new_branch:
        message = f"{table.location} has no branch {state.new_branch}: only copies create branches"
        raise OptionError(message)
    return state


def read_member(progress: str, name: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return a member of a progress, with its checksum, which is not compared; None if missing.

    Raises:
        CorruptProgressError: The progress is not a JSON object.
    """
    try:
        return json.loads(progress).get(name)
    except (AttributeError, ValueError, RecursionError) as error:
        message = f"the progress is not a JSON object: {error}"
        raise CorruptProgressError(message) from None


def add_member(progress: str, name: str, value: Mapping[str, object]) -> str:
    """Return a progress with a member, and its checksum."""
    member = {**value, "crc32": json_crc32(value)}
    return json.dumps(json.loads(progress) | {name: member}, separators=(",", ":"))
