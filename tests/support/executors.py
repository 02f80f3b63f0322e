"""Executors of a copy's or an upkeep's tasks, for tests."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from connector.tables.executors import Work

    _Task = TypeVar("_Task")
    _Result = TypeVar("_Result")


def run_here(work: Work[_Task, _Result], tasks: Sequence[_Task]) -> Iterator[_Result]:
    """Run tasks one by one, in the thread of the caller."""
    yield from map(work, tasks)


def run_elsewhere(work: Work[_Task, _Result], tasks: Sequence[_Task]) -> Iterator[_Result]:
    """Run tasks as another process would: work, tasks and results are pickled."""
    for each in tasks:
        there, task = pickle.loads(pickle.dumps((work, each)))
        yield pickle.loads(pickle.dumps(there(task)))
