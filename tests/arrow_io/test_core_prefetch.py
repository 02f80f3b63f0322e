"""What units give comes in order, errors in their place, and who has enough waits for nothing."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Generator
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pytest

from arrow_io.core.prefetch import most_units, prefetch_units
from arrow_io.core.shared_budget import process_budgets
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_T = TypeVar("_T")

_both = pytest.mark.parametrize("shared", [False, True], ids=["own threads", "shared threads"])


def _ahead(
    units: Iterator[Callable[[], _T]],
    threads: int = 4,
    stop: Callable[[], None] | None = None,
    *,
    shared: bool = False,
) -> Generator[_T]:
    items = prefetch_units(units, threads=threads, stop=stop, shared=shared)
    assert isinstance(items, Generator)
    return items


class Units:
    """Units that give their own numbers, and note what was asked for and done.

    Attributes:
        given: Numbers of the units that were handed out, in order.
        done: Numbers of the units that were done.
        closed_in: The thread that closed them.
    """

    def __init__(self, count: int, broken: int | None = None) -> None:
        self._count = count
        self._broken = broken
        self.given: list[int] = []
        self.done: list[int] = []
        self.closed_in: threading.Thread | None = None
        self.changed = threading.Condition()

    def each(self) -> Iterator[Callable[[], int]]:
        """The units."""
        try:
            for number in range(self._count):
                with self.changed:
                    self.given.append(number)
                    self.changed.notify_all()
                yield partial(self._do, number)
        finally:
            with self.changed:
                self.closed_in = threading.current_thread()
                self.changed.notify_all()

    def _do(self, number: int) -> int:
        if number == self._broken:
            message = f"unit {number} is broken"
            raise RuntimeError(message)
        with self.changed:
            self.done.append(number)
            self.changed.notify_all()
        return number

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until the threads have done something."""
        with self.changed:
            assert self.changed.wait_for(condition, timeout=30)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 1000])
@_both
def test_items_come_in_order(count: int, threads: int, *, shared: bool) -> None:
    """Nothing is left out, added or moved, however many threads there are."""
    assert list(_ahead(Units(count).each(), threads, shared=shared)) == list(range(count))


def test_nothing_begins_before_the_first_is_asked_for() -> None:
    """Not even the first unit is made."""
    units = Units(10)

    _ahead(units.each())

    assert units.given == []


@_both
def test_first_unit_is_done_alone_and_then_ever_more_up_to_a_bound(*, shared: bool) -> None:
    """Each that is taken doubles how many are under way, or wait: half as many more as threads."""
    units = Units(100)
    items = _ahead(units.each(), threads=4, shared=shared)
    given = []

    for _ in range(6):
        next(items)
        units.wait_until(lambda: len(units.given) == len(units.done))
        given.append(len(units.given))

    assert given[0] == 1
    # When one is taken, of those behind it so many may be under way: 0, then 1, 3, 6 and 6.
    most = [1, 3, 6, 10, 11, 12]
    assert all(each <= bound for each, bound in zip(given, most, strict=True))
    units.wait_until(lambda: len(units.done) == most[-1])
    items.close()
    assert len(units.given) <= most[-1] + 1


@pytest.mark.parametrize("threads", [2, 16])
@_both
def test_so_many_units_are_done_at_once_as_there_are_threads(threads: int, *, shared: bool) -> None:
    """All threads are busy: units that wait for each other come to an end, round after round."""
    rounds = 20
    barrier = threading.Barrier(threads)
    first = threads * 2

    def meet(number: int) -> int:
        if number >= first:
            barrier.wait(timeout=30)
        return number

    count = first + rounds * threads
    items = _ahead((partial(meet, number) for number in range(count)), threads, shared=shared)

    assert list(items) == list(range(count))


@_both
def test_errors_of_units_come_in_their_place(*, shared: bool) -> None:
    """What comes before an error is given first; behind it, there is nothing."""
    items = _ahead(Units(10, broken=3).each(), shared=shared)

    assert [next(items) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(RuntimeError, match="unit 3 is broken"):
        next(items)
    assert list(items) == []


@pytest.mark.parametrize("error", [RuntimeError("no more"), SystemExit(3)])
@_both
def test_errors_between_units_come_in_their_place(error: BaseException, *, shared: bool) -> None:
    """Whatever ends the making of units, the consumer hears of it instead of waiting for ever."""

    def units() -> Iterator[Callable[[], int]]:
        yield from Units(5).each()
        raise error

    items = _ahead(units(), shared=shared)

    assert [next(items) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(type(error)):
        next(items)


@pytest.mark.parametrize("taken", [1, 3, 1000])
@pytest.mark.parametrize("way", ["close", "drop"])
@_both
def test_units_are_closed_when_the_consumer_has_enough(
    taken: int, way: str, *, shared: bool
) -> None:
    """By who asked for them, in that thread; and few more have been asked for."""
    units = Units(1000)
    items = _ahead(units.each(), shared=shared)
    for _ in range(taken):
        next(items)

    if way == "close":
        items.close()
    del items

    units.wait_until(lambda: units.closed_in is not None)
    assert units.closed_in is not threading.current_thread()
    assert len(units.given) <= taken + most_units(4) + 1


@pytest.mark.parametrize("where", ["made", "done"])
@pytest.mark.parametrize("way", ["close", "drop", "cycle", "error"])
@_both
def test_who_has_enough_waits_for_no_unit(way: str, where: str, *, shared: bool) -> None:
    """However long one takes to be made or done; nothing more begins, and `stop` is called."""
    gate, begun = threading.Event(), threading.Event()
    asked: list[int] = []
    stopped: list[bool] = []
    ended = threading.Event()

    def wait() -> int:
        begun.set()
        assert gate.wait(timeout=30)
        return -1

    def units() -> Iterator[Callable[[], int]]:
        try:
            for number in range(100):
                asked.append(number)
                if number == 2 and where == "made":
                    wait()
                yield wait if number == 2 else partial(int, number)
        finally:
            ended.set()

    items = _ahead(units(), threads=2, stop=lambda: stopped.append(True), shared=shared)
    assert [next(items), next(items)] == [0, 1]
    assert begun.wait(timeout=30)
    kept: list[object] = [items]
    if way == "cycle":
        kept.append(kept)
    elif way == "close":
        items.close()
    elif way == "error":
        with pytest.raises(ZeroDivisionError):
            items.throw(ZeroDivisionError)
    del items, kept
    gc.collect()

    assert stopped == [True]
    assert asked == [0, 1, 2]
    gate.set()
    assert ended.wait(timeout=30)
    assert asked == [0, 1, 2]


@_both
def test_units_that_cannot_be_closed_are_fine(*, shared: bool) -> None:
    """Not every iterator is a generator."""
    items = _ahead(iter([partial(int, "1"), partial(int, "2")]), shared=shared)

    assert next(items) == 1
    items.close()


@pytest.mark.parametrize("where", ["made", "done"])
@_both
def test_interrupted_waiting_ends_the_units(
    where: str, monkeypatch: pytest.MonkeyPatch, *, shared: bool
) -> None:
    """Ctrl-C while the consumer waits leaves nothing open, whatever it waits for."""
    gate, closed, interrupt = threading.Event(), threading.Event(), threading.Event()

    class Interrupted(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            if interrupt.is_set() and threading.current_thread() is threading.main_thread():
                interrupt.clear()
                raise KeyboardInterrupt
            return super().wait(timeout)

    def wait() -> int:
        assert gate.wait(timeout=30)
        return -1

    def units() -> Iterator[Callable[[], int]]:
        try:
            yield partial(int, 1)
            yield wait if where == "done" else partial(int, wait())
            yield from Units(100).each()
        finally:
            closed.set()

    monkeypatch.setattr(threading, "Condition", Interrupted)
    items = _ahead(units(), shared=shared)
    assert next(items) == 1
    interrupt.set()

    with pytest.raises(KeyboardInterrupt):
        list(items)

    gate.set()
    assert closed.wait(timeout=30)
    wait_until(lambda: not process_budgets().results.total)


@_both
def test_units_run_in_the_context_of_the_consumer(*, shared: bool) -> None:
    """It says how errors call options."""
    variable: ContextVar[str] = ContextVar("variable", default="")
    variable.set("the consumer's")

    def units() -> Iterator[Callable[[], str]]:
        seen = variable.get()
        yield lambda: seen
        yield variable.get

    assert list(_ahead(units(), shared=shared)) == ["the consumer's"] * 2


def test_threads_keep_no_program_from_ending() -> None:
    """A program that ends with a read half done does not wait for the rest of it."""
    program = """
from arrow_io.core.prefetch import most_units, prefetch_units
items = prefetch_units((lambda: number for number in range(10**9)), threads=4)
print(next(items), flush=True)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert (ended.stdout, ended.stderr) == ("0\n", "")
