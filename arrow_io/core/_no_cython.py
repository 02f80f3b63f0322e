"""A substitute for the `cython` module, for running the core from source without Cython.

It has what the sources use at run time: decorators and contexts that do nothing, and the result
types. Other types occur only in annotations, which are never evaluated.
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
    """A decorator and context that does nothing: pure Python always holds the GIL."""

    def __call__(self, function: _T) -> _T:
        return function

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc_info: object) -> None:
        pass


gil = nogil = _Lock()


def exceptval(*, check: bool) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Return a decorator that does nothing: only C functions declare how they signal errors."""
    del check
    return _keep


def returns(type_: object) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Return a decorator that does nothing: only C functions declare a result type."""
    del type_
    return _keep


def declare(type_: object, value: _T) -> _T:
    """Return the value: Python variables have no declared type."""
    del type_
    return value
