"""Attributes that are computed on first access.

`functools.cached_property` does the same, but before Python 3.12 it holds one lock for all
instances of a class while a value is computed. Threads would wait for each other although they use
different instances, and a value may take a request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Self, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")


class cached_property(Generic[_T]):  # noqa: N801 - named like that of functools
    """An attribute that a method computes once; the value is stored in the object's `__dict__`.

    If several threads access it first at the same time, each computes a value, and all get the one
    that was stored first.
    """

    def __init__(self, compute: Callable[..., _T]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> _T: ...

    def __get__(self, instance: object | None, owner: type) -> _T | Self:
        """Return the value, or this descriptor if it is accessed on the class."""
        if instance is None:
            return self
        value: _T = vars(instance).setdefault(self._name, self._compute(instance))
        return value
