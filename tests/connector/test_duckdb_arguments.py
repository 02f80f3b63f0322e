"""How statements name arguments of the table functions in DuckDB: by `:=`, `=` and variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import duckdb
import pytest

from arrow_io.errors import OptionError
from connector import register_duckdb
from connector.engines import duckdb_macros
from tests.support.golden import golden_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def one(con: duckdb.DuckDBPyConnection, sql: str, parameters: object = None) -> Any:  # noqa: ANN401
    """The only value of the only row."""
    [(value,)] = con.execute(sql, parameters).fetchall()
    return value


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments of each call, which ends after they are read."""
    calls: list[dict[str, Any]] = []

    def spy(text: str) -> duckdb_macros.Call:
        calls.append(duckdb_macros.read_call(text).arguments)
        message = "that is all"
        raise OptionError(message)

    monkeypatch.setattr("connector.engines.duckdb_functions.read_call", spy)
    return calls


def arguments_of(
    con: duckdb.DuckDBPyConnection,
    passed: list[dict[str, Any]],
    call: str,
    parameters: object = None,
) -> dict[str, Any] | str:
    """What a call of a table function passes, or the error of that."""
    passed.clear()
    with pytest.raises(duckdb.InvalidInputException) as caught:
        con.execute(f"from {call}", parameters)
    return passed[0] if passed else str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        "'2026-11-21'",
        "'it''s'",
        "timestamp '2026-11-21'",
        "timestamptz '2026-11-21'",
        "timestamp '2026-11-21' - interval '1 ms'",
        "date '2026-11-21'",
        "7",
        "1 << 16",
        "1.5",
        "true",
        "['a', 'b']",
        "[49, 3, 1]",
        "(49, 3)",
        "map {'a': 'b'}",
        "raw",
        "upper('a')",
        "getvariable('mine')",
        "?",
        "null",
    ],
)
def test_equals_sign_passes_a_value(
    con: duckdb.DuckDBPyConnection, passed: list[dict[str, Any]], value: str
) -> None:
    """`name = value` passes what `name := value` does."""
    con.execute("set TimeZone = 'America/New_York'; set variable mine = 'yes'")
    # Of the options, only flags may be BOOLEANs by their names.
    name = "verify_checksums" if value == "true" else "start"
    bound = [1] if value == "?" else []
    expected = arguments_of(con, passed, f"read_pulsar('t', {name} := {value})", bound)

    assert isinstance(expected, dict)
    assert arguments_of(con, passed, f"read_pulsar('t', {name} = {value})", bound) == expected


@pytest.mark.parametrize("function", ["read_pulsar", "pulsar_plan", "pulsar_topics"])
def test_equals_sign_names_any_argument(
    con: duckdb.DuckDBPyConnection, passed: list[dict[str, Any]], function: str
) -> None:
    """Each parameter can be named, and each can be where the comparison arrives."""
    parameters = one(
        con,
        "select parameters from duckdb_functions()"
        " where function_name = ? and database_name = 'temp'",
        [function],
    )
    for position, name in enumerate(parameters):
        nulls = ["null"] * position
        arguments = ", ".join([*nulls, f"\"{name}\" = 'x'"])

        assert arguments_of(con, passed, f"{function}({arguments})") == {name: "x"}


def test_equals_signs_in_one_call(
    con: duckdb.DuckDBPyConnection, passed: list[dict[str, Any]]
) -> None:
    """Several may be in a call, before those that `:=` names; a flag may be among them."""
    assert arguments_of(
        con,
        passed,
        "read_pulsar('json-orders', start = [49, 5], verify_checksums = false, value := 'raw',"
        " columns => ['__key__'], url := 'there')",
    ) == {
        "topic": "json-orders",
        "start": [49, 5],
        "verify_checksums": False,
        "value": "raw",
        "columns": ["__key__"],
        "url": "there",
    }
    assert arguments_of(con, passed, "pulsar_topics(topic = 'a*')") == {"topic": "a*"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("since = 5", "read_pulsar has no argument since"),
        ("start > '5'", "write start := … for this value"),
        ("start = {'ledger': 49, 'entry': 5}", "write start := … for this value: .*no STRUCT"),
        ("start = f(5)", "write start := … for this value"),
        ("start = '49:5', start = '49:6'", "read_pulsar has the argument start twice"),
        (
            "true",
            "lake_options of read_pulsar cannot be a BOOLEAN: name an argument as in start :=",
        ),
        ("url := 'x', start = '49:5'", "positional argument following named"),
    ],
)
def test_errors_of_equals_signs(
    con: duckdb.DuckDBPyConnection, arguments: str, message: str
) -> None:
    """A value that only the statement's connection can evaluate is an error with advice."""
    con.create_function("f", lambda number: number, ["BIGINT"], "BIGINT")
    with pytest.raises(duckdb.Error, match=message):
        con.execute(f"from read_pulsar('json-orders', {arguments})")


def test_views_with_equals_signs(con: duckdb.DuckDBPyConnection) -> None:
    """A stored view evaluates them anew, and so does a prepared statement."""
    con.execute("create view since as from read_pulsar('json-orders', start = '49:5')")
    con.execute("prepare p as select count(*) from read_pulsar('json-orders', start = $1)")

    assert one(con, "select count(*) from since") == 150
    assert one(con, "execute p('49:6')") == 100
    assert one(con, "execute p('49:5')") == 150


def test_variables_are_defaults(
    con: duckdb.DuckDBPyConnection, passed: list[dict[str, Any]]
) -> None:
    """SQL variables set options of every table function, unless a statement sets them."""
    con.execute("set variable pulsar_start = [49, 5]")
    con.execute("set variable pulsar_end = timestamp '2026-11-22'")
    con.execute("set variable pulsar_storage_options = {'key': 'k'}")
    con.execute("set variable pulsar_verify_checksums = false")
    con.execute("set variable pulsar_topic = 'nobody'")
    place = {"storage_options": {"key": "k"}}
    both = {"topic": "a", "start": [49, 5], "end": "2026-11-22 00:00:00", "verify_checksums": False}

    assert arguments_of(con, passed, "read_pulsar('a')") == both | place
    assert arguments_of(con, passed, "read_pulsar('a', start := null)") == both | place
    assert arguments_of(con, passed, "read_pulsar('a', until = 'c', start := 'b')") == {
        **{name: value for name, value in both.items() if name != "end"},
        **place,
        "start": "b",
        "until": "c",
    }
    assert arguments_of(con, passed, "pulsar_topics()") == place
    con.execute("reset variable pulsar_start")
    assert arguments_of(con, passed, "pulsar_plan('a')") == {
        name: value for name, value in (both | place).items() if name != "start"
    }


def test_variables_name_the_place(con: duckdb.DuckDBPyConnection) -> None:
    """A script of SQL alone may set the URL; what was registered with another host is not sent."""
    register_duckdb(con, "s3://bucket", storage_options={"secret": SECRET})
    con.execute(f"set variable pulsar_url = '{URL}'")

    assert one(con, COUNT) == ORDERS.message_count
    con.execute("set variable pulsar_batch_rows = 0")
    with pytest.raises(duckdb.InvalidInputException, match="batch_rows must be at least 1, not 0"):
        con.execute(COUNT)
