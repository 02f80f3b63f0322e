"""Fixtures of the tests of `connector`."""

from tests.support.builds import build

__all__ = ["build"]
