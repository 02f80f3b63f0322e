"""Stands in for the `cython` module where the hot loop runs from source without Cython.

It gives what `_decode_py` uses while it runs: decorators that do nothing. Types stand in
annotations only, which are never evaluated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")

compiled = False
Py_ssize_t = longlong = ulonglong = int


def _keep(function: _T) -> _T:
    return function


cfunc = inline = nogil = _keep


def exceptval(*, check: bool) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Do nothing: only C functions need to be told how they signal errors."""
    del check
    return _keep


def returns(type_: object) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Do nothing: only C functions have a declared result type."""
    del type_
    return _keep


def declare(type_: object, value: _T) -> _T:
    """Give the value itself: Python variables have no declared type."""
    del type_
    return value
