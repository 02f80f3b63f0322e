"""The Polars source: a scan of a topic as a lazy frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

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
    """A Polars predicate; rows for which it is true match."""

    predicate: pl.Expr
    columns: tuple[str, ...]
    implied: ArrowFilter | None = None
    """The Arrow filter that Polars derives from the predicate, if any. It accepts every row that
    the predicate accepts."""

    @classmethod
    def from_predicate(cls, predicate: pl.Expr, schema: pa.Schema) -> PolarsFilter:
        """Create the filter of a predicate over columns of a schema."""
        columns = tuple(dict.fromkeys(predicate.meta.root_names()))
        return cls(predicate, columns, _implied_filter(predicate, schema, columns))

    def matching_rows(self, batch: pa.RecordBatch) -> pa.Int64Array:
        """Return the numbers of the rows that match the predicate, ascending."""
        # Add row numbers, because a predicate may use no column, or be a literal.
        frame = frame_of(add_row_numbers(batch))
        return pa.array(frame.filter(self.predicate).get_column(ROW_NUMBER).to_arrow(), pa.int64())

    @property
    def literals(self) -> tuple[pa.Scalar, ...]:
        """The literals of the implied filter."""
        return () if self.implied is None else self.implied.literals

    def can_match(self, guarantees: Sequence[pc.Expression], schema: pa.Schema) -> list[bool]:
        """Return for each guarantee whether rows that satisfy it can match the implied filter."""
        if self.implied is None:
            return [True] * len(guarantees)
        return self.implied.can_match(guarantees, schema)


class _Listener:
    """A stand-in for an Arrow dataset that records the filter Polars passes to it."""

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
        """Record the filter; return no rows."""
        del columns
        self.filter = filter
        return iter(())

    def to_table(self, **selection: Any) -> pa.Table:  # noqa: ANN401 - as `to_batches`
        """Record the filter, as Polars calls it before 1.40; return no rows."""
        return pa.Table.from_batches(self.to_batches(**selection), self.schema)


def _implied_filter(
    predicate: pl.Expr, schema: pa.Schema, columns: Sequence[str]
) -> ArrowFilter | None:
    """Return the filter that Polars pushes down to an Arrow dataset for a predicate."""
    listener = _Listener(pa.schema([schema.field(name) for name in columns]))
    # Polars compares times in the coarser of two units, which is exact for the times of messages.
    try:
        pl.scan_pyarrow_dataset(cast("pads.Dataset", listener)).filter(predicate).collect()
        if listener.filter is not None:
            return ArrowFilter.from_expression(listener.filter, schema)
    except (
        pl.exceptions.PolarsError,
        pa.ArrowException,
        OptionError,
        KeyError,
        NameError,
        TypeError,
    ):
        # A predicate that Polars cannot express as an Arrow filter prunes nothing.
        return None
    return None


def lazy_frame(scan: Scan, scanner_of: Callable[[Scan], TopicScanner]) -> pl.LazyFrame:
    """Return a scan as a lazy frame: projection, predicate and row limit reach the reader.

    The predicate's columns are decoded first, and the remaining columns for matching rows only.
    `scanner_of` returns the scanner of a scan that is derived from this one.
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
        # If Polars passes both, the limit applies before the predicate.
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
    """Convert rows to a frame.

    Raises:
        OptionError: Two columns have the same name, which Polars does not allow.
    """
    names = rows.schema.names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        message = f"columns has {twice} twice: column names of a Polars frame must be unique"
        raise OptionError(message)
    # Polars loses the number of rows of a record batch without columns.
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    # The result is a series only for input that is not a table.
    return cast("pl.DataFrame", pl.from_arrow(table))
