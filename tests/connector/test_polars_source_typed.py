"""Typed columns in lazy Polars frames: exact predicates, and no more decoding than they take."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from arrow_io.payloads.value_columns import SelectedValues
from tests.support.golden import golden_topic
from tests.support.golden_datasets import open_golden
from tests.support.golden_values import expected_values, golden_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from arrow_io.messages.message_columns import MessageColumns
    from arrow_io.read_metrics import Tally
    from connector import TopicDataset

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
def test_predicates_are_exact(name: str, predicate: pl.Expr) -> None:
    """What a lazy frame keeps is what the whole frame has, on fields of structs and lists too."""
    dataset = typed(name)
    whole = dataset.to_polars().filter(predicate)
    lazy = dataset.scan_polars().filter(predicate)

    assert_frame_equal(lazy.collect(), whole)
    assert_frame_equal(lazy.select("__entry_id__").collect(), whole.select("__entry_id__"))
    assert lazy.select(pl.len()).collect().item() == whole.height
    assert 0 < whole.height < golden_topic(name).message_count


def test_no_more_is_decoded_than_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The predicate's column is decoded first, the others for the rows that pass.

    To count, Polars takes a column of its choice, the narrowest.
    """
    decoded: list[tuple[tuple[str, ...], int]] = []
    arrays = SelectedValues.arrays

    def spy(values: SelectedValues, rows: MessageColumns, tally: Tally) -> Iterator[list[pa.Array]]:
        decoded.append((tuple(each.name for each in values.fields), rows.count))
        return arrays(values, rows, tally)

    monkeypatch.setattr(SelectedValues, "arrays", spy)
    orders = golden_topic("json-orders")
    new = sum(bool(r.value) and r.value["status"] == "NEW" for r in expected_values(orders))
    lazy = typed("json-orders").scan_polars()

    assert lazy.select("__key__").collect().height == orders.message_count
    assert decoded == []
    assert lazy.select(pl.len()).collect().item() == orders.message_count
    assert [columns for columns, _ in decoded] == [("gift",)]
    decoded.clear()
    kept = lazy.filter(pl.col("status") == "NEW").select("total").collect()
    assert kept.height == new
    # Polars asks for the predicate's column too, which is decoded already.
    assert {columns for columns, _ in decoded} == {("status",), ("total",)}
    assert sum(rows for columns, rows in decoded if "total" in columns) == new


def test_struct_shape_and_raw_bytes() -> None:
    """`value="struct"` gives one column, of which fields are taken; `raw` gives bytes."""
    orders = golden_topic("json-orders")
    status = pl.col("__value__").struct.field("status")

    lazy = typed("json-orders", value="struct").scan_polars()
    raw = typed("json-orders", value="raw").scan_polars()

    assert lazy.select(status).collect()["status"].to_list() == [
        row.value and row.value["status"] for row in expected_values(orders)
    ]
    assert raw.collect_schema()["__value__"] == pl.Binary
    counts = typed("json-orders").scan_polars().group_by("status").len().collect()
    assert dict(counts.iter_rows())["NEW"] == 87
