"""`arrow_io.core.lazy`: attributes made once, without making threads wait for each other."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier

from arrow_io.core.lazy import cached_property
from tests.support.waiting import PATIENCE_S


@dataclass(frozen=True)
class _Object:
    number: int

    @cached_property
    def doubled(self) -> list[int]:
        """Twice the number."""
        return [2 * self.number]


def test_a_value_is_made_once() -> None:
    """Also of an object that cannot be changed; it is pickled with it."""
    one = _Object(3)

    assert one.doubled is one.doubled
    assert one.doubled == [6]
    assert vars(pickle.loads(pickle.dumps(one)))["doubled"] == [6]
    assert _Object.doubled.__doc__ == "Twice the number."


def test_threads_make_values_of_different_objects_at_once() -> None:
    """Each waits for the other, so one after the other would never end."""
    both = Barrier(2, timeout=PATIENCE_S)

    class Meeting:
        @cached_property
        def value(self) -> int:
            return both.wait()

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(lambda each: each.value, [Meeting(), Meeting()])) == [0, 1]


def test_threads_are_given_one_value() -> None:
    """Though each may have made one."""
    both = Barrier(2, timeout=PATIENCE_S)

    class Meeting:
        @cached_property
        def value(self) -> object:
            both.wait()
            return object()

    one = Meeting()
    with ThreadPoolExecutor(2) as pool:
        values = list(pool.map(lambda _: one.value, range(2)))
    assert values[0] is values[1]
