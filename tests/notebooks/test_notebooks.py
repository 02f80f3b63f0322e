"""The recipes for SQLAlchemy, JupySQL and marimo, run by these libraries."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.golden import GOLDEN
from tests.support.snippets import snippets_of, write_files

pytestmark = pytest.mark.notebooks

PAGE: Final = Path(__file__).parents[2] / "docs" / "recipes" / "notebooks.md"
TEXT: Final = PAGE.read_text("utf-8")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the bucket that the page reads."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLOOMBER_STATS_ENABLED", "false")
    (tmp_path / "golden").symlink_to(GOLDEN / "pulsar-4.0.7")
    return tmp_path


def test_sqlalchemy(capsys: pytest.CaptureFixture[str]) -> None:
    """The block prints what the page shows."""
    [snippet] = [each for each in snippets_of(TEXT) if "create_engine" in each.text]

    namespace: dict[str, object] = {}
    exec(snippet.text, namespace)  # noqa: S102 - it is our own page

    assert capsys.readouterr().out.strip() == snippet.printed


def test_sqlalchemy_on_a_file(folder: Path) -> None:
    """Each connection of a pool to a database file has the function, and pandas reads by it."""
    import pandas as pd

    [snippet] = [each for each in snippets_of(TEXT) if "create_engine" in each.text]
    namespace: dict[str, Any] = {}
    text = snippet.text.replace("duckdb:///:memory:", f"duckdb:///{folder / 'topics.duckdb'}")
    exec(text, namespace)  # noqa: S102 - it is our own page
    engine = namespace["engine"]

    sql = "SELECT count(*) AS n FROM read_pulsar('json-orders')"
    with engine.connect() as first, engine.connect() as second:
        assert [pd.read_sql(sql, each)["n"].item() for each in (first, second)] == [400, 400]


def test_jupysql(folder: Path) -> None:
    """The cells run in a kernel, and the last one shows the table of the page."""
    import nbformat
    from nbclient import NotebookClient

    cells = [each for each in snippets_of(TEXT) if each.skipped and "Jupyter" in each.skipped]
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(each.text) for each in cells]
    )
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()

    shown = [each for each in notebook.cells[-1].outputs if each.output_type == "execute_result"]
    assert [each.data["text/plain"] for each in shown] == [cells[-1].printed]


def test_marimo(folder: Path) -> None:
    """The notebook runs as a program, and its export shows the result."""
    path = write_files(TEXT, folder)["topics.py"]
    command = [sys.executable, "-m", "marimo", "export", "html", path.name, "-o", "topics.html"]
    environment = os.environ | {"PYTHONWARNINGS": "default"}
    subprocess.run(command, check=True, cwd=folder, env=environment, stdin=subprocess.DEVNULL)

    _, names = runpy.run_path(str(path))["app"].run()
    rows = names["by_status"].rows()
    assert dict(rows) == {"CANCELLED": 87, "NEW": 87, "PAID": 86, "SHIPPED": 87, None: 53}
    assert "SHIPPED" in (folder / "topics.html").read_text("utf-8")
