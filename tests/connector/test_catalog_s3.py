"""What S3 adds to a bucket: user metadata, which tells a topic's name and the format's version."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from arrow_io.errors import (
    CorruptIndexError,
    IncompleteReadWarning,
    MissingObjectError,
    UnknownFormatError,
)
from arrow_io.format.index_block import FORMAT_VERSION_KEY
from arrow_io.ledgers.writer import new_ledger_metadata
from arrow_io.read_metrics import Unit
from connector import open_catalog, open_topic
from connector.inputs.topic_names import TopicName
from tests.support.buckets import MANAGED_LEDGER, TOPIC, object_name, offload_ledger
from tests.support.encoded_ledgers import encode_ledger
from tests.support.entries import Message, encode_entry
from tests.support.s3_server import S3Address, S3Server

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arrow_io.format.object_names import LedgerObjectName

pytestmark = pytest.mark.s3

_VERSION: Final = {FORMAT_VERSION_KEY: "1"}
_ENTRIES: Final = [encode_entry([Message(payload=b"value")], batched=False)]


def _nameless(name: LedgerObjectName) -> dict[str, bytes]:
    """A ledger whose index says nothing of a topic, as those of old brokers."""
    metadata = new_ledger_metadata([len(_ENTRIES[0])], managed_ledger="gone", ctime_ms=0)
    encoded = encode_ledger(_ENTRIES, replace(metadata, custom_metadata={}))
    return {name.data_name: encoded.data, name.index_name: encoded.index}


def _upload(
    s3_server: S3Server, objects: Mapping[str, bytes], user_metadata: Mapping[str, str]
) -> S3Address:
    bucket = s3_server.new_bucket()
    for name, data in objects.items():
        s3_server.client.put_object(
            Bucket=bucket, Key=name, Body=data, Metadata=dict(user_metadata)
        )
    return S3Address(f"s3://{bucket}", s3_server.storage_options)


def _values(address: S3Address) -> list[bytes]:
    dataset = open_topic(address.url, TOPIC, storage_options=address.storage_options)
    values: list[bytes] = dataset.to_table(columns=["__value__"])["__value__"].to_pylist()
    return values


def _assert_salvaged(address: S3Address, error: str, *, rows: int) -> None:
    dataset = open_topic(
        address.url, TOPIC, storage_options=address.storage_options, on_corruption="salvage"
    )
    with pytest.warns(IncompleteReadWarning, match=f"1 × ledger lost: {error}"):
        assert dataset.to_table().num_rows == rows
    assert dataset.metrics.lost == {(Unit.LEDGER, error): 1}


@pytest.mark.parametrize("key", ["ManagedLedgerName", "managedledgername"])
def test_user_metadata_tells_what_the_index_does_not(s3_server: S3Server, key: str) -> None:
    """The managed ledger's name stands there too, in the case that the library gives it."""
    user_metadata = {**_VERSION, key: MANAGED_LEDGER}
    address = _upload(s3_server, _nameless(object_name(5)), user_metadata)

    assert _values(address) == [b"value"]


def test_user_metadata_that_contradicts_the_index_is_an_error(s3_server: S3Server) -> None:
    """No checksum covers either name: a ledger with two is not quietly counted to one of them."""
    user_metadata = {**_VERSION, "managedledgername": "public/default/persistent/other"}
    objects = offload_ledger(object_name(5), _ENTRIES)
    address = _upload(s3_server, objects, user_metadata)

    with pytest.raises(CorruptIndexError, match="'public/default/persistent/other'"):
        open_topic(address.url, "other", storage_options=address.storage_options)


def test_ledger_of_which_nothing_tells_the_topic_is_an_error(s3_server: S3Server) -> None:
    """Neither index nor user metadata: it may belong to the topic that is asked for."""
    name = object_name(5)
    objects = {**_nameless(name), **offload_ledger(object_name(6), _ENTRIES)}
    address = _upload(s3_server, objects, _VERSION)

    with pytest.raises(CorruptIndexError, match="names the topic of the ledger") as caught:
        _values(address)

    assert (caught.value.object_key, caught.value.ledger_id) == (name.index_name, 5)
    _assert_salvaged(address, "CorruptIndexError", rows=1)


def test_other_format_version_is_refused(s3_server: S3Server) -> None:
    """A version that is not known is not read, and is told; the topic is known nevertheless."""
    user_metadata = {FORMAT_VERSION_KEY: "2", "managedledgername": MANAGED_LEDGER}
    name = object_name(5)
    address = _upload(s3_server, offload_ledger(name, _ENTRIES), user_metadata)

    with pytest.raises(UnknownFormatError, match="format version '2', expected '1'") as caught:
        _values(address)

    assert type(caught.value) is UnknownFormatError
    assert (caught.value.object_key, caught.value.ledger_id) == (name.index_name, 5)
    _assert_salvaged(address, "UnknownFormatError", rows=0)


def test_copy_without_user_metadata_is_read_with_a_warning(s3_server: S3Server) -> None:
    """Tools that copy buckets may lose the user metadata; the index tells all that is needed."""
    address = _upload(s3_server, offload_ledger(object_name(5), _ENTRIES), {})

    catalog = open_catalog(address.url, storage_options=address.storage_options)

    (ledger,) = catalog.ledgers(TopicName.parse(TOPIC)).ledgers
    assert "copied without it" in ledger.warnings[0]
    assert _values(address) == [b"value"]


def test_topic_of_a_broken_index_is_told_by_user_metadata(s3_server: S3Server) -> None:
    """So it is lost to that topic alone; every other topic is read as though it were not there."""
    broken, other = object_name(5), object_name(6)
    objects = offload_ledger(broken, _ENTRIES)
    objects[broken.index_name] = objects[broken.index_name][:40]
    address = _upload(
        s3_server, objects, {**_VERSION, "managedledgername": "public/default/persistent/a"}
    )
    bucket = address.url.removeprefix("s3://")
    for name, data in offload_ledger(other, _ENTRIES).items():
        s3_server.client.put_object(Bucket=bucket, Key=name, Body=data, Metadata=_VERSION)

    assert _values(address) == [b"value"]


def test_empty_bucket_has_no_prefix(s3_server: S3Server) -> None:
    """An empty bucket has no topics; a prefix under which nothing lies is not there."""
    bucket = s3_server.new_bucket()

    assert open_catalog(f"s3://{bucket}", storage_options=s3_server.storage_options).topics() == []
    with pytest.raises(MissingObjectError):
        open_catalog(f"s3://{bucket}/prefix", storage_options=s3_server.storage_options)


def _upload_unfinished(s3_server: S3Server, ledger_id: int, *sound: int) -> tuple[S3Address, str]:
    """Sound ledgers and one without its index object, whose name is given."""
    name = object_name(ledger_id)
    objects = offload_ledger(name, _ENTRIES)
    del objects[name.index_name]
    for each in sound:
        objects |= offload_ledger(object_name(each), _ENTRIES)
    address = _upload(s3_server, objects, {**_VERSION, "managedledgername": MANAGED_LEDGER})
    return address, name.index_name


def test_ledger_between_others_whose_index_is_gone_is_an_error(s3_server: S3Server) -> None:
    """The broker offloads in order: it was complete once, and its rows are missing."""
    address, index_name = _upload_unfinished(s3_server, 6, 5, 7)

    with pytest.raises(MissingObjectError, match="its index object is missing") as caught:
        _values(address)

    assert (caught.value.object_key, caught.value.ledger_id) == (index_name, 6)
    _assert_salvaged(address, "MissingObjectError", rows=2)


def test_last_ledger_without_index_may_be_under_way(s3_server: S3Server) -> None:
    """It is no error, and no silence."""
    address, _ = _upload_unfinished(s3_server, 8, 5, 7)
    dataset = open_topic(address.url, TOPIC, storage_options=address.storage_options)

    with pytest.warns(IncompleteReadWarning, match="1 data object has no index object"):
        assert dataset.to_table().num_rows == 2
    assert dataset.metrics.unfinished_ledgers == 1


def test_index_that_is_gone_is_not_missed_beside_another_copy(s3_server: S3Server) -> None:
    """Of the ledger there is a complete copy under another uuid."""
    address, _ = _upload_unfinished(s3_server, 6, 5, 6, 7)

    assert _values(address) == [b"value"] * 3


def test_unfinished_offload_is_told_to_its_own_topic_alone(s3_server: S3Server) -> None:
    """Another topic's ledger of the same id completes nothing, and is not disturbed."""
    address, _ = _upload_unfinished(s3_server, 6, 5, 7)
    bucket = address.url.removeprefix("s3://")
    other = "public/default/persistent/other"
    for name, data in offload_ledger(object_name(6), _ENTRIES, managed_ledger=other).items():
        s3_server.client.put_object(
            Bucket=bucket, Key=name, Body=data, Metadata={**_VERSION, "managedledgername": other}
        )

    dataset = open_topic(address.url, "other", storage_options=address.storage_options)

    assert dataset.count_rows() == 1
    assert (dataset.metrics.unfinished_ledgers, dataset.metrics.lost) == (0, {})
    with pytest.raises(MissingObjectError):
        _values(address)


def test_unfinished_offload_that_is_deleted_meanwhile_is_passed_over(s3_server: S3Server) -> None:
    """A broker clears failed attempts away; that is no reason not to read the topic."""
    address, index_name = _upload_unfinished(s3_server, 6, 5, 7)
    catalog = open_catalog(address.url, storage_options=address.storage_options)
    bucket, data_name = address.url.removeprefix("s3://"), index_name.removesuffix("-index")
    s3_server.client.delete_object(Bucket=bucket, Key=data_name)

    dataset = open_topic(address.url, TOPIC, catalog=catalog)

    assert dataset.count_rows() == 2
    assert dataset.metrics.unfinished_ledgers == 0
