"""Which rows before its progress a table lacks, or has in another form than a read of the bucket.

The facts are a member of the progress that the table stores. Readers of the table need them (the
option `lake` of `open_topic`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import pyarrow as pa

from arrow_io.core.json_checksum import json_crc32
from arrow_io.errors import CorruptProgressError
from connector.inputs.bounds import Bounds
from connector.tables.table_progress import add_member, parse_progress, read_member

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from arrow_io.columns import Projection
    from connector.increments.progress import Progress
    from connector.scan.read_options import ReadOptions
    from connector.tables.table import LakeTable, TableState

_MEMBER: Final = "rows"
"""The member of the progress that has the facts."""


class ColumnForm(NamedTuple):
    """What the names of columns stand for.

    Attributes:
        naming: As the option `naming`.
        values: `raw` if values have no schema; the option `unwrap`, unless it is `none`; otherwise
            the parts of messages whose fields are columns of their own: `value`, `key,value`, `key`
            or nothing.
    """

    naming: str
    values: str

    @classmethod
    def from_columns(cls, columns: Projection) -> ColumnForm:
        """Return the form of the columns of a topic."""
        naming = "pulsar-sql" if ("__key__", "__key__") in columns.columns else "pulsar-spark"
        values = columns.values
        if values is None:
            return cls(naming, "raw")
        if values.is_unwrapped:
            return cls(naming, "debezium")
        parts = {
            "key" if each.is_key else "value" for each in values.fields if each.field is not None
        }
        return cls(naming, ",".join(sorted(parts)))


@dataclass(frozen=True)
class CopiedRows:
    """Facts about the copies of a table's rows.

    Attributes:
        starts: By full topic name, the start of its copies, if one of them had a start: all rows
            within these bounds and before the progress were copied.
        has_uncommitted: Whether rows of aborted or open transactions were copied.
        has_losses: Whether a copy left out damaged data.
        has_changes: Whether rows are change events, and messages that change no row were left out.
        forms: The form of the columns of each copy, and of rows that were dead letters
            (`ColumnForm`).
        late_columns: Columns that were added, or got more fields, after the first commit. Earlier
            rows have null there.
        null_columns: Columns that are null, or have null fields, in some rows although the messages
            have values.
        deleted_before_ms: Publish time in ms; maintenance deleted the rows before it.
        late_ledgers: By full topic name, the ids of ledgers that appeared before the progress. A
            copy that salvages lists them in the progress, but does not read them.
    """

    starts: Mapping[str, Bounds] = field(default_factory=lambda: MappingProxyType[str, Bounds]({}))
    has_uncommitted: bool = False
    has_losses: bool = False
    has_changes: bool = False
    forms: frozenset[ColumnForm] = frozenset()
    late_columns: frozenset[str] = frozenset()
    null_columns: frozenset[str] = frozenset()
    deleted_before_ms: int | None = None
    late_ledgers: Mapping[str, tuple[int, ...]] = field(
        default_factory=lambda: MappingProxyType[str, tuple[int, ...]]({})
    )

    def add_copy(
        self, options: ReadOptions, before: Progress, after: Progress, *, has_losses: bool
    ) -> CopiedRows:
        """Return the facts after a copy.

        Args:
            options: How the rows were read.
            before: The progress of the table before the copy.
            after: Its progress after the copy.
            has_losses: Whether the copy left out damaged data.
        """
        bounds = options.bounds
        starts, late_ledgers = {}, {**self.late_ledgers}
        for topic, each in after.topics.items():
            name, copied = str(topic), before.topic_progress(topic)
            if each != before.topics.get(topic):
                starts[name] = self.starts.get(name, Bounds()).intersect(bounds)
            if late := copied.late_ledgers(each.ledger_ids):
                late_ledgers[name] = (*self.late_ledgers.get(name, ()), *late)
        return replace(
            self,
            starts={**self.starts, **(starts if bounds.has_start else {})},
            late_ledgers=late_ledgers,
            has_uncommitted=self.has_uncommitted or options.uncommitted,
            has_losses=self.has_losses or has_losses,
            has_changes=self.has_changes or options.is_unwrapped,
            forms=self.forms | {ColumnForm.from_columns(options.filterable)},
        )

    def has_form(self, form: ColumnForm, *, is_value: bool) -> bool:
        """Return whether a column of messages, or of their values, has a form in all rows."""
        return all(each == form if is_value else each.naming == form.naming for each in self.forms)

    def add_columns(self, current: pa.Schema | None, schema: pa.Schema) -> CopiedRows:
        """Return the facts after a table got columns.

        Args:
            current: Columns of the table before; None: it did not exist.
            schema: Its columns now.
        """
        late = (each.name for each in schema if current is not None and lacks(current, each))
        return replace(self, late_columns=self.late_columns | {*late})

    def add_deletion(self, before_ms: int) -> CopiedRows:
        """Return the facts after rows with earlier publish times were deleted."""
        return replace(self, deleted_before_ms=max(before_ms, self.deleted_before_ms or before_ms))

    @classmethod
    def from_state(cls, table: LakeTable, state: TableState | None) -> Self | None:
        """Return the facts that the progress of a table contains.

        Returns:
            No facts if there is no table yet. None if an earlier release made one of its copies.

        Raises:
            CorruptProgressError: They are malformed or were modified. The message names the table.
        """
        no_copies: Self | None = cls()
        return parse_progress(table, state, cls.from_progress, no_copies)

    @classmethod
    def from_progress(cls, progress: str) -> Self | None:
        """Return the facts that a progress contains; None if it has none.

        Raises:
            CorruptProgressError: The facts are malformed or were modified.
        """
        match read_member(progress, _MEMBER):
            case None:
                return None
            case {"crc32": int(checksum), **facts} if checksum == json_crc32(facts):
                return cls._from_value(facts)
        raise _malformed_error()

    def add_to(self, progress: str) -> str:
        """Return a progress that contains the facts."""
        value: dict[str, object] = {
            "starts": {
                name: {"id": each.start_id and list(each.start_id), "ms": each.start_ms}
                for name, each in sorted(self.starts.items())
            },
            "uncommitted": self.has_uncommitted,
            "losses": self.has_losses,
            "changes": self.has_changes,
            "forms": sorted(map(list, self.forms)),
            "late_columns": sorted(self.late_columns),
            "null_columns": sorted(self.null_columns),
            "deleted_before_ms": self.deleted_before_ms,
            "late_ledgers": {name: list(each) for name, each in sorted(self.late_ledgers.items())},
        }
        return add_member(progress, _MEMBER, value)

    @classmethod
    def _from_value(cls, value: dict[Any, Any]) -> Self:
        match value:
            case {
                "starts": dict(starts),
                "uncommitted": bool(uncommitted),
                "losses": bool(losses),
                "changes": bool(changes),
                "forms": [*forms],
                "late_columns": [*late_columns],
                "null_columns": [*null_columns],
                "deleted_before_ms": int() | None as deleted_before_ms,
                "late_ledgers": dict(late_ledgers),
            } if all(isinstance(each, str) for each in (*late_columns, *null_columns)):
                bounds = {str(name): _start(each) for name, each in starts.items()}
                columns = frozenset(late_columns), frozenset(null_columns)
                flags = uncommitted, losses, changes
                own_forms = frozenset(map(_form, forms))
                late = {str(name): _ledger_ids(each) for name, each in late_ledgers.items()}
                return cls(bounds, *flags, own_forms, *columns, deleted_before_ms, late)
        raise _malformed_error()


def note_deletion(progress: str, before_ms: int) -> str:
    """Return a table's progress after rows with earlier publish times, in ms, were deleted.

    A text that cannot be read stays unchanged: it is an error when the table is copied to or read.
    """
    try:
        rows = CopiedRows.from_progress(progress)
    except CorruptProgressError:
        return progress
    return progress if rows is None else rows.add_deletion(before_ms).add_to(progress)


def note_decoded_letters(progress: str, columns: Projection, null_columns: Iterable[str]) -> str:
    """Return a table's progress after dead letters became rows.

    A text that cannot be read stays unchanged, as in `note_deletion`.

    Args:
        progress: The progress.
        columns: All columns of the topic, as the letters were decoded.
        null_columns: Columns that are null, or have null fields, in place of some of their values.
    """
    try:
        rows = CopiedRows.from_progress(progress)
    except CorruptProgressError:
        return progress
    if rows is None:
        return progress
    null_columns = rows.null_columns | {*null_columns}
    forms = rows.forms | {ColumnForm.from_columns(columns)}
    return replace(rows, null_columns=null_columns, forms=forms).add_to(progress)


def _start(value: object) -> Bounds:
    match value:
        case {"id": [int(), int(), int()] | None as start_id, "ms": int() | None as start_ms}:
            return Bounds(None if start_id is None else tuple(start_id), start_ms=start_ms)
    raise _malformed_error()


def _form(value: object) -> ColumnForm:
    match value:
        case [str(naming), str(values)]:
            return ColumnForm(naming, values)
    raise _malformed_error()


def _ledger_ids(value: Any) -> tuple[int, ...]:  # noqa: ANN401 - of JSON
    match value:
        case [*ids] if all(isinstance(each, int) for each in ids):
            return tuple(ids)
    raise _malformed_error()


def lacks(schema: pa.Schema, column: pa.Field) -> bool:
    """Return whether a schema lacks a column, or fields of it at any depth."""
    if column.name not in schema.names:
        return True
    return not _has_fields(schema.field(column.name).type, column.type)


def _has_fields(type_: pa.DataType, other: pa.DataType) -> bool:
    """Return whether a type has the fields of another one that it can be cast to."""
    if not pa.types.is_struct(other):
        children = range(min(type_.num_fields, other.num_fields))
        return all(_has_fields(type_.field(n).type, other.field(n).type) for n in children)
    indexes = {each.name: index for index, each in enumerate(type_)}
    return all(
        each.name in indexes and _has_fields(type_.field(indexes[each.name]).type, each.type)
        for each in other
    )


def _malformed_error() -> CorruptProgressError:
    return CorruptProgressError("the facts about its rows are malformed or were changed")
