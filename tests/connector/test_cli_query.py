"""SQL on the command line: topics as tables, and what values look like."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest
from typer.testing import CliRunner

from connector.inputs.topic_names import TopicName
from tests.support.buckets import memory_bucket, offload
from tests.support.command_line import APP, URL, USAGE, cells, lines_of, run
from tests.support.entries import Message, encode_entry
from tests.support.golden import golden_topic

if TYPE_CHECKING:
    from pathlib import Path

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
        "span": "P3D",
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


def test_sql_comes_from_a_file_or_from_standard_input(tmp_path: Path) -> None:
    """Long SQL stands in files, and other programs write it: the same rows, with either."""
    sql = 'SELECT count(*) AS n FROM "json-orders" -- été'
    file = tmp_path / "query.sql"
    file.write_text(sql, encoding="utf-8-sig")

    by_file = run("query", URL, "--file", str(file))
    by_input = CliRunner().invoke(APP, ["query", URL, "-"], input=sql)

    assert cells(by_file.stdout) == cells(by_input.stdout) == [["n"], ["400"]]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read SQL from .*: No such file"),
        (b"SELECT '\xff'", "is not UTF-8 at byte 8"),
        (b"-" * ((1 << 20) + 1), "is longer than 1048576 bytes"),
    ],
)
def test_files_without_sql_are_refused(content: bytes | None, said: str, tmp_path: Path) -> None:
    """A file that is not there, is no text, or is no query is one line that names it."""
    file = tmp_path / "query.sql"
    if content is not None:
        file.write_bytes(content)

    result = run("query", URL, "-f", str(file), ends=USAGE)

    assert re.fullmatch(rf"error: .*{said}.*\n", result.stderr)
    assert str(file) in result.stderr


@pytest.mark.parametrize("arguments", [[], ["SELECT 1", "-f", "query.sql"]])
def test_sql_is_given_once(arguments: list[str]) -> None:
    """Neither none nor two."""
    assert "give either SQL or --file" in run("query", URL, *arguments, ends=USAGE).stderr


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("INTERVAL '14 months 2 days 3 seconds'", "P1Y2M2DT3S"),
        ("INTERVAL '-5 minutes'", "PT-5M"),
        ("INTERVAL '0 seconds'", "PT0S"),
        ("INTERVAL '-90.000001 seconds'", "PT-1M-30.000001S"),
        ("INTERVAL '-0.5 seconds'", "PT-0.5S"),
        ("INTERVAL '25 hours'", "PT25H"),
    ],
)
def test_intervals_are_iso_8601(sql: str, text: str) -> None:
    """In JSON and in tables, each part with its own sign."""
    query = f"SELECT {sql} AS i, [{sql}] AS several"

    assert lines_of("query", URL, query) == [{"i": text, "several": [text]}]
    assert text in run("query", URL, query).stdout


def test_topics_are_the_tables_that_are_shown() -> None:
    """SHOW TABLES lists each topic by the name that SQL takes, and opens none of them."""
    shown = lines_of("query", URL, "SHOW TABLES", "--schema", "/not/there")
    listed = [row["topic"] for row in lines_of("topics", URL)]

    assert sorted(str(TopicName.parse(row["name"])) for row in shown) == sorted(listed)


def test_a_table_of_the_sql_is_shown_beside_the_topics() -> None:
    """What the SQL makes is listed too."""
    shown = lines_of("query", URL, "CREATE TABLE mine AS SELECT 1 AS n; show tables;")

    assert {"mine", "multi-ledger"} <= {row["name"] for row in shown}


def test_name_in_a_string_needs_no_quotes() -> None:
    """An error of something else has no hint about a name that is right."""
    result = CliRunner().invoke(APP, ["query", URL, "SELECT nope FROM read_pulsar('json-orders')"])

    assert result.exit_code == USAGE
    assert "needs quotes" not in result.stderr


@pytest.mark.parametrize(
    "sql",
    [
        'FROM "sales.eu/orders"',
        "FROM sales.eu/orders",
        "FROM sales.eu.orders",
        "FROM sales/eu/orders",
        "SELECT * FROM read_pulsar('sales/eu/orders'), sales.eu.orders",
    ],
)
def test_name_with_a_namespace_is_spelled_in_the_error(sql: str) -> None:
    """Whatever SQL makes of a name with dots or slashes, the error has the name that works."""
    entries = [encode_entry([Message(payload=b"value")], batched=False)]
    objects = offload([(1, entries)], managed_ledger="sales/eu/persistent/orders")
    with memory_bucket(objects) as bucket:
        error = CliRunner().invoke(APP, ["query", bucket.url, sql]).stderr
        rows = lines_of("query", bucket.url, 'SELECT count(*) AS n FROM "sales/eu/orders"')

    assert error.endswith('in SQL, a name with slashes needs quotes: "sales/eu/orders"\n')
    assert rows == [{"n": 1}]


def test_column_on_request_is_explained() -> None:
    """A column that topics have only if it is named, is no column to DuckDB."""
    error = run("query", URL, 'SELECT __topic__ FROM "json-orders"', ends=USAGE).stderr

    hint = "give --columns '*,__topic__', or read_pulsar('…', columns := ['*', '__topic__'])"
    assert error.endswith(f"__topic__ is not a default column: {hint}\n")
    sql = 'SELECT DISTINCT __topic__ FROM "json-orders"'
    [row] = lines_of("query", URL, sql, "--columns", "*,__topic__")
    assert row == {"__topic__": "persistent://public/default/json-orders"}


def test_error_of_a_topic_shows_no_sql_that_nobody_wrote() -> None:
    """The statements that make topics tables are ours."""
    error = run("query", URL, 'FROM "json-orders"', "--schema", "/not/there", ends=USAGE).stderr

    assert error.startswith("error: topic json-orders: schema '/not/there': there is no such file")
    assert "CREATE VIEW" not in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("sql", ["EXPLAIN SELECT 1 AS n", "EXPLAIN ANALYZE SELECT 1 AS n"])
def test_explanation_is_plain_text(sql: str) -> None:
    """A plan has lines, which a cell of a table would escape."""
    shown = run("query", URL, sql).stdout

    assert "\\n" not in shown
    assert len(shown.splitlines()) > 5
    [row] = lines_of("query", URL, sql)
    assert row["explain_value"].splitlines()[-1] in shown
