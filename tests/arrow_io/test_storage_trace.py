"""Requests and bytes are counted by kind, from any thread; few calls lead to a request."""

from __future__ import annotations

import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import arrow_io
import connector
from arrow_io.core import threads
from arrow_io.storage.location import Location
from arrow_io.storage.ranges import RangeReader
from arrow_io.storage.trace import RequestCounts, RequestKind, RequestRecord, RequestTrace
from tests.support.faulty_storage import FakeBody, FakeS3, FaultScript
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


@pytest.mark.parametrize(
    ("kind", "received", "written"),
    [
        (RequestKind.LIST, None, None),
        (RequestKind.HEAD, None, None),
        (RequestKind.INDEX_GET, "index_bytes", None),
        (RequestKind.RANGE_GET, "range_bytes", None),
        (RequestKind.UPLOAD, None, None),
        (RequestKind.PART, None, "part_bytes"),
        (RequestKind.PUT, None, "put_bytes"),
        (RequestKind.DELETE, None, None),
    ],
)
def test_counts_are_kept_by_kind(
    kind: RequestKind, received: str | None, written: str | None
) -> None:
    """Each kind of request has its own number, and each that brings bytes a number of its own."""
    trace = RequestTrace()
    for _ in range(2):
        trace.note_request(kind, "a", 0, 10)
    expected = {f"{kind.name.removesuffix('_GET').lower()}_requests": 2}
    if received is not None:
        trace.note_received_bytes(kind, 10)
        expected[received] = 10
    if written is not None:
        trace.note_written_bytes(kind, 7)
        expected[written] = 7

    assert trace.counts == RequestCounts(**expected)
    assert trace.counts.requests == 2
    assert trace.counts.received_bytes == (10 if received else 0)
    assert trace.counts.written_bytes == (7 if written else 0)


def test_counts_add_up() -> None:
    """The sum of two counts has the sum of each field."""
    one = RequestCounts(list_requests=1, head_requests=2, index_requests=3, index_bytes=4)
    other = RequestCounts(list_requests=10, range_requests=20, range_bytes=30, index_bytes=40)

    assert one + other == RequestCounts(
        list_requests=11,
        head_requests=2,
        index_requests=3,
        range_requests=20,
        index_bytes=44,
        range_bytes=30,
    )


def test_counts_are_a_snapshot() -> None:
    """Counts taken earlier do not change."""
    trace = RequestTrace()
    trace.note_request(RequestKind.HEAD, "a")

    counts = trace.counts
    trace.note_request(RequestKind.HEAD, "a")

    assert counts == RequestCounts(head_requests=1)


def test_records_are_kept_only_when_asked_for() -> None:
    """A trace records each request in order if it was made to, else none."""
    trace, silent = RequestTrace(keep_records=True), RequestTrace()

    for each in (trace, silent):
        each.note_request(RequestKind.HEAD, "a")
        each.note_request(RequestKind.RANGE_GET, "a", 3, 9)

    assert trace.records == (
        RequestRecord(RequestKind.HEAD, "a"),
        RequestRecord(RequestKind.RANGE_GET, "a", 3, 9),
    )
    assert silent.records == ()


def test_no_count_is_lost_between_threads() -> None:
    """Threads that count at once count everything."""
    trace = RequestTrace(keep_records=True)

    def send(number: int) -> None:
        for _ in range(500):
            trace.note_request(RequestKind.RANGE_GET, str(number), 0, 1)
            trace.note_received_bytes(RequestKind.RANGE_GET, 1)

    with ThreadPoolExecutor(4) as executor:
        list(executor.map(send, range(4)))

    assert trace.counts == RequestCounts(range_requests=2000, range_bytes=2000)
    assert len(trace.records) == 2000


def test_a_pickled_trace_starts_empty() -> None:
    """A copy in another process counts for itself, in the same way."""
    trace = RequestTrace(keep_records=True)
    trace.note_request(RequestKind.HEAD, "a")

    copy = pickle.loads(pickle.dumps(trace))
    copy.note_request(RequestKind.LIST, "")

    assert copy.counts == RequestCounts(list_requests=1)
    assert copy.records == (RequestRecord(RequestKind.LIST, ""),)
    assert trace.counts == RequestCounts(head_requests=1)


# Calls on the way


_MOST_FRAMES: Final = 5
_OURS: Final = tuple(str(Path(package.__path__[0])) for package in (arrow_io, connector))


class _Stack:
    """The calls of ours that led to the library, innermost first.

    Args:
        reader: The thread that reads.
    """

    def __init__(self, reader: int) -> None:
        self._reader = reader
        self.calls: list[str] = []

    def note(self) -> None:
        """Note who called; to be called in place of the library."""
        self.calls = _ours(sys._getframe(1))
        if threading.get_ident() != self._reader:
            wait_until(self._is_waiting)
            self.calls += _ours(sys._current_frames()[self._reader])

    def _is_waiting(self) -> bool:
        code = sys._current_frames()[self._reader].f_code
        return code.co_filename == threading.__file__


def _ours(frame: FrameType | None) -> list[str]:
    """Calls of ours below `read_content`; the loop of a thread that is used again is none."""
    calls = []
    while frame is not None and frame.f_code is not RangeReader.read_content.__code__:
        file = frame.f_code.co_filename
        if file.startswith(_OURS) and file != threads.__file__:
            calls.append(frame.f_code.co_qualname)
        frame = frame.f_back
    return calls


def _read(location: Location) -> None:
    assert bytes(RangeReader(location, "a", 4).read_content(0, 4).data) == b"data"


def _noting(stack: _Stack, answer: Callable[..., Any]) -> Callable[..., Any]:
    def noting(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as the library
        stack.note()
        return answer(*arguments, **options)

    return noting


@pytest.fixture
def stack() -> _Stack:
    """The calls that lead to the library."""
    return _Stack(threading.get_ident())


def _check(stack: _Stack) -> None:
    assert 0 < len(stack.calls) <= _MOST_FRAMES, stack.calls


def test_few_calls_lead_to_a_file(
    stack: _Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A local file is opened by the store."""
    (tmp_path / "a").write_bytes(b"data")
    location = Location(str(tmp_path))
    monkeypatch.setattr(Path, "open", _noting(stack, Path.open))

    _read(location)

    _check(stack)


@pytest.mark.parametrize("is_async", [False, True])
def test_few_calls_lead_to_a_file_system(stack: _Stack, *, is_async: bool) -> None:
    """Whether it blocks, so that a thread of its own sends the request, or not."""
    script = FaultScript({"a": b"data"})
    location = script.location(is_async=is_async)
    file_system = location._sender.store()._file_system
    file_system.cat_file = _noting(stack, file_system.cat_file)

    _read(location)

    _check(stack)


def test_few_calls_lead_to_s3(stack: _Stack) -> None:
    """The calls of the reading thread and those in the event loop together."""
    location = FakeS3({"Body": FakeBody(b"data"), "ContentRange": "bytes 0-3/4"}).location()
    file_system = location._sender.store()._file_system
    file_system._call_s3 = _noting(stack, file_system._call_s3)

    _read(location)

    _check(stack)


def test_few_calls_lead_to_obstore(stack: _Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls of the reading thread and those of the thread that sends together."""
    obstore = pytest.importorskip("obstore")
    memory = obstore.store.MemoryStore()
    obstore.put(memory, "a", b"data")
    get = obstore.get
    options = {"client": "obstore", "key": "k", "secret": "s", "region": "us-east-1"}
    location = Location("s3://bucket", options)

    def in_memory(_client: object, path: str, options: Any) -> Any:  # noqa: ANN401 - obstore's
        return get(memory, path, options=options)

    monkeypatch.setattr(obstore, "get", _noting(stack, in_memory))

    _read(location)

    _check(stack)
