"""Of what is stopped or damaged at many places, the first and the last ones are always tried."""

from __future__ import annotations

import pytest

from tests.support.grids import Grid


def _tried(grid: Grid, last_step: int) -> tuple[list[int], int]:
    """The steps that are tried of something that has so many, and how many there are said to be."""
    steps = grid.steps()
    tried = []
    for step in steps:
        if step > last_step:
            steps.passed()
        else:
            tried.append(step)
    return tried, steps.count


@pytest.mark.parametrize("last_step", [1, 2, 3, 5, 6, 9, 30, 41])
def test_first_and_last_steps_are_tried(last_step: int) -> None:
    """By default with each tenth one between, none twice; and all of them by a whole grid."""
    tried, count = _tried(Grid(is_whole=False), last_step)

    assert len(tried) == len(set(tried))
    assert {1, min(2, last_step), last_step, *range(2, last_step, 10)} == set(tried)
    assert count == last_step
    assert _tried(Grid(is_whole=True), last_step) == ([*range(1, last_step + 1)], last_step)


def test_nothing_that_has_steps_is_said_to_have_none() -> None:
    """What is over before its first step ends at once."""
    assert _tried(Grid(is_whole=False), 0) == ([], 0)


@pytest.mark.parametrize("count", [0, 1, 2, 11, 12, 13, 20, 1000])
def test_first_and_last_places_are_chosen(count: int) -> None:
    """Twelve at most by default, in their order; and all of them by a whole grid."""
    places = range(count)

    chosen = Grid(is_whole=False).of(places)

    assert chosen == sorted(set(chosen))
    assert {*places[:2], *places[-2:]} <= set(chosen)
    assert min(count, 10) <= len(chosen) <= 12
    assert Grid(is_whole=True).of(places) == list(places)
