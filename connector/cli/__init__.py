"""Entry point of `pulsar-offload`, which needs the extra `cli` and says so if it is missing."""

from __future__ import annotations

import importlib
import io
import sys
from typing import TYPE_CHECKING

from arrow_io.extras import install_command
from connector.cli import interrupts

if TYPE_CHECKING:
    from typer import Typer

_NEEDED = ("typer", "rich")
COMMAND_MODULES = (
    "connector.cli.contents",
    "connector.cli.messages",
    "connector.cli.reading",
    "connector.cli.schemas",
    "connector.cli.forecast",
    "connector.cli.statistics",
    "connector.cli.audit",
    "connector.cli.repair",
    "connector.cli.writing",
    "connector.cli.attaching",
    "connector.cli.copying",
    "connector.cli.replaying",
)
"""Modules that register their commands as they are imported, in the order of the help."""


def load_app() -> Typer:
    """The program, with all commands.

    Raises:
        ModuleNotFoundError: typer or rich is not installed.
    """
    app: Typer = importlib.import_module("connector.cli.app").app
    for name in COMMAND_MODULES:
        importlib.import_module(name)
    return app


def main() -> None:
    """Run the command with the arguments of the process; Ctrl-C ends it with exit code 130."""
    interrupts.end_at_interrupts()
    try:
        app = load_app()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _NEEDED:
            raise
        sys.exit(f"error: this command needs more packages: {install_command('cli')}")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # What a topic holds can be any text, whatever the terminal's encoding is.
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="pulsar-offload")
