"""The two builds of the core, and how a test puts one of them in place."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from arrow_io.core import builds
from arrow_io.core.builds import Build

if TYPE_CHECKING:
    from collections.abc import Iterator

BUILDS: Final = {"pure": Build("py"), "compiled": Build("c")}
"""By the name that a test's id shows."""


@contextmanager
def using_build(name: str) -> Iterator[Build]:
    """Decode with one build while the context lasts; for tests that fixtures cannot serve."""
    before = builds.in_use
    builds.in_use = BUILDS[name]
    try:
        yield BUILDS[name]
    finally:
        builds.in_use = before


@pytest.fixture(params=list(BUILDS))
def build(request: pytest.FixtureRequest) -> Iterator[Build]:
    """The build that decodes during a test, which is run once with each."""
    with using_build(request.param) as chosen:
        yield chosen
