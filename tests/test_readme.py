"""Every command and snippet of the README runs, and prints what the README says it prints."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from tests.support.command_line import run
from tests.support.snippets import snippets_of

README = Path("README.md").read_text("utf-8")
SNIPPETS = snippets_of(README)


def test_python_snippets_print_what_the_readme_shows() -> None:
    """The Python blocks, run one after the other, print what stands below them."""
    namespace: dict[str, object] = {}
    for snippet in SNIPPETS:
        if snippet.kind != "python" or snippet.skipped:
            continue
        printed = io.StringIO()

        with contextlib.redirect_stdout(printed):
            exec(snippet.text, namespace)  # noqa: S102 - it is our own README

        assert printed.getvalue().strip() == (snippet.printed or "").strip()


COMMANDS = [command for snippet in SNIPPETS for command in snippet.commands]


@pytest.mark.parametrize(("arguments", "printed"), COMMANDS)
def test_commands_print_what_the_readme_shows(arguments: str, printed: str) -> None:
    """The commands of a console block print what stands below each."""
    assert run(*shlex.split(arguments)).stdout.strip() == printed.strip()


def test_every_block_is_run_or_says_why_not() -> None:
    """A block that no test here runs gives the reason in a comment before it."""
    assert len(SNIPPETS) >= 5
    assert COMMANDS
    for snippet in SNIPPETS:
        lines = snippet.text.splitlines()
        is_run = snippet.kind == "python" or lines[0].startswith("$ pulsar-offload ")
        assert is_run or snippet.skipped, snippet.text


@pytest.mark.parametrize("target", re.findall(r"^\$ make ([a-z-]+)", README, re.MULTILINE))
def test_make_targets_exist(target: str) -> None:
    """Each `make` command of the README is a target of the Makefile."""
    assert re.search(rf"^{target}:.*## ", Path("Makefile").read_text("utf-8"), re.MULTILINE)
