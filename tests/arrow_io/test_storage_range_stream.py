"""A stream moves forward over an object, prefetches as promised, and holds no more than it may."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrow_io.core import threads
from arrow_io.errors import OptionError, StorageError, TruncatedObjectError
from arrow_io.storage.location import Location
from arrow_io.storage.range_prefetch import RangePrefetcher
from arrow_io.storage.range_stream import RangeStream
from arrow_io.storage.ranges import RangeReader
from arrow_io.storage.trace import RequestTrace
from tests.support.faulty_storage import FaultScript, as_it_is, cut_to, raising, s3_error
from tests.support.slow_store import SlowStore

DATA = bytes(index * 7 % 251 for index in range(1000))
NAME = "data"


def _take(stream: RangeStream, position: int, length: int) -> bytes:
    view, index = stream.at(position, length)
    assert view.readonly
    return bytes(view[index : index + length])


@pytest.fixture(autouse=True)
def _threads_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_MAX_IDLE_S", 0.0)
    monkeypatch.setattr(threads, "_threads", threads._Threads())


def _prefetch_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == threads._NAME]


def _join_prefetch_threads() -> None:
    for thread in _prefetch_threads():
        thread.join(30)
        assert not thread.is_alive()


_SENT = [1, 5, 10]
"""How many ranges must have been sent until each is answered: then the consumer waits for it."""
_ASKED = [1, 5, 12, 13, 14, 15]
"""How many ranges are asked for when each is taken, if there are 8 connections."""


def _waited_for() -> FaultScript:
    """A store that answers the first ranges only when the consumer has come to them, and waits."""

    def answered(data: bytes) -> bytes:
        number = DATA.find(data) // 10
        if data in DATA[:250] and number < len(_SENT):
            script.wait_for_requests(_SENT[number])
        return data

    script = FaultScript({NAME: DATA}, [answered] * 30)
    return script


def _wait_for_answers(stream: RangeStream) -> None:
    """Until all requests under way are answered."""
    for planned in stream._prefetcher._planned_spans:
        wait([each.future for each in planned.requests if each.future is not None], timeout=30)


def _reader(script: FaultScript | None = None, range_bytes: int = 100) -> RangeReader:
    """A reader of the object in ranges, in a store that blocks."""
    location = (script or FaultScript({NAME: DATA})).location()
    return RangeReader(replace(location, range_bytes=range_bytes), NAME, 1000)


class TestStream:
    """How a stream moves on, and what it holds."""

    def test_the_whole_range_is_handed_through(self) -> None:
        """Within one range the same buffer is given again, with all that follows in it."""
        reader = _reader()

        with RangeStream(reader.span(50, 1000)) as stream:
            view, index = stream.at(50, 10)
            later, later_index = stream.at(90, 60)
            behind, behind_index = stream.at(150, 10)
            stream.at(240, 20)
            end, end_index = stream.at(260, 90)

        assert bytes(view) == DATA[50:150]
        assert index == 0
        assert later is view
        assert later_index == 40
        assert (bytes(behind), behind_index) == (DATA[150:250], 0)
        assert (bytes(end), end_index) == (DATA[250:350], 10)

    def test_bytes_over_several_ranges_are_joined_exactly(self) -> None:
        """A view of straddling bytes holds these bytes and no others."""
        script = FaultScript({NAME: DATA})

        with RangeStream(_reader(script).span(0, 1000)) as stream:
            stream.at(0, 1)
            view, index = stream.at(95, 310)
            assert (bytes(view), index) == (DATA[95:405], 0)
            again, again_index = stream.at(95, 10)
            assert (bytes(again), again_index) == (DATA[95:105], 0)
            assert _take(stream, 120, 30) == DATA[120:150]
        assert script.requests == [(start, start + 100) for start in range(0, 500, 100)]

    def test_the_same_position_can_be_asked_again_for_more(self) -> None:
        """What was given is kept until the consumer has moved past it."""
        script = FaultScript({NAME: DATA})

        with RangeStream(_reader(script, range_bytes=10).span(0, 1000)) as stream:
            stream.at(0, 1)
            for length in (1, 10, 11, 55, 7):
                assert _take(stream, 5, length) == DATA[5 : 5 + length]
        assert script.requests == [(start, start + 10) for start in range(0, 60, 10)]

    def test_going_back_is_refused(self) -> None:
        """A position in a range that was left behind is an error of the caller."""
        with RangeStream(_reader().span(0, 1000)) as stream:
            stream.at(0, 1)
            stream.at(95, 10)
            stream.at(150, 10)
            with pytest.raises(OptionError, match=r"1 byte at 99: .* has passed 100") as raised:
                stream.at(99, 1)
            assert (raised.value.object_key, raised.value.offset) == (NAME, 99)
            with pytest.raises(OptionError):
                stream.at(150, -1)
            assert _take(stream, 100, 1) == DATA[100:101]

    def test_before_the_start_is_refused(self) -> None:
        """The stream's own start is the first position there is."""
        reader = _reader()

        with RangeStream(reader.span(10, 20)) as stream, pytest.raises(OptionError):
            stream.at(9, 1)

    def test_beyond_the_stop_is_refused(self) -> None:
        """At the object's end it is cut; within the object the caller is wrong."""
        reader = _reader()

        cut = pytest.raises(TruncatedObjectError, match="up to 1001 of an object of 1000 bytes")
        with RangeStream(reader.span(0, 1000)) as stream, cut as raised:
            stream.at(999, 2)
        with (
            RangeStream(reader.span(0, 500)) as stream,
            pytest.raises(OptionError, match="ends at 500"),
        ):
            stream.at(499, 2)
        assert (raised.value.object_key, raised.value.offset) == (NAME, 1000)

    def test_no_bytes_are_no_request(self) -> None:
        """An empty view comes with an index into it, wherever the stream stands."""
        script = FaultScript({NAME: DATA})

        with RangeStream(_reader(script).span(0, 1000)) as stream:
            for position in (0, 500, 1000):
                view, index = stream.at(position, 0)
                assert (bytes(view), index) == (b"", 0)
        assert script.requests == []

    def test_what_is_skipped_is_not_fetched(self) -> None:
        """After a skip the next range begins at the position asked for."""
        script = FaultScript({NAME: DATA})

        with RangeStream(_reader(script).span(0, 1000)) as stream:
            assert _take(stream, 0, 10) == DATA[:10]
            assert _take(stream, 730, 10) == DATA[730:740]
        assert script.requests == [(0, 100), (730, 830)]

    def test_a_failed_range_fails_again_and_can_recover(self) -> None:
        """An error leaves the stream in order: the same bytes can be asked for once more."""
        failures = [raising(s3_error(403, "AccessDenied"))] * 2
        script = FaultScript({NAME: DATA}, [as_it_is, *failures])
        with RangeStream(_reader(script).span(0, 1000)) as stream:
            stream.at(0, 10)
            for _ in failures:
                with pytest.raises(StorageError):
                    stream.at(130, 10)
                with pytest.raises(OptionError):
                    stream.at(0, 10)
            assert _take(stream, 130, 10) == DATA[130:140]

    def test_a_failed_range_can_be_passed(self) -> None:
        """A range that failed, and that nobody needs any more, is in nobody's way."""
        script = FaultScript({NAME: DATA}, [raising(s3_error(403, "AccessDenied"))])
        with RangeStream(_reader(script).span(0, 1000)) as stream:
            with pytest.raises(StorageError):
                stream.at(0, 10)
            assert _take(stream, 250, 10) == DATA[250:260]

    def test_a_closed_stream_gives_nothing(self) -> None:
        """Closing is final, and doing it twice is no error."""
        reader = _reader()
        with RangeStream(reader.span(0, 1000)) as stream:
            stream.at(0, 10)
        stream.close()

        with pytest.raises(OptionError, match="closed"):
            stream.at(0, 10)

    def test_blocking_file_systems_are_read_in_the_callers_thread(self) -> None:
        """Where threads gain nothing, nothing is prefetched."""
        script = FaultScript({NAME: DATA})

        with RangeStream(_reader(script, range_bytes=10).span(0, 1000)) as stream:
            for count, position in enumerate(range(0, 1000, 10), start=1):
                stream.at(position, 10)
                assert len(script.requests) == count
            assert stream._prefetcher._requests is None


class TestPrefetch:
    """How far ahead a stream of an asynchronous store asks."""

    def _reader(self, script: FaultScript, max_connections: int = 8) -> RangeReader:
        location = script.location(is_async=True, max_connections=max_connections)
        return RangeReader(replace(location, range_bytes=10), NAME, len(DATA))

    def test_the_window_grows_up_to_its_bound(self) -> None:
        """1, 4, then all ranges that may be are asked for, if the consumer has to wait for each."""
        script = _waited_for()

        with RangeStream(self._reader(script).span(0, 1000)) as stream:
            for number, asked in enumerate(_ASKED):
                assert _take(stream, number * 10, 10) == DATA[number * 10 : number * 10 + 10]
                assert stream._planned.next_start == asked * 10
            requests = script.wait_for_requests(_ASKED[2])
        _join_prefetch_threads()

        assert requests == [(start * 10, start * 10 + 10) for start in range(len(requests))]

    def test_as_many_ranges_are_under_way_as_there_are_connections(self) -> None:
        """A fourth as many follow when those end, though the consumer does not come."""
        store = SlowStore({NAME: DATA}, waves=[1, 8, 2])
        location = Location(store.url, {"max_connections": 8}, range_bytes=10)
        span = RangeReader(location, NAME, 1000).span(0, 1000)
        try:
            with RangePrefetcher([span]) as prefetcher, RangeStream(span, prefetcher) as stream:
                stream.at(0, 10)
                prefetcher._window = 100
                stream.at(10, 10)
                stream.at(20, 10)
                _wait_for_answers(stream)
            assert (store.waves_left, store.flights.greatest) == ([], 8)
        finally:
            store.drop()

    def test_a_consumer_that_stops_has_fetched_one_range(self) -> None:
        """Reading only the first bytes costs one request, whatever the window may grow to."""
        script = FaultScript({NAME: DATA})

        with RangeStream(self._reader(script).span(0, 1000)) as stream:
            stream.at(0, 10)
            stream.at(3, 5)
        _join_prefetch_threads()

        assert script.requests == [(0, 10)]

    def test_a_consumer_that_never_waits_has_four_requests_under_way(self) -> None:
        """The one that it reads and the next: a store that is faster needs no more memory."""
        script = FaultScript({NAME: DATA})

        with RangeStream(self._reader(script).span(0, 1000)) as stream:
            for number in range(20):
                assert _take(stream, number * 10, 10) == DATA[number * 10 : number * 10 + 10]
                script.wait_for_requests(number + 1 + 3 * (number > 0))
                _wait_for_answers(stream)
        _join_prefetch_threads()

        assert len(script.requests) == 23

    def test_one_connection_prefetches_nothing(self) -> None:
        """Then each range is asked for when it is needed."""
        script = FaultScript({NAME: DATA})

        with RangeStream(self._reader(script, 1).span(0, 1000)) as stream:
            for position in range(0, 100, 10):
                stream.at(position, 10)
        assert len(script.requests) == 10

    def test_what_may_not_be_needed_is_not_prefetched(self) -> None:
        """From `sure_stop` on, each range is asked for when it is needed."""
        script = FaultScript({NAME: DATA})

        with RangeStream(self._reader(script).span(0, 100, sure_stop=30)) as stream:
            for position in (0, 10, 20):
                assert _take(stream, position, 10) == DATA[position : position + 10]
            assert script.wait_for_requests(3) == [(0, 10), (10, 20), (20, 30)]
            for position in range(30, 100, 10):
                assert _take(stream, position, 10) == DATA[position : position + 10]
                assert max(script.requests) == (position, position + 10)
        _join_prefetch_threads()

        assert len(script.requests) == 10

    def test_a_range_ends_where_it_may_not_be_needed(self) -> None:
        """What is asked for at `sure_stop` is not longer than what surely is needed."""
        script = FaultScript({NAME: DATA})

        with RangeStream(self._reader(script).span(0, 100, sure_stop=25)) as stream:
            for position in (0, 10, 20):
                assert _take(stream, position, 5) == DATA[position : position + 5]
            assert script.wait_for_requests(3) == [(0, 10), (10, 20), (20, 25)]
            assert _take(stream, 25, 10) == DATA[25:35]
        _join_prefetch_threads()

        assert max(script.requests) == (25, 35)

    def test_behind_the_last_range_nothing_is_prefetched(self) -> None:
        """Two ranges are two requests: none is sent for what is not there."""
        script = FaultScript({NAME: DATA})

        with RangeStream(self._reader(script).span(0, 20)) as stream:
            for position in (0, 10):
                stream.at(position, 10)

    def test_what_waits_for_a_thread_is_never_sent_once_it_is_stopped(self) -> None:
        """Whoever waits for it is told so, as soon as a thread comes to it."""
        released = threading.Event()

        def hang_ahead(data: bytes) -> bytes:
            assert data not in (DATA[20:30], DATA[510:520]) or released.wait(30)
            return data

        script = FaultScript({NAME: DATA}, [hang_ahead] * 20)
        span = self._reader(script, 2).span(0, 1000)
        with RangePrefetcher() as prefetcher, RangeStream(span, prefetcher) as stream:
            for position in (0, 10, 500):
                stream.at(position, 10)
            script.wait_for_requests(5)
            with ThreadPoolExecutor(1) as consumer:
                waiting = consumer.submit(stream.at, 700, 10)  # both threads are busy
                prefetcher.stop()
                released.set()
                assert isinstance(waiting.exception(30), CancelledError)
        _join_prefetch_threads()

        assert all(start < 700 for start, _ in script.requests)

    def test_ranges_under_way_that_are_skipped_are_dropped(self) -> None:
        """A skip over prefetched ranges goes on right where the consumer wants to."""
        script = _waited_for()

        with RangeStream(self._reader(script).span(0, 1000)) as stream:
            for position in (0, 10, 20):
                stream.at(position, 10)
            script.wait_for_requests(10)
            assert _take(stream, 505, 10) == DATA[505:515]
            assert _take(stream, 515, 10) == DATA[515:525]
        _join_prefetch_threads()

        before = [each for each in sorted(script.requests) if each[0] < 505]
        # Those that had no thread yet may have got one before the skip.
        assert before in [
            [(start, start + 10) for start in range(0, stop, 10)] for stop in range(100, 121, 10)
        ]
        assert (505, 515) in script.requests

    def test_an_error_ahead_waits_for_its_turn(self) -> None:
        """A prefetched range that failed is told when the consumer gets there, not before."""
        script = FaultScript({NAME: DATA[:25]})
        reader = RangeReader(replace(script.location(is_async=True), range_bytes=10), NAME, 1000)

        with RangeStream(reader.span(0, 1000)) as stream:
            assert _take(stream, 0, 10) == DATA[:10]
            assert _take(stream, 10, 10) == DATA[10:20]
            with pytest.raises(TruncatedObjectError) as raised:
                stream.at(20, 1)
        _join_prefetch_threads()

        assert raised.value.offset == 25

    def test_closing_waits_for_no_request(self) -> None:
        """A request under way that does not end does not hold up the consumer's leaving."""
        released = threading.Event()

        def hang_ahead(data: bytes) -> bytes:
            assert data != DATA[20:30] or released.wait(30)
            return data

        script = FaultScript({NAME: DATA}, [hang_ahead] * 3)
        stream = RangeStream(self._reader(script).span(0, 1000))
        stream.at(0, 10)
        stream.at(10, 10)
        script.wait_for_requests(5)
        stream.close()
        still_waiting = _prefetch_threads()
        released.set()
        _join_prefetch_threads()

        assert still_waiting

    @pytest.mark.parametrize("is_alone", [False, True])
    def test_a_closed_stream_holds_nothing(self, *, is_alone: bool) -> None:
        """Neither ranges that were read nor prefetched ones, even if its prefetcher is shared."""
        script = FaultScript({NAME: DATA})

        with RangePrefetcher() as prefetcher:
            span = self._reader(script).span(0, 1000)
            with RangeStream(span, None if is_alone else prefetcher) as stream:
                for position in (0, 10, 20):
                    stream.at(position, 10)
                script.wait_for_requests(4)
            used = stream._prefetcher
            assert (len(stream._ranges), len(stream._current)) == (0, 0)
            assert (used._count, used._bytes, len(used._planned_spans)) == (0, 0, 0)
        _join_prefetch_threads()

    def test_an_abandoned_consumer_holds_a_bounded_number_of_ranges(self) -> None:
        """For four connections at most five are requested; two more may be held to be joined."""
        script = FaultScript({NAME: DATA})

        with RangeStream(self._reader(script, 4).span(0, 1000)) as stream:
            for position in range(0, 900, 10):
                stream.at(position + 5, 10)
                assert stream._prefetcher._count <= 5
                assert len(stream._ranges) <= 2
        _join_prefetch_threads()


@settings(deadline=None)  # threads may have to wait for a busy machine
@given(
    size_bytes=st.integers(0, 300),
    range_bytes=st.integers(1, 80),
    max_connections=st.integers(1, 5),
    is_async=st.booleans(),
    data=st.data(),
)
def test_whatever_is_asked_forwards_is_right(
    size_bytes: int, range_bytes: int, max_connections: int, is_async: bool, data: st.DataObject
) -> None:
    """Any forward walk, with answers cut anywhere, gives the object's bytes, each fetched once."""
    content = DATA[:size_bytes]
    start = data.draw(st.integers(0, size_bytes))
    stop = data.draw(st.integers(start, size_bytes))
    cuts = data.draw(st.lists(st.integers(1, 80).map(cut_to), max_size=10))
    script = FaultScript({NAME: content}, cuts)
    trace = RequestTrace()
    reader = RangeReader(
        replace(
            script.location(is_async=is_async, max_connections=max_connections),
            range_bytes=range_bytes,
            trace=trace,
        ),
        NAME,
        size_bytes,
    )

    position = start
    with RangeStream(reader.span(start, stop)) as stream:
        for _ in range(data.draw(st.integers(0, 12))):
            position = data.draw(st.integers(position, stop))
            length = data.draw(st.integers(0, stop - position))
            view, index = stream.at(position, length)
            assert view[index : index + length] == content[position : position + length]
    _join_prefetch_threads()

    assert trace.counts.range_bytes <= stop - start
    assert trace.counts.head_requests == 0
