"""Prefetch of ranges: requests sent before they are needed, in the order in which streams read.

The maximum number of requests that are not taken yet (the *window*) adapts to the consumer. It
grows to 1, 4, 32 and so on, each time that the consumer has to wait for a range, so a slow consumer
keeps few. If the store answers that it receives too many requests, the window is halved. Then it
grows by one each time that the consumer has waited for a whole window of ranges.

The size of ranges depends only on how much was requested before, so the same read requests the same
ranges. Window and size carry over from one object to the next.
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
"""More requests than any store receives at a time."""
_NEXT_WINDOWS: Final = {0: 1, 1: 4}
"""Next window after 0 and 1: a consumer that stops early does so within the first ranges."""
_WINDOW_GROWTH: Final = 8
"""Growth factor of wider windows: each step costs one request's latency, even if it is unused."""
_GROWTH_SHARE: Final = 16
"""The size of a range is the number of bytes requested before it, divided by this."""


@dataclass(slots=True)
class RangeRequest:
    """A request for the bytes `[start, stop)` of an object."""

    start: int
    stop: int
    future: Future[RangeContent] | None = None
    """The answer. None if the file system is not asynchronous: the consumer's thread then sends the
    request when it needs the bytes."""

    @property
    def size_bytes(self) -> int:
        """Size of the range, in bytes."""
        return self.stop - self.start


@dataclass(slots=True, eq=False)
class PlannedSpan:
    """A span and the requests for it."""

    span: ByteSpan
    next_start: int
    """First byte that is not requested yet."""
    requests: deque[RangeRequest] = field(default_factory=deque)
    """The requests whose answers are not taken yet, in order."""

    def is_for(self, span: ByteSpan) -> bool:
        """Return whether a stream of another span can use the requests for this one."""
        planned = self.span
        return (
            planned.reader == span.reader
            and planned.stop == span.stop
            and planned.start <= span.start
        )


class RangePrefetcher:
    """Sends the range requests of one consumer, who reads one stream after the other.

    At most `Location.max_connections` requests are in flight at a time. A quarter as many more are
    queued, so that connections stay busy while the consumer works. Ranges that it does not need
    yet, received or not, have at most `max_bytes`, and those of all readers of the process at most
    `DEFAULT_PREFETCH_BYTES`. A range that the consumer waits for is always requested. The first
    request is sent alone, so a consumer that stops early has fetched only what it needed.

    File systems that are not asynchronous are read only in the consumer's thread. Local files and
    memory answer faster than a thread can be woken; others (SFTP, SMB) have one connection, which
    several threads must not use.

    The consumer may change threads between calls, but only one thread may call at a time; any
    thread may call `stop` meanwhile.

    Args:
        spans: The spans that streams will read, in this order. A stream of another span works too,
            but is not prefetched before it starts.
        max_bytes: Maximum bytes that are requested before they are needed.
        at_once: Whether to send the maximum number of requests from the start: for few bytes, all
            of which are needed.
    """

    def __init__(
        self,
        spans: Iterable[ByteSpan] = (),
        *,
        max_bytes: int = DEFAULT_PREFETCH_BYTES,
        at_once: bool = False,
    ) -> None:
        self._plan: Iterator[ByteSpan] = iter(spans)
        # Spans that streams have not finished, in order.
        self._planned_spans: deque[PlannedSpan] = deque()
        self._max_bytes = max_bytes
        self._window: float = _UNBOUNDED if at_once else 0  # maximum of `_count`
        self._refusals: dict[Refusals, int] = {}  # last seen count of each location
        self._was_refused = False
        self._settling = 0  # requests, not taken yet, that were sent before the window was halved
        self._requested_bytes = 0  # since the start
        self._count = 0  # requests that are not taken yet
        self._bytes = 0  # size of their ranges
        self._requests: WorkerPool | None = None
        self._is_stopped = False
        self._memory = RangeMemory()
        self._share = process_budgets().ranges.share()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Drop all requests."""
        self.close()

    def start(self, span: ByteSpan) -> PlannedSpan:
        """Start a span; planned spans before it are dropped."""
        for place, each in enumerate(self._planned_spans):
            if each.is_for(span):
                return self._resume(place, span)
        next_span = self._pull()
        if next_span is not None and next_span.is_for(span):
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
        """Return the next range of a span, the same one until `advance` is called.

        A range that fails stays the next one, so the next call fails likewise.

        Raises:
            CancelledError: `stop` was called.
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
                self._window = _NEXT_WINDOWS.get(int(self._window), self._window * _WINDOW_GROWTH)

    def _is_refused(self, refusals: Refusals) -> bool:
        """Return whether the store refused requests that were sent since the window was halved."""
        earlier_count = self._refusals.get(refusals, refusals.count)
        self._refusals[refusals] = refusals.count
        return refusals.count > earlier_count and not self._settling

    def advance(self, planned: PlannedSpan) -> None:
        """Move past the next range of a span."""
        request = planned.requests.popleft()
        self._count -= 1
        self._settling = max(0, self._settling - 1)
        self._bytes -= request.size_bytes
        self._share.hold(self._bytes)
        if request.future is not None:
            request.future.cancel()

    def skip_to(self, planned: PlannedSpan, position: int) -> int:
        """Drop the requests for bytes before a position.

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
        """End a span: drop its requests."""
        while planned.requests:
            self.advance(planned)
        if planned in self._planned_spans:
            self._planned_spans.remove(planned)

    def shrink(self) -> None:
        """Drop all requests that are not taken; streams repeat them when they need them.

        Call this only while no stream is read.
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
        """Drop all requests, without waiting for those in flight."""
        self.stop()
        while self._planned_spans:
            self.finish(self._planned_spans[0])
        self._plan = iter(())
        self._memory.close()

    def stop(self) -> None:
        """Send no further request. Any thread may call this; garbage collection may too."""
        self._is_stopped = True
        if self._requests is not None:
            self._requests.stop()

    def check_running(self) -> None:
        """Raise `CancelledError` if `stop` was called."""
        if self._is_stopped:
            raise CancelledError

    def _pull(self) -> PlannedSpan | None:
        """Move the next span of the plan to `_planned_spans` and return it."""
        span = next(self._plan, None)
        if span is None:
            return None
        planned = PlannedSpan(span, span.start)
        self._planned_spans.append(planned)
        return planned

    def _prefetch(self, current: PlannedSpan) -> None:
        """Request what the current span needs now, and then as much as the limits allow."""
        if not current.requests:
            request = self._request(current)
            if current.span.reader.location.is_async:
                # Use a thread although the consumer waits: a sending thread cannot be interrupted.
                self._submit(current.span, request)
        for each in self._unrequested_spans(current):
            if not self._has_room(each.span.reader.location):
                return
            self._submit(each.span, self._request(each))

    def _unrequested_spans(self, current: PlannedSpan) -> Iterator[PlannedSpan]:
        """Yield the current span and later ones, each while it has bytes to request."""
        unfinished = [current]
        # Requests are sent in order, so only the last of the planned spans can be unfinished.
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
            self._count < min(self._window, _max_requests(location))
            and needed_bytes <= self._max_bytes
            and location.is_async
            and self._share.grow(needed_bytes, DEFAULT_PREFETCH_BYTES)
        )

    def _range_bytes(self, location: Location) -> int:
        first = location.first_range_bytes
        longest = min(location.longest_range_bytes, self._max_bytes // _max_requests(location))
        growth_bytes = self._requested_bytes // _GROWTH_SHARE // first * first
        return max(min(growth_bytes, longest), first)

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


def _max_requests(location: Location) -> int:
    """Return the maximum number of requests that are not taken: 1 with a single connection."""
    return location.max_connections + location.max_connections // 4


def _fetch(span: ByteSpan, start: int, stop: int, memory: RangeMemory) -> RangeContent:
    """Return a range, after a version check if the range is the whole span.

    The check is not needed if the answer names its version.
    """
    # It has no reference to its RangeRequest, which an untaken error would keep alive.
    content = span.reader.read_content(start, stop, memory)
    if content.version is None and (start, stop) == (span.start, span.stop):
        span.reader.check_version()
        return replace(content, version=span.reader.version)
    return content
