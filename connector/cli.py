"""Entry point of `pulsar-offload`, which needs the extra `cli` and says so where it is missing."""

from __future__ import annotations

import io
import sys

_NEEDED = ("typer", "rich")


def main() -> None:
    """Run the command with the arguments of the process."""
    try:
        from connector.cli_commands import app  # noqa: PLC0415 - needs the optional typer and rich
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _NEEDED:
            raise
        sys.exit("error: this command needs more packages: pip install 'pulsar-offload[cli]'")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # What a topic holds can be any text, whatever the terminal's encoding is.
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="pulsar-offload")


if __name__ == "__main__":
    main()
