"""`register_duckdb(…, views=…)`: a view for each topic, which opens the topic when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import duckdb
import pytest

from arrow_io.errors import OptionError
from arrow_io.storage.trace import RequestTrace
from connector import open_catalog, register_duckdb
from connector.engines import duckdb_views
from connector.inputs.topic_names import TopicName
from tests.support.buckets import memory_bucket, object_name, offload_ledger
from tests.support.entries import Message, encode_entry
from tests.support.golden import golden_topic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ORDERS: Final = golden_topic("json-orders")
URL: Final = str(ORDERS.objects_folder)


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to an in-memory database."""
    with duckdb.connect() as connection:
        yield connection


def rows(con: duckdb.DuckDBPyConnection, sql: str) -> list[Any]:
    """The rows; values alone if there is one column."""
    found = con.execute(sql).fetchall()
    return [row[0] if len(row) == 1 else row for row in found]


def bucket_objects(*names: str, first_ledger_id: int = 1) -> dict[str, bytes]:
    """The objects of topics with one message each, whose payload is the topic's name."""
    objects: dict[str, bytes] = {}
    for ledger_id, name in enumerate(names, first_ledger_id):
        entry = encode_entry([Message(payload=name.encode())], batched=True)
        managed_ledger = TopicName.parse(name).managed_ledger_name
        objects |= offload_ledger(object_name(ledger_id), [entry], managed_ledger=managed_ledger)
    return objects


@pytest.mark.filterwarnings("ignore::arrow_io.errors.IncompleteReadWarning")
def test_views_are_the_topics(con: duckdb.DuckDBPyConnection) -> None:
    """Tables are listed, described and read; no ledger is read before that."""
    trace = RequestTrace()
    register_duckdb(con, URL, views="topics", trace=trace)
    assert trace.counts.range_requests == 0

    names = rows(con, "SHOW TABLES FROM topics")
    bases = {topic.base for topic in open_catalog(URL).topics()}
    assert len(names) == len(bases)
    assert {"json-orders", "partitioned"} <= set(names)
    assert trace.counts.range_requests == 0
    described = rows(con, 'DESCRIBE topics."json-orders"')
    assert described == rows(con, "DESCRIBE FROM read_pulsar('json-orders')")
    assert trace.counts.range_requests == 0
    for name in (each for each in names if not each.startswith("encrypted")):
        quoted = name.replace('"', '""')
        [count] = rows(con, f'SELECT count(*) FROM topics."{quoted}"')  # noqa: S608
        literal = name.replace("'", "''")
        assert [count] == rows(con, f"SELECT count(*) FROM read_pulsar('{literal}')")  # noqa: S608
    con.execute("USE topics")
    assert rows(con, "SHOW TABLES") == names
    assert rows(con, "SELECT count(*) FROM partitioned") == [200]


def test_filters_reach_the_topic(con: duckdb.DuckDBPyConnection) -> None:
    """A view is as its table function: conditions and columns are pushed down."""
    register_duckdb(con, URL, views="topics", value="raw")
    [(_, plan)] = con.execute(
        'EXPLAIN SELECT __key__ FROM topics."json-orders" WHERE __entry_id__ > 3'
    ).fetchall()

    assert "PYTHON_ARROW_SCAN" in plan
    assert "__entry_id__" in plan
    assert "FILTER" not in plan.upper().replace("FILTERS", "")


def test_columns_are_known_once_used(con: duckdb.DuckDBPyConnection) -> None:
    """Listings have the columns of every topic first, and a topic's own after its first use."""
    schema = str(ORDERS.folder / "schemas-rest.json")
    register_duckdb(con, URL, views="topics", schema=schema)
    columns = (
        "SELECT column_name, data_type FROM information_schema.columns"
        " WHERE table_catalog = 'topics' AND table_name = 'json-orders' ORDER BY ordinal_position"
    )
    before = rows(con, columns)
    con.execute('SELECT count(*) FROM topics."json-orders"').fetchall()
    after = rows(con, columns)

    assert ("__publish_time__", "TIMESTAMP WITH TIME ZONE") in before
    assert set(before) < set(after)
    assert ("status", "VARCHAR") in after
    assert after == [
        (name, type_) for name, type_, *_ in rows(con, 'DESCRIBE topics."json-orders"')
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"columns": ["__key__", "__topic__"]}, ["__key__", "__topic__"]),
        ({"columns": ["status", "__key__"]}, ["__key__"]),
        ({"naming": "pulsar-spark", "columns": ["__key"]}, ["__key"]),
    ],
)
def test_registered_columns_are_listed(
    con: duckdb.DuckDBPyConnection, options: dict[str, Any], expected: list[str]
) -> None:
    """Options of the registration are those of the views."""
    register_duckdb(con, URL, views="topics", **options)
    listed = rows(
        con, "SELECT column_name FROM duckdb_columns() WHERE table_name = 'string' ORDER BY ALL"
    )

    assert listed == sorted(expected)


def test_names(con: duckdb.DuckDBPyConnection) -> None:
    """A topic has its shortest name; without the view are those that differ only in case."""
    names = (
        "orders",
        'it\'s "quoted"',
        "persistent://acme/eu/orders",
        "Case",
        "case",
        "p-partition-0",
        "p-partition-1",
    )
    with memory_bucket(bucket_objects(*names)) as bucket:
        register_duckdb(con, bucket.url, views="all topics", value="raw")

        assert rows(con, 'SHOW TABLES FROM "all topics"') == [
            "acme/eu/orders",
            'it\'s "quoted"',
            "orders",
            "p",
        ]
        values = 'SELECT __value__::VARCHAR FROM "all topics".{}'
        assert rows(con, values.format('"acme/eu/orders"')) == [names[2]]
        assert rows(con, values.format("orders")) == ["orders"]
        assert len(rows(con, values.format('"it\'s ""quoted"""'))) == 1
        assert sorted(rows(con, values.format("p"))) == ["p-partition-0", "p-partition-1"]


def test_a_second_call_updates_the_views(con: duckdb.DuckDBPyConnection) -> None:
    """New topics get a view, deleted ones lose it, and other connections see it all at once."""
    early = bucket_objects("one")
    with memory_bucket(early | bucket_objects("two", first_ledger_id=2)) as bucket:
        register_duckdb(con, bucket.url, views="topics", value="raw")
        other = con.cursor()
        other.execute("USE topics")
        late = bucket_objects("three", first_ledger_id=3)
        bucket.put(late)
        for name in early:
            bucket.delete(name)

        assert rows(other, "SHOW TABLES") == ["one", "two"]
        register_duckdb(con, bucket.url, views="topics", value="raw", columns=["__value__"])
        assert rows(other, "SHOW TABLES") == ["three", "two"]
        assert rows(other, "FROM three") == [b"three"]
        functions = rows(
            con, "SELECT count(*) FROM duckdb_functions() WHERE function_name LIKE 'pulsar%bind%'"
        )
        assert functions == [1]


def test_views_of_the_user_stay(con: duckdb.DuckDBPyConnection) -> None:
    """A second call changes only views of topics, not those that a user made in the database."""
    register_duckdb(con, URL, views="topics", value="raw")
    con.execute("CREATE VIEW topics.mine AS SELECT 1")
    con.execute('CREATE OR REPLACE VIEW topics."json-orders" AS SELECT 3')
    con.execute("CREATE SCHEMA topics.own; CREATE VIEW topics.own.deeper AS SELECT 2")

    register_duckdb(con, URL, views="topics", value="raw")

    own = 'FROM topics.mine, topics.own.deeper, topics."json-orders"'
    assert rows(con, own) == [(1, 2, 3)]


def test_a_failed_update_changes_nothing(
    con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever fails while views are created, the earlier views read their topics."""
    with memory_bucket(bucket_objects("one")) as bucket:
        register_duckdb(con, bucket.url, views="topics", value="raw")
        bucket.put(bucket_objects("two", first_ledger_id=2))
        monkeypatch.setattr(duckdb_views, "macro_sql", lambda *_: "no macro")
        with pytest.raises(duckdb.Error):
            register_duckdb(con, bucket.url, views="topics", value="raw")

        assert rows(con, "SHOW TABLES FROM topics") == ["one"]
        assert rows(con, "SELECT count(*) FROM topics.one") == [1]
        functions = rows(
            con, "SELECT count(*) FROM duckdb_functions() WHERE function_name LIKE 'pulsar%bind%'"
        )
        assert functions == [1]


def test_a_failed_call_takes_no_name(
    con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database exists only with its views, so a later call can create it."""
    with monkeypatch.context() as patch:
        patch.setattr(duckdb_views, "macro_sql", lambda *_: "no macro")
        with pytest.raises(duckdb.Error):
            register_duckdb(con, URL, views="topics", value="raw")

    assert "topics" not in rows(con, "SELECT database_name FROM duckdb_databases()")
    register_duckdb(con, URL, views="topics", value="raw")
    assert rows(con, 'SELECT count(*) FROM topics."json-orders"') == [400]


def test_views_in_a_transaction_are_refused(con: duckdb.DuckDBPyConnection) -> None:
    """Another connection creates them, which does not see the function before the commit."""
    con.execute("BEGIN; CREATE TABLE own AS SELECT 7")
    with pytest.raises(OptionError, match="commit it first"):
        register_duckdb(con, URL, views="topics", value="raw")
    con.execute("COMMIT")

    register_duckdb(con, URL, views="topics", value="raw")
    assert rows(con, 'SELECT count(*) FROM topics."json-orders", own') == [400]


def test_each_bucket_has_its_own(con: duckdb.DuckDBPyConnection) -> None:
    """Views keep the bucket and the options that they were registered with."""
    with memory_bucket(bucket_objects("a")) as one, memory_bucket(bucket_objects("b")) as other:
        register_duckdb(con, one.url, views="first", value="raw", columns=["__value__"])
        register_duckdb(con, other.url, views="second", value="raw", columns=["__value__"])
        register_duckdb(con, "memory://nowhere")

        assert rows(con, "FROM first.a") == [b"a"]
        assert rows(con, "FROM first.a, second.b") == [(b"a", b"b")]
        with pytest.raises(duckdb.Error, match="nowhere"):
            con.execute("FROM read_pulsar('a')")


@pytest.mark.parametrize("read_only", [False, True])
def test_databases_in_files(tmp_path: Path, *, read_only: bool) -> None:
    """Nothing is written to the file, which may be opened for reading only."""
    path = tmp_path / "own.duckdb"
    with duckdb.connect(path) as con:
        con.execute("CREATE TABLE own AS SELECT 400 AS messages")
    before = path.read_bytes()
    with duckdb.connect(path, read_only=read_only) as con:
        register_duckdb(con, URL, views="topics", value="raw")
        for each in (con, con.cursor()):
            counted = '(SELECT count(*) FROM topics."json-orders")'
            assert rows(each, f"SELECT messages = {counted} FROM own") == [True]  # noqa: S608

    assert path.read_bytes() == before


def test_names_that_are_taken(con: duckdb.DuckDBPyConnection) -> None:
    """A database of the user's own is never changed; an error says so before anything is made."""
    con.execute("ATTACH ':memory:' AS mine; CREATE VIEW mine.own AS SELECT 1; CREATE SCHEMA theirs")
    register_duckdb(con, URL)
    con.execute("USE mine")
    register_duckdb(con, URL)
    for name in ("mine", "MINE", "theirs", "main", "memory", "temp", "system"):
        with pytest.raises(OptionError, match="another database or schema"):
            register_duckdb(con, URL, views=name)
    for wrong in ("", 7):
        with pytest.raises(OptionError, match="views must be a name"):
            register_duckdb(con, URL, views=wrong)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="no url"):
        register_duckdb(con, views="topics")

    assert rows(con, "SELECT count(*) FROM read_pulsar('json-orders')") == [400]
    assert rows(con, "SELECT view_name FROM duckdb_views() WHERE database_name = 'mine'") == ["own"]
    assert "topics" not in rows(con, "SELECT database_name FROM duckdb_databases()")


def test_the_default_connection() -> None:
    """The module `duckdb` is taken as its default connection."""
    try:
        register_duckdb(duckdb, URL, views="topics_of_default", value="raw")
        count = 'SELECT count(*) FROM topics_of_default."json-orders"'
        assert rows(duckdb.default_connection(), count) == [400]
    finally:
        duckdb.execute("DETACH DATABASE IF EXISTS topics_of_default")
