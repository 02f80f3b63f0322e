"""Topics that were never in a cluster: what is written is read back, by whatever reads topics."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrow_io.errors import EntryTooLargeError, OptionError, StorageError
from arrow_io.messages.codecs import COMPRESSION_TYPES
from arrow_io.storage.location import Location
from arrow_io.storage.trace import RequestTrace
from connector import open_catalog, open_topic, write_messages
from connector.catalog.metadata.folder import MetadataFolder
from connector.catalog.metadata.managed_ledger import parse_managed_ledger_info
from connector.inputs.topic_names import TopicName
from connector.writing.message_router import java_string_hash
from connector.writing.message_rows import REGENERATED_COLUMNS
from tests.support.buckets import TOPIC, MemoryBucket
from tests.support.expected import COLUMNS, rows_of, time_of
from tests.support.offloads import names
from tests.support.s3_server import S3Server, running_s3_server
from tests.support.written_messages import messages, told

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator
    from pathlib import Path

    from arrow_io.messages.message_metadata import Message
    from connector import Catalog

_KEPT = [name for name in COLUMNS if name not in REGENERATED_COLUMNS]
_TABLE = pa.table(
    {
        "__key__": [f"k{number % 5}" for number in range(40)],
        "__value__": [b"value %d" % number for number in range(40)],
    }
)


def _values(url: str, topic: str = TOPIC, catalog: Catalog | None = None) -> list[bytes]:
    table = open_topic(url, topic, columns=["__value__"], value="raw", catalog=catalog).to_table()
    values: list[bytes] = table["__value__"].to_pylist()
    return values


def _read(url: str, topic: str = TOPIC, **options: Any) -> pa.Table:  # noqa: ANN401
    return open_topic(url, topic, value="raw", columns=_KEPT, **options).to_table()


@settings(max_examples=25)
@given(
    given_messages=messages(),
    compression=st.sampled_from(list(COMPRESSION_TYPES)),
    ledger_entries=st.integers(1, 4),
    batch_messages=st.integers(1, 4),
)
def test_messages_are_read_as_they_were(
    given_messages: list[Message], compression: str, ledger_entries: int, batch_messages: int
) -> None:
    """Each message comes back, in order, whatever it is stored in, if no time may change."""
    bucket = MemoryBucket()

    write_messages(
        bucket.url,
        TOPIC,
        iter(given_messages),
        compression=compression,
        ledger_entries=ledger_entries,
        batch_messages=batch_messages,
        batch_delay_ms=0,
    )

    rows = rows_of(_read(bucket.url))
    bucket.drop()
    assert rows == [_expected_row(each, number) for number, each in enumerate(given_messages)]


def _published_apart(rows: int) -> pa.Table:
    """Rows of which each was published a second after the one before."""
    times = pa.array(range(0, rows * 1000, 1000), pa.timestamp("ms", tz="UTC"))
    return pa.table({"__publish_time__": times, "__value__": [b"value"] * rows})


def test_rows_with_publish_times_of_their_own_fill_a_ledger(bucket: MemoryBucket) -> None:
    """Each keeps its time in an entry of its own, and bytes decide when a ledger is full."""
    rows = _published_apart(60_000)

    written = write_messages(bucket.url, TOPIC, rows)

    read = open_topic(bucket.url, TOPIC, value="raw", columns=["__publish_time__"]).to_table()
    ledgers = [each.entries for each in written.partitions[0].ledgers]
    assert ledgers == [60_000, None]
    assert written.warnings == ()
    assert (
        read["__publish_time__"].cast(pa.timestamp("ms", tz="UTC")).equals(rows["__publish_time__"])
    )


@pytest.mark.parametrize(
    ("options", "batches", "note"),
    [
        ({}, 10, None),
        ({"batch_messages": 4}, 3, "7 messages took .* up to 3000 ms away; give batch_delay_ms=0"),
        ({"batch_messages": 4, "batch_delay_ms": 0}, 10, None),
        ({"batch_messages": 4, "batch_delay_ms": 1000}, 5, None),
        ({"batch_messages": 1}, 10, None),
        ({"batch_delay_ms": 10_000}, 1, None),
    ],
)
def test_batches_of_rows_with_publish_times_of_their_own(
    bucket: MemoryBucket, options: dict[str, Any], batches: int, note: str | None
) -> None:
    """By default times are kept; `batch_messages` makes batches, and says which times changed."""
    rows = _published_apart(10)

    written = write_messages(bucket.url, TOPIC, rows, **options)

    columns = ["__entry_id__", "__publish_time__"]
    read = open_topic(bucket.url, TOPIC, value="raw", columns=columns).to_table().to_pylist()
    first_times: dict[int, dt.datetime] = {}
    for row, given_time in zip(read, rows["__publish_time__"].to_pylist(), strict=True):
        assert row["__publish_time__"] == first_times.setdefault(row["__entry_id__"], given_time)
    assert len(first_times) == batches
    assert len(written.warnings) == (note is not None)
    assert note is None or re.match(note, written.warnings[0])


def _expected_row(message: Message, number: int) -> dict[str, object]:
    fields = told(message, number)
    key, version, deliver_at = message.key, message.schema_version, message.deliver_at_ms
    row = {
        "__publish_time__": time_of(message.publish_time_ms),
        "__event_time__": time_of(message.event_time_ms) if message.event_time_ms else None,
        "__sequence_id__": fields["sequence_id"],
        "__producer_name__": message.producer_name,
        "__key__": fields["key"],
        "__properties__": fields["properties"],
        "__value__": message.payload,
        "__key_bytes__": key.encode() if isinstance(key, str) else key,
        "__ordering_key__": message.ordering_key,
        "__schema_version__": version if isinstance(version, int) else None,
        "__null_value__": message.payload is None,
        "__deliver_at__": None if deliver_at is None else time_of(deliver_at),
        "__replicated_from__": message.replicated_from,
    }
    return {name: row[name] for name in _KEPT}


class TestPartitions:
    """A partitioned topic."""

    def test_each_key_is_in_its_partition(self, bucket: MemoryBucket) -> None:
        """Rows are where Java's client sends their keys, in order, and none is lost."""
        written = write_messages(bucket.url, TOPIC, _TABLE, partitions=3, ledger_entries=1)

        ledgers = sum(each.offload is not None for p in written.partitions for each in p.ledgers)
        assert ledgers >= 3
        assert repr(written) == (
            f"WrittenTopic({written.topic}: {written.message_count} messages in {ledgers} ledgers"
            " of 3 partitions)"
        )

        table = open_topic(
            bucket.url, TOPIC, value="raw", columns=["__partition__", "__key__", "__value__"]
        ).to_table()
        rows = table.to_pylist()
        assert sorted(table["__value__"].to_pylist()) == sorted(_TABLE["__value__"].to_pylist())
        assert {java_string_hash(row["__key__"]) % 3 - row["__partition__"] for row in rows} == {0}
        assert [str(each.topic) for each in written.partitions] == [
            f"{TOPIC}-partition-{number}" for number in range(3)
        ]
        for key in ("k0", "k1"):
            numbers = [int(row["__value__"][6:]) for row in rows if row["__key__"] == key]
            assert numbers == sorted(numbers)


class TestMetadata:
    """What goes with the objects, for a cluster or a catalog."""

    @pytest.mark.parametrize("partitions", [None, 3])
    def test_a_catalog_opens_the_topic_by_it(
        self, bucket: MemoryBucket, tmp_path: Path, partitions: int | None
    ) -> None:
        """The folder names the very ledgers that were written, and their copies."""
        name = "sales/eu/new orders: été"
        written = write_messages(
            bucket.url,
            name,
            _TABLE,
            partitions=partitions,
            ledger_entries=1,
            batch_messages=7,
            metadata_folder=tmp_path,
        )

        source = MetadataFolder(str(tmp_path), {})
        told_of = {topic: source.topic_metadata(topic) for topic in source.topics()}
        catalog = open_catalog(bucket.url, metadata=str(tmp_path))
        assert told_of == {each.topic: each for each in written.partitions}
        assert source.warnings == []
        assert sorted(_values(bucket.url, name, catalog)) == sorted(_TABLE["__value__"].to_pylist())

    def test_the_value_is_what_a_broker_would_store(
        self, bucket: MemoryBucket, tmp_path: Path
    ) -> None:
        """It has each ledger with its offload, and the number that a broker goes on from."""
        written = write_messages(
            bucket.url, TOPIC, _TABLE, broker_metadata=True, metadata_folder=tmp_path
        )

        (folder,) = tmp_path.iterdir()
        assert folder.name == "public__default__orders"
        assert {file.name for file in folder.iterdir()} == {
            "managed-ledger-info.bin",
            "internal-info.json",
            "internal-stats.json",
            "schemas-rest.json",
            "manifest.json",
        }
        value = (folder / "managed-ledger-info.bin").read_bytes()
        metadata = parse_managed_ledger_info(value, TopicName.parse(TOPIC))
        assert metadata == written.partitions[0]
        assert metadata.properties == {"index": "39"}
        assert [each.is_offloaded for each in metadata.ledgers] == [True, False]
        assert metadata.ledgers[-1].entries is None

    def test_metadata_is_not_overwritten(self, bucket: MemoryBucket, tmp_path: Path) -> None:
        """A topic that the folder has is refused before anything is written."""
        write_messages(bucket.url, TOPIC, _TABLE, metadata_folder=tmp_path)
        before = names(Location(bucket.url))

        with pytest.raises(OptionError, match="metadata of this topic already"):
            write_messages(bucket.url, TOPIC, _TABLE, metadata_folder=tmp_path)

        assert names(Location(bucket.url)) == before
        assert len(list(tmp_path.iterdir())) == 1


class TestLedgers:
    """Which ledgers are made."""

    def test_a_taken_id_undoes_all(self, bucket: MemoryBucket) -> None:
        """Where ids run into those of another topic, nothing is written."""
        write_messages(bucket.url, "another", _TABLE, first_ledger_id=12)
        before = names(Location(bucket.url))

        with pytest.raises(OptionError, match="ledger with this id"):
            write_messages(
                bucket.url, TOPIC, _TABLE, first_ledger_id=10, append=True,
                ledger_entries=1, batch_messages=9,
            )  # fmt: skip

        assert names(Location(bucket.url)) == before


class TestFailure:
    """A topic is written whole, or not at all."""

    @pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
    def test_what_the_messages_raise_undoes_all(
        self, bucket: MemoryBucket, tmp_path: Path, error: type[BaseException]
    ) -> None:
        """Ledgers that were complete are deleted, and the error is the messages' own."""
        seen: list[int] = []

        def failing() -> Iterator[pa.RecordBatch]:
            yield from _TABLE.to_batches(max_chunksize=5)
            seen.append(len(names(Location(bucket.url))))
            raise error

        with pytest.raises(error):
            write_messages(
                bucket.url,
                TOPIC,
                failing(),
                ledger_entries=1,
                batch_messages=5,
                metadata_folder=tmp_path / "metadata",
            )

        assert seen == [7], "data objects were there when it failed"
        assert names(Location(bucket.url)) == []
        assert not (tmp_path / "metadata").exists()

    def test_a_message_that_is_refused_undoes_all(self, bucket: MemoryBucket) -> None:
        """So does one that fits no entry, after others that did."""
        table = pa.table({"__value__": [b"a", b"b", bytes(2000)]})

        with pytest.raises(EntryTooLargeError, match="1024 are allowed"):
            write_messages(
                bucket.url, TOPIC, table, batch_messages=1, ledger_entries=1,
                compression="none", max_message_bytes=1024,
            )  # fmt: skip

        assert names(Location(bucket.url)) == []

    @pytest.mark.parametrize("number", range(3))
    def test_metadata_that_cannot_be_written_undoes_all(
        self, bucket: MemoryBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        """Neither ledgers nor a part of the metadata is left."""
        write = Location.write_object
        written: list[str] = []

        def failing(location: Location, name: str, *args: Any, **options: Any) -> None:  # noqa: ANN401
            if "ledger-" not in name or name.endswith(".bin"):
                if len(written) == number:
                    message = "the disk is full"
                    raise StorageError(message)
                written.append(name)
            write(location, name, *args, **options)

        monkeypatch.setattr(Location, "write_object", failing)

        with pytest.raises(StorageError, match="disk is full"):
            write_messages(bucket.url, TOPIC, _TABLE, metadata_folder=tmp_path)

        assert len(written) == number
        assert names(Location(bucket.url)) == []
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []

    def test_nothing_is_no_topic(self, bucket: MemoryBucket, tmp_path: Path) -> None:
        """Without a message there would be no ledger, so that is an error."""
        with pytest.raises(OptionError, match="no message"):
            write_messages(bucket.url, TOPIC, _TABLE.slice(0, 0), metadata_folder=tmp_path / "m")

        assert names(Location(bucket.url)) == []
        assert not (tmp_path / "m").exists()

    @pytest.mark.parametrize(
        ("topic", "options", "reason"),
        [
            ("orders", {"partitions": 0}, "partitions is 0"),
            ("orders", {"partitions": 501}, "partitions is 501"),
            ("orders-partition-1", {"partitions": 2}, "is a partition"),
            ("non-persistent://a/b/c", {}, "non-persistent"),
            ("a/b", {}, "is not 'name'"),
            ("orders", {"ledger_entries": 0}, "ledger_entries"),
            ("orders", {"ledger_bytes": 0}, "ledger_bytes"),
            ("orders", {"first_ledger_id": -1}, "first_ledger_id is -1"),
            ("orders", {"first_ledger_id": 2**63}, "first_ledger_id is"),
            ("orders", {"compression": "gzip"}, "compression"),
            ("orders", {"batch_messages": 0}, "batch_messages"),
            ("orders", {"batch_bytes": 0}, "batch_bytes"),
            ("orders", {"batch_delay_ms": -1}, "batch_delay_ms"),
            ("orders", {"max_message_bytes": 5}, "max_message_bytes"),
            ("orders", {"block_bytes": 5}, "block_bytes"),
            ("orders", {"schema": "no such type"}, "no such type"),
            ("orders", {"schema_version": 1}, "schema_version"),
            ("orders", {"schema": "int32", "messages": pa.table({"__value__": ["x"]})}, "INT32"),
            ("orders", {"messages": None}, "not NoneType"),
            ("orders", {"cluster": "\n"}, "user metadata"),
        ],
        ids=lambda value: str(value)[:40],
    )
    def test_options_out_of_bounds_are_refused(
        self, bucket: MemoryBucket, topic: str, options: dict[str, Any], reason: str
    ) -> None:
        """The error names the option, and nothing is written."""
        given_messages = options.pop("messages", _TABLE)

        with pytest.raises(OptionError, match=reason):
            write_messages(bucket.url, topic, given_messages, **options)

        assert names(Location(bucket.url)) == []


@pytest.mark.s3
def test_objects_on_s3_are_those_of_the_offloader() -> None:
    """Both objects say whose they are; a cluster's metadata says where they are."""
    with running_s3_server() as server:
        _check_s3(server)


def _check_s3(server: S3Server) -> None:
    name = server.new_bucket()
    options = server.storage_options
    trace = RequestTrace()

    written = write_messages(
        f"s3://{name}", TOPIC, _TABLE, storage_options=options, cluster="west", trace=trace
    )

    (topic,) = written.partitions
    offload = topic.ledgers[0].offload
    assert offload is not None
    assert (offload.driver, offload.bucket) == ("aws-s3", name)
    location = Location(f"s3://{name}", options)
    for object_name in names(location):
        metadata = location.user_metadata(object_name)
        assert metadata is not None
        assert metadata["managedledgername"] == "public/default/persistent/orders"
        assert metadata["pulsarclustername"] == "west"
    assert trace.counts.put_requests == 1
    read = open_topic(f"s3://{name}", TOPIC, storage_options=options, value="raw")
    assert read.to_table()["__value__"].to_pylist() == _TABLE["__value__"].to_pylist()
