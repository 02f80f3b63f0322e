"""Fixtures of the tests of `connector`."""

from tests.support.builds import build
from tests.support.grids import grid

__all__ = ["build", "grid"]
