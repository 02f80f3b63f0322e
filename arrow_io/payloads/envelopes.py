"""Debezium's envelopes: the columns of a change event, from the decoded fields of its envelope.

A change event has the row before and after the change, the operation and its source:

    {"before": row, "after": row, "source": {"ts_ms": ms, …}, "op": "c" | "r" | "u" | "d", …}

Its columns are those of `after`, or of `before` if a delete left nothing after it. A null value (a
*tombstone*), a truncated table, a heartbeat and a change of the schema have no row: all columns of
the row are null. Kafka Connect's converter may put the envelope into the field `payload`, beside
its `schema`.
"""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.core.option_names import option_name
from arrow_io.errors import OptionError, PayloadDecodeError
from arrow_io.payloads.avro_schema import CONNECT_NAME
from arrow_io.payloads.shape import UTC_MICROSECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from arrow_io.payloads.shape import Selection, Shape

OP_COLUMN: Final = "__op"
DELETED_COLUMN: Final = "__deleted"
SOURCE_TIME_COLUMN: Final = "__source_ts"
CHANGE_COLUMNS: Final[Mapping[str, pa.DataType]] = {
    OP_COLUMN: pa.string(),
    DELETED_COLUMN: pa.bool_(),
    SOURCE_TIME_COLUMN: UTC_MICROSECONDS,
}
"""Types of the columns that describe a change. The first two names are those of Debezium's own
`ExtractNewRecordState`."""


def _letters(text: str) -> pa.StringArray:
    """Return the letters of an ASCII text. `pa.array` would load pandas when this is imported."""
    offsets = array("i", range(len(text) + 1))
    return pa.StringArray.from_buffers(
        len(text), pa.py_buffer(offsets), pa.py_buffer(text.encode())
    )


UNAVAILABLE_VALUE: Final = "__debezium_unavailable_value"
"""Stands for a value that the log of the database lacks."""
_WRITES: Final = _letters("cru")
"""Operations that leave a row: create, read (of a snapshot) and update."""
CHANGES: Final = _letters("crud")
"""Operations that change a row: those, and delete."""
_OPERATIONS: Final = _letters("crudtm")
"""All operations; `t` is a truncated table, and `m` a message of PostgreSQL's log."""

_LOGICAL_TYPES: Final = {
    "io.debezium.time.Date": "date",
    "io.debezium.time.Timestamp": "local-timestamp-millis",
    "io.debezium.time.MicroTimestamp": "local-timestamp-micros",
    "io.debezium.time.NanoTimestamp": "local-timestamp-nanos",
}
"""Avro's logical types of Debezium's types of numbers. Its timestamps have no time zone.

Its times are not among them: they may exceed a day, because MySQL's are durations, and
PostgreSQL's end at 24:00."""


def add_logical_types(definition: str) -> str:
    """Return an Avro schema with Avro's logical types in addition to Debezium's names of types.

    A text that is not JSON is returned unchanged.
    """
    try:
        schema = json.loads(definition)
    except (ValueError, RecursionError):
        return definition
    _add_logical_types(schema)
    return json.dumps(schema, ensure_ascii=False)


def _add_logical_types(root: object) -> None:
    parts = [root]
    while parts:
        part = parts.pop()
        if isinstance(part, list):
            parts += part
        elif isinstance(part, dict):
            logical = _LOGICAL_TYPES.get(str(part.get(CONNECT_NAME)))
            if logical is not None:
                part["logicalType"] = logical
            if part.get("name") == "source":
                _add_source_time(part.get("type"))
            parts += part.values()


def _add_source_time(source: object) -> None:
    if isinstance(source, list):
        source = next((each for each in source if isinstance(each, dict)), None)
    fields = source.get("fields") if isinstance(source, dict) else None
    for each in fields if isinstance(fields, list) else ():
        if isinstance(each, dict) and each.get("name") == "ts_ms":
            each["type"] = _as_time(each.get("type"))


def _as_time(type_: object) -> object:
    """Return a type, as a time in milliseconds if it is a long."""
    if isinstance(type_, list):
        return [_as_time(each) for each in type_]
    if type_ == "long" or (isinstance(type_, dict) and type_.get("type") == "long"):
        return {"type": "long", "logicalType": "timestamp-millis"}
    return type_


@dataclass(frozen=True)
class Envelope:
    """The fields of an envelope that columns are made from.

    Attributes:
        path: The field that contains the envelope; empty if it is the whole value.
        after: Shape of the row after the change.
        before_fields: Fields that the row before the change has with the same types.
        has_source_time: Whether the source has a time.
        has_time: Whether the envelope has a time of its own.
    """

    path: tuple[str, ...]
    after: Shape
    before_fields: frozenset[str]
    has_source_time: bool
    has_time: bool

    @classmethod
    def from_shape(cls, shape: Shape) -> Envelope:
        """Return the envelope in values of a shape.

        Raises:
            OptionError: The values are no envelopes of rows.
        """
        path: tuple[str, ...] = ()
        fields = _children(shape)
        if "payload" in fields and "op" not in fields:
            path, fields = ("payload",), _children(fields["payload"])
        is_text = "op" in fields and pa.types.is_string(fields["op"].type)
        if not is_text or not _children(fields.get("after")):
            names = ", ".join(fields) or "none"
            message = (
                "values are not change events of Debezium, which are records with a text `op` and a"
                f" row as a record `after`; the fields of their schema are: {names}. Leave out"
                f" {option_name('unwrap')}, or give the {option_name('schema')} of the envelopes"
            )
            raise OptionError(message)
        after = _children(fields["after"])
        before = _children(fields.get("before"))
        source = _children(fields.get("source"))
        return cls(
            path,
            fields["after"],
            frozenset(n for n, each in before.items() if n in after and each.type == after[n].type),
            "ts_ms" in source and source["ts_ms"].type == UTC_MICROSECONDS,
            "ts_ms" in fields,
        )

    @property
    def fields(self) -> list[tuple[str, pa.DataType]]:
        """Names and types of the row's fields."""
        names = [each.name for each in self.after.children]
        return list(zip(names, [each.type for each in self.after.type], strict=True))

    def selection(self, row_fields: Sequence[str]) -> Selection:
        """Return the fields to decode for some of the row's fields, in the order `columns` needs.

        The fields that show whether a value is an envelope are decoded for any columns, so that all
        columns have the same errors.
        """
        selection: list[Any] = ["op", ("after", tuple(row_fields))]
        if self.before_fields:
            own = tuple(each for each in row_fields if each in self.before_fields)
            selection.append(("before", own))
        if self.has_time:
            selection.append("ts_ms")
        if self.has_source_time:
            selection.append(("source", ("ts_ms",)))
        fields: Selection = tuple(selection)
        for each in reversed(self.path):
            fields = ((each, fields),)
        return fields

    def columns(
        self,
        values: pa.StructArray,
        row_fields: Sequence[str],
        lose: Callable[[list[int], PayloadDecodeError], None],
        lost: pa.BooleanArray | None,
    ) -> tuple[dict[str, pa.Array], dict[str, pa.Array]]:
        """Return the fields of the rows by name, and the `CHANGE_COLUMNS` by name.

        Args:
            values: The decoded `selection`.
            row_fields: The row's fields that were selected.
            lose: Raises or counts the error of rows by their numbers. Their columns are null then.
            lost: Mask of rows that were counted as lost before; None: no row was.

        Raises:
            PayloadDecodeError: A value is no envelope.
        """
        decoded = self._decoded(values)
        op, row, times = decoded.op, _children_of(decoded.after, row_fields), decoded.source_times
        if pc.all(pc.and_(decoded.after.is_valid(), pc.is_in(op, value_set=_WRITES))).as_py():
            # Usually, all rows of a batch were written, and nothing is copied.
            return row, _changes(op, _falses(len(values)), times)
        is_wrong = decoded.find_errors(lose)
        lost = is_wrong if lost is None else pc.or_(is_wrong, lost)
        op = pc.if_else(lost, pa.scalar(None, op.type), op)
        is_row = pc.and_not(decoded.after.is_valid(), lost)
        is_delete = pc.fill_null(pc.equal(op, "d"), fill_value=False)
        names = [each for each in row_fields if each in self.before_fields]
        previous = {} if decoded.before is None else _children_of(decoded.before, names)
        for name, values_after in row.items():
            other: Any = pa.scalar(None, values_after.type)
            if name in previous:
                other = pc.if_else(is_delete, previous[name], other)
            row[name] = pc.if_else(is_row, values_after, other)
        deleted = pc.or_(is_delete, pc.invert(decoded.is_present))
        deleted = pc.if_else(lost, pa.scalar(None, deleted.type), deleted)
        times = pc.if_else(lost, pa.scalar(None, times.type), times)
        return row, _changes(op, deleted, times)

    def _decoded(self, values: pa.StructArray) -> _Decoded:
        is_present = values.is_valid()
        for _ in self.path:
            [values] = values.flatten()
        parts = iter(values.flatten())
        op, after = next(parts), next(parts)
        before = next(parts) if self.before_fields else None
        has_time = next(parts).is_valid() if self.has_time else _falses(len(values))
        times = pa.nulls(len(values), UTC_MICROSECONDS)
        if self.has_source_time:
            [times] = next(parts).flatten()
        return _Decoded(is_present, op, after, before, has_time, times)


@dataclass(frozen=True, slots=True)
class _Decoded:
    """The decoded fields of envelopes.

    Attributes:
        is_present: Whether there is a value, even if it contains no envelope.
        has_time: Whether the envelope has a time of its own.
    """

    is_present: pa.BooleanArray
    op: pa.StringArray
    after: pa.Array
    before: pa.Array | None
    has_time: pa.BooleanArray
    source_times: pa.Array

    def find_errors(self, lose: Callable[[list[int], PayloadDecodeError], None]) -> pa.BooleanArray:
        """Report values that are no envelopes, and return a mask of them."""
        is_row = self.after.is_valid()
        # Heartbeats and changes of the schema have a time, but no operation.
        has_image = is_row if self.before is None else pc.or_(is_row, self.before.is_valid())
        is_notice = pc.and_(self.op.is_null(), pc.and_not(self.has_time, has_image))
        is_known = pc.or_(pc.is_in(self.op, value_set=_OPERATIONS), is_notice)
        is_unknown = pc.and_not(self.is_present, is_known)
        lacks_row = pc.and_not(pc.is_in(self.op, value_set=_WRITES), is_row)
        errors = (
            (is_unknown, "the value is no envelope of Debezium: it has no known `op`"),
            (lacks_row, "the envelope of a row that was written has no `after`"),
        )
        for mask, reason in errors:
            if pc.any(mask).as_py():
                lose(pc.indices_nonzero(mask).to_pylist(), PayloadDecodeError(reason))
        return pc.or_(is_unknown, lacks_row)


def _falses(count: int) -> pa.BooleanArray:
    return pa.repeat(pa.scalar(value=False), count)


def _changes(op: pa.Array, deleted: pa.Array, times: pa.Array) -> dict[str, pa.Array]:
    return dict(zip(CHANGE_COLUMNS, (op, deleted, times), strict=True))


def _children(shape: Shape | None) -> dict[str, Shape]:
    if shape is None or not shape.is_record:
        return {}
    return {each.name: each for each in shape.children}


def _children_of(record: pa.Array, names: Sequence[str]) -> dict[str, pa.Array]:
    """Return the fields of a decoded record. Without fields, it is a boolean."""
    return dict(zip(names, record.flatten(), strict=True)) if names else {}
