"""The two builds of the hot loop, and how a test puts one of them in place."""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from arrow_io.messages import _decode, _decode_py

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

BUILDS: Final[dict[str, ModuleType]] = {
    "pure": _decode_py,
    "compiled": importlib.import_module("arrow_io.messages._decode_c"),
}
"""By the name that a test's id shows."""


@contextmanager
def using_build(name: str) -> Iterator[ModuleType]:
    """Decode with one build while the context lasts; for tests that fixtures cannot serve."""
    before = _decode.core
    _decode.core = BUILDS[name]
    try:
        yield BUILDS[name]
    finally:
        _decode.core = before


@pytest.fixture(params=list(BUILDS))
def build(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """The build that decodes during a test, which is run once with each."""
    with using_build(request.param) as module:
        yield module
