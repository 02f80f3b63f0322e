"""The recipes for cron and systemd, with the programs that they name."""

from __future__ import annotations

import configparser
import json
import shlex
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from connector.cli.app import ExitCode
from tests.schedulers.conftest import STOPPING, TOPIC, Workplace, positions_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.schedulers

SCRIPT = "nightly-copy.sh"
LOCK = "/run/lock/nightly-copy.lock"


@pytest.fixture
def lock(workplace: Workplace) -> Path:
    """The lock of the script, and a `sleep` that only notes that it was called."""
    path = workplace.folder / "copy.lock"
    workplace.replace(SCRIPT, (LOCK, str(path)))
    sleep = workplace.folder / "bin" / "sleep"
    sleep.write_text(f'#!/bin/sh\necho "$1" >>{workplace.folder / "slept"}\n', "utf-8")
    sleep.chmod(0o755)
    return path


def run(workplace: Workplace, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the script."""
    return subprocess.run(
        ["sh", workplace.files[SCRIPT]],
        cwd=workplace.folder,
        env=workplace.environment(**variables),
        capture_output=True,
        text=True,
        check=False,
    )


def slept(workplace: Workplace) -> list[str]:
    """How long the script waited, each time."""
    path = workplace.folder / "slept"
    return path.read_text("utf-8").split() if path.exists() else []


@pytest.mark.usefixtures("lock")
def test_script_copies_what_is_new(workplace: Workplace) -> None:
    """Each run prints the rows of the table; the second one has none to copy, and no lag."""
    results = [run(workplace), run(workplace)]

    assert [each.returncode for each in results] == [0, 0]
    assert [json.loads(each.stdout)["rows"] for each in results] == [400, 0]
    assert workplace.positions("lake/orders") == positions_of("json-orders")
    metrics = (workplace.folder / "nightly-copy.prom").read_text("utf-8").split("\n")
    lags = [each for each in metrics if each.startswith("pulsar_offload_copy_lag_bytes{")]
    assert [each.rpartition(" ")[2] for each in lags] == ["0"]
    assert slept(workplace) == []


def test_script_waits_for_another_run(workplace: Workplace, lock: Path) -> None:
    """It tries three times, then ends with the code that says so, and copies nothing."""
    import fcntl  # Windows, which collects this file too, lacks it

    with lock.open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        result = run(workplace)

    assert result.returncode == ExitCode.TRY_AGAIN
    assert slept(workplace) == ["600"] * 3
    assert not (workplace.folder / "lake").exists()


@pytest.mark.usefixtures("lock")
@pytest.mark.parametrize(
    ("old", "new", "code", "tries"),
    [
        ("json-orders", "no-such-topic", ExitCode.TOPIC_NOT_FOUND, 0),
        ("--json", "--format=orc", ExitCode.USAGE, 0),
        ("golden/objects", "no-such-bucket", ExitCode.STORAGE, 3),
    ],
)
def test_script_fails(workplace: Workplace, old: str, new: str, code: int, tries: int) -> None:
    """It ends with the copy's code, and tries again only if that may help."""
    workplace.replace(SCRIPT, (old, new))

    result = run(workplace)

    assert result.returncode == code
    assert result.stderr != ""
    assert len(slept(workplace)) == tries


@pytest.mark.usefixtures("lock")
def test_killed_script_is_run_again(workplace: Workplace) -> None:
    """The table has some rows after the first run, and each row once after the second."""
    (workplace.folder / "stopping.py").write_text(STOPPING, "utf-8")
    workplace.replace(SCRIPT, ("json-orders", TOPIC), ("--json", "--commit-bytes 1"))
    program = workplace.folder / "bin" / "pulsar-offload"
    text = program.read_text("utf-8")
    start = "-c 'import stopping; from connector.cli import main; main()'"
    program.write_text(text.replace("-m connector.cli", start), "utf-8")

    killed = run(workplace, STOPPED_BY="kill")

    assert killed.returncode == 128 + signal.SIGKILL
    assert 0 < len(workplace.positions("lake/orders")) < len(positions_of(TOPIC))
    assert run(workplace, STOPPED_BY="kill").returncode == 0
    assert workplace.positions("lake/orders") == positions_of(TOPIC)


def test_systemd_accepts_the_units(workplace: Workplace) -> None:
    """`systemd-analyze` finds nothing to complain about."""
    if (analyze := shutil.which("systemd-analyze")) is None:
        pytest.skip("there is no systemd-analyze")
    program = str(workplace.folder / "bin" / "pulsar-offload")
    for name in ("nightly-copy.service", "follow-copy.service"):
        workplace.replace(name, ("/usr/local/bin/pulsar-offload", program))
    names = ("nightly-copy.service", "nightly-copy.timer", "follow-copy.service")
    units = [workplace.files[name] for name in names]

    result = subprocess.run(
        [analyze, "verify", "--man=no", *units], capture_output=True, text=True, check=False
    )

    complaints = [each for each in result.stderr.split("\n") if "-copy" in each]
    assert complaints == []
    assert result.returncode == 0


def test_command_of_the_service(workplace: Workplace) -> None:
    """It copies, and a missing topic is among the codes after which it is not restarted."""
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(workplace.files["nightly-copy.service"], "utf-8")
    service = unit["Service"]
    [program, *arguments] = shlex.split(service["ExecStart"])
    assert program == "/usr/local/bin/pulsar-offload"
    codes = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert codes == {
        ExitCode.USAGE, ExitCode.TOPIC_NOT_FOUND, ExitCode.UNREADABLE, ExitCode.INCOMPLETE
    }  # fmt: skip

    for topic, expected in (("json-orders", 0), ("no-such-topic", ExitCode.TOPIC_NOT_FOUND)):
        command = [topic if each == "json-orders" else each for each in arguments]
        result = subprocess.run(
            ["pulsar-offload", *command],
            cwd=workplace.folder,
            env=workplace.environment(),
            capture_output=True,
            check=False,
        )
        assert result.returncode == expected
    assert workplace.positions("lake/orders") == positions_of("json-orders")
