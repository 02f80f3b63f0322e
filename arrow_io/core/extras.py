"""The pip command that installs optional libraries, for error messages."""

from __future__ import annotations

import json
import sys
from importlib.metadata import PackageNotFoundError, distribution
from typing import Final
from urllib.parse import unquote

_DISTRIBUTION: Final = "pulsar-offload"


def install_command(*extras: str) -> str:
    """Return the command that adds extras, such as `duckdb`, to this installation.

    It names the checkout or wheel that was installed if that is recorded (PEP 610), and the
    distribution otherwise.
    """
    source, names = _source(), ",".join(extras)
    if source.startswith("file://") and not source.endswith(".whl"):
        folder = unquote(source.removeprefix("file://"))
        if sys.platform == "win32":
            folder = folder.removeprefix("/")  # before the letter of a drive
        return f"pip install '{folder}[{names}]'"
    if source:
        return f"pip install '{_DISTRIBUTION}[{names}] @ {source}'"
    return f"pip install '{_DISTRIBUTION}[{names}]'"


def _source() -> str:
    """Return the URL of the installed folder or file; empty if it came from an index."""
    try:
        record = distribution(_DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        return ""
    url = json.loads(record).get("url") if record else None
    return url if isinstance(url, str) else ""
