"""An object is written only if its name is free, and of two writers one learns that it is not."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from arrow_io.errors import MissingObjectError, OptionError, StorageError
from arrow_io.storage.location import Location
from tests.support.faulty_s3 import Fault, S3Faults
from tests.support.faulty_storage import FakeS3, s3_error
from tests.support.racing_writers import winners_of
from tests.support.s3_server import S3Server, running_s3_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from arrow_io.storage.object_version import ObjectVersion

_memory_folders = itertools.count()
_FAULTS = S3Faults()


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    """An S3 server, perhaps with faults."""
    with running_s3_server(_FAULTS.wrap) as server:
        yield server


@pytest.fixture(params=["folder", "new-folder", "memory", "bucket"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """An empty place of each kind."""
    if request.param == "bucket":
        server: S3Server = request.getfixturevalue("s3_server")
        _FAULTS.heal()
        return Location(f"s3://{server.new_bucket()}/prefix", server.storage_options)
    if request.param == "memory":
        return Location(f"memory://new-objects-{next(_memory_folders)}")
    return Location(str(tmp_path if request.param == "folder" else tmp_path / "a" / "b"))


def test_only_the_first_is_written(location: Location) -> None:
    """Other bytes do not take the place of those that are there; nothing else is left."""
    assert location.write_new_object("name", b"first")
    assert not location.write_new_object("name", b"other")
    assert not location.write_new_object("name", b"longer than first")
    assert location.read_object("name", max_bytes=9).data == b"first"
    assert [each.name for each in location.list_objects()] == ["name"]


def test_the_same_bytes_may_be_written_again(location: Location) -> None:
    """Whoever did not hear that it wrote the object is told so the next time."""
    assert location.write_new_object("name", b"first")
    assert location.write_new_object("name", b"first")


def test_of_many_one_wins(location: Location) -> None:
    """Of threads that write at once, exactly one is told that it did."""
    won = winners_of(location, "name")

    assert len(won) == 1
    assert location.read_object("name", max_bytes=9).data == won[0]


def test_a_lost_answer_is_no_defeat(s3_server: S3Server) -> None:
    """The request is sent again, finds what it wrote itself, and says so."""
    location = Location(f"s3://{s3_server.new_bucket()}", s3_server.storage_options)
    _FAULTS.plan(Fault.LOST_ANSWER, first=1)
    assert location.write_new_object("name", b"mine")
    assert not location.write_new_object("name", b"other")


def test_a_conflict_is_asked_again() -> None:
    """S3 answers 409 while it decides between two, so the request is sent once more."""
    store = FakeS3(s3_error(409, "ConditionalRequestConflict"), {})
    assert store.location().write_new_object("name", b"mine")
    assert [call["IfNoneMatch"] for call in store.calls] == ["*", "*"]
    assert len(store.pauses_s) == 1


def test_other_failures_are_errors() -> None:
    """A store that refuses is no sign of another writer."""
    store = FakeS3(s3_error(403, "AccessDenied"))
    with pytest.raises(StorageError, match="PermissionError"):
        store.location().write_new_object("name", b"mine")


def test_a_store_that_cannot_is_told(tmp_path: Path) -> None:
    """Nothing is written where it could overwrite."""
    location = Location("dir://below", {"path": str(tmp_path), "target_protocol": "file"})
    with pytest.raises(OptionError, match="cannot create an object atomically"):
        location.write_new_object("name", b"mine")
    assert list(tmp_path.iterdir()) == []


def _seen(location: Location) -> ObjectVersion:
    version = location.list_objects()[0].version
    assert version is not None
    return version


def test_only_what_was_seen_is_replaced(location: Location) -> None:
    """An object of another version stays; the same bytes may be written again."""
    location.write_object("name", b"damaged", user_metadata={})
    seen = _seen(location)

    assert location.replace_object("name", b"repaired", seen, user_metadata={"role": "index"})
    assert not location.replace_object("name", b"other", seen, user_metadata={})
    assert location.replace_object("name", b"repaired", seen, user_metadata={})
    assert location.read_object("name", max_bytes=9).data == b"repaired"
    assert location.user_metadata("name") in ({"role": "index"}, None)
    assert [each.name for each in location.list_objects()] == ["name"]


def test_what_is_gone_is_not_replaced(location: Location) -> None:
    """Who deleted it had a reason."""
    location.write_object("name", b"damaged", user_metadata={})
    seen = _seen(location)
    location.delete_objects(["name"])

    with pytest.raises(MissingObjectError):
        location.replace_object("name", b"repaired", seen, user_metadata={})
    assert not location.exists("name")


def test_a_new_object_has_its_user_metadata(location: Location) -> None:
    """If the store keeps any."""
    assert location.write_new_object("name", b"new", user_metadata={"role": "index"})
    assert location.user_metadata("name") in ({"role": "index"}, None)


def test_a_lost_answer_of_a_replacement_is_no_defeat(s3_server: S3Server) -> None:
    """The request is sent again, finds what it wrote itself, and says so."""
    _FAULTS.heal()
    location = Location(f"s3://{s3_server.new_bucket()}", s3_server.storage_options)
    location.write_object("name", b"damaged", user_metadata={})
    seen = _seen(location)
    _FAULTS.plan(Fault.LOST_ANSWER, first=1)
    assert location.replace_object("name", b"mine", seen, user_metadata={})
    assert not location.replace_object("name", b"other", seen, user_metadata={})
