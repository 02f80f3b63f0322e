"""HDFS by Hadoop's own protocol: what is made of what hdfs-native returns or raises."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from fsspec.registry import _registry
from fsspec.spec import AbstractFileSystem

from arrow_io.errors import MissingObjectError, StorageError, TruncatedObjectError
from arrow_io.storage import hdfs_object_store
from arrow_io.storage.attempts import RetryPolicy
from arrow_io.storage.location import Location

if TYPE_CHECKING:
    from collections.abc import Iterator

_DENIED = (
    'RPCError("org.apache.hadoop.security.AccessControlException", "Permission denied: user=me,'
    ' inode=\\"/root\\":\\n\\tat org.apache.hadoop.hdfs.server.Node.check(Node.java:1)\\n")'
)


class _Reader:
    """A file whose ranges panic if they are not in it."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def read_range_stream(self, offset: int, size: int) -> Iterator[bytes]:
        """Yield the range in parts of two bytes."""
        assert 0 <= offset < offset + size <= len(self._data), "panic"
        data = self._data[offset : offset + size]
        return (data[start : start + 2] for start in range(0, size, 2))


@dataclass
class _Client:
    """What is used of a client of hdfs-native.

    Attributes:
        files: Bytes by path; of a folder None.
        errors: Raised by one operation after the other.
    """

    files: dict[str, bytes | None]
    errors: list[BaseException] = field(default_factory=list)
    calls: int = 0

    def _begin(self) -> None:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)

    def get_file_info(self, path: str) -> Any:  # noqa: ANN401 - of an extra
        self._begin()
        if path not in self.files:
            raise FileNotFoundError(f"File does not exist: {path}\n\tat org.apache.hadoop")
        data = self.files[path]
        length, modified = len(data or b""), 1_700_000_000_001
        return SimpleNamespace(
            path=path, isdir=data is None, length=length, modification_time=modified
        )

    def list_status(self, path: str, *, recursive: bool) -> Iterator[Any]:
        assert not recursive
        status = self.get_file_info(path)
        names = [name for name in self.files if name.rpartition("/")[0] == path]
        yield from map(self.get_file_info, names) if status.isdir else [status]

    def read(self, path: str) -> _Reader:
        self.get_file_info(path)
        return _Reader(self.files[path] or b"")

    def delete(self, path: str, *, recursive: bool) -> bool:
        self._begin()
        assert not recursive
        return self.files.pop(path, None) is not None


# fsspec carries no types, so its class is Any.
class _FileSystem(AbstractFileSystem):  # type: ignore[misc]
    """A file system with a client of a test."""

    protocol = "viewfs"
    cachable = False

    def __init__(self, fake: _Client, **options: object) -> None:
        super().__init__(**options)
        self.client = fake


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_registry, "viewfs", _FileSystem)


def _location(client: _Client) -> Location:
    retry = RetryPolicy(sleep=lambda _seconds: None)
    return Location("viewfs:///root", {"fake": client}, retry)


def test_a_folder_is_one_listing() -> None:
    """Times are in milliseconds; names are relative to the location."""
    client = _Client({"/root": None, "/root/a": None, "/root/a/b%41;c": b"12", "/root/d": b""})

    listing = _location(client).list_folder()
    assert ([info.name for info in listing.objects], listing.folders) == (["d"], ["a"])
    (info,) = _location(client).list_tree("a")
    assert (info.name, info.size_bytes) == ("a/b%41;c", 2)
    assert info.modified is not None
    assert info.modified.timestamp() == 1_700_000_000.001
    assert _location(client).find("a/b%41;c") == info
    assert _location(client).find("a") is None


def test_no_range_outside_a_file_is_read() -> None:
    """The client would panic."""
    location = _location(_Client({"/root/a": b"01234", "/root/empty": b""}))

    assert location.read_range("a", 3, 100).data == b"34"
    assert location.read_object("a", max_bytes=5).data == b"01234"
    assert location.read_object("empty", max_bytes=5).data == b""
    for name, length in (("a", 5), ("empty", 0)):
        with pytest.raises(TruncatedObjectError, match=f"after {length} bytes"):
            location.read_range(name, length, 10)


def test_errors_have_the_name_nodes_message_without_its_stack() -> None:
    """One that says that a request is not allowed is told once."""
    client = _Client({"/root": None}, [RuntimeError(_DENIED), RuntimeError("Panic\nstack")])
    location = _location(client)

    with pytest.raises(StorageError, match=r'AccessControlException: .* inode="/root":') as raised:
        location.list_folder()
    assert "check" not in str(raised.value)
    assert client.calls == 1
    # Any other error of the client may pass.
    assert location.list_folder().objects == []
    with pytest.raises(MissingObjectError):
        location.read_object("none", max_bytes=9)


class PanicException(BaseException):
    """What a panic of the client becomes."""


def test_a_panic_is_an_error_of_the_store() -> None:
    """It would end a program that catches errors; an interrupt must."""
    client = _Client({"/root": None}, [PanicException("index out of bounds")] * 5)
    with pytest.raises(StorageError, match="panicked: index out of bounds"):
        _location(client).list_folder()
    client.errors = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        _location(client).list_folder()


def test_a_folder_that_is_not_empty_stays() -> None:
    """The NameNode refuses to delete it, which is no error."""
    name = "org.apache.hadoop.fs.PathIsNotEmptyDirectoryException"
    client = _Client({"/root/a": None, "/root/f": b""})

    class NotEmpty(_Client):
        def delete(self, path: str, *, recursive: bool) -> bool:
            assert not recursive
            raise RuntimeError(f'RPCError("{name}", "`{path} is non empty")')

    _location(NotEmpty(client.files)).delete_folder("a")
    for folder in ("f", "none", "a"):
        _location(client).delete_folder(folder)
    assert client.files == {"/root/f": b""}


def test_a_listing_of_too_many_names_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not received to its end."""
    monkeypatch.setattr(hdfs_object_store, "MAX_KEYS", 3)
    monkeypatch.setattr("arrow_io.storage.listing_pages.MAX_KEYS", 3)
    client = _Client({"/root": None} | {f"/root/{number}": b"" for number in range(9)})

    with pytest.raises(StorageError, match="more than 3 keys"):
        _location(client).list_objects()
    assert client.calls == 1 + 4
