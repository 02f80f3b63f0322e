"""Requests to a file system that blocks take turns, and are given up when their time is over."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final

import fsspec
import fsspec.asyn
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from arrow_io.errors import StorageError
from arrow_io.storage import request_threads, s3_object_store
from arrow_io.storage.attempts import Attempt
from arrow_io.storage.location import Location
from arrow_io.storage.turns import shared_turns
from tests.support.faulty_storage import FaultScript, FaultyAsyncFileSystem, FaultyFileSystem
from tests.support.stalling_server import StallingServer, answer_with, stalling_server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from concurrent.futures import Future
    from http.server import BaseHTTPRequestHandler

    from tests.support.faulty_storage import Fault


SHORT_S: Final = 0.05


@pytest.fixture
def resumed() -> Iterator[threading.Event]:
    """Set to have stalled requests answered; it is at the latest when the test ends."""
    event = threading.Event()
    yield event
    event.set()


def _stalled(resumed: threading.Event) -> Fault:
    def fault(data: bytes) -> bytes:
        assert resumed.wait(60)
        return data

    return fault


class _CachedFileSystem(FaultyFileSystem):
    """Of which fsspec gives a thread one for each script."""

    protocol = "faulty-cached"
    cachable = True


fsspec.register_implementation(_CachedFileSystem.protocol, _CachedFileSystem, clobber=True)


def _locations(script: FaultScript, *deadlines_s: float) -> list[Location]:
    """Locations with one file system and these deadlines."""
    locations = [
        Location("faulty-cached://folder", {"script": script, "request_deadline_s": deadline_s})
        for deadline_s in deadlines_s
    ]
    # Connected in this thread, because fsspec gives each thread file systems of its own.
    assert [each.is_async for each in locations] == [False] * len(locations)
    return locations


def test_a_request_is_given_up_in_time(resumed: threading.Event) -> None:
    """A request that is not answered ends with an error that names the option."""
    script = FaultScript({"a": b"data"}, [_stalled(resumed)])
    with pytest.raises(StorageError, match=r"within 0\.05 s; .*request_deadline_s, now 0\.05"):
        script.location(request_deadline_s=SHORT_S).read_range("a", 0, 4)


def test_requests_after_one_that_was_given_up(resumed: threading.Event) -> None:
    """They wait for the connection: until it is free, or their own time is over."""
    script = FaultScript({"a": b"data"}, [_stalled(resumed)])
    location, patient = _locations(script, SHORT_S, 60)
    for reason in ("no complete, valid answer", "an earlier request on the same connection"):
        with pytest.raises(StorageError, match=reason):
            location.read_range("a", 0, 4)
    assert len(script.requests) == 1, "the second was not sent"
    resumed.set()
    assert patient.read_range("a", 1, 4).data == b"ata"


def test_a_wait_for_others_takes_no_time(resumed: threading.Event) -> None:
    """A request whose turn comes late has all of its time, because each has its own."""
    script = FaultScript({"a": b"data"}, [_stalled(resumed)])
    first, second = _locations(script, 60, SHORT_S)
    with ThreadPoolExecutor(2) as threads:
        stalled = threads.submit(first.read_range, "a", 0, 4)
        script.wait_for_requests(1)
        waiting = threads.submit(second.read_range, "a", 1, 4)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=4 * SHORT_S)
        resumed.set()
        assert (stalled.result().data, waiting.result().data) == (b"data", b"ata")


def test_which_file_systems_take_turns() -> None:
    """Those that block do, by themselves and under a folder or archive; the others do not."""
    script = FaultScript({})
    blocking, other = FaultyFileSystem(script), FaultyFileSystem(script)
    assert (
        shared_turns(blocking)
        is shared_turns(blocking)
        is shared_turns(DirFileSystem("a", blocking))
    )
    assert shared_turns(blocking) is not shared_turns(other)
    for free in (LocalFileSystem(), MemoryFileSystem(), FaultyAsyncFileSystem(script)):
        assert shared_turns(free) is None
        assert shared_turns(DirFileSystem("a", free)) is None


def test_a_request_that_no_thread_has_begun_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it is given up it leaves the connection to the next request."""
    script = FaultScript({"a": b"data"})
    hasty, patient = _locations(script, SHORT_S, 60)
    begun: list[Future[object]] = []
    with monkeypatch.context() as patched:
        patched.setattr(
            request_threads, "run_in_thread", lambda _send, answer: begun.append(answer)
        )
        with pytest.raises(StorageError, match="no complete, valid answer"):
            hasty.read_range("a", 0, 4)
    assert [answer.cancelled() for answer in begun] == [True]
    assert patient.read_range("a", 1, 4).data == b"ata"
    assert script.requests == [(1, 4)]


# A shared pool


def test_the_wait_for_other_readers_is_not_the_stores_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """All locations with the same options share one pool of s3fs: time begins with a connection."""
    options = {"client": "fsspec", "max_connections": 2}
    asked, gate = threading.Semaphore(0), threading.Event()
    begun: list[Attempt] = []
    start, send = Attempt.start, fsspec.asyn.sync

    def counted(attempt: Attempt) -> None:
        begun.append(attempt)
        start(attempt)

    def told(
        loop: asyncio.AbstractEventLoop, call: Callable[..., Awaitable[object]], *arguments: object
    ) -> object:
        asked.release()
        return send(loop, call, *arguments)

    def held(request: BaseHTTPRequestHandler, _server: StallingServer) -> None:
        assert gate.wait(timeout=30)
        answer_with(request, b"x")

    with stalling_server(held) as server, ThreadPoolExecutor(6) as readers:
        locations = [
            Location("s3://bucket/folder", server.storage_options | options) for _ in range(2)
        ]
        monkeypatch.setattr(Attempt, "start", counted)
        monkeypatch.setattr(s3_object_store, "sync", told)
        reads = [
            readers.submit(locations[n % 2].read_object, "name", max_bytes=10) for n in range(6)
        ]
        for _ in reads:
            assert asked.acquire(timeout=30)
        send(fsspec.asyn.get_loop(), partial(asyncio.sleep, 0))

        count = len(begun)
        gate.set()
        assert [each.result(timeout=30).data for each in reads] == [b"x"] * 6
    assert count <= 2
    assert len(begun) == 6
