"""The recipe for Airflow, run by `airflow dags test`: `DAG.test` on a database of SQLite."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.schedulers.conftest import TOPIC, Workplace, positions_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.schedulers

FILE = "dags/nightly_copy.py"
TABLES = ("lake/json-orders", "lake/multi-ledger")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of Airflow's configuration and database."""
    return tmp_path_factory.mktemp("airflow")


def airflow(
    workplace: Workplace, home: Path, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command of Airflow, which logs to standard output and standard error."""
    environment = workplace.environment(
        AIRFLOW_HOME=str(home),
        AIRFLOW__CORE__DAGS_FOLDER=str(workplace.folder / "dags"),
        AIRFLOW__CORE__LOAD_EXAMPLES="False",
        AIRFLOW__USAGE_DATA_COLLECTION__ENABLED="False",
        **variables,
    )
    return subprocess.run(
        [sys.executable, "-m", "airflow", *arguments],
        cwd=workplace.folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


@pytest.fixture
def database(workplace: Workplace, home: Path) -> Path:
    """The same folder, with a database."""
    if not (home / "airflow.db").exists():
        result = airflow(workplace, home, "db", "migrate")
        assert result.returncode == 0, result.stdout
    return home


def run_dag(workplace: Workplace, home: Path, **variables: str) -> tuple[int, str]:
    """Run the DAG once; return the code that the process ends with, and the log."""
    result = airflow(workplace, home, "dags", "test", "nightly_copy", **variables)
    return result.returncode, result.stdout


def test_dag_copies_what_is_new(workplace: Workplace, database: Path) -> None:
    """Each topic has a table, and each task logs and returns its rows and its lag."""
    code, log = run_dag(workplace, database)
    assert code == 0, log
    assert [workplace.positions(each) for each in TABLES] == [
        positions_of("json-orders"), positions_of(TOPIC)
    ]  # fmt: skip
    assert "lake/json-orders: 400 rows, lag of 0 bytes" in log
    assert "Returned value was: {'rows': 400, 'lag_bytes': 0}" in log

    code, log = run_dag(workplace, database)
    assert code == 0, log
    assert log.count("Returned value was: {'rows': 0, 'lag_bytes': 0}") == len(TABLES)


def test_missing_topic_is_not_retried(workplace: Workplace, database: Path) -> None:
    """The task fails at once, and so does the run; the other topic is copied."""
    workplace.replace(FILE, ('["json-orders", ', '["no-such-topic", '))

    code, log = run_dag(workplace, database)

    assert code != 0
    assert "AirflowFailException" in log
    assert "up_for_retry" not in log
    assert workplace.positions("lake/multi-ledger") == positions_of(TOPIC)


@pytest.mark.parametrize("stopped_by", ["kill", "error"])
def test_stopped_run_is_repeated(workplace: Workplace, database: Path, stopped_by: str) -> None:
    """A killed process is run again, a failed task is retried: the table has each row once."""
    workplace.let_stop(FILE)
    workplace.replace(FILE, ('["json-orders", "multi-ledger"]', f'["{TOPIC}"]'))
    workplace.replace(FILE, ("minutes=10", "minutes=0"))

    code, log = run_dag(workplace, database, STOPPED_BY=stopped_by)

    assert (workplace.folder / "stopped").exists()
    if stopped_by == "kill":
        assert code < 0
        assert 0 < len(workplace.positions(TABLES[1])) < len(positions_of(TOPIC))
        code, log = run_dag(workplace, database, STOPPED_BY=stopped_by)
    assert code == 0, log
    assert workplace.positions(TABLES[1]) == positions_of(TOPIC)
