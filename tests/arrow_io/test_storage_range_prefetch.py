"""Ranges of several objects are prefetched, in order, as many as the consumer has use for."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from itertools import cycle
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrow_io.core.shared_budget import process_budgets
from arrow_io.errors import ObjectChangedError
from arrow_io.storage.attempts import RetryPolicy
from arrow_io.storage.location import Location
from arrow_io.storage.object_version import ETag
from arrow_io.storage.range_prefetch import DEFAULT_PREFETCH_BYTES, RangePrefetcher
from arrow_io.storage.range_stream import RangeStream
from arrow_io.storage.ranges import ByteSpan, RangeReader
from arrow_io.storage.trace import RequestTrace
from tests.support.faulty_storage import FaultScript, ToldByHead, s3_error
from tests.support.slow_store import SlowStore

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = bytes(index * 7 % 251 for index in range(1000))


@pytest.fixture
def stores() -> Iterator[list[SlowStore]]:
    """Stores that are forgotten when the test is over."""
    opened: list[SlowStore] = []
    yield opened
    for each in opened:
        each.drop()


def _spans(location: Location, count: int, size: int = 10) -> list[ByteSpan]:
    return [RangeReader(location, f"object-{n}", size).span(0, size) for n in range(count)]


def _objects(count: int, size: int = 10) -> dict[str, bytes]:
    return {f"object-{n}": bytes([n % 251]) * size for n in range(count)}


def _all_of(span: ByteSpan, prefetcher: RangePrefetcher) -> bytes:
    with RangeStream(span, prefetcher) as stream:
        view, index = stream.at(span.start, span.stop - span.start)
        return bytes(view[index : index + span.stop - span.start])


def test_objects_behind_are_requested_as_soon_as_there_is_room(stores: list[SlowStore]) -> None:
    """All connections are busy, though each object is one request."""
    store = SlowStore(_objects(40), waves=[32], connections=32)
    stores.append(store)
    location = Location(store.url, range_bytes=10)
    spans = _spans(location, 40)

    with RangePrefetcher(spans, at_once=True) as prefetcher:
        read = [_all_of(each, prefetcher) for each in spans]

    assert read == list(store.objects.values())
    assert (store.waves_left, store.flights.count) == ([], 40)


def test_window_outlives_an_object(stores: list[SlowStore]) -> None:
    """It grows from 1, whatever the requests are for; a new object does not begin anew."""
    # Each wave is answered only when it is whole: the consumer has to wait for it.
    store = SlowStore(_objects(40), waves=[1, 4, 8])
    stores.append(store)
    spans = _spans(Location(store.url, {"max_connections": 8}, range_bytes=10), 40)

    with RangePrefetcher(spans) as prefetcher:
        read = [_all_of(each, prefetcher) for each in spans]

    assert read == list(store.objects.values())
    assert (store.waves_left, store.flights.count, store.flights.greatest) == ([], 40, 8)


def test_no_more_bytes_are_requested_ahead_than_allowed(stores: list[SlowStore]) -> None:
    """But for the range that is needed."""
    store = SlowStore(_objects(40), waves=[5, 1])
    stores.append(store)
    spans = _spans(Location(store.url, range_bytes=10), 40)

    with RangePrefetcher(spans, max_bytes=50, at_once=True) as prefetcher:
        for number, span in enumerate(spans):
            assert _all_of(span, prefetcher) == bytes([number]) * 10
            assert prefetcher._bytes <= 50

    assert store.flights.greatest <= 5


@pytest.mark.parametrize(
    ("range_bytes", "connections", "longest"),
    [(None, 32, 3 << 20), (1 << 20, 32, 1 << 20), (None, 512, 1 << 20)],
)
def test_ranges_grow_with_what_was_requested(
    stores: list[SlowStore], range_bytes: int | None, connections: int, longest: int
) -> None:
    """Each costs time whatever it brings; lengths given and the bound of all bytes are kept."""
    size = 128 << 20
    store = SlowStore({"data": memoryview(bytes(size))})
    stores.append(store)
    trace = RequestTrace(keep_records=True)
    location = Location(
        store.url, {"max_connections": connections}, range_bytes=range_bytes, trace=trace
    )
    span = RangeReader(location, "data", size).span(0, size)

    with RangeStream(span) as stream:
        for position in range(0, size, 1 << 20):
            stream.at(position, 1)

    ranges = sorted({(each.start or 0, each.stop or 0) for each in trace.records})
    lengths = [stop - start for start, stop in ranges[:-1]]
    assert lengths == sorted(lengths)
    assert max(lengths) == longest
    assert lengths[:32] == [1 << 20] * 32


@pytest.mark.parametrize("connections", [1, 2, 8, 32, 48, 64])
def test_longest_ranges_of_all_connections_may_be_requested(connections: int) -> None:
    """Bytes do not keep connections idle."""
    location = Location("memory://", {"max_connections": connections})
    prefetcher = RangePrefetcher()
    prefetcher._requested_bytes = 1 << 40

    longest = prefetcher._range_bytes(location)

    assert DEFAULT_PREFETCH_BYTES // longest >= connections + connections // 4
    assert longest >= 1 << 20


def test_stream_that_was_not_planned_is_served_too(stores: list[SlowStore]) -> None:
    """What is planned stays planned."""
    store = SlowStore(_objects(6))
    stores.append(store)
    spans = _spans(Location(store.url, range_bytes=10), 6)

    with RangePrefetcher(spans[:2] + spans[3:]) as prefetcher:
        read = [_all_of(each, prefetcher) for each in spans]

    assert read == list(store.objects.values())
    assert store.flights.count == 6


def test_planned_objects_that_are_left_out_are_in_nobodys_way(stores: list[SlowStore]) -> None:
    """Their requests are dropped when a later one begins."""
    store = SlowStore(_objects(6))
    stores.append(store)
    spans = _spans(Location(store.url, range_bytes=10), 6)

    with RangePrefetcher(spans, at_once=True) as prefetcher:
        read = [_all_of(spans[n], prefetcher) for n in (0, 2, 5)]
        assert (prefetcher._count, prefetcher._bytes) == (0, 0)

    assert read == [store.objects[f"object-{n}"] for n in (0, 2, 5)]


def test_stream_may_begin_further_on_than_planned(stores: list[SlowStore]) -> None:
    """Where an entry stands may have become known meanwhile."""
    store = SlowStore({"data": DATA})
    stores.append(store)
    reader = RangeReader(Location(store.url, range_bytes=10), "data", 1000)

    with RangePrefetcher([reader.span(0, 100)], at_once=True) as prefetcher:
        begun = prefetcher.start(reader.span(0, 100))
        prefetcher.next_range(begun)
        assert _all_of(reader.span(35, 100), prefetcher) == DATA[35:100]

    # Those before it may have begun before they were left out.
    assert 8 <= store.flights.count <= 10


def test_blocking_stores_are_asked_for_nothing_ahead() -> None:
    """Though more is planned."""
    script = FaultScript({f"object-{n}": DATA for n in range(4)})
    spans = _spans(replace(script.location(), range_bytes=100), 4, 1000)

    with (
        RangePrefetcher(spans, at_once=True) as prefetcher,
        RangeStream(spans[0], prefetcher) as stream,
    ):
        for count, position in enumerate(range(0, 1000, 100), start=1):
            stream.at(position, 1)
            assert len(script.requests) == count


@pytest.mark.parametrize("version", ["first", "second"])
def test_version_of_an_object_of_one_range_is_asked_for_behind_it(version: str) -> None:
    """By the thread that fetched it: a consumer of many objects does not wait for each."""
    script = ToldByHead(_objects(3))
    script.version = version
    trace = RequestTrace()
    location = replace(script.location(is_async=True), range_bytes=10, trace=trace)
    spans = [
        replace(each, reader=replace(each.reader, version=ETag("first")))
        for each in _spans(location, 3)
    ]

    with RangePrefetcher(spans, at_once=True) as prefetcher:
        for span in spans:
            if version == "first":
                _all_of(span, prefetcher)
                continue
            with pytest.raises(ObjectChangedError):
                _all_of(span, prefetcher)

    if version == "first":
        assert trace.counts.head_requests == 3


def test_bytes_of_another_version_than_the_stream_s_are_not_taken() -> None:
    """Though they were requested, and the object has the same name and length."""
    script = ToldByHead(_objects(2))
    location = replace(script.location(is_async=True), range_bytes=10)
    wanted = RangeReader(location, "object-1", 10, ETag("second")).span(0, 10)
    planned = replace(wanted, reader=replace(wanted.reader, version=ETag("first")))

    with RangePrefetcher([*_spans(location, 1), planned], at_once=True) as prefetcher:
        _all_of(_spans(location, 1)[0], prefetcher)
        with pytest.raises(ObjectChangedError):
            _all_of(wanted, prefetcher)
        assert _all_of(planned, prefetcher) == script.objects["object-1"]


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(0, 60), max_size=12),
    planned=st.data(),
    range_bytes=st.integers(1, 30),
    max_bytes=st.integers(1, 100),
    max_connections=st.integers(1, 6),
    is_async=st.booleans(),
)
def test_whatever_is_planned_streams_give_their_bytes(
    *,
    sizes: list[int],
    planned: st.DataObject,
    range_bytes: int,
    max_bytes: int,
    max_connections: int,
    is_async: bool,
) -> None:
    """Each byte that is read is right; if all is read as planned, each is fetched once."""
    objects = {f"object-{n}": DATA[n : n + size] for n, size in enumerate(sizes)}
    script, trace = FaultScript(objects), RequestTrace()
    location = script.location(is_async=is_async, max_connections=max_connections)
    location = replace(location, range_bytes=range_bytes, trace=trace)
    spans = [
        RangeReader(location, name, len(data)).span(0, len(data)) for name, data in objects.items()
    ]
    plan = planned.draw(st.just(spans) | st.lists(st.sampled_from(spans)) if spans else st.just([]))
    read = planned.draw(st.just(spans) | st.permutations(spans))

    with RangePrefetcher(
        plan, max_bytes=max_bytes, at_once=planned.draw(st.booleans())
    ) as prefetcher:
        for span in read:
            assert _all_of(span, prefetcher) == objects[span.reader.name]
            assert prefetcher._count >= 0
            assert prefetcher._bytes <= max(max_bytes, range_bytes)

    if plan == read == spans:
        assert trace.counts.range_bytes == sum(sizes)


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    steps=st.lists(st.tuples(st.integers(1, 30), st.booleans()), min_size=1, max_size=20),
    range_bytes=st.integers(1, 30),
    is_async=st.booleans(),
)
def test_streams_give_their_bytes_whenever_fetched_ones_are_dropped(
    *, sizes: list[int], steps: list[tuple[int, bool]], range_bytes: int, is_async: bool
) -> None:
    """In the middle of an object and between two; then nothing that was not taken is held."""
    objects = {f"object-{n}": DATA[n : n + size] for n, size in enumerate(sizes)}
    script = FaultScript(objects)
    location = replace(script.location(is_async=is_async), range_bytes=range_bytes)
    spans = [
        RangeReader(location, name, len(data)).span(0, len(data)) for name, data in objects.items()
    ]
    pause = cycle(steps)
    held = process_budgets().ranges.total

    with RangePrefetcher(spans, at_once=True) as prefetcher:
        for span, data in zip(spans, objects.values(), strict=True):
            with RangeStream(span, prefetcher) as stream:
                position = 0
                while position < span.stop:
                    length, is_dropped = next(pause)
                    length = min(length, span.stop - position)
                    view, index = stream.at(position, length)
                    assert view[index : index + length] == data[position : position + length]
                    position += length
                    if is_dropped:
                        prefetcher.shrink()
                        assert (prefetcher._count, prefetcher._bytes) == (0, 0)
                        assert process_budgets().ranges.total == held


def test_readers_of_a_process_request_no_more_ahead_than_one(stores: list[SlowStore]) -> None:
    """But for the range that each needs; what one drops, the others may request."""
    store = SlowStore({"object-0": memoryview(bytes(256 << 20))})
    stores.append(store)
    span = _spans(Location(store.url, range_bytes=8 << 20), 1, 256 << 20)[0]
    budget = process_budgets().ranges

    with ExitStack() as stack:
        every = [stack.enter_context(RangePrefetcher([span], at_once=True)) for _ in range(10)]
        streams = [stack.enter_context(RangeStream(span, each)) for each in every]
        for stream in streams:
            stream.at(0, 1)
            assert budget.total <= DEFAULT_PREFETCH_BYTES
        assert [each._count for each in every] == [14] + [0] * 9
        assert budget.was_refused
        every[0].shrink()
        streams[-1].at(8 << 20, 1)
        # One is needed, and has been taken.
        assert [each._count for each in every] == [0] * 9 + [14]
    assert budget.total == 0


class _BusyStore(FaultScript):
    """Refuses each request once as long as it is busy, and counts those that nobody has taken."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__(objects)
        self.is_busy = True
        self._refused: set[str] = set()

    def answer(self, path: str, start: int, stop: int) -> bytes:
        if self.is_busy and path not in self._refused:
            self._refused.add(path)
            raise s3_error(503, "SlowDown")
        return super().answer(path, start, stop)


def _requests_kept(prefetcher: RangePrefetcher, spans: list[ByteSpan]) -> list[int]:
    """How many requests are sent and not taken, behind each of some spans."""
    kept = []
    for span in spans:
        _all_of(span, prefetcher)
        kept.append(prefetcher._count)
    return kept


@pytest.mark.parametrize("at_once", [False, True])
def test_a_store_that_refuses_requests_is_sent_fewer(*, at_once: bool) -> None:
    """Half as many each time that those before were taken, down to the one that is needed."""
    script = _BusyStore(_objects(200))
    spans = _spans(replace(script.location(is_async=True), range_bytes=10), 200)

    with RangePrefetcher(spans, at_once=at_once) as prefetcher:
        kept = _requests_kept(prefetcher, spans)

    assert kept[0] == (39 if at_once else 0)
    assert max(kept[100:]) <= 1


def test_the_window_is_halved_once_for_the_requests_that_were_under_way() -> None:
    """Though the store refuses one after the other of them."""
    script = _BusyStore(_objects(200))
    spans = _spans(replace(script.location(is_async=True), range_bytes=10), 200)

    with RangePrefetcher(spans, at_once=True) as prefetcher:
        kept = _requests_kept(prefetcher, spans[:39])

    assert kept[-1] == 19


class _ForOnceBusyStore(SlowStore):
    """Refuses its first request."""

    is_busy = True

    async def answer(self, name: str, start: int | None, stop: int | None) -> bytes | memoryview:
        if self.is_busy:
            self.is_busy = False
            raise s3_error(503, "SlowDown")
        return await super().answer(name, start, stop)


def test_a_store_that_refused_requests_is_sent_more_again_step_by_step(
    stores: list[SlowStore],
) -> None:
    """And not eight times as many."""
    store = _ForOnceBusyStore(_objects(60), waves=[1, 1, 2, 3])
    stores.append(store)
    retry = RetryPolicy(sleep=lambda _seconds: None)
    spans = _spans(Location(store.url, retry=retry, range_bytes=10), 60)

    with RangePrefetcher(spans) as prefetcher:
        # Without the refusal it would be 3 behind the second.
        assert _requests_kept(prefetcher, spans[:3]) == [0, 0, 1]
        _requests_kept(prefetcher, spans[3:])

    assert store.waves_left == []
