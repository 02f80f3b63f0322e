"""A topic is a `pyarrow.dataset.Dataset`: what its users call does what they know, and no more."""

from __future__ import annotations

import pickle
import threading
import warnings
from collections.abc import Generator
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pytest

from arrow_io.errors import (
    ChecksumError,
    IncompleteReadWarning,
    MissingObjectError,
    OptionError,
)
from arrow_io.read_metrics import Unit
from arrow_io.storage.trace import RequestTrace
from connector import TopicDataset, open_topic
from tests.support.buckets import (
    TOPIC,
    MemoryBucket,
    memory_bucket,
    object_name,
    offload,
    offload_ledger,
)
from tests.support.entries import Message, encode_chunks, encode_entry
from tests.support.expected import COLUMNS, rows_of
from tests.support.golden import golden_topic
from tests.support.golden_datasets import open_golden, reference_rows
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from arrow_io.core.builds import Build

_TOPIC: Final = golden_topic("multi-ledger")
_ENTRY: Final = pc.field("__entry_id__")
_LEDGER: Final = pc.field("__ledger_id__")
_OPEN: Final = golden_topic("transactions-open")
_RANGE_BYTES: Final = 4096


@pytest.fixture
def dataset(build: Build) -> TopicDataset:
    """Six ledgers, 255 rows."""
    del build
    return open_golden(_TOPIC)


@pytest.fixture
def bucket() -> Iterator[MemoryBucket]:
    """One ledger of a hundred messages of 1,000 bytes."""
    entries = [
        encode_entry([Message(payload=bytes([i]) * 1000)], batched=False) for i in range(100)
    ]
    with memory_bucket(offload([(1, entries)])) as bucket:
        yield bucket


def _traced(bucket: MemoryBucket, **options: Any) -> tuple[TopicDataset, RequestTrace]:  # noqa: ANN401
    trace = RequestTrace()
    options = {"range_bytes": _RANGE_BYTES, "batch_rows": 4, **options}
    return open_topic(bucket.url, TOPIC, trace=trace, **options), trace


def test_is_a_dataset_of_arrow(dataset: TopicDataset) -> None:
    """What looks for a dataset by its class, as DuckDB does, takes it for one."""
    assert isinstance(dataset, pads.Dataset)
    assert dataset.schema.names == COLUMNS[:11]
    assert dataset.schema == dataset.to_table().schema
    assert isinstance(dataset.schema, pa.Schema)


def test_every_way_gives_the_same_rows(dataset: TopicDataset) -> None:
    """Table, batches, scanner, reader and stream hold the same rows in the same order."""
    table = dataset.to_table()
    scanner = dataset.scanner()

    assert rows_of(dataset.to_table(columns=COLUMNS)) == reference_rows(_TOPIC)
    assert pa.Table.from_batches(dataset.to_batches()).equals(table)
    assert scanner.to_table().equals(table)
    assert pa.Table.from_batches(scanner.to_batches()).equals(table)
    assert scanner.to_reader().read_all().equals(table)
    assert pa.table(dataset).equals(table)
    assert pa.table(scanner).equals(table)
    assert pa.RecordBatchReader.from_stream(dataset).read_all().equals(table)
    assert dataset.head(1000).equals(table)


def test_scanner_can_be_read_again(dataset: TopicDataset) -> None:
    """Each method reads anew; reports are those of the last read, not sums."""
    scanner = dataset.scanner(["__key__"], _ENTRY > 2)

    first, second = scanner.to_table(), scanner.to_table()

    assert first.equals(second)
    assert scanner.metrics.rows == first.num_rows == scanner.count_rows()
    assert scanner.projected_schema.names == ["__key__"]
    assert scanner.dataset_schema.names == COLUMNS


def test_tuning_options_of_arrow_are_taken(dataset: TopicDataset) -> None:
    """Users of datasets pass batch sizes and thread counts; they change no row."""
    table = dataset.to_table(batch_size=10, use_threads=False)

    assert table.equals(dataset.to_table())
    assert dataset.count_rows(batch_readahead=4) == table.num_rows
    assert dataset.head(3, fragment_readahead=1).num_rows == 3


def test_unknown_options_are_refused(dataset: TopicDataset) -> None:
    """A filter under a wrong name must not give all rows as though they had passed it."""
    wrong: dict[str, Any] = {"filters": _ENTRY == 0, "batchsize": 1}
    reads: list[Callable[[], object]] = [
        lambda: dataset.scanner(**wrong),
        lambda: dataset.to_table(**wrong),
        lambda: dataset.count_rows(**wrong),
        lambda: dataset.head(1, **wrong),
        lambda: list(dataset.to_batches(**wrong)),
    ]

    for read in reads:
        with pytest.raises(OptionError, match="a scan has no option batchsize, filters"):
            read()


def test_columns_must_be_names(dataset: TopicDataset) -> None:
    """Arrow's own datasets compute columns from a mapping; here its names alone would be taken."""
    computed: Any = {"__key__": pc.field("__entry_id__")}

    with pytest.raises(OptionError, match="columns must be names"):
        dataset.to_table(columns=computed)


def test_columns_come_in_the_order_asked_for(dataset: TopicDataset) -> None:
    """On-request columns too; an unknown one is an error that lists those that there are."""
    wanted = ["__topic__", "__value__", "__entry_id__"]

    assert dataset.to_table(columns=wanted).column_names == wanted
    assert next(dataset.to_batches(columns=wanted)).schema.names == wanted
    assert dataset.head(2, columns=wanted).column_names == wanted
    with pytest.raises(OptionError, match="no column 'nothing'; the columns are: __entry_id__"):
        dataset.scanner(["nothing"])


def test_no_columns_are_rows_nevertheless(dataset: TopicDataset) -> None:
    """A table without columns has its rows, as Arrow's own."""
    assert dataset.to_table(columns=[]).num_rows == 255
    assert dataset.to_table(columns=[], filter=_ENTRY == 0).num_rows == dataset.count_rows(
        _ENTRY == 0
    )
    assert dataset.head(3, columns=[]).num_rows == 3


@pytest.mark.parametrize(
    "expression",
    [
        _ENTRY == 0,
        (_ENTRY > 1) & (_LEDGER != 88),
        pc.field("__key__").is_null(),
        pc.field("__message_id__") == "(86,3,-1)",
        pc.field("__topic__") == "another",
        pc.field("__value__") == b"",
        pc.scalar(True),  # noqa: FBT003
        pc.scalar(False),  # noqa: FBT003
    ],
    ids=str,
)
def test_filters_are_exact_however_it_is_read(
    dataset: TopicDataset, expression: pc.Expression
) -> None:
    """By any column, given or not: every way gives the rows that pass."""
    whole = dataset.to_table(columns=COLUMNS)
    expected = whole.filter(expression)

    assert dataset.to_table(columns=COLUMNS, filter=expression).equals(expected)
    assert dataset.to_table(columns=["__key__"], filter=expression).equals(
        expected.select(["__key__"])
    )
    assert dataset.count_rows(expression) == dataset.count_rows(filter=expression)
    assert dataset.count_rows(expression) == expected.num_rows
    assert dataset.filter(expression).count_rows() == expected.num_rows
    assert dataset.head(3, columns=COLUMNS, filter=expression).equals(expected.slice(0, 3))


def test_filtered_datasets_can_be_filtered_further(dataset: TopicDataset) -> None:
    """Filters add up; the dataset that was filtered stays as it was."""
    late = dataset.filter(_LEDGER > 86)
    few = late.filter(_ENTRY < 2)
    expected = dataset.to_table().filter((_LEDGER > 86) & (_ENTRY < 2))

    assert few.to_table().equals(expected)
    assert late.to_table(filter=_ENTRY < 2).equals(expected)
    assert few.filter(pc.scalar(True)).to_table().equals(expected)  # noqa: FBT003
    assert late.count_rows() > few.count_rows() > few.count_rows(_ENTRY == 1) > 0
    assert dataset.count_rows() == 255


def test_filter_that_cannot_be_applied_is_told_at_once(dataset: TopicDataset) -> None:
    """Before anything is read, whichever method is called."""
    with pytest.raises(OptionError, match="cannot be applied"):
        dataset.filter(pc.field("nothing") == 1)
    with pytest.raises(OptionError, match="cannot be applied"):
        dataset.scanner(filter=pc.field("__key__") == 1)


def test_pickled_dataset_reads_the_same_and_shows_no_secret(dataset: TopicDataset) -> None:
    """It goes to other processes with its options; nothing printed of it holds their values."""
    filtered = dataset.filter(_LEDGER > 86)

    copy = pickle.loads(pickle.dumps(filtered))

    assert isinstance(copy, TopicDataset)
    assert copy.to_table().equals(filtered.to_table())
    with memory_bucket(offload([(1, [encode_entry([Message()], batched=False)])])) as bucket:
        secret = open_topic(bucket.url, TOPIC, storage_options={"password": "hunter2"})
        assert "hunter2" not in repr(secret) + repr(secret.scan) + repr(secret.scanner())
        assert pickle.loads(pickle.dumps(secret)).count_rows() == 1


@pytest.mark.parametrize(
    ("rows", "given"), [(-1, 0), (0, 0), (1, 1), (5, 5), (100, 100), (101, 100)]
)
def test_head_gives_the_first_rows(
    build: Build, bucket: MemoryBucket, rows: int, given: int
) -> None:
    """As many as are asked for, or as there are."""
    del build
    dataset, _ = _traced(bucket)

    table = dataset.head(rows)

    assert table.equals(dataset.to_table().slice(0, given))
    assert dataset.head(rows, filter=_ENTRY >= 50).num_rows == min(given, 50)


def test_head_of_a_small_topic_is_one_request() -> None:
    """Besides listing and index: one range."""
    with memory_bucket(offload([(1, [encode_entry([Message()], batched=False)] * 9)])) as bucket:
        dataset, trace = _traced(bucket, range_bytes=1 << 20)
        opened = trace.counts

        dataset.head(3)

        assert (opened.list_requests, opened.index_requests) == (1, 1)
        assert trace.counts.requests == opened.requests + 1
        assert trace.counts.range_requests == 1


def test_head_reads_few_of_many_ranges(build: Build, bucket: MemoryBucket) -> None:
    """Of 26 ranges, those that hold the rows; without rows, none."""
    del build
    dataset, trace = _traced(bucket)

    dataset.head(0)
    assert trace.counts.range_requests == 0
    dataset.head(1)
    assert trace.counts.range_requests <= 3
    dataset.to_table()
    assert trace.counts.range_requests > 26


def test_batches_are_read_as_they_are_asked_for(build: Build, bucket: MemoryBucket) -> None:
    """Nothing before the first, little beyond the last; threads end when the reader has enough."""
    del build
    dataset, trace = _traced(bucket)
    threads = set(threading.enumerate())

    batches = dataset.to_batches()
    assert trace.counts.range_requests == 0
    assert 0 < next(batches).num_rows <= 4
    assert trace.counts.range_requests <= 4
    assert isinstance(batches, Generator)
    batches.close()
    reader = dataset.scanner().to_reader()
    reader.read_next_batch()
    reader.close()
    del reader

    assert trace.counts.range_requests < 26
    wait_until(lambda: set(threading.enumerate()) <= threads)


def test_count_reads_no_payload(build: Build, bucket: MemoryBucket) -> None:
    """Without a filter, rows are counted by positions: even values that cannot be decoded count."""
    del build
    entries = [encode_entry([Message(payload=b"abcdef")], batched=False)]
    name = object_name(2)
    objects = offload_ledger(name, entries)
    objects[name.data_name] = objects[name.data_name].replace(b"abcdef", b"abcdeX")
    bucket.put(objects)
    dataset, _ = _traced(bucket)

    assert dataset.count_rows() == 101
    assert dataset.metrics.rows == 101
    with pytest.raises(ChecksumError):
        dataset.count_rows(pc.field("__key__").is_null())


def test_report_is_that_of_the_last_read(dataset: TopicDataset) -> None:
    """Rows and entries of the read, by whichever of the dataset's methods."""
    reads: list[Callable[[], object]] = [
        dataset.to_table,
        lambda: list(dataset.to_batches()),
        dataset.count_rows,
        lambda: dataset.head(1000),
        dataset.to_pandas,
        dataset.to_polars,
    ]
    for read in reads:
        read()
        assert dataset.metrics.rows == 255
        assert dataset.metrics.entries == sum(each.entry_count for each in _TOPIC.ledgers)

    dataset.to_table(filter=_LEDGER == 85)

    assert 0 < dataset.metrics.rows < 255


def test_report_of_a_read_that_fails_says_how_far_it_came(
    build: Build, bucket: MemoryBucket
) -> None:
    """The error comes through as it is."""
    del build
    dataset, _ = _traced(bucket)
    bucket.delete(dataset.scan.topics[0].ledgers[0].name.data_name)

    for read in (dataset.to_table, dataset.count_rows, lambda: dataset.head(1)):
        with pytest.raises(MissingObjectError):
            read()
        assert dataset.metrics.rows == 0


def test_report_of_an_unfinished_read_has_the_counts_so_far(
    build: Build, bucket: MemoryBucket
) -> None:
    """What a reader has decoded beyond what it gave is no part of them."""
    del build
    dataset, _ = _traced(bucket)
    scanner = dataset.scanner()
    reader = scanner.to_reader()

    given = reader.read_next_batch().num_rows
    assert given <= scanner.metrics.rows <= 100
    told = deepcopy(scanner.metrics)
    del reader

    assert scanner.metrics == told
    assert scanner.metrics.entries >= given > 0


def _chunks_cut_off() -> list[bytes]:
    return encode_chunks(Message(payload=b"x" * 40), chunk_count=4, uuid="cut")[::2]


def _reads(dataset: TopicDataset) -> list[Callable[[], object]]:
    return [
        dataset.to_table,
        lambda: list(dataset.to_batches()),
        dataset.count_rows,
        lambda: dataset.head(1000),
        lambda: pa.table(dataset),
        lambda: dataset.scan_polars().collect(),
    ]


def test_what_is_left_out_is_told_once_in_each_read(build: Build) -> None:
    """One warning for one reason, however many tasks and batches a read has."""
    del build
    with memory_bucket(offload([(1, _chunks_cut_off()), (2, _chunks_cut_off())])) as bucket:
        cut, _ = _traced(bucket)
        for dataset, reason in (
            (cut, "2 chunked messages were left out"),
            (open_golden(_OPEN, batch_rows=2), "7 messages of 1 transaction without an outcome"),
        ):
            for read in _reads(dataset):
                with warnings.catch_warnings(record=True, action="always") as told:
                    read()
                messages = [
                    str(each.message)
                    for each in told
                    if issubclass(each.category, IncompleteReadWarning)
                ]
                assert len(messages) == 1, read
                assert reason in messages[0]
                assert messages[0].startswith(str(dataset.scan.topics[0].topic))


def test_read_that_stops_early_tells_nothing(build: Build) -> None:
    """What a head has not come to, it cannot have left out."""
    del build

    assert open_golden(_OPEN).head(1).num_rows == 1


def test_ledgers_lost_at_opening_are_in_every_report(build: Build, bucket: MemoryBucket) -> None:
    """What could not be opened is not forgotten by the reads that follow."""
    del build
    objects = offload([(2, [encode_entry([Message()], batched=False)])])
    bucket.put({name: data for name, data in objects.items() if name.endswith("-index")})
    dataset, _ = _traced(bucket, on_corruption="salvage")
    lost = {(Unit.LEDGER, "MissingObjectError"): 1}

    assert dataset.metrics.lost == lost
    for _ in range(2):
        for read in _reads(dataset.filter(_ENTRY >= 0)):
            with pytest.warns(IncompleteReadWarning, match="1 × ledger lost: MissingObjectError"):
                read()
        with pytest.warns(IncompleteReadWarning, match="1 × ledger lost"):
            assert dataset.to_table().num_rows == 100
        assert dataset.metrics.lost == lost


def test_pandas_frame_has_the_rows(dataset: TopicDataset) -> None:
    """Integers stay integers, with nulls or without; all types are Arrow's, or pyarrow's choice."""
    columns = ["__entry_id__", "__batch_index__", "__key__", "__publish_time__"]
    table = dataset.to_table(columns=columns)

    exact = dataset.to_pandas(columns=columns)
    arrow = dataset.to_pandas(columns, _LEDGER == 86, arrow_types=True)
    objects = dataset.to_pandas(columns, integer_object_nulls=True)

    assert table["__batch_index__"].null_count > 0
    assert pa.Table.from_pandas(exact, table.schema, preserve_index=False).equals(table)
    assert exact["__entry_id__"].dtype == "int64"
    assert all(isinstance(dtype, pd.ArrowDtype) for dtype in arrow.dtypes)
    again = pa.Table.from_pandas(arrow, preserve_index=False).cast(table.schema)
    assert again.equals(dataset.to_table(columns, _LEDGER == 86))
    assert objects["__batch_index__"].tolist() == table["__batch_index__"].to_pylist()


def test_polars_frame_has_the_rows(dataset: TopicDataset) -> None:
    """The same values, with filter and columns."""
    columns = ["__entry_id__", "__value__", "__properties__"]

    frame = dataset.to_polars(columns, _LEDGER == 86)

    assert isinstance(frame, pl.DataFrame)
    table = dataset.to_table(columns, _LEDGER == 86)
    assert frame["__value__"].to_list() == table["__value__"].to_pylist()
    assert frame.height == table.num_rows > 0


def test_dataset_of_nothing_has_its_schema() -> None:
    """Bounds that no row lies in give an empty table of the right type, by no request."""
    trace = RequestTrace()
    dataset = open_topic(str(_TOPIC.objects_folder), _TOPIC.name, start=(99, 0), trace=trace)
    opened = trace.counts

    assert dataset.to_table().equals(dataset.schema.empty_table())
    assert dataset.count_rows() == 0
    assert list(dataset.to_batches()) == []
    assert dataset.head(1).num_rows == 0
    assert pa.table(dataset).schema == dataset.schema
    assert dataset.scan_polars().collect().height == 0
    assert trace.counts == opened
