"""Fenced blocks of a Markdown page: what they are, and what they have to print."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BLOCK = re.compile(
    r"(?:<!-- (?P<skipped>not run here: [^>]+) -->\n)?```(?P<kind>[a-z]+)\n(?P<text>.*?)\n```"
    r"(?:\n\n```text\n(?P<printed>.*?)\n```)?",
    re.DOTALL,
)
_COMMAND = re.compile(r"^\$ pulsar-offload (.+)\n?((?:(?!\$ ).*\n?)*)", re.MULTILINE)


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

    @property
    def commands(self) -> list[tuple[str, str]]:
        """Arguments of each command in it, and what stands below."""
        is_run = self.kind == "console" and not self.skipped
        return _COMMAND.findall(self.text) if is_run else []


def snippets_of(page: str) -> list[Snippet]:
    """The fenced blocks of a page."""
    return [
        Snippet(match["kind"], match["text"], match["printed"], match["skipped"])
        for match in _BLOCK.finditer(page)
    ]
