"""What to type for an extra is what would install it here."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError
from typing import TYPE_CHECKING

import pytest

from arrow_io.core import extras

if TYPE_CHECKING:
    from collections.abc import Callable


class _Installed:
    def __init__(self, record: str | None) -> None:
        self._record = record

    def read_text(self, name: str) -> str | None:
        return self._record if name == "direct_url.json" else None


def _recorded(url: str | None) -> Callable[[str], _Installed]:
    record = None if url is None else json.dumps({"url": url, "dir_info": {}})
    return lambda _: _Installed(record)


@pytest.mark.parametrize(
    ("url", "command"),
    [
        (None, "pip install 'pulsar-offload[cli,duckdb]'"),
        ("file:///home/me/my%20pulsar", "pip install '/home/me/my pulsar[cli,duckdb]'"),
        (
            "file:///tmp/pulsar_offload-1.whl",
            "pip install 'pulsar-offload[cli,duckdb] @ file:///tmp/pulsar_offload-1.whl'",
        ),
        (
            "https://example.com/x.tar.gz",
            "pip install 'pulsar-offload[cli,duckdb] @ https://example.com/x.tar.gz'",
        ),
    ],
)
def test_the_command_names_where_the_package_came_from(
    url: str | None, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout or a wheel is named; what was found by its name is found so again."""
    monkeypatch.setattr(extras, "distribution", _recorded(url))

    assert extras.install_command("cli", "duckdb") == command


def test_a_source_tree_on_the_path_is_named_by_the_distribution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without an installation there is no record of where it came from."""

    def nothing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(extras, "distribution", nothing)

    assert extras.install_command("s3") == "pip install 'pulsar-offload[s3]'"
