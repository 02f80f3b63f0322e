"""Items made ahead come in order, errors in their place, and no thread outlives its reader."""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from functools import partial
from queue import Queue
from typing import TYPE_CHECKING, TypeVar

import pytest

from connector.read_ahead import read_ahead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


_NAME = "pulsar-offload-read-ahead"
_T = TypeVar("_T")


def _ahead(maker: Callable[[], Iterator[_T]]) -> Generator[_T]:
    """One part alone."""
    return _closable(read_ahead([maker], most=4))


def _closable(items: Iterator[_T]) -> Generator[_T]:
    assert isinstance(items, Generator)
    return items


def _threads() -> int:
    return sum(thread.name == _NAME for thread in threading.enumerate())


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    gc.collect()
    assert _threads() == 0
    yield
    gc.collect()
    assert _threads() == 0


class Parts:
    """Parts of items that note what was made of them.

    Attributes:
        begun: Numbers of the parts of which an item was asked for, in order.
        made: Every item made.
        closed: Numbers of the parts that have ended or were closed.
    """

    def __init__(self, *lengths: int, broken: int | None = None) -> None:
        self._lengths = lengths
        self._broken = broken
        self.begun: list[int] = []
        self.made: list[tuple[int, int]] = []
        self.closed: list[int] = []
        self.changed = threading.Condition()

    def makers(self) -> Sequence[Callable[[], Iterator[tuple[int, int]]]]:
        """What makes each part."""
        return [partial(self._part, number) for number in range(len(self._lengths))]

    def _part(self, number: int) -> Iterator[tuple[int, int]]:
        self._note(self.begun, number)
        try:
            for item in range(self._lengths[number]):
                self._note(self.made, (number, item))
                yield number, item
            if number == self._broken:
                message = f"part {number} is broken"
                raise RuntimeError(message)
        finally:
            self._note(self.closed, number)

    def _note(self, notes: list[object] | list[int] | list[tuple[int, int]], note: object) -> None:
        with self.changed:
            notes.append(note)  # type: ignore[arg-type]
            self.changed.notify_all()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until the threads have done something."""
        with self.changed:
            assert self.changed.wait_for(condition, timeout=30)

    def expected(self) -> list[tuple[int, int]]:
        """All items in order."""
        return [(n, item) for n, length in enumerate(self._lengths) for item in range(length)]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 1000])
def test_items_come_in_order(count: int) -> None:
    """Nothing is left out, added or moved."""
    assert list(_ahead(lambda: iter(range(count)))) == list(range(count))


def test_items_are_made_ahead_but_not_far() -> None:
    """While the consumer works on one item, two wait and one is being made, no more."""
    parts = Parts(100)
    items = _ahead(parts.makers()[0])
    assert parts.begun == []

    next(items)

    parts.wait_until(lambda: len(parts.made) == 4)
    assert _threads() == 1
    next(items)
    parts.wait_until(lambda: len(parts.made) == 5)
    items.close()
    assert len(parts.made) <= 7


def test_errors_come_in_their_place() -> None:
    """The items before an error are given first; behind it, there is nothing."""
    items = _ahead(Parts(3, broken=0).makers()[0])

    assert [next(items) for _ in range(3)] == [(0, 0), (0, 1), (0, 2)]
    with pytest.raises(RuntimeError, match="part 0 is broken"):
        next(items)
    assert list(items) == []


def test_system_exit_comes_through() -> None:
    """Whatever ends the making, the consumer hears of it instead of waiting for ever."""

    def leave() -> Iterator[int]:
        yield 1
        raise SystemExit(3)

    items = _ahead(leave)

    assert next(items) == 1
    with pytest.raises(SystemExit):
        next(items)


def test_thread_keeps_no_program_from_ending() -> None:
    """A program that ends with a read half done does not wait for the rest of it."""
    items = _ahead(Parts(1000).makers()[0])
    next(items)

    threads = [each for each in threading.enumerate() if each.name == _NAME]

    assert [each.daemon for each in threads] == [True]
    items.close()


@pytest.mark.parametrize("taken", [1, 3])
def test_closing_ends_the_thread_and_the_items(taken: int) -> None:
    """A consumer that has enough closes the iterator: thread and generator end with it."""
    parts = Parts(1000)
    items = _ahead(parts.makers()[0])
    for _ in range(taken):
        next(items)
    assert _threads() == 1

    items.close()

    assert _threads() == 0
    assert parts.closed == [0]


def test_interrupted_closing_ends_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C at the moment of closing leaves no thread that waits for room for ever."""
    waits = threading.Event()

    class Interrupted(Queue[object]):
        def put(self, item: object, block: bool = True, timeout: float | None = None) -> None:  # noqa: FBT002
            # Two are taken, two wait: this one has to.
            if item == (0, 4):
                waits.set()
            super().put(item, block, timeout)

        def get_nowait(self) -> object:
            raise KeyboardInterrupt

    monkeypatch.setattr("connector.read_ahead.Queue", Interrupted)
    items = _closable(read_ahead(Parts(100, 100).makers(), most=2))
    next(items)
    next(items)
    assert waits.wait(timeout=30)
    under_way = [each for each in threading.enumerate() if each.name == _NAME]

    with pytest.raises(KeyboardInterrupt):
        items.close()

    for each in under_way:
        each.join(timeout=30)
    assert [each.is_alive() for each in under_way] == [False, False]


def test_dropping_ends_the_thread() -> None:
    """A consumer that forgets the iterator leaves no thread behind."""
    items = _ahead(Parts(1000).makers()[0])
    next(items)
    assert _threads() == 1

    del items
    gc.collect()

    assert _threads() == 0


@pytest.mark.parametrize("length", [1, 1000])
def test_items_are_closed_by_the_thread_that_made_them(length: int) -> None:
    """What items hold open is given back at their end, and where the consumer has enough."""
    closed_in: list[str] = []

    class Items:
        def __init__(self) -> None:
            self._left = iter(range(length))

        def __iter__(self) -> Items:
            return self

        def __next__(self) -> int:
            return next(self._left)

        def close(self) -> None:
            closed_in.append(threading.current_thread().name)

    items = _ahead(Items)
    assert next(items) == 0
    items.close()

    assert closed_in == [_NAME]


def test_iterator_that_cannot_be_closed_is_fine() -> None:
    """Not every iterator is a generator."""
    items = _ahead(lambda: iter([1, 2, 3]))
    next(items)

    items.close()

    assert _threads() == 0


@pytest.mark.parametrize("most", [1, 2, 5])
@pytest.mark.parametrize("lengths", [(), (0,), (1,), (3, 0, 0, 2), (5,) * 9], ids=str)
def test_parts_come_in_order(lengths: tuple[int, ...], most: int) -> None:
    """The items of part after part, however many are under way."""
    parts = Parts(*lengths)

    assert list(read_ahead(parts.makers(), most=most)) == parts.expected()
    assert sorted(parts.closed) == list(range(len(lengths)))


def test_first_part_is_made_alone() -> None:
    """Until the consumer takes a second item, no second part is begun."""
    parts = Parts(5, 5, 5)
    items = _closable(read_ahead(parts.makers(), most=3))

    next(items)

    parts.wait_until(lambda: len(parts.made) == 4)
    assert parts.begun == [0]
    items.close()


@pytest.mark.parametrize("most", [1, 2, 3])
def test_at_most_so_many_parts_are_under_way(most: int) -> None:
    """Each item taken may begin one part more, up to the bound."""
    parts = Parts(*[10] * 6)
    items = _closable(read_ahead(parts.makers(), most=most))

    for _ in range(6):
        next(items)

    parts.wait_until(lambda: len(parts.begun) == most)
    assert _threads() == most
    assert parts.begun == list(range(most))
    items.close()
    assert sorted(parts.closed) == list(range(most))


def test_each_item_taken_begins_one_part_more() -> None:
    """A consumer that takes two items has begun two parts, whatever the bound is."""
    parts = Parts(*[10] * 6)
    items = _closable(read_ahead(parts.makers(), most=5))

    next(items)
    next(items)

    assert _threads() == 2
    items.close()


def test_slow_consumer_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the thread finds no room for an item, it keeps it until there is."""
    monkeypatch.setattr("connector.read_ahead._POLL_SECONDS", 0.0)
    parts = Parts(100)
    items = _ahead(parts.makers()[0])
    taken = []

    for made in range(4, 101):
        taken.append(next(items))
        parts.wait_until(lambda made=made: len(parts.made) >= made)  # type: ignore[misc]

    assert [*taken, *items] == parts.expected()


def test_errors_of_parts_come_in_their_place() -> None:
    """The items of the parts before come first, though the broken part was made meanwhile."""
    parts = Parts(4, 1, 4, broken=1)
    items = _closable(read_ahead(parts.makers(), most=3))

    assert [next(items) for _ in range(5)] == [*((0, i) for i in range(4)), (1, 0)]
    with pytest.raises(RuntimeError, match="part 1 is broken"):
        next(items)

    assert list(items) == []
    assert _threads() == 0


def test_part_that_cannot_begin_is_an_error() -> None:
    """What fails before its first item fails in the consumer too, and ends what is under way."""

    def refuse() -> Iterator[tuple[int, int]]:
        message = "cannot begin"
        raise RuntimeError(message)

    makers = [*Parts(3).makers(), refuse]

    with pytest.raises(RuntimeError, match="cannot begin"):
        list(read_ahead(makers, most=2))
