"""Threads that live in a time of their own, which passes only while all of them wait."""

from __future__ import annotations

import heapq
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_Result = TypeVar("_Result")


class SimulatedTime:
    """A clock, and threads of which one runs at a time: the one whose pause ends first.

    So a run has one outcome, whatever the machine does.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self._waiting: list[tuple[float, int, threading.Event]] = []
        self._order = itertools.count()

    def clock(self) -> float:
        """The time, in seconds."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Let other threads run until so much time has passed."""
        turn = self._queue_up(seconds)
        self._wake_next()
        turn.wait()

    def run(self, calls: Sequence[Callable[[], _Result]]) -> list[_Result]:
        """Make calls side by side, each in a thread that is in this time."""

        def run(call: Callable[[], _Result], turn: threading.Event) -> _Result:
            turn.wait()
            try:
                return call()
            finally:
                self._wake_next()

        with ThreadPoolExecutor(len(calls)) as executor:
            results = [executor.submit(run, call, self._queue_up(0)) for call in calls]
            self._wake_next()
            return [result.result() for result in results]

    def _queue_up(self, seconds: float) -> threading.Event:
        turn = threading.Event()
        heapq.heappush(self._waiting, (self.now_s + seconds, next(self._order), turn))
        return turn

    def _wake_next(self) -> None:
        if self._waiting:
            self.now_s, _, turn = heapq.heappop(self._waiting)
            turn.set()
