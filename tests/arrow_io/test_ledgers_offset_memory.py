"""Remembered offsets: the nearest at or before an entry, within bounds, from any thread."""

from __future__ import annotations

import tracemalloc
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from arrow_io.ledgers.offset_memory import OffsetMemory


def test_nothing_is_known_of_an_object_never_seen() -> None:
    """And asking does not make it known."""
    memory = OffsetMemory(max_objects=1)
    memory.remember("a", 5, 500)

    assert memory.floor("b", 5) is None
    assert memory.floor("a", 5) == (5, 500)


@given(
    remembered=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3))),
    asked=st.lists(st.integers(0, 60), min_size=1),
)
def test_nearest_entry_at_or_before_is_found(
    remembered: list[tuple[int, int]], asked: list[int]
) -> None:
    """Whatever the order in which they were remembered; of two places of one entry, the first."""
    memory = OffsetMemory(max_offsets=51)
    places: dict[int, int] = {}
    for entry_id, offset in remembered:
        memory.remember("a", entry_id, offset)
        places.setdefault(entry_id, offset)

    for entry_id in asked:
        nearest = max((each for each in places if each <= entry_id), default=None)
        expected = None if nearest is None else (nearest, places[nearest])
        assert memory.floor("a", entry_id) == expected


def test_objects_do_not_mix() -> None:
    """The key is whatever tells objects apart: what was written anew has another length."""
    memory = OffsetMemory()
    memory.remember(("url", "name", 100), 5, 50)
    memory.remember(("url", "name", 101), 5, 51)

    assert memory.floor(("url", "name", 100), 9) == (5, 50)
    assert memory.floor(("url", "name", 101), 9) == (5, 51)


def test_forgotten_object_is_unknown() -> None:
    """Only that one; and to forget what is not known is no error."""
    memory = OffsetMemory()
    memory.remember("a", 5, 50)
    memory.remember("b", 5, 50)

    memory.forget("a")
    memory.forget("nothing")

    assert memory.floor("a", 9) is None
    assert memory.floor("b", 9) == (5, 50)


def test_object_remembered_longest_ago_goes_first() -> None:
    """Each remembering makes an object young again."""
    memory = OffsetMemory(max_objects=2)
    for key in ("a", "b", "a", "c"):
        memory.remember(key, 1, 10)

    assert memory.floor("a", 1) == (1, 10)
    assert memory.floor("b", 1) is None
    assert memory.floor("c", 1) == (1, 10)


def test_offsets_of_all_objects_are_bounded() -> None:
    """The object remembered longest ago goes first; what was forgotten takes no room."""
    memory = OffsetMemory(max_offsets=3)
    for key, entry_id in (("a", 1), ("a", 2), ("b", 1), ("c", 1)):
        memory.remember(key, entry_id, 10)
    assert [memory.floor(key, 9) for key in "abc"] == [None, (1, 10), (1, 10)]

    memory.forget("b")
    for entry_id in (2, 3, 3):
        memory.remember("c", entry_id, 10 * entry_id)

    assert memory.floor("c", 9) == (3, 30)
    memory.remember("d", 1, 10)
    assert [memory.floor(key, 9) for key in "cd"] == [None, (1, 10)]


def test_many_objects_are_remembered() -> None:
    """A plan of ten thousand ledgers is read with what it was told of each."""
    memory = OffsetMemory()
    for number in range(10_000):
        memory.remember(number, 7, number)

    assert memory.floor(0, 9) == (7, 0)


def test_offsets_of_one_object_are_bounded() -> None:
    """What comes when it is full is not remembered, and nothing is put out for it."""
    memory = OffsetMemory(max_offsets_per_object=3)
    for entry_id in (1, 2, 3, 4, 0):
        memory.remember("a", entry_id, 10 * entry_id)

    assert [memory.floor("a", entry_id) for entry_id in range(6)] == [
        None,
        (1, 10),
        (2, 20),
        (3, 30),
        (3, 30),
        (3, 30),
    ]


def test_what_is_remembered_twice_counts_once() -> None:
    """Two reads of one ledger meet the same entries."""
    memory = OffsetMemory(max_offsets_per_object=2)
    for _ in range(5):
        memory.remember("a", 1, 10)
    memory.remember("a", 2, 20)

    assert memory.floor("a", 2) == (2, 20)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["remember", "remember", "forget", "floor"]),
            st.sampled_from("abcd"),
            st.integers(0, 6),
        ),
        min_size=60,
        max_size=120,
    )
)
def test_any_order_of_calls_gives_what_a_model_gives(calls: list[tuple[str, str, int]]) -> None:
    """All bounds at once, with objects that are forgotten and come again."""
    memory = OffsetMemory(max_objects=3, max_offsets_per_object=4, max_offsets=7)
    model: OrderedDict[str, dict[int, int]] = OrderedDict()
    for offset, (call, key, entry_id) in enumerate(calls):
        if call == "remember":
            memory.remember(key, entry_id, offset)
            known = model.setdefault(key, {})
            model.move_to_end(key)
            if len(known) < 4:
                known.setdefault(entry_id, offset)
            while len(model) > 3 or sum(map(len, model.values())) > 7:
                model.popitem(last=False)
        elif call == "forget":
            memory.forget(key)
            model.pop(key, None)
        else:
            known = model.get(key, {})
            nearest = max((each for each in known if each <= entry_id), default=None)
            expected = None if nearest is None else (nearest, known[nearest])
            assert memory.floor(key, entry_id) == expected


def test_what_nobody_asks_for_is_bounded_too() -> None:
    """A read of any length remembers, and need never ask."""
    memory = OffsetMemory(max_offsets_per_object=4)
    tracemalloc.start()
    try:
        for entry_id in range(20_000):
            memory.remember("a", entry_id, 7)
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert held_bytes < 50_000
    assert memory.floor("a", 20_000) == (3, 7)


def test_threads_may_share_it() -> None:
    """Reads of one process remember at once, and find what is right or nothing."""
    memory = OffsetMemory(max_objects=4, max_offsets_per_object=64)

    def work(thread: int) -> list[tuple[int, int] | None]:
        found = []
        for entry_id in range(500):
            key = (thread + entry_id) % 6
            memory.remember(key, entry_id, 7 * entry_id)
            found.append(memory.floor(key, entry_id))
            if entry_id % 50 == 0:
                memory.forget(key)
        return found

    with ThreadPoolExecutor(4) as executor:
        results = [each for found in executor.map(work, range(4)) for each in found]

    known = [each for each in results if each is not None]
    assert known
    assert all(offset == 7 * entry_id for entry_id, offset in known)
