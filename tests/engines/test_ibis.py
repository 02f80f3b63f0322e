"""Ibis reads topics through DuckDB: its expressions become SQL, whose filters reach the reader."""

from __future__ import annotations

import ibis
import pytest
from ibis import _

from arrow_io.errors import IncompleteReadWarning
from connector import register_duckdb
from tests.engines.topics import FOLDER, URL, opened

pytestmark = [
    pytest.mark.engines,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


@pytest.fixture
def con() -> ibis.BaseBackend:
    """A connection of Ibis with the table functions."""
    con = ibis.duckdb.connect()
    con.raw_sql("SET python_enable_replacements = true")
    with pytest.warns(IncompleteReadWarning, match="leaves out rows with NaN"):
        register_duckdb(con.con, url=URL, metadata=str(FOLDER))
    return con


def test_a_topic_is_a_table(con: ibis.BaseBackend) -> None:
    """With the columns and the rows of the dataset."""
    orders = con.sql("FROM read_pulsar('json-orders')")

    dataset = opened("json-orders")
    assert list(orders.columns) == dataset.schema.names
    assert orders.count().execute() == dataset.count_rows()


def test_filters_and_columns_reach_the_reader(con: ibis.BaseBackend) -> None:
    """The plan has a scan of two columns with both conditions."""
    orders = con.sql("FROM read_pulsar('json-orders')")
    question = (
        orders.filter(_.status == "NEW", _["__entry_id__"] > 2)
        .group_by("status")
        .agg(orders=_.count(), revenue=_.total.sum())
    )

    [(_kind, plan)] = con.raw_sql(f"EXPLAIN {ibis.to_sql(question)}").fetchall()

    assert "ARROW_SCAN" in plan
    assert "status='NEW'" in plan
    assert "__entry_id__>2" in plan
    assert "FILTER" not in plan
    assert question.to_pyarrow().to_pylist() == [
        {"status": "NEW", "orders": 54, "revenue": pytest.approx(257408.75)}
    ]


def test_a_view_is_a_table(con: ibis.BaseBackend) -> None:
    """A view names the topic for `con.table`."""
    con.raw_sql("CREATE VIEW orders AS FROM read_pulsar('json-orders')")

    orders = con.table("orders")

    assert con.list_tables() == ["orders"]
    assert orders.filter(_.status == "NEW").count().execute() == 87
