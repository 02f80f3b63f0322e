"""A topic as a lazy Polars frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source

from arrow_io.errors import OptionError
from connector.filters.row_filters import ROW_NUMBER, ArrowFilter, add_row_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow.compute as pc
    import pyarrow.dataset as pads

    from connector.scan.scanner import TopicScanner
    from connector.scan.topic_scan import Scan


@dataclass(frozen=True)
class PolarsFilter:
    """A Polars predicate: a row is kept if it is true.

    Attributes:
        predicate: The predicate.
        columns: Names of the columns that it looks at.
        implied: What Polars itself says of it in Arrow's words: it passes every row that the
            predicate passes. None if there is nothing of the kind.
    """

    predicate: pl.Expr
    columns: tuple[str, ...]
    implied: ArrowFilter | None = None

    @classmethod
    def from_predicate(cls, predicate: pl.Expr, schema: pa.Schema) -> PolarsFilter:
        """The filter of a predicate over some columns."""
        columns = tuple(dict.fromkeys(predicate.meta.root_names()))
        return cls(predicate, columns, _implied_filter(predicate, schema, columns))

    def matching_rows(self, batch: pa.RecordBatch) -> pa.Int64Array:
        """Numbers of the rows for which the predicate is true, ascending."""
        # A column of numbers, because a predicate may look at no column, or be a mere literal.
        frame = frame_of(add_row_numbers(batch))
        return pa.array(frame.filter(self.predicate).get_column(ROW_NUMBER).to_arrow(), pa.int64())

    @property
    def literals(self) -> tuple[pa.Scalar, ...]:
        """Those of what is implied."""
        return () if self.implied is None else self.implied.literals

    def can_match(self, guarantees: Sequence[pc.Expression], schema: pa.Schema) -> list[bool]:
        """For each guarantee, whether rows of which it is true can pass what is implied."""
        if self.implied is None:
            return [True] * len(guarantees)
        return self.implied.can_match(guarantees, schema)


class _Listener:
    """Takes the place of a dataset of Arrow, and notes the filter that Polars hands to it."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.filter: pc.Expression | None = None

    def to_batches(
        self,
        *,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - the name is Arrow's
        **_: object,
    ) -> Iterator[pa.RecordBatch]:
        """Note the filter; gives no row."""
        del columns
        self.filter = filter
        return iter(())


def _implied_filter(
    predicate: pl.Expr, schema: pa.Schema, columns: Sequence[str]
) -> ArrowFilter | None:
    """What Polars would have a dataset of Arrow apply before it filters by a predicate itself."""
    listener = _Listener(pa.schema([schema.field(name) for name in columns]))
    # Polars compares times in the coarser unit of the two; the times of messages are whole in all.
    try:
        pl.scan_pyarrow_dataset(cast("pads.Dataset", listener)).filter(predicate).collect()
        if listener.filter is not None:
            return ArrowFilter.from_expression(listener.filter, schema)
    except (pl.exceptions.PolarsError, pa.ArrowException, OptionError, KeyError, TypeError):
        # What Polars cannot say in Arrow's words proves nothing.
        return None
    return None


def lazy_frame(scan: Scan, scanner_of: Callable[[Scan], TopicScanner]) -> pl.LazyFrame:
    """Return a scan as a lazy frame: projection, predicate and row limit reach the reader.

    The predicate's columns are decoded first, the others for the rows that match it.

    Args:
        scan: The scan.
        scanner_of: Makes the scanner of a scan that is made from it.
    """
    schema = frame_of(scan.options.projection.schema.empty_table()).schema

    def read(
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        del batch_size  # the reader's own limits hold
        own = scan
        # If Polars gives both, the limit comes before the predicate.
        if predicate is not None and n_rows is None:
            own = own.add_filter(
                PolarsFilter.from_predicate(predicate, own.options.filterable.schema)
            )
            predicate = None
        batches = scanner_of(own if with_columns is None else own.select(with_columns)).to_batches()
        missing = n_rows
        for batch in batches:
            frame = frame_of(batch if missing is None else batch.slice(0, missing))
            yield frame if predicate is None else frame.filter(predicate)
            if missing is not None:
                missing -= frame.height
                if missing <= 0:
                    return

    return register_io_source(read, schema=schema)


def frame_of(rows: pa.Table | pa.RecordBatch) -> pl.DataFrame:
    """Return rows as a frame.

    Raises:
        OptionError: Two columns have one name, which Polars does not allow.
    """
    names = rows.schema.names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        message = f"columns has {twice} twice: a Polars frame has one column of a name"
        raise OptionError(message)
    # Of a record batch without columns, Polars forgets how many rows it has.
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    # Only what is no table, such as an array, becomes a series.
    return cast("pl.DataFrame", pl.from_arrow(table))
