"""What the readers of a process hold together is bounded, and given back wherever they end."""

from __future__ import annotations

import gc
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from arrow_io.core.shared_budget import Share, SharedBudget, process_budgets

_MOST = 20


class _Shares(RuleBasedStateMachine):
    """Shares grow, shrink and are dropped in any order: the budget knows what they hold."""

    def __init__(self) -> None:
        super().__init__()
        self.budget = SharedBudget()
        self.shares: list[tuple[Share, int]] = []

    @rule()
    def open(self) -> None:
        self.shares.append((self.budget.share(), 0))

    @rule(place=st.integers(0, 5), amount=st.integers(0, 15))
    def grow(self, place: int, amount: int) -> None:
        if place < len(self.shares):
            share, before = self.shares[place]
            others = sum(each for _, each in self.shares) - before
            has_room = amount <= before or others + amount <= _MOST
            self.budget.was_refused = False
            assert share.grow(amount, _MOST) == has_room
            assert self.budget.was_refused != has_room
            self.shares[place] = share, amount if has_room else before

    @rule(place=st.integers(0, 5), amount=st.integers(0, 15))
    def hold(self, place: int, amount: int) -> None:
        if place < len(self.shares):
            share, _ = self.shares[place]
            share.hold(amount)
            self.shares[place] = share, amount

    @rule(place=st.integers(0, 5))
    def drop(self, place: int) -> None:
        del self.shares[place : place + 1]

    @invariant()
    def all_is_known(self) -> None:
        assert self.budget.total == sum(amount for _, amount in self.shares)


test_shares_in_any_order = _Shares.TestCase


def test_threads_together_hold_no_more_than_there_is() -> None:
    """Though nothing is locked; each that was refused may ask again."""
    budget = SharedBudget()

    def take_and_give_back(_: int) -> int:
        share = budget.share()
        most = 0
        for amount in (1, 2, 3):
            if share.grow(amount, _MOST):
                most = max(most, budget.total)
        share.hold(0)
        return most

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(take_and_give_back, range(2000)))

    # Those that are refused hold the amount for a moment.
    assert 0 < max(found) <= _MOST + 3 * 16
    assert budget.total == 0


def test_garbage_may_be_collected_anywhere() -> None:
    """Shares that only a cycle refers to are given back in the middle of what this thread does."""
    budget = SharedBudget()
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(1000):
            share = budget.share()
            share.grow(1, _MOST)
            cycle: list[object] = [share]
            cycle.append(cycle)
            del share, cycle
            assert budget.total <= _MOST
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert budget.total == 0


@pytest.mark.posix
def test_a_forked_child_holds_nothing() -> None:
    """What its parent holds does not count."""
    share = process_budgets().results.share()
    share.hold(3)
    held = process_budgets().results.total
    child = os.fork()
    if not child:
        os._exit(process_budgets().results.total)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert process_budgets().results.total == held >= 3
