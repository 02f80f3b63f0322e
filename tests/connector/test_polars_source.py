"""Lazy Polars frames: the rows of the dataset, and no more work than the query takes."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from polars.testing import assert_frame_equal

from arrow_io.columns import Assembly
from arrow_io.errors import OptionError
from arrow_io.storage.trace import RequestTrace
from connector import TopicDataset, open_topic
from connector.frames.polars_source import PolarsFilter
from tests.support.buckets import TOPIC, memory_bucket, offload
from tests.support.entries import Message, encode_entry
from tests.support.expected import COLUMNS
from tests.support.golden import golden_topic
from tests.support.golden_datasets import open_golden

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arrow_io.core.builds import Build
    from arrow_io.messages.message_columns import MessageColumns
    from arrow_io.read_metrics import Tally

_TOPIC: Final = golden_topic("multi-ledger")
_ENTRY: Final = pl.col("__entry_id__")
_LEDGER: Final = pl.col("__ledger_id__")


@pytest.fixture
def dataset(build: Build) -> TopicDataset:
    """A topic of six ledgers and 255 rows, with all columns."""
    del build
    return open_golden(_TOPIC, columns=COLUMNS)


@pytest.fixture
def frame(dataset: TopicDataset) -> pl.DataFrame:
    """All rows of it, read at once."""
    return dataset.to_polars()


@dataclass
class Decoded:
    """What was made of messages.

    Attributes:
        projections: The columns of each scan.
        value_rows: Of how many rows values were gathered.
    """

    projections: set[frozenset[str]] = field(default_factory=set)
    value_rows: int = 0


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Decoded:
    """A spy on the reader."""
    made = Decoded()
    record_batches = Assembly.record_batches

    def spy(assembly: Assembly, rows: MessageColumns, tally: Tally) -> Iterator[pa.RecordBatch]:
        for batch in record_batches(assembly, rows, tally):
            made.projections.add(frozenset(batch.schema.names))
            made.value_rows += batch.num_rows * ("__value__" in batch.schema.names)
            yield batch

    monkeypatch.setattr(Assembly, "record_batches", spy)
    return made


def test_frame_has_the_rows_and_types_of_the_dataset(
    dataset: TopicDataset, frame: pl.DataFrame
) -> None:
    """Lazily or at once, the frame is the same; nothing is read to know its schema."""
    lazy = dataset.scan_polars()

    assert lazy.collect_schema() == frame.schema
    assert_frame_equal(lazy.collect(), frame)
    assert frame.height == 255
    assert frame["__publish_time__"].dtype == pl.Datetime("us", "UTC")
    assert frame["__properties__"].dtype == pl.Map(pl.String, pl.String)


def test_on_request_columns_are_those_of_the_dataset(build: Build) -> None:
    """A lazy frame has the columns that the dataset was opened with."""
    del build
    lazy = open_golden(_TOPIC, columns=["__topic__", "__entry_id__"]).scan_polars()

    assert lazy.collect_schema().names() == ["__topic__", "__entry_id__"]
    assert lazy.collect()["__topic__"].unique().to_list() == [_TOPIC.name]


def test_frames_with_functions_of_python(dataset: TopicDataset, frame: pl.DataFrame) -> None:
    """A predicate may call Python, and a frame may be pickled; the extra has what that takes."""
    is_late = _ENTRY.map_batches(lambda entries: entries > 10, return_dtype=pl.Boolean)

    lazy = pickle.loads(pickle.dumps(dataset.scan_polars()))

    assert_frame_equal(lazy.filter(is_late).collect(), frame.filter(_ENTRY > 10))


@pytest.mark.parametrize("name", ["__key__", "__entry_id__"])
def test_two_columns_of_one_name_are_refused(build: Build, name: str) -> None:
    """Polars has no such frames; the error is ours and names the column."""
    del build
    dataset = open_golden(_TOPIC, columns=[name, "__ledger_id__", name])

    for read in (dataset.to_polars, dataset.scan_polars):
        with pytest.raises(OptionError, match=f"columns has {name} twice"):
            read()


def test_rows_without_a_column_are_rows(build: Build) -> None:
    """A frame without columns has the height of the dataset, lazily too."""
    del build
    dataset = open_golden(_TOPIC, columns=[])
    lazy = dataset.scan_polars()

    assert dataset.to_polars().shape == lazy.collect().shape == (255, 0)
    assert lazy.head(100).collect().shape == (100, 0)
    assert lazy.select(pl.len()).collect().item() == 255
    assert lazy.with_columns(pl.lit(1).alias("a")).collect().shape == (255, 1)
    whole = open_golden(_TOPIC, columns=["__key__"]).scan_polars()
    assert whole.drop("__key__").with_columns(pl.lit(1).alias("a")).collect().shape == (255, 1)
    assert whole.select(pl.lit(1).alias("a")).collect().shape == (1, 1)


def test_projection_reaches_the_reader(
    dataset: TopicDataset, frame: pl.DataFrame, decoded: Decoded
) -> None:
    """Of two columns asked for, two are made; no value is gathered."""
    chosen = dataset.scan_polars().select("__key__", "__entry_id__").collect()

    assert_frame_equal(chosen, frame.select("__key__", "__entry_id__"))
    assert decoded.projections == {frozenset({"__key__", "__entry_id__"})}
    assert decoded.value_rows == 0


@pytest.mark.parametrize(
    "predicate",
    [
        _ENTRY == 3,
        (_ENTRY > 10) & (_LEDGER < 88),
        pl.col("__key__").is_null(),
        pl.col("__key__").str.ends_with("1") | (_ENTRY == 0),
        pl.col("__value__").bin.size() > 120,
        pl.col("__publish_time__").dt.millisecond() > 500,
        pl.lit(True),  # noqa: FBT003
        pl.lit(False),  # noqa: FBT003
        _ENTRY.is_in([1, 2]) & pl.lit(True),  # noqa: FBT003
    ],
    ids=str,
)
def test_predicates_are_exact(
    dataset: TopicDataset, frame: pl.DataFrame, predicate: pl.Expr
) -> None:
    """What Polars asks for is what it gets, whatever the predicate looks at, be it nothing."""
    lazy = dataset.scan_polars().filter(predicate)

    assert_frame_equal(lazy.collect(), frame.filter(predicate))
    assert lazy.select(pl.len()).collect().item() == frame.filter(predicate).height
    assert_frame_equal(
        lazy.select("__sequence_id__").collect(), frame.filter(predicate).select("__sequence_id__")
    )


def test_predicate_reaches_the_reader(
    dataset: TopicDataset, frame: pl.DataFrame, decoded: Decoded
) -> None:
    """The predicate's column is made first, and values of the rows that pass, of no other."""
    lazy = dataset.scan_polars().filter(_ENTRY == 0).select("__value__")

    found = lazy.collect()

    expected = frame.filter(_ENTRY == 0).select("__value__")
    assert_frame_equal(found, expected)
    assert decoded.value_rows == expected.height
    assert frozenset({"__entry_id__"}) in decoded.projections


def test_filtered_dataset_stays_filtered(dataset: TopicDataset, frame: pl.DataFrame) -> None:
    """A predicate of Polars comes on top of the dataset's own filter, not in its place."""
    filtered = dataset.filter(pc.field("__ledger_id__") >= 88).filter(pc.field("__key__") != "")
    expected = frame.filter((_LEDGER >= 88) & (pl.col("__key__") != ""))

    assert_frame_equal(filtered.scan_polars().collect(), expected)
    assert_frame_equal(
        filtered.scan_polars().filter(_ENTRY > 1).collect(), expected.filter(_ENTRY > 1)
    )
    assert 0 < expected.filter(_ENTRY > 1).height < expected.height


@pytest.mark.parametrize("count", [0, 1, 7, 100, 255, 1000])
def test_row_limits_are_exact(dataset: TopicDataset, frame: pl.DataFrame, count: int) -> None:
    """The first rows, before or behind a predicate."""
    lazy = dataset.scan_polars()

    assert_frame_equal(lazy.head(count).collect(), frame.head(count))
    assert_frame_equal(lazy.slice(3, count).collect(), frame.slice(3, count))
    assert_frame_equal(
        lazy.filter(_ENTRY > 2).head(count).collect(), frame.filter(_ENTRY > 2).head(count)
    )
    assert_frame_equal(
        lazy.head(count).filter(_ENTRY > 2).collect(), frame.head(count).filter(_ENTRY > 2)
    )


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Two hundred messages of 1,000 bytes in two ledgers."""
    entries = [
        encode_entry([Message(payload=bytes([i]) * 1000)], batched=False, sequence_id=i)
        for i in range(100)
    ]
    with memory_bucket(offload([(1, entries), (2, entries)])) as bucket:
        yield bucket.url


def test_row_limit_reaches_the_reader(build: Build, url: str) -> None:
    """A limit reads the first of many ranges, not all of them."""
    del build
    trace = RequestTrace()
    lazy = open_topic(url, TOPIC, trace=trace, range_bytes=4096, batch_bytes=4096).scan_polars()

    assert lazy.head(2).collect().height == 2
    assert trace.counts.range_requests <= 3
    assert lazy.collect().height == 200
    assert trace.counts.range_requests > 50


def test_joins_and_groups_read_each_frame_by_itself(
    dataset: TopicDataset, frame: pl.DataFrame
) -> None:
    """One lazy frame may stand in a query several times."""
    lazy = dataset.scan_polars()
    counts = lazy.group_by("__ledger_id__").agg(pl.len().alias("rows"))

    joined = lazy.join(counts, on="__ledger_id__").filter(pl.col("rows") > 41).collect()

    sizes = dict(frame.group_by("__ledger_id__").len().iter_rows())
    assert joined.height == sum(size for size in sizes.values() if size > 41)


def test_filter_counts_rows_by_their_number() -> None:
    """Rows for which the predicate is null are not kept; an empty batch keeps none."""
    batch = pa.record_batch({"a": pa.array([3, None, 1, 5], pa.int64())})
    row_filter = PolarsFilter(pl.col("a") > 2, ("a",))

    kept = row_filter.matching_rows(batch)

    assert kept.to_pylist() == [0, 3]
    assert kept.type == pa.int64()
    assert row_filter.matching_rows(batch.slice(0, 0)).to_pylist() == []
    assert PolarsFilter(pl.lit(True), ()).matching_rows(batch).to_pylist() == [0, 1, 2, 3]  # noqa: FBT003
