"""A topic as a `pyarrow.dataset.Dataset`, with conversions to pandas and Polars."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs

from arrow_io.core.processors import processor_count
from arrow_io.core.wording import counted
from arrow_io.errors import OptionError
from connector.display.html import html_table
from connector.display.text import size_text
from connector.display.topic_metrics import TopicMetrics
from connector.scan.parts import split_scan
from connector.scan.scanner import TopicScanner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pandas as pd
    import polars as pl

    from connector.scan.parts import PartScan
    from connector.scan.topic_scan import Scan

_P = ParamSpec("_P")
_T = TypeVar("_T")

_SHOWN_TOPICS = 3
_TUNING = frozenset(
    {
        "batch_readahead",
        "batch_size",
        "cache_metadata",
        "fragment_readahead",
        "fragment_scan_options",
        "memory_pool",
        "use_threads",
    }
)
"""Options of `pyarrow.dataset.Scanner` that engines may pass; they are accepted and ignored."""


class _UnreadableFile(io.RawIOBase):
    """The file that Arrow's C++ code reads in the place of a topic.

    Arrow requests its size when the dataset is created. An error there would stay alive, and its
    traceback would hold the caller's frames, so only `read` raises.
    """

    _position = 0
    _size_bytes = 1 << 20

    def readable(self) -> bool:
        """Return that Arrow may read, which raises the error."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to an offset from the start or the end."""
        self._position = offset + (self._size_bytes if whence == io.SEEK_END else 0)
        return self._position

    def tell(self) -> int:
        """Return the offset from the start."""
        return self._position

    def read(self, size: int = -1) -> NoReturn:
        """Raise OptionError."""
        del size
        message = (
            "Arrow's own scanners, joins and unions cannot read a topic: pass"
            " dataset.to_table() or dataset.scanner().to_reader() instead"
        )
        raise OptionError(message)


def _unreadable_dataset(schema: pa.Schema) -> pads.Dataset:
    """Return a dataset of Arrow whose scan raises an error."""
    format_ = pads.IpcFileFormat()
    fragment = format_.make_fragment(_UnreadableFile())
    return pads.FileSystemDataset([fragment], schema, format_, pafs.LocalFileSystem())


# pyarrow carries no types, so its class is Any.
class TopicDataset(pads.UnionDataset):  # type: ignore[misc]
    """Rows of one or more topics, as a dataset that DuckDB and other users of Arrow can scan.

    Immutable: `filter` returns a copy. Filters are applied exactly. Predicate columns are decoded
    first, the remaining columns only for the rows that match.

    Methods that read rows take `columns`, `filter` and `tuning` as `scanner` does. If rows cannot
    be read, they raise a `PulsarOffloadError`: `StorageError` or `MissingObjectError` for failed
    requests, `FormatError` for damaged data and for values that do not fit their schema,
    `EncryptedPayloadError` for a missing private key, `UnknownSchemaVersionError` for a missing
    schema version. They warn with `IncompleteReadWarning` if they had to leave something out.

    Attributes:
        scan: What the dataset reads.
        unsound: Losses found when the topic was opened: ledgers that cannot be read at all.
        metrics: Read metrics of the last read by one of the dataset's own methods.
    """

    def __init__(self, scan: Scan, unsound: TopicMetrics | None = None) -> None:
        self.scan = scan
        self.unsound = unsound or TopicMetrics()
        self.metrics = self.unsound
        # A dataset without an object of Arrow's C++ code would crash functions that expect one.
        schema = scan.options.projection.schema
        super().__init__(schema, [_unreadable_dataset(schema)])

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.scan, self.unsound)

    def __repr__(self) -> str:
        rows = self._sizes()
        names = ", ".join(name for name, *_ in rows[:_SHOWN_TOPICS])
        names += f", … {len(rows)} in all" if len(rows) > _SHOWN_TOPICS else ""
        ledgers = counted(sum(number for _, number, _, _ in rows), "ledger")
        entries = counted(sum(number for _, _, number, _ in rows), "entry")
        size = size_text(sum(size_bytes for _, _, _, size_bytes in rows))
        return (
            f"{type(self).__name__}({names or 'no topic'}: {ledgers}, {entries}, {size},"
            f" {counted(len(self.scan.options.projection.columns), 'column')})"
        )

    def _repr_html_(self) -> str:
        topics = [
            (name, ledgers, entries, size_text(size))
            for name, ledgers, entries, size in self._sizes()
        ]
        columns = [(field.name, field.type) for field in self.scan.options.projection.schema]
        return html_table(
            type(self).__name__, ["topic", "ledgers", "entries", "bytes"], topics
        ) + html_table("columns", ["name", "type"], columns)

    def _sizes(self) -> list[tuple[str, int, int, int]]:
        """Return each topic's name, ledgers, entries and stored bytes when it was opened."""
        return [
            (
                str(each.topic),
                len(each.data),
                sum(ledger.last_entry_id + 1 for ledger in each.data),
                sum(ledger.stored_bytes for ledger in each.data),
            )
            for each in self.scan.topics
        ]

    @property
    def schema(self) -> pa.Schema:
        """Columns that a read returns unless it names others."""
        return self.scan.options.projection.schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - the name is Arrow's
        **tuning: object,
    ) -> TopicScanner:
        """Return a scanner of some columns of the rows that match a filter.

        Args:
            columns: Names of columns, including on-request columns; `*` stands for the topic's
                default columns. None selects the columns of `schema`.
            filter: An Arrow expression over any columns, projected or not.
            tuning: Options of `pyarrow.dataset.Scanner` that have no effect here.

        Raises:
            OptionError: A column or option is unknown, or the filter cannot be applied.
        """
        unknown = ", ".join(sorted(tuning.keys() - _TUNING))
        if unknown:
            message = f"a scan has no option {unknown}"
            raise OptionError(message)
        if isinstance(columns, Mapping):
            message = "columns must be names, not expressions: compute in the engine"
            raise OptionError(message)
        scan = self.scan if filter is None else self.scan.where(filter)
        return self.scanner_of(scan if columns is None else scan.select(columns))

    def scanner_of(self, scan: Scan) -> TopicScanner:
        """Return the scanner of a scan that was derived from this dataset's scan."""
        return TopicScanner(scan, self.unsound)

    def to_table(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002
        **tuning: object,
    ) -> pa.Table:
        """Return all rows that match the filter, as a table."""
        return self._read(self.scanner(columns, filter, **tuning), TopicScanner.to_table)

    def to_batches(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002
        **tuning: object,
    ) -> Iterator[pa.RecordBatch]:
        """Yield all rows that match the filter, as record batches that are read on demand.

        Raises:
            OptionError: See `scanner`; raised when the first batch is requested.
        """
        scanner = self.scanner(columns, filter, **tuning)
        for batch in scanner.to_batches():
            self.metrics = scanner.metrics
            yield batch
        self.metrics = scanner.metrics

    def head(
        self,
        num_rows: int,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002
        **tuning: object,
    ) -> pa.Table:
        """Return the first rows that match the filter, at most `num_rows`.

        Raises:
            OptionError: See `scanner`; also if `num_rows` is not a whole number.
        """
        return self._read(self.scanner(columns, filter, **tuning), TopicScanner.head, num_rows)

    def tail(
        self,
        num_rows: int,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002
        **tuning: object,
    ) -> pa.Table:
        """Return the last `num_rows` rows of each partition that match, partition by partition.

        Raises:
            OptionError: See `scanner`; also if `num_rows` is not a whole number, or is negative.
        """
        return self._read(self.scanner(columns, filter, **tuning), TopicScanner.tail, num_rows)

    def count_rows(
        self,
        filter: pc.Expression | None = None,  # noqa: A002
        **tuning: object,
    ) -> int:
        """Return the number of matching rows; without a filter, no payload is decompressed."""
        return self._read(self.scanner(None, filter, **tuning), TopicScanner.count_rows)

    def filter(self, expression: pc.Expression) -> TopicDataset:
        """Return a dataset of the rows that also match another filter, over any columns.

        Raises:
            OptionError: The filter cannot be applied.
        """
        return TopicDataset(self.scanner(None, expression).scan, self.unsound)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.scanner().__arrow_c_stream__(requested_schema)

    def to_pandas(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002
        *,
        arrow_types: bool = False,
        **options: object,
    ) -> pd.DataFrame:
        """Return all rows as a pandas frame, with every value and null preserved.

        Args:
            columns: See `scanner`.
            filter: See `scanner`.
            arrow_types: Whether all columns keep Arrow's types (`pandas.ArrowDtype`). By default,
                only columns with values that NumPy's types cannot hold keep them, such as integers
                with nulls (`connector.frames.pandas_frames`).
            options: Options of `pyarrow.Table.to_pandas`. If any is passed, pyarrow chooses all
                types.

        Raises:
            OptionError: See `scanner`; also if `options` are passed and a value does not fit the
                type that pyarrow chooses.
            PulsarOffloadError: The rows cannot be read.
        """
        import pandas as pd

        from connector.frames.pandas_frames import exact_frame  # noqa: PLC0415 - as Polars is

        table = self.to_table(columns, filter)
        if arrow_types:
            options.setdefault("types_mapper", pd.ArrowDtype)
        if not options:
            return exact_frame(table)
        try:
            return table.to_pandas(**options)
        except ValueError as error:
            message = f"the types that pyarrow chose cannot hold a value: {error}; drop the options"
            raise OptionError(message) from error

    def to_polars(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002
    ) -> pl.DataFrame:
        """Return all rows as a Polars frame; properties have Polars' type `Map`.

        Raises:
            OptionError: See `scanner`; also if a column is named twice.
            PulsarOffloadError: The rows cannot be read.
        """
        from connector.frames.polars_source import frame_of  # noqa: PLC0415 - as scan_polars

        return frame_of(self.to_table(columns, filter))

    def scan_polars(self) -> pl.LazyFrame:
        """Return a lazy Polars frame whose projection, predicate and row limit reach the reader.

        Raises:
            OptionError: The dataset has two columns with the same name.
        """
        from connector.frames.polars_source import lazy_frame  # noqa: PLC0415 - an optional engine

        return lazy_frame(self.scan, self.scanner_of)

    @property
    def children(self) -> list[TopicDataset]:
        """Datasets of which this one is a union: itself alone."""
        return [self]

    @property
    def partition_expression(self) -> pc.Expression:
        """The condition that all rows match: none is known, so it is always true."""
        return pc.scalar(True)  # noqa: FBT003 - the literal

    def get_fragments(
        self,
        filter: pc.Expression | None = None,  # noqa: A002
    ) -> Iterator[TopicFragment]:
        """Yield the parts of the dataset that may have rows that match a filter.

        Fragments have at least 256 MiB of data objects, and there is about one for each core. Like
        those of Arrow's datasets, they also have rows that do not match. Together they have each
        row once. Losses that were found before a fragment is read are warned of here.

        Raises:
            OptionError: The filter cannot be applied.
            PulsarOffloadError: See `Scan.reads`.
        """
        self.scanner().warn_of_plan()
        for part in split_scan(self.scan, filter, processor_count()):
            yield TopicFragment(part)

    def take(
        self,
        indices: pa.Array | pa.ChunkedArray | Sequence[int],
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002
        **tuning: object,
    ) -> pa.Table:
        """Return the rows with these numbers among those of `to_table`; see `TopicScanner.take`.

        Raises:
            IndexError: A number is negative, or no row has it.
            OptionError: See `scanner`; also if the indices are not whole numbers.
        """
        return self._read(self.scanner(columns, filter, **tuning), TopicScanner.take, indices)

    def replace_schema(self, schema: pa.Schema) -> TopicDataset:
        """Return a dataset with the columns of a schema, in its order.

        Raises:
            OptionError: A column does not exist or has another type: no values are converted, and
                no column of nulls is added, which Arrow's datasets do for unknown columns.
        """
        dataset = TopicDataset(self.scan.select(schema.names), self.unsound)
        for field, wanted in zip(dataset.schema, schema, strict=True):
            if not field.equals(wanted):
                message = (
                    f"column {field.name} is {field.type} and cannot be read as {wanted.type}"
                    f"{'' if wanted.nullable else ' without nulls'}: cast the rows instead"
                )
                raise OptionError(message)
        return dataset

    def sort_by(
        self, sorting: str | Sequence[tuple[str, str]], **options: object
    ) -> pads.InMemoryDataset:
        """Return all rows sorted, in memory; see `pyarrow.Table.sort_by`, which takes the options.

        Rows with equal keys keep the order of the topic: `pyarrow.dataset.Dataset.sort_by` mixes
        them, because its threads race (apache/arrow#15144).
        """
        return pads.dataset(self.to_table().sort_by(sorting, **options))

    def join(
        self,
        right_dataset: pads.Dataset,
        keys: str | Sequence[str],
        *arguments: object,
        **options: object,
    ) -> pads.InMemoryDataset:
        """Return the join with another dataset, both in memory; see Arrow's `Dataset.join`."""
        return _in_memory(self).join(_in_memory(right_dataset), keys, *arguments, **options)

    def join_asof(
        self, right_dataset: pads.Dataset, *arguments: object, **options: object
    ) -> pads.InMemoryDataset:
        """Return the asof join with a dataset, in memory; see Arrow's `Dataset.join_asof`."""
        return _in_memory(self).join_asof(_in_memory(right_dataset), *arguments, **options)

    def _read(
        self,
        scanner: TopicScanner,
        method: Callable[Concatenate[TopicScanner, _P], _T],
        *args: _P.args,
        **options: _P.kwargs,
    ) -> _T:
        try:
            return method(scanner, *args, **options)
        finally:
            self.metrics = scanner.metrics


def _in_memory(dataset: pads.Dataset) -> pads.InMemoryDataset:
    """Return a dataset of Arrow with all rows; another dataset than a topic unchanged."""
    return pads.dataset(dataset.to_table()) if isinstance(dataset, TopicDataset) else dataset


class TopicFragment:
    """A part of a topic dataset that can be read apart from the others. Picklable.

    It has the methods of `pyarrow.dataset.Fragment`, but is no subclass: a fragment without an
    object of Arrow's C++ code would crash `pyarrow.dataset.Scanner.from_fragment`.

    Methods that read rows take `columns`, `filter` and `tuning` as `TopicDataset.scanner` does, and
    raise the same errors. `schema` names the columns if `columns` is None.
    """

    def __init__(self, part: PartScan) -> None:
        self._dataset = TopicDataset(part)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._dataset.scan,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._dataset!r})"

    @property
    def physical_schema(self) -> pa.Schema:
        """Columns that a read returns unless it names others."""
        return self._dataset.schema

    @property
    def partition_expression(self) -> pc.Expression:
        """The condition that all rows match: none is known, so it is always true."""
        return self._dataset.partition_expression

    def scanner(
        self,
        schema: pa.Schema | None = None,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - the name is Arrow's
        **tuning: object,
    ) -> TopicScanner:
        """Return a scanner of some columns of the rows that match a filter."""
        if columns is None and schema is not None:
            columns = schema.names
        return self._dataset.scanner(columns, filter, **tuning)

    def to_table(self, schema: pa.Schema | None = None, **options: Any) -> pa.Table:  # noqa: ANN401
        """Return all rows that match the filter, as a table."""
        return self.scanner(schema, **options).to_table()

    def to_batches(
        self,
        schema: pa.Schema | None = None,
        **options: Any,  # noqa: ANN401 - of `scanner`
    ) -> Iterator[pa.RecordBatch]:
        """Return an iterator of the rows that match the filter."""
        return self.scanner(schema, **options).to_batches()

    def take(self, indices: pa.Array | Sequence[int], **options: Any) -> pa.Table:  # noqa: ANN401
        """Return the rows with these numbers; see `TopicScanner.take`."""
        return self.scanner(**options).take(indices)

    def head(self, num_rows: int, **options: Any) -> pa.Table:  # noqa: ANN401
        """Return the first rows that match the filter, at most `num_rows`."""
        return self.scanner(**options).head(num_rows)

    def count_rows(self, filter: pc.Expression | None = None, **tuning: Any) -> int:  # noqa: A002, ANN401
        """Return the number of matching rows; without a filter, no payload is decompressed."""
        return self.scanner(filter=filter, **tuning).count_rows()
