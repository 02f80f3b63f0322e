"""The answers that a live source of metadata has given so far."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

_Key = TypeVar("_Key", bound="Hashable")
_Value = TypeVar("_Value")


class AnswerCache(Generic[_Key, _Value]):
    """Values by key. Each is computed once, by the first thread; errors are not cached."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[_Key, threading.Lock] = {}
        self._values: dict[_Key, _Value] = {}

    def get(self, key: _Key, make: Callable[[], _Value]) -> _Value:
        """Return the value of a key; `make` computes it if there is none."""
        with self._lock_of(key):
            if key not in self._values:
                self._values[key] = make()
            return self._values[key]

    def renew(self, key: _Key, make: Callable[[], _Value]) -> _Value:
        """Compute a new value. One that another thread is computing already may be outdated."""
        with self._lock_of(key):
            self._values[key] = value = make()
            return value

    def _lock_of(self, key: _Key) -> threading.Lock:
        with self._lock:
            return self._locks.setdefault(key, threading.Lock())

    def peek(self, key: _Key) -> _Value | None:
        """Return the value of a key; None if it is not computed yet."""
        return self._values.get(key)

    def values(self) -> list[_Value]:
        """Return all values so far."""
        return list(self._values.values())
