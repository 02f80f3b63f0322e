"""A place of statistics that does not exist: no door that reads by it is silent of that."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import duckdb
import pytest
from typer.main import get_command

from connector import (
    OptionError,
    UnusedStatisticsWarning,
    copy_topics,
    open_catalog,
    open_topic,
    register_duckdb,
)
from connector.cli.program import load_command
from spark_ds.datasource import PulsarOffloadDataSource
from tests.support.command_line import APP, URL, USAGE, run

if TYPE_CHECKING:
    from collections.abc import Callable

_MISSING: Final = "/not/there"
_TOPIC: Final = "json-orders"
_OF_COMMANDS: Final[dict[str, list[str]]] = {
    "save": ["catalog.json.gz"],
    "head": [_TOPIC, "--value", "raw"],
    "tail": [_TOPIC, "--value", "raw"],
    "get": [_TOPIC, "49:5", "--value", "raw"],
    "plan": [_TOPIC],
    "query": ['SELECT count(*) FROM "json-orders"', "--value", "raw"],
    "cost": [_TOPIC],
    "report": [_TOPIC, "--output", "report.html"],
    "copy": [_TOPIC, "lake", "--format", "parquet", "--value", "raw"],
    "replay": [_TOPIC, "--dry-run"],
}
"""Arguments behind the URL of each command that reads by statistics."""
_WRITERS: Final = {"analyze", "audit"}
"""Commands that make the folder."""


def _query(sql: str) -> Callable[[str], object]:
    def run_query(place: str) -> object:
        with duckdb.connect() as con:
            register_duckdb(con, URL, value="raw")
            return con.execute(sql.format(place)).fetchall()

    return run_query


def _partitions(place: str) -> object:
    source = PulsarOffloadDataSource(
        {"url": URL, "topic": _TOPIC, "value": "raw", "statistics": place}
    )
    return source.reader(source.schema()).partitions()


_CALLS: Final[dict[str, Callable[[str], object]]] = {
    "open_topic": lambda place: open_topic(URL, _TOPIC, value="raw", statistics=place),
    "save": lambda place: open_catalog(URL).save("catalog.json.gz", statistics=place),
    "copy_topics": lambda place: copy_topics(
        URL, _TOPIC, "lake", format="parquet", value="raw", statistics=place
    ),
    "read_pulsar": _query(f"FROM read_pulsar('{_TOPIC}', statistics := '{{}}')"),
    "pulsar_plan": _query(f"FROM pulsar_plan('{_TOPIC}', statistics := '{{}}')"),
    "pulsar_zones": _query("FROM pulsar_zones(statistics := '{}')"),
    "spark": _partitions,
}
"""Doors in Python that take a place of statistics."""


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what commands write be in a folder of the test's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()


def test_every_command_with_the_option_is_tried() -> None:
    """A new command that takes `--statistics` is one of those that are tried here."""
    commands = {name: load_command(each) for name, each in get_command(APP).commands.items()}  # type: ignore[attr-defined]
    takers = {
        name
        for name, each in commands.items()
        if any("--statistics" in parameter.opts for parameter in each.params)
    }

    assert takers == _OF_COMMANDS.keys() | _WRITERS


@pytest.mark.parametrize("command", _OF_COMMANDS)
def test_commands_refuse_a_missing_folder(command: str) -> None:
    """A folder that does not exist is an error that names it; an empty one is a note."""
    arguments = [command, URL, *_OF_COMMANDS[command], "--statistics"]

    missing = run(*arguments, _MISSING, ends=USAGE)
    empty = run(*arguments, "empty")

    expected = f"statistics: there is no folder {_MISSING}: create it with analyze\n"
    assert expected in missing.stderr
    assert missing.stdout == ""
    assert "note: there are no statistics in " in empty.stderr


@pytest.mark.parametrize("door", _CALLS)
def test_calls_refuse_a_missing_folder(door: str) -> None:
    """As commands do, whatever the door; an empty folder is a warning."""
    with pytest.raises((OptionError, duckdb.Error), match=f"there is no folder {_MISSING}"):
        _CALLS[door](_MISSING)
    assert not Path("catalog.json.gz").exists()
    with pytest.warns(UnusedStatisticsWarning, match="there are no statistics in"):
        _CALLS[door]("empty")


def test_a_read_tells_that_a_remembered_folder_is_gone() -> None:
    """A snapshot whose statistics were deleted gives the same rows, and a warning."""
    catalog = open_catalog(URL)
    catalog.analyze("statistics", _TOPIC)
    catalog.save("catalog.json.gz", statistics="statistics")
    shutil.rmtree("statistics")

    with pytest.warns(UnusedStatisticsWarning, match="which the catalog snapshot names"):
        topic = open_topic(URL, _TOPIC, metadata="catalog.json.gz", value="raw")
    assert topic.count_rows() == open_topic(URL, _TOPIC, value="raw").count_rows()
    told = run("head", URL, _TOPIC, "--metadata", "catalog.json.gz", "--value", "raw").stderr
    assert "/statistics, which the catalog snapshot names for statistics\n" in told
