"""Which libraries are imported by what needs few of them."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final

import pytest
from typer.main import get_command

import connector
from arrow_io.columns import ALL_COLUMNS
from arrow_io.core.builds import in_use
from arrow_io.core.option_values import BATCH_BYTES, BATCH_ROWS
from arrow_io.messages.column_names import COLUMN_NAMES
from arrow_io.messages.message_reader import BatchLimits
from connector.catalog.tables import TABLES
from connector.cli.program import COMMANDS, app
from connector.engines.duckdb_macros import LISTINGS
from tests.support.golden import GOLDEN

if TYPE_CHECKING:
    from collections.abc import Iterable

_SLOW: Final = frozenset(
    {
        "Cython",
        "asyncio",
        "concurrent.futures",
        "crc32c",
        "duckdb",
        "fsspec",
        "google.protobuf",
        "http.client",
        "numpy",
        "pandas",
        "polars",
        "pyarrow",
        "pyarrow.compute",
        "pyarrow.dataset",
        "pyarrow.parquet",
        "rich.console",
        "ssl",
        "zstandard",
    }
)
"""Modules that take long to import."""

_NOT_READ_WITH: Final = frozenset({"Cython", "duckdb", "pandas", "polars"})
"""Of these, what the shell reads a topic without."""

_COMMAND: Final = "import sys\nfrom connector.cli import main\nsys.argv[1:] = {!r}\nmain()"
_HEAD: Final = ["head", str(GOLDEN / "pulsar-4.0.7-small" / "objects"), "small-chunked"]
_REGISTRATION: Final = (
    "import duckdb, connector\nconnector.register_duckdb(duckdb.connect(), 's3://bucket')"
)


def _imported(code: str) -> set[str]:
    """The modules that a process has imported when it ends."""
    told = (
        "import atexit, json, sys\n"
        "atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", told + code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(ended.stderr))


@pytest.mark.parametrize(
    ("code", "needed"),
    [
        pytest.param("import connector", (), id="package"),
        pytest.param(_COMMAND.format(["--version"]), (), id="--version"),
        pytest.param(_COMMAND.format(["--help"]), (), id="--help"),
        # DuckDB imports NumPy when it is given a function.
        pytest.param(_REGISTRATION, ("duckdb", "numpy"), id="register_duckdb"),
        # Neither pandas, which Arrow would import, nor the sources of the core.
        pytest.param(
            _COMMAND.format([*_HEAD, "-n1", "--columns", "__key__"]),
            _SLOW - _NOT_READ_WITH,
            id="head",
            marks=pytest.mark.skipif(not in_use.is_compiled, reason="the sources import Cython"),
        ),
    ],
)
def test_what_needs_few_libraries_imports_no_others(code: str, needed: Iterable[str]) -> None:
    """Importing them takes longer than what is done."""
    assert sorted(_imported(code) & _SLOW) == sorted(needed)


def test_public_names_are_found_when_they_are_used() -> None:
    """Each name that the package lists can be imported, and is listed."""
    for name in connector.__all__:
        assert getattr(connector, name).__name__ == name
    assert set(connector.__all__) <= set(dir(connector))


@pytest.mark.parametrize("name", COMMANDS)
def test_command_is_listed_with_the_summary_of_its_help(name: str) -> None:
    """The list of commands is printed without the modules that have them."""
    module, summary = COMMANDS[name]
    import_module(f"connector.cli.{module}")

    group = get_command(app)

    help_ = inspect.cleandoc(group.commands[name].help or "")  # type: ignore[attr-defined]
    assert help_.partition("\n\n")[0].replace("\n", " ") == summary


def test_names_and_sizes_are_those_of_what_is_not_imported() -> None:
    """What options name is the same in the modules that need Arrow."""
    assert tuple(each.name for each in ALL_COLUMNS) == COLUMN_NAMES
    limits = BatchLimits()
    assert (limits.max_rows, limits.max_bytes) == (BATCH_ROWS, BATCH_BYTES)
    assert {f"pulsar_{name}" for name in TABLES} == set(LISTINGS)
