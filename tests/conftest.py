"""What holds for every test: how many examples Hypothesis tries, and how Spark is run.

Payloads are decoded in an arena whose regions are guarded.
"""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import HealthCheck, settings

from arrow_io.payloads import decoder
from tests.support.arenas import GuardedShredding

settings.register_profile("default", max_examples=50, derandomize=True, deadline=None)
settings.register_profile(
    "exhaustive",
    max_examples=5_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# Spark would take the first `python3` on the PATH, which knows nothing of this project.
os.environ["PYSPARK_PYTHON"] = sys.executable


@pytest.fixture(autouse=True)
def _guarded_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no value be written beside its place unnoticed."""
    monkeypatch.setattr(decoder, "Shredding", GuardedShredding)
