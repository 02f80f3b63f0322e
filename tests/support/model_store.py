"""Buckets in memory whose clock, and whose knowledge of times and clusters, a test decides.

They are reached as `model://name`, by the ways of a store of which nothing is known but fsspec's
interface. As an object store does, and unlike fsspec's own file system in memory, they keep user
metadata and tell when an object was written: by the clock of the test, or not at all.
"""

from __future__ import annotations

import errno
import io
import itertools
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import fsspec
from fsspec import AbstractFileSystem

_PROTOCOL: Final = "model"

Clock = Callable[[], int]
"""Gives the time, ms since the epoch."""

_lock: Final = threading.RLock()
"""One request at a time, so that a bucket changes between requests and never within one."""

_numbers = itertools.count()
_buckets: dict[str, ModelBucket] = {}


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as the store has it."""

    data: bytes
    modified: datetime | None
    user_metadata: Mapping[str, str] = field(default_factory=dict)


class ModelBucket:
    """A bucket that nobody else has.

    Args:
        clock: The store's clock.
        tells_times: Whether the store tells when an object was written.
    """

    def __init__(self, clock: Clock, *, tells_times: bool = True) -> None:
        self.name = f"b{next(_numbers)}"
        self.url = f"{_PROTOCOL}://{self.name}"
        self.objects: dict[str, StoredObject] = {}
        self.tells_times = tells_times
        self.before_request: Callable[[], object] = lambda: None
        """Called before each request that reads; it may change the bucket."""
        self._clock = clock
        _buckets[self.name] = self

    def put(self, name: str, data: bytes, user_metadata: Mapping[str, str] | None = None) -> None:
        """Write an object, now."""
        modified = datetime.fromtimestamp(self._clock() / 1000, UTC) if self.tells_times else None
        self.objects[name] = StoredObject(data, modified, dict(user_metadata or {}))

    def delete(self, *names: str) -> None:
        """Delete objects; those not there are no error."""
        for name in names:
            self.objects.pop(name, None)

    def drop(self) -> None:
        """Forget the bucket."""
        _buckets.pop(self.name, None)


class ModelFileSystem(AbstractFileSystem):  # type: ignore[misc] # fsspec has no types
    """All buckets of this process, as one file system of fsspec."""

    protocol = _PROTOCOL
    cachable = True

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:  # noqa: ANN401, FBT002 - the base class's signature
        """List a folder, or a file as itself."""
        bucket, name = _split(path)
        objects = _arrive(bucket)
        full = f"{bucket}/{name}" if name else bucket
        if name in objects:
            return [_entry(full, objects[name])] if detail else [full]
        prefix = f"{name}/" if name else ""
        found: dict[str, dict[str, Any]] = {}
        for each, stored in objects.items():
            if each.startswith(prefix):
                child, slash, _rest = each[len(prefix) :].partition("/")
                path_of = f"{full}/{child}"
                found[path_of] = _folder(path_of) if slash else _entry(path_of, stored)
        if not found and (name or bucket not in _buckets):
            raise _not_there(path)
        return list(found.values()) if detail else list(found)

    def info(self, path: str, **_: Any) -> dict[str, Any]:  # noqa: ANN401
        """What is known of a file or folder."""
        bucket, name = _split(path)
        objects = _arrive(bucket)
        if name in objects:
            return _entry(f"{bucket}/{name}", objects[name])
        if any(each.startswith(f"{name}/" if name else "") for each in objects):
            return _folder(f"{bucket}/{name}")
        raise _not_there(path)

    def cat_file(
        self,
        path: str,
        start: int | None = None,
        end: int | None = None,
        **_: Any,  # noqa: ANN401
    ) -> bytes:
        """The bytes of a file, or a range of them."""
        bucket, name = _split(path)
        stored = _arrive(bucket).get(name)
        if stored is None:
            raise _not_there(path)
        return stored.data[start:end]

    def rm_file(self, path: str) -> None:
        """Delete a file."""
        bucket, name = _split(path)
        if _objects(bucket).pop(name, None) is None:
            raise _not_there(path)

    def mv(self, path1: str, path2: str, **_: Any) -> None:  # noqa: ANN401
        """Give a file another name."""
        bucket, name = _split(path2)
        _buckets[bucket].put(name, self.cat_file(path1))
        self.rm_file(path1)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:  # noqa: FBT002
        """A bucket has no folders of its own."""

    def _open(self, path: str, mode: str = "rb", **_: Any) -> io.BytesIO:  # noqa: ANN401
        if mode == "rb":
            return io.BytesIO(self.cat_file(path))
        return _WrittenFile(*_split(path))


class _WrittenFile(io.BytesIO):
    """A file that is there when it is closed."""

    def __init__(self, bucket: str, name: str) -> None:
        super().__init__()
        self._bucket = bucket
        self._name = name

    def close(self) -> None:
        """Publish what was written."""
        if not self.closed:
            _buckets[self._bucket].put(self._name, self.getvalue())
        super().close()


def _split(path: str) -> tuple[str, str]:
    bucket, _, name = ModelFileSystem._strip_protocol(path).partition("/")
    return bucket, name


def _arrive(bucket: str) -> dict[str, StoredObject]:
    """The objects that a request meets which arrives now; it meets them unchanged to its end."""
    with _lock:
        if bucket in _buckets:
            _buckets[bucket].before_request()
        return dict(_objects(bucket))


def _objects(bucket: str) -> dict[str, StoredObject]:
    return _buckets[bucket].objects if bucket in _buckets else {}


def _entry(name: str, stored: StoredObject) -> dict[str, Any]:
    return {
        "name": name,
        "size": len(stored.data),
        "type": "file",
        "mtime": stored.modified,
        "metadata": dict(stored.user_metadata),
    }


def _folder(name: str) -> dict[str, Any]:
    return {"name": name, "size": 0, "type": "directory"}


def _not_there(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


fsspec.register_implementation(_PROTOCOL, ModelFileSystem, clobber=True)
