"""What becomes of an object that is being written when the store fails."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from arrow_io.errors import StorageError
from arrow_io.storage.attempts import RetryPolicy
from arrow_io.storage.location import Location
from arrow_io.storage.object_store import UnfinishedUpload
from arrow_io.storage.store_uploads import temporary_path
from arrow_io.storage.trace import RequestCounts, RequestTrace
from tests.support.faulty_storage import FakeS3, s3_error
from tests.support.stalling_server import (
    StallingServer,
    answer_with,
    fail_503,
    stalling_server,
    without_pauses,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler

    from arrow_io.storage.request import Request
    from tests.support.s3_server import S3Server

NAME = "00000000-0000-0000-0000-000000000001-ledger-42"


def fail_while_uploading(location: Location, error: BaseException) -> None:
    """Write a part of an object, and raise."""
    with location.upload(NAME, user_metadata={}) as upload:
        upload.write_part(b"part")
        raise error


def test_a_store_that_refuses_is_a_storage_error(s3_server: S3Server, tmp_path: Path) -> None:
    """Writing where nothing can be written is a typed error that names the object."""
    (tmp_path / "file").write_bytes(b"")
    for location in (
        Location("s3://no-such-bucket", s3_server.storage_options),
        Location(str(tmp_path / "file" / "folder")),
    ):
        with pytest.raises(StorageError) as raised:
            location.write_object(NAME, b"", user_metadata={})
        assert raised.value.object_key == NAME
        with pytest.raises(StorageError) as raised, location.upload(NAME, user_metadata={}):
            pass
        assert raised.value.object_key == NAME
    with pytest.raises(StorageError, match="bucket does not exist"):
        Location("s3://no-such-bucket", s3_server.storage_options).delete_objects([NAME])


class TestRetries:
    """What becomes of an upload to S3 whose requests fail."""

    def test_a_part_is_sent_again_whole(self) -> None:
        """A part that failed is sent again with its number and all of its bytes."""
        store = FakeS3(
            {"UploadId": "u"},
            s3_error(500, "InternalError"),
            {"ETag": "one"},
            TimeoutError(),
            {"ETag": "two"},
            {},
        )
        trace = RequestTrace()

        with replace(store.location(), trace=trace).upload("x", user_metadata={}) as upload:
            upload.write_part(b"1st")
            upload.write_part(b"2nd")

        sent = [(call["PartNumber"], call["Body"]) for call in store.calls if "Body" in call]
        assert sent == [(1, b"1st"), (1, b"1st"), (2, b"2nd"), (2, b"2nd")]
        assert store.calls[-1]["MultipartUpload"] == {
            "Parts": [{"PartNumber": 1, "ETag": "one"}, {"PartNumber": 2, "ETag": "two"}]
        }
        assert trace.counts == RequestCounts(upload_requests=2, part_requests=4, part_bytes=6)
        assert len(store.pauses_s) == 2

    def test_a_part_that_goes_on_failing_aborts(self) -> None:
        """After the last attempt nothing more is sent but the abort; the error is the part's."""
        store = FakeS3({"UploadId": "u"}, *[s3_error(503, "SlowDown")] * 2, {})

        with (
            pytest.raises(StorageError, match="after 2 attempts") as raised,
            store.location(attempts=2).upload("x", user_metadata={}) as upload,
        ):
            upload.write_part(b"1st")

        assert raised.value.object_key == "x"
        assert [call["method"] for call in store.calls][-1] == "abort_multipart_upload"
        assert not store.answers

    def test_a_part_that_fails_tells_of_its_own_requests(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Those that botocore sent again are counted for the part, as is its last status."""
        without_pauses(monkeypatch)

        def answer(request: BaseHTTPRequestHandler, server: StallingServer) -> None:
            if request.command == "PUT":
                fail_503(request, server)
            elif request.command == "POST":
                root = "InitiateMultipartUploadResult"
                answer_with(request, f"<{root}><UploadId>u</UploadId></{root}>".encode())
            else:
                answer_with(request, b"", status=204)

        with stalling_server(answer) as server:
            location = Location("s3://bucket", server.storage_options | {"request_attempts": 1})
            with (
                pytest.raises(StorageError) as raised,
                location.upload("x", user_metadata={}) as upload,
            ):
                upload.write_part(b"1st")

        sent = f"after 1 attempt with {server.requests - 2} requests, the last answer of status 503"
        assert sent in str(raised.value)

    def test_a_lost_complete_is_found_by_its_size(self) -> None:
        """An upload that is gone, with the object there, was completed."""
        store = FakeS3(
            {"UploadId": "u"},
            {"ETag": "one"},
            TimeoutError(),
            s3_error(404, "NoSuchUpload"),
            {"ContentLength": 3},
        )

        with store.location().upload("x", user_metadata={}) as upload:
            upload.write_part(b"1st")

        assert [call["method"] for call in store.calls][-2:] == [
            "complete_multipart_upload",
            "head_object",
        ]

    @pytest.mark.parametrize("head", [{"ContentLength": 4}, s3_error(404, "404")])
    def test_an_upload_that_somebody_aborted_is_an_error(
        self, head: dict[str, int] | Exception
    ) -> None:
        """An upload that is gone without an object of its size is no success."""
        gone = s3_error(404, "NoSuchUpload")
        store = FakeS3({"UploadId": "u"}, {"ETag": "one"}, gone, head, gone)

        with (
            pytest.raises(StorageError, match="aborted by someone else") as raised,
            store.location().upload("x", user_metadata={}) as upload,
        ):
            upload.write_part(b"1st")

        assert raised.value.object_key == "x"
        assert not store.answers

    def test_an_abort_that_fails_hides_no_error(self) -> None:
        """The error that made the upload fail leaves, with a note of what is left."""
        denied = s3_error(403, "AccessDenied", "who are you")
        store = FakeS3({"UploadId": "u"}, {"ETag": "one"}, denied)
        error = RuntimeError("the cause")

        with pytest.raises(RuntimeError, match="the cause"):
            fail_while_uploading(store.location(), error)

        (note,) = error.__notes__
        assert f"the written parts of {NAME} were not removed" in note
        assert "who are you" in note

    def test_nothing_is_aborted_that_was_not_begun(self) -> None:
        """An upload that the store refused to begin sends nothing more."""
        store = FakeS3(s3_error(403, "AccessDenied"))

        with pytest.raises(StorageError), store.location().upload("x", user_metadata={}):
            pass

        assert len(store.calls) == 1

    def test_what_is_absent_is_deleted_wherever_the_server_is_strict(self) -> None:
        """A server that answers 404 to the deletion of nothing is right, but not of a bucket."""
        FakeS3(s3_error(404, "NoSuchKey")).location().delete_objects(["x"])

        with pytest.raises(StorageError):
            FakeS3(s3_error(404, "NoSuchBucket")).location().delete_objects(["x"])

    def test_a_failed_deletion_leaves_the_later_ones(self) -> None:
        """Objects are deleted in the order given, and no further than the first that stays."""
        store = FakeS3({}, s3_error(403, "AccessDenied"))

        with pytest.raises(StorageError) as raised:
            store.location().delete_objects(["a", "b", "c"])

        assert raised.value.object_key == "b"
        assert [call["Key"] for call in store.calls] == ["a", "b"]

    def test_a_listing_of_uploads_follows_its_pages(self) -> None:
        """Uploads of all pages are listed, each asked for behind the last."""
        pages = [
            {
                "Uploads": [{"Key": "a", "UploadId": "1"}, {"Key": "a", "UploadId": "2"}],
                "IsTruncated": True,
                "NextKeyMarker": "a",
                "NextUploadIdMarker": "2",
            },
            {"Uploads": [{"Key": "b", "UploadId": "3"}], "IsTruncated": False},
        ]
        store = FakeS3(*pages)

        assert store.location().unfinished_uploads() == [
            UnfinishedUpload("a", "1", None),
            UnfinishedUpload("a", "2", None),
            UnfinishedUpload("b", "3", None),
        ]
        assert (store.calls[1]["KeyMarker"], store.calls[1]["UploadIdMarker"]) == ("a", "2")

    def test_a_listing_without_an_end_is_an_error(self) -> None:
        """A server that sends one page over and over is not asked for ever."""
        page = {"IsTruncated": True, "NextKeyMarker": "a", "NextUploadIdMarker": "1"}

        with pytest.raises(StorageError, match="over and over"):
            FakeS3(page, page, page).location().unfinished_uploads()

    @pytest.mark.parametrize(
        "markers",
        [
            [("b", "1"), ("a", "1")],
            [("b", "1"), ("b", "2"), ("b", "1")],
            [("b", None), ("b", None)],
            [("b", "1"), ("b", None), ("b", "")],
            [("é", "1"), ("z", "1")],
        ],
        ids=str,
    )
    def test_pages_that_go_back_are_an_error(self, markers: list[tuple[str, str | None]]) -> None:
        """Each page must begin behind the last one: keys ascend, and no upload comes twice."""
        pages = [
            {"IsTruncated": True, "NextKeyMarker": key, "NextUploadIdMarker": upload_id}
            for key, upload_id in markers
        ]

        with pytest.raises(StorageError, match="over and over"):
            FakeS3(*pages, {"IsTruncated": False}).location().unfinished_uploads()

    @pytest.mark.parametrize("marker", [{}, {"NextKeyMarker": ""}, {"NextUploadIdMarker": "1"}])
    def test_a_page_that_does_not_tell_the_next_is_an_error(self, marker: dict[str, str]) -> None:
        """A listing that is cut off is not taken for the whole."""
        with pytest.raises(StorageError, match="does not name the next"):
            FakeS3({"IsTruncated": True, **marker}).location().unfinished_uploads()

    def test_pages_may_go_on_within_a_key(self) -> None:
        """Uploads of one key fill pages too; their ids are in no order."""
        pages = [
            {"IsTruncated": True, "NextKeyMarker": key, "NextUploadIdMarker": upload_id}
            for key, upload_id in (("a", "2"), ("a", "1"), ("b", "2"), ("b", "1"))
        ]
        store = FakeS3(*pages, {"IsTruncated": False})

        assert store.location().unfinished_uploads() == []
        assert store.calls[4]["UploadIdMarker"] == "1"


class TestFolder:
    """What is particular to files."""

    def test_only_what_is_unfinished_is_looked_at(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A folder of many files is searched by their names; one that is gone again is left out."""
        for name in ("a", "b", "a.x.unfinished"):
            (tmp_path / name).write_bytes(b"")
        for name in ("a", "ab", "b"):
            Path(temporary_path(str(tmp_path / name), "0123456789abcdef")).write_bytes(b"")
        looked_at: list[str] = []

        class Entry:
            def __init__(self, entry: os.DirEntry[str]) -> None:
                self.name = entry.name
                self._entry = entry

            def stat(self) -> os.stat_result:
                looked_at.append(self.name)
                if self.name.startswith("ab"):
                    raise FileNotFoundError
                return self._entry.stat()

        scandir = os.scandir

        @contextlib.contextmanager
        def spying(path: str) -> Iterator[Iterator[Entry]]:
            with scandir(path) as entries:
                yield map(Entry, entries)

        with monkeypatch.context() as patch:
            patch.setattr("arrow_io.storage.object_store.os.scandir", spying)
            found = Location(str(tmp_path)).unfinished_uploads("a")

        assert [each.name for each in found] == ["a"]
        assert sorted(looked_at) == [
            temporary_path(name, "0123456789abcdef") for name in ("a", "ab")
        ]

    def test_nothing_is_unfinished_in_no_folder(self, tmp_path: Path) -> None:
        """A folder that is not there yet is no error, a file in its place is one."""
        assert Location(str(tmp_path / "absent")).unfinished_uploads() == []
        (tmp_path / "file").write_bytes(b"")

        with pytest.raises(StorageError):
            Location(str(tmp_path / "file")).unfinished_uploads()

    def test_a_disk_that_fails_leaves_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An object whose bytes did not reach the disk is not published."""

        def fail(_descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("arrow_io.storage.store_uploads.os.fsync", fail)
        location = Location(str(tmp_path))

        with pytest.raises(StorageError, match="No space left"):
            location.write_object(NAME, b"index", user_metadata={})
        with (
            pytest.raises(StorageError, match="No space left"),
            location.upload(NAME, user_metadata={}) as upload,
        ):
            upload.write_part(b"data")

        assert list(tmp_path.iterdir()) == []

    def test_what_cannot_be_removed_is_noted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file that stays is told of by the error that made it useless."""

        def fail(*_arguments: object) -> None:
            raise OSError(30, "Read-only file system")

        monkeypatch.setattr("arrow_io.storage.store_uploads.os.fsync", fail)
        monkeypatch.setattr("arrow_io.storage.store_uploads.remove", fail)
        location = Location(str(tmp_path), retry=RetryPolicy(attempts=1))

        with pytest.raises(StorageError) as raised:
            location.write_object(NAME, b"index", user_metadata={})

        assert raised.value.__notes__ == ["its temporary file was not removed (OSError)"]
        assert [each.name for each in location.unfinished_uploads()] == [NAME]

    def test_a_write_that_failed_is_not_repeated(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """How far a file was written when that failed is unknown: nothing is written behind it."""
        written: list[bytes] = []

        def fail(_self: object, request: Request, _attempt: object) -> None:
            written.append(request.data)
            raise TimeoutError

        monkeypatch.setattr("arrow_io.storage.store_uploads.TemporaryFileUpload.write_part", fail)

        with (
            pytest.raises(StorageError),
            Location(str(tmp_path)).upload(NAME, user_metadata={}) as upload,
        ):
            upload.write_part(b"data")

        assert written == [b"data"]
