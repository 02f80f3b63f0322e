"""How much of something all readers of a process may hold together.

Nothing is locked: a share may be given back wherever Python collects garbage, even in the middle of
another call of the same thread. So each call changes a `dict` once, and two shares that grow at the
same instant may both be refused.
"""

from __future__ import annotations

import os


class SharedBudget:
    """An amount that any number of shares hold together.

    Attributes:
        was_refused: Whether a share was refused since somebody set this to False.
    """

    def __init__(self) -> None:
        self._held: dict[int, int] = {}
        self.was_refused = False

    @property
    def held(self) -> int:
        """How much all shares hold together."""
        return sum(self._held.copy().values())

    def share(self) -> Share:
        """Return a new share, which holds nothing."""
        return Share(self, self._held)


class Share:
    """What one reader holds of a budget; given back when the share is dropped.

    One thread at a time may use it.

    Args:
        budget: The budget.
        held: What each share of the budget holds.
    """

    __slots__ = ("_budget", "_held")

    def __init__(self, budget: SharedBudget, held: dict[int, int]) -> None:
        self._budget = budget
        self._held = held

    def hold(self, amount: int) -> None:
        """Hold an amount instead of the one before, whatever other shares hold."""
        if amount:
            self._held[id(self)] = amount
        else:
            self._held.pop(id(self), None)

    def grow(self, amount: int, most: int) -> bool:
        """Hold an amount that is greater than the one before, if there is room for it.

        Args:
            amount: The amount.
            most: How much all shares may hold together.

        Returns:
            Whether there was room; if not, nothing changes.
        """
        before = self._held.get(id(self), 0)
        self.hold(amount)
        if amount <= before or self._budget.held <= most:
            return True
        self.hold(before)
        self._budget.was_refused = True
        return False

    def __del__(self) -> None:
        """Give back what it holds."""
        self._held.pop(id(self), None)


class SharedBudgets:
    """What the readers of a process share.

    Attributes:
        ranges: Bytes that were requested of objects and that no stream has taken.
        results: Results of units of work that wait for their consumers, besides one of each.
    """

    def __init__(self) -> None:
        self.ranges = SharedBudget()
        self.results = SharedBudget()


_budgets = SharedBudgets()


def process_budgets() -> SharedBudgets:
    """Return the budgets of this process."""
    return _budgets


def _forget_budgets() -> None:
    global _budgets  # noqa: PLW0603 - there is one of it in a process
    _budgets = SharedBudgets()


# What the parent's readers hold is not the child's.
os.register_at_fork(after_in_child=_forget_budgets)
