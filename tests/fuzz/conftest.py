"""Fixtures of the tests of the fuzzer."""

from tests.support.builds import build

__all__ = ["build"]
