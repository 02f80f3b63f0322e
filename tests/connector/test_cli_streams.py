"""Output that cannot be written ends a command with one sentence and an exit code."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from connector.cli.app import ExitCode
from tests.support.command_line import FAILED, INCOMPLETE, OK, URL, USAGE, run

ROOT: Final = Path(__file__).parents[2]
_COMMANDS: Final = {
    "version": ["--version"],
    "help": ["--help"],
    "table": ["topics", URL],
    "records": ["get", URL, "json-orders", "49:5", "--value", "raw"],
    "json": ["head", URL, "json-orders", "--value", "raw", "--json"],
    "incomplete": ["get", URL, "json-orders", "49:5", "49:2000", "--value", "raw"],
    "sql": ["query", URL, "SELECT 1"],
}
_EVERY: Final = pytest.mark.parametrize("command", _COMMANDS)
_BUFFERED: Final = pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])


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
@pytest.mark.parametrize(
    ("target", "reason"),
    [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")],
    ids=["full", "closed"],
)
def test_output_that_cannot_be_written_is_one_sentence(
    command: str, target: str, reason: str
) -> None:
    """No traceback, and no success."""
    ended = _shell(f'"$@" {target}', _COMMANDS[command])

    *_, last = ended.stderr.splitlines()
    assert last == f"error: the output cannot be written: {reason}"
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr
    assert ended.returncode == FAILED


@_EVERY
def test_output_whose_reader_has_ended_has_an_exit_code_of_its_own(command: str) -> None:
    """Quietly, whatever the command would have ended with."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "connector.cli", *_COMMANDS[command]],
            stdout=writing,
            stderr=subprocess.PIPE,
            check=False,
            cwd=ROOT,
            text=True,
            timeout=60,
        )
    finally:
        os.close(writing)

    assert ended.returncode == ExitCode.CLOSED_PIPE
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr


@_BUFFERED
def test_large_output_whose_reader_ends_is_not_taken_for_a_success(unbuffered: str) -> None:
    """A write that took only some of the bytes is followed by another one, which fails."""
    line = 'set -o pipefail; "$@" | head -n 1'
    command = ["query", URL, "SELECT repeat('x', 100) FROM range(50000)", "--json"]

    ended = _shell(line, command, unbuffered)

    assert ended.returncode == ExitCode.CLOSED_PIPE
    assert len(ended.stdout.splitlines()) == 1


@_BUFFERED
def test_large_output_into_a_full_disk_is_not_cut_silently(unbuffered: str, tmp_path: Path) -> None:
    """A file that takes only some of the bytes is an error."""
    limit = 1 << 16

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    with (tmp_path / "rows").open("wb") as file:
        ended = subprocess.run(
            [sys.executable, "-m", "connector.cli", "query", URL, "FROM range(50000)", "--json"],
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


@pytest.mark.parametrize("target", ["2>/dev/full", "2>&-"], ids=["full", "closed"])
@pytest.mark.parametrize(
    ("command", "exit_code"), [("table", OK), ("incomplete", INCOMPLETE), ("sql", OK)]
)
def test_results_are_printed_even_if_notes_cannot_be(
    command: str, exit_code: int, target: str
) -> None:
    """What a note would say is lost, and nothing else."""
    whole = run(*_COMMANDS[command], ends=exit_code)

    ended = _shell(f'"$@" {target}', _COMMANDS[command])

    assert (ended.returncode, ended.stdout) == (exit_code, whole.stdout)


def test_closed_input_is_one_sentence() -> None:
    """SQL that should come from it is missing."""
    ended = _shell('"$@" <&-', ["query", URL, "-"])

    assert (ended.returncode, ended.stderr) == (
        USAGE,
        "error: no SQL in standard input: it is closed\n",
    )
