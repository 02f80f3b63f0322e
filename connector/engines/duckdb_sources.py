"""Datasets that DuckDB scans in place of a table function: a bound topic, or a listing."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.dataset as pads

from arrow_io.errors import PulsarOffloadError
from connector.dataset import TopicDataset
from connector.engines.duckdb_binding import ROWS
from connector.engines.duckdb_tables import RemainderTable, table_sql
from connector.scan.scanner import TopicScanner

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    import pyarrow.compute as pc

    from connector.scan.topic_scan import Scan

_ROWS_FIELD: Final = pa.field(ROWS, pa.null())
_BYTES_PER_ROW = 100
"""Rough size of a message in a data object, for the row estimate that DuckDB gets."""


class BoundTopic(TopicDataset):
    """A topic in a statement's plan, opened again for each execution except the first.

    Args:
        dataset: The topic.
        open_dataset: Opens the topic again.
        on_bound: Called when DuckDB requests the schema, which it does once it holds the object.
    """

    def __init__(
        self,
        dataset: TopicDataset,
        open_dataset: Callable[[], TopicDataset],
        on_bound: Callable[[], None],
    ) -> None:
        super().__init__(dataset.scan, dataset.unsound)
        self._open = open_dataset
        self._on_bound = on_bound
        self._is_fresh = True

    def take_table_sql(self) -> str | None:
        """Return SQL for the rows of the lake table, which this dataset then leaves out.

        Returns:
            None if there is no table, it is not used, or DuckDB cannot read its files itself.
        """
        read = self.scan.table_read
        sql = None if read is None else table_sql(read)
        if sql is not None and self.scan.lake is not None:
            self.scan = replace(self.scan, lake=RemainderTable(self.scan.lake))
        return sql

    @property
    def schema(self) -> pa.Schema:
        """The column `ROWS`, then the default columns."""
        self._on_bound()
        return super().schema.insert(0, _ROWS_FIELD)

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - the name is Arrow's
        **tuning: object,
    ) -> TopicScanner:
        """Return a scan of the current ledgers: a prepared statement may run more than once."""
        if not self._is_fresh:
            dataset = self._open()
            self.scan = replace(dataset.scan, lake=self.scan.lake)
            self.unsound = dataset.unsound
        self._is_fresh = False
        names = self.schema.names if columns is None else list(columns)
        if names != [ROWS]:
            return super().scanner(names, filter, **tuning)
        scanner = super().scanner((), filter, **tuning)
        return _RowCounter(scanner.scan, scanner.unsound)

    def scanner_of(self, scan: Scan) -> TopicScanner:
        """Return the scanner of a scan derived from this dataset's."""
        return _BoundScanner(scan, self.unsound)


class _BoundScanner(TopicScanner):
    """A scanner whose errors DuckDB reports."""

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader that prefetches batches in its own threads."""
        return pa.RecordBatchReader.from_batches(
            self.projected_schema, _without_traceback(self.to_batches())
        )


class _RowCounter(_BoundScanner):
    """A scanner that returns the number of rows as a column of nulls, which takes no memory."""

    @property
    def projected_schema(self) -> pa.Schema:
        """The column `ROWS`."""
        return pa.schema([_ROWS_FIELD])

    def to_batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield batches with as many rows as the topic, whatever their size; no batch is empty."""
        with closing(self.row_counts()) as counts:
            for count in filter(None, counts):
                yield pa.record_batch([pa.nulls(count)], schema=self.projected_schema)


def _without_traceback(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Drop the traceback of an error: in DuckDB's message it would bury the error's own text."""
    try:
        yield from batches
    except PulsarOffloadError as error:
        raise error.with_traceback(None) from None


class BoundListing(pads.InMemoryDataset):  # type: ignore[misc]
    """A table in a statement's plan, made for each execution.

    If its schema is known, nothing is made before the first execution. Otherwise the first
    execution has the table that was made for its schema. `on_bound` is called as by `BoundTopic`.
    """

    def __init__(
        self,
        make_table: Callable[[], pa.Table],
        on_bound: Callable[[], None],
        schema: pa.Schema | None = None,
    ) -> None:
        super().__init__(make_table() if schema is None else schema.empty_table())
        self._make_table = make_table
        self._on_bound = on_bound
        self._is_fresh = schema is None

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        self._on_bound()
        return super().schema

    def scanner(self, *selection: object, **options: object) -> pads.Scanner:
        """Return a scan of the current table: a prepared statement may run more than once."""
        if self._is_fresh:
            self._is_fresh = False
            return super().scanner(*selection, **options)
        return pads.InMemoryDataset(self._make_table()).scanner(*selection, **options)


def load_topic_source() -> Callable[[BoundTopic], object]:
    """Return a wrapper by which a bound topic tells DuckDB its approximate number of rows.

    By default DuckDB expects one row from a dataset, and would build a join's hash table from the
    whole topic, in memory. DuckDB's class for this is not public; if it is missing, the wrapper
    returns the dataset unchanged.
    """
    try:
        from duckdb._sources.pyarrow import PyArrowDatasetSource
    except ImportError:
        return lambda dataset: dataset

    class TopicSource(PyArrowDatasetSource):
        """A bound topic, as a source for DuckDB."""

        def rows(self) -> int:
            """Estimate the number of rows; DuckDB uses it only to choose a plan."""
            topic: TopicDataset = self.obj
            ledgers = (ledger for each in topic.scan.topics for ledger in each.data)
            stored_bytes = sum(ledger.stored_bytes for ledger in ledgers)
            return max(1, stored_bytes // _BYTES_PER_ROW)

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            """Mark the object as one that DuckDB can scan; the method must exist for that."""
            return self.obj.__arrow_c_stream__(requested_schema)

    return TopicSource
