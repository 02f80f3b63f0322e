"""Remembered offsets: the nearest at or before an entry, within bounds, from any thread."""

from __future__ import annotations

import tracemalloc
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from arrow_io.ledgers.offset_memory import OffsetMemory


def test_many_objects_are_remembered() -> None:
    """A plan of ten thousand ledgers is read with what it was told of each."""
    memory = OffsetMemory()
    for number in range(10_000):
        memory.remember(number, 7, number)

    assert memory.floor(0, 9) == (7, 0)


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
