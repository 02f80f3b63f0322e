"""Stands in for the `cython` module when a compiled core runs from source without Cython.

It gives what the sources use while they run: decorators and a context that do nothing, and the
types of results. Other types stand in annotations only, which are never evaluated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")

compiled = False
Py_ssize_t = longlong = ulonglong = bint = int
double = float
void = None


def _keep(function: _T) -> _T:
    return function


cclass = cfunc = final = inline = _keep


class _Lock:
    """Does nothing, as a decorator and as a context: Python runs with its lock."""

    def __call__(self, function: _T) -> _T:
        return function

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc_info: object) -> None:
        pass


gil = nogil = _Lock()


def exceptval(*, check: bool) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Do nothing: only C functions need to know how they signal errors."""
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
