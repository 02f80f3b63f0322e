"""The progress that a table stores: how far its topics are copied, and which rows it lacks.

`CopiedRows` tells readers of the table (the option `lake` of `open_topic`) which rows before the
progress are not in the table, or differ from those of a read of the bucket.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from arrow_io.core.json_checksum import json_crc32
from arrow_io.errors import CorruptProgressError
from connector.increments.progress import Progress
from connector.inputs.bounds import Bounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from connector.lake.table import TableState
    from connector.scan.read_options import ReadOptions

_ROWS = "rows"


@dataclass(frozen=True)
class CopiedRows:
    """Facts about the copies of a table's rows.

    Attributes:
        starts: By full topic name, the start of its copies, if one of them had a start: all rows
            within these bounds and before the progress were copied.
        has_uncommitted: Whether rows of aborted or open transactions were copied.
        has_losses: Whether a copy left out damaged data.
        has_dead_letters: Whether copies wrote dead letters to a second table.
        late_columns: Columns that were added, or got more fields, after the first commit. Earlier
            rows have null there.
        deleted_before_ms: Publish time in ms; maintenance deleted the rows before it.
    """

    starts: Mapping[str, Bounds] = field(default_factory=lambda: MappingProxyType[str, Bounds]({}))
    has_uncommitted: bool = False
    has_losses: bool = False
    has_dead_letters: bool = False
    late_columns: frozenset[str] = frozenset()
    deleted_before_ms: int | None = None

    def add_copy(
        self,
        options: ReadOptions,
        topics: Iterable[str],
        current: pa.Schema | None,
        schema: pa.Schema,
        *,
        has_losses: bool,
        has_dead_letters: bool,
    ) -> CopiedRows:
        """Return the facts after a copy.

        Args:
            options: How the rows were read.
            topics: Full names of the topics of which rows were copied.
            current: Columns of the table before the copy; None: it did not exist.
            schema: Columns of the table after it.
            has_losses: Whether the copy left out damaged data.
            has_dead_letters: Whether it writes dead letters to a second table.
        """
        bounds = options.bounds
        starts = {each: self.starts.get(each, Bounds()).intersect(bounds) for each in topics}
        late = (each.name for each in schema if current is not None and _is_late(each, current))
        return replace(
            self,
            starts={**self.starts, **(starts if bounds.has_start else {})},
            has_uncommitted=self.has_uncommitted or options.uncommitted,
            has_losses=self.has_losses or has_losses,
            has_dead_letters=self.has_dead_letters or has_dead_letters,
            late_columns=self.late_columns | {*late},
        )

    def add_deletion(self, before_ms: int) -> CopiedRows:
        """Return the facts after rows with earlier publish times were deleted."""
        return replace(self, deleted_before_ms=max(before_ms, self.deleted_before_ms or before_ms))

    def to_value(self) -> dict[str, Any]:
        """Return the facts as a value for JSON."""
        return {
            "starts": {
                name: {"id": each.start_id and list(each.start_id), "ms": each.start_ms}
                for name, each in sorted(self.starts.items())
            },
            "uncommitted": self.has_uncommitted,
            "losses": self.has_losses,
            "dead_letters": self.has_dead_letters,
            "late_columns": sorted(self.late_columns),
            "deleted_before_ms": self.deleted_before_ms,
        }

    @classmethod
    def from_value(cls, value: object) -> Self:
        """Return the facts of a value that `to_value` returned.

        Raises:
            CorruptProgressError: The value is malformed.
        """
        match value:
            case {
                "starts": dict(starts),
                "uncommitted": bool(uncommitted),
                "losses": bool(losses),
                "dead_letters": bool(dead_letters),
                "late_columns": [*late_columns],
                "deleted_before_ms": int() | None as deleted_before_ms,
            } if all(isinstance(each, str) for each in late_columns):
                return cls(
                    {str(name): _start(each) for name, each in starts.items()},
                    uncommitted,
                    losses,
                    dead_letters,
                    frozenset(late_columns),
                    deleted_before_ms,
                )
        raise _malformed_error()


@dataclass(frozen=True)
class TableProgress:
    """What a table stores with its rows.

    Attributes:
        topics: How far its topics are copied.
        rows: Facts about the copies; None if an earlier release made one of them.
    """

    topics: Progress = field(default_factory=Progress)
    rows: CopiedRows | None = field(default_factory=CopiedRows)

    @classmethod
    def from_state(cls, table: str, state: TableState | None) -> Self:
        """Return the progress that a table's state has; no progress if there is no table.

        Raises:
            CorruptProgressError: It is malformed. The message names the table.
        """
        if state is None or state.progress is None:
            return cls()
        try:
            return cls.from_json(state.progress)
        except CorruptProgressError as error:
            message = f"cannot read the progress stored in {table}: {error.message}"
            raise CorruptProgressError(message) from None

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the progress of a text that `to_json` returned.

        Raises:
            CorruptProgressError: The text is malformed or was modified.
        """
        topics = Progress.from_json(text)
        match json.loads(text).get(_ROWS):
            case None:
                return cls(topics, None)
            case {"crc32": int(checksum), **value} if checksum == json_crc32(value):
                return cls(topics, CopiedRows.from_value(value))
        raise _malformed_error()

    def to_json(self) -> str:
        """Return the progress as JSON; equal progress has equal text."""
        value = self.topics.to_value()
        if self.rows is not None:
            rows = self.rows.to_value()
            value[_ROWS] = {**rows, "crc32": json_crc32(rows)}
        return json.dumps(value, separators=(",", ":"))


def note_deletion(text: str, before_ms: int) -> str:
    """Return a table's progress after rows with earlier publish times, in ms, were deleted.

    A text that cannot be read stays unchanged: it is an error when the table is copied to or read.
    """
    try:
        progress = TableProgress.from_json(text)
    except CorruptProgressError:
        return text
    if progress.rows is None:
        return text
    return replace(progress, rows=progress.rows.add_deletion(before_ms)).to_json()


def _start(value: object) -> Bounds:
    match value:
        case {"id": [int(), int(), int()] | None as start_id, "ms": int() | None as start_ms}:
            return Bounds(None if start_id is None else tuple(start_id), start_ms=start_ms)
    raise _malformed_error()


def _is_late(column: pa.Field, current: pa.Schema) -> bool:
    """Return whether a table gets a column, or fields of a column, that it did not have."""
    if column.name not in current.names:
        return True
    is_nested: bool = pa.types.is_nested(column.type)
    return is_nested and current.field(column.name).type != column.type


def _malformed_error() -> CorruptProgressError:
    return CorruptProgressError("the facts about its rows are malformed or were changed")
