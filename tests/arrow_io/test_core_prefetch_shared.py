"""Feeds of one process share threads and room; consumers that pause give back theirs."""

from __future__ import annotations

import gc
import os
import threading
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakSet

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from arrow_io.core import prefetch as module
from arrow_io.core.prefetch import most_units, prefetch_units
from arrow_io.core.shared_budget import process_budgets
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

_THREADS = 4


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s

    def pass_by(self, seconds: float) -> None:
        """Let time pass, and have feeds look whether their consumers pause."""
        self.now_s += seconds
        module._keeper.release_idle(self.now_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of all feeds."""
    clock = Clock()
    monkeypatch.setattr(module, "_clock", clock)
    return clock


class Result:
    """A result; `made` has those that somebody holds.

    Args:
        number: Number of its unit.
        made: Receives it.
    """

    def __init__(self, number: int, made: WeakSet[Result]) -> None:
        self.number = number
        made.add(self)


class Feeds:
    """Feeds that share, and how often each of their units ran.

    Attributes:
        made: Results that somebody holds.
        runs: How often units ran, by the number of the feed and their own.
        shrunk: How often each feed was asked to drop what it fetched.
    """

    def __init__(self) -> None:
        self.made: WeakSet[Result] = WeakSet()
        self.runs: Counter[tuple[int, int]] = Counter()
        self.shrunk: Counter[int] = Counter()
        self._lock = threading.Lock()

    def open(self, feed: int, count: int) -> Generator[Result, None, None]:
        """A feed of so many units."""
        units = (partial(self._run, feed, number) for number in range(count))
        return prefetch_units(
            units, threads=_THREADS, shared=True, shrink=lambda: self.shrunk.update([feed])
        )

    def _run(self, feed: int, number: int) -> Result:
        with self._lock:
            self.runs[feed, number] += 1
            return Result(number, self.made)

    def held(self) -> int:
        """How many results somebody holds."""
        with self._lock:
            return len(self.made)


def _numbers(items: Iterator[Result], count: int) -> list[int]:
    return [next(items).number for _ in range(count)]


def _wait_until_idle() -> None:
    """Wait until nobody asks for units."""
    wait_until(lambda: not any(each._is_pulling for each in module._keeper._all()))


def test_feeds_of_consumers_that_pause_keep_one_result_and_no_thread(clock: Clock) -> None:
    """However many there are; each goes on where it was, when its consumer comes back."""
    feeds = Feeds()
    before = threading.active_count()
    every = [feeds.open(number, 50) for number in range(100)]
    for items in every:
        assert _numbers(items, 8) == list(range(8))
        assert threading.active_count() <= before + 2 * _THREADS + 8
        assert process_budgets().results.total <= most_units(_THREADS)

    def is_released() -> bool:
        clock.pass_by(10)
        return feeds.held() <= len(every) and not process_budgets().results.total

    wait_until(is_released)
    assert set(feeds.shrunk) == set(range(100))
    for items in every:
        assert [each.number for each in items] == list(range(8, 50))
    wait_until(lambda: not process_budgets().results.total)


def test_room_is_for_whoever_takes_results(clock: Clock) -> None:
    """Of 100 feeds one has all of the room when the others pause, as if it were alone."""
    feeds = Feeds()
    others = [feeds.open(number, 50) for number in range(1, 100)]
    for items in others:
        _numbers(items, 8)
    _wait_until_idle()
    assert process_budgets().results.total == most_units(_THREADS)
    process_budgets().results.was_refused = False
    clock.pass_by(1.1)
    items = feeds.open(0, 100)
    assert _numbers(items, 8) == list(range(8))
    _wait_until_idle()
    assert sum(feeds.runs[0, number] for number in range(100)) <= 9
    clock.pass_by(0)

    assert next(items).number == 8

    def has_all() -> bool:
        return sum(feeds.runs[0, number] for number in range(100)) == 9 + most_units(_THREADS) - 1

    wait_until(has_all)
    assert [each.number for each in items] == list(range(9, 100))


@pytest.mark.parametrize(("seconds", "is_wanted"), [(9.9, False), (0.9, True)])
def test_what_a_consumer_may_come_back_for_is_kept(
    clock: Clock, seconds: float, *, is_wanted: bool
) -> None:
    """For ten seconds; or for one, if another feed wants the room."""
    feeds = Feeds()
    items = feeds.open(0, 50)
    _numbers(items, 8)
    wait_until(lambda: feeds.held() == most_units(_THREADS) - 1)
    _wait_until_idle()
    process_budgets().results.was_refused = is_wanted
    clock.pass_by(seconds)

    assert feeds.held() == most_units(_THREADS) - 1
    process_budgets().results.was_refused = is_wanted
    clock.pass_by(0.2)
    assert feeds.held() == 1
    assert [each.number for each in items] == list(range(8, 50))
    assert feeds.runs.total() == 50 + most_units(_THREADS) - 2


def test_consumers_that_pause_again_and_again_cause_no_work_in_vain(clock: Clock) -> None:
    """What was dropped once is not run and dropped at each pause."""
    feeds = Feeds()
    items = feeds.open(0, 40)
    _numbers(items, 8)
    found = []
    for each in items:
        found.append(each.number)
        _wait_until_idle()
        clock.pass_by(11)

    assert found == list(range(8, 40))
    assert feeds.runs.total() <= 40 + most_units(_THREADS)


def test_unit_under_way_is_not_run_twice(clock: Clock) -> None:
    """It ends by itself; the next time that somebody looks it can be dropped."""
    gates = [threading.Event() for _ in range(10)]
    begun: list[int] = []

    def wait(number: int) -> int:
        begun.append(number)
        assert gates[number].wait(timeout=30)
        return number

    units = (partial(wait, number) for number in range(10))
    items = prefetch_units(units, threads=2, shared=True)
    for gate in gates[:3]:
        gate.set()
    assert [next(items) for _ in range(3)] == [0, 1, 2]
    wait_until(lambda: len(begun) == 5)
    clock.pass_by(11)
    for gate in gates:
        gate.set()

    assert list(items) == list(range(3, 10))
    assert sorted(begun) == list(range(10))


@pytest.mark.parametrize("pauses", [0, 1, 2])
def test_errors_come_in_their_place_after_a_pause(clock: Clock, pauses: int) -> None:
    """A unit that failed and was dropped fails again."""
    items = prefetch_units(
        (partial(divmod, 1, 6 - number) for number in range(10)), threads=4, shared=True
    )
    found = [next(items) for _ in range(4)]
    for _ in range(pauses):
        _wait_until_idle()
        clock.pass_by(11)
    with pytest.raises(ZeroDivisionError):
        found.extend(items)

    assert found == [divmod(1, 6 - number) for number in range(6)]


@pytest.mark.parametrize("error", [RuntimeError("broken"), None])
def test_nobody_asks_for_units_while_fetched_bytes_are_dropped(
    clock: Clock, error: RuntimeError | None
) -> None:
    """The consumer that comes back meanwhile waits; if dropping fails, it hears of it."""
    dropping, gate = threading.Event(), threading.Event()
    asked_meanwhile: list[int] = []

    def shrink() -> None:
        dropping.set()
        assert gate.wait(timeout=30)
        dropping.clear()
        if error is not None:
            raise error

    def units() -> Iterator[Callable[[], int]]:
        for number in range(10):
            if dropping.is_set():
                asked_meanwhile.append(number)
            yield partial(int, number)

    items = prefetch_units(units(), threads=1, shared=True, shrink=shrink)
    found = [next(items), next(items)]
    _wait_until_idle()
    look = threading.Thread(target=clock.pass_by, args=[11])
    look.start()
    assert dropping.wait(timeout=30)
    failures: list[BaseException] = []
    come_back = threading.Thread(target=lambda: found.extend(_all(items, failures)))
    come_back.start()
    wait_until(lambda: len(found) >= 3)
    gate.set()
    for each in (look, come_back):
        each.join(timeout=30)
        assert not each.is_alive()

    assert asked_meanwhile == []
    if error is None:
        assert (found, failures) == (list(range(10)), [])
    else:
        assert (found, failures) == ([0, 1, 2], [error])


def _all(items: Iterator[int], failures: list[BaseException]) -> Iterator[int]:
    try:
        yield from items
    except RuntimeError as error:
        failures.append(error)


def test_units_may_read_feeds() -> None:
    """A worker that waited for a worker would wait for itself."""

    def read() -> list[int]:
        units = (partial(int, number) for number in range(10))
        return list(prefetch_units(units, threads=1, shared=True))

    items = prefetch_units((read for _ in range(5)), threads=1, shared=True)

    assert list(items) == [list(range(10))] * 5


@pytest.mark.posix
def test_a_forked_child_has_feeds_of_its_own() -> None:
    """Whatever its parent's are doing."""
    feeds = Feeds()
    items = feeds.open(0, 50)
    _numbers(items, 8)
    child = os.fork()
    if not child:
        found: list[int] = []
        try:
            found.extend(each.number for each in Feeds().open(1, 50))
        finally:
            os._exit(found != list(range(50)) or process_budgets().results.total)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [each.number for each in items] == list(range(8, 50))


class _Readers(RuleBasedStateMachine):
    """Feeds that are opened, read, left alone and closed: each gives what its model gives."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.clock = Clock()
        self.feeds = Feeds()
        self.opened: dict[int, Generator[Result, None, None]] = {}
        self.expected: dict[int, Iterator[int]] = {}
        self.count = 0

    @initialize()
    def begin(self) -> None:
        """Time stands still."""
        self.patch.setattr(module, "_clock", self.clock)

    @rule(count=st.integers(0, 40))
    def open(self, count: int) -> None:
        """Another consumer comes."""
        self.opened[self.count] = self.feeds.open(self.count, count)
        self.expected[self.count] = iter(range(count))
        self.count += 1

    @precondition(lambda self: self.opened)
    @rule(data=st.data(), times=st.integers(1, 12))
    def advance(self, data: st.DataObject, times: int) -> None:
        """One takes some results."""
        number = data.draw(st.sampled_from(sorted(self.opened)))
        for _ in range(times):
            found = next(self.opened[number], None)
            expected = next(self.expected[number], None)
            assert (None if found is None else found.number) == expected

    @rule(seconds=st.sampled_from((0.5, 2.0, 11.0)))
    def pass_by(self, seconds: float) -> None:
        """Nobody takes anything for some time."""
        self.clock.pass_by(seconds)

    @precondition(lambda self: self.opened)
    @rule(data=st.data(), is_dropped=st.booleans())
    def close(self, data: st.DataObject, *, is_dropped: bool) -> None:
        """One has enough."""
        number = data.draw(st.sampled_from(sorted(self.opened)))
        items = self.opened.pop(number)
        if not is_dropped:
            items.close()
        del items

    @invariant()
    def room_is_bounded(self) -> None:
        """All together hold no more than one result each, and the room that they share."""
        assert process_budgets().results.total <= most_units(_THREADS)

    def teardown(self) -> None:
        """All ends; nothing is held any more."""
        for number, items in self.opened.items():
            assert [each.number for each in items] == list(self.expected[number])
        self.opened.clear()
        gc.collect()
        wait_until(lambda: not process_budgets().results.total and not self.feeds.held())
        self.patch.undo()


TestReaders = _Readers.TestCase
TestReaders.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
