"""Limits on memory and results that all readers of a process share.

There is no lock: garbage collection may release a share at any point, even within another call of
the same thread. So each call changes a `dict` once, and two shares that grow at the same instant
may both be refused.
"""

from __future__ import annotations

import os


class SharedBudget:
    """The sum of amounts that any number of shares hold.

    Attributes:
        was_refused: Whether a share was refused since this was last set to False.
    """

    def __init__(self) -> None:
        self._amounts: dict[int, int] = {}  # by the `id` of the share
        self.was_refused = False

    @property
    def total(self) -> int:
        """The sum of all shares."""
        return sum(self._amounts.copy().values())

    def share(self) -> Share:
        """Return a new share that holds nothing."""
        return Share(self, self._amounts)


class Share:
    """The amount of a budget that one reader holds; released when the share is garbage-collected.

    Only one thread at a time may use a share. `SharedBudget.share` creates it.
    """

    __slots__ = ("_amounts", "_budget")

    def __init__(self, budget: SharedBudget, amounts: dict[int, int]) -> None:
        self._budget = budget
        self._amounts = amounts

    def hold(self, amount: int) -> None:
        """Hold an amount instead of the previous one, regardless of other shares."""
        if amount:
            self._amounts[id(self)] = amount
        else:
            self._amounts.pop(id(self), None)

    def grow(self, amount: int, limit: int) -> bool:
        """Hold a larger amount and return True, unless the sum of all shares exceeds the limit."""
        previous = self._amounts.get(id(self), 0)
        self.hold(amount)
        if amount <= previous or self._budget.total <= limit:
            return True
        self.hold(previous)
        self._budget.was_refused = True
        return False

    def __del__(self) -> None:
        self._amounts.pop(id(self), None)


class SharedBudgets:
    """The budgets that the readers of a process share.

    Attributes:
        ranges: Bytes requested from objects and not yet taken by a stream.
        results: Results of units of work that wait for their consumers, except one for each
            consumer.
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


# A forked child has none of the parent's readers. Windows does not fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_budgets)
