"""Lazy Polars frames: the rows of the dataset, typed ones too, and no more work than needed."""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from polars.testing import assert_frame_equal

from arrow_io.errors import OptionError
from arrow_io.storage.trace import RequestTrace
from connector import TopicDataset, open_topic
from connector.frames.polars_source import PolarsFilter
from tests.support.buckets import TOPIC, memory_bucket, offload
from tests.support.entries import Message, encode_entry
from tests.support.expected import COLUMNS
from tests.support.golden import golden_topic
from tests.support.golden_datasets import open_golden
from tests.support.golden_values import expected_values, golden_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from connector import TopicDataset


pytestmark = pytest.mark.usefixtures("build")

_TOPIC: Final = golden_topic("multi-ledger")
_IS_POLARS_1: Final = pl.__version__.startswith("1.")
_PROPERTIES: Final = (
    pl.List(pl.Struct({"key": pl.String, "value": pl.String}))
    if _IS_POLARS_1
    else pl.Map(pl.String, pl.String)
)
_ENTRY: Final = pl.col("__entry_id__")
_LEDGER: Final = pl.col("__ledger_id__")


@pytest.fixture
def dataset() -> TopicDataset:
    """A topic of six ledgers and 255 rows, with all columns."""
    return open_golden(_TOPIC, columns=COLUMNS)


@pytest.fixture
def frame(dataset: TopicDataset) -> pl.DataFrame:
    """All rows of it, read at once."""
    return dataset.to_polars()


def test_frame_has_the_rows_and_types_of_the_dataset(
    dataset: TopicDataset, frame: pl.DataFrame
) -> None:
    """Lazily or at once, the frame is the same; nothing is read to know its schema."""
    lazy = dataset.scan_polars()

    assert lazy.collect_schema() == frame.schema
    assert_frame_equal(lazy.collect(), frame)
    assert frame.height == 255
    assert frame["__publish_time__"].dtype == pl.Datetime("us", "UTC")
    assert frame["__properties__"].dtype == _PROPERTIES


def test_frames_with_functions_of_python(dataset: TopicDataset, frame: pl.DataFrame) -> None:
    """A predicate may call Python, and a frame may be pickled; the extra has what that takes."""
    is_late = _ENTRY.map_batches(lambda entries: entries > 10, return_dtype=pl.Boolean)

    lazy = pickle.loads(pickle.dumps(dataset.scan_polars()))

    assert_frame_equal(lazy.filter(is_late).collect(), frame.filter(_ENTRY > 10))


@pytest.mark.parametrize("name", ["__key__", "__entry_id__"])
def test_two_columns_of_one_name_are_refused(name: str) -> None:
    """Polars has no such frames; the error is ours and names the column."""
    dataset = open_golden(_TOPIC, columns=[name, "__ledger_id__", name])

    for read in (dataset.to_polars, dataset.scan_polars):
        with pytest.raises(OptionError, match=f"columns has {name} twice"):
            read()


@pytest.mark.skipif(_IS_POLARS_1, reason="Polars 1 loses the height of a frame without columns")
def test_rows_without_a_column_are_rows() -> None:
    """A frame without columns has the height of the dataset, lazily too."""
    dataset = open_golden(_TOPIC, columns=[])
    lazy = dataset.scan_polars()

    assert dataset.to_polars().shape == lazy.collect().shape == (255, 0)
    assert lazy.head(100).collect().shape == (100, 0)
    assert lazy.select(pl.len()).collect().item() == 255
    assert lazy.with_columns(pl.lit(1).alias("a")).collect().shape == (255, 1)
    whole = open_golden(_TOPIC, columns=["__key__"]).scan_polars()
    assert whole.drop("__key__").with_columns(pl.lit(1).alias("a")).collect().shape == (255, 1)
    assert whole.select(pl.lit(1).alias("a")).collect().shape == (1, 1)


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


def test_row_limit_reaches_the_reader(url: str) -> None:
    """A limit reads the first of many ranges, not all of them."""
    trace = RequestTrace()
    lazy = open_topic(url, TOPIC, trace=trace, range_bytes=4096, batch_bytes=4096).scan_polars()

    assert lazy.head(2).collect().height == 2
    assert trace.counts.range_requests <= 3
    assert lazy.collect().height == 200
    assert trace.counts.range_requests > 50


def test_filter_counts_rows_by_their_number() -> None:
    """Rows for which the predicate is null are not kept; an empty batch keeps none."""
    batch = pa.record_batch({"a": pa.array([3, None, 1, 5], pa.int64())})
    row_filter = PolarsFilter(pl.col("a") > 2, ("a",))

    kept = row_filter.matching_rows(batch)

    assert kept.to_pylist() == [0, 3]
    assert kept.type == pa.int64()
    assert row_filter.matching_rows(batch.slice(0, 0)).to_pylist() == []
    assert PolarsFilter(pl.lit(True), ()).matching_rows(batch).to_pylist() == [0, 1, 2, 3]  # noqa: FBT003


CUSTOMER: Final = pl.col("customer").struct
POSITION: Final = pl.col("position").struct
PREDICATES: Final[dict[str, tuple[pl.Expr, ...]]] = {
    "json-orders": (
        pl.col("status") == "NEW",
        pl.col("status").is_in(["NEW", "PAID"]) & (pl.col("__entry_id__") < 5),
        CUSTOMER.field("id") > 5,
        CUSTOMER.field("email").is_null() | pl.col("gift"),
        pl.col("customer").is_null(),
        pl.col("total").is_between(10.5, 5000.0),
        pl.col("signature").bin.size() > 3,
        pl.col("items").list.len() > 1,
        pl.col("items").list.get(0, null_on_oob=True).struct.field("price") > 3,
        pl.col("note").str.contains("o") & pl.col("__key__").is_not_null(),
    ),
    "avro-logical": (
        pl.col("amount") > Decimal("0.5"),
        pl.col("day") >= dt.date(1970, 1, 1),
        pl.col("tus") < dt.time(0, 0, 1),
        pl.col("ms") > dt.datetime(2023, 11, 14, 22, 13, 20, 40_000, dt.UTC),
        pl.col("lms").dt.year() == 1969,
        pl.col("u").struct.field("long") > 3,
        pl.col("kind") == "A",
    ),
    "protobuf-native": (
        pl.col("odometer_m") > Decimal(5000),
        pl.col("taken_at").dt.nanosecond() == 1000,
        POSITION.field("accuracy_m").is_null(),
        pl.col("mode").is_in(["IDLE", "DRIVING"]),
    ),
}


def typed(name: str, **options: str) -> TopicDataset:
    """A golden topic with its schema."""
    topic = golden_topic(name)
    return open_golden(topic, schema=golden_schema(topic), **options)


@pytest.mark.parametrize(
    ("name", "predicate"),
    [(name, predicate) for name, each in PREDICATES.items() for predicate in each],
    ids=str,
)
def test_predicates_on_typed_columns_are_exact(name: str, predicate: pl.Expr) -> None:
    """What a lazy frame keeps is what the whole frame has, on fields of structs and lists too."""
    dataset = typed(name)
    whole = dataset.to_polars().filter(predicate)
    lazy = dataset.scan_polars().filter(predicate)

    assert_frame_equal(lazy.collect(), whole)
    assert_frame_equal(lazy.select("__entry_id__").collect(), whole.select("__entry_id__"))
    assert lazy.select(pl.len()).collect().item() == whole.height
    assert 0 < whole.height < golden_topic(name).message_count


def test_no_more_is_decoded_than_asked_for(
    decoded: list[tuple[tuple[str, ...], int]],
) -> None:
    """The predicate's column is decoded first, the others for the rows that pass.

    To count, Polars takes a column of its choice, the narrowest; some of its releases take none.
    """
    orders = golden_topic("json-orders")
    new = sum(bool(r.value) and r.value["status"] == "NEW" for r in expected_values(orders))
    lazy = typed("json-orders").scan_polars()

    assert lazy.select("__key__").collect().height == orders.message_count
    assert decoded == []
    assert lazy.select(pl.len()).collect().item() == orders.message_count
    assert [columns for columns, _ in decoded] in ([], [("gift",)])
    decoded.clear()
    kept = lazy.filter(pl.col("status") == "NEW").select("total").collect()
    assert kept.height == new
    # Polars asks for the predicate's column too, which is decoded already.
    assert {columns for columns, _ in decoded} == {("status",), ("total",)}
    assert sum(rows for columns, rows in decoded if "total" in columns) == new
