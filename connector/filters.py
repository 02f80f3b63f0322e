"""Exact filters: which columns one needs, and which rows it keeps."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.fs as pafs

from arrow_io.errors import OptionError

if TYPE_CHECKING:
    import pyarrow.compute as pc

ROW_NUMBER = "__row__"


def numbered(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the numbers of its rows as a further column, `ROW_NUMBER`."""
    return batch.append_column(ROW_NUMBER, pa.arange(0, batch.num_rows))


class RowFilter(Protocol):
    """Decides by some columns which rows are kept."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that it looks at."""

    def kept(self, batch: pa.RecordBatch) -> pa.Int64Array:
        """Numbers of the rows that are kept, ascending; the batch has `columns`."""

    def may_hold(self, guarantee: pc.Expression, schema: pa.Schema) -> bool:
        """Whether rows for which `guarantee` is true can pass; False only if it is proved.

        Args:
            guarantee: Something that is true of all rows.
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
    def of(cls, expression: pc.Expression, schema: pa.Schema) -> ArrowFilter:
        """Find out which columns of `schema` an expression looks at.

        Expressions cannot be walked; but one that looks at a column cannot be applied without it.

        Raises:
            OptionError: The expression cannot be applied to such columns.
        """
        try:
            # Arrow cannot pickle a column that is given by its position, which here would depend
            # on what is read.
            pickle.dumps(expression)
        except pa.ArrowNotImplementedError as error:
            message = f"the filter {expression} must name columns, not count them: {error}"
            raise OptionError(message) from error
        try:
            schema.empty_table().filter(expression)
        except (pa.ArrowException, ValueError, KeyError) as error:
            message = f"the filter {expression} cannot be applied: {error}"
            raise OptionError(message) from error
        names = tuple(name for name in schema.names if _needs(expression, schema, name))
        return cls(expression, names)

    def kept(self, batch: pa.RecordBatch) -> pa.Int64Array:
        """Numbers of the rows for which the expression is true, ascending."""
        column = numbered(batch).filter(self.expression).column(ROW_NUMBER)
        return column if isinstance(column, pa.Array) else column.combine_chunks()

    def may_hold(self, guarantee: pc.Expression, schema: pa.Schema) -> bool:
        """Whether rows for which `guarantee` is true can pass; False only if Arrow proves it."""
        format_ = pads.ParquetFileFormat()
        fragment = format_.make_fragment("-", pafs.LocalFileSystem(), guarantee)
        rows = pads.FileSystemDataset([fragment], schema, format_, pafs.LocalFileSystem())
        return any(True for _ in rows.get_fragments(filter=self.expression))


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

    def kept(self, batch: pa.RecordBatch) -> pa.Int64Array:
        """Numbers of the rows that both keep, ascending."""
        kept = self.first.kept(batch)
        return kept.take(self.second.kept(batch.take(kept)))

    def may_hold(self, guarantee: pc.Expression, schema: pa.Schema) -> bool:
        """Whether rows for which `guarantee` is true can pass both filters."""
        return all(each.may_hold(guarantee, schema) for each in (self.first, self.second))


def _needs(expression: pc.Expression, schema: pa.Schema, name: str) -> bool:
    without = schema.remove(schema.get_field_index(name))
    try:
        without.empty_table().filter(expression)
    except (pa.ArrowException, ValueError, KeyError):
        return True
    return False
