"""Buckets whose objects are replaced while somebody reads them."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import fsspec
from fsspec.spec import AbstractFileSystem

from arrow_io.format.index_block import FORMAT_VERSION_KEY
from arrow_io.storage.trace import RequestKind, RequestTrace
from tests.support.buckets import memory_bucket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.support.s3_server import S3Server

_FIRST_WRITE_S = 1_700_000_000


# fsspec carries no types, so its class is Any.
class PlainFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Folders in memory; what is told of a file's version comes in listings and HEADs alone."""

    protocol = "plain"
    cachable = False

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self._memory = fsspec.filesystem("memory")

    def _told(self, entry: dict[str, object]) -> dict[str, object]:
        return {**entry, "name": str(entry["name"]).removeprefix("/")}

    def ls(self, path: str, **_options: object) -> list[dict[str, object]]:
        """List a folder."""
        return [self._told(entry) for entry in self._memory.ls(path, detail=True)]

    def info(self, path: str, **_options: object) -> dict[str, object]:
        """Describe one file."""
        return self._told(self._memory.info(path))

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_options: object
    ) -> bytes:
        """Read a range."""
        data: bytes = self._memory.cat_file(path, start, end)
        return data


fsspec.register_implementation(PlainFileSystem.protocol, PlainFileSystem, clobber=True)


class ChangingBucket(Protocol):
    """A bucket that a test writes to."""

    url: str
    storage_options: dict[str, object]

    def write(self, name: str, data: bytes, managed_ledger: str) -> None:
        """Write an object, in place of one that has its name."""


class _Memory:
    def __init__(self, url: str, put: Callable[[Mapping[str, bytes]], None]) -> None:
        self.url = url
        self.storage_options: dict[str, object] = {}
        self._put = put

    def write(self, name: str, data: bytes, managed_ledger: str) -> None:
        del managed_ledger
        self._put({name: data})


class _Folder:
    def __init__(self, path: Path) -> None:
        self.url = str(path)
        self.storage_options: dict[str, object] = {}
        self._path = path
        self._writes = 0

    def write(self, name: str, data: bytes, managed_ledger: str) -> None:
        del managed_ledger
        aside = self._path / "aside"
        aside.write_bytes(data)
        # The clock of a file system may stand still for some milliseconds.
        self._writes += 1
        os.utime(aside, (_FIRST_WRITE_S + self._writes,) * 2)
        aside.replace(self._path / name)


class _S3:
    def __init__(self, server: S3Server) -> None:
        self._server = server
        self._bucket = server.new_bucket()
        self.url = f"s3://{self._bucket}"
        self.storage_options = server.storage_options

    def write(self, name: str, data: bytes, managed_ledger: str) -> None:
        metadata = {FORMAT_VERSION_KEY: "1", "managedledgername": managed_ledger}
        self._server.client.put_object(Bucket=self._bucket, Key=name, Body=data, Metadata=metadata)


@contextmanager
def changing_bucket(kind: str, server: S3Server | None = None) -> Iterator[ChangingBucket]:
    """An empty bucket.

    Args:
        kind: `memory`, `folder`, `s3`, or `plain`: a store that tells versions only in listings and
            by HEAD.
        server: The server, of `s3`.
    """
    if kind in {"memory", "plain"}:
        with memory_bucket({}) as bucket:
            yield _Memory(bucket.url.replace("memory", kind, 1), bucket.put)
    elif kind == "folder":
        path = tempfile.mkdtemp()
        try:
            yield _Folder(Path(path))
        finally:
            shutil.rmtree(path)
    else:
        assert server is not None
        yield _S3(server)


class Meddler(RequestTrace):
    """Does something right before one of the requests for data is sent.

    Args:
        number: Before which request, from 0.
        meddle: What is done.
    """

    def __init__(self, number: int, meddle: Callable[[], None]) -> None:
        super().__init__()
        self._left = number
        self._meddle = meddle

    def note_request(
        self, kind: RequestKind, name: str, start: int | None = None, stop: int | None = None
    ) -> None:
        """Count one request."""
        super().note_request(kind, name, start, stop)
        if kind is RequestKind.RANGE_GET:
            self._left -= 1
            if self._left == -1:
                self._meddle()
