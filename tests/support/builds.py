"""The two builds of the core, how a test puts one of them in place, and which run tests which.

`make test` runs a test that has a parameter `build` on the compiled core; property tests and golden
sets (the marker `both_builds`) on both. `make test-pure` runs all tests on the uncompiled core.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import is_hypothesis_test

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


def is_for_another_run(item: pytest.Item) -> bool:
    """Whether a test asks for a build that this run does not try it on."""
    parameters: dict[str, object] = getattr(getattr(item, "callspec", None), "params", {})
    asked_for = parameters.get("build")
    if asked_for is None:
        return False
    if not builds.in_use.is_compiled:
        return asked_for != "pure"
    return (
        asked_for == "pure"
        and not is_hypothesis_test(getattr(item, "obj", None))
        and not any(map(item.get_closest_marker, ("both_builds", "exhaustive")))
    )
