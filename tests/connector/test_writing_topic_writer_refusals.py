"""What `write_messages` refuses or warns of, so that no topic is harmed that is there already."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

from arrow_io.errors import OptionError, StorageError
from arrow_io.messages.message_metadata import Message
from arrow_io.storage.location import Location
from connector import open_topic, write_messages
from connector.writing.topic_files import METADATA_FILES
from tests.support.buckets import TOPIC, MemoryBucket
from tests.support.offloads import names

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.s3_server import S3Server

_TABLE = pa.table({"__value__": [b"one", b"two"]})


def _values(url: str, topic: str = TOPIC) -> list[bytes]:
    table = open_topic(url, topic, columns=["__value__"], value="raw").to_table()
    values: list[bytes] = table["__value__"].to_pylist()
    return values


class TestTwoWriters:
    """Two that write at once choose the same ids."""

    @pytest.mark.parametrize("topic", [TOPIC, "another"])
    def test_the_one_that_ends_later_is_undone(
        self, bucket: MemoryBucket, tmp_path: Path, topic: str
    ) -> None:
        """Nothing is left of it, and all of the other, metadata included."""

        def rows() -> Iterator[Message]:
            yield Message(payload=b"A", publish_time_ms=0)
            write_messages(bucket.url, topic, _TABLE, metadata_folder=tmp_path)

        with pytest.raises(OptionError, match="one writer at a time") as raised:
            write_messages(bucket.url, TOPIC, rows(), metadata_folder=tmp_path)

        assert raised.value.ledger_id == 0
        assert getattr(raised.value, "__notes__", []) == []
        assert _values(bucket.url, topic) == [b"one", b"two"]
        assert len(names(Location(bucket.url))) == 2
        (folder,) = tmp_path.iterdir()
        assert {file.name for file in folder.iterdir()} == set(METADATA_FILES)

    def test_other_ids_do_not_disturb(self, bucket: MemoryBucket) -> None:
        """Writers that were given ids far apart can write at once."""

        def rows() -> Iterator[Message]:
            yield Message(payload=b"A", publish_time_ms=0)
            write_messages(bucket.url, "another", _TABLE, first_ledger_id=1000)

        write_messages(bucket.url, TOPIC, rows())

        assert (_values(bucket.url), _values(bucket.url, "another")) == ([b"A"], [b"one", b"two"])


class TestTopicsThatAreThere:
    """A topic that has ledgers is written to only if that is meant."""

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ({"topic": "orders"}, {"topic": "orders"}),
            ({"topic": "orders"}, {"topic": "persistent://public/default/orders"}),
            ({"topic": "orders"}, {"topic": "orders", "partitions": 2}),
            ({"topic": "orders", "partitions": 2}, {"topic": "orders"}),
            ({"topic": "orders", "partitions": 2}, {"topic": "orders-partition-0"}),
            ({"topic": "orders"}, {"topic": "orders-partition-0"}),
            ({"topic": "orders-partition-5"}, {"topic": "orders", "partitions": 2}),
        ],
        ids=str,
    )
    def test_they_are_refused(
        self, bucket: MemoryBucket, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        """The topic itself, a partition of it, or what it is a partition of."""
        write_messages(bucket.url, messages=_TABLE, batch_messages=1, **before)
        there = names(Location(bucket.url))

        with pytest.raises(OptionError, match=r"has ledgers of .*orders.* give append"):
            write_messages(bucket.url, messages=_TABLE, **after)

        assert names(Location(bucket.url)) == there

    def test_other_topics_are_not(self, bucket: MemoryBucket) -> None:
        """A further partition, or a topic of another namespace, is another topic."""
        write_messages(bucket.url, "orders-partition-0", _TABLE)
        write_messages(bucket.url, "orders-partition-1", _TABLE)
        write_messages(bucket.url, "sales/eu/orders", _TABLE)

        assert len(_values(bucket.url, "orders")) == 4

    def test_numbers_start_anew(self, bucket: MemoryBucket) -> None:
        """What is appended has the sequence ids and broker indexes of a topic of its own."""
        for append in (False, True):
            write_messages(bucket.url, TOPIC, _TABLE, append=append, broker_metadata=True)

        columns = ["__ledger_id__", "__sequence_id__", "__broker_index__"]
        rows = open_topic(bucket.url, TOPIC, columns=columns, value="raw").to_table().to_pylist()
        assert [tuple(row.values()) for row in rows] == [(0, 0, 0), (0, 1, 1), (1, 0, 0), (1, 1, 1)]


class TestWarnings:
    """What does no harm is told."""

    def test_leftovers_that_cannot_be_looked_for(
        self, bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A store that lists no uploads to us is told of once, however many ledgers there are."""
        monkeypatch.setattr(
            Location, "unfinished_uploads", Mock(side_effect=StorageError("access denied"))
        )

        written = write_messages(bucket.url, TOPIC, _TABLE, batch_messages=1, ledger_entries=1)

        (warning,) = written.warnings
        assert "access denied" in warning

    def test_undoing_is_done_without_looking_for_leftovers(
        self, bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Ledgers that are deleted are not told to be there."""

        def rows() -> Iterator[pa.RecordBatch]:
            yield from _TABLE.to_batches()
            raise ZeroDivisionError

        monkeypatch.setattr(
            Location, "unfinished_uploads", Mock(side_effect=StorageError("access denied"))
        )

        with pytest.raises(ZeroDivisionError) as raised:
            write_messages(bucket.url, TOPIC, rows(), batch_messages=1, ledger_entries=1)

        assert names(Location(bucket.url)) == []
        (note,) = raised.value.__notes__
        assert "unfinished uploads could not be cleaned up: access denied" in note

    @pytest.mark.s3
    @pytest.mark.parametrize("prefix", ["", "/", "/some/prefix"])
    def test_metadata_of_ledgers_below_a_prefix(
        self, s3_server: S3Server, tmp_path: Path, prefix: str
    ) -> None:
        """A broker looks at the root of the bucket, so metadata for one is of no use there."""
        url = f"s3://{s3_server.new_bucket()}{prefix}"
        options = s3_server.storage_options

        without = write_messages(url, TOPIC, _TABLE, storage_options=options)
        with_metadata = write_messages(
            url, "another", _TABLE, storage_options=options, metadata_folder=tmp_path
        )

        chosen = write_messages(
            url, "third", _TABLE, storage_options=options, metadata_folder=tmp_path,
            first_ledger_id=100,
        )  # fmt: skip

        is_below = prefix == "/some/prefix"
        assert without.warnings == ()
        assert ["at the root" in each for each in with_metadata.warnings] == [is_below]
        assert ["lose them at once" in each for each in with_metadata.warnings] == [not is_below]
        assert ["at the root" in each for each in chosen.warnings] == [True] * is_below


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"url": 5}, "not an int"),
        ({"url": "dir::s3://bucket"}, "chain of URLs"),
        ({"url": "s3://bucket/orders?versionId=1"}, r"has a '\?'"),
        ({"topic": 5}, "not int"),
        (
            {"storage_options": "key"},
            "storage_options must be a mapping with names as keys, not a str",
        ),
        ({"compression": None}, "compression"),
        ({"cluster": 5}, "cluster must be the name of a cluster, not 5"),
        ({"cluster": ""}, "cluster must be the name of a cluster"),
        (
            {"metadata_folder": 5},
            "metadata_folder must be a path or URL, such as s3://bucket/prefix, not an int",
        ),
        ({"metadata_folder": "dir::memory://m"}, "chain of URLs"),
        ({"first_ledger_id": 2**63 - 1}, "ledger ids end at 9223372036854775807"),
    ],
    ids=str,
)
def test_options_of_wrong_types_are_refused(
    bucket: MemoryBucket, options: dict[str, Any], reason: str
) -> None:
    """The error names the option, and nothing is written."""
    given = {"url": bucket.url, "topic": TOPIC, "messages": _TABLE, **options}

    with pytest.raises(OptionError, match=reason):
        write_messages(**given)

    assert names(Location(bucket.url)) == []


@pytest.mark.parametrize("partitions", [None, 2])
def test_a_message_of_wrong_types_is_refused(bucket: MemoryBucket, partitions: int | None) -> None:
    """The error names the message and the field, before it is routed to a partition."""
    good = Message(payload=b"", publish_time_ms=0)
    wrong: Any = {"payload": b"", "publish_time_ms": 0, "key": 5}

    with pytest.raises(OptionError, match="message 1 has a wrong key: int"):
        write_messages(bucket.url, TOPIC, [good, Message(**wrong)], partitions=partitions)

    assert names(Location(bucket.url)) == []


def test_a_temporary_folder_that_is_not_usable_is_named(
    bucket: MemoryBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That entries cannot be kept aside is an error of the storage, and undoes all."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    large = [Message(payload=bytes(1 << 20), publish_time_ms=0)] * 40

    with pytest.raises(StorageError, match=r"temporary folder .*absent: No such file"):
        write_messages(bucket.url, TOPIC, large, compression="none", ledger_bytes=35 << 20)

    assert names(Location(bucket.url)) == []
