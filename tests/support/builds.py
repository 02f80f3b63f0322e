"""The two builds of the core, how a test puts one of them in place, and which run tests which.

`make test` runs a test that has a parameter `build` on the compiled core, and property tests on
both. `make test-long` runs golden sets (the marker `both_builds`) on the uncompiled core, and
`make test-pure` all tests.
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


def is_on_plain_python(item: pytest.Item) -> bool:
    """Return whether a test asks for the uncompiled core beside the compiled one in use."""
    return builds.in_use.is_compiled and _requested_build(item) == "pure"


def is_for_another_run(item: pytest.Item) -> bool:
    """Whether a test asks for a build that this run does not try it on."""
    if not builds.in_use.is_compiled:
        return _requested_build(item) == "compiled"
    return (
        is_on_plain_python(item)
        and not is_hypothesis_test(getattr(item, "obj", None))
        and not any(map(item.get_closest_marker, ("both_builds", "exhaustive")))
    )


def _requested_build(item: pytest.Item) -> object:
    parameters: dict[str, object] = getattr(getattr(item, "callspec", None), "params", {})
    return parameters.get("build")
