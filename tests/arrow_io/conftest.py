"""Fixtures of the tests of `arrow_io`."""

from __future__ import annotations

from tests.support.builds import build
from tests.support.grids import grid

__all__ = ["build", "grid"]
