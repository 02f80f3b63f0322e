"""`*` among the columns stands for the default ones, wherever columns are named."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import duckdb
import pytest

from connector import open_topic, register_duckdb
from spark_ds.datasource import PulsarOffloadDataSource
from tests.support.command_line import ORDERS, URL, run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from arrow_io.messages.column_names import Naming

TOPIC: Final = "json-orders"
SCHEMA: Final = str(ORDERS.folder / "schemas-rest.json")
DEFAULT: Final = open_topic(URL, TOPIC, schema=SCHEMA).schema.names
CASES: Final[list[tuple[str | Sequence[str], list[str]]]] = [
    ("*", DEFAULT),
    (["*"], DEFAULT),
    (["*", "__topic__"], [*DEFAULT, "__topic__"]),
    (["__topic__", "*"], ["__topic__", *DEFAULT]),
    (["__key__", "*"], ["__key__", *(name for name in DEFAULT if name != "__key__")]),
    (["*", "__key__", "__topic__", "*"], [*DEFAULT, "__topic__"]),
]


def _python(columns: str | Sequence[str]) -> list[str]:
    names: list[str] = open_topic(URL, TOPIC, schema=SCHEMA, columns=columns).schema.names
    return names


def _dataset(columns: str | Sequence[str]) -> list[str]:
    dataset = open_topic(URL, TOPIC, schema=SCHEMA, columns=["__key__"])
    names: list[str] = dataset.to_table(columns).schema.names
    return names


def _duckdb(columns: str | Sequence[str]) -> list[str]:
    con = duckdb.connect()
    register_duckdb(con, URL, schema=SCHEMA)
    rows = con.execute("from read_pulsar($t, columns := $c)", {"t": TOPIC, "c": columns})
    return [name for name, *_ in rows.description]


def _spark(columns: str | Sequence[str]) -> list[str]:
    options = {"url": URL, "topic": TOPIC, "schema": SCHEMA, "columns": ",".join(columns)}
    source = PulsarOffloadDataSource(options)
    source.reader(source.schema())
    return source.schema().names


def _command_line(columns: str | Sequence[str]) -> list[str]:
    arguments = ["--schema", SCHEMA, "--columns", ",".join(columns), "-n1", "--json"]
    return list(json.loads(run("head", URL, TOPIC, *arguments).stdout))


@pytest.mark.parametrize("names", [_python, _dataset, _duckdb, _spark, _command_line])
@pytest.mark.parametrize(("columns", "expected"), CASES)
def test_an_asterisk_stands_for_the_default_columns(
    names: Callable[[str | Sequence[str]], list[str]],
    columns: str | Sequence[str],
    expected: list[str],
) -> None:
    """Each of them once, where it is first named; columns on request stand beside them."""
    assert names(columns) == expected


@pytest.mark.parametrize("naming", ["pulsar-sql", "pulsar-spark"])
def test_default_columns_have_the_names_that_are_asked_for(naming: Naming) -> None:
    """And bytes among them are told of, as where no column is named."""
    with pytest.warns(UserWarning, match="values stay bytes"):
        default = open_topic(URL, TOPIC, naming=naming).schema
    with pytest.warns(UserWarning, match="values stay bytes"):
        assert open_topic(URL, TOPIC, naming=naming, columns=["*"]).schema == default
