"""Engines that report nothing to their makers; without them, no test is collected here."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.engines.damage import damaged_objects
from tests.support.buckets import memory_bucket

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT: Final = Path(__file__).parents[2]

if find_spec("daft") is None:
    collect_ignore_glob = ["test_*.py"]

os.environ["DAFT_ANALYTICS_ENABLED"] = os.environ["DAFT_PROGRESS_BAR"] = "0"
os.environ["DO_NOT_TRACK"] = "1"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
# Workers are processes of their own.
os.environ["PYTHONPATH"] = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])


@pytest.fixture
def damaged() -> Iterator[str]:
    """The URL of a damaged bucket."""
    with memory_bucket(damaged_objects()) as bucket:
        yield bucket.url
