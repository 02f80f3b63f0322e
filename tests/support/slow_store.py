"""A store that takes its time: objects in memory, answered after a wait that costs no CPU.

It is reached as `slow://name`, through fsspec's interface for file systems with an event loop, as
S3 is. It counts the requests for bytes that are in flight. A benchmark lets it wait as a real store
would:

    store = SlowStore(objects, first_byte_s=0.030, bytes_per_s=100e6)
    open_topic(store.url, "orders").to_table()
    print(store.flights.mean, store.flights.greatest)

A test waits for nothing; it says how many requests must be there at once, and fails otherwise:

    store = SlowStore(objects, waves=[32, 32, 6])
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import math
import os
import time
from collections import deque
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import fsspec
from fsspec.asyn import AsyncFileSystem

from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

_PROTOCOL: Final = "slow"
_WRITTEN: Final = datetime(2026, 1, 1, tzinfo=UTC)

_numbers = itertools.count()
_stores: dict[str, SlowStore] = {}


class Flights:
    """How many requests for bytes are in flight, now and in the mean."""

    def __init__(self) -> None:
        self.count = 0
        """Requests that were begun."""
        self.bytes = 0
        """Bytes that were asked for."""
        self.now = 0
        self.greatest = 0
        self._area = 0.0
        self._first_s = self._changed_s = self._last_s = math.nan

    @property
    def seconds(self) -> float:
        """Time from the first request's begin to the last one's end."""
        return self._last_s - self._first_s

    @property
    def mean(self) -> float:
        """Requests in flight in the mean of that time, pauses without any included."""
        return self._area / self.seconds

    def _change(self, by: int) -> None:
        now_s = time.monotonic()
        if self.count == 0:
            self._first_s = self._changed_s = now_s
        self._area += self.now * (now_s - self._changed_s)
        self._changed_s = now_s
        self.now += by
        self.greatest = max(self.greatest, self.now)
        if by > 0:
            self.count += by
        else:
            self._last_s = now_s

    @asynccontextmanager
    async def flight(self) -> AsyncIterator[None]:
        """A request, from its begin to its end."""
        self._change(1)
        try:
            yield
        finally:
            self._change(-1)


class SlowStore:
    """A bucket that nobody else has; forget it with `drop`.

    Args:
        objects: Bytes by object name.
        first_byte_s: Time to the first byte of each answer, in seconds; real time.
        bytes_per_s: Bytes that one connection brings in a second behind that.
        connections: Most requests in flight; others wait for one of them to end.
        tells_times: Whether a listing tells when an object was written; then it is asked for again
            behind its bytes, whose answers do not tell it.
        waves: Requests for bytes are answered in waves: the first when so many are waiting as the
            first number says, then the next. If they do not come within 20 s, they fail with an
            `AssertionError`. Behind the last wave, requests are answered as they come.
    """

    def __init__(
        self,
        objects: Mapping[str, bytes | memoryview],
        *,
        first_byte_s: float = 0.0,
        bytes_per_s: float = math.inf,
        connections: int = 1024,
        tells_times: bool = True,
        waves: Iterable[int] = (),
    ) -> None:
        self.name = f"s{next(_numbers)}"
        self.url = f"{_PROTOCOL}://{self.name}"
        self.objects = dict(objects)
        self.flights = Flights()
        self._first_byte_s = first_byte_s
        self._bytes_per_s = bytes_per_s
        self._connections = asyncio.Semaphore(connections)
        self._entry_of = {"type": "file", **({"mtime": _WRITTEN} if tells_times else {})}
        self._waves = deque(waves)
        self._waiting: list[asyncio.Future[None]] = []
        _stores[self.name] = self

    @property
    def waves_left(self) -> list[int]:
        """The waves that have not come."""
        return list(self._waves)

    def measure_anew(self) -> None:
        """Forget the requests until now; none may be in flight."""
        self.flights = Flights()

    def drop(self) -> None:
        """Forget the store and its objects."""
        _stores.pop(self.name, None)

    async def answer(self, name: str, start: int | None, stop: int | None) -> bytes | memoryview:
        """Answer a request for the bytes `[start, stop)` of an object."""
        async with self._connections, self.flights.flight():
            await self._wave()
            data = self._object(name)[start:stop]
            self.flights.bytes += len(data)
            await self._wait(self._first_byte_s + len(data) / self._bytes_per_s)
            return data

    async def describe(self, name: str) -> dict[str, Any]:
        """Answer a request for what is known of an object."""
        async with self._connections:
            await self._wait(self._first_byte_s)
            return self._entry(name)

    async def describe_all(self) -> list[dict[str, Any]]:
        """Answer a request for a listing."""
        async with self._connections:
            await self._wait(self._first_byte_s)
            return [self._entry(name) for name in self.objects]

    def _object(self, name: str) -> bytes | memoryview:
        if name not in self.objects:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return self.objects[name]

    def _entry(self, name: str) -> dict[str, Any]:
        size = len(self._object(name))
        path = f"{self.name}/{name}"
        return {"name": path, "size": size, **self._entry_of}

    @staticmethod
    async def _wait(seconds: float) -> None:
        if seconds > 0:
            await asyncio.sleep(seconds)

    async def _wave(self) -> None:
        if not self._waves:
            return
        mine = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        if len(self._waiting) >= self._waves[0]:
            self._waves.popleft()
            answered, self._waiting = self._waiting, []
            for each in answered:
                if not each.done():
                    each.set_result(None)
        try:
            await asyncio.wait_for(mine, PATIENCE_S)
        except TimeoutError:
            message = f"{len(self._waiting)} requests at once, where {self._waves[0]} were expected"
            raise AssertionError(message) from None


# fsspec carries no types, so its class is Any.
class SlowFileSystem(AsyncFileSystem):  # type: ignore[misc]
    """All slow stores of this process, as one file system of fsspec."""

    protocol = _PROTOCOL

    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_options: object
    ) -> bytes | memoryview:
        store, name = _split(path)
        return await store.answer(name, start, end)

    async def _info(self, path: str, **_options: object) -> dict[str, Any]:
        store, name = _split(path)
        return await store.describe(name)

    async def _ls(self, path: str, **_options: object) -> list[dict[str, Any]]:
        store, _ = _split(path)
        return await store.describe_all()


def _split(path: str) -> tuple[SlowStore, str]:
    bucket, _, name = SlowFileSystem._strip_protocol(path).partition("/")
    if bucket not in _stores:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return _stores[bucket], name


fsspec.register_implementation(_PROTOCOL, SlowFileSystem, clobber=True)
