"""Ledgers are offloaded as a broker does it, are read back, and are deleted."""

from __future__ import annotations

import importlib.metadata
import json
import time
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from arrow_io.errors import (
    MissingObjectError,
    OptionError,
)
from arrow_io.storage.trace import RequestCounts, RequestTrace
from connector import LedgerOffloader, LedgerToOffload
from tests.support.golden import GOLDEN, GOLDEN_SETS, golden_topics
from tests.support.offloads import (
    ENTRIES,
    LEDGER_ID,
    NAME,
    UUID_1,
    UUID_2,
    content,
    entries_of,
    golden_ledger,
    ledger_of,
    memory_offloader,
    metadata_of,
    names,
)
from tests.support.reference_ledger import read_entries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.s3_server import S3Server


class TestOffload:
    """What an offload writes, and what it says."""

    def test_what_is_offloaded_is_read_back(self) -> None:
        """Entries come back as they were, from objects of Pulsar's names."""
        offloader = memory_offloader(block_bytes=250)

        result = offloader.offload(ledger_of(ENTRIES), UUID_1)
        ledger = offloader.read_offloaded(LEDGER_ID, UUID_1)

        assert entries_of(ledger) == ENTRIES
        assert names(offloader.location) == [NAME.data_name, NAME.index_name]
        assert (
            read_entries(
                content(offloader.location, NAME.data_name),
                content(offloader.location, NAME.index_name),
            )
            == ENTRIES
        )
        assert ledger.index.block_count == result.block_count == 2
        assert ledger.index.data_object_length_bytes == result.data_bytes
        assert len(content(offloader.location, NAME.index_name)) == result.index_bytes
        assert (result.name, result.warnings) == (NAME, ())

    def test_requests_are_those_needed(self) -> None:
        """Parts, a look for leftovers, a PUT; before each object, whether the uuid is still new."""
        trace = RequestTrace()
        offloader = memory_offloader(block_bytes=250, trace=trace)

        result = offloader.offload(ledger_of(ENTRIES), UUID_1)

        assert trace.counts == RequestCounts(
            head_requests=3,
            upload_requests=2,
            part_requests=2,
            list_requests=1,
            put_requests=1,
            part_bytes=result.data_bytes,
            put_bytes=result.index_bytes,
        )

    def test_entries_are_taken_one_at_a_time(self) -> None:
        """No entry is taken before there is room for it: an endless source ends with an error."""
        taken = 0

        def entries() -> Iterator[bytes]:
            nonlocal taken
            while True:
                taken += 1
                yield b"one more"

        ledger = LedgerToOffload(LEDGER_ID, metadata_of([b"one more"] * 3), entries())

        with pytest.raises(OptionError, match="more or longer"):
            memory_offloader().offload(ledger, UUID_1)

        assert taken == 4

    def test_the_context_names_uuid_and_time(self) -> None:
        """What a cluster must record is complete; in memory it is of no driver."""
        before_ms = time.time_ns() // 1_000_000
        context = memory_offloader().offload(ledger_of(ENTRIES), UUID_1).context
        after_ms = time.time_ns() // 1_000_000

        assert context.timestamp_ms is not None
        assert before_ms <= context.timestamp_ms <= after_ms
        assert (context.uuid, context.complete) == (UUID_1, True)
        assert context.bookkeeper_deleted is False
        assert (context.driver, context.driver_properties) == (None, {})


class TestAsTheBroker:
    """The same bytes and the same user metadata as Pulsar's."""

    @pytest.mark.parametrize("set_name", GOLDEN_SETS)
    def test_golden_objects_are_written_again(self, set_name: str) -> None:
        """A broker's entries, metadata and block size must give its objects byte for byte."""
        offloader = memory_offloader()
        ledgers = [
            ledger
            for topic in golden_topics()
            if topic.set_name == set_name
            for ledger in topic.ledgers
        ]

        for ledger in ledgers:
            offloader.offload(golden_ledger(ledger), UUID(ledger.uuid))

        objects = GOLDEN / set_name / "objects"
        assert set(names(offloader.location)) == {
            path.name for ledger in ledgers for path in (ledger.data_object, ledger.index_object)
        }
        for name in names(offloader.location):
            assert content(offloader.location, name) == (objects / name).read_bytes(), name

    @pytest.mark.s3
    def test_golden_user_metadata_is_written_again(self, s3_server: S3Server) -> None:
        """On S3, both objects have the broker's user metadata, but for what names the software."""
        descriptions = json.loads((GOLDEN / "pulsar-4.0.7" / "objects.json").read_text())
        (topic,) = (topic for topic in golden_topics() if topic.name.endswith("/multi-block"))
        (ledger,) = topic.ledgers
        bucket = s3_server.new_bucket()
        offloader = LedgerOffloader(
            f"s3://{bucket}",
            storage_options=s3_server.storage_options,
            cluster="standalone",
        )

        result = offloader.offload(
            golden_ledger(ledger), UUID(ledger.uuid), {"ManagedLedgerName": topic.managed_ledger}
        )

        for path in (ledger.data_object, ledger.index_object):
            head = s3_server.client.head_object(Bucket=bucket, Key=path.name)
            body = s3_server.client.get_object(Bucket=bucket, Key=path.name)["Body"].read()
            expected = dict(descriptions[path.name]["user_metadata"])
            del expected["s3managedledgeroffloadersoftwaregitsha"]
            version = importlib.metadata.version("pulsar-offload")
            expected["s3managedledgeroffloadersoftwareversion"] = f"pulsar-offload {version}"
            assert head["Metadata"] == expected
            assert head["ContentType"] == "application/octet-stream"
            assert body == path.read_bytes()
        data = s3_server.client.head_object(Bucket=bucket, Key=ledger.data_object.name)
        assert result.block_count == 1
        assert data["ETag"].endswith('-1"'), "a multipart upload, as a broker's"
        assert offloader.read_offloaded(ledger.ledger_id, UUID(ledger.uuid)).warnings == ()

    @pytest.mark.s3
    def test_a_block_is_a_part(self, s3_server: S3Server) -> None:
        """On S3 the data object is a multipart upload of which each block is a part."""
        (topic,) = (topic for topic in golden_topics() if topic.name.endswith("/multi-block"))
        (ledger,) = topic.ledgers
        golden = golden_ledger(ledger)
        bucket = s3_server.new_bucket()
        offloader = LedgerOffloader(
            f"s3://{bucket}", storage_options=s3_server.storage_options, block_bytes=5 << 20
        )

        result = offloader.offload(golden, UUID(ledger.uuid))
        read = offloader.read_offloaded(ledger.ledger_id, UUID(ledger.uuid))

        data = s3_server.client.head_object(Bucket=bucket, Key=ledger.data_object.name)
        assert result.block_count == read.index.block_count == 4
        assert data["ETag"].endswith('-4"')
        assert entries_of(read) == golden.entries
        assert offloader.location.unfinished_uploads() == []

    @pytest.mark.parametrize(
        ("url", "driver", "constant"),
        [
            ("s3a://bucket", "aws-s3", "AWS_S3"),
            ("gs://bucket/prefix", "google-cloud-storage", "GOOGLE_CLOUD_STORAGE"),
            ("gcs://bucket", "google-cloud-storage", "GOOGLE_CLOUD_STORAGE"),
            ("az://bucket/prefix", "azureblob", "AZURE_BLOB"),
            ("abfs://bucket@account.dfs.core.windows.net/x", "azureblob", "AZURE_BLOB"),
        ],
    )
    def test_drivers_of_other_stores(self, url: str, driver: str, constant: str) -> None:
        """Each object store has the driver of its own; what is not set is empty."""
        context = LedgerOffloader(url)._context(UUID_1)

        assert context.driver == driver
        assert context.driver_properties == {
            "bucket": "bucket",
            "managedLedgerOffloadDriver": constant,
            "region": "",
            "serviceEndpoint": "",
        }


class TestCopies:
    """Offloaded ledgers, offloaded elsewhere."""

    def test_a_ledger_is_copied(self) -> None:
        """A copy in other blocks has the same entries and ledger metadata, and can be repeated."""
        offloader, elsewhere = memory_offloader(), memory_offloader(block_bytes=300)
        offloader.offload(ledger_of(ENTRIES), UUID_1)
        copy = LedgerToOffload.from_offloaded(offloader.read_offloaded(LEDGER_ID, UUID_1))

        elsewhere.offload(copy, UUID_1)
        elsewhere.offload(copy, UUID_2)

        for uuid in (UUID_1, UUID_2):
            ledger = elsewhere.read_offloaded(LEDGER_ID, uuid)
            assert entries_of(ledger) == ENTRIES
            assert ledger.index.ledger_metadata == metadata_of(ENTRIES)


class TestDelete:
    """Offloaded ledgers are deleted, and nothing else."""

    def test_a_ledger_is_deleted(self) -> None:
        """Both objects of the one attempt go, and a second time there is nothing to do."""
        offloader = memory_offloader()
        offloader.offload(ledger_of(ENTRIES), UUID_1)
        offloader.offload(ledger_of(ENTRIES), UUID_2)

        offloader.delete_offloaded(LEDGER_ID, UUID_1)
        offloader.delete_offloaded(LEDGER_ID, UUID_1)

        assert all(str(UUID_2) in name for name in names(offloader.location))
        assert entries_of(offloader.read_offloaded(LEDGER_ID, UUID_2)) == ENTRIES
        with pytest.raises(MissingObjectError):
            offloader.read_offloaded(LEDGER_ID, UUID_1)

    def test_the_index_object_goes_first(self) -> None:
        """Whoever deletes and is stopped half way leaves an unfinished offload."""
        trace = RequestTrace(keep_records=True)
        offloader = memory_offloader(trace=trace)

        offloader.delete_offloaded(LEDGER_ID, UUID_1)

        deleted = [record.name for record in trace.records if record.name]
        assert deleted == [NAME.index_name, NAME.data_name]
