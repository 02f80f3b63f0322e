"""`pulsar_topics`, `pulsar_ledgers` and their like: a bucket, and what is known of it, in SQL."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pytest

from arrow_io.errors import OptionError
from arrow_io.storage.trace import RequestTrace
from connector import open_catalog, register_duckdb
from connector.catalog.tables import TABLES, zones_table
from tests.support.admin_server import running_admin_server
from tests.support.golden import GOLDEN, golden_topic, golden_topics
from tests.support.owned_bucket import SMALL, OwnedBucket
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHUNKED: Final = golden_topic("small-chunked")
URL: Final = str(GOLDEN / SMALL / "objects")
METADATA: Final = str(GOLDEN / SMALL)


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that reads the small golden set, with its metadata."""
    with duckdb.connect() as opened:
        opened.execute("set TimeZone = 'UTC'")
        register_duckdb(opened, url=URL, metadata=METADATA)
        yield opened


def all_of(con: duckdb.DuckDBPyConnection, sql: str, parameters: object = None) -> list[Any]:
    """The rows of a statement."""
    return con.execute(sql, parameters).fetchall()


@pytest.mark.parametrize("has_metadata", [True, False])
@pytest.mark.parametrize("name", TABLES)
def test_tables_are_those_of_python(name: str, *, has_metadata: bool) -> None:
    """All columns, all rows, of the same types."""
    metadata = METADATA if has_metadata else None
    expected = TABLES[name](open_catalog(URL, metadata=metadata), None)
    with duckdb.connect() as con:
        register_duckdb(con, url=URL, metadata=metadata)

        table = con.sql(f"from pulsar_{name}()").to_arrow_table()

    assert table.column_names == expected.column_names
    assert table.cast(expected.schema).equals(expected)


@pytest.mark.parametrize("name", TABLES)
def test_topics_are_chosen(con: duckdb.DuckDBPyConnection, name: str) -> None:
    """By a name, a glob, a list, or a parameter."""
    sql = f"select distinct topic from pulsar_{name}"  # noqa: S608
    prefix = "persistent://public/default/small-"

    assert all_of(con, f"{sql}(topic := 'small-chunked')") == [(f"{prefix}chunked",)]
    assert all_of(con, f"{sql}('small-chunked')") == [(f"{prefix}chunked",)]
    assert all_of(con, f"{sql}(topic := $1)", ["small-enc*"]) == [(f"{prefix}encrypted",)]
    both = all_of(con, f"{sql}(topic := ['small-chunked', 'small-encrypted']) order by all")
    assert both == [(f"{prefix}chunked",), (f"{prefix}encrypted",)]


@pytest.mark.parametrize("parameter", ["", "$1"])
def test_prepared_statements(tmp_path: Path, parameter: str) -> None:
    """Each execution sees the bucket as it is then, whether the statement has parameters or not."""
    bucket = OwnedBucket.copied(tmp_path)
    with duckdb.connect() as con:
        register_duckdb(con, url=str(bucket.objects))
        con.execute(
            "prepare counted as select count(*) from pulsar_objects()"  # noqa: S608
            f" where bytes > {parameter or 0}"
        )
        run = f"execute counted({0 if parameter else ''})".replace("()", "")
        assert all_of(con, run) == [(58,)]
        bucket.copy_ledger(CHUNKED.ledgers[0])
        assert all_of(con, run) == [(60,)]
        bucket.delete(*(path.name for path in bucket.objects.iterdir()))
        assert all_of(con, run) == [(0,)]


def test_options_of_a_statement(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """A statement may say where to look, and by which metadata."""
    bucket = OwnedBucket.copied(tmp_path)
    ledger = CHUNKED.ledgers[3]
    bucket.delete(ledger.data_object.name, ledger.index_object.name)
    sql = "select state from pulsar_ledgers(topic := 'small-chunked', url := $url"
    given = {"url": str(bucket.objects)}
    snapshot = tmp_path / "catalog.json.gz"
    bucket.catalog().save(snapshot)

    assert ("missing",) in all_of(con, f"{sql})", given)
    folder = f"{sql}, metadata := {{'{CHUNKED.name}': '{CHUNKED.folder}'}})"
    assert ("missing",) in all_of(con, folder, given)
    saved = all_of(con, f"{sql}, metadata := $saved)", given | {"saved": str(snapshot)})
    assert ("missing",) in saved
    other = tmp_path / "other"
    other.mkdir()
    for path in (ledger.data_object, ledger.index_object):
        (other / path.name).write_bytes(path.read_bytes())
    found = all_of(con, f"{sql}, buckets := {{'goldensmall': '{other}'}})", given)
    assert ("missing",) not in found
    with running_admin_server(SMALL, token="t0ken") as server:
        live = f"{sql}, metadata := $admin, metadata_options := $options)"
        parameters = given | {"admin": server.url, "options": {"token": "t0ken"}}
        assert ("missing",) in all_of(con, live, parameters)


def test_metadata_is_read_for_each_statement() -> None:
    """A topic's twice: among all, and with internalStats. Its index objects once for all."""
    trace, own = RequestTrace(), len(golden_topic("small-chunked").ledgers)
    with running_admin_server(SMALL) as server, duckdb.connect() as con:
        register_duckdb(con, url=URL, metadata=server.url, trace=trace)
        for number in (1, 2):
            all_of(con, "from pulsar_ledgers(topic := 'small-chunked')")
            path = "/admin/v2/persistent/public/default/small-chunked/internal-info"
            assert server.paths.count(path) == 2 * number
            assert (trace.counts.list_requests, trace.counts.index_requests) == (number, own)


def test_catalog_that_is_given_is_not_opened_again() -> None:
    """It is the bucket as it was, until a statement says where else to look."""
    trace = RequestTrace()
    catalog = open_catalog(URL, trace=trace)
    before = trace.counts
    with duckdb.connect() as con:
        register_duckdb(con, url=URL, catalog=catalog)
        assert all_of(con, "select count(*) from pulsar_topics()") == [(7,)]
        assert trace.counts == before
        states = all_of(
            con, "select distinct state from pulsar_ledgers(metadata := $1)", [METADATA]
        )
        assert sorted(states) == [("both",), ("open",)]


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("pulsar_ledgers(topic := 'nothing-like-it')", "topic nothing-like-it: no offloaded topic"),
        ("pulsar_ledgers(topic := 5)", "the topic must be a name, a glob, or a list"),
        ("pulsar_ledgers(topic := [])", "no topic is named"),
        ("pulsar_ledgers(url := 5)", "url must be a path or URL"),
        ("pulsar_ledgers(url := '/no/such/folder')", "pulsar_ledgers: no such folder"),
        ("pulsar_ledgers(metadata := 5)", "not an int"),
        ("pulsar_ledgers(metadata := ['x'])", "not a list"),
        ("pulsar_ledgers(metadata := {'orders': 5})", "not an int"),
        ("pulsar_ledgers(metadata := '/no/such/folder')", "no such folder"),
        ("pulsar_ledgers(metadata := '/no/such/catalog.json.gz')", "no such object"),
        ("pulsar_ledgers(buckets := 5)", "buckets must be a mapping with names as keys"),
        ("pulsar_ledgers(buckets := {'b': 5})", "buckets must be URLs by"),
        ("pulsar_ledgers(metadata_options := 'x')", "metadata_options must be a JSON object"),
        ("pulsar_ledgers(columns := ['x'])", "does not support the supplied arguments"),
        ("pulsar_ledgers", "pulsar_ledgers"),
    ],
)
def test_errors(con: duckdb.DuckDBPyConnection, sql: str, told: str) -> None:
    """What is wrong is told when a statement is bound."""
    with pytest.raises(duckdb.Error) as caught:
        con.execute(f"select * from {sql}")  # noqa: S608
    assert told in str(caught.value)


def test_missing_url() -> None:
    """Where to look must be told, here or there."""
    with duckdb.connect() as con:
        register_duckdb(con)
        with pytest.raises(duckdb.Error, match="no url: set it in the statement"):
            con.execute("from pulsar_topics()")
        assert all_of(con, "select count(*) from pulsar_topics(url := $1)", [URL]) == [(7,)]
        with pytest.raises(OptionError, match="no option 'topic'"):
            register_duckdb(con, url=URL, topic="orders")


def test_errors_show_no_secret(con: duckdb.DuckDBPyConnection) -> None:
    """A secret that is a parameter is not told."""
    parameters = {"m": "http://127.0.0.1:1", "o": {"token": "s3cret", "timeout_s": "soon"}}
    with pytest.raises(duckdb.Error) as caught:
        con.execute("from pulsar_topics(metadata := $m, metadata_options := $o)", parameters)
    assert "timeout_s" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_nothing_stays_behind(con: duckdb.DuckDBPyConnection) -> None:
    """No variable of the caller's, and no table once its result is gone."""
    names = set(vars(sys.modules[__name__]))
    result = con.execute("from pulsar_ledgers()")
    assert len(result.fetchall()) == 38
    assert set(vars(sys.modules[__name__])) == names
    tables = [
        weakref.ref(each) for each in gc.get_objects() if type(each).__name__ == "BoundListing"
    ]
    con.execute("select 1").fetchall()
    del result
    # DuckDB drops readers in threads of its own.
    wait_until(lambda: gc.collect() >= 0 and all(each() is None for each in tables))


# Zones


@pytest.fixture
def analyzed(tmp_path: Path) -> str:
    """A folder with statistics of the small golden set."""
    open_catalog(URL).analyze(tmp_path / "statistics")
    return str(tmp_path / "statistics")


def test_zones_are_those_of_python(con: duckdb.DuckDBPyConnection, analyzed: str) -> None:
    """All of them, or those of some topics, by the statistics of the statement or registered."""
    catalog = open_catalog(URL, metadata=METADATA)
    sql = "from pulsar_zones"

    for given, topic in (("", None), ("'small-enc*', ", "small-enc*")):
        expected = zones_table(catalog, analyzed, topic)
        table = con.sql(f"{sql}({given}statistics := $1)", params=[analyzed]).to_arrow_table()
        assert table.cast(expected.schema).equals(expected)
        assert expected.num_rows
    register_duckdb(con, url=URL, statistics=analyzed)
    [(topics, is_current)] = all_of(
        con, "select count(distinct topic), bool_and(is_current) from pulsar_zones()"
    )
    assert (topics, is_current) == (len(set(expected_topics())), True)


def expected_topics() -> list[str]:
    """The topics of the small golden set that have ledgers, partitions each by itself."""
    return [each.name for each in golden_topics() if each.set_name == SMALL and each.ledgers]


def test_zones_need_statistics(con: duckdb.DuckDBPyConnection) -> None:
    """Whoever names none is told where they can be named."""
    with pytest.raises(duckdb.Error, match="no statistics: set them in the statement"):
        con.execute("from pulsar_zones()")


@pytest.mark.filterwarnings("ignore::arrow_io.errors.UnusedStatisticsWarning")
def test_zones_are_looked_up_for_each_execution(tmp_path: Path) -> None:
    """A prepared statement sees what was analyzed, and replaced, since."""
    bucket = OwnedBucket.copied(tmp_path)
    folder = str(tmp_path / "statistics")
    (tmp_path / "statistics").mkdir()
    with duckdb.connect() as con:
        register_duckdb(con, url=str(bucket.objects), statistics=folder)
        con.execute(
            "prepare known as select is_current, count(*) from pulsar_zones('small-chunked')"
            " group by all order by all"
        )
        assert all_of(con, "execute known") == []
        open_catalog(str(bucket.objects)).analyze(folder, "small-chunked")
        count = len(CHUNKED.ledgers)
        assert all_of(con, "execute known") == [(True, count)]
        bucket.copy_ledger(CHUNKED.ledgers[0])
        bucket.delete(CHUNKED.ledgers[0].data_object.name, CHUNKED.ledgers[0].index_object.name)
        assert all_of(con, "execute known") == [(False, 1), (True, count - 1)]
