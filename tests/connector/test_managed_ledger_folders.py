"""MapFiles are found among any number of other folders, with a bounded number of requests."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from arrow_io.errors import UnsearchedFoldersWarning
from arrow_io.format.object_names import MapFileName
from arrow_io.storage.location import Location
from arrow_io.storage.trace import RequestTrace
from connector import open_catalog
from connector.catalog.bucket import Bucket
from connector.catalog.bucket_listing import list_bucket
from connector.inputs.topic_names import TopicName
from tests.support.buckets import MANAGED_LEDGER, memory_bucket, object_name, offload_ledger
from tests.support.command_line import OK, run
from tests.support.entries import Message, encode_entry
from tests.support.map_files import NAME, write_map_file

if TYPE_CHECKING:
    from tests.support.s3_server import S3Server

_MODULE = "connector.catalog.managed_ledger_folders"
_MAX_UNRELATED = 70
"""More than a batch, and fewer than the folders of a memory bucket that are listed quickly."""
_ENTRIES = [encode_entry([Message(payload=b"value")], batched=False)]


def _map_file(managed_ledger: str = MANAGED_LEDGER, ledger_id: int = 7) -> dict[str, bytes]:
    name = MapFileName(managed_ledger, UUID(int=ledger_id), ledger_id)
    return write_map_file(_ENTRIES, managed_ledger=managed_ledger).objects(name)


def _listings(url: str, storage_options: dict[str, object] | None = None) -> tuple[int, int]:
    """Return the number of MapFiles in a bucket, and of requests that listing it takes."""
    trace = RequestTrace()
    listing = list_bucket(Location(url, storage_options, trace=trace))
    assert trace.counts.list_requests == trace.counts.requests == 1 + listing.folder_count
    return sum(isinstance(name, MapFileName) for name in listing.indexes), listing.folder_count


@pytest.mark.s3
def test_a_bucket_without_folders_costs_one_request(s3_server: S3Server) -> None:
    """A flat bucket of another driver is listed as before."""
    address = s3_server.upload(offload_ledger(object_name(5), _ENTRIES))

    assert _listings(address.url, address.storage_options) == (0, 0)


@pytest.mark.s3
def test_each_folder_costs_a_request_on_two_levels(s3_server: S3Server) -> None:
    """Tenants, namespaces and domains are listed; folders of other names and depths are not."""
    objects = {
        **offload_ledger(object_name(5), _ENTRIES),
        **_map_file("public/default/persistent/a", 1),
        **_map_file("public/default/persistent/b", 2),
        **_map_file("public/other/persistent/a", 3),
        "tables/orders/day=1/part-0.parquet": b"",
        "tables/orders/day=2/part-0.parquet": b"",
        "no tenant/x/y": b"",
        "logs/a.txt": b"",
    }
    address = s3_server.upload(objects)

    # logs, public, tables; default, other, orders; two trees.
    assert _listings(address.url, address.storage_options) == (3, 8)


@pytest.mark.s3
def test_a_folder_of_many_objects_is_not_listed_to_its_end(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder beside the ledgers may hold millions of objects: a few pages show that."""
    monkeypatch.setattr(f"{_MODULE}._MAX_PAGES", 2)
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "3")
    objects = {f"logs/{number}": b"" for number in range(7)}
    address = s3_server.upload(objects | _map_file())
    location = Location(address.url, address.storage_options)

    listing = list_bucket(location)

    assert len(listing.indexes) == 1
    assert listing.unsearched_count == 1
    assert len(listing.foreign) == 0


@pytest.fixture
def _small_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{_MODULE}.MAX_UNRELATED_FOLDERS", _MAX_UNRELATED)


@pytest.mark.usefixtures("_small_bound")
@pytest.mark.parametrize("width", [_MAX_UNRELATED // 2, 4 * _MAX_UNRELATED])
def test_a_folder_with_many_others_hides_no_tenant(width: int) -> None:
    """A folder that sorts before the tenant does not use up the search."""
    objects = {f"aaa/day={number}/part": b"" for number in range(width)} | _map_file()

    with memory_bucket(objects) as bucket:
        listing = list_bucket(Location(bucket.url))

    assert len(listing.indexes) == 1
    assert listing.folder_count < _MAX_UNRELATED + 64
    assert bool(listing.unsearched_count) == (width > _MAX_UNRELATED)
    assert bool(listing.search_gap) == bool(listing.unsearched_count)


@pytest.mark.usefixtures("_small_bound")
def test_folders_that_were_not_searched_are_reported() -> None:
    """Tenants after too many other folders are not found; a warning says what to do."""
    width = 3 * _MAX_UNRELATED
    objects = {f"a{number:05}/b/part": b"" for number in range(width)} | _map_file()

    with memory_bucket(objects) as bucket:
        with pytest.warns(UnsearchedFoldersWarning, match="folders of memory://.* not searched"):
            catalog = open_catalog(bucket.url)
        result = run("topics", bucket.url, ends=OK)

    assert catalog.topics() == []
    assert "note: memory://" in result.stderr
    assert "were not searched for MapFiles" in result.stderr


@pytest.mark.usefixtures("_small_bound")
def test_many_namespaces_are_all_found() -> None:
    """The bound counts folders in vain, not those of a large cluster."""
    width = 3 * _MAX_UNRELATED
    objects = {
        name: b""
        for number in range(width)
        for name in (f"t{number % 3}/n{number}/persistent/topic/1-{UUID(int=number)}/index",)
    }

    with memory_bucket(objects) as bucket:
        listing = list_bucket(Location(bucket.url))

    assert len(listing.indexes) == width
    assert listing.unsearched_count == 0


def test_a_folder_that_may_not_be_listed_hides_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reader of flat objects opens them as before; a warning says what was not searched."""
    listed = MemoryFileSystem.ls

    def refuse(file_system: MemoryFileSystem, path: str, **options: object) -> object:
        if "secret" in path:
            raise PermissionError(path)
        return listed(file_system, path, **options)

    monkeypatch.setattr(MemoryFileSystem, "ls", refuse)
    objects = {"secret/a/b": b"", **offload_ledger(object_name(5), _ENTRIES), **_map_file()}

    with memory_bucket(objects) as bucket:
        with pytest.warns(UnsearchedFoldersWarning, match="1 folder of .* access is denied"):
            catalog = open_catalog(bucket.url)
        (topic,) = catalog.topics()

    assert len(catalog.ledgers(topic).ledgers) == 2


@pytest.mark.usefixtures("_small_bound")
@pytest.mark.parametrize("max_lookups", [0, 1])
def test_a_map_file_that_no_listing_finds_is_not_deleted(
    monkeypatch: pytest.MonkeyPatch, max_lookups: int
) -> None:
    """Metadata names a MapFile in a folder that is not searched, so no listing finds it."""
    monkeypatch.setattr("connector.catalog.bucket._MAX_LOOKUPS_BY_NAME", max_lookups)
    width = 3 * _MAX_UNRELATED
    objects = {f"a{number:05}/b/part": b"" for number in range(width)} | _map_file()

    with memory_bucket(objects) as address:
        bucket = Bucket(list_bucket(Location(address.url)))
        assert bucket.copies_of([7]) == []
        bucket.look_again({NAME})
        assert len(bucket.copies_of([7])) == 1
        bucket.look_again(None)
        assert len(bucket.copies_of([7])) == 1
        address.delete(NAME.index_name)
        bucket.look_again(None)
        assert bucket.copies_of([7]) == []


def test_a_topic_with_a_cluster_is_found_by_name_only() -> None:
    """Its folder is one level deeper than the search, and metadata names it."""
    topic = TopicName.parse("persistent://sales/cluster/eu/orders")
    name = replace(NAME, managed_ledger=topic.managed_ledger_name)

    with memory_bucket(_map_file(name.managed_ledger)) as address:
        bucket = Bucket(list_bucket(Location(address.url)))
        assert bucket.copies_of([7]) == []
        bucket.look_again({name})
        (copy,) = bucket.copies_of([7])

    assert (copy.topic, copy.error) == (topic, None)
