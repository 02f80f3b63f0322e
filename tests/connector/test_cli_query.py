"""SQL on the command line: topics as tables, and what values look like."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.support.buckets import memory_bucket, offload
from tests.support.command_line import URL, USAGE, cells, lines_of, run
from tests.support.entries import Message, encode_entry
from tests.support.golden import golden_topic

JOIN: Final = """
    SELECT count(*) AS n
    FROM "json-orders" JOIN "json-orders" AS other
    USING (__ledger_id__, __entry_id__, __batch_index__)
"""
PIVOT: Final = """
    SELECT "-1" AS n
    FROM (PIVOT "json-orders" ON __partition__ USING count(*) GROUP BY __ledger_id__)
"""
OWN_TABLE: Final = """
    CREATE TABLE "json-orders" AS FROM "json-orders" LIMIT 2;
    SELECT count(*) AS n FROM "json-orders"
"""


def test_query_reads_topics_by_function_and_by_name() -> None:
    """`read_pulsar` and the topic's name give the same; the cost stands on stderr."""
    by_function = run("query", URL, "SELECT count(*) AS n FROM read_pulsar('json-orders')")
    by_name = run("query", URL, 'SELECT count(*) AS n FROM "json-orders"', "--value", "raw")

    assert cells(by_function.stdout) == cells(by_name.stdout) == [["n"], ["400"]]
    assert re.fullmatch(
        r"cost: 1 row, 54 requests \(1 listing, 52 index objects, 1 range\), 61\.5 kB read,"
        r" \d+\.\d\d s\n",
        by_name.stderr,
    )


@pytest.mark.parametrize(
    ("sql", "count"),
    [
        ('SELECT count(*) AS n FROM "public/default/json-orders"', 400),
        ('SELECT count(*) AS n FROM "persistent://public/default/json-orders"', 400),
        ("SELECT count(*) AS n FROM 'json-orders'", 400),
        ('SELECT count(*) AS n FROM "partitioned-partition-1" -- don\'t', 59),
        ("SELECT count(*) AS n FROM compacted, date WHERE false", 0),
        (JOIN, 400),
        ('WITH o AS (FROM "json-orders" LIMIT 2) SELECT count(*) AS n FROM o', 2),
        ('CREATE TABLE o AS FROM "json-orders" LIMIT 2; SELECT count(*) AS n FROM o', 2),
        (OWN_TABLE, 2),
        (PIVOT, 400),
        (
            'SELECT count(*) AS n FROM "acme-corp/sales.eu/orders-été:2026 %20 v1"',
            golden_topic("persistent://acme-corp/sales.eu/orders-été:2026 %20 v1").message_count,
        ),
    ],
)
def test_topics_are_tables(sql: str, count: int) -> None:
    """A topic is a table by each form of its name, behind tables that the SQL makes itself."""
    assert lines_of("query", URL, sql) == [{"n": count}]


def test_names_that_differ_in_case_only_are_not_mixed_up() -> None:
    """DuckDB cannot tell two such topics apart: naming both is an error instead of wrong rows."""
    objects: dict[str, bytes] = {}
    for name in ("orders", "Orders"):
        entry = encode_entry(
            [Message(payload=b"x")], batched=False, producer_name="p", sequence_id=0, publish_time=1
        )
        objects |= offload([(1, [entry])], managed_ledger=f"public/default/persistent/{name}")
    with memory_bucket(objects) as bucket:
        result = run("query", bucket.url, "FROM orders UNION ALL FROM Orders", ends=USAGE)
        sql = "SELECT count(*) AS n FROM read_pulsar(['orders', 'Orders'])"
        both = lines_of("query", bucket.url, sql)
        one = lines_of("query", bucket.url, "SELECT count(*) AS n FROM Orders")

    assert "use read_pulsar" in result.stderr
    assert (both, one) == ([{"n": 2}], [{"n": 1}])


def test_query_prints_values_of_every_type() -> None:
    """Whatever DuckDB gives becomes JSON without loss; columns of one name are told apart."""
    [row] = lines_of(
        "query",
        URL,
        "SELECT 1 AS a, 2 AS a, 10::HUGEINT AS huge, 1.50::DECIMAL(9, 2) AS money,"
        " 'NaN'::DOUBLE AS nan, TIMESTAMPTZ '2026-11-21 12:00:00+02' AS at,"
        " TIMESTAMP_NS '2026-11-21 12:00:00.123456789' AS ns,"
        " DATE '2026-11-21' AS day, INTERVAL 3 DAYS AS span, {'x': [1, 2]} AS nested,"
        " MAP {'k': '\\xFF'::BLOB} AS map, MAP {[1]: 2} AS odd, NULL AS nothing, true AS yes",
    )

    assert row == {
        "a": 1,
        "a_1": 2,
        "huge": 10,
        "money": "1.50",
        "nan": "nan",
        "at": "2026-11-21T10:00:00.000Z",
        "ns": "2026-11-21T12:00:00.123456789",
        "day": "2026-11-21",
        "span": "MonthDayNano(months=0, days=3, nanoseconds=0)",
        "nested": {"x": [1, 2]},
        "map": {"k": {"base64": "/w=="}},
        "odd": ["([1], 2)"],
        "nothing": None,
        "yes": True,
    }


def test_query_without_result_rows_prints_a_header() -> None:
    """A query that gives no rows still prints its columns."""
    result = run("query", URL, "SELECT __key__ FROM string WHERE false")

    assert cells(result.stdout) == [["__key__"]]
    assert "0 rows" in result.stderr
