"""HDFS is read and written as any store is, by WebHDFS and by Hadoop's own protocol."""

from __future__ import annotations

import getpass
import itertools
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import example, given, settings

from arrow_io.errors import MissingObjectError, StorageError
from arrow_io.storage.location import Location
from arrow_io.storage.trace import RequestCounts, RequestTrace
from tests.arrow_io import test_storage_location as every_store
from tests.arrow_io import test_storage_trees as every_tree
from tests.broker.running_hdfs import Hdfs, running_hdfs
from tests.support.golden import GOLDEN
from tests.support.racing_writers import winners_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    MakeLocation = Callable[[Mapping[str, bytes]], Location]

pytestmark = pytest.mark.broker

_TREE: Final = GOLDEN / "filesystem-4.0.8" / "objects"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """An HDFS that the tests share; each has a folder of its own."""
    with running_hdfs(tmp_path_factory.mktemp("hdfs")) as running:
        yield running


@pytest.fixture(params=["webhdfs", "hdfs"])
def scheme(request: pytest.FixtureRequest) -> str:
    """Each interface of HDFS."""
    name: str = request.param
    return name


@pytest.fixture
def location(hdfs: Hdfs, scheme: str) -> Location:
    """A folder that does not exist yet."""
    return _folder(hdfs, scheme)


def _folder(hdfs: Hdfs, scheme: str) -> Location:
    # Who runs a NameNode may do everything in it.
    options = {"user": getpass.getuser()} if scheme == "webhdfs" else {}
    return Location(f"{hdfs.url(scheme)}/some/folder%25-{next(_numbers)}", options)


@pytest.fixture
def make_location(location: Location) -> MakeLocation:
    """Puts objects somewhere and tells where."""

    def make(objects: Mapping[str, bytes]) -> Location:
        for name, data in objects.items():
            location.write_object(name, data, user_metadata={})
        return location

    return make


class TestEveryStore(every_store.TestEveryStore):
    """What must be true wherever objects lie."""

    # HDFS refuses names with a colon.
    FOLDERS = tuple(name for name in every_store.TestEveryStore.FOLDERS if ":" not in name)


class TestDeleteFolder(every_tree.TestDeleteFolder):
    """Only an empty folder is deleted."""

    @pytest.fixture
    def location(self, hdfs: Hdfs, scheme: str) -> Location:
        """Folders of HDFS."""
        return _folder(hdfs, scheme)


@pytest.mark.parametrize("scheme", ["webhdfs", "hdfs"])
@given(folder=every_tree.FOLDERS, name=every_tree.NAMES)
@example(folder="x%3A1/~/*", name="%25+ %2F..")
@settings(max_examples=15)
def test_any_name_is_written_read_and_deleted(
    hdfs: Hdfs, scheme: str, folder: str, name: str
) -> None:
    """By every operation, under exactly this name; colons alone are not allowed."""
    every_tree.check_name(_folder(hdfs, scheme), folder.replace(":", "-"), name.replace(":", "-"))


def test_offloaded_trees_are_those_of_the_local_folder(location: Location) -> None:
    """Names, lengths, and ranges of the objects that Pulsar's filesystem offloader wrote."""
    local = Location(str(_TREE))
    files = local.list_tree()
    for info in files:
        location.write_object(
            info.name,
            local.read_object(info.name, max_bytes=1 << 24).data,
            user_metadata={},
        )

    trace = RequestTrace()
    counted = Location(location.url, location.storage_options, trace=trace)
    listed = counted.list_tree()
    assert trace.counts == RequestCounts(list_requests=1)
    assert [(info.name, info.size_bytes) for info in listed] == [
        (info.name, info.size_bytes) for info in files
    ]
    folder, _, _ = files[0].name.rpartition("/")
    assert [info.name for info in location.list_tree(folder)] == [
        info.name for info in files if info.name.startswith(f"{folder}/")
    ]
    for info in listed:
        for start, stop in ((0, 100), (info.size_bytes // 2, info.size_bytes - 1)):
            if start < stop <= info.size_bytes:
                data = location.read_range(info.name, start, stop, version=info.version).data
                assert data == local.read_range(info.name, start, stop).data


def test_an_upload_of_many_parts_is_whole(location: Location) -> None:
    """It replaces an object only when it is complete, and leaves nothing else."""
    parts = [bytes([number]) * 1_000_001 for number in range(4)]
    location.write_object("a/large", b"before", user_metadata={})

    with location.upload("a/large", user_metadata={}) as upload:
        for part in parts:
            upload.write_part(part)
        upload.wait()
        assert location.read_object("a/large", max_bytes=9).data == b"before"
    assert location.read_object("a/large", max_bytes=1 << 23).data == b"".join(parts)
    assert location.read_range("a/large", 1_000_000, 1_000_002).data == b"\0\1"

    def fail() -> None:
        with location.upload("a/large", user_metadata={}) as upload:
            upload.write_part(b"other")
            upload.wait()
            assert [each.name for each in location.child("a").unfinished_uploads()] == ["large"]
            raise InterruptedError

    with pytest.raises(InterruptedError):
        fail()
    with location.upload("empty", user_metadata={}):
        pass
    assert [info.name for info in location.list_tree()] == ["a/large", "empty"]


def test_an_abandoned_upload_is_found_and_removed(location: Location) -> None:
    """Even among many objects, which a listing has in pages."""
    for number in range(7):
        location.write_object(f"{number}", b"", user_metadata={})
    location.write_object(f"abandoned.{'0' * 16}.unfinished", b"", user_metadata={})

    (upload,) = location.unfinished_uploads("ab")
    assert (upload.name, upload.upload_id) == ("abandoned", "0" * 16)
    location.abort_upload(upload.name, upload.upload_id)
    location.abort_upload(upload.name, upload.upload_id)
    assert location.unfinished_uploads() == []
    assert len(location.list_objects()) == 7


def test_one_writer_of_a_new_object_wins(location: Location) -> None:
    """The others are told that the name is taken, and leave nothing."""
    assert len(winners_of(location, "name")) == 1
    assert len(location.list_tree()) == 1
    (info,) = location.list_objects()
    assert info.version is not None
    assert location.replace_object(info.name, b"new", info.version, user_metadata={})
    assert not location.replace_object(info.name, b"newer", info.version, user_metadata={})
    assert location.read_object(info.name, max_bytes=9).data == b"new"


def test_what_is_denied_is_told(
    scheme: str, location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the reason that the NameNode gives."""
    location.write_object("a", b"1", user_metadata={})
    monkeypatch.setenv("HADOOP_USER_NAME", "stranger")
    options = {"user": "stranger"} if scheme == "webhdfs" else {"other": "client"}
    other = Location(location.url, options)

    with pytest.raises(StorageError, match="Permission denied") as raised:
        other.write_object("b", b"1", user_metadata={})
    assert "\n" not in str(raised.value)
    assert other.read_object("a", max_bytes=9).data == b"1"
    assert other.list_folder() == location.list_folder()


def test_a_file_is_no_folder(location: Location) -> None:
    """It is neither listed as an empty folder nor deleted as one."""
    location.write_object("a", b"1", user_metadata={})

    for listed in (location.child("a").list_folder, lambda: location.list_tree("a")):
        with pytest.raises(StorageError, match="Not a directory"):
            listed()
    location.delete_folder("a")
    assert location.exists("a")
    with pytest.raises(MissingObjectError):
        location.read_range("b", 0, 1)


def test_a_name_node_that_is_down_is_told(tmp_path_factory: pytest.TempPathFactory) -> None:
    """In time, by either interface, also where it was there before."""
    with running_hdfs(tmp_path_factory.mktemp("stopped")) as hdfs:
        locations = [_folder(hdfs, scheme) for scheme in ("webhdfs", "hdfs")]
        for location in locations:
            location.write_object("a", b"1", user_metadata={})

    for location in locations:
        with pytest.raises(StorageError, match="refused"):
            Location(location.url, location.storage_options).list_tree()
        with pytest.raises(StorageError):
            location.read_object("a", max_bytes=9)
