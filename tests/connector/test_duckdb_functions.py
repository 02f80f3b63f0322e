"""`read_pulsar` in DuckDB: what statements give, over golden topics."""

from __future__ import annotations

import datetime as dt
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import duckdb
import pytest

from arrow_io.messages.bodies import decompress_bodies
from arrow_io.storage.trace import RequestKind, RequestTrace
from connector import open_topic, register_duckdb
from tests.support.buckets import MemoryBucket, golden_objects, memory_bucket
from tests.support.expected import COLUMNS, expected_golden_row, fingerprint, rows_of
from tests.support.golden import golden_topic, golden_topics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arrow_io.messages.entry_run import EntryRun

ORDERS: Final = golden_topic("json-orders")
URL: Final = str(ORDERS.objects_folder)
LEDGERS: Final = golden_topic("multi-ledger")
BLOCKS: Final = golden_topic("multi-block")


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to an in-memory database that knows where the golden topics are."""
    with duckdb.connect() as connection:
        register_duckdb(connection, URL)
        yield connection


def one(con: duckdb.DuckDBPyConnection, sql: str, parameters: object = None) -> Any:  # noqa: ANN401
    """The only value of the only row."""
    [(value,)] = con.execute(sql, parameters).fetchall()
    return value


def reading_threads() -> list[str]:
    """Names of the threads that read ahead, and do not end though nobody reads."""
    threads = [each for each in threading.enumerate() if each.name.startswith("pulsar-offload")]
    for each in threads:
        # DuckDB drops a reader in one of its own threads.
        each.join(30)
    return [each.name for each in threads if each.is_alive()]


def half_of_multi_ledger() -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The objects of a topic's first three ledgers, and those of the other three."""
    objects = golden_objects(LEDGERS)
    late = {path.name for _, *both in LEDGERS.offloaded_objects()[3:] for path in both}
    return (
        {name: data for name, data in objects.items() if name not in late},
        {name: data for name, data in objects.items() if name in late},
    )


@pytest.fixture
def growing() -> Iterator[tuple[MemoryBucket, dict[str, bytes], int, int]]:
    """A bucket with half of a topic, the other half's objects, and the rows before and after."""
    early, late = half_of_multi_ledger()
    with memory_bucket(early) as bucket:
        half = open_topic(bucket.url, "multi-ledger").count_rows()
        yield bucket, late, half, LEDGERS.message_count


# What is read


@pytest.mark.parametrize(
    "name", ["json-orders", "multi-ledger", "chunked", "transactions", "kv-json-inline"]
)
def test_rows_are_those_of_pulsars_client(con: duckdb.DuckDBPyConnection, name: str) -> None:
    """Each row and field that Pulsar's own client read comes out of DuckDB."""
    topic = golden_topic(name)
    table = con.sql(
        "from read_pulsar($topic, columns := $columns)"
        " order by __ledger_id__, __entry_id__, __batch_index__",
        params={"topic": topic.name, "columns": COLUMNS},
    ).to_arrow_table()
    rows = rows_of(table)
    expected = [
        expected_golden_row(row, topic=topic.name, partition=-1) for row in topic.messages()
    ]
    expected.sort(key=lambda row: (row["__ledger_id__"], row["__entry_id__"]))

    assert len(rows) == len(expected) > 0
    for row, golden in zip(rows, expected, strict=True):
        row["__value__"] = fingerprint(row["__value__"])
        assert {column: row[column] for column in golden} == golden


def test_partitions_globs_and_lists_are_one_table(con: duckdb.DuckDBPyConnection) -> None:
    """A partitioned topic, a glob and a list of topics each are one table of all their rows."""
    parts = {
        topic.name: topic.message_count
        for topic in golden_topics()
        if topic.name.startswith("persistent://public/default/partitioned-partition-")
    }
    counts = dict(
        con.execute(
            "select __topic__, count(*) from read_pulsar('partitioned', columns := ['__topic__'])"
            " group by all"
        ).fetchall()
    )
    sets = (f"bytes-{kind}-{codec}" for kind in ("batched", "single") for codec in ("lz4", "zstd"))
    both = sum(golden_topic(name).message_count for name in sets)

    assert counts == parts
    assert len(parts) == 3
    assert one(con, "select count(*) from read_pulsar(['bytes-*-lz4', 'bytes-*-zstd'])") == both
    assert (
        one(con, "select count(*) from read_pulsar(?)", [["bytes-*-lz4", "bytes-*-zstd"]]) == both
    )


def test_times_are_instants_in_any_time_zone(con: duckdb.DuckDBPyConnection) -> None:
    """Timestamps come out as instants, in the session's time zone, whatever that is."""
    pytest.importorskip("pytz", reason="DuckDB gives TIMESTAMPTZ to Python with pytz")
    first = ORDERS.messages()[0]["publish_time"]
    instant = dt.datetime.fromtimestamp(first / 1000, dt.UTC)
    for zone in ("UTC", "America/New_York", "Asia/Kathmandu"):
        con.execute(f"set TimeZone = '{zone}'")
        time = one(con, "select min(__publish_time__) from read_pulsar('json-orders')")
        hour = one(con, "select hour(min(__publish_time__)) from read_pulsar('json-orders')")

        assert time == instant
        assert hour == instant.astimezone(ZoneInfo(zone)).hour


# How it is read

FILTERS: Final = [
    "__entry_id__ = 3",
    "__entry_id__ between 2 and 5",
    "__entry_id__ in (1, 5, 99)",
    "__entry_id__ + __batch_index__ = 9",
    "__ledger_id__ >= 89 or __ledger_id__ = 49",
    "__ledger_id__ = 49 and __entry_id__ = 7 and __batch_index__ >= 10",
    "__batch_index__ is null",
    "__batch_index__ is not null and __batch_index__ <> 0",
    "__key__ = 'key-0'",
    "__key__ is null",
    "__key__ is distinct from 'key-0'",
    "__key__ like 'key-1%'",
    "__key__ = 'key-0' or __entry_id__ = 7",
    "__key__ = null",
    "upper(__key__) = 'KEY-0'",
    "__key_bytes__ = '\\xFF\\x00\\x01'::blob",
    "__event_time__ > timestamptz '2020-09-13 12:26:45+00' or __event_time__ is null",
    "__event_time__ = timestamptz '2020-09-13 12:26:40+00'",
    "__event_time__ in ('2020-09-13 12:26:40+00', '2020-09-13 12:26:42+00')",
    "__publish_time__ < timestamptz '2026-11-21 12:48:25.200+00'",
    "hour(__publish_time__) = 12",
    "__value__ > '{\"orderId\":2'::blob",
    "__null_value__",
    "not __null_value__ and __schema_version__ is null",
    "__properties__['source'] = 'gen'",
    "__topic__ like '%multi-ledger'",
    "__message_id__ = '(88,3,-1)'",
    "random() < 2 and __entry_id__ = 1",
]


@pytest.fixture(scope="module")
def both_ways() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with a view over three topics and a table of the same rows."""
    with duckdb.connect() as connection:
        register_duckdb(connection, URL, columns=COLUMNS)
        connection.execute(
            "create view topics as from"
            " read_pulsar(['json-orders', 'multi-ledger', 'bytes-batched-lz4'])"
        )
        connection.execute("create table rows as from topics")
        yield connection


@pytest.mark.parametrize("condition", FILTERS)
def test_filters_are_exact(both_ways: duckdb.DuckDBPyConnection, condition: str) -> None:
    """A condition gives of a topic what DuckDB gives of a table with the same rows."""
    given, expected = (
        both_ways.view(name).filter(condition).order("__message_id__").fetchall()
        for name in ("topics", "rows")
    )

    assert given == expected


def test_filters_and_columns_reach_the_reader(con: duckdb.DuckDBPyConnection) -> None:
    """What the reader applies stands in the plan's scan, and no other column than needed."""
    [(_, plan)] = con.execute(
        "explain select __sequence_id__ from read_pulsar('json-orders')"
        " where __key__ = 'key-0' and __event_time__ > timestamptz '2020-01-01'"
        " and __entry_id__ in (1, 5) and __batch_index__ is not null"
    ).fetchall()

    assert "PYTHON_ARROW_SCAN" in plan
    assert re.search(r"Projections: +__sequence_id__ +│\n│ ~", plan)
    for column in ("__key__", "__event_time__", "__entry_id__", "__batch_index__"):
        assert f'"{column}"' in plan.partition("Filters:")[2]


def test_filter_spares_ledgers() -> None:
    """Of the ledgers that a filter excludes, only the next one is looked into at the most."""
    trace = RequestTrace(keep_records=True)
    with duckdb.connect() as con:
        register_duckdb(con, URL, trace=trace)
        rows = one(con, "select count(*) from read_pulsar('multi-ledger') where __ledger_id__ = 88")

    assert rows == sum(row["ledger"] == 88 for row in LEDGERS.messages())
    read = {each.name for each in trace.records if each.kind is RequestKind.RANGE_GET}
    assert {"88"} <= {name.rpartition("-")[2] for name in read} <= {"88", "89"}


def test_count_reads_positions_only(
    con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`count(*)` decompresses no payload, `count` of a column of compressed batches does."""
    decompressed = []

    def spy(run: EntryRun, *args: Any) -> tuple[memoryview, int, bool]:  # noqa: ANN401
        decompressed.append(run)
        return decompress_bodies(run, *args)

    monkeypatch.setattr("arrow_io.messages.message_reader.decompress_bodies", spy)
    topic = golden_topic("bytes-batched-zstd")

    assert one(con, "select count(*) from read_pulsar('bytes-batched-zstd')") == topic.message_count
    assert not decompressed
    assert one(con, "select count(__value__) from read_pulsar('bytes-batched-zstd')") > 0
    assert decompressed


def test_limit_reads_little() -> None:
    """A LIMIT sends a few of the requests that the topic takes, and leaves no thread behind."""
    range_bytes = 1 << 16
    trace = RequestTrace()
    with duckdb.connect() as con:
        register_duckdb(con, URL, trace=trace, range_bytes=range_bytes, batch_bytes=4 * range_bytes)
        rows = con.execute("select __value__ from read_pulsar('multi-block') limit 3").fetchall()
        few = trace.counts.range_requests
        everything = one(con, "select count(__value__) from read_pulsar('multi-block')")

    assert len(rows) == 3
    assert everything == BLOCKS.message_count
    whole = trace.counts.range_requests - few
    assert whole >= BLOCKS.ledgers[0].length_bytes // range_bytes
    assert few < whole / 4
    assert not reading_threads()


def test_estimate_keeps_a_topic_out_of_a_hash_table(con: duckdb.DuckDBPyConnection) -> None:
    """A join with a smaller table puts that table, not the topic, into the hash table."""
    [(_, plan)] = con.execute(
        "explain from read_pulsar('multi-block') join range(30) numbers on range = __entry_id__"
    ).fetchall()

    # The side of a join that is hashed stands at the right.
    assert plan.index("Python Arrow Scan") < plan.index("Range")


# Statements


def test_recursion_reads_a_topic_again_and_again(con: duckdb.DuckDBPyConnection) -> None:
    """A scan that one execution repeats gives the same rows each time."""
    rows = con.execute(
        "with recursive steps(n) as (select 0::bigint union all"
        " select n + c from steps, (select count(*) as c from read_pulsar('string')) where n < 24)"
        " select n from steps order by n"
    ).fetchall()

    assert rows == [(0,), (8,), (16,), (24,)]


def test_relations(con: duckdb.DuckDBPyConnection) -> None:
    """Relations of DuckDB's Python API can be built on a topic, and read more than once."""
    relation = con.sql("from read_pulsar('json-orders')")
    early = relation.filter("__entry_id__ < 3").project("__key__, __entry_id__")
    expected = [(row.get("key"), row["entry"]) for row in ORDERS.messages() if row["entry"] < 3]

    assert early.fetchall() == expected
    assert early.fetchall() == expected
    other = con.table_function("read_pulsar", ["string"])
    assert len(relation.join(other, "__entry_id__").fetchall()) == 8 * sum(
        row["entry"] == 0 for row in ORDERS.messages()
    )


def test_statements_see_ledgers_that_came_since(
    con: duckdb.DuckDBPyConnection, growing: tuple[MemoryBucket, dict[str, bytes], int, int]
) -> None:
    """Views, prepared statements and plain ones read, at each execution, the ledgers there are."""
    bucket, late, half, whole = growing
    register_duckdb(con, bucket.url)
    read = "select count(*) from read_pulsar('multi-ledger')"
    con.execute(f"create view counted(n) as {read}")
    con.execute(f"prepare fixed as {read}")
    con.execute("prepare free as select count(*) from read_pulsar($1)")
    statements = (read, "from counted", "execute fixed", "execute free('multi-ledger')")

    assert [one(con, statement) for statement in statements] == [half] * 4
    bucket.put(late)
    assert [one(con, statement) for statement in statements] == [whole] * 4
    assert [one(con, statement) for statement in statements] == [whole] * 4
    assert half < whole


def test_parameters(con: duckdb.DuckDBPyConnection) -> None:
    """Topic and options can be parameters, by position and by name, and change between runs."""
    sql = "select count(*) from read_pulsar($topic, start := $start, columns := $columns)"
    later = {"topic": "json-orders", "start": [49, 4], "columns": ["__key__"]}
    after = sum(row["entry"] >= 4 for row in ORDERS.messages())

    assert one(con, sql, later) == after
    assert one(con, sql, later | {"topic": "string", "start": None}) == 8
    con.execute("create table counts (n bigint)")
    con.executemany(
        "insert into counts select count(*) from read_pulsar(?)", [["json-orders"], ["string"]]
    )
    assert con.execute("from counts").fetchall() == [(400,), (8,)]


def test_explain_and_describe_read_no_data() -> None:
    """A statement that is only bound sends requests for the listing and the index objects alone."""
    trace = RequestTrace()
    with duckdb.connect() as con:
        register_duckdb(con, URL, trace=trace)
        con.execute("explain from read_pulsar('json-orders')")
        described = con.execute("describe from read_pulsar('json-orders')").fetchall()

    assert [name for name, *_ in described] == open_topic(URL, "json-orders").schema.names
    assert trace.counts.list_requests == 2
    assert trace.counts.range_requests == 0


def test_connections_in_threads() -> None:
    """Cursors of one in-memory database read different topics at the same time."""
    topics = [golden_topic(name) for name in ("json-orders", "multi-ledger", "chunked", "string")]

    def count(con: duckdb.DuckDBPyConnection, name: str) -> int:
        with con:
            value: int = one(con, "select count(__sequence_id__) from read_pulsar(?)", [name])
            return value

    with duckdb.connect() as con, ThreadPoolExecutor(4) as pool:
        register_duckdb(con, URL)
        counts = [pool.submit(count, con.cursor(), topic.name) for topic in topics * 3]
        assert [each.result() for each in counts] == [each.message_count for each in topics * 3]
    assert not reading_threads()
