"""Output that cannot be written ends a command with one sentence and an exit code.

What each command prints is tried in this process, and each way to lose a stream in a shell.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

import pytest

from connector import cli
from connector.cli import interrupts
from connector.cli.app import ExitCode
from tests.support.command_line import FAILED, INCOMPLETE, OK, URL, USAGE, run

if TYPE_CHECKING:
    from collections.abc import Iterator

resource = pytest.importorskip("resource")
pytestmark = pytest.mark.posix

ROOT: Final = Path(__file__).parents[2]
_COMMANDS: Final = {
    "version": ["--version"],
    "help": ["--help"],
    "table": ["topics", URL],
    "records": ["get", URL, "json-orders", "49:5", "--value", "raw"],
    "json": ["head", URL, "json-orders", "--value", "raw", "--json"],
    "incomplete": ["get", URL, "json-orders", "49:5", "49:2000", "--value", "raw"],
    "sql": ["query", URL, "SELECT 1"],
    "rows that fit no pipe": ["query", URL, "FROM range(20000)"],
}
_EVERY: Final = pytest.mark.parametrize("command", _COMMANDS)
_LARGE: Final = ["query", URL, "SELECT repeat('x', 100) FROM range(50000)", "--json"]
_UNBUFFERED: Final = pytest.mark.parametrize(
    "unbuffered", ["", "1"], ids=["buffered", "unbuffered"]
)
_BROKEN: Final = {"full": "No space left on device", "closed": "Bad file descriptor"}
"""What the system says of a stream."""


@pytest.fixture(params=_BROKEN)
def broken(request: pytest.FixtureRequest) -> Iterator[tuple[TextIO | None, str]]:
    """A stream that takes nothing, as Python has it, and what the system says."""
    with ExitStack() as stack:
        full = stack.enter_context(Path("/dev/full").open("w", encoding="utf-8"))
        yield {"full": full, "closed": None}[request.param], _BROKEN[request.param]


def _ended(
    monkeypatch: pytest.MonkeyPatch, command: str, stdout: TextIO | None, stderr: TextIO | None
) -> object:
    """Run the program in this process, and return what it exits with; a stream may be closed."""
    with monkeypatch.context() as patch:
        patch.setattr(interrupts, "end_at_interrupts", lambda: None)
        patch.setattr(sys, "argv", ["pulsar-offload", *_COMMANDS[command]])
        patch.setattr(sys, "stdout", stdout)
        patch.setattr(sys, "stderr", stderr)
        with pytest.raises(SystemExit) as ended:
            cli.main()
    return ended.value.code


def _shell(line: str, command: list[str], unbuffered: str = "") -> subprocess.CompletedProcess[str]:
    """What a shell makes of a line, where `"$@"` is the program with its arguments."""
    return subprocess.run(
        ["bash", "-c", line, "bash", sys.executable, "-m", "connector.cli", *command],
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        capture_output=True,
        check=False,
        cwd=ROOT,
        text=True,
        timeout=60,
    )


@_EVERY
def test_output_that_cannot_be_written_is_one_sentence(
    command: str,
    broken: tuple[TextIO | None, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Whatever the command prints, and would have ended with."""
    stdout, reason = broken
    notes = tmp_path / "notes"
    with notes.open("w") as stderr:
        assert _ended(monkeypatch, command, stdout, stderr) == FAILED

    *_, last = notes.read_text().splitlines()
    assert last == f"error: the output cannot be written: {reason}"


@pytest.mark.parametrize(("target", "kind"), [(">/dev/full", "full"), (">&-", "closed")])
def test_a_program_whose_output_cannot_be_written_says_so_once(target: str, kind: str) -> None:
    """As a shell hands the stream over: no traceback, not even when Python ends."""
    ended = _shell(f'"$@" {target}', _COMMANDS["json"])

    assert ended.stderr == f"error: the output cannot be written: {_BROKEN[kind]}\n"
    assert ended.returncode == FAILED


@_EVERY
def test_output_whose_reader_has_ended_has_an_exit_code_of_its_own(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Quietly, whatever the command would have ended with."""
    notes = tmp_path / "notes"
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", encoding="utf-8") as stdout, notes.open("w") as stderr:
        ended = _ended(monkeypatch, command, stdout, stderr)

    assert ended == ExitCode.CLOSED_PIPE
    assert "error" not in notes.read_text()


@_UNBUFFERED
def test_large_output_whose_reader_ends_is_not_taken_for_a_success(unbuffered: str) -> None:
    """A write that took only some of the bytes is followed by another one, which fails quietly."""
    ended = _shell('set -o pipefail; "$@" | head -n 1', _LARGE, unbuffered)

    assert ended.returncode == ExitCode.CLOSED_PIPE
    assert re.fullmatch(r"(cost: .*\n)?", ended.stderr)
    assert len(ended.stdout.splitlines()) == 1


@_UNBUFFERED
def test_large_output_into_a_full_disk_is_not_cut_silently(unbuffered: str, tmp_path: Path) -> None:
    """A file that takes only some of the bytes is an error."""
    limit = 1 << 16

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    with (tmp_path / "rows").open("wb") as file:
        ended = subprocess.run(
            [sys.executable, "-m", "connector.cli", *_LARGE],
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            stdout=file,
            stderr=subprocess.PIPE,
            check=False,
            cwd=ROOT,
            text=True,
            preexec_fn=limited,
            timeout=60,
        )

    assert ended.returncode == FAILED
    assert ended.stderr.endswith("error: the output cannot be written: File too large\n")


@pytest.mark.parametrize(
    ("command", "exit_code"), [("table", OK), ("incomplete", INCOMPLETE), ("sql", OK)]
)
def test_results_are_printed_even_if_notes_cannot_be(
    command: str,
    exit_code: int,
    broken: tuple[TextIO | None, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """What a note would say is lost, and nothing else."""
    whole = run(*_COMMANDS[command], ends=exit_code)
    rows = tmp_path / "rows"
    with rows.open("w", encoding="utf-8") as stdout:
        assert _ended(monkeypatch, command, stdout, broken[0]) == exit_code

    assert rows.read_text(encoding="utf-8") == whole.stdout


@pytest.mark.parametrize("target", ["2>/dev/full", "2>&-"], ids=["full", "closed"])
def test_a_program_without_notes_prints_its_results(target: str) -> None:
    """As a shell hands the stream over."""
    whole = run(*_COMMANDS["incomplete"], ends=INCOMPLETE)

    ended = _shell(f'"$@" {target}', _COMMANDS["incomplete"])

    assert (ended.returncode, ended.stdout) == (INCOMPLETE, whole.stdout)


def test_closed_input_is_one_sentence() -> None:
    """SQL that should come from it is missing."""
    ended = _shell('"$@" <&-', ["query", URL, "-"])

    assert (ended.returncode, ended.stderr) == (
        USAGE,
        "error: cannot read SQL from standard input: it is closed\n",
    )
