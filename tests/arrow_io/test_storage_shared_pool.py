"""Readers in a process share a client's pool of connections; nobody is blamed for that."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import fsspec.asyn

from arrow_io.storage import s3_object_store
from arrow_io.storage.attempts import Attempt
from arrow_io.storage.location import Location
from tests.support.stalling_server import StallingServer, answer_with, stalling_server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from http.server import BaseHTTPRequestHandler

    import pytest


def test_the_wait_for_other_readers_is_not_the_stores_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All locations with the same options share one pool of s3fs: time begins with a connection."""
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
            Location("s3://bucket/folder", server.storage_options | {"max_connections": 2})
            for _ in range(2)
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
