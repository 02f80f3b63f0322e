"""The recipe for Dagster, in a process of the test, and by Dagster's own command."""

from __future__ import annotations

import runpy
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.schedulers.conftest import TOPIC, Workplace, positions_of

if TYPE_CHECKING:
    from dagster import ExecuteInProcessResult

pytestmark = pytest.mark.schedulers

FILE = "nightly_copy.py"
OPEN_TOPIC = "transactions-open"
FIRST_OPEN = (77, 9)
"""Ledger and entry of the first message of that topic's open transaction."""


@pytest.fixture(autouse=True)
def _no_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_DISABLE_TELEMETRY", "yes")
    monkeypatch.delenv("DAGSTER_HOME", raising=False)


def run_job(workplace: Workplace) -> ExecuteInProcessResult:
    """Run the job that the schedule starts."""
    definitions = runpy.run_path(str(workplace.files[FILE]))["defs"]
    job = definitions.resolve_job_def(definitions.resolve_schedule_def("nightly_copy").job_name)
    return job.execute_in_process(raise_on_error=False)


def metadata(result: ExecuteInProcessResult) -> dict[str, Any]:
    """What the asset reports of its materialization."""
    assert result.success
    [event] = result.asset_materializations_for_node("orders")
    return {name: event.metadata[name].value for name in ("rows", "lag_bytes")}


def test_job_copies_what_is_new(workplace: Workplace) -> None:
    """The job of the schedule makes the table, and its next run finds nothing new."""
    assert metadata(run_job(workplace)) == {"rows": 400, "lag_bytes": 0}
    assert metadata(run_job(workplace)) == {"rows": 0, "lag_bytes": 0}
    assert workplace.positions("lake/orders") == positions_of("json-orders")


# The read that the table is compared with leaves out the open transaction.
@pytest.mark.filterwarnings("ignore::arrow_io.errors.IncompleteReadWarning")
def test_lag_is_reported(workplace: Workplace, capfd: pytest.CaptureFixture[str]) -> None:
    """A topic with an open transaction is copied up to it; the rest is the lag, with the reason."""
    workplace.replace(FILE, ("json-orders", OPEN_TOPIC))

    values = metadata(run_job(workplace))

    expected = [each for each in positions_of(OPEN_TOPIC) if each[:2] < FIRST_OPEN]
    assert workplace.positions("lake/orders") == expected
    assert values == {"rows": len(expected), "lag_bytes": values["lag_bytes"]}
    assert values["lag_bytes"] > 0
    assert "nothing is read from ledger 77, entry 9 on" in capfd.readouterr().err


def test_missing_topic_is_not_retried(workplace: Workplace) -> None:
    """The job fails at once."""
    workplace.replace(FILE, ("json-orders", "no-such-topic"))

    result = run_job(workplace)

    assert not result.success
    [failure] = [each for each in result.all_events if each.event_type_value == "STEP_FAILURE"]
    assert "no-such-topic" in str(failure.step_failure_data.error_display_string)
    assert not any(each.is_step_up_for_retry for each in result.all_events)


def test_failed_run_is_retried(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster's retry resumes in the middle of the table, and adds each row once."""
    monkeypatch.syspath_prepend(str(workplace.folder))
    monkeypatch.setenv("STOPPED_BY", "error")
    workplace.let_stop(FILE)
    workplace.replace(FILE, ("delay=600", "delay=0"), ("json-orders", TOPIC))

    values = metadata(result := run_job(workplace))

    assert sum(each.is_step_restarted for each in result.all_events) == 1
    assert 0 < values["rows"] < len(positions_of(TOPIC))
    assert workplace.positions("lake/orders") == positions_of(TOPIC)


def test_killed_worker_is_retried(workplace: Workplace) -> None:
    """Dagster's command retries a step whose process was killed, and each row is there once."""
    workplace.let_stop(FILE)
    workplace.replace(FILE, ("delay=600", "delay=0"), ("json-orders", TOPIC))
    command = [sys.executable, "-m", "dagster", "asset", "materialize", "--select", "orders"]

    result = subprocess.run(
        [*command, "-f", FILE],
        cwd=workplace.folder,
        env=workplace.environment(STOPPED_BY="kill"),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )

    assert (workplace.folder / "stopped").exists()
    assert "STEP_UP_FOR_RETRY" in result.stderr
    assert result.returncode == 0, result.stderr
    assert workplace.positions("lake/orders") == positions_of(TOPIC)
