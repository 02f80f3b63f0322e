"""Grids of places at which something is stopped or damaged: some of each by default, or all of it.

A test that asks for `grid` is run as `[some]` by `make test-long` and as `[all]` by `make fuzz`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

_T = TypeVar("_T")
_SOME: Final = 12
"""Places of a grid that are tried by default."""
_STRIDE: Final = 10
"""Of the steps of something, by default, one in so many is tried between the first and the last."""
_FIRST_STEPS: Final = 2


class Grid:
    """Chooses among places: the first and the last ones always."""

    def __init__(self, *, is_whole: bool) -> None:
        self.is_whole = is_whole

    def of(self, places: Sequence[_T], *, count: int = _SOME) -> list[_T]:
        """All places, or so many: the first two, the last two, and those at equal distances."""
        last = len(places) - 1
        if self.is_whole or last < count:
            return list(places)
        between = {round(number * last / (count - 3)) for number in range(count - 2)}
        return [places[at] for at in sorted({0, 1, last - 1, last, *between})]

    def steps(self) -> Steps:
        """The steps of something whose number is known when it is over, from 1 on."""
        return Steps(is_whole=self.is_whole)


class Steps:
    """Numbers of steps, to be iterated until `passed` is called for one behind the last step.

    If not all are tried: the first two, each tenth one, and the last one.
    """

    def __init__(self, *, is_whole: bool) -> None:
        self._is_whole = is_whole
        self._is_passed = False
        self.count = 0
        """How many steps there are, when the iteration is over."""

    def passed(self) -> None:
        """The step that was given last is behind the last one that there is."""
        self._is_passed = True

    def __iter__(self) -> Iterator[int]:
        """Give the numbers."""
        step, tried = 1, 0
        while not (yield from self._try(step)):
            tried = step
            step += 1 if self._is_whole or step < _FIRST_STEPS else _STRIDE
        for last in range(step - 1, tried, -1):
            if not (yield from self._try(last)):
                tried = last
                break
        self.count = tried

    def _try(self, step: int) -> Generator[int, None, bool]:
        """Give a step; returns whether there is no such step."""
        self._is_passed = False
        yield step
        return self._is_passed


@pytest.fixture(params=["some", pytest.param("all", marks=pytest.mark.exhaustive)])
def grid(request: pytest.FixtureRequest) -> Grid:
    """What chooses the places of a test."""
    return Grid(is_whole=request.param == "all")
