"""Entry point of `pulsar-offload`. It needs the extra `cli`, and says so if that is missing."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from arrow_io.core.extras import install_command
from connector.cli import interrupts, streams

if TYPE_CHECKING:
    from typer import Typer

_NEEDED = ("typer", "rich")


def load_app() -> Typer:
    """Import and return the program. Modules of commands are imported when a command runs.

    Raises:
        ModuleNotFoundError: typer is not installed.
    """
    app: Typer = importlib.import_module("connector.cli.program").app
    return app


def main() -> None:
    """Run the command line of the process. Ctrl-C and SIGTERM end it at once."""
    with streams.open_streams():
        interrupts.end_at_interrupts()
        try:
            load_app()(prog_name="pulsar-offload")
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in _NEEDED:
                raise
            sys.exit(f"error: this command needs more packages: {install_command('cli')}")
