"""Attributes that are made when they are first asked for.

`functools.cached_property` does the same. But before Python 3.12 it has one lock for all objects of
a class, which is held while a value is made: threads wait for each other although each of them asks
another object, whose value may take a request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Self, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")


class cached_property(Generic[_T]):  # noqa: N801 - as everybody knows it
    """An attribute that a method makes once, and that stays in the object's `__dict__`.

    If threads ask an object for the first time at once, each makes a value; all are given the
    first that is there.
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
        """The value; of a class, this object."""
        if instance is None:
            return self
        value: _T = vars(instance).setdefault(self._name, self._compute(instance))
        return value
