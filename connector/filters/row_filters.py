"""Exact filters: which columns one needs, and which rows it keeps."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
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


def add_row_numbers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the numbers of its rows as a further column, `ROW_NUMBER`."""
    return batch.append_column(ROW_NUMBER, pa.arange(0, batch.num_rows))


class RowFilter(Protocol):
    """Decides by some columns which rows are kept."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that it looks at."""

    def matching_rows(self, batch: pa.RecordBatch) -> pa.Int64Array:
        """Numbers of the rows that are kept, ascending; the batch has `columns`."""

    @property
    def literals(self) -> tuple[pa.Scalar, ...]:
        """Values that it may compare columns with: where its answer may change. Never null."""

    def can_match(self, guarantees: Sequence[pc.Expression], schema: pa.Schema) -> list[bool]:
        """For each guarantee, whether rows of which it is true can pass; False only if proved.

        Args:
            guarantees: Each is something that is true of all rows of its own.
            schema: Schema of the rows.
        """


@dataclass(frozen=True)
class ArrowFilter:
    """An Arrow expression, applied exactly: a row is kept if it is true, not if it is null.

    Attributes:
        expression: The expression.
        columns: Names of the columns that it looks at.
    """

    expression: pc.Expression
    columns: tuple[str, ...]

    @classmethod
    def from_expression(cls, expression: pc.Expression, schema: pa.Schema) -> ArrowFilter:
        """Find out which columns of `schema` an expression looks at.

        Expressions cannot be walked; but one that looks at a column cannot be applied without it.

        Raises:
            OptionError: The expression cannot be applied to such columns.
        """
        if not isinstance(expression, pc.Expression):
            message = (
                "a filter is an Arrow expression, such as pc.field('__key__') == 'k', not"
                f" {type_name(expression)}"
            )
            raise OptionError(message)
        try:
            # Arrow cannot pickle a column that is given by its position, which here would depend
            # on what is read.
            pickle.dumps(expression)
        except pa.ArrowNotImplementedError as error:
            message = f"the filter {expression} must name columns, not count them: {error}"
            raise OptionError(message) from error
        try:
            # Some comparisons, as of times with and without a time zone, are refused row by row.
            _row_of_nulls(schema).filter(expression)
        except (pa.ArrowException, ValueError, KeyError) as error:
            raise _filter_error(expression, error) from error
        return cls(
            expression, tuple(each.name for each in _referenced_columns(expression, list(schema)))
        )

    def matching_rows(self, batch: pa.RecordBatch) -> pa.Int64Array:
        """Numbers of the rows for which the expression is true, ascending.

        Raises:
            OptionError: The expression fails for a value, such as a text that is no number.
        """
        try:
            column = add_row_numbers(batch).filter(self.expression).column(ROW_NUMBER)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise _filter_error(self.expression, error) from error
        return column if isinstance(column, pa.Array) else column.combine_chunks()

    @property
    def literals(self) -> tuple[pa.Scalar, ...]:
        """The literals of the expression, as far as Arrow tells them."""
        # Pickled, an expression is a record batch whose columns are what stands in it.
        _, (pickled, *_) = self.expression.__reduce__()
        with pa.ipc.open_file(pickled) as file:
            batch = file.get_batch(0)
        return tuple(each for column in batch.columns for each in _scalars(column[0]))

    def can_match(self, guarantees: Sequence[pc.Expression], schema: pa.Schema) -> list[bool]:
        """For each guarantee, whether rows of which it is true can pass, unless Arrow disproves."""
        try:
            possible = self._possible_guarantees(guarantees, schema)
        except pa.ArrowException:
            # With a guarantee in place of a column, Arrow may meet a division by zero, or a text
            # that is no number. That proves nothing, and rows of that kind need not be there.
            if len(guarantees) == 1:
                return [True]
            return [self.can_match([each], schema)[0] for each in guarantees]
        return [number in possible for number in range(len(guarantees))]

    def _possible_guarantees(
        self, guarantees: Sequence[pc.Expression], schema: pa.Schema
    ) -> set[int]:
        """Numbers of the guarantees that Arrow leaves open."""
        format_, nowhere = pads.ParquetFileFormat(), pafs.LocalFileSystem()
        fragments = [
            format_.make_fragment(str(number), nowhere, each)
            for number, each in enumerate(guarantees)
        ]
        rows = pads.FileSystemDataset(fragments, schema, format_, nowhere)
        return {int(each.path) for each in rows.get_fragments(filter=self.expression)}


@dataclass(frozen=True)
class BothFilters:
    """Two filters: a row is kept if both keep it.

    Attributes:
        first: The one that is applied first.
        second: The other, applied to what the first keeps.
    """

    first: RowFilter
    second: RowFilter

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that one of them looks at."""
        return tuple(dict.fromkeys((*self.first.columns, *self.second.columns)))

    def matching_rows(self, batch: pa.RecordBatch) -> pa.Int64Array:
        """Numbers of the rows that both keep, ascending."""
        selection = self.first.matching_rows(batch)
        return selection.take(self.second.matching_rows(batch.take(selection)))

    @property
    def literals(self) -> tuple[pa.Scalar, ...]:
        """Those of both."""
        return *self.first.literals, *self.second.literals

    def can_match(self, guarantees: Sequence[pc.Expression], schema: pa.Schema) -> list[bool]:
        """For each guarantee, whether rows of which it is true can pass both filters."""
        answers = (each.can_match(guarantees, schema) for each in (self.first, self.second))
        return [all(each) for each in zip(*answers, strict=True)]


def _scalars(value: pa.Scalar) -> Iterator[pa.Scalar]:
    """The values in a literal, or in the options of a function, such as a set of values."""
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
    """Return those of some columns that an expression looks at.

    They are found by halving, because each attempt takes time in proportion to its columns.

    Args:
        expression: The expression.
        columns: The columns.
        additional: More columns; with these and `columns` the expression can be applied.
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
