"""A location lists and reads the same objects from a folder, from memory and from S3."""

from __future__ import annotations

import itertools
import json
import os
import pickle
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar

import aiohttp
import fsspec
import pytest
from botocore.exceptions import ReadTimeoutError

from arrow_io.errors import FormatError, MissingObjectError, StorageError, TruncatedObjectError
from arrow_io.storage.location import Location
from arrow_io.storage.object_store import ObjectContent
from arrow_io.storage.trace import RequestCounts, RequestKind, RequestRecord, RequestTrace
from tests.support.faulty_storage import FakeBody, FakeS3
from tests.support.golden import GOLDEN
from tests.support.s3_server import S3Address, S3Server

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    MakeLocation = Callable[[Mapping[str, bytes]], Location]

GOLDEN_SET = GOLDEN / "pulsar-4.0.7-small"
OBJECTS = {"b": b"0123456789", "a": b"", "c-index": b"index"}

_memory_folders = itertools.count()
_either_client = pytest.mark.parametrize("client", ["auto", "fsspec", "obstore"])


def _location(address: S3Address, client: str) -> Location:
    return Location(address.url, address.storage_options | {"client": client})


@pytest.fixture(
    params=["folder", "file-url", "memory", "bucket", "prefix", "obstore-bucket", "obstore-prefix"]
)
def make_location(request: pytest.FixtureRequest, tmp_path: Path) -> MakeLocation:
    """Puts objects somewhere and tells where."""

    def make(objects: Mapping[str, bytes]) -> Location:
        client, _, place = request.param.rpartition("-")
        if place in {"bucket", "prefix"}:
            server: S3Server = request.getfixturevalue("s3_server")
            address = server.upload(objects, prefix="some/prefix" * (place == "prefix"))
            return _location(address, client or "auto")
        if request.param == "memory":
            url = f"memory://location-{next(_memory_folders)}"
        else:
            url = f"file://{tmp_path}" if request.param == "file-url" else str(tmp_path)
        file_system, root = fsspec.url_to_fs(url)
        for name, data in objects.items():
            file_system.makedirs(os.path.dirname(f"{root}/{name}"), exist_ok=True)  # noqa: PTH120
            file_system.pipe_file(f"{root}/{name}", data)
        return Location(url)

    return make


class TestEveryStore:
    """What must be true wherever the objects lie."""

    FOLDERS: ClassVar[tuple[str, ...]] = (
        "x%3A1",
        "x%253A1",
        "x:1",
        "p+2",
        "p 2",
        "été",
        "%C3%A9t%C3%A9",
    )

    def test_folders_of_one_level_are_listed(self, make_location: MakeLocation) -> None:
        """Names are sorted, objects left out; a folder's child is reached as the folder is."""
        location = make_location(
            {**OBJECTS, "y/d": b"below", "x/e/f": b"deep", "x/g": b"in x", "z-": b""}
        )

        assert location.list_folders() == ["x", "y"]
        child = location.child("x")
        assert [info.name for info in child.list_objects()] == ["g"]
        assert child.list_folders() == ["e"]
        assert child.child("e").read_object("f", max_bytes=4).data == b"deep"
        assert child.child("e").list_folders() == []
        assert child.storage_options == location.storage_options

    def test_one_request_lists_objects_and_folders(self, make_location: MakeLocation) -> None:
        """The listing of a folder has both, as the two views of it have."""
        trace = RequestTrace()
        objects = {**OBJECTS, "y/d": b"below", "x/e/f": b"deep"}
        location = replace(make_location(objects), trace=trace)

        listing = location.list_folder()

        assert trace.counts == RequestCounts(list_requests=1)
        assert [info.name for info in listing.objects] == ["a", "b", "c-index"]
        assert listing.folders == ["x", "y"]
        assert (location.list_objects(), location.list_folders()) == (
            listing.objects,
            listing.folders,
        )

    def test_a_tree_has_the_objects_of_all_levels(self, make_location: MakeLocation) -> None:
        """By one request: names with slashes, hidden ones too, sorted, as single listings do."""
        trace = RequestTrace()
        objects = {**OBJECTS, "t/x-/d": b"1", "t/x/.d.crc": b"22", "t/x/y/z": b"333", "tx": b""}
        location = replace(make_location(objects), trace=trace)

        whole, part = location.list_tree(), location.list_tree("t/x")

        assert trace.counts == RequestCounts(list_requests=2)
        assert [info.name for info in whole] == sorted(objects)
        assert {info.name: info.size_bytes for info in whole} == {
            name: len(data) for name, data in objects.items()
        }
        assert [info.name for info in part] == ["t/x/.d.crc", "t/x/y/z"]
        (single,) = location.child("t").child("x").list_objects()
        for info in (whole[4], part[0]):
            assert replace(info, name=".d.crc") == single
            assert info.version == single.version
        assert location.list_tree("t/none") == location.list_tree("none/a") == []

    def test_names_are_never_decoded(self, make_location: MakeLocation) -> None:
        """Neither those of objects nor those of folders, even if they look encoded."""
        objects = {
            f"{folder}/5-uuid/{name}": folder.encode()
            for folder in self.FOLDERS
            for name in ("data", "a*b~c", "=&;,@!$'()")
        }
        location = make_location(objects)

        assert [info.name for info in location.list_tree()] == sorted(objects)
        assert location.list_folders() == sorted({name.partition("/")[0] for name in objects})
        for name, data in objects.items():
            folder, _, _ = name.rpartition("/")
            assert name in [info.name for info in location.list_tree(folder)]
            assert location.read_object(name, max_bytes=99).data == data
            assert location.read_range(name, 1, 3).data == data[1:3]
            info = location.find(name)
            assert info is not None
            assert info.size_bytes == len(data)
            assert not location.exists(f"{folder}/%{name}")
            assert not location.exists(f"{folder}/{name.replace('a', '%61')}")

    def test_a_listing_has_the_objects_of_one_level(self, make_location: MakeLocation) -> None:
        """By one request: relative names, sorted, sizes, aware times; no folders below."""
        trace = RequestTrace()
        location = replace(make_location({**OBJECTS, "folder/d": b"below"}), trace=trace)

        infos = location.list_objects()

        assert trace.counts == RequestCounts(list_requests=1)
        assert [(info.name, info.size_bytes) for info in infos] == [
            ("a", 0),
            ("b", 10),
            ("c-index", 5),
        ]
        for info in infos:
            assert info.modified is not None
            assert abs(datetime.now(UTC) - info.modified) < timedelta(hours=1)

    def test_a_whole_object_is_one_request(self, make_location: MakeLocation) -> None:
        """Reading an object, of exactly the greatest length or empty, is one GET of its bytes."""
        location, trace = make_location(OBJECTS), RequestTrace()

        content = replace(location, trace=trace).read_object("b", max_bytes=10)

        assert content.data == b"0123456789"
        assert trace.counts == RequestCounts(index_requests=1, index_bytes=10)
        assert location.read_object("a", max_bytes=5).data == b""

    def test_an_object_too_long_is_refused(self, make_location: MakeLocation) -> None:
        """No more than one byte beyond the greatest length is read before the object is refused."""
        location, trace = make_location(OBJECTS), RequestTrace()

        with pytest.raises(FormatError, match="longer than the 9 bytes") as raised:
            replace(location, trace=trace).read_object("b", max_bytes=9)
        assert raised.value.object_key == "b"
        assert trace.counts.received_bytes == 10

    def test_a_missing_object_is_named(self, make_location: MakeLocation) -> None:
        """Every read of an object that is not there raises one error, which names it."""
        location = make_location(OBJECTS)

        for read in (
            lambda: location.read_object("none", max_bytes=9),
            lambda: location.read_range("none", 0, 9),
            lambda: location.user_metadata("none"),
        ):
            with pytest.raises(MissingObjectError) as raised:
                read()
            assert raised.value.object_key == "none"

    def test_a_missing_folder_is_an_error(self, make_location: MakeLocation) -> None:
        """Nothing below a prefix, or no such folder, is not taken for an empty listing."""
        location = make_location(OBJECTS)
        elsewhere = Location(f"{location.url}/elsewhere", location.storage_options)

        with pytest.raises(MissingObjectError, match="no such folder or prefix"):
            elsewhere.list_objects()

    def test_size_and_existence_are_one_head_each(self, make_location: MakeLocation) -> None:
        """An object has its size; a folder and a missing object do not exist as objects."""
        location, trace = make_location({**OBJECTS, "folder/d": b"below"}), RequestTrace()

        info = replace(location, trace=trace).find("b")
        assert info is not None
        assert info.size_bytes == 10
        assert replace(location, trace=trace).exists("b")
        assert not replace(location, trace=trace).exists("none")
        assert not replace(location, trace=trace).exists("folder")
        assert trace.counts == RequestCounts(head_requests=4)

    def test_a_range_is_half_open(self, make_location: MakeLocation) -> None:
        """A range comes by one request, as far as the object has bytes of it."""
        location, trace = make_location(OBJECTS), RequestTrace(keep_records=True)

        assert replace(location, trace=trace).read_range("b", 3, 7).data == b"3456"
        assert trace.records == (RequestRecord(RequestKind.RANGE_GET, "b", 3, 7),)
        assert trace.counts.range_bytes == 4
        assert location.read_range("b", 8, 100).data == b"89"

    def test_a_range_behind_the_end_tells_where_the_end_is(
        self, make_location: MakeLocation
    ) -> None:
        """That an object ends is confirmed by a HEAD and named by its offset."""
        location, trace = make_location(OBJECTS), RequestTrace()

        with pytest.raises(TruncatedObjectError, match="ends after 10 bytes") as raised:
            replace(location, trace=trace).read_range("b", 12, 20)
        assert (raised.value.object_key, raised.value.offset) == ("b", 10)
        assert trace.counts == RequestCounts(range_requests=1, head_requests=1)

    def test_a_used_location_pickles(self, make_location: MakeLocation) -> None:
        """A copy is equal, holds no file system, and reads by itself."""
        location = make_location(OBJECTS)
        location.list_objects()

        pickled = pickle.dumps(location)
        copy = pickle.loads(pickled)

        assert b"FileSystem" not in pickled
        assert copy == location
        assert hash(copy) == hash(location)
        assert copy.read_object("b", max_bytes=10).data == b"0123456789"

    def test_a_forked_process_connects_anew(
        self, make_location: MakeLocation, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The file system of the parent process, whose threads did not follow, is not used."""
        location = make_location(OBJECTS)
        location.list_objects()
        parents = location._sender.store()
        child = os.getpid() + 1
        monkeypatch.setattr("arrow_io.storage.request_sender.os.getpid", lambda: child)

        assert location._sender.store() is not parents
        assert location._sender.store() is location._sender.store()


class TestS3:
    """What S3 gives beyond other stores."""

    @_either_client
    def test_golden_objects_come_with_their_user_metadata(
        self, s3_server: S3Server, client: str
    ) -> None:
        """One GET brings the bytes and the metadata that the broker wrote; HEAD brings the same."""
        descriptions = json.loads((GOLDEN_SET / "objects.json").read_text())
        name = next(name for name in descriptions if name.endswith("-index"))
        address = s3_server.upload_golden(GOLDEN_SET, prefix="offloaded")
        location, trace = _location(address, client), RequestTrace()

        infos = location.list_objects()
        content = replace(location, trace=trace).read_object(name, max_bytes=1 << 20)
        metadata = replace(location, trace=trace).user_metadata(name)

        assert {info.name: info.size_bytes for info in infos} == {
            name: description["size"] for name, description in descriptions.items()
        }
        expected = descriptions[name]["user_metadata"]
        assert content == ObjectContent((GOLDEN_SET / "objects" / name).read_bytes(), expected)
        assert metadata == expected
        assert trace.counts.requests == 2

    def test_requests_of_others_are_answered_as_ever(self, s3_server: S3Server) -> None:
        """By the client that both use: only ours leave out when an object was written."""
        address = s3_server.upload(OBJECTS)
        location = _location(address, "fsspec")
        seen: list[bool] = []
        file_system = location._sender.store()._file_system
        file_system.s3.meta.events.register(
            "after-call.s3.GetObject",
            lambda parsed, **_event: seen.append("LastModified" in parsed),
        )

        location.read_range("b", 0, 4)
        bucket = address.url.removeprefix("s3://")
        answer = file_system.call_s3("get_object", Bucket=bucket, Key="b")
        location.read_object("b", max_bytes=10)

        assert seen == [False, True, False]
        assert answer["LastModified"] == file_system.info(f"{bucket}/b")["LastModified"]

    def test_names_of_metadata_are_lower_case(self) -> None:
        """Mixed case, which the first versions of Pulsar wrote, is not seen by callers."""
        metadata = {"ManagedLedgerName": "a/b/persistent/C"}
        body = {"Body": FakeBody(b"data"), "Metadata": metadata}
        location = FakeS3(body, {"ContentLength": 4, "Metadata": metadata}).location()

        expected = {"managedledgername": "a/b/persistent/C"}
        assert location.read_object("x", max_bytes=9).user_metadata == expected
        assert location.user_metadata("x") == expected

    @_either_client
    def test_paging_is_followed(
        self, s3_server: S3Server, client: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A listing of several pages has all their objects and folders."""
        monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "3")
        keys = [f"{number}/x" if number % 3 == 0 else str(number) for number in range(1, 10)]
        location = _location(s3_server.upload(dict.fromkeys(keys, b"")), client)

        assert [info.name for info in location.list_objects()] == ["1", "2", "4", "5", "7", "8"]
        assert location.list_folders() == ["3", "6", "9"]

    def test_a_listing_is_never_stale(self, s3_server: S3Server) -> None:
        """An object written after a listing is in the next one, and its size is the new one."""
        address = s3_server.upload({"a": b"1"})
        location = Location(address.url, address.storage_options)
        location.list_objects()
        bucket = address.url.removeprefix("s3://")

        s3_server.client.put_object(Bucket=bucket, Key="a", Body=b"123")
        s3_server.client.put_object(Bucket=bucket, Key="b", Body=b"")

        assert [(info.name, info.size_bytes) for info in location.list_objects()] == [
            ("a", 3),
            ("b", 0),
        ]
        info = location.find("a")
        assert info is not None
        assert info.size_bytes == 3

    def test_a_folder_marker_is_no_object(self, s3_server: S3Server) -> None:
        """The empty object by which tools make a folder is not listed."""
        address = s3_server.upload({"": b"", "a": b"1"}, prefix="folder")

        infos = Location(address.url, address.storage_options).list_objects()

        assert [info.name for info in infos] == ["a"]

    @_either_client
    def test_a_missing_bucket_is_a_storage_error(self, s3_server: S3Server, client: str) -> None:
        """A wrong bucket is not reported as a missing object."""
        for url in ("s3://no-such-bucket", "s3://no-such-bucket/prefix"):
            location = _location(S3Address(url, s3_server.storage_options), client)
            with pytest.raises(StorageError, match="bucket does not exist"):
                location.list_objects()
            with pytest.raises(StorageError, match="bucket does not exist"):
                location.read_object("a", max_bytes=9)

    def test_an_object_too_long_is_not_read_to_its_end(self) -> None:
        """Of a body of any length no more than one byte beyond the greatest length is taken."""
        body = FakeBody(b"x" * 100, b"y" * 1000)
        location = FakeS3({"Body": body}).location()

        with pytest.raises(FormatError):
            location.read_object("a", max_bytes=99)
        assert body.read_bytes == 100
        assert body.is_closed

    def test_a_cut_index_is_read_again(self) -> None:
        """A whole object whose body was cut is asked for once more, never returned in part."""
        store = FakeS3(
            {"Body": FakeBody(b"ind", aiohttp.ClientPayloadError())},
            {"Body": FakeBody(b"ind", b"ex")},
        )

        assert store.location().read_object("a", max_bytes=9).data == b"index"
        assert len(store.pauses_s) == 1

    def test_a_cut_range_keeps_what_came(self) -> None:
        """The bytes before the cut are returned, so that the next request goes on behind them."""
        body = FakeBody(b"34", b"5", aiohttp.ClientPayloadError())
        store = FakeS3({"Body": body, "ContentRange": "bytes 3-8/10"})

        assert store.location().read_range("b", 3, 9).data == b"345"
        assert store.calls[0]["Range"] == "bytes=3-8"
        assert body.is_closed

    def test_a_range_cut_at_its_start_is_retried(self) -> None:
        """A body that is cut before its first byte is a failure like any other."""
        store = FakeS3(
            {"Body": FakeBody(ReadTimeoutError(endpoint_url="")), "ContentRange": "bytes 3-8/10"},
            {"Body": FakeBody(b"345678"), "ContentRange": "bytes 3-8/10"},
        )

        assert store.location().read_range("b", 3, 9).data == b"345678"
        assert len(store.calls) == 2

    @pytest.mark.parametrize("content_range", [None, "bytes 0-9/10", "bytes 30-35/99"])
    def test_another_range_is_never_taken(self, content_range: str | None) -> None:
        """An answer from elsewhere in the object is an error even if its length is right."""
        body = FakeBody(b"012345")
        answer = {"Body": body, "ContentRange": content_range}
        store = FakeS3({name: value for name, value in answer.items() if value is not None})

        with pytest.raises(StorageError, match="did not answer with the requested bytes") as raised:
            store.location().read_range("b", 3, 9)
        assert (raised.value.object_key, raised.value.offset) == ("b", 3)
        assert body.read_bytes == 0
        assert store.pauses_s == []

    def test_a_longer_answer_is_never_taken(self) -> None:
        """A server that ignores ranges is refused after one byte too many."""
        body = FakeBody(b"x" * 1000)

        with pytest.raises(StorageError, match="did not answer with the requested bytes"):
            FakeS3({"Body": body}).location().read_range("b", 0, 9)
        assert body.read_bytes == 10


def test_another_trace_counts_on_the_same_connection(tmp_path: Path) -> None:
    """A part of the requests is counted apart, and by the parent; pickled, it has no parent."""
    (tmp_path / "object").write_bytes(b"bytes")
    location = Location(str(tmp_path))
    trace = RequestTrace(parent=location.trace)

    part = location.with_trace(trace)
    location.list_objects()
    assert part.read_range("object", 1, 3).data == b"yt"

    assert part == location
    assert trace.counts == RequestCounts(range_requests=1, range_bytes=2)
    assert location.trace.counts == trace.counts + RequestCounts(list_requests=1)
    assert part._sender.store() is location._sender.store()
    pickle.loads(pickle.dumps(part)).list_objects()
    assert location.trace.counts.list_requests == 1
