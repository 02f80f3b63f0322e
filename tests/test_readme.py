"""Every command and snippet of the README runs, and prints what the README says it prints."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from connector import open_topic
from tests.support.command_line import run

README = Path("README.md").read_text("utf-8")
_BLOCK = re.compile(
    r"(?:<!-- (?P<skipped>not run here: [^>]+) -->\n)?```(?P<kind>[a-z]+)\n(?P<text>.*?)\n```"
    r"(?:\n\n```text\n(?P<printed>.*?)\n```)?",
    re.DOTALL,
)


@dataclass(frozen=True)
class Snippet:
    """One fenced block, and what it has to print.

    Attributes:
        kind: Its language.
        text: The block.
        printed: The block behind it, if it shows output.
        skipped: Why it is not run, if it is not.
    """

    kind: str
    text: str
    printed: str | None
    skipped: str | None


SNIPPETS = [
    Snippet(match["kind"], match["text"], match["printed"], match["skipped"])
    for match in _BLOCK.finditer(README)
]


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


COMMANDS = [
    match
    for snippet in SNIPPETS
    if snippet.kind == "console" and not snippet.skipped
    for match in re.finditer(
        r"^\$ pulsar-offload (.+)\n((?:(?!\$ ).*\n?)*)", snippet.text, re.MULTILINE
    )
]


@pytest.mark.parametrize(("arguments", "printed"), [match.groups() for match in COMMANDS])
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


def test_options_are_those_of_open_topic() -> None:
    """The table of options names every option of `open_topic` but those that only Python has."""
    options = README.partition("## Options")[2].partition("\n## ")[0]
    for name in inspect.signature(open_topic).parameters:
        assert name in {"url", "topic", "catalog", "trace"} or f"`{name}`" in options
