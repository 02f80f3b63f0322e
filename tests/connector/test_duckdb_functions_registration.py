"""`register_duckdb`: options, errors, databases and connections, and what is left behind."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pyarrow as pa
import pytest

from arrow_io.errors import OptionError
from arrow_io.storage.trace import RequestTrace
from connector import (
    TopicDataset,
    open_catalog,
    open_topic,
    register_duckdb,
)
from connector.engines import duckdb_sources
from connector.engines.duckdb_binding import Catalogs
from connector.topic import open_request
from tests.support.buckets import golden_objects, memory_bucket
from tests.support.golden import golden_topic
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from connector import Catalog
    from connector.options.topic_request import TopicRequest

ORDERS: Final = golden_topic("json-orders")
URL: Final = str(ORDERS.objects_folder)
COUNT: Final = "select count(*) from read_pulsar('json-orders')"
SECRET: Final = "wJalrXUtnFEMI/K7MDENG"  # noqa: S105 - of no account


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to an in-memory database that knows where the golden topics are."""
    with duckdb.connect() as connection:
        register_duckdb(connection, URL)
        yield connection


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What each topic is opened with, by itself or as an option of its catalog."""
    calls: list[dict[str, Any]] = []

    def spy(url: str, topic: str, request: TopicRequest) -> TopicDataset:
        calls[-1] |= {"topic": topic, "url": url}
        calls[-1] |= {n: v for n, v in request.reading_options().items() if n != "catalog"}
        return open_request(url, topic, request)

    def spy_on_catalogs(_: Catalogs, url: str, request: TopicRequest) -> Catalog:
        calls.append(request.catalog_options())
        return open_catalog(url)

    monkeypatch.setattr("connector.topic.open_request", spy)
    monkeypatch.setattr(Catalogs, "current", spy_on_catalogs)
    return calls


def one(con: duckdb.DuckDBPyConnection, sql: str, parameters: object = None) -> Any:  # noqa: ANN401
    """The only value of the only row."""
    [(value,)] = con.execute(sql, parameters).fetchall()
    return value


def functions(con: duckdb.DuckDBPyConnection) -> list[tuple[str, str]]:
    """The functions that a registration made, with the databases they are in."""
    return con.execute(
        "select database_name, function_name from duckdb_functions()"
        " where function_name = 'read_pulsar' or starts_with(function_name, 'pulsar_offload')"
    ).fetchall()


# Options


@pytest.mark.parametrize(
    ("argument", "given"),
    [
        ("columns := ['__key__', '__topic__']", {"columns": ["__key__", "__topic__"]}),
        ("naming := 'pulsar-spark'", {"naming": "pulsar-spark"}),
        ("value := 'raw'", {"value": "raw"}),
        ("time_unit := 'us'", {"time_unit": "us"}),
        ("transactions := 'all'", {"transactions": "all"}),
        ("on_corruption := 'salvage'", {"on_corruption": "salvage"}),
        ("verify_checksums := false", {"verify_checksums": False}),
        ("range_bytes := 1 << 16", {"range_bytes": 1 << 16}),
        ("batch_rows := 10, batch_bytes := 1000", {"batch_rows": 10, "batch_bytes": 1000}),
        ("start := '49:3', \"end\" := '(49,5)'", {"start": "49:3", "end": "(49,5)"}),
        ("start := [49, 3, 1]", {"start": [49, 3, 1]}),
        ("until := [49, 3, 1]", {"end": [49, 3, 1]}),
        ("start := (49, 3)", {"start": [49, 3]}),
        ("start := {'ledger': 49, 'entry': 3}", {"start": (49, 3, 0)}),
        ("\"end\" := {'batch': 7, 'ledger': 49, 'entry': 3}", {"end": (49, 3, 7)}),
        ("start := {'ledger': 49, 'entry': 3, 'batch': null}", {"start": (49, 3, 0)}),
        (
            "storage_options := {'a': {'b': true, 'c': 1}}",
            {"storage_options": {"a": {"b": True, "c": 1}}},
        ),
        ("storage_options := map {'a': 'b'}", {"storage_options": {"a": "b"}}),
        ("storage_options := '{\"a\": 1.5}'", {"storage_options": {"a": 1.5}}),
        ("storage_options := getvariable('options')", {"storage_options": {"key": "k"}}),
        ("start := null, columns := null", {}),
    ],
)
def test_options_are_those_of_open_topic(
    con: duckdb.DuckDBPyConnection,
    opened: list[dict[str, Any]],
    argument: str,
    given: dict[str, Any],
) -> None:
    """Each option of `open_topic` can be given in SQL, in each of its forms."""
    con.execute("set variable options = {'key': 'k'}")
    con.execute(f"from read_pulsar('json-orders', {argument})").fetchall()

    [arguments] = opened
    assert arguments == {"topic": "json-orders", "url": URL, **given}


@pytest.mark.parametrize(
    ("bound", "kept"),
    [
        ("timestamp '2026-11-21 12:48:25.130'", 1795265305130),
        ("timestamptz '2026-11-21 12:48:25.130+00'", 1795265305130),
        ("timestamptz '2026-11-21 07:48:25.130'", 1795265305130),
        ("'2026-11-21T12:48:25.130Z'", 1795265305130),
        ("timestamp '2026-11-21 12:48:25.131' - interval '1 ms'", 1795265305130),
        ("date '2026-11-21'", 0),
        ("date '2026-11-22'", 1 << 62),
    ],
)
def test_bounds_by_time(con: duckdb.DuckDBPyConnection, bound: str, kept: int) -> None:
    """A timestamp without time zone is UTC; one with a time zone is what DuckDB makes of it."""
    con.execute("set TimeZone = 'America/New_York'")
    times = [row["publish_time"] for row in ORDERS.messages()]
    read = "select count(*) from read_pulsar('json-orders', {} := {})"

    assert one(con, read.format("start", bound)) == sum(time >= kept for time in times)
    assert one(con, read.format('"end"', bound)) == sum(time < kept for time in times)


def test_registered_options_hold_unless_named(
    con: duckdb.DuckDBPyConnection, opened: list[dict[str, Any]]
) -> None:
    """What was given when registering is the default of each statement."""
    register_duckdb(con, URL, storage_options={"key": "k"}, columns=["__key__"], batch_rows=7)
    con.execute("from read_pulsar('json-orders')").fetchall()
    con.execute(
        "from read_pulsar('json-orders', columns := ['__topic__'], storage_options := {'x': 'y'})"
    ).fetchall()

    first, second = opened
    assert first == {
        "topic": "json-orders",
        "url": URL,
        "storage_options": {"key": "k"},
        "columns": ["__key__"],
        "batch_rows": 7,
    }
    assert second == first | {"columns": ["__topic__"], "storage_options": {"x": "y"}}


def test_index_objects_are_read_once() -> None:
    """A further statement lists the bucket again, but reads no index object that it knows."""
    trace = RequestTrace()
    con = duckdb.connect()
    register_duckdb(con, URL, trace=trace)
    con.execute("select count(*) from read_pulsar('json-orders')").fetchall()
    first = trace.counts
    con.execute("select count(*) from read_pulsar('string')").fetchall()

    second = trace.counts
    assert first.index_requests > 0
    assert second.index_requests == first.index_requests
    assert second.list_requests == first.list_requests + 1


def test_every_option_has_its_parameter(con: duckdb.DuckDBPyConnection) -> None:
    """The macro has the options of `open_topic` that SQL can give, and `end` by another name."""
    parameters = one(
        con,
        "select parameters from duckdb_functions()"
        " where function_name = 'read_pulsar' and database_name = 'temp'",
    )
    annotations = set(open_topic.__annotations__) - {"return", "catalog", "trace"}
    annotations.add("until")

    assert set(parameters) == annotations
    assert len(parameters) == len(annotations)


def test_catalog_spares_the_listing() -> None:
    """A catalog given when registering is used, unless a statement names another place."""
    trace = RequestTrace()
    with memory_bucket(golden_objects(ORDERS)) as bucket, duckdb.connect() as con:
        register_duckdb(con, bucket.url, catalog=open_catalog(bucket.url), trace=trace)
        assert one(con, COUNT) == ORDERS.message_count
        assert trace.counts.list_requests == 0
        read = "select count(*) from read_pulsar('string', url := ?)"
        assert one(con, read, [URL]) == golden_topic("string").message_count
        assert trace.counts.list_requests == 1


# Errors


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            "'json-ordrs'",
            "TopicNotFoundError: topic json-ordrs: no offloaded .*'persistent://.*/json-orders'",
        ),
        ("['json-orders', 'x-*']", "TopicNotFoundError: topic json-orders, x-\\*: "),
        ("[]", "OptionError: .*no topic is named"),
        ("null", "OptionError: the topic must be a name.*not None"),
        ("5", "OptionError: the topic must be a name.*not 5"),
        ("'a/b'", "OptionError: topic a/b: .*is not 'name'"),
        ("'json-orders', value := 'x'", "topic json-orders: value must be one of flat"),
        (
            "'json-orders', value := 5",
            "OptionError: .*value must be one of flat, struct, raw, not 5",
        ),
        ("'json-orders', columns := '__key__'", "columns must be a list of names, not '__key__'"),
        ("'json-orders', columns := ['x']", "no column 'x'; the columns are: __entry_id__"),
        ("'json-orders', until := '9:9', \"end\" := '9:9'", 'until and "end" are the same option'),
        ("'json-orders', columns := []", "columns is empty: a table in DuckDB needs a column"),
        ("'json-orders', batch_rows := 0", "batch_rows must be at least 1, not 0"),
        ("'json-orders', batch_rows := true", "batch_rows of read_pulsar cannot be a BOOLEAN"),
        (
            "'json-orders', verify_checksums := 'no'",
            "verify_checksums must be true or false, not 'no'",
        ),
        ("'json-orders', start := {'ledger': 1}", "start must be a datetime.*not {'ledger': 1}"),
        ("'json-orders', start := 'infinity'::timestamp", "start must be .*not 'infinity'"),
        (
            "'json-orders', storage_options := ['x']",
            "storage_options must be a mapping with names as keys, not a list",
        ),
        ("'json-orders', storage_options := 'x'", "storage_options must be a JSON object"),
        ("'json-orders', url := 'nope://x'", "topic json-orders: .*Protocol not known: nope"),
        ("'json-orders', url := '/no/such'", "MissingObjectError: topic json-orders: no such fol"),
    ],
)
def test_errors_of_binding(con: duckdb.DuckDBPyConnection, arguments: str, told: str) -> None:
    """What is wrong with the arguments or the bucket is told by type, topic and reason."""
    with pytest.raises(duckdb.InvalidInputException, match=told):
        con.execute(f"from read_pulsar({arguments})")
    with pytest.raises(duckdb.InvalidInputException, match=told):
        con.sql(f"from read_pulsar({arguments})")

    assert one(con, COUNT) == ORDERS.message_count


def test_unknown_option(con: duckdb.DuckDBPyConnection) -> None:
    """An option that does not exist is refused with a list of those that do."""
    with pytest.raises(duckdb.BinderException, match="verify_checksums := NULL"):
        con.execute("from read_pulsar('json-orders', verify_checksum := false)")
    with pytest.raises(OptionError, match=r"no option 'verify_checksum'; .*verify_checksums"):
        register_duckdb(con, URL, verify_checksum=False)


def test_missing_url(con: duckdb.DuckDBPyConnection) -> None:
    """Without any URL the error says where one can be given."""
    register_duckdb(con)

    with pytest.raises(duckdb.InvalidInputException, match=r"no url: .*register_duckdb"):
        con.execute(COUNT)
    read = "select count(*) from read_pulsar('json-orders', url := ?)"
    assert one(con, read, [URL]) == ORDERS.message_count


def test_errors_of_reading(con: duckdb.DuckDBPyConnection) -> None:
    """An error in the reading thread ends the query, and tells topic, type, reason and place."""
    with pytest.raises(duckdb.InvalidInputException) as caught:
        con.execute("select __value__ from read_pulsar('encrypted')").fetchall()

    text = str(caught.value)
    assert "'topic encrypted (" in text
    assert "EncryptedPayloadError: the payload is encrypted, with the keys: client-rsa" in text
    assert "ledger 72, entry 0" in text
    assert text.count('File "') == 1
    assert one(con, COUNT) == ORDERS.message_count


def test_secrets_are_not_told() -> None:
    """Neither an error nor the catalog of functions shows storage options."""
    with duckdb.connect() as con:
        register_duckdb(con, "memory://nothing-here", storage_options={"secret": SECRET})
        with pytest.raises(duckdb.Error) as registered:
            con.execute(COUNT)
        with pytest.raises(duckdb.Error) as parameter:
            con.execute(
                "from read_pulsar('json-orders', url := 'nope://x', storage_options := ?)",
                [{"secret": SECRET}],
            )
        shown = con.execute("select * from duckdb_functions()").fetchall()

    assert "MissingObjectError" in str(registered.value)
    for text in (str(registered.value), str(parameter.value), str(shown)):
        assert SECRET not in text


def test_function_without_a_caller(
    con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Called by a thread of DuckDB's own, the function says what to call instead of it."""
    monkeypatch.setattr("connector.engines.duckdb_binding.inspect.currentframe", lambda: None)
    [name] = [name for _, name in functions(con) if name.startswith("pulsar_offload_bind")]

    call = {
        "function": "read_pulsar",
        "time_zone": "UTC",
        "reads_files": True,
        "arguments": {"topic": "string"},
        "booleans": {},
        "variables": {},
    }
    with pytest.raises(
        duckdb.InvalidInputException, match="OptionError: call the table function after FROM"
    ):
        con.execute(f"select {name}(?)", [json.dumps(call)]).fetchall()


# Databases and connections


def test_second_registration_replaces_the_first(con: duckdb.DuckDBPyConnection) -> None:
    """Registering again leaves one macro and one function, with the new defaults."""
    before = functions(con)
    register_duckdb(con, str(golden_topic("small-chunked").objects_folder))

    assert one(con, "select count(*) from read_pulsar('small-chunked')") == 14
    with pytest.raises(duckdb.InvalidInputException, match="TopicNotFoundError"):
        con.execute(COUNT)
    after = functions(con)
    assert len(after) == len(before) == 3
    assert len(set(after) - set(before)) == 1


def test_cursors_of_an_in_memory_database(con: duckdb.DuckDBPyConnection) -> None:
    """Cursors have the function; what is registered on one does not change the connection's own."""
    other = str(golden_topic("small-chunked").objects_folder)
    with con.cursor() as cursor:
        assert one(cursor, COUNT) == ORDERS.message_count
        register_duckdb(cursor, other)
        assert one(cursor, "select count(*) from read_pulsar('small-chunked')") == 14

        assert one(con, COUNT) == ORDERS.message_count


def test_function_survives_a_change_of_database(con: duckdb.DuckDBPyConnection) -> None:
    """`USE` of another database does not take the function away."""
    con.execute("attach ':memory:' as other")
    con.execute("use other")

    assert one(con, COUNT) == ORDERS.message_count


def test_database_file(tmp_path: Path) -> None:
    """A view over a topic is kept in a database file, the function and the URL are not."""
    path = tmp_path / "kept.db"
    with duckdb.connect(path) as con:
        register_duckdb(con, URL)
        con.execute("create view orders as from read_pulsar('json-orders')")
        con.execute("create table keys as select __key__ from orders")
        assert one(con, "select count(*) from orders") == ORDERS.message_count

    with duckdb.connect(path) as con:
        assert functions(con) == []
        assert one(con, "select count(*) from keys") == ORDERS.message_count
        with pytest.raises(duckdb.CatalogException, match="read_pulsar does not exist"):
            con.execute("from orders")
        register_duckdb(con, URL)
        assert one(con, "select count(*) from orders") == ORDERS.message_count
        with con.cursor() as cursor:
            register_duckdb(cursor, URL)
            assert one(cursor, "select count(*) from orders") == ORDERS.message_count

    with duckdb.connect(path, read_only=True) as con:
        register_duckdb(con, URL)
        assert one(con, "select count(*) from orders") == ORDERS.message_count
    assert URL.encode() not in path.read_bytes()


def test_connection_is_ready_for_other_calls(tmp_path: Path) -> None:
    """A registration leaves no unfinished result, in whose presence DuckDB refuses other calls."""
    with duckdb.connect(tmp_path / "kept.db") as con:
        register_duckdb(con, URL)
        con.register("counts", pa.table({"count": [ORDERS.message_count]}))

        assert con.execute(f"from counts where count = ({COUNT})").fetchall() != []


def test_transaction(con: duckdb.DuckDBPyConnection) -> None:
    """Topics are read within a transaction too."""
    con.begin()
    con.execute("create table kept as from read_pulsar('string')")
    assert one(con, COUNT) == ORDERS.message_count
    con.rollback()

    assert one(con, COUNT) == ORDERS.message_count


def test_default_connection() -> None:
    """The module `duckdb` stands for its default connection."""
    try:
        register_duckdb(duckdb, URL)
        assert duckdb.execute(COUNT).fetchall() == [(ORDERS.message_count,)]
    finally:
        duckdb.close()


def test_any_caller_of_duckdb(con: duckdb.DuckDBPyConnection) -> None:
    """It does not matter what calls DuckDB: a thread, code without a module name, a class body."""
    namespace: dict[str, Any] = {"con": con, "COUNT": COUNT}
    exec("rows = con.sql(COUNT).fetchall()", namespace)  # noqa: S102

    class Body:
        rows = con.execute(COUNT).fetchall()

    thread = threading.Thread(target=con.execute, args=(COUNT,))
    thread.start()
    thread.join()

    assert namespace["rows"] == Body.rows == con.fetchall() == [(ORDERS.message_count,)]
    assert namespace.keys() == {"con", "COUNT", "rows", "__builtins__"}


# What is left behind


def test_no_variable_stays_behind(con: duckdb.DuckDBPyConnection) -> None:
    """The variable by which DuckDB finds a topic is gone when the statement is bound."""
    before = set(globals())
    one(con, COUNT)
    con.sql("from read_pulsar('json-orders') a, read_pulsar('string') b").fetchall()
    with pytest.raises(duckdb.BinderException):
        con.execute("select nothing from read_pulsar('json-orders')")
    assert set(globals()) == before

    con.execute("set python_enable_replacements = false")
    for _ in range(3):
        with pytest.raises(duckdb.CatalogException, match=r"topic json-orders .* does not exist"):
            con.execute(COUNT)
    assert len(set(globals()) - before) == 1
    con.execute("set python_enable_replacements = true")
    assert one(con, COUNT) == ORDERS.message_count
    assert set(globals()) == before


@pytest.mark.parametrize("is_closed", [False, True])
def test_the_registered_connection_ends_first(
    con: duckdb.DuckDBPyConnection, *, is_closed: bool
) -> None:
    """Other connections to the database get an error: DuckDB would call freed memory."""
    other = con.cursor()
    register_duckdb(other, str(ORDERS.objects_folder), value="raw")
    if is_closed:
        other.close()
    del other
    gc.collect()

    with pytest.raises(duckdb.Error, match="is closed: call register_duckdb"):
        con.cursor().execute(COUNT)
    register_duckdb(con, str(ORDERS.objects_folder), value="raw")
    assert one(con.cursor(), COUNT) == ORDERS.message_count


def test_datasets_do_not_outlive_their_statements(
    con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many statements are run, only what the open ones read is kept."""
    bound: list[weakref.ref[object]] = []
    original = duckdb_sources.BoundTopic.__init__

    def spy(self: Any, *args: Any) -> None:  # noqa: ANN401
        bound.append(weakref.ref(self))
        original(self, *args)

    monkeypatch.setattr(duckdb_sources.BoundTopic, "__init__", spy)
    con.execute("prepare kept as select count(*) from read_pulsar('string')")
    for _ in range(5):
        one(con, COUNT)
        con.sql(COUNT).fetchall()
    con.execute("select 1").fetchall()
    assert len(bound) == 16

    def kept() -> int:
        gc.collect()
        return [each() is not None for each in bound[:16]].count(True)

    # DuckDB drops readers in threads of its own.
    wait_until(lambda: kept() <= 1)
    before = kept()
    assert one(con, "execute kept") == 8
    # From DuckDB 2.0.1 on, a prepared statement keeps none: it is bound when it is run.
    is_bound_anew = len(bound) > 16
    assert before == (0 if is_bound_anew else 1)


def test_connection_is_collected() -> None:
    """Neither a registration nor a statement keeps a connection from being collected."""
    script = (
        "import duckdb, sys\n"
        "from connector import register_duckdb\n"
        "con = duckdb.connect()\n"
        "register_duckdb(con, sys.argv[1], value='raw')\n"
        "print(con.sql(sys.argv[2]).fetchall())\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, URL, COUNT], capture_output=True, text=True, check=True
    )

    assert result.stdout == f"[({ORDERS.message_count},)]\n"
    assert result.stderr == ""


def test_what_is_bound_is_told_before_it_is_read() -> None:
    """`on_bind` gets each topic that a statement names, with its bounds, and nothing is read."""
    trace, bound = RequestTrace(), list[TopicDataset]()
    with duckdb.connect() as con:
        register_duckdb(con, URL, on_bind=bound.append, trace=trace)
        con.execute(
            "explain select * from read_pulsar('json-orders', start := $1)"
            " join read_pulsar('json-orders', start := $1) using (__entry_id__)",
            [f"{ORDERS.ledgers[0].ledger_id}:3"],
        )

    assert [each.scan.plan()[0].ranges[0].first_entry_id for each in bound] == [3, 3]
    assert trace.counts.range_requests == 0


def test_without_duckdbs_own_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where DuckDB has no class for an estimate, all but the estimate is the same."""
    monkeypatch.setitem(sys.modules, "duckdb._sources.pyarrow", None)
    with duckdb.connect() as con:
        register_duckdb(con, URL)
        read = "from read_pulsar('json-orders') where __entry_id__ = 3"
        [(_, plan)] = con.execute(f"explain select __key__ {read}").fetchall()

        assert one(con, f"select count(*) {read}") == sum(
            row["entry"] == 3 for row in ORDERS.messages()
        )
    assert 'Filters: "__entry_id__" = 3' in plan
    assert "~1 row " in plan
