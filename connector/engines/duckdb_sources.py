"""What DuckDB scans in the place of a table function: a bound topic, or a listing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as pads

from arrow_io.errors import PulsarOffloadError
from connector.dataset import TopicDataset
from connector.scan.scanner import TopicScanner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow.compute as pc

    from connector.scan.topic_scan import Scan

_BYTES_PER_ROW = 100
"""About how many bytes of a data object a message takes, to tell DuckDB how many rows to expect."""


class BoundTopic(TopicDataset):
    """A topic in the plan of a statement, opened anew for each execution but the first.

    Args:
        opened: The topic.
        open_dataset: Opens it anew.
        on_bound: Called when DuckDB asks for the columns, which it does once it holds the object.
    """

    def __init__(
        self,
        opened: TopicDataset,
        open_dataset: Callable[[], TopicDataset],
        on_bound: Callable[[], None],
    ) -> None:
        super().__init__(opened.scan, opened.unsound)
        self._open = open_dataset
        self._on_bound = on_bound
        self._is_fresh = True

    @property
    def schema(self) -> pa.Schema:
        """The columns given unless others are named."""
        self._on_bound()
        return super().schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - the name is Arrow's
        **tuning: object,
    ) -> TopicScanner:
        """A scan of the ledgers there are now: a statement may be prepared once and run often."""
        if not self._is_fresh:
            opened = self._open()
            self.scan, self.unsound = opened.scan, opened.unsound
        self._is_fresh = False
        return super().scanner(columns, filter, **tuning)

    def scanner_of(self, scan: Scan) -> TopicScanner:
        """The scanner of a scan that was made from this dataset's."""
        return _BoundScanner(scan, self.unsound)


class _BoundScanner(TopicScanner):
    """A scan whose errors DuckDB reports."""

    def to_reader(self) -> pa.RecordBatchReader:
        """A reader that decodes ahead in threads of its own."""
        return pa.RecordBatchReader.from_batches(
            self.projected_schema, _without_traceback(self.to_batches())
        )


def _without_traceback(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches; in DuckDB's message, an error's traceback would bury its own text."""
    try:
        yield from batches
    except PulsarOffloadError as error:
        raise error.with_traceback(None) from None


class BoundListing(pads.InMemoryDataset):  # type: ignore[misc]
    """A table in the plan of a statement, made anew for each execution but the first.

    Args:
        make_table: Makes the table.
        on_bound: Called when DuckDB asks for the columns, which it does once it holds the object.
    """

    def __init__(self, make_table: Callable[[], pa.Table], on_bound: Callable[[], None]) -> None:
        super().__init__(make_table())
        self._make_table = make_table
        self._on_bound = on_bound
        self._is_fresh = True

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        self._on_bound()
        return super().schema

    def scanner(self, *selection: object, **options: object) -> pads.Scanner:
        """A scan of the table as it is now: a statement may be prepared once and run often."""
        if self._is_fresh:
            self._is_fresh = False
            return super().scanner(*selection, **options)
        return pads.InMemoryDataset(self._make_table()).scanner(*selection, **options)


def row_estimate() -> Callable[[BoundTopic], object]:
    """What makes a bound topic tell DuckDB about how many rows it has.

    By default DuckDB expects one row of a dataset, and would make the hash table of a join of the
    topic, all of it in memory. Its class for this is not public; if it is missing, a topic stays a
    plain dataset.
    """
    try:
        from duckdb._sources.pyarrow import PyArrowDatasetSource
    except ImportError:
        return lambda dataset: dataset

    class TopicSource(PyArrowDatasetSource):
        """A bound topic as DuckDB takes it."""

        def rows(self) -> int:
            """About how many rows a scan gives; DuckDB only chooses by it which plan is best."""
            topic: TopicDataset = self.obj
            ledgers = (ledger for each in topic.scan.topics for ledger in each.data)
            stored_bytes = sum(ledger.stored_bytes for ledger in ledgers)
            return max(1, stored_bytes // _BYTES_PER_ROW)

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            """By having this method the object passes for one that DuckDB can scan."""
            return self.obj.__arrow_c_stream__(requested_schema)

    return TopicSource
