"""Topics in Daft: a data source whose tasks are parts of a planned scan."""

from __future__ import annotations

import asyncio
import operator
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from daft.expressions.visitor import PredicateVisitor
from daft.io.source import DataSource, DataSourceTask
from daft.recordbatch import RecordBatch
from daft.schema import Schema

from arrow_io.errors import OptionError
from connector.filters.row_filters import ArrowFilter
from connector.scan.parts import PartReader, plan_parts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from daft import Expression
    from daft.io.pushdowns import Pushdowns

    from connector.dataset import TopicDataset
    from connector.scan.parts import Part


class TopicSource(DataSource):  # type: ignore[misc]
    """The rows of a topic dataset."""

    def __init__(self, dataset: TopicDataset, task_bytes: int) -> None:
        self._dataset = dataset
        self._task_bytes = task_bytes

    @property
    def name(self) -> str:
        """Name in Daft's plans."""
        return "pulsar_offload"

    @property
    def schema(self) -> Schema:
        """Columns of the dataset."""
        return Schema.from_pyarrow_schema(self._dataset.schema)

    async def get_tasks(self, pushdowns: Pushdowns) -> AsyncIterator[DataSourceTask]:
        """Yield the tasks of a query, in order.

        Raises:
            PulsarOffloadError: Statistics, or the messages of a view, cannot be read.
        """
        schema, scan = self._dataset.schema, self._dataset.scan
        if pushdowns.columns is not None:
            # Daft applies the filter again, and needs its columns for that.
            names = {*pushdowns.columns, *pushdowns.filter_required_column_names()}
            scan = scan.select(name for name in schema.names if name in names)
        row_filter = None if pushdowns.filters is None else _filter(pushdowns.filters, schema)
        if row_filter is not None:
            scan = scan.add_filter(row_filter)
        reader = await asyncio.to_thread(PartReader.from_scan, scan)
        limit = pushdowns.limit if pushdowns.filters is None else None
        for part in plan_parts(reader.reads, self._task_bytes):
            yield TopicTask(reader, part, scan.options.projection.schema, limit)


class TopicTask(DataSourceTask):  # type: ignore[misc]
    """A part of a topic that one worker reads. Picklable.

    Args:
        limit: Maximum number of rows that are needed; None: all.
    """

    def __init__(
        self, reader: PartReader, part: Part, schema: pa.Schema, limit: int | None
    ) -> None:
        self._reader = reader
        self._part = part
        self._schema = schema
        self._limit = limit

    @property
    def schema(self) -> Schema:
        """Columns of the record batches."""
        return Schema.from_pyarrow_schema(self._schema)

    async def read(self) -> AsyncIterator[RecordBatch]:
        """Yield the rows, decoded in a thread: all tasks of a process share one event loop.

        Raises:
            PulsarOffloadError: Data cannot be read or decoded.
        """
        batches = self._reader.batches(self._part)
        rows_left = self._limit
        while rows_left is None or rows_left > 0:
            batch = await asyncio.to_thread(next, batches, None)
            if batch is None:
                return
            yield RecordBatch.from_arrow_record_batches([batch], batch.schema)
            rows_left = None if rows_left is None else rows_left - batch.num_rows


def _filter(expression: Expression, schema: pa.Schema) -> ArrowFilter | None:
    """Return a filter that accepts every row that a Daft expression accepts, if there is one."""
    implied = _ImpliedFilter(schema).visit(expression)
    if implied is None:
        return None
    try:
        return ArrowFilter.from_expression(implied, schema)
    except OptionError:
        return None


class _ImpliedFilter(PredicateVisitor):  # type: ignore[misc]
    """Makes Arrow expressions that are implied by Daft's; None if nothing is implied.

    Only comparisons of a column with literals of its type are converted. Daft compares other types
    by rules of its own: it orders NaN after all numbers, and truncates times to the column's unit.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def visit_and(self, left: Expression, right: Expression) -> pc.Expression | None:
        sides = [each for each in (self.visit(left), self.visit(right)) if each is not None]
        return sides[0] & sides[1] if len(sides) > 1 else next(iter(sides), None)

    def visit_or(self, left: Expression, right: Expression) -> pc.Expression | None:
        one, other = self.visit(left), self.visit(right)
        return None if one is None or other is None else one | other

    def visit_equal(self, left: Expression, right: Expression) -> pc.Expression | None:
        return self._compared(operator.eq, left, right)

    def visit_not_equal(self, left: Expression, right: Expression) -> pc.Expression | None:
        return self._compared(operator.ne, left, right)

    def visit_less_than(self, left: Expression, right: Expression) -> pc.Expression | None:
        return self._compared(operator.lt, left, right)

    def visit_less_than_or_equal(self, left: Expression, right: Expression) -> pc.Expression | None:
        return self._compared(operator.le, left, right)

    def visit_greater_than(self, left: Expression, right: Expression) -> pc.Expression | None:
        return self._compared(operator.gt, left, right)

    def visit_greater_than_or_equal(
        self, left: Expression, right: Expression
    ) -> pc.Expression | None:
        return self._compared(operator.ge, left, right)

    def visit_between(
        self, expr: Expression, lower: Expression, upper: Expression
    ) -> pc.Expression | None:
        one = self._compared(operator.ge, expr, lower)
        other = self._compared(operator.le, expr, upper)
        return one if other is None else other if one is None else one & other

    def visit_is_in(self, expr: Expression, items: Sequence[Expression]) -> pc.Expression | None:
        field = self._field(expr)
        if field is None:
            return None
        literals = [_literal(each, field.type) for each in items]
        values = [each.as_py() for each in literals if each is not None]
        # Daft and Arrow differ in what a null in the list matches.
        is_complete = len(values) == len(literals)
        return pc.field(field.name).isin(pa.array(values, field.type)) if is_complete else None

    def visit_is_null(self, expr: Expression) -> pc.Expression | None:
        return pc.field(expr.column_name()).is_null() if expr.is_column() else None

    def visit_not_null(self, expr: Expression) -> pc.Expression | None:
        return pc.field(expr.column_name()).is_valid() if expr.is_column() else None

    def _unknown(self, *_: object) -> None:
        """Return that nothing is implied."""

    visit_alias = visit_cast = visit_coalesce = visit_col = visit_function = _unknown
    visit_list = visit_lit = visit_not = visit_try_cast = _unknown

    def _compared(
        self, compare: Callable[[Any, Any], pc.Expression], left: Expression, right: Expression
    ) -> pc.Expression | None:
        for field, other in ((self._field(left), right), (self._field(right), left)):
            literal = None if field is None else _literal(other, field.type)
            if field is not None and literal is not None:
                sides = pc.field(field.name), pc.scalar(literal)
                return compare(*(sides if other is right else sides[::-1]))
        return None

    def _field(self, expression: Expression) -> pa.Field | None:
        return self._schema.field(expression.column_name()) if expression.is_column() else None


_PYTHON_TYPES: Final[tuple[tuple[Callable[[pa.DataType], bool], type], ...]] = (
    (pa.types.is_integer, int),
    (pa.types.is_boolean, bool),
    (pa.types.is_string, str),
    (pa.types.is_binary, bytes),
    (pa.types.is_date32, date),
    (pa.types.is_time, time),
    (pa.types.is_timestamp, datetime),
)
"""Types of columns that Daft and Arrow compare alike, and Python's type of their literals."""


def _literal(expression: Expression, type_: pa.DataType) -> pa.Scalar | None:
    """Return a literal as a value of a column's type; None if it has another type, or is null."""
    value = expression.as_py() if expression.is_literal() else None
    if not any(matches(type_) and type(value) is python for matches, python in _PYTHON_TYPES):
        return None
    try:
        return pa.scalar(value).cast(type_)
    except pa.ArrowException:
        return None
