"""Trees of folders are listed whole, each folder with its own retries, and deleted without loss."""

from __future__ import annotations

import os
import string
import threading
from collections import Counter
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

import fsspec
import pytest
from fsspec.asyn import AsyncFileSystem
from hypothesis import example, given
from hypothesis import strategies as st

from arrow_io.errors import ObjectChangedError, StorageError
from arrow_io.storage.attempts import RetryPolicy
from arrow_io.storage.location import Location
from arrow_io.storage.trace import RequestCounts, RequestTrace
from tests.support.faulty_storage import FakeS3
from tests.support.file_servers import PASSWORD, USER, running_ftp_server, running_sftp_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.support.s3_server import S3Server

_LOGIN: Final = {"username": USER, "password": PASSWORD}
_NO_KEYS: Final = {"allow_agent": False, "look_for_keys": False}


class _Trees:
    """Folders of a remote file system, of which a test decides what each listing does.

    Args:
        folders: For each path the names in it; a name that ends in a slash is a folder.
        faults: For each path the errors of its first listings.
        together: Number of listings that are answered only when so many are in flight; 0 for any.
    """

    def __init__(
        self,
        folders: Mapping[str, list[str]],
        faults: Mapping[str, Sequence[Exception]] | None = None,
        together: int = 0,
    ) -> None:
        self.folders = folders
        self.faults = {path: list(errors) for path, errors in (faults or {}).items()}
        self.listings: Counter[str] = Counter()
        self.most_in_flight = 0
        self._in_flight = 0
        self._barrier = threading.Barrier(together) if together else None
        self._lock = threading.Lock()

    def location(self, **options: object) -> Location:
        retry = RetryPolicy(sleep=lambda _seconds: None)
        return Location("walked:///root", {"trees": self, **options}, retry, trace=RequestTrace())

    def ls(self, path: str) -> list[dict[str, Any]]:
        with self._lock:
            self.listings[path] += 1
            self._in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self._in_flight)
        try:
            if self._barrier is not None and path != "/root":
                self._barrier.wait(30)
            if self.faults.get(path):
                raise self.faults[path].pop(0)
            if path not in self.folders:
                raise FileNotFoundError(path)
            return [
                {"name": f"{path}/{name}".rstrip("/"), "size": 1, "type": _type(name)}
                for name in self.folders[path]
            ]
        finally:
            with self._lock:
                self._in_flight -= 1


def _type(name: str) -> str:
    return "directory" if name.endswith("/") else "file"


# fsspec carries no types, so its class is Any.
class _TreesFileSystem(AsyncFileSystem):  # type: ignore[misc]
    """A file system that several threads may use at once."""

    protocol = "walked"
    cachable = False

    def __init__(self, trees: _Trees, **options: object) -> None:
        super().__init__(**options)
        self._trees = trees

    def ls(self, path: str, **_options: object) -> list[dict[str, Any]]:
        """List a folder."""
        return self._trees.ls(path)


fsspec.register_implementation(_TreesFileSystem.protocol, _TreesFileSystem, clobber=True)


class TestWalk:
    """What a file system is asked for."""

    def test_folders_are_listed_at_once(self) -> None:
        """As many as the connections allow, and no more."""
        names = [f"{number}/" for number in range(12)]
        folders = {f"/root/{name}".rstrip("/"): ["data"] for name in names}
        trees = _Trees({"/root": names, **folders}, together=4)

        infos = trees.location(max_connections=4).list_tree()

        assert [info.name for info in infos] == sorted(f"{name}data" for name in names)
        assert trees.most_in_flight == 4

    def test_a_folder_that_vanishes_is_left_out(self) -> None:
        """Another reader or a broker may delete a ledger while a tree is listed."""
        trees = _Trees({"/root": ["a", "gone/", "here/"], "/root/here": ["b"]})

        assert [info.name for info in trees.location().list_tree()] == ["a", "here/b"]
        assert trees.listings["/root/gone"] == 1

    def test_only_the_listing_that_failed_is_repeated(self) -> None:
        """A transient error costs one more request, whatever the size of the tree."""
        faults = {"/root/x": [ConnectionResetError(), TimeoutError()]}
        trees = _Trees({"/root": ["x/", "y/"], "/root/x": ["b"], "/root/y": ["c"]}, faults)
        location = trees.location()

        assert [info.name for info in location.list_tree()] == ["x/b", "y/c"]
        assert trees.listings == {"/root": 1, "/root/x": 3, "/root/y": 1}
        assert location.trace.counts == RequestCounts(list_requests=1)

    @pytest.mark.parametrize("connections", [1, 4])
    def test_a_folder_that_cannot_be_listed_is_an_error(self, connections: int) -> None:
        """Its objects are not left out silently."""
        folders = {"/root": ["x/", "y/"], "/root/x": ["b"], "/root/y": ["c"]}
        trees = _Trees(folders, {"/root/x": [PermissionError("denied")]})

        with pytest.raises(StorageError, match="denied"):
            trees.location(max_connections=connections).list_tree()

    def test_folders_without_end_are_given_up(self) -> None:
        """A server that shows a folder in itself, as a loop of links may be shown."""
        path = "/root" + "/x" * 20
        folders = {path[:end]: ["x/", "a"] for end in range(5, len(path), 2)}

        with pytest.raises(StorageError, match="nested deeper than the 16 folders"):
            _Trees(folders).location().list_tree()
        assert len(_Trees(folders).location().list_tree("x/x/x/x")) == 16

    def test_a_tree_of_too_many_names_is_given_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """However many folders they are in."""
        monkeypatch.setattr("arrow_io.storage.listing_pages.MAX_KEYS", 5)
        folders = {"/root": ["x/", "y/"], "/root/x": ["a", "b"], "/root/y": ["c", "d"]}

        with pytest.raises(StorageError, match="more than 5 keys"):
            _Trees(folders).location().list_tree()


@pytest.mark.posix
def test_links_are_not_followed(tmp_path: Path) -> None:
    """A loop of links ends; a location that is a link is listed like its target."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "data").write_bytes(b"1")
    (tmp_path / "a" / "b" / "loop").symlink_to(tmp_path / "a")
    (tmp_path / "a" / "b" / "self").symlink_to(".")
    (tmp_path / "a" / "b" / "link").symlink_to("data")
    (tmp_path / "link").symlink_to("a")

    assert [info.name for info in Location(str(tmp_path)).list_tree()] == ["a/b/data"]
    assert [info.name for info in Location(f"{tmp_path}/link").list_tree()] == ["b/data"]
    assert Location(f"{tmp_path}/a/b").list_folder().folders == []


def test_a_file_is_no_tree(tmp_path: Path) -> None:
    """It is not taken for an empty folder."""
    (tmp_path / "a").write_bytes(b"1")

    with pytest.raises(StorageError, match="NotADirectory"):
        Location(str(tmp_path)).list_tree("a")
    memory = Location(f"memory://{tmp_path}")
    memory.write_object("a", b"1", user_metadata={})
    assert memory.list_tree("a") == []
    assert [info.name for info in memory.list_tree()] == ["a"]


@pytest.mark.s3
def test_a_flat_listing_has_pages(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are read, and count as one request; keys that stand for folders are no objects."""
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "3")
    keys = [f"t/{number % 4}/{number}" for number in range(17)]
    address = s3_server.upload(dict.fromkeys([*keys, "t/", "t/1/", "t-", "u/a"], b""))
    location = Location(address.url, address.storage_options)

    assert [info.name for info in location.list_tree("t")] == sorted(keys)
    assert location.trace.counts == RequestCounts(list_requests=1)
    assert location.list_tree("none") == []


def test_a_flat_listing_without_end_is_given_up() -> None:
    """As that of a folder is: the same page again, or fewer keys than it says."""
    page = {"Contents": [{"Key": "a/b", "Size": 1}], "KeyCount": 1}
    again = {**page, "IsTruncated": True, "NextContinuationToken": "t"}

    for pages in ([again, again, again], [{**page, "KeyCount": 2}]):
        with pytest.raises(StorageError):
            FakeS3(*pages).location().list_tree("a")


@pytest.mark.parametrize("scheme", ["", "memory://"])
def test_a_replaced_object_in_a_folder_is_recognized(scheme: str, tmp_path: Path) -> None:
    """Its version is that of the tree; the others are read on."""
    location = Location(f"{scheme}{tmp_path}")
    for name in ("t/a", "t/b"):
        _write(location, name, b"data")
    infos = location.list_tree()
    _write(location, "t/a", b"other data")

    with pytest.raises(ObjectChangedError):
        location.read_range("t/a", 0, 4, version=infos[0].version)
    assert location.read_range("t/b", 0, 4, version=infos[1].version).data == b"data"


def _write(location: Location, name: str, data: bytes) -> None:
    file_system, root = fsspec.url_to_fs(location.url, **location.storage_options or {})
    file_system.makedirs(os.path.dirname(f"{root}/{name}"), exist_ok=True)  # noqa: PTH120
    location.write_object(name, data, user_metadata={})


class TestDeleteFolder:
    """Only an empty folder is deleted."""

    @pytest.fixture(params=["local", "memory", "ftp", "sftp"])
    def location(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Location]:
        """Folders of a file system."""
        servers: dict[str, Callable[[Path], AbstractContextManager[str]]] = {
            "ftp": running_ftp_server,
            "sftp": running_sftp_server,
            "local": lambda path: nullcontext(str(path)),
            "memory": lambda path: nullcontext(f"memory://{path}"),
        }
        options: dict[str, dict[str, object]] = {"ftp": {**_LOGIN}, "sftp": {**_LOGIN, **_NO_KEYS}}
        with servers[request.param](tmp_path) as url:
            yield Location(url, options.get(request.param))

    def test_it_is_deleted_once_it_is_empty(self, location: Location) -> None:
        """A folder with an object or a folder in it stays; a missing one is no error."""
        _write(location, "a/5-uuid/.data.crc", b"1")
        name = "a/5-uuid"

        for folder in (name, "a", f"{name}/.data.crc", f"{name}/none", "none"):
            location.delete_folder(folder)
        assert [info.name for info in location.list_tree()] == [f"{name}/.data.crc"]

        location.delete_objects([f"{name}/.data.crc"])
        location.delete_folder("a")
        location.delete_folder(name)

        assert location.child("a").list_folder().folders == []
        location.delete_folder(name)
        location.delete_folder("a")
        assert location.list_folders() == []


@pytest.mark.s3
def test_an_object_store_has_no_folder_to_delete(s3_server: S3Server) -> None:
    """It has no folders, so nothing is counted and nothing is deleted."""
    address = s3_server.upload({"a/b": b""})
    location = Location(address.url, address.storage_options)

    for options in ({}, {"client": "obstore"}):
        bucket = Location(address.url, {**address.storage_options, **options})
        bucket.delete_folder("a")
        bucket.delete_folder("none")
        assert bucket.trace.counts == RequestCounts()
    assert [info.name for info in location.list_tree()] == ["a/b"]


NAMES: Final = st.text(
    st.sampled_from(string.ascii_letters + string.digits + "%+:*~ .-_=&;,@!$'()[]{}^éπ☃"),
    min_size=1,
    max_size=20,
).filter(lambda name: name.strip(".") and name == name.strip())
FOLDERS: Final = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


@pytest.fixture(scope="module", params=["local", "url", "memory", "s3"])
def empty_location(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Location:
    """A location where each example deletes what it wrote."""
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        address = server.upload({}, prefix="some/pre%66ix")
        return Location(address.url, address.storage_options)
    folder = tmp_path_factory.mktemp("names") / "x%41"
    folder.mkdir()
    return Location(
        {"local": "", "url": "file://", "memory": "memory://"}[request.param] + f"{folder}"
    )


@given(folder=FOLDERS, name=NAMES)
@example(folder="x%3A1/~/*", name="%25+ %2F..")
def test_any_name_is_written_read_and_deleted(
    empty_location: Location, folder: str, name: str
) -> None:
    """By every operation, under exactly this name."""
    check_name(empty_location, folder, name)


def check_name(location: Location, folder: str, name: str) -> None:
    """Write, read and delete an object of an empty location by every operation."""
    key, data = f"{folder}/{name}", f"{folder} {name}".encode()

    _write(location, key, data)
    for reader in _readers(location):
        assert [info.name for info in reader.list_tree()] == [key]
        assert reader.read_object(key, max_bytes=1000).data == data
        assert reader.read_range(key, 1, 3).data == data[1:3]
        (info,) = reader.list_tree(folder)
        assert reader.find(key) == info
        assert reader.exists(key)
    assert info.version is not None
    assert not location.write_new_object(key, b"other")
    assert location.replace_object(key, b"again", info.version, user_metadata={})
    assert location.write_new_object(f"{key}-2", b"second")
    location.delete_objects([f"{key}-2"])
    assert location.read_object(key, max_bytes=1000).data == b"again"
    location.delete_objects([key])
    assert not location.exists(key)
    parts = folder.split("/")
    for depth in range(len(parts), 0, -1):
        location.delete_folder("/".join(parts[:depth]))
    assert location.list_tree() == []


def _readers(location: Location) -> list[Location]:
    """Return the location, and if it is a bucket, the same through obstore."""
    if not location.url.startswith("s3://"):
        return [location]
    options = {**location.storage_options, "client": "obstore"}  # type: ignore[dict-item]
    return [location, Location(location.url, options)]


def test_a_url_of_a_folder_is_not_decoded(tmp_path: Path) -> None:
    """As fsspec reads it: its path is the name on the disk, percent signs included."""
    for name in ("a%25c", "a%c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data").write_bytes(name.encode())

    for name in ("a%25c", "a%c"):
        for url in (f"file://{tmp_path}/{name}", f"{tmp_path}/{name}"):
            assert Location(url).read_object("data", max_bytes=9).data == name.encode()
