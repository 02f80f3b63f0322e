"""Ledgers of a topic that lie in another bucket than the one that is read."""

from __future__ import annotations

import pickle
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from arrow_io.errors import MissingObjectError
from arrow_io.storage.trace import RequestTrace
from connector import open_topic
from tests.support.golden import GOLDEN, golden_topic
from tests.support.owned_bucket import SMALL, OwnedBucket, without_uuid
from tests.support.reading import read
from tests.support.s3_server import S3Server, running_s3_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHUNKED = golden_topic("small-chunked")
BUCKET_NAME = "goldensmall"
"""The bucket that the set was written to, by its metadata."""


@pytest.fixture
def bucket(tmp_path: Path) -> OwnedBucket:
    """A copy of the small golden set."""
    return OwnedBucket.copied(tmp_path)


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    """An S3 server on loopback."""
    with running_s3_server() as server:
        yield server
        server.drop(BUCKET_NAME)


def _dataset(bucket: OwnedBucket, **options: Any) -> Any:  # noqa: ANN401
    options = {"metadata": bucket.metadata, "value": "raw", **options}
    return open_topic(str(bucket.objects), CHUNKED.name, **options)


def _moved(bucket: OwnedBucket, folder: Path) -> Path:
    """Move the objects of two ledgers to another folder."""
    folder.mkdir()
    for ledger in CHUNKED.ledgers[2:4]:
        for path in (ledger.data_object, ledger.index_object):
            shutil.move(bucket.objects / path.name, folder)
    return folder


def test_ledgers_in_another_folder(bucket: OwnedBucket, tmp_path: Path) -> None:
    """A bucket that the metadata names is where the user says it is."""
    expected = _dataset(bucket).to_table()
    other = _moved(bucket, tmp_path / "other")
    snapshot = tmp_path / "catalog.json.gz"

    with pytest.raises(MissingObjectError):
        _dataset(bucket)
    buckets = {BUCKET_NAME: str(other)}
    dataset = _dataset(bucket, buckets=buckets)
    assert dataset.to_table().equals(expected)
    bucket.catalog(buckets=buckets).save(snapshot)
    trace = RequestTrace()
    assert _dataset(bucket, metadata=snapshot, trace=trace).to_table().equals(expected)
    assert (trace.counts.list_requests, trace.counts.index_requests) == (0, 1)

    there = other.rename(tmp_path / "there")
    with pytest.raises(MissingObjectError):
        _dataset(bucket, metadata=snapshot).to_table()
    buckets = {BUCKET_NAME: str(there)}
    assert _dataset(bucket, metadata=snapshot, buckets=buckets).to_table().equals(expected)


@pytest.mark.s3
def test_ledgers_in_a_neighbour_bucket(s3_server: S3Server) -> None:
    """On S3 the other bucket is found by the name that the metadata has for it."""
    address = s3_server.upload_golden(GOLDEN / SMALL)
    client, bucket = s3_server.client, address.url.removeprefix("s3://")
    options: dict[str, Any] = {
        "storage_options": address.storage_options,
        "metadata": GOLDEN / SMALL,
        "value": "raw",
    }
    expected = open_topic(address.url, CHUNKED.name, **options).to_table()
    for ledger in CHUNKED.ledgers[2:4]:
        client.delete_object(Bucket=bucket, Key=ledger.index_object.name)
        client.delete_object(Bucket=bucket, Key=ledger.data_object.name)
    with pytest.raises(MissingObjectError, match=f"s3://{BUCKET_NAME}"):
        open_topic(address.url, CHUNKED.name, **options)
    client.create_bucket(Bucket=BUCKET_NAME)
    for ledger in CHUNKED.ledgers[2:4]:
        for path in (ledger.index_object, ledger.data_object):
            client.put_object(Bucket=BUCKET_NAME, Key=path.name, Body=path.read_bytes())
    trace = RequestTrace()

    table = open_topic(address.url, CHUNKED.name, trace=trace, **options).to_table()

    assert table.equals(expected)
    # The neighbour is listed once for both ledgers.
    assert trace.counts.list_requests == 2


def test_ledger_of_another_topic_is_not_taken_from_another_bucket(
    bucket: OwnedBucket, tmp_path: Path
) -> None:
    """Where the metadata tells no uuid, the ledger's id alone does not make it this topic's."""
    other = tmp_path / "other"
    other.mkdir()
    ledger, stranger = CHUNKED.ledgers[3], golden_topic("small-encrypted").ledgers[0]
    bucket.delete(ledger.data_object.name, ledger.index_object.name)
    for path in (stranger.data_object, stranger.index_object):
        name = path.name.replace(f"ledger-{stranger.ledger_id}", f"ledger-{ledger.ledger_id}")
        shutil.copy(path, other / name)
    bucket.change(CHUNKED.name, {ledger.ledger_id: without_uuid})

    with pytest.raises(MissingObjectError):
        _dataset(bucket, buckets={BUCKET_NAME: str(other)})


def test_bucket_of_an_impossible_name_is_a_ledger_lost(tmp_path: Path) -> None:
    """Metadata may name anything: a name that no bucket has is no reason to read nothing."""
    bucket = OwnedBucket.copied(tmp_path)
    ledger = CHUNKED.ledgers[3]
    bucket.delete(ledger.data_object.name, ledger.index_object.name)

    with pytest.raises(MissingObjectError, match="credentials in the URL"):
        _dataset(bucket, buckets={BUCKET_NAME: "s3://user:secret@bucket"})
    salvaged = _dataset(
        bucket, buckets={BUCKET_NAME: "s3://user:secret@bucket"}, on_corruption="salvage"
    )
    assert len(salvaged.scan.topics[0].ledgers) == 7


def test_task_goes_on_in_the_bucket_that_a_ledger_lies_in(
    bucket: OwnedBucket, tmp_path: Path
) -> None:
    """What began in one bucket ends in another one: each ledger is looked for where it lies."""
    expected = _dataset(bucket).to_table()
    buckets = {BUCKET_NAME: str(_moved(bucket, tmp_path / "other"))}
    scan = _dataset(bucket, buckets=buckets).scan
    tasks = [pickle.loads(pickle.dumps(task)) for task in scan.plan(1)]

    table = pa.concat_tables([read(scan, [task]) for task in tasks])

    assert len(tasks) == len(CHUNKED.ledgers)
    by_position = [("__ledger_id__", "ascending"), ("__entry_id__", "ascending")]
    assert table.sort_by(by_position).equals(expected)
