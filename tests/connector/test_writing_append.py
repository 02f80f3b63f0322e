"""More is written to a topic: readers with its metadata get it, and nothing that stood is lost."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrow_io.errors import OptionError
from arrow_io.messages.message_metadata import Message
from arrow_io.storage.location import Location
from connector import open_catalog, open_topic, write_messages
from connector.catalog.metadata.folder import MetadataFolder
from connector.upkeep.audit.audit import audit
from tests.support.appended_topics import files_below, keyed_rows, payloads_of
from tests.support.buckets import TOPIC, MemoryBucket
from tests.support.offloads import names

_TABLE = pa.table({"__value__": [b"one", b"two"]})
_MORE = pa.table({"__value__": [b"three", b"four"]})


@settings(max_examples=20)
@given(
    calls=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    partitions=st.sampled_from((None, 1, 3)),
    ledger_entries=st.integers(1, 3),
)
def test_who_reads_by_the_metadata_misses_nothing(
    calls: list[int], partitions: int | None, ledger_entries: int
) -> None:
    """However often is appended, metadata and bucket agree, and all rows are read, in order."""
    bucket = MemoryBucket()
    with TemporaryDirectory() as folder:
        expected: list[int] = []
        for number, count in enumerate(calls):
            values = list(range(len(expected), len(expected) + count))
            expected += values
            written = write_messages(
                bucket.url,
                TOPIC,
                keyed_rows(values),
                partitions=partitions,
                ledger_entries=ledger_entries,
                batch_messages=2,
                append=number > 0,
                metadata_folder=folder,
                broker_metadata=True,
            )

            with warnings.catch_warnings():
                warnings.simplefilter("error")
                read = [int(each) for each in payloads_of(bucket.url, Path(folder))]
            assert written.warnings == ()
            assert sorted(read) == expected
            assert partitions not in {None, 1} or read == expected

        found = audit(open_catalog(bucket.url, metadata=folder))
        assert found.findings == ()
    bucket.drop()


def test_ledgers_of_other_topics_stand_between(bucket: MemoryBucket, tmp_path: Path) -> None:
    """Topics of one bucket and folder are extended in turn, each with its own ledgers."""
    for number in range(3):
        for topic in ("orders", "payments"):
            table = pa.table({"__value__": [f"{topic} {number}"]})
            write_messages(bucket.url, topic, table, append=number > 0, metadata_folder=tmp_path)

    for topic in ("orders", "payments"):
        assert payloads_of(bucket.url, tmp_path, topic) == [
            f"{topic} {number}".encode() for number in range(3)
        ]


@pytest.mark.parametrize("has_metadata", [True, False])
def test_what_is_appended_comes_last(
    bucket: MemoryBucket, tmp_path: Path, *, has_metadata: bool
) -> None:
    """A ledger id before the topic's last is refused, and one behind it stands at the end."""
    folder = tmp_path if has_metadata else None
    write_messages(bucket.url, TOPIC, _TABLE, first_ledger_id=100, metadata_folder=folder)
    objects = names(Location(bucket.url))

    for first in (10, 100):
        with pytest.raises(OptionError, match="first_ledger_id must be greater than 100"):
            _append(bucket, folder, first)
    assert names(Location(bucket.url)) == objects
    _append(bucket, folder, 101)

    assert payloads_of(bucket.url, folder) == [b"one", b"two", b"three", b"four"]


def _append(bucket: MemoryBucket, folder: Path | None, first_ledger_id: int) -> None:
    write_messages(
        bucket.url,
        TOPIC,
        _MORE,
        first_ledger_id=first_ledger_id,
        append=True,
        metadata_folder=folder,
    )


def _metadata(folder: Path) -> list[Any]:
    source = MetadataFolder(str(folder), {})
    return [source.topic_metadata(topic) for topic in source.topics()]


def test_a_broker_counts_on_behind_the_greatest_index(bucket: MemoryBucket, tmp_path: Path) -> None:
    """Fewer messages that are appended do not take the number back."""
    for number, count in enumerate((5, 2)):
        write_messages(
            bucket.url, TOPIC, keyed_rows(range(count)), append=number > 0, broker_metadata=True,
            metadata_folder=tmp_path,
        )  # fmt: skip

    (metadata,) = _metadata(tmp_path)
    assert metadata.properties == {"index": "4"}


def test_a_ledger_of_the_metadata_that_the_bucket_lacks_stays(
    bucket: MemoryBucket, tmp_path: Path
) -> None:
    """What stood there is never dropped, nor its id given to another ledger."""
    write_messages(bucket.url, TOPIC, _TABLE, metadata_folder=tmp_path, batch_messages=1,
                   ledger_entries=1)  # fmt: skip
    location = Location(bucket.url)
    location.delete_objects([name for name in names(location) if "ledger-1" in name])

    write_messages(bucket.url, TOPIC, _MORE, metadata_folder=tmp_path, append=True)

    (metadata,) = _metadata(tmp_path)
    assert [each.ledger_id for each in metadata.ledgers] == [0, 1, 2, 3]


class TestWithoutTheFolder:
    """Metadata that may exist elsewhere is not forgotten."""

    def test_it_is_told(self, bucket: MemoryBucket) -> None:
        """Only who appends to ledgers that are there is warned."""
        first = write_messages(bucket.url, TOPIC, _TABLE, append=True)
        more = write_messages(bucket.url, TOPIC, _MORE, append=True)

        assert first.warnings == ()
        assert ["lacks the new ledgers" in each for each in more.warnings] == [True]

    def test_it_cannot_be_extended_afterwards(self, bucket: MemoryBucket, tmp_path: Path) -> None:
        """Metadata with a hole would hide the rows of that ledger."""
        write_messages(bucket.url, TOPIC, _TABLE, metadata_folder=tmp_path)
        write_messages(bucket.url, TOPIC, _TABLE, append=True)
        before, there = files_below(tmp_path), names(Location(bucket.url))

        with pytest.raises(OptionError, match="metadata folder lacks") as raised:
            write_messages(bucket.url, TOPIC, _MORE, append=True, metadata_folder=tmp_path)

        assert raised.value.ledger_id == 1
        assert (files_below(tmp_path), names(Location(bucket.url))) == (before, there)

    def test_a_new_folder_would_lack_what_is_there(
        self, bucket: MemoryBucket, tmp_path: Path
    ) -> None:
        """Nor does metadata begin in the middle of a topic."""
        write_messages(bucket.url, TOPIC, _TABLE)

        with pytest.raises(OptionError, match="metadata folder lacks"):
            write_messages(bucket.url, TOPIC, _MORE, append=True, metadata_folder=tmp_path / "new")

        assert not (tmp_path / "new").exists()


class TestPartitions:
    """Keys stay in the partitions that they are in."""

    @pytest.mark.parametrize("with_metadata", [False, True])
    @pytest.mark.parametrize(
        ("before", "after", "reason"),
        [
            (("orders", None), ("orders", 2), "without partitions"),
            (("orders", 2), ("orders", None), "give partitions=2"),
            (("orders", 2), ("orders", 1), "give partitions=2"),
            (("orders", 2), ("orders", 3), "give partitions=2"),
            (("orders", None), ("orders-partition-0", None), "without partitions"),
        ],
        ids=str,
    )
    def test_another_number_is_refused(
        self,
        bucket: MemoryBucket,
        tmp_path: Path,
        before: tuple[str, int | None],
        after: tuple[str, int | None],
        reason: str,
        *,
        with_metadata: bool,
    ) -> None:
        """The error says what the topic has; bucket and metadata stay as they are."""
        folder = tmp_path if with_metadata else None
        topic, partitions = before
        write_messages(
            bucket.url, topic, keyed_rows(range(9)), partitions=partitions, metadata_folder=folder
        )
        there, files = names(Location(bucket.url)), files_below(tmp_path)
        topic, partitions = after

        with pytest.raises(OptionError, match=reason):
            write_messages(
                bucket.url, topic, _MORE, partitions=partitions, append=True, metadata_folder=folder
            )

        assert (names(Location(bucket.url)), files_below(tmp_path)) == (there, files)

    def test_only_metadata_knows_of_empty_ones(self, bucket: MemoryBucket, tmp_path: Path) -> None:
        """The bucket alone cannot tell a partition that has no message yet."""
        table = pa.table({"__key__": ["a"], "__value__": [b"1"]})
        write_messages(bucket.url, TOPIC, table, partitions=40, metadata_folder=tmp_path)

        with pytest.raises(OptionError, match="give partitions="):
            write_messages(bucket.url, TOPIC, table, partitions=40, append=True)
        write_messages(
            bucket.url, TOPIC, table, partitions=40, append=True, metadata_folder=tmp_path
        )

        assert payloads_of(bucket.url, tmp_path) == [b"1", b"1"]

    def test_one_partition_is_a_topic_too(self, bucket: MemoryBucket, tmp_path: Path) -> None:
        """One may append to it alone, by its name."""
        write_messages(
            bucket.url, TOPIC, keyed_rows(range(9)), partitions=2, metadata_folder=tmp_path
        )

        write_messages(
            bucket.url, f"{TOPIC}-partition-1", _TABLE, append=True, metadata_folder=tmp_path
        )

        assert payloads_of(bucket.url, tmp_path)[-2:] == [b"one", b"two"]

    def test_a_partition_without_metadata_is_refused(
        self, bucket: MemoryBucket, tmp_path: Path
    ) -> None:
        """A folder that lost one partition's metadata is not extended around the hole."""
        write_messages(
            bucket.url, TOPIC, keyed_rows(range(9)), partitions=3, metadata_folder=tmp_path
        )
        shutil.rmtree(tmp_path / "public__default__orders-partition-1")

        with pytest.raises(OptionError, match=r"partition-1 has no metadata"):
            write_messages(
                bucket.url, TOPIC, _MORE, partitions=3, append=True, metadata_folder=tmp_path
            )


@pytest.mark.parametrize("folder", ["", b"x", 5], ids=repr)
def test_a_metadata_folder_is_a_path(bucket: MemoryBucket, folder: Any) -> None:  # noqa: ANN401
    """An empty one, which would be the folder that one stands in, is refused."""
    with pytest.raises(OptionError, match="metadata_folder must be a path or URL, such as"):
        write_messages(bucket.url, TOPIC, _TABLE, metadata_folder=folder)

    assert names(Location(bucket.url)) == []
    assert not Path("public__default__orders").exists()


def test_a_clusters_metadata_asks_for_ids(bucket: MemoryBucket, tmp_path: Path) -> None:
    """Ids that nobody chose would be lost at once; for readers alone they are chosen easily."""
    with pytest.raises(OptionError, match=r"west needs first_ledger_id.* immediately"):
        write_messages(bucket.url, TOPIC, _TABLE, cluster="west", metadata_folder=tmp_path)
    assert (names(Location(bucket.url)), files_below(tmp_path)) == ([], {})

    write_messages(bucket.url, "a", _TABLE, cluster="west")
    write_messages(bucket.url, "b", _TABLE, metadata_folder=tmp_path)
    write_messages(
        bucket.url, "c", _TABLE, cluster="west", metadata_folder=tmp_path, first_ledger_id=3000
    )


@given(
    times_ms=st.lists(st.integers(0, 2_000_000_000_000), min_size=1, max_size=20),
    batch_messages=st.integers(1, 4),
    delay_ms=st.sampled_from((0, 2**31 - 1)),
)
def test_a_ledger_counts_as_closed_at_its_greatest_publish_time(
    times_ms: list[int], batch_messages: int, delay_ms: int
) -> None:
    """So that a broker's seeks by time land, and its retention counts from the messages' age."""
    bucket = MemoryBucket()
    messages = [Message(payload=b"", publish_time_ms=each) for each in times_ms]

    written = write_messages(
        bucket.url, TOPIC, messages, ledger_entries=2, batch_messages=batch_messages,
        batch_delay_ms=delay_ms,
    )  # fmt: skip

    columns = ["__ledger_id__", "__publish_time__"]
    rows = open_topic(bucket.url, TOPIC, value="raw", columns=columns).to_table().to_pylist()
    greatest: dict[int, int] = {}
    for row in rows:
        ledger_id, time = row["__ledger_id__"], row["__publish_time__"]
        greatest[ledger_id] = max(greatest.get(ledger_id, 1), round(time.timestamp() * 1000))
    bucket.drop()
    *ledgers, _ = written.partitions[0].ledgers
    assert {each.ledger_id: each.timestamp_ms for each in ledgers} == greatest
