"""Objects are written whole or not at all, to every kind of store, and are deleted again."""

from __future__ import annotations

import gc
import itertools
import signal
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractBufferedFile

from arrow_io.errors import StorageError
from arrow_io.format.object_names import parse_object_name
from arrow_io.storage.attempts import Attempt, Attempts, RetryPolicy
from arrow_io.storage.location import Location
from arrow_io.storage.request import ObjectAttributes, Request
from arrow_io.storage.trace import RequestCounts, RequestKind, RequestRecord, RequestTrace
from arrow_io.storage.uploads import ObjectUpload, run_uninterrupted
from tests.support.offloads import names

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from arrow_io.storage.store_uploads import StoreUpload
    from tests.support.s3_server import S3Server


NAME = "00000000-0000-0000-0000-000000000001-ledger-42"
METADATA = {"role": "data", "managedledgername": "public/default/persistent/orders"}
PART = bytes(range(256)) * (5 << 12)  # 5 MiB, the least that S3 takes
PARTS = [PART, PART[::-1], b"the last may be shorter"]

_memory_folders = itertools.count()


@pytest.fixture(params=["folder", "new-folder", "memory", "other", "bucket", "prefix"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """An empty place of each kind."""
    if request.param in {"bucket", "prefix"}:
        server: S3Server = request.getfixturevalue("s3_server")
        bucket = server.new_bucket()
        prefix = "/some/prefix" * (request.param == "prefix")
        return Location(f"s3://{bucket}{prefix}", server.storage_options)
    if request.param == "memory":
        return Location(f"memory://uploads-{next(_memory_folders)}")
    if request.param == "other":
        # A file system of which nothing is known but fsspec's interface.
        return Location("dir://below", {"path": str(tmp_path), "target_protocol": "file"})
    return Location(str(tmp_path if request.param == "folder" else tmp_path / "a" / "b"))


def content(location: Location, name: str = NAME) -> bytes:
    """The bytes of an object."""
    return location.read_object(name, max_bytes=1 << 30).data


def fail_while_uploading(location: Location, error: BaseException, parts: Sequence[bytes]) -> None:
    """Write some parts of an object, and raise."""
    with location.upload(NAME, user_metadata={}) as upload:
        for part in parts:
            upload.write_part(part)
        raise error


class TestEveryStore:
    """What must be true wherever objects are written."""

    def test_a_whole_object_is_one_request(self, location: Location) -> None:
        """An object that was written is read back, and is alone."""
        trace = RequestTrace()

        replace(location, trace=trace).write_object(NAME, b"index", user_metadata=METADATA)

        assert content(location) == b"index"
        assert names(location) == [NAME]
        assert trace.counts == RequestCounts(put_requests=1, put_bytes=5)

    def test_parts_become_one_object(self, location: Location) -> None:
        """Parts are read back as one object, which was not there before the last of them."""
        trace = RequestTrace(keep_records=True)

        with replace(location, trace=trace).upload(NAME, user_metadata=METADATA) as upload:
            for part in PARTS:
                upload.write_part(part)
                assert not location.exists(NAME)

        assert content(location) == b"".join(PARTS)
        assert names(location) == [NAME]
        assert location.unfinished_uploads() == []
        size = len(PART)
        assert trace.records == (
            RequestRecord(RequestKind.UPLOAD, NAME),
            RequestRecord(RequestKind.PART, NAME, 0, size),
            RequestRecord(RequestKind.PART, NAME, size, 2 * size),
            RequestRecord(RequestKind.PART, NAME, 2 * size, 2 * size + len(PARTS[2])),
            RequestRecord(RequestKind.UPLOAD, NAME),
        )
        assert trace.counts == RequestCounts(
            upload_requests=2, part_requests=3, part_bytes=sum(map(len, PARTS))
        )
        assert trace.counts.written_bytes == sum(map(len, PARTS))

    def test_an_object_of_the_name_is_replaced(self, location: Location) -> None:
        """The newest object of a name is the one that is read, however it was written."""
        location.write_object(NAME, b"one, which is longer", user_metadata={})
        with location.upload(NAME, user_metadata={}) as upload:
            upload.write_part(b"two")

        assert content(location) == b"two"

        location.write_object(NAME, b"three", user_metadata={})

        assert content(location) == b"three"
        assert names(location) == [NAME]

    @pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt()], ids=["err", "int"])
    @pytest.mark.parametrize("part_count", [0, 1, 2])
    def test_an_error_leaves_nothing(
        self, location: Location, error: BaseException, part_count: int
    ) -> None:
        """An error, an interrupt too, leaves the block as it is, and the bucket as it was."""
        location.write_object(NAME, b"before", user_metadata={})

        with pytest.raises(type(error)) as raised:
            fail_while_uploading(location, error, PARTS[:part_count])

        assert raised.value is error
        assert getattr(error, "__notes__", []) == []
        assert content(location) == b"before"
        assert names(location) == [NAME]
        assert location.unfinished_uploads() == []

    def test_deleting_is_idempotent(self, location: Location) -> None:
        """Objects are deleted, others stay, and what is not there is no error."""
        for name in ("a", "b", "c"):
            location.write_object(name, b"", user_metadata={})
        trace = RequestTrace(keep_records=True)

        replace(location, trace=trace).delete_objects(["c", "a", "none"])
        location.delete_objects(["c", "a"])

        assert names(location) == ["b"]
        assert [record.name for record in trace.records] == ["c", "a", "none"]
        assert trace.counts == RequestCounts(delete_requests=3)

    def test_nothing_unfinished_where_nothing_is(self, location: Location) -> None:
        """A place without uploads has none to list; to abort one there is no error."""
        trace = RequestTrace()

        assert replace(location, trace=trace).unfinished_uploads() == []
        replace(location, trace=trace).abort_upload(NAME, "0123456789abcdef")
        assert trace.counts == RequestCounts(list_requests=1, delete_requests=1)

    @pytest.mark.parametrize("location", ["folder", "other", "bucket", "prefix"], indirect=True)
    def test_what_is_unfinished_is_listed_and_aborted(self, location: Location) -> None:
        """What a process leaves that is killed can be found, by its name, and be removed."""
        others = {"another": location, NAME + "0": location}
        begun = [each.upload(name, user_metadata={}) for name, each in others.items()]
        left = location.upload(NAME, user_metadata={})
        for upload in (left, *begun):
            upload.__enter__()
            upload.write_part(b"never completed")
            upload.wait()

        found = location.unfinished_uploads(NAME)

        assert {each.name for each in found} == {NAME, NAME + "0"}
        assert len(location.unfinished_uploads()) == 3
        (mine,) = (each for each in found if each.name == NAME)
        assert mine.initiated is not None
        assert all(parse_object_name(name) is None for name in names(location))

        location.abort_upload(mine.name, mine.upload_id)

        assert [each.name for each in location.unfinished_uploads(NAME)] == [NAME + "0"]
        for upload in (left, *begun):
            upload.__exit__(RuntimeError, RuntimeError(), None)
        assert location.unfinished_uploads() == []


@pytest.mark.s3
def test_a_name_with_a_question_mark_is_a_whole_key(s3_server: S3Server) -> None:
    """No other object is written, read or deleted in the place of such a one."""
    address = s3_server.upload({"keep": b"precious"})
    location = Location(address.url, address.storage_options)
    name = "keep?versionId=1"

    location.write_object(name, b"other", user_metadata={})
    read = location.read_object(name, max_bytes=9).data
    there = names(location)
    location.delete_objects([name])

    assert (read, there, names(location)) == (b"other", ["keep", name], ["keep"])
    assert location.read_object("keep", max_bytes=9).data == b"precious"


def test_uploads_below_a_prefix_are_not_those_of_the_bucket(s3_server: S3Server) -> None:
    """Only uploads of objects directly at the location are listed, as objects are."""
    bucket = s3_server.new_bucket()
    for key in ("a", "folder/a", "folder/below/a", "folder-2/a"):
        s3_server.client.create_multipart_upload(Bucket=bucket, Key=key)

    for url, expected in ((bucket, ["a"]), (f"{bucket}/folder", ["a"]), (f"{bucket}/fol", [])):
        location = Location(f"s3://{url}", s3_server.storage_options)
        assert [each.name for each in location.unfinished_uploads()] == expected
    assert Location(f"s3://{bucket}", s3_server.storage_options).unfinished_uploads("b") == []


def test_s3_keeps_user_metadata_and_content_type(s3_server: S3Server) -> None:
    """What is given with an object is kept with it; parts are those of a multipart upload."""
    bucket = s3_server.new_bucket()
    location = Location(f"s3://{bucket}", s3_server.storage_options)

    location.write_object("whole", b"", user_metadata=METADATA)
    with location.upload("parts", user_metadata=METADATA, content_type="text/plain") as upload:
        for part in PARTS:
            upload.write_part(part)

    whole = s3_server.client.head_object(Bucket=bucket, Key="whole")
    parts = s3_server.client.head_object(Bucket=bucket, Key="parts")
    assert (whole["Metadata"], whole["ContentType"]) == (METADATA, "application/octet-stream")
    assert (parts["Metadata"], parts["ContentType"]) == (METADATA, "text/plain")
    assert parts["ETag"].endswith('-3"')


class CountedPart(bytes):
    """A part that knows how many others there are."""

    alive = 0
    most = 0

    def __init__(self, _data: bytes) -> None:
        CountedPart.alive += 1
        CountedPart.most = max(CountedPart.most, CountedPart.alive)

    def __del__(self) -> None:
        CountedPart.alive -= 1


def test_few_parts_are_held(location: Location) -> None:
    """Beside the part that its writer makes, two are held: one under way, one handed over."""
    CountedPart.alive = CountedPart.most = 0
    with location.upload(NAME, user_metadata={}) as upload:
        for _ in range(12):
            upload.write_part(CountedPart(PART))

    assert CountedPart.most <= 3
    assert [info.size_bytes for info in location.list_objects()] == [12 * len(PART)]


class BlockedUpload:
    """An upload whose parts wait until they are let go."""

    is_repeatable: ClassVar[bool] = True

    def __init__(self) -> None:
        self.log: list[str] = []
        self.started = threading.Event()
        self.go = threading.Event()

    def begin_upload(self, _request: Request, _attempt: Attempt) -> BlockedUpload:
        """It is the store, too."""
        return self

    def write_part(self, request: Request, attempt: Attempt) -> None:
        """Wait."""
        del attempt
        self.started.set()
        assert self.go.wait(timeout=30)
        self.log.append(f"part {request.part_number}")

    def complete(self, request: Request, attempt: Attempt) -> None:
        """Note it."""
        del request, attempt
        self.log.append("complete")

    def discard(self, request: Request, attempt: Attempt) -> None:
        """Note it."""
        del request, attempt
        self.log.append("discard")


def blocked_upload() -> tuple[BlockedUpload, ObjectUpload]:
    """An upload that waits."""
    store = BlockedUpload()

    def send(request: Request, upload: StoreUpload | None = None) -> Any:  # noqa: ANN401
        assert request.can_repeat
        attempt = Attempts(RetryPolicy()).begin()
        return getattr(upload or store, request.operation)(request, attempt)

    return store, ObjectUpload("x", ObjectAttributes({}), send)


def test_an_interrupt_waits_for_what_is_under_way() -> None:
    """An upload is aborted behind its last part: S3 would keep one that comes after the abort."""
    store, upload = blocked_upload()

    def interrupted() -> None:
        with upload:
            upload.write_part(b"part")
            raise KeyboardInterrupt

    def expect_interrupt() -> None:
        with pytest.raises(KeyboardInterrupt):
            interrupted()

    writer = threading.Thread(target=expect_interrupt)
    writer.start()
    assert store.started.wait(timeout=30)
    store.go.set()
    writer.join(timeout=30)

    assert store.log == ["part 1", "discard"]


def test_the_next_part_is_made_while_one_is_under_way() -> None:
    """Handing over a part does not wait for it to be written."""
    store, upload = blocked_upload()

    with upload:
        upload.write_part(b"part")
        # Were the part written here, this would never be reached.
        store.go.set()
        upload.write_part(b"part")

    assert store.log == ["part 1", "part 2", "complete"]


def test_an_action_gives_its_result_or_its_error() -> None:
    """What is run to its end gives its result, or raises its error."""
    assert run_uninterrupted(lambda: 7) == 7

    with pytest.raises(ZeroDivisionError):
        run_uninterrupted(lambda: 1 // 0)


@pytest.mark.posix
def test_an_interrupt_waits_for_the_end_of_an_action() -> None:
    """What is run to its end has ended when an interrupt leaves it."""
    started, interrupted, ended = threading.Event(), threading.Event(), threading.Event()

    def action() -> None:
        started.set()
        assert interrupted.wait(timeout=30)
        ended.set()

    def interrupt(main: int) -> None:
        assert started.wait(timeout=30)
        signal.pthread_kill(main, signal.SIGUSR1)
        interrupted.set()

    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    helper = threading.Thread(target=interrupt, args=(threading.get_ident(),))
    helper.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_uninterrupted(action)
        assert ended.is_set()
    finally:
        helper.join()
        signal.signal(signal.SIGUSR1, before)


# Stores whose files appear when they are closed


CLOSING_NAME = "00000000-0000-0000-0000-000000000001-ledger-42"
CLOSING_PARTS = [bytes(6 << 20), b"\1" * (6 << 20), b"the last may be shorter"]


def fail_after_a_part(location: Location, error: BaseException) -> None:
    """Write a part of an object, and raise."""
    with location.upload(CLOSING_NAME, user_metadata={}) as upload:
        upload.write_part(b"part")
        raise error


# fsspec carries no types, so its classes are Any.
class ClosingFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file of an object store: seen when it is closed, as those of gcsfs and adlfs are."""

    def __init__(self, fs: Any, path: str, mode: str, **options: object) -> None:  # noqa: ANN401
        super().__init__(fs, path, mode)
        self._options = options
        self._sent = b""

    def _upload_chunk(self, final: bool = False) -> bool:  # noqa: FBT002 - fsspec's
        self._sent += self.buffer.getvalue()
        if final:
            how = "create" if self.mode == "xb" else "overwrite"
            self.fs.pipe_file(self.path, self._sent, mode=how)
            self.fs.published[self.path] = self._options
        return True

    def discard(self) -> None:
        """Forget what was written."""
        self.fs.discarded.append(self.path)


# fsspec carries no types, so its classes are Any.
class ClosingFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """An object store with user metadata."""

    protocol: ClassVar[tuple[str, ...]] = ("closing-gs", "gs")
    published: ClassVar[dict[str, dict[str, object]]] = {}
    discarded: ClassVar[list[str]] = []

    def open(self, path: str, mode: str = "rb", **options: object) -> object:
        """Open a file to be written, or as memory does."""
        if mode in {"wb", "xb"} and "data" not in options:
            return ClosingFile(self, self._strip_protocol(path), mode, **options)
        return super().open(path, mode, **options)


class ClosingAzureFileSystem(ClosingFileSystem):
    """Another, that takes no content type."""

    protocol: ClassVar[tuple[str, ...]] = ("closing-az", "abfs", "az")


def read(location: Location, name: str) -> bytes:
    """The bytes of an object."""
    return location.read_object(name, max_bytes=1 << 30).data


class TestClosingStores:
    """Stores whose files appear when they are closed, as those of GCS and Azure do."""

    @pytest.fixture(params=["closing-gs", "closing-az"])
    def location(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Location:
        """A bucket."""
        for kind in (ClosingFileSystem, ClosingAzureFileSystem):
            fsspec.register_implementation(kind.protocol[0], kind, clobber=True)
        # Not a store that is told by its class.
        monkeypatch.setattr("arrow_io.storage.connection.MemoryFileSystem", type(None))
        ClosingFileSystem.published.clear()
        ClosingFileSystem.discarded.clear()
        return Location(f"{request.param}://bucket-{next(_memory_folders)}")

    def test_attributes_are_given(self, location: Location) -> None:
        """User metadata goes with every object, the content type where it is known how."""
        location.write_object("index", b"1", user_metadata=METADATA)
        with location.upload("data", user_metadata=METADATA) as upload:
            for part in CLOSING_PARTS:
                upload.write_part(part)

        assert read(location, "data") == b"".join(CLOSING_PARTS)
        assert read(location, "index") == b"1"
        content_type = {"content_type": "application/octet-stream"}
        for options in ClosingFileSystem.published.values():
            expected = content_type if location.url.startswith("closing-gs") else {}
            assert options == {"metadata": METADATA, **expected}
        assert len(ClosingFileSystem.published) == 2
        assert ClosingFileSystem.discarded == []
        assert location.unfinished_uploads() == []

    def test_a_name_is_taken_only_if_it_is_free(self, location: Location) -> None:
        """Other bytes do not take the place of those that are there."""
        assert location.write_new_object("name", b"first")
        assert not location.write_new_object("name", b"other")
        assert location.write_new_object("name", b"first")
        assert read(location, "name") == b"first"

    def test_a_new_object_has_its_user_metadata(self, location: Location) -> None:
        """Nobody sees it without."""
        assert location.write_new_object("name", b"first", user_metadata=METADATA)
        (options,) = ClosingFileSystem.published.values()
        assert options["metadata"] == METADATA

    @pytest.mark.parametrize("status", [416, 400])
    def test_an_empty_object_has_no_range(
        self, location: Location, monkeypatch: pytest.MonkeyPatch, status: int
    ) -> None:
        """Stores refuse each range of it, which is no failure; what else they refuse is one."""

        def refuse(*_arguments: object, **_options: object) -> bytes:
            error = OSError("refused")
            error.code = status  # type: ignore[attr-defined]
            raise error

        monkeypatch.setattr(ClosingFileSystem, "cat_file", refuse)
        if status == 416:
            assert read(location, "empty") == b""
        else:
            with pytest.raises(StorageError, match="refused"):
                read(location, "empty")

    @pytest.mark.parametrize("when", ["writing", "closing"])
    def test_an_upload_that_fails_is_a_storage_error(
        self, location: Location, monkeypatch: pytest.MonkeyPatch, when: str
    ) -> None:
        """Though adlfs makes a `RuntimeError` of whatever goes wrong."""

        def fail(file: ClosingFile, final: bool = False) -> bool:  # noqa: FBT002 - fsspec's
            if final == (when == "closing"):
                raise RuntimeError("Failed to upload block: no such container!")
            file._sent = b""
            return True

        monkeypatch.setattr(ClosingFile, "_upload_chunk", fail)

        with (
            pytest.raises(StorageError, match="no such container"),
            location.upload("data", user_metadata={}) as upload,
        ):
            upload.write_part(CLOSING_PARTS[0])

    def test_a_discarded_file_is_not_published_when_it_is_collected(
        self, location: Location
    ) -> None:
        """Files of fsspec close themselves when nobody holds them: not those that were aborted."""
        with pytest.raises(ZeroDivisionError):
            fail_after_a_part(location, ZeroDivisionError())
        gc.collect()

        assert len(ClosingFileSystem.discarded) == 1
        assert not location.exists(CLOSING_NAME)
        assert ClosingFileSystem.published == {}
