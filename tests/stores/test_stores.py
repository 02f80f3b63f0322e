"""Google Cloud Storage and Azure are read and written as S3 is, by either client."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from arrow_io.errors import MissingObjectError, ObjectChangedError, OptionError
from arrow_io.storage.location import Location
from arrow_io.storage.own_options import Client
from connector import LedgerOffloader, open_topic
from tests.arrow_io import test_storage_location as every_store
from tests.support.golden import golden_topic
from tests.support.offloads import golden_ledger, names
from tests.support.racing_writers import winners_of

if TYPE_CHECKING:
    from tests.stores.conftest import Cloud

pytestmark = [
    pytest.mark.stores,
    # Of aiohttp, for the bodies that gcsfs and adlfs give it.
    pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning"),
]

_PART_BYTES = 6 << 20


def _places(cloud: Cloud) -> tuple[Location, Location]:
    """An empty place, to read from and to write to."""
    url = f"{cloud.emulator.new_container()}/some/prefix"
    return Location(url, cloud.options), Location(url, cloud.writing_options)


class TestEveryStore(every_store.TestEveryStore):
    """What must be true wherever objects lie."""


def test_what_is_offloaded_is_read_as_a_topic(cloud: Cloud) -> None:
    """As one that a broker offloaded; the objects have the metadata that Pulsar's have."""
    topic = golden_topic("multi-ledger")
    reading, writing = _places(cloud)
    offloader = LedgerOffloader(writing.url, storage_options=writing.storage_options)
    for number, ledger in enumerate(topic.ledgers):
        assert offloader.offload(golden_ledger(ledger), UUID(int=number)).warnings == ()

    ours = open_topic(reading.url, topic.name, storage_options=reading.storage_options, value="raw")
    theirs = open_topic(str(topic.objects_folder), topic.name, value="raw")
    assert ours.to_table().equals(theirs.to_table())
    for name in names(reading):
        metadata = reading.user_metadata(name) or {}
        assert metadata["s3managedledgeroffloaderformatversion"] == "1"
    for number, ledger in enumerate(topic.ledgers):
        assert offloader.delete_offloaded(ledger.ledger_id, UUID(int=number)) == ()
    assert names(reading) == []


def test_an_object_of_many_parts_is_whole(cloud: Cloud) -> None:
    """Its bytes are those that were written, in order, and its user metadata is there."""
    reading, writing = _places(cloud)
    parts = [bytes([number]) * _PART_BYTES for number in range(5)]

    with writing.upload("large", user_metadata={"some": "value"}) as upload:
        for part in parts:
            upload.write_part(part)
        upload.wait()
        assert not reading.exists("large")

    assert reading.read_object("large", max_bytes=1 << 26).data == b"".join(parts)
    assert reading.user_metadata("large") == {"some": "value"}
    assert reading.read_range("large", _PART_BYTES - 1, _PART_BYTES + 1).data == b"\0\1"


def test_an_upload_that_fails_leaves_nothing(cloud: Cloud) -> None:
    """No object, and no other one is lost that had its name."""
    reading, writing = _places(cloud)
    writing.write_object("large", b"before", user_metadata={})

    def fail() -> None:
        with writing.upload("large", user_metadata={}) as upload:
            upload.write_part(bytes(_PART_BYTES))
            raise InterruptedError

    with pytest.raises(InterruptedError) as raised:
        fail()
    assert not hasattr(raised.value, "__notes__")
    assert reading.read_object("large", max_bytes=9).data == b"before"
    assert names(reading) == ["large"]
    assert writing.unfinished_uploads() == []


def test_only_the_first_is_written(cloud: Cloud) -> None:
    """Other bytes do not take the place of those that are there; the same ones may come again."""
    reading, writing = _places(cloud)

    assert writing.write_new_object("name", b"first")
    assert not writing.write_new_object("name", b"other")
    assert writing.write_new_object("name", b"first")
    assert reading.read_object("name", max_bytes=9).data == b"first"


def test_only_what_was_seen_is_replaced(cloud: Cloud) -> None:
    """An object of another version stays, and what is written has its user metadata."""
    reading, writing = _places(cloud)
    assert writing.write_new_object("name", b"damaged", user_metadata={"some": "value"})
    assert reading.user_metadata("name") == {"some": "value"}
    version = writing.list_objects()[0].version
    assert version is not None

    assert writing.replace_object("name", b"repaired", version, user_metadata={"some": "other"})
    assert not writing.replace_object("name", b"later", version, user_metadata={})
    assert reading.read_object("name", max_bytes=9).data == b"repaired"
    assert reading.user_metadata("name") == {"some": "other"}


def test_of_many_one_wins(cloud: Cloud) -> None:
    """Of threads that write at once, exactly one is told that it did."""
    reading, writing = _places(cloud)
    writing.write_object("other", b"", user_metadata={})

    assert winners_of(writing, "name") == [reading.read_object("name", max_bytes=9).data]


def test_another_version_is_noticed(cloud: Cloud) -> None:
    """A listing names the version that a HEAD does, and one that was replaced is another."""
    reading, writing = _places(cloud)
    writing.write_object("a", b"0123456789", user_metadata={})
    version = reading.list_objects()[0].version
    assert version is not None
    reading.check_version("a", version)
    assert reading.read_range("a", 2, 5, version=version).data == b"234"

    writing.write_object("a", b"9876543210", user_metadata={})

    with pytest.raises(ObjectChangedError):
        reading.check_version("a", version)
    if cloud.client == Client.OBSTORE or (cloud.client, cloud.emulator.scheme) == (
        Client.AUTO,
        "az",
    ):
        with pytest.raises(ObjectChangedError):
            reading.read_range("a", 2, 5, version=version)


def test_an_empty_object_may_be_replaced_and_deleted(cloud: Cloud) -> None:
    """One that is gone already is no error."""
    reading, writing = _places(cloud)
    writing.write_object("a", b"data", user_metadata={})
    writing.write_object("a", b"", user_metadata={})
    assert reading.read_object("a", max_bytes=4).data == b""

    writing.delete_objects(["a", "none"])

    with pytest.raises(MissingObjectError):
        reading.read_object("a", max_bytes=4)


def test_obstore_writes_to_azure_alone(cloud: Cloud) -> None:
    """Elsewhere it could leave what nobody finds."""
    reading, _ = _places(cloud)

    if cloud.client == "obstore" and cloud.emulator.scheme == "gs":
        with pytest.raises(OptionError, match="without the storage option client"):
            reading.check_writable()
    else:
        reading.check_writable()
