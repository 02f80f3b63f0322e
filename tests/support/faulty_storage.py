"""Stores that misbehave on command: file systems whose every answer a test decides.

They are reached through a `Location` like any other, so what is tested is the whole way from
fsspec's interface to the error that a user sees.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import fsspec
from botocore.exceptions import ClientError
from botocore.hooks import HierarchicalEmitter
from fsspec.asyn import AsyncFileSystem, sync_wrapper
from fsspec.spec import AbstractFileSystem
from s3fs.errors import translate_boto_error

from arrow_io.storage.attempts import RetryPolicy
from arrow_io.storage.location import Location

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Fault = Callable[[bytes], bytes]
"""Makes the answer that is sent out of the right one, or raises."""


def as_it_is(data: bytes) -> bytes:
    """Answer rightly."""
    return data


def raising(error: Exception) -> Fault:
    """Fail with an error."""

    def fault(_data: bytes) -> bytes:
        raise error

    return fault


def cut_to(size_bytes: int) -> Fault:
    """Answer with only the first bytes of the right answer."""
    return lambda data: data[:size_bytes]


def instead(data: bytes) -> Fault:
    """Answer with other bytes."""
    return lambda _data: data


def whole(longest_s: float) -> float:
    """Pause as long as may be, for tests that say how long that is."""
    return longest_s


class FaultScript:
    """Objects, and what goes wrong in the requests for ranges of them, in their order.

    Args:
        objects: Bytes by object name.
        faults: One for each request; further requests are answered rightly.
    """

    def __init__(self, objects: Mapping[str, bytes], faults: Iterable[Fault] = ()) -> None:
        self.objects = dict(objects)
        self.faults = deque(faults)
        self.requests: list[tuple[int, int]] = []
        self.pauses_s: list[float] = []
        self._changed = threading.Condition()

    def location(self, *, is_async: bool = False, attempts: int = 5, **options: object) -> Location:
        """The folder with the objects; pauses between attempts are noted in `pauses_s`, no more."""
        protocol = "faulty-async" if is_async else "faulty"
        retry = RetryPolicy(attempts=attempts, sleep=self.pauses_s.append, jitter=whole)
        return Location(f"{protocol}://folder", {"script": self, **options}, retry)

    def answer(self, path: str, start: int, stop: int) -> bytes:
        """Answer one request for the bytes `[start, stop)`."""
        with self._changed:
            self.requests.append((start, stop))
            fault = self.faults.popleft() if self.faults else as_it_is
            self._changed.notify_all()
        return fault(self._object(path)[start:stop])

    def info(self, path: str) -> dict[str, object]:
        """Describe one object."""
        return {"name": path, "type": "file", "size": len(self._object(path))}

    def _object(self, path: str) -> bytes:
        name = path.rpartition("/")[2]
        if name not in self.objects:
            raise FileNotFoundError(path)
        return self.objects[name]

    def wait_for_requests(self, count: int) -> list[tuple[int, int]]:
        """Wait until so many requests have come, and return all that have, by `start`."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.requests) >= count, timeout=30)
            return sorted(self.requests)


class ToldByHead(FaultScript):
    """A store whose answers tell no version: only a HEAD does."""

    version = "first"

    def info(self, path: str) -> dict[str, object]:
        """Describe one object, with its version."""
        return {**super().info(path), "ETag": self.version}


# fsspec carries no types, so its class is Any.
class FaultyFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """A blocking file system that answers as its script says."""

    protocol = "faulty"
    cachable = False

    def __init__(self, script: FaultScript, **options: object) -> None:
        super().__init__(**options)
        self.script = script

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_options: object
    ) -> bytes:
        """Answer one request."""
        return self.script.answer(path, start or 0, end or 0)

    def info(self, path: str, **_options: object) -> dict[str, object]:
        """Describe one object."""
        return self.script.info(path)

    def ls(self, path: str, **_options: object) -> list[dict[str, object]]:
        """Describe all objects."""
        return [self.script.info(f"{path}/{name}") for name in self.script.objects]


# fsspec carries no types, so its class is Any.
class FaultyAsyncFileSystem(AsyncFileSystem):  # type: ignore[misc]
    """A file system with an event loop that answers as its script says."""

    protocol = "faulty-async"
    cachable = False

    def __init__(self, script: FaultScript, **options: object) -> None:
        super().__init__(**options)
        self.script = script

    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_options: object
    ) -> bytes:
        # In a thread, so that an answer that does not come holds up no other.
        return await asyncio.to_thread(self.script.answer, path, start or 0, end or 0)

    async def _info(self, path: str, **_options: object) -> dict[str, object]:
        return self.script.info(path)

    async def _ls(self, path: str, **_options: object) -> list[dict[str, object]]:
        return [self.script.info(f"{path}/{name}") for name in self.script.objects]


class FakeBody:
    """The body of an S3 answer.

    Args:
        parts: Bytes as they come from the network, or an error that cuts the body off there.
    """

    def __init__(self, *parts: bytes | Exception) -> None:
        self._parts = deque(parts)
        self.read_bytes = 0
        self.is_closed = False

    async def __aenter__(self) -> Self:
        """Return the body itself."""
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        """Close the body."""
        self.is_closed = True

    async def read(self, amount: int) -> bytes:
        """Read at most `amount` bytes."""
        part = self._parts.popleft() if self._parts else b""
        if isinstance(part, Exception):
            raise part
        if len(part) > amount:
            self._parts.appendleft(part[amount:])
        self.read_bytes += len(part[:amount])
        return part[:amount]


# fsspec carries no types, so its class is Any.
class FakeS3FileSystem(AsyncFileSystem):  # type: ignore[misc]
    """What this project uses of s3fs, with answers from a list."""

    protocol = "fake-s3"
    cachable = False
    s3 = SimpleNamespace(
        meta=SimpleNamespace(
            events=HierarchicalEmitter(), config=SimpleNamespace(max_pool_connections=32)
        )
    )
    session = SimpleNamespace(get_component=lambda _name: HierarchicalEmitter())

    def __init__(self, store: FakeS3, **options: object) -> None:
        super().__init__(**options)
        self._store = store

    def split_path(self, path: str) -> tuple[str, str, None]:
        """Split a path into bucket, key and version."""
        bucket, _, key = path.partition("/")
        return bucket, key, None

    async def _call_s3(self, method: str, **parameters: object) -> object:
        self._store.calls.append({"method": method, **parameters})
        answer = self._store.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    call_s3 = sync_wrapper(_call_s3)


class FakeS3:
    """A bucket whose answers a test lists.

    Args:
        answers: For each call botocore's parsed answer, or the error that s3fs raises.
    """

    def __init__(self, *answers: Mapping[str, object] | Exception) -> None:
        self.answers = deque(answers)
        self.calls: list[dict[str, Any]] = []
        self.pauses_s: list[float] = []

    def location(self, *, attempts: int = 5) -> Location:
        """The bucket; pauses between attempts are noted in `pauses_s`, not made."""
        retry = RetryPolicy(attempts=attempts, sleep=self.pauses_s.append, jitter=whole)
        return Location("fake-s3://bucket", {"store": self}, retry)


def s3_error(status: int, code: str, message: str = "no") -> Exception:
    """The error that s3fs makes of an error answer of S3."""
    response = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    error: Exception = translate_boto_error(ClientError(response, "GetObject"))
    return error


for _file_system in (FaultyFileSystem, FaultyAsyncFileSystem, FakeS3FileSystem):
    fsspec.register_implementation(_file_system.protocol, _file_system, clobber=True)
