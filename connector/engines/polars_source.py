"""A topic as a lazy Polars frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source

from connector.filters import ROW_NUMBER, numbered

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow.compute as pc

    from connector.dataset import TopicDataset


@dataclass(frozen=True)
class PolarsFilter:
    """A Polars predicate: a row is kept if it is true.

    Attributes:
        predicate: The predicate.
        columns: Names of the columns that it looks at.
    """

    predicate: pl.Expr
    columns: tuple[str, ...]

    def kept(self, batch: pa.RecordBatch) -> pa.Int64Array:
        """Numbers of the rows for which the predicate is true, ascending."""
        # A column of numbers, because a predicate may look at no column, or be a mere literal.
        frame = _frame(numbered(batch))
        return pa.array(frame.filter(self.predicate).get_column(ROW_NUMBER).to_arrow(), pa.int64())

    @property
    def literals(self) -> tuple[pa.Scalar, ...]:
        """None: Polars does not tell them."""
        return ()

    def which_may_hold(self, guarantees: Sequence[pc.Expression], schema: pa.Schema) -> list[bool]:
        """Always true: Polars proves nothing."""
        del schema
        return [True] * len(guarantees)


def scan_polars(dataset: TopicDataset) -> pl.LazyFrame:
    """A lazy frame whose projection, predicate and row limit reach the reader.

    The predicate's columns are decoded first, the others for the rows that it keeps.
    """
    schema = _frame(dataset.schema.empty_table()).schema

    def read(
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        del batch_size  # the reader's own limits hold
        scan = dataset.scan
        # If Polars gives both, the limit comes before the predicate.
        if predicate is not None and n_rows is None:
            names = tuple(dict.fromkeys(predicate.meta.root_names()))
            scan = scan.filtered(PolarsFilter(predicate, names))
            predicate = None
        scanner = dataset.scanner_of(scan if with_columns is None else scan.select(with_columns))
        batches = scanner.to_batches()
        missing = n_rows
        for batch in batches:
            frame = _frame(batch if missing is None else batch.slice(0, missing))
            yield frame if predicate is None else frame.filter(predicate)
            if missing is not None:
                missing -= frame.height
                if missing <= 0:
                    return

    return register_io_source(read, schema=schema)


def _frame(rows: pa.Table | pa.RecordBatch) -> pl.DataFrame:
    # Only what has no columns, such as an array, becomes a series.
    return cast("pl.DataFrame", pl.from_arrow(rows))
