"""Memory of ranges is used again when nothing refers to it, and never before."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from arrow_io.errors import TruncatedObjectError
from arrow_io.storage.location import Location
from arrow_io.storage.range_memory import RangeMemory
from arrow_io.storage.range_prefetch import RangePrefetcher
from arrow_io.storage.range_stream import RangeStream
from arrow_io.storage.ranges import RangeReader
from arrow_io.storage.received_range import ReceivedRange
from tests.support.slow_store import SlowStore
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.s3_server import S3Server


def _received(memory: RangeMemory, data: bytes) -> memoryview:
    received = ReceivedRange(len(data), memory)
    received.add(data)
    return received.data()


def test_what_was_dropped_is_used_again() -> None:
    """By a range that is as long, or shorter."""
    memory = RangeMemory()
    first = _received(memory, bytes(1000))
    del first
    assert memory.unused_bytes() == 1000

    second = _received(memory, b"x" * 999)

    assert memory.unused_bytes() == 0
    assert second == b"x" * 999


def test_a_part_of_a_view_keeps_its_bytes() -> None:
    """Also if the view and whoever received it are gone."""
    memory = RangeMemory()
    part = _received(memory, b"0123456789")[3:6]

    others = [_received(memory, b"x" * 10) for _ in range(3)]

    assert bytes(part) == b"345"
    assert part.readonly
    del others
    assert memory.unused_bytes() == 30


def test_what_is_dropped_while_nobody_takes_is_not_kept() -> None:
    """Until a block is taken again."""
    memory = RangeMemory()
    ranges = [_received(memory, bytes(10)) for _ in range(4)]
    del ranges[2:]
    assert memory.unused_bytes() == 20

    memory.drop_unused()
    assert memory.unused_bytes() == 0
    del ranges[1:]
    assert memory.unused_bytes() == 0
    ranges.append(_received(memory, bytes(10)))
    ranges.clear()

    assert memory.unused_bytes() == 20


def test_memory_that_became_too_short_is_not_kept() -> None:
    """Whether it was dropped before longer ranges came, or after, and however much there is."""
    memory = RangeMemory()
    kept, *dropped = [_received(memory, bytes(10)) for _ in range(5)]
    del dropped
    assert memory.unused_bytes() == 40

    _received(memory, bytes(20))
    del kept

    assert memory.unused_bytes() == 20


def test_nothing_is_kept_behind_the_end() -> None:
    """Neither what waited, nor what is dropped later; what is in use stays as it is."""
    memory = RangeMemory()
    _received(memory, bytes(10))
    in_use = _received(memory, b"0123456789")

    memory.close()

    assert memory.unused_bytes() == 0
    assert bytes(in_use) == b"0123456789"
    del in_use
    assert memory.unused_bytes() == 0


def test_a_range_that_failed_leaves_its_memory() -> None:
    """Nobody asked for a view of it."""
    memory = RangeMemory()
    received = ReceivedRange(10, memory)
    received.add(b"012")
    del received

    assert memory.unused_bytes() == 10


def test_more_than_was_asked_for_is_dropped() -> None:
    """And told; what stands behind the range in memory is never written."""
    memory = RangeMemory()
    received = ReceivedRange(4, memory)
    received.add(b"012")
    assert not received.is_too_long

    received.add(b"34")
    received.add(b"3")

    assert received.is_too_long
    assert received.data() == b"012"


class _Ranges(RuleBasedStateMachine):
    """Ranges come, are cut and dropped in any order; those that are left keep their bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = RangeMemory()
        self.views: list[tuple[memoryview, bytes, int]] = []
        self.most_bytes = 0
        self.is_open = True

    @rule(data=st.binary(max_size=40), spare=st.integers(0, 9))
    def receive(self, data: bytes, spare: int) -> None:
        received = ReceivedRange(len(data) + spare, self.memory)
        for start in range(0, len(data), 7):
            received.add(data[start : start + 7])
        # A block may be longer than what it was taken for.
        self.views.append((received.data(), data, received._block._memory.size))
        self.most_bytes = max(self.most_bytes, sum(size for *_, size in self.views))

    @rule(place=st.integers(0, 9), start=st.integers(0, 40))
    def cut(self, place: int, start: int) -> None:
        if place < len(self.views):
            view, data, size = self.views[place]
            self.views[place] = view[start:], data[start:], size

    @rule(place=st.integers(0, 9))
    def drop(self, place: int) -> None:
        del self.views[place : place + 1]

    @rule()
    def drop_unused(self) -> None:
        self.memory.drop_unused()
        assert self.memory.unused_bytes() == 0

    @rule()
    def close(self) -> None:
        self.memory.close()
        self.is_open = False

    @invariant()
    def bytes_stay(self) -> None:
        for view, data, _ in self.views:
            assert view == data

    @invariant()
    def no_more_waits_than_was_in_use(self) -> None:
        assert self.memory.unused_bytes() <= (self.most_bytes if self.is_open else 0)


test_ranges_in_any_order = _Ranges.TestCase


def test_garbage_may_be_collected_anywhere() -> None:
    """Blocks that only a cycle refers to go back in the middle of what this thread does."""
    memory = RangeMemory()
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for number in range(300):
            data = bytes([number % 251]) * 100
            view = _received(memory, data)
            cycle: list[object] = [view]
            cycle.append(cycle)
            other = _received(memory, data)
            assert view == other == data
            del cycle
    finally:
        gc.set_threshold(*before)


def test_threads_share_it() -> None:
    """Each finds its own bytes, whoever takes and drops beside it."""
    memory = RangeMemory()
    wrong: list[int] = []
    begin = threading.Barrier(4)

    def work(number: int) -> None:
        begin.wait()
        held: list[tuple[memoryview, bytes]] = []
        for turn in range(500):
            data = bytes([number * 50 + turn % 50]) * (64 + turn % 3)
            held.append((_received(memory, data), data))
            if len(held) > 5:
                view, expected = held.pop(turn % 5)
                if view != expected:
                    wrong.append(turn)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []
    assert memory.unused_bytes() <= 4 * 7 * 66


def test_an_error_that_nobody_asks_for_keeps_no_memory() -> None:
    """Of a request that was prefetched: nothing waits for Python to collect garbage."""
    store = SlowStore({"a": bytes(1000)})
    reader = RangeReader(Location(store.url, {"request_attempts": 1}, range_bytes=100), "a", 2000)
    gc.disable()
    try:
        prefetcher = RangePrefetcher([reader.span(0, 2000)], at_once=True)
        memory = weakref.ref(prefetcher._memory)
        planned = prefetcher.start(reader.span(0, 2000))
        prefetcher.next_range(planned)
        waiting = [each.future for each in planned.requests if each.future is not None]
        errors = [type(each.exception()) for each in waiting]
        prefetcher.close()
        assert errors.count(TruncatedObjectError) == 10
        del prefetcher, planned, waiting
        # A thread that answered a request may hold it until it has returned.
        wait_until(lambda: memory() is None)
    finally:
        gc.enable()
        store.drop()


def test_a_read_uses_memory_again_and_leaves_none(s3_server: S3Server) -> None:
    """Of a client that gives bytes in parts; the bytes are those of the object."""
    data = bytes(index * 7 % 251 for index in range(10_000))
    address = s3_server.upload({"a": data})
    options = address.storage_options | {
        "client": "obstore",
        "max_connections": 2,
        "request_attempts": 1,
    }
    location = Location(address.url, options, range_bytes=1000)
    span = RangeReader(location, "a", len(data)).span(0, len(data))

    with RangePrefetcher([span]) as prefetcher, RangeStream(span, prefetcher) as stream:
        memory = weakref.ref(prefetcher._memory)
        read = b""
        for start in range(0, len(data), 100):
            view, index = stream.at(start, 100)
            read += view[index : index + 100]
        del view
        most = prefetcher._memory.unused_bytes()
        kept, _ = stream.at(len(data) - 1, 1)
        expected = bytes(kept)
    del prefetcher, stream

    assert read == data
    assert 0 < most <= 4000
    assert kept == expected
    del kept, span, location
    wait_until(lambda: gc.collect() >= 0 and memory() is None)
