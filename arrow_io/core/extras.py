"""What to type for the optional libraries, wherever this package was installed from."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, distribution
from typing import Final
from urllib.parse import unquote

_DISTRIBUTION: Final = "pulsar-offload"


def install_command(*extras: str) -> str:
    """The command that installs extras beside what is installed.

    It names the checkout or the wheel that this installation came from, if the installation has a
    record of that (PEP 610); else it names the distribution.

    Args:
        extras: Names of extras, such as `duckdb`.
    """
    source, names = _source(), ",".join(extras)
    if source.startswith("file://") and not source.endswith(".whl"):
        return f"pip install '{unquote(source.removeprefix('file://'))}[{names}]'"
    if source:
        return f"pip install '{_DISTRIBUTION}[{names}] @ {source}'"
    return f"pip install '{_DISTRIBUTION}[{names}]'"


def _source() -> str:
    """URL of the folder or file that was installed; empty if it was found by its name."""
    try:
        record = distribution(_DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        return ""
    url = json.loads(record).get("url") if record else None
    return url if isinstance(url, str) else ""
