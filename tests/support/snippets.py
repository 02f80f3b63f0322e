"""Fenced blocks of a Markdown page: what they are, and what they have to print."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_BLOCK = re.compile(
    r"^(?P<indent> *)(?:<!-- (?P<skipped>not run here: [^>]+) -->\n(?P=indent))?"
    r"```(?P<kind>[a-z]+)\n(?P<text>.*?)\n(?P=indent)```$"
    r"(?:\n\n(?P=indent)```text\n(?P<printed>.*?)\n(?P=indent)```$)?",
    re.DOTALL | re.MULTILINE,
)
_PROMPT = "$ pulsar-offload "
_FILE_NAME = re.compile(r"(?:#|--) ([\w./-]+\.\w+)\s")
"""What the first line of a block begins with, if the block is a file."""


@dataclass(frozen=True)
class Snippet:
    """One fenced block, and what it has to print.

    Attributes:
        kind: Its language.
        text: The block, without the indentation that it has in a content tab.
        printed: The block that follows it, if that shows output.
        skipped: The reason why it is not run, if it is not.
    """

    kind: str
    text: str
    printed: str | None
    skipped: str | None

    @property
    def commands(self) -> list[tuple[str, str]]:
        """Arguments of each command in it, and the output shown below the command."""
        is_run = self.kind == "console" and not self.skipped
        return _commands(self.text.split("\n")) if is_run else []


def snippets_of(page: str) -> list[Snippet]:
    """Return the fenced blocks of a page, in order."""
    return [
        Snippet(
            kind=match["kind"],
            text=_without_indent(match["text"], match["indent"]),
            printed=match["printed"] and _without_indent(match["printed"], match["indent"]),
            skipped=match["skipped"],
        )
        for match in _BLOCK.finditer(page)
    ]


def write_files(page: str, folder: Path) -> dict[str, Path]:
    """Write the blocks of a page that are files to a folder; return their paths by their names."""
    paths = {}
    for snippet in snippets_of(page):
        if match := _FILE_NAME.match(snippet.text):
            path = paths[match[1]] = folder / match[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{snippet.text}\n", "utf-8")
    return paths


def _without_indent(text: str, indent: str) -> str:
    return re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)


def _commands(lines: list[str]) -> list[tuple[str, str]]:
    commands = []
    while lines:
        first, *lines = lines
        if not first.startswith(_PROMPT):
            continue
        command = first.removeprefix(_PROMPT)
        while _continues(command):
            command = f"{command}\n{lines.pop(0)}"
        output = [*takewhile(lambda line: not line.startswith("$ "), lines)]
        lines = lines[len(output) :]
        commands.append((command.replace("\\\n", " "), "\n".join(output)))
    return commands


def _continues(command: str) -> bool:
    """Whether a shell would read the next line too: after a backslash, or within quotes."""
    try:
        shlex.split(command.removesuffix("\\"))
    except ValueError:
        return True
    return command.endswith("\\")
