"""Stores whose files appear when they are closed, as those of GCS and Azure do."""

from __future__ import annotations

import gc
import itertools
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractBufferedFile

from arrow_io.errors import StorageError
from arrow_io.storage.location import Location

NAME = "00000000-0000-0000-0000-000000000001-ledger-42"
METADATA = {"role": "data", "managedledgername": "public/default/persistent/orders"}
PARTS = [bytes(6 << 20), b"\1" * (6 << 20), b"the last may be shorter"]

_memory_folders = itertools.count()


def fail_while_uploading(location: Location, error: BaseException) -> None:
    """Write a part of an object, and raise."""
    with location.upload(NAME, user_metadata={}) as upload:
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
            for part in PARTS:
                upload.write_part(part)

        assert read(location, "data") == b"".join(PARTS)
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
            upload.write_part(PARTS[0])

    def test_a_discarded_file_is_not_published_when_it_is_collected(
        self, location: Location
    ) -> None:
        """Files of fsspec close themselves when nobody holds them: not those that were aborted."""
        with pytest.raises(ZeroDivisionError):
            fail_while_uploading(location, ZeroDivisionError())
        gc.collect()

        assert len(ClosingFileSystem.discarded) == 1
        assert not location.exists(NAME)
        assert ClosingFileSystem.published == {}
