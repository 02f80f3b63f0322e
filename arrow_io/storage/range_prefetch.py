"""Requests for ranges, sent before they are needed, in the order in which streams come to them.

How many are under way follows from what the consumer meets: 1, 4, 32 and so on, each time that it
has to wait for a range. So a consumer that is slower than the store keeps few. If the store answers
that it is asked for too much, half as many are kept, and one more each time that the consumer has
waited for as many as there are.

How long ranges are follows from how much was requested before, and from nothing else: the same read
asks for the same ranges. What was learned in one object is used in the next.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, Self

from arrow_io.core.shared_budget import process_budgets
from arrow_io.core.threads import WorkerPool
from arrow_io.storage.range_memory import RangeMemory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from arrow_io.storage.attempts import Refusals
    from arrow_io.storage.location import Location
    from arrow_io.storage.object_store import RangeContent
    from arrow_io.storage.ranges import ByteSpan

DEFAULT_PREFETCH_BYTES: Final = 120 << 20
"""Maximum bytes that all readers of a process request before they need them."""
_UNBOUNDED: Final = 1 << 20
"""More requests than any store is sent at a time."""
_WIDER: Final = {0: 1, 1: 4}
"""From no and from one request; whoever stops early does so with the first ranges."""
_MUCH_WIDER: Final = 8
"""By how much else: each step lasts as long as a request, whatever it leaves unused."""
_GROWTH_SHARE: Final = 16
"""Ranges are so many times shorter than what was requested before them."""


@dataclass(slots=True)
class RangeRequest:
    """A request for the bytes `[start, stop)` of an object.

    Attributes:
        start: First byte.
        stop: Byte behind the last one (half-open).
        future: Its answer; None: the file system is not asynchronous, so the consumer's thread
            sends it when it needs the bytes.
    """

    start: int
    stop: int
    future: Future[RangeContent] | None = None

    @property
    def size_bytes(self) -> int:
        """How many bytes are asked for."""
        return self.stop - self.start


@dataclass(slots=True, eq=False)
class PlannedSpan:
    """A span, and what was requested of it.

    Attributes:
        span: The span.
        next_start: First byte that was not requested yet.
        requests: The requests whose answers nobody has taken, in order.
    """

    span: ByteSpan
    next_start: int
    requests: deque[RangeRequest] = field(default_factory=deque)

    def is_for(self, span: ByteSpan) -> bool:
        """Whether a stream of another span can go on with what was requested of this one."""
        planned = self.span
        return (
            planned.reader == span.reader
            and planned.stop == span.stop
            and planned.start <= span.start
        )


class RangePrefetcher:
    """Sends the requests of one consumer, who reads one stream after the other.

    At most `Location.max_connections` requests are under way at a time. A fourth as many are
    planned to follow as soon as one ends, whether the consumer comes or not, so that connections
    are busy while it works. What it does not need yet, answered or not, has no more than
    `max_bytes`, nor all readers of the process together more than `DEFAULT_PREFETCH_BYTES`; but a
    range that the consumer waits for is always requested. The first request is sent alone, so a
    consumer that stops early has fetched no more than it needed.

    File systems that are not asynchronous are read in the consumer's thread alone: local files and
    memory answer faster than a thread can be woken, and others (SFTP, SMB) share one connection,
    which is not safe to use from several threads.

    The consumer may change threads between calls, but only one thread may call at a time; `stop`
    may be called beside it.

    Args:
        spans: What streams will read, in this order. A stream of another span is served too, but
            nothing of it is requested before it begins.
        max_bytes: Most bytes that are requested before they are needed.
        at_once: Whether as many requests as may be are sent at the start: for few bytes, all of
            which are needed.
    """

    def __init__(
        self,
        spans: Iterable[ByteSpan] = (),
        *,
        max_bytes: int = DEFAULT_PREFETCH_BYTES,
        at_once: bool = False,
    ) -> None:
        self._plan: Iterator[ByteSpan] = iter(spans)
        self._planned_spans: deque[PlannedSpan] = (
            deque()
        )  # those that streams have not left, in order
        self._max_bytes = max_bytes
        self._window: float = _UNBOUNDED if at_once else 0  # most requests that were not taken
        self._refusals: dict[Refusals, int] = {}  # how many were known of each location
        self._was_refused = False
        self._settling = 0  # requests, not taken yet, that were sent before the window was halved
        self._requested_bytes = 0  # since the beginning
        self._count = 0  # requests that were not taken
        self._bytes = 0  # that they ask for
        self._requests: WorkerPool | None = None
        self._is_stopped = False
        self._memory = RangeMemory()
        self._share = process_budgets().ranges.share()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Drop all that was requested."""
        self.close()

    def start(self, span: ByteSpan) -> PlannedSpan:
        """Take up a span; what was planned before it is left out."""
        for place, each in enumerate(self._planned_spans):
            if each.is_for(span):
                return self._resume(place, span)
        following = self._pull()
        if following is not None and following.is_for(span):
            return self._resume(len(self._planned_spans) - 1, span)
        planned = PlannedSpan(span, span.start)
        self._planned_spans.appendleft(planned)
        return planned

    def _resume(self, place: int, span: ByteSpan) -> PlannedSpan:
        for _ in range(place):
            self.finish(self._planned_spans[0])
        self.skip_to(self._planned_spans[0], span.start)
        return self._planned_spans[0]

    def next_range(self, planned: PlannedSpan) -> tuple[RangeRequest, RangeContent]:
        """The next range of a span, until `advance` is called.

        One that fails stays the next, so the next call fails likewise.

        Raises:
            CancelledError: It was told to stop.
            PulsarOffloadError: See `RangeReader.read`.
        """
        self.check_running()
        self._adapt_window(planned)
        self._prefetch(planned)
        request = planned.requests[0]
        if request.future is None:
            return request, _fetch(planned.span, request.start, request.stop, self._memory)
        return request, request.future.result()

    def _adapt_window(self, planned: PlannedSpan) -> None:
        """Halve the window if the store refused requests; else widen it if the consumer waits."""
        first = planned.requests[0] if planned.requests else None
        if self._is_refused(planned.span.reader.location.refusals):
            self._was_refused = True
            self._settling = self._count
            self._window = max(1, self._count // 2)
        elif first is None or first.future is None or not first.future.done():
            if self._was_refused:
                self._window += 1 / self._window
            else:
                self._window = _WIDER.get(int(self._window), self._window * _MUCH_WIDER)

    def _is_refused(self, refusals: Refusals) -> bool:
        """Return whether the store refused requests that were sent since the window was halved."""
        earlier_count = self._refusals.get(refusals, refusals.count)
        self._refusals[refusals] = refusals.count
        return refusals.count > earlier_count and not self._settling

    def advance(self, planned: PlannedSpan) -> None:
        """Go on behind the next range of a span."""
        request = planned.requests.popleft()
        self._count -= 1
        self._settling = max(0, self._settling - 1)
        self._bytes -= request.size_bytes
        self._share.hold(self._bytes)
        if request.future is not None:
            request.future.cancel()

    def skip_to(self, planned: PlannedSpan, position: int) -> int:
        """Leave out what was requested before a position.

        Returns:
            First byte of the range that is taken next.
        """
        while planned.requests and planned.requests[0].stop <= position:
            self.advance(planned)
        if planned.requests:
            return planned.requests[0].start
        planned.next_start = position
        return position

    def finish(self, planned: PlannedSpan) -> None:
        """Leave a span: drop what was requested of it."""
        while planned.requests:
            self.advance(planned)
        if planned in self._planned_spans:
            self._planned_spans.remove(planned)

    def shrink(self) -> None:
        """Drop all that was requested and not taken; streams request it again when they need it.

        To be called while no stream is read.
        """
        for planned in self._planned_spans:
            if planned.requests:
                planned.next_start = planned.requests[0].start
                self._requested_bytes -= sum(each.size_bytes for each in planned.requests)
            while planned.requests:
                self.advance(planned)
        self._window = 1 if self._was_refused else 0
        self._memory.drop_unused()

    def close(self) -> None:
        """Drop all that was requested; waits for no request that is under way."""
        self.stop()
        while self._planned_spans:
            self.finish(self._planned_spans[0])
        self._plan = iter(())
        self._memory.close()

    def stop(self) -> None:
        """Send no request any more. Any thread may call this, wherever Python collects garbage."""
        self._is_stopped = True
        if self._requests is not None:
            self._requests.stop()

    def check_running(self) -> None:
        """Do nothing, unless it was told to stop.

        Raises:
            CancelledError: It was.
        """
        if self._is_stopped:
            raise CancelledError

    def _pull(self) -> PlannedSpan | None:
        """The next planned span."""
        span = next(self._plan, None)
        if span is None:
            return None
        planned = PlannedSpan(span, span.start)
        self._planned_spans.append(planned)
        return planned

    def _prefetch(self, current: PlannedSpan) -> None:
        """RangeRequest what the current span needs now, and then as much as may be."""
        if not current.requests:
            request = self._request(current)
            if current.span.reader.location.is_async:
                # Though the consumer waits for it: a thread that sends cannot be stopped.
                self._submit(current.span, request)
        for each in self._unrequested_spans(current):
            if not self._has_room(each.span.reader.location):
                return
            self._submit(each.span, self._request(each))

    def _unrequested_spans(self, current: PlannedSpan) -> Iterator[PlannedSpan]:
        """A span and those behind it, each as often as there is something of it to request."""
        unfinished = [current]
        # Requests are sent in order, so of the last alone something is left.
        for each in reversed(self._planned_spans):
            if each is current or each.next_start >= each.span.sure_stop:
                break
            unfinished.insert(1, each)
        for each in chain(unfinished, iter(self._pull, None)):
            while each.next_start < each.span.sure_stop:
                yield each

    def _has_room(self, location: Location) -> bool:
        needed_bytes = self._bytes + self._range_bytes(location)
        return (
            self._count < min(self._window, _most_requests(location))
            and needed_bytes <= self._max_bytes
            and location.is_async
            and self._share.grow(needed_bytes, DEFAULT_PREFETCH_BYTES)
        )

    def _range_bytes(self, location: Location) -> int:
        first = location.first_range_bytes
        longest = min(location.longest_range_bytes, self._max_bytes // _most_requests(location))
        grown = self._requested_bytes // _GROWTH_SHARE // first * first
        return max(min(grown, longest), first)

    def _request(self, planned: PlannedSpan) -> RangeRequest:
        start, span = planned.next_start, planned.span
        stop = start + self._range_bytes(span.reader.location)
        stop = min(stop, span.sure_stop if start < span.sure_stop else span.stop)
        request = RangeRequest(start, stop)
        planned.requests.append(request)
        planned.next_start = stop
        self._count += 1
        self._bytes += stop - start
        self._share.hold(self._bytes)
        self._requested_bytes += stop - start
        return request

    def _submit(self, span: ByteSpan, request: RangeRequest) -> None:
        if self._requests is None:
            self._requests = WorkerPool(span.reader.location.max_connections, idle_s=0)
        fetch = partial(_fetch, span, request.start, request.stop, self._memory)
        request.future = self._requests.submit(fetch)


def _most_requests(location: Location) -> int:
    """Most requests that are sent and not taken; with a single connection, none is prefetched."""
    return location.max_connections + location.max_connections // 4


def _fetch(span: ByteSpan, start: int, stop: int, memory: RangeMemory) -> RangeContent:
    """A range; if it is all of the span, and its answer tells no version, that is asked for."""
    # It knows nothing of its request: the error of one that nobody takes would keep that.
    content = span.reader.read_content(start, stop, memory)
    if content.version is None and (start, stop) == (span.start, span.stop):
        span.reader.check_version()
        return replace(content, version=span.reader.version)
    return content
