"""Exact row filters: the columns that a filter needs and the rows that match it."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs

from arrow_io.core.option_values import type_name
from arrow_io.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROW_NUMBER = "__row__"


def row_numbers(count: int) -> pa.Int64Array:
    """Return the numbers of rows, from 0: `pyarrow.arange`, which PyArrow has from 21 on."""
    return pc.indices_nonzero(pa.repeat(True, count)).view(pa.int64())  # noqa: FBT003


def add_row_numbers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Append a column `ROW_NUMBER` with the numbers of the rows, from 0."""
    return batch.append_column(ROW_NUMBER, row_numbers(batch.num_rows))


class RowFilter(Protocol):
    """A predicate on rows that needs only some of the columns."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the predicate columns."""

    def matching_rows(self, batch: pa.RecordBatch) -> pa.Int64Array:
        """Return the indices of the matching rows, ascending; `batch` has the predicate columns."""

    @property
    def literals(self) -> tuple[pa.Scalar, ...]:
        """Literals that columns may be compared with, where the result may change; never null."""

    def can_match(self, guarantees: Sequence[pc.Expression], schema: pa.Schema) -> list[bool]:
        """Return for each guarantee whether rows that satisfy it can match.

        Args:
            guarantees: Expressions, each true for all rows of one group.
            schema: Schema of the rows.

        Returns:
            One value per guarantee; False only if a match is proved to be impossible.
        """


@dataclass(frozen=True)
class ArrowFilter:
    """An Arrow expression, applied exactly: rows match if it is true, not if it is null."""

    expression: pc.Expression
    columns: tuple[str, ...]

    @classmethod
    def from_expression(cls, expression: pc.Expression, schema: pa.Schema) -> ArrowFilter:
        """Make a filter from an expression, and find which columns of `schema` it uses.

        Expressions cannot be walked, but an expression cannot be applied without the columns that
        it uses.

        Raises:
            OptionError: The expression cannot be applied to these columns.
        """
        if not isinstance(expression, pc.Expression):
            message = (
                "a filter must be an Arrow expression, such as pc.field('__key__') == 'k', not"
                f" {type_name(expression)}"
            )
            raise OptionError(message)
        try:
            # Arrow cannot pickle a reference to a column by position. A position would depend on
            # the projection here.
            pickle.dumps(expression)
        except pa.ArrowNotImplementedError as error:
            message = f"the filter {expression} must refer to columns by name: {error}"
            raise OptionError(message) from error
        try:
            # Some comparisons, such as of times with and without a time zone, fail only on rows.
            _row_of_nulls(schema).filter(expression)
        except (pa.ArrowException, ValueError, KeyError) as error:
            raise _filter_error(expression, error) from error
        return cls(
            expression, tuple(each.name for each in _referenced_columns(expression, list(schema)))
        )

    def matching_rows(self, batch: pa.RecordBatch) -> pa.Int64Array:
        """Return the indices of the rows for which the expression is true, ascending.

        Raises:
            OptionError: The expression fails for a value, such as a string that is not a number.
        """
        try:
            # Before 21, PyArrow cannot filter a batch of which no row matches.
            rows = pa.Table.from_batches([add_row_numbers(batch)]).filter(self.expression)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise _filter_error(self.expression, error) from error
        return rows.column(ROW_NUMBER).combine_chunks()

    @property
    def literals(self) -> tuple[pa.Scalar, ...]:
        """The expression's literals, as far as Arrow exposes them."""
        # A pickled expression is a record batch whose columns are the expression's parts.
        _, (pickled, *_) = self.expression.__reduce__()
        with pa.ipc.open_file(pickled) as file:
            batch = file.get_batch(0)
        return tuple(each for column in batch.columns for each in _scalars(column[0]))

    def can_match(self, guarantees: Sequence[pc.Expression], schema: pa.Schema) -> list[bool]:
        """Return for each guarantee whether Arrow leaves a match possible."""
        try:
            possible = self._possible_guarantees(guarantees, schema)
        except pa.ArrowException:
            # If Arrow replaces a column by its guaranteed value, it may divide by zero or cast a
            # string that is not a number. That proves nothing: such rows need not exist.
            if len(guarantees) == 1:
                return [True]
            return [self.can_match([each], schema)[0] for each in guarantees]
        return [number in possible for number in range(len(guarantees))]

    def _possible_guarantees(
        self, guarantees: Sequence[pc.Expression], schema: pa.Schema
    ) -> set[int]:
        """Return the numbers of the guarantees that Arrow cannot disprove."""
        # Nothing is read: Arrow drops fragments whose partition expression rules out the filter.
        format_, file_system = pads.ParquetFileFormat(), pafs.LocalFileSystem()
        fragments = [
            format_.make_fragment(str(number), file_system, each)
            for number, each in enumerate(guarantees)
        ]
        rows = pads.FileSystemDataset(fragments, schema, format_, file_system)
        return {int(each.path) for each in rows.get_fragments(filter=self.expression)}


@dataclass(frozen=True)
class BothFilters:
    """The conjunction of two filters; `second` is applied to the rows that match `first`."""

    first: RowFilter
    second: RowFilter

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the predicate columns of both filters."""
        return tuple(dict.fromkeys((*self.first.columns, *self.second.columns)))

    def matching_rows(self, batch: pa.RecordBatch) -> pa.Int64Array:
        """Return the indices of the rows that match both filters, ascending."""
        selection = self.first.matching_rows(batch)
        return selection.take(self.second.matching_rows(batch.take(selection)))

    @property
    def literals(self) -> tuple[pa.Scalar, ...]:
        """The literals of both filters."""
        return *self.first.literals, *self.second.literals

    def can_match(self, guarantees: Sequence[pc.Expression], schema: pa.Schema) -> list[bool]:
        """Return for each guarantee whether rows that satisfy it can match both filters."""
        answers = (each.can_match(guarantees, schema) for each in (self.first, self.second))
        return [all(each) for each in zip(*answers, strict=True)]


def failing_filter(row_filter: RowFilter) -> ArrowFilter | None:
    """Return a filter of exactly the rows that do not match; None if Arrow cannot express it."""
    if isinstance(row_filter, BothFilters):
        first, second = failing_filter(row_filter.first), failing_filter(row_filter.second)
        if first is None or second is None:
            return None
        return ArrowFilter(first.expression | second.expression, row_filter.columns)
    if not isinstance(row_filter, ArrowFilter):
        return None
    expression = row_filter.expression
    return replace(row_filter, expression=~expression | expression.is_null())


def _scalars(value: pa.Scalar) -> Iterator[pa.Scalar]:
    """Yield the values in a literal, or in the options of a function, such as a set of values."""
    if not value.is_valid:
        return
    if pa.types.is_struct(value.type):
        for name in value:
            yield from _scalars(value[name])
    elif isinstance(value, pa.ListScalar):
        for each in value.values:
            yield from _scalars(each)
    else:
        yield value


def _row_of_nulls(schema: pa.Schema) -> pa.Table:
    columns = [pa.nulls(1, each.type) for each in schema]
    return pa.Table.from_arrays(columns, names=schema.names)


def _filter_error(expression: pc.Expression, error: Exception) -> OptionError:
    return OptionError(f"the filter {expression} cannot be applied: {error}")


def _referenced_columns(
    expression: pc.Expression, columns: Sequence[pa.Field], additional: Sequence[pa.Field] = ()
) -> list[pa.Field]:
    """Return those of some columns that an expression uses.

    The search is a bisection, because each attempt takes time proportional to its columns. The
    expression can be applied to `columns` and `additional` together.
    """
    if _is_applicable(expression, additional):
        return []
    if len(columns) == 1:
        return list(columns)
    halves = columns[: len(columns) // 2], columns[len(columns) // 2 :]
    for half in halves:
        if _is_applicable(expression, [*additional, *half]):
            return _referenced_columns(expression, half, additional)
    first = _referenced_columns(expression, halves[0], [*additional, *halves[1]])
    return first + _referenced_columns(expression, halves[1], [*additional, *first])


def _is_applicable(expression: pc.Expression, columns: Sequence[pa.Field]) -> bool:
    try:
        pa.schema(columns).empty_table().filter(expression)
    except (pa.ArrowException, ValueError, KeyError):
        return False
    return True
