"""Fixtures of the tests of `arrow_io`."""

from tests.support.builds import build

__all__ = ["build"]
